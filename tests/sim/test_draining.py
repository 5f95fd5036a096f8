"""Draining on three hosts: it reaches rank 0 from anywhere, outlasts what happens to the hosts, and ends in a stop."""

from __future__ import annotations

import pytest

from sparkd.core.intent import Accepted
from tests.core.builders import NODES
from tests.sim.test_directed import ready_world
from tests.sim.world import World


def draining_world(requests: int = 30, seconds: float = 60.0) -> World:
    world = ready_world()
    world.hosts["spark1"].work(requests)
    assert isinstance(world.ask("stop", drain=seconds), Accepted)
    world.until(lambda: all("ready draining" in unit.text for unit in world.hosts["spark1"].alive()))
    return world


def stopped(world: World, reason: str) -> None:
    world.until(world.free, rounds=20)
    world.until(lambda: len({host.disk.intent for host in world.hosts.values()}) == 1)
    for host in world.hosts.values():
        assert (host.disk.intent.epoch, host.disk.intent.want) == (2, "down")
        assert reason in host.disk.intent.reason
    assert sorted(world.started) == [(name, 1) for name in NODES]


def test_it_ends_when_no_request_runs_any_more() -> None:
    world = draining_world(requests=10)
    assert all("is draining: waits for" in told for told in world.phases().values())
    rounds = world.until(world.free)
    assert 5 < rounds < 20
    stopped(world, "no request was running any more")


def test_it_ends_in_time() -> None:
    world = draining_world(requests=10_000)
    assert 55 < world.until(world.free, rounds=80) < 75
    stopped(world, "the 60 s to drain were over")


@pytest.mark.parametrize("victim", NODES)
def test_a_death_ends_it_without_a_restart(victim: str) -> None:
    world = draining_world(requests=10_000, seconds=3600)
    world.kill_rank(victim)
    for _ in range(30):
        world.round()
    stopped(world, f"({victim}) ended: it was killed by SIGKILL")


@pytest.mark.parametrize("victim", NODES)
def test_a_daemon_that_starts_in_the_middle_goes_on_from_its_disk(victim: str) -> None:
    world = draining_world(requests=20)
    world.crash_daemon(victim)
    for _ in range(5):
        world.round()
    assert len(list(world.alive_epochs())) == 3
    world.boot_daemon(victim)
    world.round()
    assert "is draining" in world.phases()[victim]
    stopped(world, "no request was running any more")


def test_without_the_conductors_daemon_it_goes_on_until_that_is_back() -> None:
    world = draining_world(requests=5, seconds=20)
    world.crash_daemon("spark1")
    for _ in range(40):
        world.round()
    assert len(list(world.alive_epochs())) == 3
    world.boot_daemon("spark1")
    stopped(world, "no request was running any more")


def test_a_power_cut_of_the_conductor_ends_it() -> None:
    world = draining_world(requests=10_000, seconds=3600)
    world.cut_power("spark1")
    for _ in range(20):
        world.round()
    assert world.free()
    world.restore_power("spark1")
    for _ in range(30):
        world.round()
    stopped(world, "not all requests came to their end")


def test_a_start_takes_it_back() -> None:
    world = draining_world(requests=10_000)
    assert isinstance(world.ask("start"), Accepted)
    world.until(lambda: not world.hosts["spark1"].draining)
    for _ in range(80):
        world.round()
    assert world.ready()
    assert {epoch for _, epoch in world.alive_epochs()} == {1}


def test_a_stop_without_time_ends_it_at_once() -> None:
    world = draining_world(requests=10_000, seconds=3600)
    assert isinstance(world.ask("stop"), Accepted)
    stopped(world, "stop asked for")
