"""What FakeUnits and systemd both do."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from sparkd.core.model import RankUnit
from sparkd.host.systemd import MEASURE, SystemdUnits
from sparkd.ports import DoorError, Units
from tests.contract.manager import Manager, running
from tests.contract.ranks import Ranks, RealRanks
from tests.contract.waiting import Bell, until
from tests.fakes import FakeUnits


@dataclass
class Bench:
    units: Units
    ranks: Ranks

    async def until(self, epoch: int, holds: Callable[[RankUnit], bool]) -> RankUnit:
        async def one() -> RankUnit | None:
            return next((unit for unit in await self.units.observe() if unit.epoch == epoch), None)

        found = await until(one, lambda unit: unit is not None and holds(unit))
        assert found is not None
        return found

    async def until_forked(self, epoch: int) -> RankUnit:
        return await self.until(epoch, lambda unit: unit.runs)

    async def until_gone(self, epoch: int) -> None:
        await until(self.units.observe, lambda units: all(unit.epoch != epoch for unit in units))

    async def start_ready(self, epoch: int) -> RankUnit:
        await self.units.start(epoch)
        await self.until_forked(epoch)
        self.ranks.ready(epoch)
        return await self.until(epoch, lambda unit: unit.active == "active")

    async def start_failed(self, epoch: int) -> RankUnit:
        await self.units.start(epoch)
        await self.until_forked(epoch)
        self.ranks.die(epoch, status=70)
        return await self.until(epoch, lambda unit: unit.active == "failed")


Body = Callable[[Bench], Awaitable[None]]
Run = Callable[[Body], None]


@pytest.fixture(scope="module")
def manager() -> Iterator[Manager]:
    with running() as found:
        yield found


async def _fake(body: Body) -> None:
    units = FakeUnits()
    await body(Bench(units, units))
    units.close()


async def _real(body: Body, manager: Manager) -> None:
    units = SystemdUnits(address=manager.address)
    try:
        await body(Bench(units, RealRanks(manager)))
    finally:
        units.close()
        await _clean(SystemdUnits(address=manager.address))


async def _clean(units: SystemdUnits) -> None:
    """The manager serves all tests of this file."""
    for unit in await units.observe():
        await units.stop(unit.epoch)
    await until(units.observe, lambda found: not any(unit.alive for unit in found), 15)
    for unit in await units.observe():
        await units.forget(unit.epoch)
    await until(units.observe, lambda found: not found)
    units.close()


@pytest.fixture(params=["fake", "real"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_fake(body: Body) -> None:
        asyncio.run(_fake(body))

    def run_real(body: Body) -> None:
        manager = request.getfixturevalue("manager")
        before = set(threading.enumerate())
        asyncio.run(_real(body, manager))
        assert set(threading.enumerate()) <= before

    return run_fake if request.param == "fake" else run_real


def test_no_unit_at_first(run: Run) -> None:
    async def body(bench: Bench) -> None:
        assert await bench.units.observe() == ()

    run(body)


def test_a_start_shows_at_once_and_runs_before_it_is_ready(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.start(7)
        (first,) = await bench.units.observe()
        assert first.epoch == 7
        assert first.alive
        unit = await bench.until_forked(7)
        assert (unit.active, unit.sub, unit.job, unit.result) == ("activating", "start", "start", "success")
        assert unit.main_pid > 1

    run(body)


def test_progress_and_readiness(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.start(7)
        await bench.until_forked(7)
        bench.ranks.status(7, "rendezvous 2/3 waiting for rank 1 (spark2)")
        unit = await bench.until(7, lambda unit: bool(unit.text))
        assert unit.text == "rendezvous 2/3 waiting for rank 1 (spark2)"
        assert unit.active == "activating"
        bench.ranks.ready(7)
        unit = await bench.until(7, lambda unit: unit.active == "active")
        assert (unit.sub, unit.job, unit.text) == ("running", "", "rendezvous 2/3 waiting for rank 1 (spark2)")

    run(body)


def test_a_second_start_changes_nothing(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.start(7)
        first = await bench.until_forked(7)
        await bench.units.start(7)
        assert (await bench.until_forked(7)).main_pid == first.main_pid
        bench.ranks.ready(7)
        await bench.until(7, lambda unit: unit.active == "active")
        await bench.units.start(7)
        assert (await bench.until_forked(7)).main_pid == first.main_pid

    run(body)


def test_epochs_are_units_of_their_own_and_come_in_order(run: Run) -> None:
    async def body(bench: Bench) -> None:
        for epoch in (10, 9, 100):
            await bench.start_ready(epoch)
        units = await bench.units.observe()
        assert [unit.epoch for unit in units] == [9, 10, 100]
        assert len({unit.main_pid for unit in units}) == 3

    run(body)


def test_a_stopped_unit_leaves_no_trace(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.start_ready(7)
        await bench.units.stop(7)
        await bench.until_gone(7)
        await bench.units.start(8)
        await bench.until_forked(8)
        await bench.units.stop(8)  # before it was ready
        await bench.until_gone(8)

    run(body)


def test_a_start_that_is_stopped_at_once_comes_to_nothing(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.start(7)
        await bench.units.stop(7)
        await until(bench.units.observe, lambda units: not any(unit.alive for unit in units))

    run(body)


def test_what_was_never_started_is_stopped_and_forgotten_already(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.stop(7)
        await bench.units.forget(7)
        await bench.until_gone(7)

    run(body)


@pytest.mark.parametrize("ready", [False, True])
def test_an_exit_with_an_error_is_kept(run: Run, ready: bool) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.start(7)
        await bench.until_forked(7)
        if ready:
            bench.ranks.ready(7)
        bench.ranks.status(7, "failed rank 2 was lost")
        await bench.until(7, lambda unit: unit.text != "")
        bench.ranks.die(7, status=70)
        unit = await bench.until(7, lambda unit: unit.active == "failed")
        assert not unit.alive
        assert (unit.sub, unit.job, unit.main_pid, unit.result) == ("failed", "", 0, "exit-code")
        assert (unit.exit_code, unit.exit_status) == (1, 70)
        assert unit.text == "failed rank 2 was lost"

    run(body)


def test_a_death_from_a_signal_is_told_apart(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.start_ready(7)
        bench.ranks.die(7, signal=signal.SIGKILL)
        unit = await bench.until(7, lambda unit: unit.active == "failed")
        assert (unit.result, unit.exit_code, unit.exit_status) == ("signal", 2, 9)

    run(body)


def test_a_kill_ends_a_rank_that_heeds_no_stop(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.start_ready(7)
        await bench.start_ready(8)
        bench.ranks.ignore_sigterm(7)
        await bench.units.stop(7)
        await bench.units.kill(7)
        killed = await bench.until(7, lambda unit: unit.active == "failed")
        assert (killed.result, killed.exit_code, killed.exit_status) == ("signal", 2, signal.SIGKILL)
        assert [unit.active for unit in await bench.units.observe() if unit.epoch == 8] == ["active"]
        await bench.units.kill(9)  # of which there is none

    run(body)


def test_leaving_before_being_ready_is_a_failure_and_after_it_is_none(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.units.start(7)
        await bench.until_forked(7)
        bench.ranks.die(7, status=0)
        unit = await bench.until(7, lambda unit: unit.active == "failed")
        assert unit.result == "protocol"
        await bench.start_ready(8)
        bench.ranks.die(8, status=0)
        await bench.until_gone(8)

    run(body)


def test_a_failed_unit_stays_until_it_is_forgotten(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.start_failed(7)
        await bench.units.stop(7)
        (unit,) = await bench.units.observe()
        assert unit.active == "failed"
        await bench.units.forget(7)
        await bench.until_gone(7)
        await bench.units.forget(7)

    run(body)


def test_forgetting_does_not_touch_what_runs(run: Run) -> None:
    async def body(bench: Bench) -> None:
        pid = (await bench.start_ready(7)).main_pid
        await bench.units.forget(7)
        (unit,) = await bench.units.observe()
        assert (unit.active, unit.main_pid) == ("active", pid)

    run(body)


def test_a_failed_unit_can_be_started_again(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.start_failed(7)
        await bench.units.start(7)
        unit = await bench.until_forked(7)
        assert (unit.active, unit.result, unit.exit_status) == ("activating", "success", 0)
        assert unit.text == ""

    run(body)


def test_a_start_does_not_overtake_a_stop(run: Run) -> None:
    async def body(bench: Bench) -> None:
        await bench.start_ready(7)
        bench.ranks.ignore_sigterm(7)
        if isinstance(bench.ranks, RealRanks):
            await bench.until(7, lambda unit: unit.text == "stubborn")
        await bench.units.stop(7)
        unit = await bench.until(7, lambda unit: unit.active == "deactivating")
        assert unit.alive
        assert (unit.job, unit.sub) == ("stop", "stop-sigterm")
        with pytest.raises(DoorError, match=r"cannot start sparkd-rank@7\.service"):
            await bench.units.start(7)
        bench.ranks.die(7, status=0)
        await bench.until_gone(7)

    run(body)


def test_every_step_of_a_unit_wakes(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bell = Bell()
        bench.units.subscribe(bell)
        await bell.quiet()
        await bench.units.start(7)
        await bench.until_forked(7)
        await bell.rings()
        await bell.quiet()
        bench.ranks.status(7, "formed")
        await bell.rings()
        await bell.quiet()
        bench.ranks.ready(7)
        await bell.rings()
        await bell.quiet()
        before = time.monotonic()
        bench.ranks.die(7, signal=signal.SIGKILL)
        await bell.rings(1.0)
        assert time.monotonic() - before < 1.0
        await bench.until(7, lambda unit: unit.active == "failed")
        await bell.quiet()
        await bench.units.forget(7)
        await bell.rings()
        assert set(bell.sources) == {"units"}

    run(body)


def test_what_a_serving_rank_tells_is_seen_when_looked_for_and_wakes_nobody(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bell = Bell()
        bench.units.subscribe(bell)
        await bench.units.start(7)
        await bench.until_forked(7)
        bench.ranks.status(7, "ready idle")
        bench.ranks.ready(7)
        await bench.until(7, lambda unit: unit.active == "active" and unit.text == "ready idle")
        await bell.quiet()
        for text in ("ready 1 token a second", "ready 2 tokens a second", "ready idle"):
            bench.ranks.status(7, text)
            await bench.until(7, lambda unit: unit.text == text)  # noqa: B023 - over before the next round
        await asyncio.sleep(0.1)
        assert bell.sources == []
        bench.ranks.status(7, "failed it hangs")
        await bell.rings()

    run(body)


def test_what_measures_is_a_unit_of_its_own_with_news_of_its_own(manager: Manager) -> None:
    async def body() -> None:
        units = SystemdUnits(address=manager.address)
        try:
            bell = Bell()
            units.subscribe(bell)
            await bell.quiet()
            await units.start(7, MEASURE)
            await until(lambda: units.observe(MEASURE), lambda found: any(unit.runs for unit in found))
            manager.order(7, "notify STATUS=measuring enp1s0f0np0 to spark2", "measure")
            (unit,) = await until(lambda: units.observe(MEASURE), lambda found: bool(found[0].text))
            assert (unit.epoch, unit.alive, unit.text) == (7, True, "measuring enp1s0f0np0 to spark2")
            assert await units.observe() == (), "it is no rank"
            await bell.rings()
            assert set(bell.sources) == {"rails"}
            manager.order(7, "exit 64", "measure")
            assert await until(lambda: units.observe(MEASURE), lambda found: not found) == ()
            await units.start(7, MEASURE)
            await until(lambda: units.observe(MEASURE), lambda found: any(unit.runs for unit in found))
            await units.stop(7, MEASURE)
            await until(lambda: units.observe(MEASURE), lambda found: not found)
            await units.stop(7, MEASURE)
        finally:
            units.close()

    asyncio.run(body())


def test_after_close_it_neither_answers_nor_wakes(run: Run) -> None:
    async def body(bench: Bench) -> None:
        bell = Bell()
        bench.units.subscribe(bell)
        await bench.start_ready(7)
        await bell.quiet()
        bench.units.close()
        with pytest.raises(DoorError, match="closed"):
            await bench.units.observe()
        bench.ranks.status(7, "formed")
        await asyncio.sleep(0.1)
        assert not bell.sources

    run(body)
