"""A TCP port that peers can try, and tries of theirs: whether a firewall is between the management addresses.

The listener takes a connection and closes it at once, unread. It costs one descriptor at a time, whatever comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkd.core.reach import Answer, ReachFact
from sparkd.ports import Wake

_AT_ONCE = 16  # connections taken before everything else gets its turn
_REST = 0.1  # seconds until the next of a crowd are taken
_OUT_OF_DESCRIPTORS_REST = 1.0
# Closing with a reset leaves no TIME_WAIT behind, of which a crowd would leave one for each connection.
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class _Try:
    port: int
    answer: Answer
    why: str
    since: float


class Reach:
    """`sock`: bound to the management address and a port of the kernel's choice, listening; closed by `run`.

    `peers`: management address by name. `ports`: the port that each peer tells of, 0 for none. Every peer is tried
    every `period` seconds, every `again` seconds while one is blocked, and at once when one tells a new port or
    `poke` asks for it. `deadline`: seconds for one connection; a port that refuses is tried twice, because a daemon
    that has just restarted has another port than it told last.
    """

    def __init__(
        self,
        sock: socket.socket,
        peers: Mapping[str, str],
        ports: Callable[[], Mapping[str, int]],
        *,
        deadline: float = 3.0,
        period: float = 60.0,
        again: float = 5.0,
    ) -> None:
        self._sock = sock
        self._peers = dict(peers)
        self._ports = ports
        self._deadline, self._period, self._again = deadline, period, again
        self._tries: dict[str, _Try] = {}
        self._news = asyncio.Event()
        self._round = asyncio.Lock()
        self._wakes: list[Wake] = []
        self._rest: asyncio.TimerHandle | None = None
        self.port: int = sock.getsockname()[1]

    def facts(self) -> tuple[ReachFact, ...]:
        now = asyncio.get_running_loop().time()
        return tuple(ReachFact(peer, t.port, t.answer, t.why, now - t.since) for peer, t in self._tries.items())

    def subscribe(self, wake: Wake) -> None:
        """`wake("reach")` when a try has come to something else than the one before."""
        self._wakes.append(wake)

    def look(self) -> None:
        """A peer may have told another port."""
        told = {peer: port for peer, port in self._ports().items() if port}
        if any(peer not in self._tries or self._tries[peer].port != port for peer, port in told.items()):
            self.poke()

    def poke(self) -> None:
        self._news.set()

    async def afresh(self) -> None:
        """Try again what was not open; returns once that has been tried."""
        async with self._round:
            doubtful = {peer for peer, port in self._ports().items() if not self._is_open(peer, port)}
            await self._try_all(doubtful)

    async def run(self) -> None:
        """Listens and tries until cancelled."""
        self._sock.setblocking(False)
        self._listen()
        try:
            while True:
                self._news.clear()
                async with self._round:
                    await self._try_all(set(self._peers))
                blocked = any(fact.blocked for fact in self.facts())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._again if blocked else self._period):
                        await self._news.wait()
        finally:
            self.close()

    def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()

    def _listen(self) -> None:
        self._rest = None
        asyncio.get_running_loop().add_reader(self._sock, self._take)

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    continue  # it has gone before it was taken
                self._pause(loop, _OUT_OF_DESCRIPTORS_REST)
                return
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._pause(loop, _REST)

    def _pause(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        loop.remove_reader(self._sock)
        self._rest = loop.call_later(seconds, self._listen)

    def _is_open(self, peer: str, port: int) -> bool:
        known = self._tries.get(peer)
        return known is not None and (known.port, known.answer) == (port, "open")

    async def _try_all(self, peers: set[str]) -> None:
        ports = {peer: port for peer, port in self._ports().items() if port and peer in peers}
        await asyncio.gather(*(self._try(peer, port) for peer, port in ports.items()))

    async def _try(self, peer: str, port: int) -> None:
        answer, why = await self._connect(self._peers[peer], port)
        if answer in ("refused", "unreachable"):
            await asyncio.sleep(min(1.0, self._deadline))
            answer, why = await self._connect(self._peers[peer], port)
        known = self._tries.get(peer)
        if known is not None and (known.port, known.answer, known.why) == (port, answer, why):
            return
        self._tries[peer] = _Try(port, answer, why, asyncio.get_running_loop().time())
        for wake in self._wakes:
            wake("reach")

    async def _connect(self, address: str, port: int) -> tuple[Answer, str]:
        try:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            return "untried", error.strerror or str(error)
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            try:
                async with asyncio.timeout(self._deadline):
                    await asyncio.get_running_loop().sock_connect(sock, (address, port))
            except ConnectionResetError:
                return "open", ""  # it had been accepted, and closed since
            except TimeoutError:
                return "no answer", f"no answer within {self._deadline:g} s, as when a firewall drops it"
            except ConnectionRefusedError:
                return "refused", "the connection is refused, as when a firewall rejects it"
            except OSError as error:
                # EPERM: this host's own firewall does not let it out.
                if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM, errno.EACCES):
                    return "unreachable", (error.strerror or str(error)).lower()
                return "untried", error.strerror or str(error)
        return "open", ""
