"""Memory in the detail that the checks before a start need."""

from __future__ import annotations

from pathlib import Path

from sparkd.core.hardware import MemoryFacts
from sparkd.host import tree
from sparkd.host.worker import Worker
from sparkd.ports import DoorError


class MemoryFiles:
    def __init__(self, root: Path = Path("/"), deadline: float = 2.0) -> None:
        self._proc = root / "proc"
        self._worker = Worker("/proc/meminfo", deadline)

    async def observe(self) -> MemoryFacts:
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> MemoryFacts:
        fields = dict(map(_field, (self._proc / "meminfo").read_text("utf-8").splitlines()))
        missing = {"MemTotal", "MemAvailable", "MemFree", "SwapTotal"} - fields.keys()
        if missing:
            raise DoorError(f"/proc/meminfo has no {' and no '.join(sorted(missing))}")
        swappiness = tree.attribute(self._proc / "sys/vm/swappiness")
        return MemoryFacts(
            total=fields["MemTotal"],
            available=fields["MemAvailable"],
            free=fields["MemFree"],
            cached=fields.get("Cached", 0),
            shmem=fields.get("Shmem", 0),
            anonymous=fields.get("AnonPages", 0),
            swap_total=fields["SwapTotal"],
            cma_total=fields.get("CmaTotal"),
            cma_free=fields.get("CmaFree"),
            swappiness=int(swappiness) if swappiness.isdecimal() else None,
        )


def _field(line: str) -> tuple[str, int]:
    name, _, rest = line.partition(":")
    value = rest.split()[:1]
    return (name, int(value[0])) if value and value[0].isdecimal() else ("", 0)
