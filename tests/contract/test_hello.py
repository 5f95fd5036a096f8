"""What FakeHellos and real hellos between network namespaces both do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ring_mesh import PORTS
from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.ports import DoorError
from tests.contract.hosts import PERIOD, Host, World, make_world
from tests.contract.waiting import until

P0, P0_TWIN, P1, P1_TWIN = (port.device for port in PORTS)
IDS = {"spark1": "1" * 32, "spark2": "2" * 32, "spark3": "3" * 32}


Body = Callable[[World], Awaitable[None]]
Run = Callable[[int, Body], None]


@pytest.fixture(params=["fake", "real"])
def run(request: pytest.FixtureRequest) -> Run:
    async def whole(world: World, body: Body) -> None:
        try:
            await body(world)
        finally:
            for host in world.hosts:
                await host.shut_down()

    def run_on(number: int, body: Body) -> None:
        before = set(threading.enumerate())
        with make_world(request.param, number) as world:
            asyncio.run(whole(world, body))
        assert set(threading.enumerate()) == before

    return run_on


async def boot(world: World) -> None:
    """Each under its own name, as members of one cluster."""
    for host, (name, node_id) in zip(world.hosts, IDS.items(), strict=False):
        await host.boot(name, node_id)


def pair(world: World) -> None:
    """A cable from the first host's port 0 to the second's port 1, with both of its links."""
    world.cable(0, P0, 1, P1)
    world.cable(0, P0_TWIN, 1, P1_TWIN)


def heard(device: str, name: str, remote: str) -> Neighbour:
    return Neighbour(device, name, IDS[name], remote, "lab", True)


async def until_hears(host: Host, *neighbours: Neighbour, deaf: tuple[str, ...] = ()) -> HelloFacts:
    """Whatever machine they are on: the fakes' boots and addresses are their own."""

    def so(facts: HelloFacts) -> bool:
        return ({replace(n, boot="", mac="") for n in facts.neighbours}, facts.deaf) == (set(neighbours), deaf)

    return await until(host.observe, so)


def test_a_host_without_cables_knows_itself(run: Run) -> None:
    async def body(world: World) -> None:
        await boot(world)
        assert replace(await world.hosts[0].observe(), boot="") == HelloFacts(IDS["spark1"])

    run(1, body)


def test_both_ends_of_a_cable_see_each_other_on_both_domains(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        await boot(world)
        one, two = world.hosts
        facts = await until_hears(one, heard(P0, "spark2", P1), heard(P0_TWIN, "spark2", P1_TWIN))
        assert facts.node_id == IDS["spark1"]
        assert len(facts.macs) == 2 and facts.boot
        assert {(n.boot, n.mac) for n in facts.neighbours} == {
            ((await two.observe()).boot, mac) for mac in (await two.observe()).macs
        }
        await until_hears(two, heard(P1, "spark1", P0), heard(P1_TWIN, "spark1", P0_TWIN))
        assert await one.bell.rings()
        assert set(one.bell.sources) == {"hello"}
        assert await two.bell.rings()

    run(2, body)


def test_what_has_been_heard_is_told_once(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        await boot(world)
        one, two = world.hosts
        await until_hears(one, heard(P0, "spark2", P1), heard(P0_TWIN, "spark2", P1_TWIN))
        await until_hears(two, heard(P1, "spark1", P0), heard(P1_TWIN, "spark1", P0_TWIN))
        seen = await until(one.observe, lambda facts: facts.settled == (P0, P0_TWIN))
        await one.bell.quiet()
        one.poke()
        two.poke()
        await asyncio.sleep(3 * PERIOD)
        assert one.bell.sources == []
        assert await one.observe() == seen

    run(2, body)


def test_a_port_that_hears_nobody_settles_and_one_without_carrier_does_not(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        one, two = world.hosts
        two.set_up(P1, False)
        await one.boot("spark1", IDS["spark1"])
        await until(one.observe, lambda facts: facts.settled == (P0_TWIN,))
        assert await one.bell.rings()
        two.set_up(P1, True)
        one.poke()
        facts = await until(one.observe, lambda facts: facts.settled == (P0, P0_TWIN))
        assert facts.neighbours == ()

    run(2, body)


def test_a_triangle(run: Run) -> None:
    async def body(world: World) -> None:
        for number in range(3):
            world.cable(number, P0, (number + 1) % 3, P1)
            world.cable(number, P0_TWIN, (number + 1) % 3, P1_TWIN)
        await boot(world)
        names = list(IDS)
        for number, host in enumerate(world.hosts):
            before, after = names[number - 1], names[(number + 1) % 3]
            await until_hears(
                host,
                heard(P0, after, P1),
                heard(P0_TWIN, after, P1_TWIN),
                heard(P1, before, P0),
                heard(P1_TWIN, before, P0_TWIN),
            )

    run(3, body)


def test_a_cable_that_comes_back_is_heard_at_both_of_its_ends(run: Run) -> None:
    async def body(world: World) -> None:
        world.cable(0, P0, 0, P1)
        await boot(world)
        await until_hears(world.hosts[0], heard(P0, "spark1", P1), heard(P1, "spark1", P0))

    run(1, body)


def test_another_clusters_key_makes_foreigners_of_both(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        one, two = world.hosts
        await one.boot("spark1", IDS["spark1"])
        await two.boot("gx10", IDS["spark2"], "office", "another key")
        there = [Neighbour(near, "gx10", IDS["spark2"], far, "office", False) for near, far in ((P0, P1),)]
        there += [Neighbour(P0_TWIN, "gx10", IDS["spark2"], P1_TWIN, "office", False)]
        await until_hears(one, *there)
        here = [Neighbour(P1, "spark1", IDS["spark1"], P0, "lab", False)]
        here += [Neighbour(P1_TWIN, "spark1", IDS["spark1"], P0_TWIN, "lab", False)]
        await until_hears(two, *here)

    run(2, body)


def test_two_machines_under_one_name_are_told_apart(run: Run) -> None:
    async def body(world: World) -> None:
        world.cable(0, P0, 1, P1)
        one, two = world.hosts
        await one.boot("spark1", IDS["spark1"])
        await two.boot("spark1", IDS["spark2"])
        await until_hears(one, Neighbour(P0, "spark1", IDS["spark2"], P1, "lab", True))

    run(2, body)


def test_a_port_with_ipv6_off_is_deaf_until_it_is_on(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        await boot(world)
        one, two = world.hosts
        await until_hears(one, heard(P0, "spark2", P1), heard(P0_TWIN, "spark2", P1_TWIN))
        await one.bell.quiet()
        one.switch_ipv6(P0, False)
        await until_hears(one, heard(P0_TWIN, "spark2", P1_TWIN), deaf=(P0,))
        assert await one.bell.rings()
        await until_hears(two, heard(P1_TWIN, "spark1", P0_TWIN))
        one.switch_ipv6(P0, True)
        await until_hears(one, heard(P0, "spark2", P1), heard(P0_TWIN, "spark2", P1_TWIN))
        await until_hears(two, heard(P1, "spark1", P0), heard(P1_TWIN, "spark1", P0_TWIN))

    run(2, body)


def test_a_cable_that_is_moved_leads_to_another(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        await boot(world)
        one, two, three = world.hosts
        twin = heard(P0_TWIN, "spark2", P1_TWIN)
        await until_hears(one, heard(P0, "spark2", P1), twin)
        await one.bell.quiet()
        world.move(0, P0, (1, P1), 2)
        for host in world.hosts:
            host.poke()
        await until_hears(one, heard(P0, "spark3", P1), twin)
        assert await one.bell.rings()
        await until_hears(two, heard(P1_TWIN, "spark1", P0_TWIN))
        await until_hears(three, heard(P1, "spark1", P0))

    run(3, body)


def test_without_carrier_nobody_is_heard(run: Run) -> None:
    async def body(world: World) -> None:
        world.cable(0, P0, 1, P1)
        await boot(world)
        one, two = world.hosts
        await until_hears(one, heard(P0, "spark2", P1))
        await one.bell.quiet()
        two.set_up(P1, False)
        one.poke()
        await until_hears(one)
        assert await one.bell.rings()
        await until_hears(two)
        two.set_up(P1, True)
        one.poke()
        two.poke()
        await until_hears(one, heard(P0, "spark2", P1))
        await until_hears(two, heard(P1, "spark1", P0))

    run(2, body)


def test_a_device_that_goes_and_comes_back(run: Run) -> None:
    async def body(world: World) -> None:
        world.cable(0, P0, 1, P1)
        await boot(world)
        one, two = world.hosts
        await until_hears(one, heard(P0, "spark2", P1))
        one.remove(P0)
        with contextlib.suppress(AssertionError, KeyError):  # a veth takes its other end along
            two.remove(P1)
        one.poke()
        await until_hears(one)
        await until_hears(two)
        world.cable(0, P0, 1, P1)
        one.poke()
        two.poke()
        await until_hears(one, heard(P0, "spark2", P1))
        await until_hears(two, heard(P1, "spark1", P0))

    run(2, body)


def test_a_daemon_that_stops_is_forgotten_and_its_successor_heard(run: Run) -> None:
    async def body(world: World) -> None:
        world.cable(0, P0, 1, P1)
        await boot(world)
        one, two = world.hosts
        await until_hears(one, heard(P0, "spark2", P1))
        await one.bell.quiet()
        await two.shut_down()
        await until_hears(one)
        assert await one.bell.rings()
        await two.boot("spark3", IDS["spark3"])
        await until_hears(one, heard(P0, "spark3", P1))
        await until_hears(two, heard(P1, "spark1", P0))

    run(2, body)


def test_a_closed_door_says_so(run: Run) -> None:
    async def body(world: World) -> None:
        await boot(world)
        await world.hosts[0].observe()
        await world.hosts[0].shut_down()
        with pytest.raises(DoorError, match="hello is closed"):
            await world.hosts[0].observe()

    run(1, body)
