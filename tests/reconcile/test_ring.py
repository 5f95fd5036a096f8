"""Three daemons together: what one is told, all of them do, in order, and without waiting for a tick."""

from __future__ import annotations

import pytest

from sparkd.core import links
from sparkd.core.snapshot import Policy
from sparkd.reconcile.loop import Forwarded
from sparkd.reconcile.refusal import Refusal
from sparkd.wire import Operation
from tests.core.builders import NODES, PLAN
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, turns, until

WORKERS = NODES[1:]


def epochs(ring: Cluster) -> list[list[int]]:
    return [[unit.epoch for unit in machine.running] for machine in ring]


async def fabric_is_up(ring: Cluster) -> bool:
    for machine in ring:
        ends = links.ends(PLAN, machine.name, await machine.links.observe())
        if not all(end.verified for end in ends):
            return False
    return True


async def nothing_of_ours(ring: Cluster) -> bool:
    for machine in ring:
        seen = await machine.links.observe()
        if machine.files.files or machine.units.loaded():
            return False
        if any(route.protocol == 173 for route in seen.routes):
            return False
        if any(address.label.endswith(":s") for address in seen.addresses):
            return False
    return True


@pytest.mark.parametrize("node", NODES)
def test_a_start_from_any_node_makes_all_ready(node: str) -> None:
    @in_loop
    async def start() -> None:
        async with cluster() as ring:
            await ring.reach("down")
            answer = await ring.ask("start", node)
            await ring.reach("ready", epoch=1)
            assert epochs(ring) == [[1], [1], [1]]
            assert await fabric_is_up(ring)
            body = answer.body if isinstance(answer, Forwarded) else {"epoch": answer.epoch, "want": answer.want}
            assert (body["epoch"], body["want"]) == (1, "up")
            assert isinstance(answer, Operation if node == NODES[0] else Forwarded)
            assert ring.conductor.disk.intent is not None
            assert ring.conductor.disk.intent.by == f"operator on {node}"

    start()


@in_loop
async def test_workers_start_before_rank_0() -> None:
    order: list[str] = []
    async with cluster() as ring:
        for machine in ring:
            name, units = machine.name, machine.units
            units.subscribe(lambda _, name=name, units=units: order.append(name) if units.started else None)
        await ring.up()
        assert set(order[: order.index("spark1")]) == set(WORKERS)
        assert [machine.units.started for machine in ring] == [[1], [1], [1]]


@in_loop
async def test_no_rank_starts_before_all_have_adopted_the_epoch() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        ring.mesh.cut("spark2", "spark3")
        await ring.ask("start")
        await turns(300)
        # spark3 has adopted, but spark2 does not hear so.
        assert ring["spark2"].units.started == []
        assert ring.conductor.units.started == []
        assert "spark3 has not adopted epoch 1 yet" in ring["spark2"].loop.ring().summary
        ring.mesh.mend("spark2", "spark3")
        ring.poll()
        await ring.reach("ready")


@in_loop
async def test_a_dead_rank_stops_the_others_and_the_next_epoch_is_ready() -> None:
    async with cluster(Policy(backoff=0.05)) as ring:
        await ring.up()
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: epochs(ring) == [[], [], []])
        await until(lambda: ring.conductor.phase == "gated")
        assert ring.conductor.loop.ring().summary.startswith(
            "epoch 1 waits: rank 1 (spark2) ended: it was killed by SIGKILL; epoch 2 starts in"
        )
        ring.clock.advance(0.05)
        await ring.reach("ready", epoch=2)
        assert epochs(ring) == [[2], [2], [2]]
        deaths = ring["spark3"].loop.ring().deaths
        assert [(death.epoch, death.node, death.signature) for death in deaths] == [(1, "spark2", "1:signal:9")]
        assert [list(machine.files.files) for machine in ring] == [[2], [2], [2]]


@in_loop
async def test_the_others_are_stopped_and_not_counted_as_deaths() -> None:
    async with cluster(Policy(backoff=60)) as ring:
        await ring.up()
        ring.conductor.units.die(1, status=1)
        await until(lambda: epochs(ring) == [[], [], []])
        for name in WORKERS:
            attempt = ring[name].disk.attempt
            assert attempt is not None
            assert attempt.stopped == "stopped by sparkd: rank 0 (spark1) ended: it left with status 1"
        dead = ring.conductor.disk.attempt
        assert dead is not None
        assert dead.stopped == ""


@pytest.mark.parametrize("node", NODES)
def test_a_stop_from_any_node_leaves_nothing_of_ours(node: str) -> None:
    @in_loop
    async def stop() -> None:
        async with cluster() as ring:
            await ring.up()
            await ring.ask("stop", node)
            await ring.reach("down", epoch=2)
            await turns()
            assert await nothing_of_ours(ring)

    stop()


