"""uvicorn on sockets that sparkd binds itself: several servers in one event loop, none of them handling signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from sparkd.api.admission import CONNECTIONS, Admission
from sparkd.api.protocol import LEAVING, With

# Above the peers' tick, so that their kept connections are not closed between two polls.
_KEEP_ALIVE = 75


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """The daemon has its own (called by uvicorn before 0.29)."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The daemon has its own (called by uvicorn from 0.29 on)."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # the admission accepts
        self.accepting = asyncio.get_running_loop().create_task(self.admission.run(), name="admission")
        self.bound.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.accepting
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        """Wait instead of waking ten times a second to look at the clock: an idle daemon must cost nothing."""
        await self.leave.wait()

    bound: asyncio.Event
    leave: asyncio.Event
    admission: Admission
    accepting: asyncio.Task[None]


class Listener:
    """One application on one bound socket. `context` makes it TLS; `per_caller`: connections of one address."""

    def __init__(
        self, app: ASGIApp, sock: socket.socket, context: ssl.SSLContext | None = None, per_caller: int = CONNECTIONS
    ) -> None:
        leave = asyncio.Event()
        config = uvicorn.Config(
            With(app, LEAVING, leave),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # nothing stands before sparkd that could be trusted to name a client
            http="h11",
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE,
        )
        # Without a level of its own uvicorn takes it for one to be traced, and describes every message to nobody.
        logging.getLogger("uvicorn.asgi").setLevel(logging.WARNING)
        config.load()
        self._server = _Server(config)
        self._server.leave = leave
        self._server.admission = Admission(self._server, sock, context, per_caller)
        self._server.bound = asyncio.Event()
        self._sock = sock

    async def serve(self) -> None:
        """Serves until `stop`."""
        await self._server.serve(sockets=[self._sock])

    async def bound(self) -> None:
        await self._server.bound.wait()

    def stop(self) -> None:
        # Kept connections of peers would otherwise be waited for until they time out. Not should_exit: a server that
        # finds it set before it serves leaves at once, with its socket open.
        self._server.force_exit = True
        self._server.leave.set()


def unix_socket(path: Path, mode: int) -> socket.socket:
    """A listening Unix socket with that mode; what an earlier daemon left at `path` is replaced. Raises OSError."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o777)  # nobody may connect between bind and chmod
    try:
        sock.bind(str(path))
        path.chmod(mode)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(previous)
    return sock


def tcp_socket(address: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises OSError.

    IP_FREEBIND lets the peers' listener exist before the network has given this host its management address.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_FREEBIND", 15), 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((address, port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock
