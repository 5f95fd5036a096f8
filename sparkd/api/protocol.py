"""One connection: uvicorn's protocol with deadlines for whoever is slow, and refusals in the words of the API."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparkd.api.callers import NAMES, PROCESS, names_in, process_at
from sparkd.api.problems import problem

LEAVING = "sparkd.leaving"
"""Key of an ASGI scope: the asyncio.Event that is set when the listener is about to end."""
REQUEST_SECONDS = 10.0
"""For a request's line and headers, from the opening of the connection or from their first byte."""
TAKE_SECONDS = 20.0
"""For the other side to take what does not fit into the buffers any more."""


class With:
    """The application, with more in the scope of each request."""

    def __init__(self, app: Any, key: str, value: Any) -> None:
        self._app = app
        self._key = key
        self._value = value

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope | {self._key: self._value}, receive, send)


class DeadlineProtocol(H11Protocol):
    """`on_end` is called once when the connection has ended."""

    on_end: Callable[[], None] | None = None
    app: Any
    _hurry: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    @property
    def serving(self) -> bool:
        """Whether a whole request is here whose answer is not."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        sock = transport.get_extra_info("socket")
        if certificate:
            self.app = With(self.app, NAMES, names_in(certificate))
        elif sock is not None and sock.family == socket.AF_UNIX:
            with contextlib.suppress(OSError):  # then it has no right at all
                self.app = With(self.app, PROCESS, process_at(sock))
        self._hasten()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._relax()
        else:
            self._hasten()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._relax()
        self.resume_writing()
        if self.on_end is not None:
            self.on_end()
            self.on_end = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._taking is None:
            self._taking = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _hasten(self) -> None:
        if self._hurry is None and not self.transport.is_closing():
            self._hurry = self.loop.call_later(REQUEST_SECONDS, self._too_slow)

    def _relax(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()  # it would keep what is gone in memory
            self._hurry = None

    def _too_slow(self) -> None:
        self._hurry = None
        if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
            return
        if self._begun():
            self._refuse("too-slow", f"a request has to arrive within {REQUEST_SECONDS:g} s")
        elif self.cycle is None:
            self.transport.abort()

    def _begun(self) -> bytes:
        """What is here of a request that is not."""
        return bytes(self.conn.trailing_data[0])

    def send_400_response(self, msg: str) -> None:
        # Called by uvicorn while it handles what h11 has raised, which knows better what is wrong.
        error = sys.exc_info()[1]
        if not isinstance(error, h11.RemoteProtocolError):
            self._refuse("bad-http", "sparkd speaks HTTP/1.1 and no other protocol")
        elif error.error_status_hint == 431:
            line = b"\n" in self._begun()
            self._refuse(
                "headers-too-large" if line else "target-too-long",
                "the headers are too large" if line else "path and query are too long",
            )
        else:
            self._refuse("bad-http", f"this is no request of HTTP/1.1: {str(error)[:200]}")

    def _refuse(self, code: str, sentence: str) -> None:
        """Answer in place of the application, which may have been asked already, and close."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem(code, sentence)
            bare = self.conn.our_state is h11.SEND_RESPONSE and self.scope["method"] == "HEAD"
            headers = [*answer.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=answer.status_code, headers=headers),
                h11.Data(data=b"" if bare else bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
