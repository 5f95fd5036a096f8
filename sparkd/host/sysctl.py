"""The per-interface sysctls that a host with several fabric ports needs, below /proc/sys/net/ipv4/conf."""

from __future__ import annotations

from pathlib import Path

from sparkd.core.links import SETTINGS
from sparkd.host.worker import describe
from sparkd.ports import DoorError

ROOT = Path("/proc/sys/net/ipv4/conf")


def read(device: str, root: Path = ROOT) -> dict[str, str]:
    """The sysctls of core.links.SETTINGS as they are, by name; without those that cannot be read."""
    found = {}
    for name in SETTINGS:
        try:
            found[name] = (root / device / name).read_text("ascii").strip()
        except OSError:
            continue  # the device has just gone, which its link says
    return found


def write(device: str, name: str, value: str, root: Path = ROOT) -> None:
    """Raises DoorError. Writing needs CAP_NET_ADMIN, and a /proc/sys/net that is not read-only."""
    path = root / device / name
    try:
        path.write_text(value, "ascii")
    except OSError as error:
        raise DoorError(f"{device}: cannot set {path} to {value}: {describe(error)}") from error
