"""Maintenance on three hosts: it reaches all of them, outlasts what happens to them, and nothing follows meanwhile.

That nothing is started, stopped or repaired on a host that has adopted it is checked by the world itself.
"""

from __future__ import annotations

import pytest

from sparkd.core.intent import Accepted, Refused
from tests.core.builders import NODES
from tests.sim.test_directed import idle_world, ready_world
from tests.sim.world import World


def held_world() -> World:
    world = ready_world()
    assert isinstance(world.ask("hold", "a new cable"), Accepted)
    world.until(lambda: all(host.disk.intent.paused for host in world.hosts.values()))
    return world


def test_it_reaches_all_hosts_and_the_ring_goes_on_serving() -> None:
    world = held_world()
    for _ in range(20):
        world.round()
    assert world.ready()
    assert {epoch for _, epoch in world.alive_epochs()} == {1}
    assert all("by operator: a new cable; epoch 1 is ready" in told for told in world.phases().values())


@pytest.mark.parametrize("victim", NODES)
def test_a_dead_rank_is_shown_and_the_ring_comes_back_after_resume(victim: str) -> None:
    world = held_world()
    started = len(world.started)
    world.kill_rank(victim)
    world.now += 600
    for _ in range(20):
        world.round()
    assert len(world.started) == started
    assert all("is left as it is" in told and "was killed by SIGKILL" in told for told in world.phases().values())
    assert isinstance(world.ask("resume"), Accepted)
    world.until(world.ready, rounds=60)
    assert {epoch for _, epoch in world.alive_epochs()} == {2}


def test_it_outlasts_a_power_cut_of_every_host() -> None:
    world = held_world()
    for name in NODES:
        world.cut_power(name)
    for name in reversed(NODES):
        world.restore_power(name)
        for _ in range(5):
            world.round()
    assert world.free()
    assert all(host.disk.intent.paused for host in world.hosts.values())
    world.ask("resume")
    world.until(world.ready, rounds=60)


def test_a_conductor_that_lost_its_disk_learns_of_it_from_its_peers() -> None:
    world = held_world()
    world.lose_disk("spark1")
    world.boot_daemon("spark1")
    world.kill_rank("spark3")
    for _ in range(20):
        world.round()
    assert world.hosts["spark1"].disk.intent.paused
    assert world.hosts["spark1"].disk.intent.epoch == 1


def test_a_host_that_slept_through_the_hold_and_the_resume_joins_in() -> None:
    world = held_world()
    world.cut_power("spark2")
    world.ask("resume")
    for _ in range(3):
        world.round()
    world.restore_power("spark2")
    world.until(world.ready, rounds=120)


def test_a_start_is_refused_and_a_forced_stop_is_carried_out() -> None:
    world = idle_world()
    world.ask("hold")
    assert isinstance(world.ask("start"), Refused)
    world.ask("resume")
    world.ask("start")
    world.until(world.ready)
    world.ask("hold")
    assert isinstance(world.ask("stop"), Refused)
    assert isinstance(world.ask("stop", force=True), Accepted)
    world.until(world.free)
