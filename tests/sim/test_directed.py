"""Interleavings that random search seldom finds, each by hand, and every story cut off at every point."""

from __future__ import annotations

import pytest

from sparkd.core import gates
from sparkd.core.actions import StartRank
from sparkd.core.decide import decide
from sparkd.core.intent import Accepted
from sparkd.core.model import Attempt, Intent, RankUnit
from tests.core.builders import CABLES, NODES, bare_network, configured_network
from tests.sim.world import World


def idle_world() -> World:
    world = World()
    for _ in range(3):
        world.round()
    return world


def ready_world() -> World:
    world = idle_world()
    assert isinstance(world.ask("start"), Accepted)
    world.until(world.ready)
    return world


def configured_world() -> World:
    """Epoch 1 is wanted up, adopted and told by all; the fabric is configured; nothing has started."""
    world = idle_world()
    assert isinstance(world.ask("start"), Accepted)
    world.rails.all(world.now)
    for name in NODES:
        world.hosts[name].network = configured_network(name)
        world.hosts[name].disk.intent = world.hosts["spark1"].disk.intent
        world.publish(world.hosts[name])
    world.gossip()
    return world


def would_start(world: World, name: str) -> bool:
    return any(isinstance(action, StartRank) for action in decide(world.snapshot(name)).actions)


def test_a_start_brings_every_rank_up_in_one_epoch() -> None:
    world = ready_world()
    assert sorted(world.started) == [(name, 1) for name in NODES]
    assert world.started[-1] == ("spark1", 1), "rank 0 goes last"


def test_a_late_start_of_an_epoch_that_is_over_cannot_meet_the_next_one() -> None:
    """The gate that every peer has adopted this epoch.

    1. Epoch 1 is wanted up, all adopt it. spark3 sees every gate open, and is about to start.
    2. spark3 is cut off. The operator stops (epoch 2) and starts again (epoch 3); spark1 and spark2 adopt.
    3. spark3's last report says: epoch 1, nothing runs. It is recent, and it is true.
    4. Did spark1 and spark2 start epoch 3 on that word, spark3's late step would put epoch 1 beside it.
    """
    world = configured_world()
    assert would_start(world, "spark3")
    world.cut |= {frozenset(("spark3", other)) for other in ("spark1", "spark2")}
    world.ask("stop")
    world.hosts["spark1"].disk.intent = Intent(3, "up", "x", "y", world.now, cables=CABLES)
    for _ in range(4):
        world.cycle("spark1")
        world.deliver("spark1", "spark2")
        world.cycle("spark2")
        world.deliver("spark2", "spark1")
    assert world.hosts["spark2"].disk.intent.epoch == 3
    world.cycle("spark3")
    assert set(world.alive_epochs()) == {("spark3", 1)}, "only spark3, which could not know better"
    world.cut.clear()
    world.until(world.ready)
    assert {epoch for _, epoch in world.alive_epochs()} == {3}


def test_a_rank_that_takes_its_time_to_stop_is_waited_for_everywhere() -> None:
    """The gate that no older rank is alive. spark2 has adopted epoch 2, and its rank of epoch 1 is still ending."""
    world = ready_world()
    world.hosts["spark1"].disk.intent = Intent(2, "up", "x", "y", world.now, cables=CABLES)
    for name in NODES:
        world.hosts[name].units = {}
        world.hosts[name].disk.intent = Intent(2, "up", "x", "y", world.now, cables=CABLES)
    world.hosts["spark2"].units = {1: RankUnit(1, "deactivating", "stop-sigterm", main_pid=7)}
    for name in NODES:
        world.publish(world.hosts[name])
    world.gossip()
    assert not any(would_start(world, name) for name in NODES)
    for name in NODES:
        assert gates.waits(world.snapshot(name)) == ("sparkd-rank@1.service on spark2 is still alive",)
    world.hosts["spark2"].units = {}
    world.until(world.ready)


def test_a_host_that_has_heard_nobody_for_long_starts_nothing() -> None:
    """The gate that peers answer. spark3 was about to start when it was cut off; minutes later it still is not."""
    world = configured_world()
    assert would_start(world, "spark3")
    world.wait(16)
    assert not would_start(world, "spark3")


def test_a_worker_that_has_not_started_yet_does_not_join_an_epoch_that_has_lost_a_rank() -> None:
    """The gate that nobody has died.

    1. Epoch 1 is wanted up and adopted by all. spark2 starts its rank; spark3 has not had its turn yet.
    2. spark2's rank dies. spark2 reports: epoch 1 adopted, nothing runs.
    3. But for the death, spark3 would find every gate open, and its rank would wait for spark2's in vain.
    """
    world = configured_world()
    world.gossip()
    world.cycle("spark2")
    assert world.started == [("spark2", 1)]
    world.kill_rank("spark2")
    world.cycle("spark2")
    world.gossip()
    assert gates.waits(world.snapshot("spark3")) == ("rank 1 on spark2: it was killed by SIGKILL",)
    assert not would_start(world, "spark3")


def test_a_fabric_that_is_lost_at_one_host_holds_all_back() -> None:
    """The gate that all twelve ends are as planned."""
    world = configured_world()
    world.hosts["spark2"].network = bare_network("spark2")
    world.publish(world.hosts["spark2"])
    world.gossip()
    assert not would_start(world, "spark3")
    assert "spark2 is still configuring" in world.phases()["spark3"]


