"""Histories in which rails are measured: the gate, what is bad, what cannot be measured, and who reboots meanwhile."""

from __future__ import annotations

import pytest

from sparkd.core import gates
from sparkd.core.actions import StartRank
from sparkd.core.decide import decide
from sparkd.core.intent import Accepted, Refused
from tests.core.builders import NODES
from tests.sim.world import World


def idle_world() -> World:
    world = World()
    for _ in range(3):
        world.round()
    return world


def would_start(world: World, name: str) -> bool:
    return any(isinstance(action, StartRank) for action in decide(world.snapshot(name)).actions)


def test_no_rank_starts_before_every_rail_is_measured() -> None:
    """The gate of the rails, also of those that the host itself has no part in."""
    world = idle_world()
    assert isinstance(world.ask("start"), Accepted)
    starts = 0
    for _ in range(40):
        world.gossip()
        for name in NODES:
            world.cycle(name)
            if world.started and not starts:
                starts = len(world.started)
                assert all(len(host.measured) == 4 for host in world.hosts.values())
        world.gossip()
        world.engine()
        world.now += 1.0
    assert world.ready()
    assert starts
    assert world.rails.runs == len(NODES), "each host measured once"


def test_a_second_start_measures_nothing() -> None:
    world = idle_world()
    world.ask("start")
    world.until(world.ready)
    runs = world.rails.runs
    world.ask("stop")
    world.until(world.free)
    assert isinstance(world.ask("start"), Accepted)
    assert world.until(world.ready) < 10
    assert world.rails.runs == runs


def test_a_restart_after_a_death_measures_nothing() -> None:
    world = idle_world()
    world.ask("start")
    world.until(world.ready)
    runs = world.rails.runs
    world.kill_rank("spark2")
    world.round()
    world.until(world.ready)
    assert world.rails.runs == runs


@pytest.mark.parametrize("slow", NODES)
def test_a_slow_node_is_waited_for_and_refuses_the_next_start(slow: str) -> None:
    world = idle_world()
    world.rails.gbps[slow] = 7.0
    assert isinstance(world.ask("start"), Accepted), "nobody knows yet"
    for _ in range(60):
        world.round()
    assert world.started == []
    for name in NODES:
        (wait,) = gates.waits(world.snapshot(name))
        assert wait.startswith(f"{slow}: all its rails: ")
    world.ask("stop")
    for _ in range(3):
        world.round()
    answer = world.ask("start")
    assert isinstance(answer, Refused)
    assert {finding.id for finding in answer.findings} == {"node-slow"}
    # Its reboot clears what was measured.
    world.rails.gbps[slow] = 98.0
    world.cut_power(slow)
    world.round()
    world.restore_power(slow)
    for _ in range(5):
        world.round()
    assert isinstance(world.ask("start"), Accepted)
    world.until(world.ready)


def test_what_cannot_be_measured_is_tried_seldom_and_costs_no_budget() -> None:
    world = idle_world()
    world.rails.walled.add("spark3")
    world.ask("start")
    for _ in range(120):
        world.round()
    assert world.started == []
    assert 3 * 5 < world.rails.runs <= 3 * 9, "each takes 10 s, and a pause of up to 8 s follows"
    assert {host.disk.intent.epoch for host in world.hosts.values()} == {1}
    assert world.hosts["spark1"].disk.intent.deaths == ()
    assert "is not measured: spark3 did not come" in world.phases()["spark1"]
    world.rails.walled.clear()
    world.until(world.ready, rounds=30)


@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("rounds", range(1, 8))
def test_a_host_that_reboots_at_any_time_of_a_start_ends_in_a_ready_ring(victim: str, rounds: int) -> None:
    """Its measurements are gone, when others may have found every gate open and started their ranks."""
    world = idle_world()
    world.ask("start")
    for _ in range(rounds):
        world.round()
    world.cut_power(victim)
    for _ in range(2):
        world.round()
    world.restore_power(victim)
    world.until(world.ready, rounds=120)


def test_a_daemon_that_crashes_while_rails_are_measured_finds_the_results() -> None:
    world = idle_world()
    world.ask("start")
    while not any(host.measuring for host in world.hosts.values()):
        world.gossip()
        for name in NODES:
            world.cycle(name)
    for name in NODES:
        world.crash_daemon(name)
    world.engine()
    for name in NODES:
        world.boot_daemon(name)
    runs = world.rails.runs
    world.until(world.ready)
    assert world.rails.runs - runs < len(NODES), "what had been measured is not measured again"


def test_a_stop_ends_measuring() -> None:
    world = idle_world()
    world.ask("start")
    while not all(host.measuring for host in world.hosts.values()):
        world.gossip()
        for name in NODES:
            world.cycle(name)
    world.ask("stop")
    world.gossip()
    for name in NODES:
        world.cycle(name)
    assert not any(host.measuring for host in world.hosts.values())
    assert world.started == []
    assert would_start(world, "spark2") is False
