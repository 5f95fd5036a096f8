"""A conversation with the kernel's rtnetlink, and the news it sends. What the messages say is not looked into here.

The socket is Python's own: pyroute2's became an asyncio program with version 0.9 and starts threads before it, while
its messages are the same in all versions.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port id: struct nlmsghdr
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NLM_F_REQUEST = 0x1
_NLM_F_ACK = 0x4
_NLM_F_DUMP_INTR = 0x10
_NLM_F_CAPPED = 0x100
_NLM_F_ACK_TLVS = 0x200
_NLM_F_DUMP = 0x300
_NLMSGERR_ATTR_MSG = 1
_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10  # no copy of the request in the answer
_NETLINK_EXT_ACK = 11  # the kernel's own sentence in it
_NETLINK_GET_STRICT_CHK = 12  # dumps heed what the request selects, such as a routing table; since Linux 4.20
_GROUPS = 0x1 | 0x10 | 0x40  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE
_BUFFER = 65536  # the kernel fills at most 32 KiB at a time
_DUMP_TRIES = 5


class Refused(OSError):
    """The kernel's answer to a request; `strerror` is its own sentence if it gave one."""


class Conversation:
    """Requests and answers on one socket, for one thread. `timeout` in seconds, for each answer."""

    def __init__(self, timeout: float) -> None:
        self._sequence = 0
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.settimeout(timeout)
        self._socket.bind((0, 0))
        for option in (_NETLINK_CAP_ACK, _NETLINK_EXT_ACK, _NETLINK_GET_STRICT_CHK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)

    def close(self) -> None:
        self._socket.close()

    def change(self, kind: int, flags: int, message: bytes) -> None:
        """Raises Refused with the errno that the kernel answered."""
        self._send(kind, flags | _NLM_F_ACK, message)
        for _ in self._answer():
            pass

    def get(self, kind: int, message: bytes) -> bytes:
        """The one object that is asked for, a whole message with its header; empty if there is none. Raises Refused."""
        self._send(kind, _NLM_F_ACK, message)
        return next(iter([item for _, item in self._answer() if item]), b"")

    def dump(self, kind: int, message: bytes) -> list[bytes]:
        """All objects of a kind, each a whole message with its header.

        A table that changes while it is being read makes a list with holes; the kernel says so and it is read again.
        """
        for _ in range(_DUMP_TRIES):
            self._send(kind, _NLM_F_DUMP, message)
            torn = False
            found = []
            for flags, item in self._answer():
                torn = torn or bool(flags & _NLM_F_DUMP_INTR)
                found.append(item)
            if not torn:
                return found
        raise Refused(errno.EAGAIN, f"the network changed {_DUMP_TRIES} times while it was being read")

    def _send(self, kind: int, flags: int, message: bytes) -> None:
        self._sequence += 1
        body = message[_HEADER.size :]
        header = _HEADER.pack(_HEADER.size + len(body), kind, flags | _NLM_F_REQUEST, self._sequence, 0)
        self._socket.send(header + body)

    def _answer(self) -> Iterator[tuple[int, bytes]]:
        while True:
            data = self._socket.recv(_BUFFER)
            for kind, flags, sequence, message in _messages(data):
                if sequence != self._sequence:
                    continue  # the end of an answer that nobody waited for
                if kind in {_NLMSG_ERROR, _NLMSG_DONE}:
                    _check(flags, message, capped=kind == _NLMSG_DONE)
                    if kind == _NLMSG_DONE:
                        yield flags & _NLM_F_DUMP_INTR, b""
                    return
                yield flags, message


def _messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset : offset + length]
        offset += max(_HEADER.size, (length + 3) & ~3)


def _check(flags: int, message: bytes, capped: bool) -> None:
    if len(message) < _HEADER.size + 4:
        return
    (negated,) = struct.unpack_from("=i", message, _HEADER.size)
    if negated == 0:
        return
    raise Refused(-negated, _sentence(flags, message, capped) or os.strerror(-negated))


def _sentence(flags: int, message: bytes, capped: bool) -> str:
    """The extended acknowledgement's text. Behind the error number stands the request's header, and the whole request
    unless it is capped; a dump's end has neither."""
    if not flags & _NLM_F_ACK_TLVS:
        return ""
    offset = _HEADER.size + 4
    if not capped:
        (length,) = struct.unpack_from("=I", message, offset)
        offset += _HEADER.size if flags & _NLM_F_CAPPED else (length + 3) & ~3
    while offset + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, offset)
        if kind & 0x3FFF == _NLMSGERR_ATTR_MSG:
            return message[offset + 4 : offset + length].rstrip(b"\0").decode("utf-8", "replace")
        offset += max(4, (length + 3) & ~3)
    return ""


class Monitor:
    """A thread that calls `wake` in the event loop when links, addresses or routes have changed.

    The first event wakes at once; those of the following `settle` seconds together cause one more wake. Pulling one
    cable makes dozens.
    """

    WRITES = frozenset({20, 21, 24, 25})  # RTM_NEWADDR, RTM_DELADDR, RTM_NEWROUTE, RTM_DELROUTE

    def __init__(self, wake: Callable[[], None], settle: float = 0.02) -> None:
        """Raises OSError. Must be called in the event loop."""
        self._wake = wake
        self._settle = settle
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, _GROUPS))
        self._socket.setblocking(False)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._writer: tuple[str, float] = ("", 0.0)
        self._thread = threading.Thread(target=self._run, name="netlink monitor", daemon=True)
        self._thread.start()

    def writer(self, seconds: float) -> str:
        """The other process that last changed an address or a route, if that was within so many seconds, else ""."""
        name, at = self._writer
        return name if name and time.monotonic() - at <= seconds else ""

    def close(self) -> None:
        if self._stop < 0:
            return
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        self._stop = -1
        self._socket.close()

    def _run(self) -> None:
        news = select.poll()
        news.register(self._socket, select.POLLIN)
        news.register(self._stop, select.POLLIN)
        pause = select.poll()
        pause.register(self._stop, select.POLLIN)
        while not any(descriptor == self._stop for descriptor, _ in news.poll()):
            self._drain()
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # the loop has been closed
            if pause.poll(self._settle * 1000):
                return

    def _drain(self) -> None:
        while True:
            try:
                self._look_for_writers(self._socket.recv(_BUFFER))
            except BlockingIOError:
                return
            except OSError as error:
                # Some news was lost because there was too much of it: reason enough to look.
                if error.errno != errno.ENOBUFS:
                    raise

    def _look_for_writers(self, data: bytes) -> None:
        """The kernel names the port id of the socket that asked for a change; a process's first has its pid."""
        for kind, _, _, message in _messages(data):
            *_, pid = _HEADER.unpack_from(message)
            if kind not in self.WRITES or pid in {0, os.getpid()}:
                continue
            try:
                name = (Path("/proc") / str(pid) / "comm").read_text("utf-8", "replace").strip()
            except OSError:
                continue  # gone by now, or not a first socket
            self._writer = f"{name} (pid {pid})", time.monotonic()
