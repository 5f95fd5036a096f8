"""What the daemon listens on, and what stands between each listener and its application."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable

from starlette.types import ASGIApp

from sparkd.api.access import Access, Identify, Site, over_tcp, over_the_socket
from sparkd.api.guard import Body, Limits
from sparkd.api.later import Later
from sparkd.api.limits import Attempts, Changes
from sparkd.api.listener import Listener, tcp_socket, unix_socket
from sparkd.api.peer import peer_app
from sparkd.config import Settings
from sparkd.config.tokens import TokenFile
from sparkd.peers.tls import Credentials, certificate_names, operator_context, server_context
from sparkd.reconcile.loop import Loop

_SOCKET_MODE = 0o666
"""Everybody on this host may look; who may change something is found out from the process at the other end."""
_PER_PEER = 16  # connections; a peer keeps two
_PER_USER = 96  # so that one local user never takes all the places of the Unix socket
_LOCAL = ("localhost", "127.0.0.1")


@contextlib.asynccontextmanager
async def listening(settings: Settings, loop: Loop) -> AsyncIterator[list[Listener]]:
    """Bound, and not yet served. Raises OSError or ssl.SSLError, naming what cannot be listened on."""

    def operator_app() -> ASGIApp:
        return importlib.import_module("sparkd.api.app").operator_app(loop)  # type: ignore[no-any-return]

    application = Body(Later(operator_app), wanted=False)
    attempts, changes = Attempts(), Changes(time.monotonic)
    tokens = TokenFile(settings.paths.tokens)

    def operators(identify: Identify) -> ASGIApp:
        return Limits(Access(application, identify, attempts, changes))

    tls = Credentials.below(settings.paths.tls)
    mine = str(settings.cluster.node(settings.node).address)
    with contextlib.ExitStack() as stack:
        stack.callback(attempts.close)

        def bound(where: str, make: Callable[[], socket.socket]) -> socket.socket:
            try:
                return stack.enter_context(make())
            except OSError as error:
                raise OSError(f"cannot listen on {where}: {error.strerror or error}") from None

        def tcp(address: str, port: int) -> socket.socket:
            return bound(f"{address}:{port}", lambda: tcp_socket(address, port))

        local = bound("the API socket", lambda: unix_socket(settings.paths.run / "api.sock", _SOCKET_MODE))
        address, port = split(settings.listen.operator)
        here = over_tcp(Site(frozenset({address, *_LOCAL})), tokens, reading_open=True)
        made = [
            Listener(operators(over_the_socket(os.getegid())), local, per_caller=_PER_USER),
            Listener(operators(here), tcp(address, port)),
            Listener(
                Limits(Body(peer_app(loop), wanted=True)),
                tcp(mine, settings.listen.peer_port),
                server_context(tls),
                per_caller=_PER_PEER,
            ),
        ]
        if settings.api.listen:
            address, port = split(settings.api.listen)
            shown = tls if not settings.api.certificate else tls.showing(settings.api.certificate, settings.api.key)
            context = operator_context(shown)
            names = frozenset({address, settings.node.lower(), *certificate_names(shown)})
            there = over_tcp(Site(names, "https"), tokens, reading_open=False)
            made.append(Listener(operators(there), tcp(address, port), context, per_caller=_PER_USER))
        yield made


def split(where: str) -> tuple[str, int]:
    """ADDRESS:PORT"""
    address, _, port = where.rpartition(":")
    return address, int(port)
