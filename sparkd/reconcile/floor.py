"""Watch the memory while a rank runs here, and end the rank when the floor is reached: see sparkd.core.floor.

It neither waits for a cycle nor for a tick nor for a disk: first the kill, then what is recorded and told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from sparkd.core import floor, kernellog
from sparkd.core.snapshot import Snapshot
from sparkd.ports import Clock, DoorError, Units

_DEADLINE = 2.0  # seconds for systemd; then the processes are killed one by one, where that is permitted
_AGAIN = 0.5  # seconds


class FloorGuard:
    """`available`: KiB of memory available now; it must not block. `befell(epoch, sentence)`: told when the rank has to
    go. `kill(epoch)`: what is left to try when systemd does not answer; returns why it did not work, or "".
    """

    def __init__(
        self,
        available: Callable[[], int],
        units: Units,
        clock: Clock,
        *,
        befell: Callable[[int, str], None],
        kill: Callable[[int], str],
        error: Callable[[str], None],
    ) -> None:
        self._available = available
        self._units = units
        self._clock = clock
        self._befell = befell
        self._kill = kill
        self._error = error
        self._rank: tuple[int, int] | None = None
        self._floor = 0
        self._news = asyncio.Event()
        self._driver_said = False
        self._samples: deque[floor.Sample] = deque()

    def see(self, s: Snapshot) -> None:
        """A cycle has seen this: which rank runs, if any."""
        rank, limit = floor.guarded(s), floor.limit(s)
        if (rank, limit) != (self._rank, self._floor):
            self._rank, self._floor = rank, limit
            self._news.set()

    def driver_says(self) -> None:
        """The GPU's driver could not have the memory it wanted."""
        if self._rank is not None and self._floor:
            self._driver_said = True
            self._news.set()

    async def run(self) -> None:
        """Until cancelled. Without a rank or a floor it sleeps."""
        while True:
            if self._rank is None or not self._floor:
                self._samples.clear()
                await self._news.wait()
                self._news.clear()
                continue
            pause = await self.look(self._rank[0])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
            self._news.clear()

    async def look(self, epoch: int) -> float:
        """Look once, and act if need be. Returns seconds until the next look."""
        now = self._clock.monotonic()
        try:
            self._samples.append(floor.Sample(now, self._available()))
        except (OSError, ValueError) as error:
            self._error(f"the memory floor is not watched: {error}")
            return floor.WINDOW
        while now - self._samples[0].at > floor.WINDOW:
            self._samples.popleft()
        why = floor.breach(self._samples, self._floor)
        if self._driver_said:
            self._driver_said = False
            why = why or kernellog.out_of_memory(self._samples[-1].available_kib, self._floor)
        if not why:
            return floor.pause(self._samples, self._floor)
        self._befell(epoch, why)
        await self._end(epoch, why)
        return _AGAIN

    async def _end(self, epoch: int, why: str) -> None:
        try:
            async with asyncio.timeout(_DEADLINE):
                await self._units.kill(epoch)
        except (DoorError, TimeoutError) as error:
            refused = self._kill(epoch)
            failed = str(error) or f"systemd did not answer within {_DEADLINE:g} s"
            self._error(f"{why}; {failed}" + (f"; {refused}" if refused else "; its processes were killed directly"))
