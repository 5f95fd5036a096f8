"""Who gets through a listener's door: few at a time, few of one caller, and whoever asks goes before who only stands.

uvicorn counts requests, and only once they are there. A crowd of connections that send nothing, or do not finish a TLS
handshake, would take every descriptor the daemon has; so the connections are counted as they are accepted. When all
places are taken, a newcomer gets that of whoever has waited longest without a request that is being served, of the
caller with the most connections: a crowd turns out its own, and never somebody who is being answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparkd.api.callers import process_at
from sparkd.api.protocol import DeadlineProtocol

CONNECTIONS = 128
HANDSHAKE_SECONDS = 5.0
_OUT_OF_DESCRIPTORS_PAUSE = 1.0
_TLS_BUFFER = 32 * 1024
_ENDED = 100


class _Place:
    """A connection that has been let in. `task`: it is on its way to a protocol."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.task: asyncio.Task[None] | None = None
        self.protocol: DeadlineProtocol | None = None

    @property
    def serving(self) -> bool:
        return self.protocol is not None and self.protocol.serving

    def leave(self) -> None:
        """Only the end of the task or of the connection makes the place free."""
        if self.protocol is not None:
            self.protocol.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class Admission:
    """Accepts on one socket for a uvicorn server. `per_caller`: connections of one address or local user at a time."""

    def __init__(
        self, server: uvicorn.Server, sock: socket.socket, context: ssl.SSLContext | None, per_caller: int
    ) -> None:
        self._server = server
        self._sock = sock
        self._context = context
        self._per_caller = per_caller
        self._ended = 0
        self._places: dict[_Place, None] = {}  # the longest there first
        self._inside: Counter[str] = Counter()
        self._more: dict[str, Any] = {}
        # Newer versions hand each protocol the state of the application's lifespan, which is off here.
        if "app_state" in inspect.signature(H11Protocol.__init__).parameters:
            self._more["app_state"] = {}
        if context is not None:
            # asyncio gives each TLS connection a buffer of 256 KiB to read into, for transfers of files. glibc keeps
            # such buffers for the next one once a crowd has left: that was most of what a crowd cost for good.
            sslproto.SSLProtocol.max_size = _TLS_BUFFER

    async def run(self) -> None:
        """Accepts until cancelled."""
        loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._sock)
                except OSError:
                    await asyncio.sleep(_OUT_OF_DESCRIPTORS_PAUSE)
                    continue
                caller = self._caller(connection, address)
                if not self._room(caller):
                    connection.close()
                    continue
                self._inside[caller] += 1
                place = _Place(caller)
                self._places[place] = None
                place.task = loop.create_task(self._welcome(connection, place))
                place.task.add_done_callback(partial(self._came, connection, place))
        finally:
            coming = [place.task for place in self._places if place.task is not None]
            for task in coming:
                task.cancel()
            await asyncio.gather(*coming, return_exceptions=True)

    @staticmethod
    def _caller(connection: socket.socket, address: Any) -> str:
        if isinstance(address, tuple):
            return str(address[0])
        with contextlib.suppress(OSError):
            return f"uid {process_at(connection).uid}"
        return ""

    def _room(self, caller: str) -> bool:
        """Whether there is a place for one more of this caller, if need be that of another one who does not use it."""
        if self._inside[caller] >= self._per_caller:
            crowd = caller
        elif len(self._places) >= CONNECTIONS:
            crowd = self._inside.most_common(1)[0][0]
        else:
            return True
        idle = next((place for place in self._places if place.caller == crowd and not place.serving), None)
        if idle is None:
            return False
        self._left(idle)
        idle.leave()
        return True

    def _left(self, place: _Place) -> None:
        if place not in self._places:
            return
        del self._places[place]
        self._inside[place.caller] -= 1
        if not self._inside[place.caller]:
            del self._inside[place.caller]
        self._ended += 1
        if self._context is not None and self._ended % _ENDED == 0:
            # asyncio's TLS connections refer to themselves, so that each keeps its 60 to 100 kB until Python looks for
            # such circles. By itself it does so only after more than a thousand of them, which was 80 MB for good.
            gc.collect()

    async def _welcome(self, connection: socket.socket, place: _Place) -> None:
        loop = asyncio.get_running_loop()
        handshake = HANDSHAKE_SECONDS if self._context is not None else None
        with contextlib.suppress(OSError):  # of which ssl.SSLError and TimeoutError are some
            transport, protocol = await loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=handshake
            )
            place.task = None
            if transport.is_closing() and protocol not in self._server.server_state.connections:
                self._left(place)  # it was over before it could be counted
                return
            place.protocol = protocol
            protocol.on_end = lambda: self._left(place)

    def _came(self, connection: socket.socket, place: _Place, _: asyncio.Task[None]) -> None:
        """Also of a task that was cancelled before it began."""
        if place.task is not None:
            place.task = None
            connection.close()
            self._left(place)

    def _protocol(self) -> DeadlineProtocol:
        return DeadlineProtocol(config=self._server.config, server_state=self._server.server_state, **self._more)
