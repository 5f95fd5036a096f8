"""Hellos in bare Ethernet frames, for ports on which IPv6 is off.

This needs CAP_NET_RAW, which sparkd.service does not have by itself: whoever has it can send and read any frame of the
host. Without it nothing is different, and such a port is told to be deaf.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct

from sparkd.host.hello_message import MAX_BYTES

ETHERTYPE = 0x88B6
"""The second of IEEE 802's local experimental EtherTypes; the first carries data of rings of four."""
GROUP = bytes.fromhex("333300005eed")
"""Where ff02::5eed goes on Ethernet (RFC 2464), which bridges and switches treat like any other group."""
_SOL_PACKET, _ADD_MEMBERSHIP = 263, 1
_MEMBERSHIP = struct.Struct("=iHH8s")  # packet_mreq; type 0 is PACKET_MR_MULTICAST
_MULTICAST = 2  # PACKET_MULTICAST: the frame came for a group
_BATCH = 64


class RawSocket:
    """`open` and `join` can block on the kernel's rtnl lock; `send` and `receive` never do."""

    def __init__(self, *, wanted: bool) -> None:
        self.socket: socket.socket | None = None
        self._tried = not wanted
        self._joined: frozenset[int] = frozenset()

    def prepared(self, indices: frozenset[int]) -> bool:
        return self._tried and (self.socket is None or self._joined == indices)

    def prepare(self, indices: frozenset[int]) -> None:
        """Open the socket, if this process may, and join the group on the devices with these indices. Raises OSError.

        A device that goes takes its membership along, and one that comes has an index of its own.
        """
        if not self._tried:
            self.socket = _open()
            self._tried = True
        if self.socket is None:
            return
        for index in sorted(indices - self._joined):
            with contextlib.suppress(OSError):  # gone since the look at it
                self.socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, _MEMBERSHIP.pack(index, 0, len(GROUP), GROUP))
        self._joined = indices

    def send(self, data: bytes, device: str) -> None:
        """Nothing that keeps a frame from leaving is worth more than a later try."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.sendto(data, (device, ETHERTYPE, 0, 0, GROUP))

    def receive(self) -> list[tuple[str, bytes]]:
        """Some messages that have come for the group, with the name of their device."""
        received: list[tuple[str, bytes]] = []
        if self.socket is None:
            return received
        for _ in range(_BATCH):
            try:
                data, (device, _, kind, *_) = self.socket.recvfrom(MAX_BYTES + 1)
            except OSError:
                break  # nothing left, or an error that the kernel has now told
            if kind == _MULTICAST and len(data) <= MAX_BYTES:
                received.append((str(device), data))
        return received

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


def _open() -> socket.socket | None:
    """None if this process may not. systemd's RestrictAddressFamilies= refuses with EAFNOSUPPORT."""
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    try:
        return socket.socket(socket.AF_PACKET, kind, socket.htons(ETHERTYPE))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT):
            return None
        raise