def test_rank_0_does_not_start_before_the_workers_run() -> None:
    """The last gate. One worker alone is not enough."""
    world = configured_world()
    assert not would_start(world, "spark1")
    for name in ("spark2", "spark3"):
        assert not would_start(world, "spark1")
        world.cycle(name)
        world.gossip()
    assert would_start(world, "spark1")


def test_a_daemon_that_restarts_leaves_a_serving_ring_alone() -> None:
    world = ready_world()
    before = [dict(host.units) for host in world.hosts.values()]
    for name in NODES:
        world.crash_daemon(name)
        world.round()
        world.boot_daemon(name)
        for _ in range(3):
            world.round()
    assert [dict(host.units) for host in world.hosts.values()] == before
    assert world.hosts["spark1"].disk.intent.epoch == 1


def test_a_conductor_that_lost_its_disk_adopts_what_its_peers_have() -> None:
    world = ready_world()
    world.lose_disk("spark1")
    world.boot_daemon("spark1")
    answer = world.ask("start")
    assert not isinstance(answer, Accepted), "nobody has been heard yet"
    for _ in range(3):
        world.round()
    assert {host.disk.intent.epoch for host in world.hosts.values()} == {1}


@pytest.mark.parametrize("victim", NODES)
def test_peer_died_loading_the_others_stop_and_wait_for_it(victim: str) -> None:
    """Field report peer-died-loading."""
    world = idle_world()
    world.ask("start")
    for _ in range(4):
        world.round()
    world.cut_power(victim)
    for _ in range(40):
        world.round()
    assert not world.ready()
    world.restore_power(victim)
    world.until(world.ready, rounds=120)
    assert len({epoch for _, epoch in world.alive_epochs()}) == 1


def test_restart_storm_three_restarts_and_no_more() -> None:
    """Field report restart-storm: a rank that dies each time it has served for a while."""
    world = ready_world()
    for _ in range(3):
        world.kill_rank("spark2")
        world.round()
        world.until(world.ready, rounds=60)
    world.kill_rank("spark2")
    for _ in range(60):
        world.round()
    assert world.free()
    assert all(sentence.startswith("held: ") for sentence in world.phases().values())
    assert len(world.started) == 4 * 3
    for _ in range(60):
        world.round(seconds=600)
    assert len(world.started) == 4 * 3, "a held ring stays held"
    assert not isinstance(world.ask("start"), Accepted)
    world.ask("clear")
    world.until(world.free)
    for _ in range(3):
        world.round()
    world.ask("start")
    world.until(world.ready)


def test_same_death_twice_holds_with_the_first_error() -> None:
    """Field report same-death-twice."""
    world = idle_world()
    world.ask("start")
    for _ in range(40):
        world.fail_rank("spark3", "no such checkpoint: /models/x")
        world.round()
    assert world.free()
    held = world.hosts["spark1"].disk.intent
    assert held.held
    assert "no such checkpoint: /models/x" in held.reason
    assert len([1 for name, _ in world.started if name == "spark3"]) == 2


def _story(crash: tuple[int, int] | None) -> list[int]:
    """A start, a death, a restart, a stop, a start; the cycle of that number is cut off after so many actions.

    Returns for each cycle that had actions how many there were.
    """
    world = World()
    cycles: list[int] = []

    def cycle(name: str) -> None:
        actions = len(decide(world.snapshot(name)).actions)
        if actions:
            cycles.append(actions)
        if actions and crash is not None and crash[0] == len(cycles) - 1:
            world.cycle(name, crash_after=crash[1])
            world.boot_daemon(name)
        else:
            world.cycle(name)

    def run(reached: str) -> None:
        for _ in range(60):
            world.gossip()
            for name in NODES:
                cycle(name)
            world.gossip()
            world.engine()
            world.now += 1.0
            assert len({epoch for _, epoch in world.alive_epochs()}) <= 1
            if world.ready() if reached == "ready" else world.free() and _all_down(world):
                return
        raise AssertionError(f"crash {crash}: never {reached}: {world.phases()}")

    for _ in range(4):
        world.gossip()
        for name in NODES:
            cycle(name)
    assert isinstance(world.ask("start"), Accepted)
    run("ready")
    world.kill_rank("spark3")
    run("ready")
    assert isinstance(world.ask("stop"), Accepted)
    run("free")
    assert isinstance(world.ask("start"), Accepted)
    run("ready")
    return cycles


def _all_down(world: World) -> bool:
    return all(host.disk.intent.want == "down" for host in world.hosts.values())


def test_every_story_converges_from_every_interrupted_prefix() -> None:
    """A daemon dies between any two actions of any cycle, and comes back: the story ends the same."""
    cycles = _story(None)
    assert len(cycles) > 10
    for number, actions in enumerate(cycles):
        for after in range(actions + 1):
            _story((number, after))


def test_an_attempt_without_a_unit_is_not_mistaken_for_a_running_rank() -> None:
    """The daemon died between saving its attempt and StartUnit: the epoch is over, and the next one starts."""
    world = idle_world()
    world.ask("start")
    for name in NODES:
        world.hosts[name].disk.intent = world.hosts["spark1"].disk.intent
    world.hosts["spark2"].disk.attempt = Attempt(1, world.hosts["spark2"].boot_id, world.now)
    world.until(world.ready)
    assert world.hosts["spark1"].disk.intent.epoch == 2
