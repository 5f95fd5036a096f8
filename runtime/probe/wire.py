"""Framing on every connection of the probe: one byte of kind, four of length (network order), the payload.

A :class:`Channel` wraps a non-blocking TCP socket. Every operation has a deadline in seconds that counts from the
last byte that moved, so a slow peer is told from a silent one.
"""

import asyncio
import enum
import errno
import fcntl
import os
import socket
import struct
import termios

HEADER = struct.Struct("!BI")
PAYLOAD_MAX = 1 << 20


class Kind(enum.IntEnum):
    """What a frame carries; the first three are the handshake, the fourth is the control plane."""

    CHALLENGE = 1
    HELLO = 2
    ANSWER = 3
    MESSAGE = 4
    CHUNK = 16
    PING = 17
    PONG = 18
    BULK = 19
    BULK_END = 20
    RESULT = 21


class ChannelError(Exception):
    """The connection cannot be used any more; the message says why in a few words."""


class ChannelClosed(ChannelError):
    """The other side closed or reset the connection."""


class ChannelSilent(ChannelError):
    """Nothing moved for as long as was allowed."""


class ProtocolError(ChannelError):
    """The other side sent what does not belong here."""


class Channel:
    """One connection. Not shared: at most one task sends and one task receives at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Small frames in both directions: delayed acknowledgements against Nagle would cost 40 ms each.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._header = bytearray(HEADER.size)
        self._buffer = bytearray()

    async def send(self, kind: Kind, payload: bytes | bytearray | memoryview, patience: float) -> None:
        """Send one frame.

        :raises ChannelError: closed by the peer, or not one byte accepted for ``patience`` seconds.
        """
        header = HEADER.pack(kind, len(payload))
        if len(payload) <= 4096:
            await self._send_all(memoryview(header + payload), patience)
        else:
            await self._send_all(memoryview(header), patience)
            await self._send_all(memoryview(payload), patience)

    async def receive(self, patience: float, limit: int = PAYLOAD_MAX) -> tuple[Kind, memoryview]:
        """Receive one frame; the payload is valid until the next call.

        :raises ChannelError: closed, silent for ``patience`` seconds, an unknown kind or more than ``limit`` bytes.
        """
        await self._receive_all(memoryview(self._header), patience)
        number, length = HEADER.unpack(self._header)
        if number not in Kind.__members__.values() or length > limit:
            raise ProtocolError(f"sent a frame of kind {number} with {length} bytes")
        if length > len(self._buffer):
            self._buffer = bytearray(length)
        payload = memoryview(self._buffer)[:length]
        await self._receive_all(payload, patience)
        return Kind(number), payload

    async def expect(self, kind: Kind, patience: float, limit: int = PAYLOAD_MAX) -> memoryview:
        """Receive one frame of exactly this kind."""
        found, payload = await self.receive(patience, limit)
        if found is not kind:
            raise ProtocolError(f"sent {found.name} where {kind.name} belongs")
        return payload

    def finish(self) -> None:
        """Say that nothing more will be sent; the peer reads an end of file behind the last frame."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return

    async def drain(self) -> None:
        """Read until the peer closes. Closing with unread data resets the connection and can destroy our last frame."""
        loop = asyncio.get_running_loop()
        try:
            while await loop.sock_recv(self._sock, 65536):
                pass
        except OSError:
            return

    def option(self, level: int, name: int) -> int:
        """A socket option, as the kernel has it."""
        return self._sock.getsockopt(level, name)

    def outlast(self, seconds: float) -> None:
        """Let the kernel repeat what is not acknowledged for so long, however often, before it gives up.

        :raises OSError: the connection is closed on this side.
        """
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))

    def pending(self) -> int:
        """Bytes that were sent and that the other side's kernel has not acknowledged."""
        # tcp(7), SIOCOUTQ: the same number as the TIOCOUTQ of terminals, and the only name that Python has for it.
        answer = fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4))
        count: int = struct.unpack("i", answer)[0]
        return count

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._sock.close()

    async def _send_all(self, data: memoryview, patience: float) -> None:
        loop = asyncio.get_running_loop()
        sent = 0
        while sent < len(data):
            # One piece at a time, so that the deadline counts from the last piece and not from the first.
            piece = data[sent : sent + 262144]
            try:
                async with asyncio.timeout(patience):
                    await loop.sock_sendall(self._sock, piece)
            except TimeoutError as error:
                raise ChannelSilent(f"took no data for {patience:g} s") from error
            except OSError as error:
                raise _closed(error) from error
            sent += len(piece)

    async def _receive_all(self, data: memoryview, patience: float) -> None:
        loop = asyncio.get_running_loop()
        done = 0
        while done < len(data):
            try:
                async with asyncio.timeout(patience):
                    count = await loop.sock_recv_into(self._sock, data[done:])
            except TimeoutError as error:
                raise ChannelSilent(f"sent nothing for {patience:g} s") from error
            except OSError as error:
                raise _closed(error) from error
            if count == 0:
                raise ChannelClosed("closed the connection")
            done += count


def _closed(error: OSError) -> ChannelClosed:
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return ChannelClosed("reset the connection")
    return ChannelClosed(f"broke the connection ({reason(error)})")


def reason(error: OSError) -> str:
    """The system's words for ``error`` without its number."""
    return os.strerror(error.errno) if error.errno else str(error)
