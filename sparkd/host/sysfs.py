"""RDMA devices as /sys/class/infiniband shows them."""

from __future__ import annotations

import errno
from pathlib import Path

from sparkd.core.model import RoceFact
from sparkd.host import tree
from sparkd.host.worker import Worker

_GID_SLOTS = 8  # of up to 1024: the netdev's own link-local GID sits in slot 0 unless addresses have come and gone


class SysfsRoce:
    """A host without RDMA has no such directory: no devices, which is an answer and not an error."""

    def __init__(self, root: Path = Path("/sys"), deadline: float = 2.0) -> None:
        self._directory = root / "class/infiniband"
        self._worker = Worker("sysfs", deadline)

    async def observe(self) -> tuple[RoceFact, ...]:
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> tuple[RoceFact, ...]:
        try:
            devices = sorted(self._directory.iterdir())
        except FileNotFoundError:
            return ()
        facts = []
        for device in devices:
            try:
                facts.append(RoceFact(hca=device.name, state=_state(device), netdev=_netdev(device)))
            except FileNotFoundError:
                if device.exists():
                    raise
                # A PCI function was unplugged between the listing and the reading.
        return tuple(facts)


def _state(device: Path) -> str:
    """Port 1's state; the file reads like "4: ACTIVE"."""
    return (device / "ports/1/state").read_text("ascii").strip().partition(": ")[2]


def _netdev(device: Path) -> str:
    """The network device. A PCI function lists it below `device`; Soft-RoCE has no `device`, but names its `parent`.

    Other software devices tell it by their GID table alone, which is empty while the port is down.
    """
    try:
        return next(iter(sorted(entry.name for entry in (device / "device/net").iterdir())), "")
    except FileNotFoundError:
        pass
    if parent := tree.attribute(device / "parent"):
        return parent
    for slot in range(_GID_SLOTS):
        try:
            return (device / f"ports/1/gid_attrs/ndevs/{slot}").read_text("ascii").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            # The kernel answers so for a slot of the table that is empty.
            if error.errno != errno.EINVAL:
                raise
    return ""
