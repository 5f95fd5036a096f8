"""RDMA devices as /sys/class/infiniband shows them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

from sparkd.core.model import RoceFact
from sparkd.host import tree
from sparkd.host.gids import GidWatch
from sparkd.host.worker import Worker

_GID_SLOTS = 8  # of up to 1024: the netdev's own link-local GID sits in slot 0 unless addresses have come and gone


class SysfsRoce:
    """A host without RDMA has no such directory: no devices, which is an answer and not an error.

    `gids`: the GIDs that a rank was started with, as in Attempt.gids; {} while there is none to watch.
    """

    def __init__(
        self,
        root: Path = Path("/sys"),
        deadline: float = 2.0,
        gids: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._directory = root / "class/infiniband"
        self._worker = Worker("sysfs", deadline)
        self._gids = gids
        self._watch = GidWatch(self._directory)

    async def observe(self) -> tuple[RoceFact, ...]:
        marks = self._gids()
        return await self._worker.call(lambda: self._read(marks))

    def close(self) -> None:
        self._worker.close(lambda: self._watch.keep({}))

    def _read(self, marks: Mapping[str, str]) -> tuple[RoceFact, ...]:
        self._watch.keep(marks)
        try:
            devices = sorted(self._directory.iterdir())
        except FileNotFoundError:
            return ()
        facts = []
        for device in devices:
            try:
                gid = self._watch.look(device.name, marks[device.name]) if device.name in marks else None
                received, sent = (_bytes(device, way) for way in ("rcv", "xmit"))
                facts.append(RoceFact(device.name, _state(device), _netdev(device), gid, received, sent))
            except FileNotFoundError:
                if device.exists():
                    raise
                # A PCI function was unplugged between the listing and the reading.
        return tuple(facts)


def _state(device: Path) -> str:
    """Port 1's state; the file reads like "4: ACTIVE"."""
    return (device / "ports/1/state").read_text("ascii").strip().partition(": ")[2]


def _bytes(device: Path, way: str) -> int | None:
    """Counted in words of four octets (InfiniBand, PortXmitData)."""
    text = tree.attribute(device / f"ports/1/counters/port_{way}_data")
    return int(text) * 4 if text.isdecimal() else None


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
