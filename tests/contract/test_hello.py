"""What FakeHellos and real hellos between network namespaces both do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import pytest

from ring_mesh import PORTS
from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.host.hello import MulticastHellos
from sparkd.ports import DoorError, Hellos
from tests.contract.machine import Machine, machines
from tests.contract.waiting import Bell, until
from tests.fakes import FakeHellos, FakeLinks, FakeRoom

P0, P0_TWIN, P1, P1_TWIN = (port.device for port in PORTS)
IDS = {"spark1": "1" * 32, "spark2": "2" * 32, "spark3": "3" * 32}
PERIOD = 0.2


class Host(Protocol):
    """A host with a daemon, and what happens to it."""

    bell: Bell
    name: str

    async def boot(self, name: str, node_id: str, cluster: str = "lab", key: str = "key") -> None: ...
    async def shut_down(self) -> None: ...
    async def observe(self) -> HelloFacts: ...
    def poke(self) -> None: ...
    def switch_ipv6(self, device: str, on: bool) -> None: ...
    def set_up(self, device: str, up: bool) -> None: ...
    def remove(self, device: str) -> None: ...


def listen(door: Hellos, bell: Bell) -> None:
    door.subscribe(bell)


class FakeMachine:
    def __init__(self, room: FakeRoom) -> None:
        self.room = room
        self.links = FakeLinks()
        self.bell = Bell()
        self.name = ""
        self.hellos: FakeHellos | None = None

    async def boot(self, name: str, node_id: str, cluster: str = "lab", key: str = "key") -> None:
        self.name = name
        self.hellos = FakeHellos(self.room, self.links, name, node_id, cluster, key)
        listen(self.hellos, self.bell)

    async def shut_down(self) -> None:
        if self.hellos is not None:
            self.hellos.close()

    async def observe(self) -> HelloFacts:
        return await self._running.observe()

    def poke(self) -> None:
        self._running.poke()

    def switch_ipv6(self, device: str, on: bool) -> None:
        self._running.switch_ipv6(device, on)

    def set_up(self, device: str, up: bool) -> None:
        self.links.set_up(device, up)

    def remove(self, device: str) -> None:
        self.links.remove_device(device)

    @property
    def _running(self) -> FakeHellos:
        assert self.hellos is not None
        return self.hellos


class RealMachine:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bell = Bell()
        self.name = ""
        self.hellos: MulticastHellos | None = None

    async def boot(self, name: str, node_id: str, cluster: str = "lab", key: str = "key") -> None:
        self.name = name
        self.hellos = MulticastHellos(cluster, name, node_id, key.encode(), period=PERIOD)
        self.machine.do(lambda: listen(self._running, self.bell))

    async def shut_down(self) -> None:
        if self.hellos is not None:
            self.machine.do(self.hellos.close)

    async def observe(self) -> HelloFacts:
        return await self.machine.run(self._running.observe())

    def poke(self) -> None:
        self.machine.do(self._running.poke)

    def switch_ipv6(self, device: str, on: bool) -> None:
        self.machine.sysctl(f"ipv6/conf/{device}/disable_ipv6", "0" if on else "1")

    def set_up(self, device: str, up: bool) -> None:
        self.machine.ip(f"link set dev {device} {'up' if up else 'down'}")

    def remove(self, device: str) -> None:
        self.machine.ip(f"link del dev {device}")

    @property
    def _running(self) -> MulticastHellos:
        assert self.hellos is not None
        return self.hellos


class World(Protocol):
    hosts: list[Host]

    def cable(self, one: int, device: str, other: int, other_device: str) -> None:
        """Between two ports that do not exist yet; then they do, and are up."""

    def move(self, one: int, device: str, end: tuple[int, str], to: int) -> None:
        """The cable of one host's port is pulled out at its other end and put into the same port of another host."""


class FakeWorld:
    def __init__(self, number: int) -> None:
        room = FakeRoom()
        self.machines = [FakeMachine(room) for _ in range(number)]
        self.hosts: list[Host] = [*self.machines]

    def cable(self, one: int, device: str, other: int, other_device: str) -> None:
        for at, name in ((one, device), (other, other_device)):
            self.machines[at].links.add_device(name)
            self.machines[at].links.set_up(name, True)
        self.machines[one].links.plug(device, self.machines[other].links, other_device)

    def move(self, one: int, device: str, end: tuple[int, str], to: int) -> None:
        links = self.machines[one].links
        links.unplug(device)
        self.machines[end[0]].links.remove_device(end[1])
        self.machines[to].links.add_device(end[1])
        self.machines[to].links.set_up(end[1], True)
        links.plug(device, self.machines[to].links, end[1])


class RealWorld:
    def __init__(self, made: list[Machine]) -> None:
        self.machines = made
        self.hosts: list[Host] = [RealMachine(machine) for machine in made]

    def cable(self, one: int, device: str, other: int, other_device: str) -> None:
        self.machines[one].cable(device, self.machines[other], other_device)

    def move(self, one: int, device: str, end: tuple[int, str], to: int) -> None:
        self.machines[end[0]].ip(f"link set dev {end[1]} netns {self.machines[to].tid}")
        self.machines[to].ip(f"link set dev {end[1]} up")


@contextlib.contextmanager
def _world(kind: str, number: int) -> Iterator[World]:
    if kind == "fake":
        yield FakeWorld(number)
    else:
        with machines(number) as made:
            yield RealWorld(made)


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
        with _world(request.param, number) as world:
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
    return await until(host.observe, lambda facts: (set(facts.neighbours), facts.deaf) == (set(neighbours), deaf))


def test_a_host_without_cables_knows_itself(run: Run) -> None:
    async def body(world: World) -> None:
        await boot(world)
        assert await world.hosts[0].observe() == HelloFacts(IDS["spark1"])

    run(1, body)


def test_both_ends_of_a_cable_see_each_other_on_both_domains(run: Run) -> None:
    async def body(world: World) -> None:
        pair(world)
        await boot(world)
        one, two = world.hosts
        facts = await until_hears(one, heard(P0, "spark2", P1), heard(P0_TWIN, "spark2", P1_TWIN))
        assert facts.node_id == IDS["spark1"]
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
        seen = await until_hears(one, heard(P0, "spark2", P1), heard(P0_TWIN, "spark2", P1_TWIN))
        await until_hears(two, heard(P1, "spark1", P0), heard(P1_TWIN, "spark1", P0_TWIN))
        await one.bell.quiet()
        one.poke()
        two.poke()
        await asyncio.sleep(3 * PERIOD)
        assert one.bell.sources == []
        assert await one.observe() == seen

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
