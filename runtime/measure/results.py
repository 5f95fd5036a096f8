"""What was found, in a file that sparkd reads: replaced as a whole, so that nobody sees half of it."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

VERSION = 1
FILE = "rails.json"


@dataclass(frozen=True)
class Result:
    """One rail from its end here. ``gbps``: 10**9 bit/s, the lower of both directions; None if it was not measured.

    ``method``: rdma or tcp. ``mtu_passed``: whether packets of 8972 bytes pass both ways, None if none do at all.
    ``error``: why the rail counts as not measured; empty if it does not. ``at``: seconds of CLOCK_MONOTONIC.
    """

    device: str
    node: str
    remote: str
    gbps: float | None = None
    method: str = ""
    mtu_passed: bool | None = None
    error: str = ""
    boot_id: str = ""
    carrier_changes: int = 0
    at: float = 0.0

    def __str__(self) -> str:
        name = f"{self.device} to {self.node} ({self.remote})"
        if self.error:
            return f"{name}: not measured: {self.error}"
        rate = "rate not measured" if self.gbps is None else f"{self.gbps:.2f} Gb/s ({self.method})"
        passes = (
            "" if self.mtu_passed is None else f", packets of 8972 bytes{'' if self.mtu_passed else ' do not'} pass"
        )
        return f"{name}: {rate}{passes}"


class Results:
    """The file in ``directory``. What it says of other rails of this boot stays."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        self._path = directory / FILE
        self._boot_id = boot_id
        self._known = self._read()

    def add(self, result: Result) -> None:
        """Take a result down, in place of an older one of the same device. Raises OSError."""
        self._known[result.device] = {**asdict(result), "boot_id": self._boot_id, "at": time.monotonic()}
        text = json.dumps({"version": VERSION, "rails": list(self._known.values())}, indent=1)
        draft = self._path.with_name(f".{FILE}.new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{text}\n")
        # No fsync: the directory is in memory, and a new boot measures again anyway.
        draft.replace(self._path)

    def _read(self) -> dict[str, dict[str, object]]:
        try:
            document = json.loads(self._path.read_bytes())
            if document["version"] != VERSION:
                return {}
            return {str(rail["device"]): dict(rail) for rail in document["rails"] if rail["boot_id"] == self._boot_id}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}


def carrier_changes(device: str, sysfs: Path = Path("/sys")) -> int:
    """How often the device's carrier has come or gone. Raises OSError."""
    return int((sysfs / f"class/net/{device}/carrier_changes").read_text("ascii"))
