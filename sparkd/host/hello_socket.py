"""The socket that hellos go through, and what the kernel says about the ports it could use."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkd.host.hello_message import MAX_BYTES

GROUP = "ff02::5eed"
"""Link-local scope, no group that IANA has given away."""
PORT = 7476
_GROUP = socket.inet_pton(socket.AF_INET6, GROUP)
_LINK_LOCAL = ("fe8", "fe9", "fea", "feb")  # fe80::/10 as the kernel's text begins
_PACKET_INFO = struct.Struct("=16sI")  # in6_pktinfo: destination, interface index
_INTERFACE_REQUEST = struct.Struct("=16sH22x")  # ifreq with ifr_flags
_SIOCGIFFLAGS, _SIOCGIFHWADDR = 0x8913, 0x8927
_IFF_RUNNING = 0x40
_BATCH = 64  # datagrams read before the loop gets its turn


@dataclass(frozen=True)
class View:
    """`hearing`: interface index by device that has IPv6. `deaf`: the same of devices without. `members`: indices of
    all devices of the host that are in the group. `ipv6`: the kernel has it at all."""

    hearing: dict[str, int]
    deaf: dict[str, int]
    members: frozenset[int]
    ipv6: bool

    @property
    def wanted(self) -> frozenset[int]:
        return frozenset(self.hearing.values())


class FabricSocket:
    """`look`, `send` and `receive` never block: what they ask takes no lock that is held while a driver works. They
    ask for devices by index or from lists, never by a name that may not exist: for such a name the kernel runs
    modprobe first. Only `prepare` can block.
    """

    def __init__(self, devices: Sequence[str], proc: Path) -> None:
        self._devices = tuple(devices)
        self._proc = str(proc)
        self._joined: frozenset[int] = frozenset()
        self.socket: socket.socket | None = None

    def look(self) -> View:
        """Raises OSError."""
        indices, members = self._groups()
        missing = [device for device in self._devices if device not in indices]
        # A device that cannot have IPv6, such as one with an MTU below 1280, has no groups but is there.
        deaf = {device for device in self._present() if device in missing} if missing else set()
        deaf |= {device for device in self._devices if device in indices and not self._is_on(device)}
        return View(
            {device: indices[device] for device in self._devices if device in indices and device not in deaf},
            {device: _index(device) for device in self._devices if device in deaf},
            frozenset(members),
            os.path.exists(f"{self._proc}/sys/net/ipv6"),
        )

    def prepared(self, view: View) -> bool:
        if self.socket is None:
            return not view.ipv6
        return self._joined == view.wanted and view.wanted <= view.members

    def prepare(self, view: View) -> None:
        """Open the socket and join the group on the ports. Takes the kernel's rtnl lock, which a driver in trouble may
        hold for ever. Raises OSError.

        A device that loses IPv6 for a while loses its groups with it, but the socket still counts itself as a member
        and refuses to join again: only the device's own list is to be believed.
        """
        if self.socket is None:
            self.socket = _open()
        kept = self._joined & view.wanted & view.members
        for index in sorted(self._joined - kept):
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, _membership(index))
        joined = set(kept)
        for index in sorted(view.wanted - kept):
            with contextlib.suppress(OSError):  # gone since the look at it
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _membership(index))
                joined.add(index)
        self._joined = frozenset(joined)

    @staticmethod
    def talking(any_socket: socket.socket | None, devices: Mapping[str, int]) -> dict[str, int]:
        """Interface index by device that is up and has carrier. The socket is only there to ask with."""
        if any_socket is None:
            return {}
        return {device: index for device, index in devices.items() if index and _runs(any_socket, device)}

    @staticmethod
    def addresses(any_socket: socket.socket | None, devices: Iterable[str]) -> dict[str, str]:
        """MAC address by device."""
        if any_socket is None:
            return {}
        found = {device: _mac(any_socket, device) for device in devices}
        return {device: mac for device, mac in found.items() if mac}

    def send(self, data: bytes, index: int) -> int:
        """The errno, or 0. Nothing that keeps a datagram from leaving is worth more than a later try."""
        if self.socket is None:
            return errno.ENOTCONN
        try:
            self.socket.sendto(data, (GROUP, PORT, 0, index))
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def receive(self) -> list[tuple[int, bytes]]:
        """Some datagrams that have come from a link-local address to the group, with the index of their device. It
        need not be a port of ours: the kernel hands a member what comes for the group on any device."""
        received: list[tuple[int, bytes]] = []
        if self.socket is None:
            return received
        for _ in range(_BATCH):
            try:
                data, ancillary, flags, sender = self.socket.recvmsg(MAX_BYTES, socket.CMSG_SPACE(_PACKET_INFO.size))
            except OSError:
                break  # nothing left, or an error that the kernel has now told
            index = _arrival(ancillary)
            if index and not flags & socket.MSG_TRUNC and sender[0].startswith(_LINK_LOCAL):
                received.append((index, data))
        return received

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()

    def _groups(self) -> tuple[dict[str, int], set[int]]:
        """Every device that can have IPv6 is in some group, if only in that of all nodes."""
        indices = {}
        members = set()
        for line in _text(f"{self._proc}/thread-self/net/igmp6").splitlines():
            index, device, group, *_ = line.split()
            indices[device] = int(index)
            if group == _GROUP.hex():
                members.add(int(index))
        return indices, members

    def _present(self) -> set[str]:
        lines = _text(f"{self._proc}/thread-self/net/dev").splitlines()
        return {line.partition(":")[0].strip() for line in lines if ":" in line}

    def _is_on(self, device: str) -> bool:
        return _text(f"{self._proc}/sys/net/ipv6/conf/{device}/disable_ipv6").strip() == "0"


def _text(path: str) -> str:
    """Empty if there is no such file. Without the layers of `open`, which cost more than the kernel's answer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("ascii", "replace")


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
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


def _runs(any_socket: socket.socket, device: str) -> bool:
    try:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _INTERFACE_REQUEST.pack(device.encode(), 0))
    except OSError:
        return False
    return bool(_INTERFACE_REQUEST.unpack(answer)[1] & _IFF_RUNNING)


def _index(device: str) -> int:
    """0 for one that has just gone."""
    try:
        return socket.if_nametoindex(device)
    except OSError:
        return 0


def _mac(any_socket: socket.socket, device: str) -> str:
    try:
        answer = fcntl.ioctl(any_socket, _SIOCGIFHWADDR, _INTERFACE_REQUEST.pack(device.encode(), 0))
    except OSError:
        return ""
    return answer[18:24].hex(":")  # ifreq: name, family, address


def _arrival(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Index of the device on which it came in; 0 if it was not sent to the group."""
    for level, kind, info in ancillary:
        if (level, kind, len(info)) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, _PACKET_INFO.size):
            destination, index = _PACKET_INFO.unpack(info)
            return int(index) if destination == _GROUP else 0
    return 0


def _membership(index: int) -> bytes:
    return struct.pack("=16sI", _GROUP, index)
