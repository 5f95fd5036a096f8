"""Hellos between daemons whose FakeLinks are cabled to each other."""

from __future__ import annotations

import asyncio
from hashlib import md5

from ring_mesh import PORTS
from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.ports import DoorError, Wake
from tests.fakes.links import FakeLinks


class FakeRoom:
    """The daemons that can hear each other if a cable is there."""

    def __init__(self) -> None:
        self._hosts: dict[FakeLinks, FakeHellos] = {}

    def enter(self, hellos: FakeHellos) -> None:
        assert hellos.links not in self._hosts, "UDP port 7476 is taken"
        self._hosts[hellos.links] = hellos

    def leave(self, hellos: FakeHellos) -> None:
        self._hosts.pop(hellos.links, None)

    def speaker(self, links: FakeLinks, device: str) -> FakeHellos | None:
        host = self._hosts.get(links)
        return host if host is not None and host.hears(device) and links._ports[device].link_local else None

    def news(self) -> None:
        """What changes beyond the cables is noticed without a poke, as it is when a period has passed."""
        for host in self._hosts.values():
            host.poke()


class FakeHellos:
    """Cables and carrier are those of `links`; a change there is news only once the door is poked.

    `key` stands for the cluster's key, `broken` is the sentence of the DoorError to raise, if any.
    """

    def __init__(
        self,
        room: FakeRoom,
        links: FakeLinks,
        node: str,
        node_id: str = "",
        cluster: str = "lab",
        key: str = "key",
        boot: str = "",
    ) -> None:
        self.links = links
        self.node = node
        self.node_id = node_id or md5(node.encode(), usedforsecurity=False).hexdigest()
        self.cluster = cluster
        self.key = key
        self.boot = boot or f"boot of {node}"
        self.broken = ""
        self._room = room
        self._off: set[str] = set()
        self._wakes: list[Wake] = []
        self._told = HelloFacts(self.node_id)
        self._woken = False
        self._closed = False
        room.enter(self)
        room.news()

    async def observe(self) -> HelloFacts:
        if self._closed:
            raise DoorError("hello is closed")
        if self.broken:
            raise DoorError(self.broken)
        return self._facts()

    def subscribe(self, wake: Wake) -> None:
        self._wakes.append(wake)
        self.poke()

    def poke(self) -> None:
        if self._closed or self._woken or not self._wakes or self._facts() == self._told:
            return
        self._woken = True
        asyncio.get_running_loop().call_soon(self._tell)

    def close(self) -> None:
        """The others forget this one at once, for which the real ones take some periods."""
        self._closed = True
        self._wakes.clear()
        self._room.leave(self)
        self._room.news()

    # What the world does.

    def switch_ipv6(self, device: str, on: bool) -> None:
        if on:
            self._off.discard(device)
        else:
            self._off.add(device)
        self._room.news()

    def hears(self, device: str) -> bool:
        return device not in self._off

    def _facts(self) -> HelloFacts:
        neighbours = []
        deaf = []
        settled = []  # nobody needs time here
        for device in (port.device for port in PORTS):
            port = self.links._ports.get(device)
            if port is None:
                continue
            if not self.hears(device):
                deaf.append(device)
            elif port.carrier and port.far is not None:
                settled.append(device)
                far = self._room.speaker(port.far.owner, port.far.name)
                if far is not None:
                    ours = far.key == self.key
                    said = (far.node, far.node_id, port.far.name, far.cluster, ours, far.boot, port.far.mac)
                    neighbours.append(Neighbour(device, *said))
        macs = tuple(self.links._ports[p.device].mac for p in PORTS if p.device in self.links._ports)
        neighbours.sort(key=lambda n: n.device)
        return HelloFacts(self.node_id, tuple(neighbours), tuple(deaf), tuple(settled), self.boot, macs)

    def _tell(self) -> None:
        self._woken = False
        facts = self._facts()
        if facts != self._told and not self._closed:
            self._told = facts
            for wake in self._wakes:
                wake("hello")