@in_loop
async def test_a_stop_while_starting() -> None:
    async with cluster() as ring:
        ring.slow_engine = True
        await ring.reach("down")
        await ring.ask("start")
        await ring.reach("starting")
        await ring.ask("stop", "spark3")
        await ring.reach("down")
        assert epochs(ring) == [[], [], []]


@in_loop
async def test_a_ring_that_gave_up_is_held_until_it_is_cleared() -> None:
    async with cluster(Policy(backoff=0.0, restarts=0)) as ring:
        await ring.up()
        ring["spark3"].units.die(1, signal=11)
        await ring.reach("held", epoch=2)
        with pytest.raises(Refusal) as caught:
            await ring.ask("start")
        assert caught.value.code == "held"
        refused = await ring.ask("start", "spark2")
        assert isinstance(refused, Forwarded)
        assert (refused.status, refused.body["code"]) == (409, "held")
        await ring.ask("clear", "spark2")
        await ring.reach("down", epoch=3)
        await ring.ask("start")
        await ring.reach("ready", epoch=4)


@pytest.mark.parametrize("node", NODES)
def test_a_daemon_that_restarts_leaves_a_serving_ring_alone(node: str) -> None:
    @in_loop
    async def restart() -> None:
        async with cluster() as ring:
            await ring.up()
            before = [machine.pids for machine in ring]
            applied = len(ring[node].links.applied)
            await ring[node].kill()
            await turns()
            ring[node].boot()
            await ring.reach("ready", epoch=1)
            await turns(200)
            assert [machine.pids for machine in ring] == before
            assert len(ring[node].links.applied) == applied
            assert [event.kind for event in ring[node].events.since(0, 9).events if event.kind == "action"] == []

    restart()


@in_loop
async def test_a_rank_that_dies_while_its_daemon_is_down_is_found_when_it_is_back() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring["spark3"].kill()
        ring["spark3"].units.die(1, status=74)
        await turns(100)
        assert epochs(ring)[0] == [1], "nobody knows yet"
        ring["spark3"].boot()
        await until(lambda: epochs(ring) == [[], [], []])
        ring.clock.advance(1)
        await ring.reach("ready", epoch=2)


@in_loop
async def test_a_host_that_reboots_comes_back_into_a_new_epoch() -> None:
    async with cluster() as ring:
        await ring.up()
        lost = ring["spark2"]
        await lost.kill()
        lost.units.power_cut()
        lost.links.power_cut()
        lost.files.power_cut()
        lost.host.reboot()
        lost.links.set_up("enP7s7", True)
        lost.links.add_foreign_address("enP7s7", "192.168.77.2/24")
        await turns(100)
        lost.boot()
        await until(lambda: epochs(ring) == [[], [], []])
        ring.clock.advance(1)
        await ring.reach("ready", epoch=2)
        assert [death.signature for death in ring.conductor.loop.ring().deaths] == ["1:reboot"]


@in_loop
async def test_an_unplugged_cable_refuses_a_start_from_a_worker_with_its_finding() -> None:
    async with cluster() as ring:
        await ring.reach("down")
        ring["spark2"].links.unplug("enp1s0f0np0")
        await until(lambda: len(ring.conductor.loop.ring().findings) == 2)
        with pytest.raises(Refusal) as caught:
            await ring.ask("start")
        assert caught.value.code == "start-refused"
        assert {finding.id for finding in caught.value.findings} == {"cable-missing"}
        assert {finding.node for finding in caught.value.findings} == {"spark2", "spark3"}
        assert ring.conductor.disk.intent is None


@in_loop
async def test_without_the_conductor_nothing_is_accepted_and_the_ring_serves_on() -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.conductor.kill()
        with pytest.raises(Refusal) as caught:
            await ring.ask("stop", "spark2")
        assert caught.value.code == "conductor-unreachable"
        assert caught.value.sentence == "only spark1 issues epochs, and spark1 does not answer"
        ring.clock.advance(20)
        assert ring["spark2"].phase == "degraded"
        assert epochs(ring) == [[1], [1], [1]]


@in_loop
async def test_a_full_disk_keeps_no_rank_alive() -> None:
    """Saving why a rank is stopped comes first, and is no condition for stopping it."""
    async with cluster() as ring:
        await ring.up()
        ring["spark3"].disk.full = True
        ring["spark2"].units.die(1, signal=9)
        await until(lambda: ring["spark3"].running == [])
        assert ring["spark3"].disk.attempt is not None
        assert ring["spark3"].disk.attempt.stopped == ""
        ring["spark3"].disk.full = False


@in_loop
async def test_a_rank_that_is_being_started_has_not_left() -> None:
    """While StartUnit is waited for, the attempt is on the disk and the unit is not there yet."""
    async with cluster() as ring:
        await ring.reach("down")
        await ring.ask("start")
        seen = set()
        for _ in range(400):
            seen |= {machine.loop.ring().phase for machine in ring}
            if ring.all_in("ready"):
                break
            await turns(1)
        assert seen <= {"down", "gated", "starting", "ready", "degraded"}, seen
        assert ring.all_in("ready")
