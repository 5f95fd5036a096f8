"""Hosts whose ports are cabled to each other and say hello: fakes, or daemons' doors in network namespaces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from sparkd.core.facts import HelloFacts
from sparkd.host.hello import MulticastHellos
from sparkd.ports import Hellos
from tests.contract.machine import Machine, machines
from tests.contract.waiting import Bell
from tests.fakes import FakeHellos, FakeLinks, FakeRoom

PERIOD = 0.2
"""Seconds between two hellos of a real door."""


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
        self.hellos = MulticastHellos(cluster, name, node_id, key.encode(), period=PERIOD, raw=False)
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
def make_world(kind: str, number: int) -> Iterator[World]:
    if kind == "fake":
        yield FakeWorld(number)
    else:
        with machines(number) as made:
            yield RealWorld(made)
