"""What is known of the peers, kept up to date: a slow pull as the safety net, an exchange at once when there is news.

Push is a hint, pull is the truth: a pushed report is believed only as the next of a daemon instance that was pulled.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sparkd.core import news
from sparkd.core.model import PeerView, Report
from sparkd.peers.client import ANSWER_DEADLINE, URGENT_DEADLINE, PeerError
from sparkd.ports import DoorError, Wake

T = TypeVar("T")


class Client(Protocol):
    def pull(self, within: float) -> Report: ...

    def exchange(self, report: Report, within: float) -> Report: ...

    def request(self, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]: ...

    def fetch(self, path: str) -> bytes: ...

    def close(self) -> None: ...


@dataclass
class _Peer:
    """Asking and handing requests over use a connection and a thread each, so that a request never waits for a poll."""

    name: str
    poll: Client
    ask: Client
    poll_thread: ThreadPoolExecutor
    ask_thread: ThreadPoolExecutor
    news: asyncio.Event = field(default_factory=asyncio.Event)
    urgent: bool = False
    asking: bool = False
    hurry: asyncio.Task[None] | None = None
    report: Report | None = None
    answered: float | None = None
    error: str = ""


class Poller:
    """Implements sparkd.ports.Peers. `client` makes a new client for a node's name."""

    def __init__(self, names: tuple[str, ...], client: Callable[[str], Client], tick: float) -> None:
        self._peers = {
            name: _Peer(
                name,
                client(name),
                client(name),
                ThreadPoolExecutor(1, thread_name_prefix=f"poll-{name}"),
                ThreadPoolExecutor(1, thread_name_prefix=f"ask-{name}"),
            )
            for name in names
        }
        self._client = client
        self._tick = tick
        self._own: Report | None = None
        self._wakes: list[Wake] = []

    def views(self) -> tuple[PeerView, ...]:
        now = time.monotonic()
        return tuple(
            PeerView(p.name, p.report, now - p.answered if p.answered is not None else None, p.error)
            for p in self._peers.values()
        )

    def publish(self, report: Report) -> None:
        self._own = report
        for peer in self._peers.values():
            peer.news.set()

    def poke(self) -> None:
        """Something has happened to the network: ask every peer now, and do not wait for long."""
        for peer in self._peers.values():
            peer.urgent = True
            peer.news.set()
            if peer.asking and peer.hurry is None:
                # Asked before there was news, with all the time there is.
                peer.hurry = asyncio.get_running_loop().create_task(self._hurry(peer))

    def receive(self, report: Report) -> None:
        peer = self._peers.get(report.node)
        if peer is None:
            return
        if peer.report is None or peer.report.instance != report.instance:
            peer.news.set()  # a daemon not asked yet: ask it now
        else:
            self._accept(peer, report)

    async def request(self, node: str, body: Mapping[str, object]) -> tuple[int, Mapping[str, object]]:
        peer = self._known(node)
        return await self._asking(peer, functools.partial(peer.ask.request, body))

    async def fetch(self, node: str, path: str) -> bytes:
        peer = self._known(node)
        return await self._asking(peer, functools.partial(peer.ask.fetch, path))

    async def fetch_apart(self, node: str, path: str) -> bytes:
        """Over a connection and a thread of its own, which end with it."""
        self._known(node)
        thread = ThreadPoolExecutor(1, thread_name_prefix=f"read-{node}")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, functools.partial(self._fetch, node, path))
        except PeerError as error:
            raise DoorError(f"{node} cannot be asked: {error}") from None
        finally:
            # Not waited for: the client's own deadlines end it.
            thread.shutdown(wait=False)

    def _fetch(self, node: str, path: str) -> bytes:
        client = self._client(node)
        try:
            return client.fetch(path)
        finally:
            client.close()

    def _known(self, node: str) -> _Peer:
        peer = self._peers.get(node)
        if peer is None:
            raise DoorError(f"{node} is not a peer")
        return peer

    async def _asking(self, peer: _Peer, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(peer.ask_thread, call)
        except PeerError as error:
            raise DoorError(f"{peer.name} cannot be asked: {error}") from None

    def subscribe(self, wake: Wake) -> None:
        self._wakes.append(wake)

    async def run(self) -> None:
        """Polls until cancelled."""
        async with asyncio.TaskGroup() as group:
            for peer in self._peers.values():
                group.create_task(self._follow(peer))

    def close(self) -> None:
        for peer in self._peers.values():
            for thread, client in ((peer.poll_thread, peer.poll), (peer.ask_thread, peer.ask)):
                thread.submit(client.close)
                # A connect that hangs must not hold the daemon's exit up; its deadline ends it.
                thread.shutdown(wait=False)

    async def _follow(self, peer: _Peer) -> None:
        while True:
            news = peer.news.is_set()
            peer.news.clear()
            own = self._own if news else None
            within = URGENT_DEADLINE if peer.urgent else ANSWER_DEADLINE
            peer.urgent = False
            ask = peer.poll.pull if own is None else functools.partial(peer.poll.exchange, own)
            peer.asking = True
            await self._ask(peer, peer.poll_thread, functools.partial(ask, within=within))
            peer.asking = False
            try:
                async with asyncio.timeout(self._tick):
                    await peer.news.wait()
            except TimeoutError:
                pass

    async def _hurry(self, peer: _Peer) -> None:
        """Over the other connection, while the first waits."""
        await self._ask(peer, peer.ask_thread, functools.partial(peer.ask.pull, within=URGENT_DEADLINE))
        peer.hurry = None

    async def _ask(self, peer: _Peer, thread: ThreadPoolExecutor, call: Callable[[], Report]) -> None:
        try:
            report = await asyncio.get_running_loop().run_in_executor(thread, call)
        except PeerError as error:
            self._fail(peer, str(error))
        else:
            self._accept(peer, report)

    def _fail(self, peer: _Peer, sentence: str) -> None:
        if peer.error != sentence:
            peer.error = sentence
            self._wake()

    def _accept(self, peer: _Peer, report: Report) -> None:
        if report.node != peer.name:
            self._fail(peer, f"the daemon at its address says that it is {report.node}")
            return
        known = peer.report
        peer.answered = time.monotonic()
        recovered = bool(peer.error)
        peer.error = ""
        if known is not None and known.instance == report.instance and known.sequence >= report.sequence:
            if recovered:
                self._wake()
            return
        peer.report = report
        if recovered or known is None or known.instance != report.instance or news.of(known) != news.of(report):
            self._wake()

    def _wake(self) -> None:
        for wake in self._wakes:
            wake("peers")
