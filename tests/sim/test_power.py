"""Power that comes and goes, and a conductor that is away: the ring comes back in any order, and nobody takes over."""

from __future__ import annotations

from itertools import permutations

import pytest

from sparkd.core.intent import Accepted, Refused
from sparkd.core.snapshot import Policy
from tests.core.builders import NODES
from tests.sim.test_directed import ready_world
from tests.sim.world import World


def one_epoch(world: World) -> None:
    assert len({epoch for _, epoch in world.alive_epochs()}) <= 1, sorted(world.alive_epochs())


@pytest.mark.parametrize("order", list(permutations(NODES)), ids="-".join)
@pytest.mark.parametrize("gap", [1, 25])
def test_after_a_power_cut_of_all_the_ring_comes_back_in_any_boot_order(order: tuple[str, ...], gap: int) -> None:
    world = ready_world()
    for name in NODES:
        world.cut_power(name)
    for name in order:
        world.restore_power(name)
        for _ in range(gap):
            world.round()
            one_epoch(world)
    world.until(world.ready, rounds=120)
    assert {epoch for _, epoch in world.alive_epochs()} == {2}


def test_without_the_conductor_nobody_starts_issues_or_takes_over_anything() -> None:
    world = ready_world()
    world.cut_power("spark1")
    for _ in range(10):
        world.round()
    assert world.free(), "the others have lost a member"
    started = len(world.started)
    for _ in range(100):
        world.round(seconds=60)
        one_epoch(world)
    assert world.ask("start") is None
    assert (world.free(), len(world.started)) == (True, started)
    assert {world.hosts[name].disk.intent.epoch for name in ("spark2", "spark3")} == {1}
    assert "spark1 is to issue epoch 2, but spark1 has not answered" in world.phases()["spark2"]
    world.restore_power("spark1")
    world.until(world.ready, rounds=120)


def test_a_conductor_without_a_memory_leaves_a_serving_ring_alone_and_goes_on_from_there() -> None:
    world = ready_world()
    for _ in range(3):
        world.kill_rank("spark2")
        world.until(world.ready, rounds=60)
    epoch = world.hosts["spark2"].disk.intent.epoch
    started = list(world.started)
    world.lose_disk("spark1")
    world.boot_daemon("spark1")
    assert isinstance(world.ask("start"), Refused), "it has heard nobody yet"
    world.until(world.ready, rounds=20)
    assert {host.disk.intent.epoch for host in world.hosts.values()} == {epoch}
    assert [entry for entry in started if entry[0] != "spark1"] == world.started
    stopped = world.ask("stop")
    assert isinstance(stopped, Accepted)
    assert stopped.intent.epoch == epoch + 1
    world.until(world.free)


def test_node_hard_reset_twice_is_held_out_and_a_shutdown_is_none() -> None:
    """Field report node-hard-reset."""
    world = World(Policy(backoff=5.0, restarts=9))
    for _ in range(3):
        world.round()
    world.ask("start")
    world.until(world.ready)
    for off in (world.shut_down, world.cut_power, world.shut_down):
        off("spark3")
        world.round(seconds=60)
        world.restore_power("spark3")
        world.until(world.ready, rounds=120)
    world.cut_power("spark3")
    world.round()
    world.restore_power("spark3")
    for _ in range(60):
        world.round(seconds=600)
    world.round()
    assert world.free()
    assert all("it was reset 2 times within 6 h" in told for told in world.phases().values())
    assert isinstance(world.ask("clear"), Accepted)
    world.until(world.ready, rounds=120)
