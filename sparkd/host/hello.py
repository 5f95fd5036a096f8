"""Who is at the other end of each fabric port, without addresses: hellos over IPv6 link-local multicast.

The kernel gives fe80:: to every port that is up, so a hello arrives before anything has been configured, and since
link-local traffic is never forwarded, who is heard on a port is at the end of its cable.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import socket as Socket

from ring_mesh import PORTS
from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.host.hello_message import Hello, Seal
from sparkd.host.hello_proof import Challenge
from sparkd.host.hello_raw import RawSocket
from sparkd.host.hello_socket import FabricSocket, View
from sparkd.host.hello_table import Table
from sparkd.host.worker import Worker, describe
from sparkd.ports import DoorError, Wake

PER_SECOND = 5
"""Hellos that a port sends at most, whatever happens."""
_DEVICES = tuple(port.device for port in PORTS)
_BREATH = 0.1  # seconds between two looks at the ports, however often the door is poked
_TRIES = 4


@dataclass
class _Port:
    """`index` is 0 while the port cannot send: it is missing, has no carrier, or neither IPv6 nor a raw socket.
    `since`: when that changed. `raw_until`: until then it also says hello in bare frames, because it has heard one."""

    device: str
    challenge: Challenge
    mac: str = ""
    index: int = 0
    ipv6: bool = False
    raw_until: float = 0.0
    since: float = 0.0
    timer: asyncio.TimerHandle | None = None
    tries: int = 0
    sent: deque[float] = field(default_factory=lambda: deque(maxlen=PER_SECOND))

    def wait(self, now: float) -> float:
        """Seconds until it may send again."""
        return self.sent[0] + 1 - now if len(self.sent) == PER_SECOND else 0

    def put_off(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class MulticastHellos:
    """Sends a hello on each port every `period` seconds, and at once when somebody new is heard there or asks.

    A neighbour that falls silent is forgotten after three periods, or four at the latest; one whose port loses carrier
    at the next look, which `poke` brings forward. One that carries the cluster's key counts once it has repeated what
    this host has said to it (hello_proof), which takes a hello and its answer.

    `proc` is where /proc is; `deadline` in seconds is for what can block, the sockets and their groups. No capability
    is needed; with CAP_NET_RAW, unless `raw` is False, ports without IPv6 say hello in bare frames.
    """

    def __init__(
        self,
        cluster: str,
        node: str,
        node_id: str,
        cluster_key: bytes,
        *,
        period: float = 5.0,
        devices: Sequence[str] = _DEVICES,
        proc: Path = Path("/proc"),
        deadline: float = 2.0,
        raw: bool = True,
    ) -> None:
        self._names = (cluster, node, node_id)
        self._seal = Seal(cluster_key)
        self._period = period
        self._boot_id_file = proc / "sys/kernel/random/boot_id"
        self._boot_id = ""
        self._socket = FabricSocket(devices, proc)
        self._raw = RawSocket(wanted=raw)
        self._worker = Worker("hello", deadline)
        self._hold = period * 3.2
        self._ports = {device: _Port(device, Challenge(period, self._hold)) for device in devices}
        self._by_index: dict[int, _Port] = {}
        self._table = Table(self._hold)
        self._task: asyncio.Task[None] | None = None
        self._read: list[Socket] = []
        self._closed = False
        self._poked = asyncio.Event()
        self._looked = asyncio.Event()
        self._failure = ""
        self._deaf: tuple[str, ...] = ()
        self._told = HelloFacts(node_id)
        self._wake: Wake | None = None

    async def observe(self) -> HelloFacts:
        if not self._closed:
            self._start()
            await self._looked.wait()
        if self._closed:
            raise DoorError("hello is closed")
        if self._failure:
            raise DoorError(self._failure)
        return self._told

    def subscribe(self, wake: Wake) -> None:
        """`wake("hello")` when somebody new is heard, somebody is forgotten, or a port begins or ceases to hear."""
        self._wake = wake
        self._start()

    def poke(self) -> None:
        """Something has happened to the network: look at the ports, and send a hello on each."""
        self._poked.set()

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        for port in self._ports.values():
            port.index = 0
            port.put_off()
        for socket in self._read:
            asyncio.get_running_loop().remove_reader(socket)
        self._read.clear()
        self._worker.close(self._close_sockets)

    def _close_sockets(self) -> None:
        self._socket.close()
        self._raw.close()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="hello")

    async def _run(self) -> None:
        try:
            while True:
                self._poked.clear()
                await self._look()
                for port in self._ports.values():
                    port.tries = 0
                    self._greet(port)
                self._take_all()  # what has been waiting has been heard, even if this loop is late
                self._table.forget(self._now())
                self._tell()
                self._looked.set()
                await self._rest()
        finally:
            self._looked.set()

    async def _rest(self) -> None:
        began = self._now()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._period):
                await self._poked.wait()
        early = began + min(_BREATH, self._period / 2) - self._now()
        if early > 0:
            await asyncio.sleep(early)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _look(self) -> None:
        failure = ""
        try:
            await self._look_at_ports()
        except DoorError as error:
            failure = str(error)
        except OSError as error:
            failure = f"hello: {describe(error)}"
        if failure != self._failure:
            self._failure = failure
            if self._wake is not None:
                self._wake("hello")

    async def _look_at_ports(self) -> None:
        """Raises DoorError and OSError; what was known then still stands, but is not told."""
        if not self._boot_id:
            self._boot_id = self._boot_id_file.read_text("ascii").strip()
        view = self._socket.look()
        present = view.hearing | {device: index for device, index in view.deaf.items() if index}
        if not (self._socket.prepared(view) and self._raw.prepared(frozenset(present.values()))):
            await self._worker.call(partial(self._prepare, view, frozenset(present.values())))
        for socket in (self._socket.socket, self._raw.socket):
            if socket is not None and socket not in self._read:
                asyncio.get_running_loop().add_reader(socket, self._hear)
                self._read.append(socket)
        self._deaf = tuple(view.deaf) if self._raw.socket is None else ()
        asking = self._raw.socket or self._socket.socket
        talking = self._socket.talking(asking, view.hearing if self._raw.socket is None else present)
        macs = self._socket.addresses(asking, present)
        for port in self._ports.values():
            port.mac = macs.get(port.device, "")
            port.ipv6 = port.device in view.hearing and self._socket.socket is not None
            index = talking.get(port.device, 0)
            if port.index != index:
                port.put_off()
                port.index = index
                port.since = self._now()
            if not index:
                self._table.lose(port.device)
                port.challenge.forget()
        self._by_index = {port.index: port for port in self._ports.values() if port.index}

    def _prepare(self, view: View, present: frozenset[int]) -> None:
        self._raw.prepare(present)
        if not self._socket.prepared(view):
            self._socket.prepare(view)

    def _greet(self, port: _Port) -> None:
        """Send a hello, now or as soon as the port may."""
        if port.timer is not None or not port.index:
            return
        wait = port.wait(self._now())
        if wait > 0:
            port.timer = asyncio.get_running_loop().call_later(wait, self._say, port)
        else:
            self._say(port)

    def _say(self, port: _Port) -> None:
        port.timer = None
        port.sent.append(self._now())
        data = self._datagram(port)
        refusal = self._socket.send(data, port.index) if port.ipv6 else 0
        if not port.ipv6 or port.raw_until > self._now():
            self._raw.send(data, port.device)
        # The period is the remedy for whatever it is but this: the kernel tries out a new address for one or two
        # seconds before it may be used, and says nothing when it may.
        if refusal == errno.EADDRNOTAVAIL and port.tries < _TRIES:
            port.tries += 1
            port.timer = asyncio.get_running_loop().call_later(min(1.0, self._period / 5), self._say, port)

    def _datagram(self, port: _Port) -> bytes:
        asks = not self._table.knows_ours(port.device)
        nonce = port.challenge.nonce(self._now())
        proof = (port.mac, nonce, port.challenge.repeated())
        return self._seal.write(Hello(*self._names, port.device, self._boot_id, asks, *proof))

    def _hear(self) -> None:
        self._take_all()
        self._tell()

    def _take_all(self) -> None:
        for index, data in self._socket.receive():
            port = self._by_index.get(index)
            read = self._seal.read(data) if port is not None else None
            if port is not None and read is not None:
                self._take(port, *read)
        for device, data in self._raw.receive():
            port = self._ports.get(device)
            read = self._seal.read(data) if port is not None and port.index else None
            if port is not None and read is not None:
                port.raw_until = self._now() + self._hold if read[1] else port.raw_until
                self._take(port, *read)

    def _take(self, port: _Port, hello: Hello, ours: bool) -> None:
        if ours:
            news = port.challenge.heard(hello.nonce)
            if not port.challenge.proven(hello.repeated, self._now()):
                if news or hello.asks:
                    self._greet(port)
                return
        said = (hello.node, hello.node_id, hello.port, hello.cluster)
        neighbour = Neighbour(port.device, *said, ours, hello.boot_id, hello.mac)
        if self._table.hear(neighbour, self._now()) or (ours and hello.asks):
            self._greet(port)

    def _tell(self) -> None:
        # Whoever is at the other end says hello within a period, unless nobody is there.
        long_ago = self._now() - self._period
        settled = tuple(port.device for port in self._ports.values() if port.index and port.since <= long_ago)
        macs = tuple(port.mac for port in self._ports.values() if port.mac)
        neighbours = self._table.neighbours()
        facts = HelloFacts(self._names[2], neighbours, self._deaf, settled, self._boot_id, macs)
        known, self._told = self._told, facts
        told, now = ((f.neighbours, f.deaf, f.settled) for f in (known, facts))
        if now != told and self._wake is not None:
            self._wake("hello")
