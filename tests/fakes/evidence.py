"""A witness and an archive without a machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sparkd.core.incidents import Incident
from sparkd.ports import DoorError
from tests.fakes.units import FakeUnits


class FakeWitness:
    """Sees the units of one host. `broken` is the sentence of the DoorError to raise; `hangs`: it never answers.

    `watch` is called when it looks at what lives.
    """

    def __init__(self, units: FakeUnits) -> None:
        self._units = units
        self.broken = ""
        self.hangs = False
        self.closed = False
        self.watch: Callable[[], None] = lambda: None

    async def living(self, epoch: int) -> Mapping[str, str]:
        await self._answer()
        self.watch()
        pids = [unit.main_pid for unit in self._units.loaded() if unit.epoch == epoch and unit.main_pid]
        return {"processes.txt": "".join(f"process {pid}\n" for pid in pids)} if pids else {}

    async def past(self, epoch: int, since: float) -> Mapping[str, str]:
        await self._answer()
        return {"first.txt": f"RuntimeError: of epoch {epoch}", "journal.txt": f"since {since}\n", "memory.txt": ""}

    def close(self) -> None:
        self.closed = True

    async def _answer(self) -> None:
        assert not self.closed
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            raise DoorError(self.broken)


class FakeArchive:
    """`entries` and `texts` outlive a daemon, like the disk that they stand for."""

    def __init__(self) -> None:
        self.entries: dict[int, Incident] = {}
        self.texts: dict[int, dict[str, str]] = {}
        self.broken = ""

    async def keep(self, incident: Incident, files: Mapping[str, str]) -> None:
        self._answer()
        assert "first.txt" not in files, "the first error is in the incident itself"
        self.entries[incident.epoch] = incident
        self.texts.setdefault(incident.epoch, {}).update(files)

    async def kept(self) -> tuple[Incident, ...]:
        self._answer()
        return tuple(self.entries[epoch] for epoch in sorted(self.entries, reverse=True))

    async def files(self, epoch: int) -> Mapping[str, str]:
        self._answer()
        return dict(self.texts.get(epoch, {}))

    def close(self) -> None:
        """The disk stays."""

    def _answer(self) -> None:
        if self.broken:
            raise DoorError(self.broken)
