"""What /proc tells of this host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ring_mesh import FABRIC_DEVICES
from sparkd.core.facts import HostFacts, PortBytes
from sparkd.host.processes import RankProcesses
from sparkd.host.worker import Worker
from sparkd.ports import DoorError

_AVAILABLE = re.compile(rb"^MemAvailable: +(\d+) kB$", re.MULTILINE)


class AvailableMemory:
    """MemAvailable alone, for a look once a second or oftener. Does not block: the kernel only adds up its counters."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._path = str(root / "meminfo")

    def __call__(self) -> int:
        """KiB. Raises OSError, or ValueError if it is not told."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, 512)
        finally:
            os.close(descriptor)
        found = _AVAILABLE.search(text)
        if found is None:
            raise ValueError(f"{self._path} has no MemAvailable")
        return int(found[1])


class ProcHost:
    def __init__(
        self, root: Path = Path("/proc"), deadline: float = 2.0, processes: RankProcesses | None = None
    ) -> None:
        self._root = root
        self._processes = processes or RankProcesses()
        self._worker = Worker("/proc", deadline)

    async def observe(self) -> HostFacts:
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> HostFacts:
        memory = self._root / "meminfo"
        kibibytes = dict(_fields(memory.read_text("ascii")))
        missing = {"MemTotal", "MemAvailable"} - kibibytes.keys()
        if missing:
            raise DoorError(f"{memory} has no {' and no '.join(sorted(missing))}")
        return HostFacts(
            boot_id=self._line("sys/kernel/random/boot_id"),
            memory_total_kib=kibibytes["MemTotal"],
            memory_available_kib=kibibytes["MemAvailable"],
            kernel=self._line("sys/kernel/osrelease"),
            rank_processes=self._processes.read(),
            traffic=tuple(self._traffic()),
        )

    def _traffic(self) -> Iterator[PortBytes]:
        """One file has them for all devices, where sysfs has four for each."""
        try:
            lines = (self._root / "net/dev").read_text("ascii", "replace").splitlines()
        except OSError:
            return  # it is only for curves
        for line in lines[2:]:
            device, _, rest = line.partition(":")
            numbers = rest.split()
            if device.strip() in FABRIC_DEVICES and len(numbers) > 8:
                yield PortBytes(device.strip(), int(numbers[0]), int(numbers[8]))

    def _line(self, name: str) -> str:
        path = self._root / name
        line = path.read_text("ascii").strip()
        if not line:
            raise DoorError(f"{path} is empty")
        return line


def catches(pid: int, number: int, root: Path = Path("/proc")) -> bool:
    """Whether the process has a handler for the signal. One that is gone, or is another user's secret, has none."""
    try:
        found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", (root / str(pid) / "status").read_text("ascii", "replace"), re.M)
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def _fields(text: str) -> list[tuple[str, int]]:
    pairs = (line.partition(":") for line in text.splitlines())
    return [(name, int(rest.split()[0])) for name, _, rest in pairs if rest.split()[:1] and rest.split()[0].isdigit()]
