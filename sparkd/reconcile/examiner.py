"""Looks at the host itself beside the loop: what changes seldom, or takes long to look at.

What it has seen is up to a period old. So when a start is asked for, what could refuse it wrongly is looked at anew, on
every host: whoever left a port a second ago must not refuse, and whoever came a second ago must.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from sparkd.core.model import Unknown
from sparkd.core.snapshot import Snapshot
from sparkd.ports import HardwareDoor, Reach
from sparkd.reconcile.loop import Loop

PERIOD = 60.0
"""Seconds between two examinations."""
LIMIT = 4.0
"""Seconds that a start waits for an examination at most: a try of a port that does not answer takes three."""


class Examiner:
    def __init__(self, loop: Loop, hardware: HardwareDoor, reach: Reach, period: float = PERIOD) -> None:
        self._loop = loop
        self._hardware = hardware
        self._reach = reach
        self._period = period
        self._turn = asyncio.Lock()
        self._asked = asyncio.Event()
        self._ran = False
        loop.follow(self._see)

    async def run(self) -> None:
        """Examines every period until cancelled; also after a stop, which is to tell who else has the ring's ports."""
        while True:
            self._asked.clear()
            async with self._turn:
                await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._asked.wait()

    def _see(self, s: Snapshot) -> None:
        runs = not isinstance(s.units, Unknown) and any(unit.alive for unit in s.units)
        if self._ran and not runs and s.intent.want == "down":
            self._asked.set()
        self._ran = runs

    def soon(self) -> None:
        """Look now, not at the end of the period."""
        self._asked.set()

    async def afresh(self) -> None:
        """Look at what a start depends on and what may have changed since; returns within LIMIT seconds.

        All of it if something of it is against a start, else only who holds the ring's ports, which takes
        milliseconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT), self._turn:
                await asyncio.gather(self._look_again(), self._reach.afresh())

    async def _look_again(self) -> None:
        known = self._loop.hardware
        if known is None or self._loop.refusals():
            await self._look()
        else:
            self._loop.examined(await self._hardware.supervisors(known))

    async def _look(self) -> None:
        pid, serving = _rank(self._loop.seen())
        addresses = _addresses(self._loop.seen())
        self._loop.examined(await self._hardware.observe(pid, addresses, serving))


def _rank(s: Snapshot | None) -> tuple[int, int]:
    """Main process of the rank that runs here, and the epoch that serves here; 0 for none."""
    if s is None or isinstance(s.units, Unknown):
        return 0, 0
    unit = next((unit for unit in s.units if unit.epoch == s.intent.epoch and unit.runs), None)
    if unit is None:
        return 0, 0
    return unit.main_pid, unit.epoch if unit.active == "active" else 0


def _addresses(s: Snapshot | None) -> Mapping[str, str]:
    """The planned address by fabric device."""
    return {} if s is None else {end.device: str(end.address.ip) for end in s.plan.ends_of(s.node)}
