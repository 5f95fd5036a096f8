"""One HTTP request with one deadline for the whole of it.

The time-out of a socket counts from the last byte, so a server that sends one now and then would keep its client for
ever. Here every read gets what is left until the deadline.
"""

from __future__ import annotations

import contextlib
import enum
import http.client
import io
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

ANSWER_MAX_BYTES = 64 << 20
LINE_MAX_BYTES = 4 << 20
Clock = Callable[[], float]


class Kind(enum.StrEnum):
    """How a request failed. After ``unreachable`` and ``silent`` there is no point in asking anything else."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    BROKEN = "broken"
    REFUSED = "refused"
    GARBLED = "garbled"


class RequestFailed(Exception):
    """A request has no answer that can be used; ``sentence`` names the request and what was seen."""

    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence

    @property
    def gone(self) -> bool:
        """Whether the server did not answer this request at all."""
        return self.kind in (Kind.UNREACHABLE, Kind.SILENT)


class Deadline:
    """``seconds`` from now, by ``clock``, for one request or several. ``answered``: how many that made tokens were."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self.seconds = seconds
        self.answered = 0
        self._clock = clock
        self._end = clock() + seconds

    def __str__(self) -> str:
        return f"within {self.seconds:g} s" + (f" (answered before: {self.answered})" if self.answered else "")

    def left(self) -> float:
        """How many seconds are left. Raises TimeoutError if none are."""
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError
        return left


@dataclass(frozen=True)
class Server:
    """Where the API is. ``prefix`` comes before ``/v1``; it is empty for an engine that is asked directly."""

    host: str
    port: int
    prefix: str = ""

    @classmethod
    def at(cls, url: str) -> Server:
        """``http://HOST:PORT``, with or without ``/v1`` behind it. Raises ValueError."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname or parts.query or parts.username is not None:
            raise ValueError(f"{url!r} is not the address of an engine, expected http://HOST:PORT")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, parts.port or 80, prefix)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Reply:
    """The answer to a request: its status, and its body as a whole or line by line as it comes."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.reason = response.reason
        self._response = response

    def body(self) -> bytes:
        return self._response.read()

    def lines(self) -> Iterator[bytes]:
        while line := self._response.readline(LINE_MAX_BYTES):
            yield line


@contextlib.contextmanager
def exchange(
    server: Server, method: str, path: str, deadline: Deadline, document: object = None, about: str = ""
) -> Iterator[Reply]:
    """Send a request and hand out the reply once its head is there; ``about`` tells it from others of its kind.

    :raises RequestFailed: unreachable, silent or broken; also while the reply is read.
    """
    what = f"{method} {path}" + (f" ({about})" if about else "")
    body = b"" if document is None else json.dumps(document).encode()
    head = (
        f"{method} {server.prefix}{path} HTTP/1.1\r\nHost: {server}\r\nAccept: */*\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        connection = socket.create_connection((server.host, server.port), timeout=deadline.left())
    except TimeoutError as error:
        raise RequestFailed(
            Kind.SILENT, f"{what}: {server} took no connection within {deadline.seconds:g} s"
        ) from error
    except OSError as error:
        raise RequestFailed(Kind.UNREACHABLE, f"{what}: cannot connect to {server}: {_reason(error)}") from error
    incoming = _Incoming(connection, deadline, what)
    with connection:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(deadline.left())
            connection.sendall(head.encode("latin-1") + body)
            with contextlib.closing(http.client.HTTPResponse(incoming.as_socket(), method=method)) as response:
                response.begin()
                yield Reply(response)
        except TimeoutError as error:
            came = f"only {incoming.received} bytes" if incoming.received else "not one byte"
            sentence = f"{what}: no whole answer {deadline}; {came} came"
            raise RequestFailed(Kind.SILENT, sentence) from error
        except (http.client.HTTPException, OSError) as error:
            sentence = f"{what}: the connection broke after {incoming.received} bytes of the answer: {_reason(error)}"
            raise RequestFailed(Kind.BROKEN, sentence) from error


class _Incoming(io.RawIOBase):
    """What comes in on ``connection``, each read bounded by what is left until ``deadline``."""

    def __init__(self, connection: socket.socket, deadline: Deadline, what: str) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        self._what = what
        self.received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._connection.settimeout(self._deadline.left())
        count = self._connection.recv_into(buffer)
        self.received += count
        if self.received > ANSWER_MAX_BYTES:
            raise RequestFailed(Kind.GARBLED, f"{self._what}: the answer has more than {ANSWER_MAX_BYTES} bytes")
        return count

    def as_socket(self) -> socket.socket:
        """For HTTPResponse, which asks a socket for nothing but a file to read from."""
        return cast("socket.socket", self)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "it ended in the middle"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
