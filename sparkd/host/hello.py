"""Who is at the other end of each fabric port, without addresses: hellos over IPv6 link-local multicast.

The kernel gives fe80:: to every port that is up, so a hello arrives before anything has been configured, and since
link-local traffic is never forwarded, who is heard on a port is at the end of its cable.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ring_mesh import PORTS
from sparkd.core.facts import HelloFacts, Neighbour
from sparkd.host.hello_message import MAX_BYTES, Hello, Seal
from sparkd.host.hello_table import Table
from sparkd.host.worker import Worker
from sparkd.ports import DoorError, Wake

GROUP = "ff02::5eed"
"""Link-local scope, no group that IANA has given away."""
PORT = 7476
PER_SECOND = 5
"""Hellos that a port sends at most, whatever happens."""
_DEVICES = tuple(port.device for port in PORTS)
_GROUP = socket.inet_pton(socket.AF_INET6, GROUP)
_LINK_LOCAL = ("fe8", "fe9", "fea", "feb")  # fe80::/10 as the kernel's text begins
_PACKET_INFO = struct.Struct("=16sI")  # in6_pktinfo: destination, interface index
_INTERFACE_REQUEST = struct.Struct("=16sH22x")  # ifreq with ifr_flags
_SIOCGIFFLAGS = 0x8913
_IFF_RUNNING = 0x40
_BATCH = 64  # datagrams read before the loop gets its turn
_BREATH = 0.1  # seconds between two looks at the ports, however often the door is poked
_TRIES = 4


@dataclass
class _Port:
    """`index` is 0 while the port cannot send: it is missing, has no carrier or no IPv6. `since`: when that changed."""

    device: str
    index: int = 0
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


@dataclass(frozen=True)
class _Survey:
    """Interface index by device that can talk, and the devices that cannot hear."""

    talking: dict[str, int]
    deaf: tuple[str, ...]


class MulticastHellos:
    """Sends a hello on each port every `period` seconds, and at once when somebody new is heard there or asks.

    A neighbour that falls silent is forgotten after three periods, or four at the latest; one whose port loses carrier
    at the next look, which `poke` brings forward. A neighbour with this host's own id but another boot id is a copy of
    this host's disk and no loop: its id is told with the boot id behind it.

    `proc` is where /proc is; `deadline` in seconds is for one look at the ports. No capability is needed.
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
    ) -> None:
        self._names = (cluster, node, node_id)
        self._seal = Seal(cluster_key)
        self._period = period
        self._proc = proc
        self._ports = {device: _Port(device) for device in devices}
        self._by_index: dict[int, _Port] = {}
        self._table = Table(period * 3.2)
        self._datagrams: dict[tuple[str, bool], bytes] = {}
        # Joining a group takes the kernel's rtnl lock, which a driver in trouble may hold for ever.
        self._worker = Worker("hello", deadline)
        self._socket: socket.socket | None = None
        self._joined: set[int] = set()
        self._boot_id = ""
        self._task: asyncio.Task[None] | None = None
        self._listening = False
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
        if self._listening and self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._listening = False
        self._worker.close(self._hang_up)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="hello")

    async def _run(self) -> None:
        breath = min(_BREATH, self._period / 2)
        try:
            while True:
                self._poked.clear()
                await self._look()
                for port in self._ports.values():
                    port.tries = 0
                    self._greet(port)
                self._drain()  # what has been waiting has been heard, even if this loop is late
                self._table.forget(self._now())
                self._tell()
                self._looked.set()
                await asyncio.sleep(breath)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._period - breath):
                        await self._poked.wait()
        finally:
            self._looked.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _look(self) -> None:
        try:
            survey = await self._worker.call(self._survey)
        except DoorError as failure:
            if str(failure) != self._failure and self._wake is not None:
                self._wake("hello")
            self._failure = str(failure)
            return
        if self._failure and self._wake is not None:
            self._wake("hello")
        self._failure = ""
        self._deaf = survey.deaf
        for port in self._ports.values():
            index = survey.talking.get(port.device, 0)
            if port.index != index:
                port.put_off()
                port.index = index
                port.since = self._now()
            if not index:
                self._table.lose(port.device)
        self._by_index = {port.index: port for port in self._ports.values() if port.index}
        if self._socket is not None and not self._listening:
            asyncio.get_running_loop().add_reader(self._socket, self._hear)
            self._listening = True

    # On the worker's thread.

    def _survey(self) -> _Survey:
        if not self._boot_id:
            self._boot_id = (self._proc / "sys/kernel/random/boot_id").read_text("ascii").strip()
        if self._socket is None:
            self._socket = _open()
        indices = {device: index for device in self._ports if (index := _index(device))}
        deaf = tuple(device for device in indices if self._socket is None or not self._has_ipv6(device))
        if self._socket is None:
            return _Survey({}, deaf)
        hearing = {device: index for device, index in indices.items() if device not in deaf}
        self._join(self._socket, set(hearing.values()))
        running = partial(_runs, self._socket)
        return _Survey({device: index for device, index in hearing.items() if running(device)}, deaf)

    def _has_ipv6(self, device: str) -> bool:
        """A device that cannot have IPv6 at all, such as one with an MTU below 1280, has no such directory."""
        try:
            text = (self._proc / f"sys/net/ipv6/conf/{device}/disable_ipv6").read_text("ascii")
        except FileNotFoundError:
            return False
        return text.strip() == "0"

    def _join(self, receiver: socket.socket, wanted: set[int]) -> None:
        """A device that loses IPv6 for a while loses its groups with it, but the socket still counts itself as a
        member and refuses to join again: only the device's own list is to be believed."""
        members = self._members()
        for index in sorted(self._joined - (wanted & members)):
            with contextlib.suppress(OSError):
                receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, _membership(index))
        self._joined &= wanted & members
        for index in sorted(wanted - self._joined):
            with contextlib.suppress(OSError):  # gone since the look at it
                receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _membership(index))
                self._joined.add(index)

    def _members(self) -> set[int]:
        """Indices of the devices that are in the group."""
        try:
            lines = (self._proc / "thread-self/net/igmp6").read_text("ascii").splitlines()
        except FileNotFoundError:
            return set()
        return {int(line.split()[0]) for line in lines if line.split()[2] == _GROUP.hex()}

    # In the loop.

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
        if not port.index or self._socket is None:
            return
        port.sent.append(self._now())
        try:
            self._socket.sendto(self._datagram(port.device), (GROUP, PORT, 0, port.index))
        except OSError as error:
            # The period is the remedy for whatever it is but this: the kernel tries out a new address for one or two
            # seconds before it may be used, and says nothing when it may.
            if error.errno == errno.EADDRNOTAVAIL and port.tries < _TRIES:
                port.tries += 1
                port.timer = asyncio.get_running_loop().call_later(min(1.0, self._period / 5), self._say, port)

    def _datagram(self, device: str) -> bytes:
        asks = not self._table.knows_ours(device)
        if (device, asks) not in self._datagrams:
            hello = Hello(*self._names, device, self._boot_id, asks)
            self._datagrams[device, asks] = self._seal.write(hello)
        return self._datagrams[device, asks]

    def _hear(self) -> None:
        self._drain()
        self._tell()

    def _drain(self) -> None:
        if self._socket is None:
            return
        for _ in range(_BATCH):
            try:
                data, ancillary, flags, sender = self._socket.recvmsg(MAX_BYTES, socket.CMSG_SPACE(_PACKET_INFO.size))
            except OSError:
                return  # nothing left, or an error that the kernel has now told
            port = self._arrival(ancillary)
            if port is not None and not flags & socket.MSG_TRUNC and sender[0].startswith(_LINK_LOCAL):
                self._take(port, data)

    def _arrival(self, ancillary: list[tuple[int, int, bytes]]) -> _Port | None:
        """The port on which it came in, if it was sent to the group."""
        for level, kind, info in ancillary:
            if (level, kind, len(info)) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, _PACKET_INFO.size):
                destination, index = _PACKET_INFO.unpack(info)
                return self._by_index.get(index) if destination == _GROUP else None
        return None

    def _take(self, port: _Port, data: bytes) -> None:
        read = self._seal.read(data)
        if read is None:
            return
        hello, ours = read
        copy = hello.node_id == self._names[2] and hello.boot_id != self._boot_id
        node_id = f"{hello.node_id}:{hello.boot_id}" if copy else hello.node_id
        neighbour = Neighbour(port.device, hello.node, node_id, hello.port, hello.cluster, ours)
        if self._table.hear(neighbour, self._now()) or (ours and hello.asks):
            self._greet(port)

    def _tell(self) -> None:
        # Whoever is at the other end says hello within a period, unless nobody is there.
        long_ago = self._now() - self._period
        settled = tuple(port.device for port in self._ports.values() if port.index and port.since <= long_ago)
        facts = HelloFacts(self._names[2], self._table.neighbours(), self._deaf, settled)
        if facts != self._told:
            self._told = facts
            if self._wake is not None:
                self._wake("hello")


def _open() -> socket.socket | None:
    """None where the kernel has no IPv6."""
    try:
        opened = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        for option, value in (
            (socket.IPV6_V6ONLY, 1),
            (socket.IPV6_MULTICAST_LOOP, 0),
            (socket.IPV6_MULTICAST_HOPS, 1),
            (socket.IPV6_RECVPKTINFO, 1),
        ):
            opened.setsockopt(socket.IPPROTO_IPV6, option, value)
        opened.bind(("::", PORT))
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"UDP port {PORT} cannot be used: {error.strerror}") from error
    return opened


def _index(device: str) -> int:
    """0 if there is no such device."""
    try:
        return socket.if_nametoindex(device)
    except OSError:
        return 0


def _runs(any_socket: socket.socket, device: str) -> bool:
    """Up and with carrier."""
    try:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE_REQUEST.pack(device.encode(), 0))
    except OSError:
        return False
    return bool(_INTERFACE_REQUEST.unpack(answer)[1] & _IFF_RUNNING)


def _membership(index: int) -> bytes:
    return struct.pack("=16sI", _GROUP, index)
