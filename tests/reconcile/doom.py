"""Doors of a daemon that is to die: the n-th of its actions does not happen, and nothing after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sparkd.core.actions import FabricChange
from sparkd.core.model import Attempt, FabricMemory, Intent
from sparkd.ports import DoorError
from tests.fakes import FakeDisk, FakeLinks, FakeRankFiles, FakeStore, FakeUnits


class Crash(BaseException):
    """The daemon's process is gone, between two of its actions."""


class Doom:
    """How many more actions a daemon gets to do, None for as many as it likes. `hangs`: they never return; `refuses`:
    they fail with that sentence. `acts` are those that it has come to."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.left: int | None = None
        self.struck = False
        self.hangs = False
        self.refuses = ""

    async def act(self, what: str) -> None:
        self.acts.append(what)
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise DoorError(self.refuses)
        if self.left == 0:
            self.struck = True
            raise Crash
        if self.left is not None:
            self.left -= 1


class DoomedStore(FakeStore):
    def __init__(self, disk: FakeDisk, doom: Doom) -> None:
        super().__init__(disk)
        self._doom = doom

    async def save_intent(self, intent: Intent) -> None:
        await self._doom.act("save intent")
        await super().save_intent(intent)

    async def save_attempt(self, attempt: Attempt) -> None:
        await self._doom.act("save attempt")
        await super().save_attempt(attempt)

    async def save_memory(self, memory: FabricMemory) -> None:
        await self._doom.act("save memory")
        await super().save_memory(memory)


class DoomedUnits(FakeUnits):
    def __init__(self, doom: Doom) -> None:
        super().__init__()
        self._doom = doom

    async def start(self, epoch: int) -> None:
        await self._doom.act("start")
        await super().start(epoch)

    async def stop(self, epoch: int) -> None:
        await self._doom.act("stop")
        await super().stop(epoch)

    async def forget(self, epoch: int) -> None:
        await self._doom.act("forget")
        await super().forget(epoch)


class DoomedLinks(FakeLinks):
    """`inert`: somebody else undoes every change at once."""

    def __init__(self, doom: Doom, *devices: str) -> None:
        super().__init__(*devices)
        self._doom = doom
        self.inert = False

    async def apply(self, changes: Sequence[FabricChange]) -> None:
        for change in changes:
            await self._doom.act("change fabric")
            if self.inert:
                self.applied.append(change)
            else:
                await super().apply((change,))


class DoomedFiles(FakeRankFiles):
    def __init__(self, doom: Doom) -> None:
        super().__init__()
        self._doom = doom

    async def write(self, epoch: int, environment: Mapping[str, str]) -> None:
        await self._doom.act("write environment")
        await super().write(epoch, environment)

    async def remove(self, epoch: int) -> None:
        await self._doom.act("remove environment")
        await super().remove(epoch)
