"""Who gets through a listener's door: few at a time, few of one caller, and none that comes in and says nothing.

uvicorn counts requests, and only once they are there. A crowd of connections that send nothing, or do not finish a TLS
handshake, would take every descriptor the daemon has; so the connections are counted as they are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import ssl
from collections import Counter
from collections.abc import Mapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 128
HANDSHAKE_SECONDS = 5.0
FIRST_REQUEST_SECONDS = 10.0
_OUT_OF_DESCRIPTORS_PAUSE = 1.0


NAMES = "sparkd.names"
"""Key of an ASGI scope: the names in the caller's certificate, whose signature has been checked."""


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The DNS names of a certificate as ssl tells it. Its common name is no longer looked at by anybody."""
    return frozenset(str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")


class Named:
    """The application, for a caller with these names."""

    def __init__(self, app: Any, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope | {NAMES: self._names}, receive, send)


class CountedProtocol(H11Protocol):
    """Tells the admission that let it in when it has ended."""

    admission: Admission | None = None
    caller = ""
    hurry: asyncio.TimerHandle | None = None
    app: Any

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.app = Named(self.app, names_in(certificate))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.hurry is not None:
            self.hurry.cancel()  # it would keep what is gone in memory
        if self.admission is not None:
            self.admission.left(self.caller)
            self.admission = None


class Admission:
    """Accepts on one socket for a uvicorn server. `per_caller`: connections of one address at a time."""

    def __init__(
        self, server: uvicorn.Server, sock: socket.socket, context: ssl.SSLContext | None, per_caller: int
    ) -> None:
        self._server = server
        self._sock = sock
        self._context = context
        self._per_caller = per_caller
        self._inside: Counter[str] = Counter()
        self._coming: set[asyncio.Task[None]] = set()
        self._more: dict[str, Any] = {}
        # Newer versions hand each protocol the state of the application's lifespan, which is off here.
        if "app_state" in inspect.signature(H11Protocol.__init__).parameters:
            self._more["app_state"] = {}

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
                caller = str(address[0]) if isinstance(address, tuple) else ""
                if self._inside.total() >= CONNECTIONS or self._inside[caller] >= self._per_caller:
                    connection.close()
                    continue
                self._inside[caller] += 1
                task = loop.create_task(self._welcome(connection, caller))
                self._coming.add(task)
                task.add_done_callback(self._coming.discard)
        finally:
            for task in self._coming:
                task.cancel()
            await asyncio.gather(*self._coming, return_exceptions=True)

    def left(self, caller: str) -> None:
        self._inside[caller] -= 1
        if not self._inside[caller]:
            del self._inside[caller]

    async def _welcome(self, connection: socket.socket, caller: str) -> None:
        loop = asyncio.get_running_loop()
        handshake = HANDSHAKE_SECONDS if self._context is not None else None
        try:
            transport, protocol = await loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=handshake
            )
        except (OSError, asyncio.CancelledError):  # of which ssl.SSLError and TimeoutError are some
            connection.close()
            self.left(caller)
            return
        if transport.is_closing() and protocol not in self._server.server_state.connections:
            self.left(caller)  # it was over before it could be counted
            return
        protocol.admission, protocol.caller = self, caller
        protocol.hurry = loop.call_later(FIRST_REQUEST_SECONDS, self._hurry, transport, protocol)

    def _protocol(self) -> CountedProtocol:
        return CountedProtocol(config=self._server.config, server_state=self._server.server_state, **self._more)

    @staticmethod
    def _hurry(transport: asyncio.Transport, protocol: CountedProtocol) -> None:
        if protocol.cycle is None and not transport.is_closing():
            with contextlib.suppress(OSError):
                transport.abort()
