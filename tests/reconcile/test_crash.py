"""A daemon dies between any two of its actions, and another takes its place: the ring gets where it was going."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from sparkd.core.intent import Request
from sparkd.core.snapshot import Policy
from tests.core.builders import NODES
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.doom import Crash
from tests.reconcile.running import in_loop, turns, until

Story = Callable[[Cluster], Awaitable[None]]


async def insist(ring: Cluster, request: Request) -> None:
    """What an operator does who gets no answer: ask again."""
    try:
        await ring.ask(request)
    except Crash:
        await ring.conductor.kill()
        ring.conductor.doom.left = None
        ring.conductor.boot()
        ring.poll()
        await ring.reach_any("down", "gated", "starting", "ready", "stopping")
        await ring.ask(request)


async def revive(ring: Cluster) -> None:
    """What systemd does: start every daemon that is gone."""
    for machine in ring:
        if machine.daemon is None:
            machine.doom.left = None
            machine.boot()


async def survive(ring: Cluster, story: Story, phase: str, victim: str, after: int) -> bool:
    """Tell the story with the victim's death after so many actions; True if it died of that."""
    machine = ring[victim]
    machine.doom.left, machine.doom.struck = after, False
    await story(ring)
    await until(lambda: machine.doom.struck or ring.all_in(phase))
    if not machine.doom.struck:
        await ring.quiet()
    struck = machine.doom.struck
    machine.doom.left = None
    await turns()
    await revive(ring)
    ring.poll()

    def arrived() -> bool:
        ring.clock.advance(0.001)  # for the back-off to pass
        return ring.all_in(phase)

    await until(arrived)
    await ring.quiet()
    return struck


async def power_on(ring: Cluster) -> None:
    """The first cycles of all daemons, which bring the ports up."""
    for machine in ring:
        machine.boot()
    ring.poll()


async def start(ring: Cluster) -> None:
    await insist(ring, "start")


async def stop(ring: Cluster) -> None:
    await insist(ring, "stop")


async def death(ring: Cluster) -> None:
    ring["spark3"].units.die(1, signal=9)
    await turns(100)
    ring.clock.advance(1)


async def _before(ring: Cluster, before: Story | None, story: Story) -> None:
    if story is not power_on:
        await ring.reach("down")
        await ring.quiet()
    if before is not None:
        await before(ring)
        await ring.reach("ready")


def crashes(before: Story | None, story: Story, phase: str, victim: str) -> int:
    """The number of places where the victim died, each in a ring of its own."""
    struck: list[bool] = []

    @in_loop
    async def once(after: int) -> None:
        async with cluster(Policy(backoff=0.01), boot=story is not power_on) as ring:
            await _before(ring, before, story)
            struck.append(await survive(ring, story, phase, victim, after))
            wanted = {ring.conductor.loop.state.intent.epoch} if phase == "ready" else set()
            assert {unit.epoch for machine in ring for unit in machine.running} == wanted
            for machine in ring:
                assert len(machine.units.started) == len(set(machine.units.started)), "one rank per epoch"
                assert set(machine.files.files) == wanted

    for after in count():
        once(after)
        if not struck[-1]:
            break
    return len(struck) - 1


@pytest.mark.parametrize("victim", NODES)
def test_a_crash_at_any_place_of_the_first_cycles(victim: str) -> None:
    assert crashes(None, power_on, "down", victim) >= 3


@pytest.mark.parametrize(("victim", "places"), [("spark1", 4), ("spark2", 4)])
def test_a_crash_at_any_place_of_a_start(victim: str, places: int) -> None:
    assert crashes(None, start, "ready", victim) >= places


@pytest.mark.parametrize("victim", NODES)
def test_a_crash_at_any_place_of_a_stop(victim: str) -> None:
    assert crashes(start, stop, "down", victim) >= 5


@pytest.mark.parametrize("victim", NODES)
def test_a_crash_at_any_place_of_a_recovery(victim: str) -> None:
    assert crashes(start, death, "ready", victim) >= 5


STORIES: list[tuple[Story | None, Story, str]] = [
    (None, power_on, "down"),
    (None, start, "ready"),
    (start, stop, "down"),
    (start, death, "ready"),
]
EVERY_ACTION = {
    *("save intent", "save attempt", "save memory"),
    *("start", "stop", "forget", "change fabric", "write environment", "remove environment"),
}


def test_the_stories_have_every_kind_of_action_to_die_before() -> None:
    """The stories that are cut off above are these, and they are cut off before each of their actions."""
    seen: set[str] = set()

    @in_loop
    async def tell(before: Story | None, story: Story, phase: str) -> None:
        async with cluster(Policy(backoff=0.01), boot=story is not power_on) as ring:
            await _before(ring, before, story)
            for machine in ring:
                machine.doom.acts.clear()
            await survive(ring, story, phase, "spark3", 1000)
            for machine in ring:
                seen.update(machine.doom.acts)

    for told in STORIES:
        tell(*told)
    assert seen == EVERY_ACTION
