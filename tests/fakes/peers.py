"""Daemons that talk without a network between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sparkd.core.model import PeerView, Report
from sparkd.ports import Clock, DoorError, Wake

Fetcher = Callable[[str], Awaitable[bytes]]
Handler = Callable[[Mapping[str, object]], Awaitable[tuple[int, Mapping[str, object]]]]


class FakeMesh:
    """What connects the FakePeers of a cluster. Every pair can be cut, every node silenced."""

    def __init__(self, clock: Clock, *names: str) -> None:
        self.clock = clock
        self.members = {name: FakePeers(self, name) for name in names}
        self.handlers: dict[str, Handler] = {}
        self.fetchers: dict[str, Fetcher] = {}
        self._cuts: set[frozenset[str]] = set()
        self._silent: set[str] = set()

    def __getitem__(self, name: str) -> FakePeers:
        return self.members[name]

    def cut(self, one: str, other: str) -> None:
        self._cuts.add(frozenset({one, other}))

    def mend(self, one: str, other: str) -> None:
        self._cuts.discard(frozenset({one, other}))

    def silence(self, name: str) -> None:
        """The node is off, or its daemon is: it neither hears nor answers, and forgets what it had heard."""
        self._silent.add(name)
        self.members[name].forget()

    def wake(self, name: str) -> None:
        self._silent.discard(name)

    def reachable(self, one: str, other: str) -> bool:
        return frozenset({one, other}) not in self._cuts and not {one, other} & self._silent


class FakePeers:
    """One daemon's view of the others. A push arrives in the next turn of the loop; `poll` pulls like the tick does.

    `asked`: whom requests were handed to, or tried to be.
    """

    def __init__(self, mesh: FakeMesh, name: str) -> None:
        self._mesh = mesh
        self._name = name
        self._wakes: list[Wake] = []
        self._heard: dict[str, tuple[Report, float]] = {}
        self._errors: dict[str, str] = {}
        self.published: Report | None = None
        self.asked: list[str] = []

    def views(self) -> tuple[PeerView, ...]:
        return tuple(self._view(name) for name in self._mesh.members if name != self._name)

    def publish(self, report: Report) -> None:
        assert report.node == self._name, "a daemon reports about its own host only"
        self.published = report
        for name, peer in self._mesh.members.items():
            if name != self._name and self._mesh.reachable(self._name, name):
                asyncio.get_running_loop().call_soon(self._deliver, peer, report)

    def receive(self, report: Report) -> None:
        if report.node == self._name or report.node not in self._mesh.members:
            return
        older = self._heard.get(report.node)
        if older and older[0].instance == report.instance and report.sequence < older[0].sequence:
            return  # a push that was overtaken
        self._heard[report.node] = (report, self._mesh.clock.monotonic())
        self._errors.pop(report.node, None)
        if older is None or older[0] != report:
            self._wake()

    async def request(self, node: str, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        self.asked.append(node)
        if not self._mesh.reachable(self._name, node) or node not in self._mesh.handlers:
            raise DoorError(f"{node} does not answer")
        return await self._mesh.handlers[node](body)

    async def fetch(self, node: str, path: str) -> bytes:
        if not self._mesh.reachable(self._name, node) or node not in self._mesh.fetchers:
            raise DoorError(f"{node} does not answer")
        return await self._mesh.fetchers[node](path)

    fetch_apart = fetch

    def subscribe(self, wake: Wake) -> None:
        self._wakes.append(wake)

    def poll(self) -> None:
        """Ask every peer for its report."""
        for name, peer in self._mesh.members.items():
            if name == self._name:
                continue
            if self._mesh.reachable(self._name, name) and peer.published is not None:
                self.receive(peer.published)
            elif name not in self._errors:
                self._errors[name] = f"{name} does not answer"
                self._wake()

    def forget(self) -> None:
        self._heard.clear()
        self._errors.clear()
        self.published = None

    def _deliver(self, peer: FakePeers, report: Report) -> None:
        # What happened since it was sent counts: a cut loses what is under way.
        if self._mesh.reachable(self._name, report.node) and self._mesh.reachable(report.node, peer._name):
            peer.receive(report)

    def _view(self, name: str) -> PeerView:
        report, at = self._heard.get(name, (None, 0.0))
        age = None if report is None else self._mesh.clock.monotonic() - at
        return PeerView(name, report, age, self._errors.get(name, ""))

    def _wake(self) -> None:
        for wake in self._wakes:
            wake("peers")
