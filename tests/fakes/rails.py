"""Measuring rails without a machine: the unit, and the results that it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sparkd.core.railfacts import MeasureUnit, RailFact, RailFacts
from sparkd.host.rankfiles import render
from sparkd.ports import DoorError, Wake


class FakeRails:
    """The unit lives until `finish` or `stop`. `installed` false: its template is not there. `broken` is the sentence
    of the DoorError to raise, if any.
    """

    def __init__(self) -> None:
        self.facts: dict[str, RailFact] = {}
        self.running: MeasureUnit | None = None
        self.started: list[int] = []
        self.environment: dict[str, str] = {}
        self.asked = 0
        self.installed = True
        self.broken = ""
        self._wakes: list[Wake] = []
        self._at = 0.0

    async def observe(self) -> RailFacts:
        self._answer()
        self.asked += 1
        return RailFacts(tuple(self.facts.values()), self.running)

    async def start(self, epoch: int, environment: Mapping[str, str]) -> None:
        self._answer()
        render(environment)
        if not self.installed:
            raise DoorError(f"cannot start sparkd-measure@{epoch}.service: Unit not found")
        assert self.running is None, "systemd would not start a second one"
        self.started.append(epoch)
        self.environment = dict(environment)
        self.running = MeasureUnit(epoch)
        self._news()

    async def stop(self, epoch: int) -> None:
        self._answer()
        if self.running is not None and self.running.epoch == epoch:
            self.running = None
            self._news()

    async def forget(self) -> None:
        self._answer()
        self.facts.clear()

    def subscribe(self, wake: Wake) -> None:
        self._wakes.append(wake)

    # What the unit does.

    def status(self, text: str) -> None:
        assert self.running is not None, "nothing measures"
        self.running = MeasureUnit(self.running.epoch, text)
        self._news()

    def finish(self, *facts: RailFact) -> None:
        """It leaves these results, and ends."""
        assert self.running is not None, "nothing measures"
        self.leave(*facts)
        self.running = None
        self._news()

    def leave(self, *facts: RailFact) -> None:
        for fact in facts:
            self._at += 1.0
            self.facts[fact.device] = RailFact(**{**vars(fact), "at": self._at})

    def power_cut(self) -> None:
        """The results are in memory."""
        self.facts.clear()
        self.running = None

    def _answer(self) -> None:
        if self.broken:
            raise DoorError(self.broken)

    def _news(self) -> None:
        for wake in self._wakes:
            asyncio.get_running_loop().call_soon(wake, "rails")
