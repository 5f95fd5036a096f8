"""Real loops on fake machines: when measuring is started and looked at, and what an operator may forget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparkd.core.railfacts import RailFact, RailPolicy
from sparkd.reconcile.refusal import Refusal
from tests.core.builders import NODES, PLAN
from tests.reconcile.cluster import POLICY, Cluster, Machine, cluster
from tests.reconcile.running import in_loop, turns, until

MEASURED = replace(POLICY, rails=RailPolicy())


async def facts(machine: Machine, gbps: float = 98.0) -> list[RailFact]:
    """What the unit of that machine leaves when all went well."""
    network = await machine.links.observe()
    boot = machine.host.facts.boot_id
    found = []
    for end in PLAN.ends_of(machine.name):
        far, link = PLAN.far_end(end), network.link(end.device)
        assert link is not None
        flaps = link.carrier_changes
        found.append(RailFact(end.device, far.node, far.device, gbps, "rdma", True, "", boot, flaps))
    return found


async def all_measuring(ring: Cluster) -> None:
    await until(lambda: all(machine.rails.running is not None for machine in ring))


async def measure(ring: Cluster, gbps: float = 98.0) -> None:
    await all_measuring(ring)
    for machine in ring:
        machine.rails.finish(*await facts(machine, gbps))


def running(ring: Cluster) -> Iterator[str]:
    return (machine.name for machine in ring if machine.running)


@in_loop
async def test_a_start_measures_once_and_the_next_one_not_at_all() -> None:
    async with cluster(MEASURED) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await all_measuring(ring)
        assert list(running(ring)) == []
        ring["spark2"].rails.status("measuring enp1s0f0np0 to spark3")
        await until(lambda: "measuring enp1s0f0np0 to spark3" in str(ring["spark2"].loop.ring().waits))
        assert ring["spark1"].rails.environment["DEVICES"] == ",".join(end.device for end in PLAN.ends_of("spark1"))
        for machine in ring:
            machine.rails.finish(*await facts(machine))
        await ring.reach("ready")
        assert len(ring["spark3"].loop.ring().rails) == 6
        await ring.ask("stop")
        await ring.reach("down")
        await ring.ask("start")
        await ring.reach("ready")
        assert [machine.rails.started for machine in ring] == [[1], [1], [1]]


@in_loop
async def test_a_ring_that_serves_or_rests_never_looks_at_the_results() -> None:
    """They change only when the unit says so: the idle tick costs nothing more."""
    async with cluster(MEASURED, tick=0.01) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await measure(ring)
        await ring.reach("ready")
        asked = [machine.rails.asked for machine in ring]
        cycles = ring.conductor.loop.cycles
        await until(lambda: ring.conductor.loop.cycles > cycles + 5)
        assert [machine.rails.asked for machine in ring] == asked


@in_loop
async def test_while_a_unit_measures_each_tick_looks_whether_it_still_does() -> None:
    """Its end may be one of the signals that get lost."""
    async with cluster(MEASURED, tick=0.01) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await all_measuring(ring)
        for machine in ring:
            machine.rails.leave(*await facts(machine))
            machine.rails.running = None
        await ring.reach("ready")


@in_loop
async def test_a_restarted_daemon_knows_what_was_measured() -> None:
    async with cluster(MEASURED) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await measure(ring)
        await ring.reach("ready")
        await ring["spark2"].kill()
        ring["spark2"].boot()
        ring.poll()
        await ring.reach("ready")
        await ring.ask("stop")
        await ring.reach("down")
        await ring.ask("start")
        await ring.reach("ready")
        assert ring["spark2"].rails.started == [1]


@in_loop
async def test_a_stop_ends_measuring() -> None:
    async with cluster(MEASURED) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await all_measuring(ring)
        await ring.ask("stop")
        await ring.reach("down")
        await until(lambda: not any(machine.rails.running for machine in ring))


@in_loop
async def test_bad_rails_are_forgotten_only_while_no_rank_runs() -> None:
    async with cluster(MEASURED) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await measure(ring, gbps=13.0)
        await until(lambda: "13 Gb/s" in ring.conductor.loop.ring().summary)
        assert ring.conductor.phase == "gated"
        await ring.ask("stop")
        await ring.reach("down")
        with pytest.raises(Refusal) as refused:
            await ring.ask("start")
        assert {finding.id for finding in refused.value.findings} == {"rail-degraded-13g"}
        for machine in ring:
            await machine.loop.remeasure("operator")
            assert machine.loop.report().rails == ()
        await ring.quiet()
        await ring.ask("start")
        await measure(ring)
        await ring.reach("ready")
        with pytest.raises(Refusal) as refused:
            await ring["spark2"].loop.remeasure("operator")
        assert refused.value.code == "fabric-in-use"
        assert len(ring["spark2"].rails.facts) == 4


@in_loop
async def test_a_unit_that_cannot_be_started_is_said_and_tried_again_later() -> None:
    async with cluster(MEASURED) as ring:
        await ring.reach("down")
        for machine in ring:
            machine.rails.installed = False
        await ring.ask("start")
        told = "sparkd-measure@1.service could not be started: cannot start sparkd-measure@1.service: Unit not found"
        await until(lambda: all(told in str(machine.loop.events.since(0, 100)) for machine in ring))
        assert list(running(ring)) == []
        for machine in ring:
            machine.rails.installed = True
        ring.clock.advance(8.0)
        for machine in ring:
            machine.wake("rails")
        await measure(ring)
        await ring.reach("ready")


@in_loop
async def test_what_measures_in_vain_is_started_again_only_after_a_pause() -> None:
    async with cluster(MEASURED) as ring:
        await ring.reach("down")
        await ring.ask("start")
        await all_measuring(ring)
        for machine in ring:
            failed = [replace(fact, gbps=None, error="nobody came") for fact in await facts(machine)]
            machine.rails.finish(*failed)
        await until(lambda: all("nobody came" in str(machine.loop.ring().waits) for machine in ring))
        await turns()
        assert [machine.rails.started for machine in ring] == [[1]] * len(NODES)
        ring.clock.advance(2.0)
        for machine in ring:
            machine.wake("rails")
        await until(lambda: all(machine.rails.started == [1, 1] for machine in ring))
        assert ring.conductor.loop.state.intent.deaths == ()
        await asyncio.sleep(0)
