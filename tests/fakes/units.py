"""systemd without systemd: the rank units of one host, Type=notify, Restart=no."""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import Callable
from dataclasses import dataclass

from sparkd.core import news
from sparkd.core.model import RankUnit
from sparkd.ports import DoorError, Wake

CLD_EXITED, CLD_KILLED = 1, 2


@dataclass
class _Unit:
    """`stubborn`: its process ignores SIGTERM, so that a stop lasts until `kill`. `drains`: it was told to; None for a
    rank that does not know how."""

    epoch: int
    active: str = "inactive"
    sub: str = "dead"
    job: str = ""
    main_pid: int = 0
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0
    text: str = ""
    stubborn: bool = False
    drains: bool | None = False


class FakeUnits:
    """systemd acts on its own: a queued job is carried out in the next turn of the loop, or with `prompt` false upon
    `advance`. `installed` false: the template unit is not there. `broken` is the sentence of the DoorError to raise.
    """

    def __init__(self, prompt: bool = True) -> None:
        self._prompt = prompt
        self._units: dict[int, _Unit] = {}
        self._queue: list[Callable[[], None]] = []
        self._wakes: list[Wake] = []
        self._next_pid = 1000
        self.installed = True
        self.closed = False
        self.broken = ""
        self.started: list[int] = []

    async def observe(self) -> tuple[RankUnit, ...]:
        self._answer()
        return self.loaded()

    def loaded(self) -> tuple[RankUnit, ...]:
        """What systemd itself knows, whether it answers or not."""
        return tuple(_fact(self._units[epoch]) for epoch in sorted(self._units))

    async def start(self, epoch: int) -> None:
        self._answer()
        name = f"sparkd-rank@{epoch}.service"
        if not self.installed:
            raise DoorError(f"cannot start {name}: Unit {name} not found")
        unit = self._units.setdefault(epoch, _Unit(epoch))
        if unit.job == "stop" or unit.active == "deactivating":
            raise DoorError(f"cannot start {name}: it has a stop job queued")
        if unit.active in {"active", "activating"} or unit.job == "start":
            return
        unit.job = "start"
        self.started.append(epoch)
        self._later(lambda: self._fork(unit))
        self._news()

    async def stop(self, epoch: int) -> None:
        self._answer()
        unit = self._units.get(epoch)
        if unit is None or (unit.active in {"inactive", "failed"} and not unit.job):
            return
        if unit.active in {"inactive", "failed"}:
            unit.job = ""  # the stop replaces the start that was queued
            self._unload(unit)
        else:
            unit.job, unit.active, unit.sub = "stop", "deactivating", "stop-sigterm"
            self._later(lambda: self._terminate(unit))
        self._news()

    async def tell(self, epoch: int, drain: bool) -> None:
        self._answer()
        unit = self._units.get(epoch)
        if unit is None or not unit.main_pid:
            return
        if unit.drains is None:
            raise DoorError(f"the rank of sparkd-rank@{epoch}.service was started by a version that cannot drain")
        assert unit.active == "active", "a rank that is not ready is not asked to drain"
        unit.drains = drain

    async def kill(self, epoch: int) -> None:
        self._answer()
        unit = self._units.get(epoch)
        if unit is not None and unit.main_pid:
            self._end(unit, CLD_KILLED, signals.SIGKILL, "signal")

    async def forget(self, epoch: int) -> None:
        self._answer()
        unit = self._units.get(epoch)
        if unit is not None and unit.active == "failed":
            unit.active, unit.sub, unit.result = "inactive", "dead", "success"
            self._unload(unit)
            self._news()

    def subscribe(self, wake: Wake) -> None:
        self._wakes.append(wake)

    def close(self) -> None:
        self.closed = True
        self._wakes.clear()

    # What a rank does.

    def status(self, epoch: int, text: str) -> None:
        unit = self._process(epoch)
        told, unit.text = unit.text, text
        if news.words(told) != news.words(text):
            self._news()

    def ready(self, epoch: int) -> None:
        unit = self._process(epoch)
        if unit.active == "activating":
            unit.active, unit.sub, unit.job = "active", "running", ""
            self._news()

    def drains(self, epoch: int) -> bool | None:
        return self._process(epoch).drains

    def cannot_drain(self, epoch: int) -> None:
        self._process(epoch).drains = None

    def ignore_sigterm(self, epoch: int) -> None:
        self._process(epoch).stubborn = True

    def die(self, epoch: int, *, status: int = 0, signal: int = 0) -> None:
        """The main process exits with `status`, or from `signal`."""
        unit = self._process(epoch)
        code = CLD_KILLED if signal else CLD_EXITED
        clean = signal in {signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGPIPE} or not (signal or status)
        if clean and unit.active == "activating":
            result = "protocol"  # a service of Type=notify must not leave before READY=1
        elif clean:
            result = "success"
        else:
            result = "signal" if signal else "exit-code"
        self._end(unit, code, signal or status, result)

    # What systemd does.

    def advance(self) -> None:
        """Carry out what is queued, and nothing that follows from it."""
        queue, self._queue = self._queue, []
        for step in queue:
            step()

    def stop_timeout(self, epoch: int) -> None:
        """TimeoutStopSec is over: SIGKILL."""
        unit = self._process(epoch)
        assert unit.active == "deactivating", "nobody stops it"
        self._end(unit, CLD_KILLED, signals.SIGKILL, "timeout")

    def power_cut(self) -> None:
        self._units.clear()
        self._queue.clear()
        self._news()

    def _answer(self) -> None:
        if self.closed:
            raise DoorError("systemd is closed")
        if self.broken:
            raise DoorError(self.broken)

    def _process(self, epoch: int) -> _Unit:
        unit = self._units.get(epoch)
        assert unit is not None, f"no unit of epoch {epoch} is loaded"
        assert unit.main_pid, f"no process of epoch {epoch} runs"
        return unit

    def _fork(self, unit: _Unit) -> None:
        if unit.job != "start" or self._units.get(unit.epoch) is not unit:
            return
        self._next_pid += 1
        self._units[unit.epoch] = _Unit(unit.epoch, "activating", "start", "start", self._next_pid)
        self._news()

    def _terminate(self, unit: _Unit) -> None:
        if unit.active == "deactivating" and not unit.stubborn:
            self._end(unit, CLD_KILLED, signals.SIGTERM, "success")

    def _end(self, unit: _Unit, code: int, status: int, result: str) -> None:
        unit.exit_code, unit.exit_status, unit.result, unit.main_pid, unit.job = code, status, result, 0, ""
        unit.active, unit.sub = ("inactive", "dead") if result == "success" else ("failed", "failed")
        self._unload(unit)
        self._news()

    def _unload(self, unit: _Unit) -> None:
        """systemd forgets a unit that does nothing, but not one that has failed."""
        if unit.active == "inactive" and not unit.job:
            self._units.pop(unit.epoch, None)

    def _later(self, step: Callable[[], None]) -> None:
        if self._prompt:
            asyncio.get_running_loop().call_soon(step)
        else:
            self._queue.append(step)

    def _news(self) -> None:
        for wake in self._wakes:
            asyncio.get_running_loop().call_soon(wake, "units")


def _fact(unit: _Unit) -> RankUnit:
    return RankUnit(
        unit.epoch,
        unit.active,
        unit.sub,
        unit.job,
        unit.main_pid,
        unit.result,
        unit.exit_code,
        unit.exit_status,
        unit.text,
    )
