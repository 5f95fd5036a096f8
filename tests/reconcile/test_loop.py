"""One daemon's cycle: when it turns, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparkd.core.model import Intent
from sparkd.core.snapshot import Policy
from sparkd.ports import DoorError
from sparkd.reconcile.refusal import Refusal
from tests.core.builders import CABLES, NOW
from tests.reconcile.alone import DOWN, alone, hear, published
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, turns, until


@in_loop
async def test_before_the_first_cycle_nothing_can_be_told() -> None:
    async with cluster(boot=False) as ring:
        loop = ring.conductor.build()
        asks: tuple[Callable[[], object], ...] = (loop.ring, loop.host, loop.report, lambda: loop.operation(1))
        for ask in asks:
            with pytest.raises(Refusal) as caught:
                ask()
            assert caught.value.code == "starting"


@in_loop
async def test_a_finished_cycle_feeds_the_watchdog_and_is_counted() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        fed = machine.notifier.fed
        assert fed == machine.loop.cycles > 0
        await machine.loop.cycle()
        assert machine.notifier.fed == machine.loop.cycles == fed + 1


@pytest.mark.parametrize("door", ["host", "store"])
def test_a_door_that_hangs_starves_the_watchdog(door: str) -> None:
    @in_loop
    async def hang() -> None:
        async with cluster(boot=False) as ring:
            machine = await alone(ring)
            if door == "host":
                machine.host.hangs = True
                machine.loop.wake("host")
            else:
                machine.doom.hangs = True
                hear(machine, Intent(9, "down", "operator", "stop asked for", NOW))
            fed = machine.notifier.fed
            turning = asyncio.create_task(machine.loop.cycle())
            await turns(100)
            assert not turning.done()
            assert machine.notifier.fed == fed
            turning.cancel()
            await asyncio.wait({turning})
            assert machine.notifier.fed == fed

    hang()


@in_loop
async def test_systemd_is_told_the_ring_in_one_sentence() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        assert machine.notifier.sentences[-1] == "down: stop asked for"
        assert machine.loop.ring().summary == machine.notifier.sentences[-1]


@in_loop
async def test_a_report_is_sent_again_only_with_news() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        first = published(machine)
        before = machine.loop.report()
        machine.host.use_memory(4096)  # moves nobody
        machine.loop.wake("host")
        await machine.loop.cycle()
        assert published(machine) is first
        # Who asks is told, and sees that it is newer.
        asked = machine.loop.report()
        assert asked.memory_available_kib == before.memory_available_kib - 4096
        assert asked.sequence > before.sequence
        machine.roce.broken = "sysfs did not answer within 2 s"
        machine.loop.wake("roce")
        await machine.loop.cycle()
        assert published(machine).sequence > asked.sequence
        assert published(machine).instance == first.instance
        assert published(machine).unknown == ("sysfs did not answer within 2 s",)
        assert machine.loop.report() == published(machine)


@in_loop
async def test_another_process_is_another_instance() -> None:
    async with cluster(boot=False) as ring:
        first = published(await alone(ring))
        second = published(await alone(ring))
        assert second.instance != first.instance


@in_loop
async def test_a_report_says_what_this_host_sees() -> None:
    async with cluster() as ring:
        await ring.up()
        report = ring["spark2"].loop.report()
        assert (report.node, report.boot_id) == ("spark2", ring["spark2"].host.facts.boot_id)
        assert report.intent == ring.conductor.disk.intent
        assert report.attempt == ring["spark2"].disk.attempt
        assert report.units == ring["spark2"].units.loaded()
        assert report.ends is not None
        assert [end.verified for end in report.ends] == [True] * 4
        ring["spark2"].units.broken = ring["spark2"].links.broken = "no answer"
        ring["spark2"].loop.wake("units")
        ring["spark2"].loop.wake("network")
        await until(lambda: ring["spark2"].loop.report().units is None)
        assert ring["spark2"].loop.report().ends is None


@in_loop
async def test_an_event_leads_to_a_decision_without_a_tick() -> None:
    async with cluster() as ring:
        await ring.up()
        began = asyncio.get_running_loop().time()
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: ring["spark2"].loop.ring().ranks[1].state == "ended")
        assert asyncio.get_running_loop().time() - began < 0.5


@in_loop
async def test_a_lost_event_is_caught_by_the_tick() -> None:
    async with cluster(tick=0.05) as ring:
        await ring.up()
        machine = ring["spark2"]
        machine.deaf = True
        machine.units.die(1, signal=9)
        await until(lambda: ring["spark2"].loop.ring().ranks[1].state == "ended")


@in_loop
async def test_a_lost_event_is_caught_by_the_tick_however_much_the_peers_have_to_tell() -> None:
    async with cluster(tick=0.05) as ring:
        await ring.up()
        machine = ring["spark2"]
        machine.deaf = True
        machine.units.die(1, signal=9)

        async def chatter() -> None:
            while True:
                machine.loop.wake("peers")
                await asyncio.sleep(0)

        talking = asyncio.create_task(chatter())
        await until(lambda: machine.loop.ring().ranks[1].state == "ended", seconds=2.0)
        talking.cancel()


@in_loop
async def test_a_cycle_comes_again_when_the_decision_says_so() -> None:
    async with cluster(Policy(backoff=0.05)) as ring:
        await ring.up()
        ring["spark3"].units.die(1, signal=9)
        await ring.reach("gated")
        ring.clock.advance(0.05)  # nobody is told that time has passed
        await ring.reach("ready", epoch=2)
        assert [machine.units.started for machine in ring] == [[1, 2]] * 3


@in_loop
async def test_actions_without_effect_do_not_make_it_spin() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        machine.links.inert = True
        machine.links.set_up("enp1s0f0np0", False)
        machine.loop.wake("network")
        before, fed = len(machine.links.applied), machine.notifier.fed
        await machine.loop.cycle()
        assert 1 < len(machine.links.applied) - before <= 8
        assert machine.notifier.fed == fed + 1


@in_loop
async def test_an_action_that_fails_ends_the_cycle_and_is_told() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        hear(machine, Intent(9, "up", "operator", "start asked for", NOW, cables=CABLES))
        machine.disk.full = True
        await machine.loop.cycle()
        assert machine.loop.state.intent == DOWN
        assert published(machine).intent == DOWN
        assert machine.events.since(0, 500).events[-2].kind == "error"
        machine.disk.full = False
        await machine.loop.cycle()
        assert machine.loop.state.intent.epoch == 9


@in_loop
async def test_a_repair_that_goes_on_failing_is_told_once() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        machine.links.set_up("enp1s0f0np0", False)
        machine.doom.refuses = "netlink has not answered for 11 s"
        before = machine.events.since(0, 500).last
        for _ in range(3):
            machine.loop.wake("network")
            await machine.loop.cycle()
            machine.doom.refuses = "netlink has not answered for 16 s"
        told = machine.events.since(before, 500).events
        assert [(event.kind, event.text) for event in told if event.kind != "summary"] == [
            ("action", "fabric: enp1s0f0np0 up"),
            ("error", "netlink has not answered for 11 s"),
        ]
        machine.doom.refuses = ""
        await machine.loop.cycle()
        machine.loop.wake("hello")
        await machine.loop.cycle()
        assert machine.loop.ring().findings == ()


@in_loop
async def test_an_action_that_goes_on_failing_is_told_once() -> None:
    async with cluster(boot=False) as ring:
        machine = await alone(ring)
        hear(machine, Intent(9, "down", "operator", "stop asked for", NOW))
        machine.disk.full = True
        for _ in range(3):
            await machine.loop.cycle()
        assert [event.kind for event in machine.events.since(0, 500).events].count("error") == 1
        machine.disk.full = False
        await machine.loop.cycle()
        hear(machine, Intent(10, "down", "operator", "stop asked for", NOW))
        machine.disk.full = True
        await machine.loop.cycle()
        assert [event.kind for event in machine.events.since(0, 500).events].count("error") == 2


@in_loop
async def test_a_peers_silence_grows_between_cycles() -> None:
    async with cluster() as ring:
        await ring.up()
        assert ring.conductor.loop.ring().phase == "ready"
        cycles = ring.conductor.loop.cycles
        ring.clock.advance(20)
        status = ring.conductor.loop.ring()
        assert (status.phase, status.peers[0].age) == ("degraded", 20.0)
        assert ring.conductor.loop.cycles == cycles
        with pytest.raises(DoorError):
            await ring.mesh["spark1"].request("spark9", {})
