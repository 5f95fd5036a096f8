"""One HTTP request to the engine at a time, as a state machine for a poll loop.

http.client would bring OpenSSL and the e-mail parser into a process that has to stay small, and would block.
"""

import errno
import json
import os
import re
import select
import socket
from dataclasses import dataclass

from runtime.environment import Endpoint

ANSWER_MAX = 4 << 20


@dataclass(frozen=True)
class Answer:
    """``status`` 0: there was none, and ``error`` says why."""

    status: int
    body: bytes = b""
    error: str = ""

    def object(self) -> dict[str, object]:
        """The body as a JSON object; empty if it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def describe(self) -> str:
        """For an error text: the reason, or status and the beginning of the body."""
        if not self.status:
            return self.error
        text = " ".join(self.body[:160].decode("utf-8", "replace").split())
        return f"HTTP {self.status}{f' {text}' if text else ''}"


class Request:
    """Call :meth:`step` whenever the socket has an event of ``events``, or its time may be up."""

    def __init__(
        self, endpoint: Endpoint, path: str, deadline: float, body: object = None, bearer: str | None = None
    ) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
            f"Host: {endpoint}",
            "Connection: close",
            f"Content-Length: {len(content)}",
        ]
        if content:
            lines.append("Content-Type: application/json")
        if bearer is not None:
            lines.append(f"Authorization: Bearer {bearer}")
        self._out = "\r\n".join([*lines, "", ""]).encode() + content
        self._in = bytearray()
        self._deadline = deadline
        self._connected = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._failed = self._socket.connect_ex((endpoint.host, endpoint.port))

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        return select.POLLOUT if self._out else select.POLLIN

    def close(self) -> None:
        self._socket.close()

    def step(self, now: float) -> Answer | None:
        """Go on as far as possible; the answer once it is whole, or how it failed. The socket is closed with it."""
        try:
            answer = self._step()
        except OSError as error:
            answer = Answer(0, error=os.strerror(error.errno) if error.errno else str(error))
        if answer is None and now >= self._deadline:
            answer = Answer(0, error="no answer in time")
        if answer is not None:
            self.close()
        return answer

    def _step(self) -> Answer | None:
        if not self._connected:
            failed = self._failed
            if failed == errno.EINPROGRESS:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if not poll.poll(0):
                    return None
                failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, os.strerror(failed))
            self._connected = True
        try:
            while self._out:
                sent = self._socket.send(self._out)
                self._out = self._out[sent:]
            while data := self._socket.recv(65536):
                self._in += data
                if len(self._in) > ANSWER_MAX:
                    return Answer(0, error=f"an answer of more than {ANSWER_MAX} bytes")
                if (answer := parse(bytes(self._in), ended=False)) is not None:
                    return answer
        except BlockingIOError:
            return None
        return parse(bytes(self._in), ended=True) or Answer(0, error="the connection was closed before the answer")


def parse(data: bytes, ended: bool) -> Answer | None:
    """The answer in ``data`` if it is whole; ``ended``: nothing more comes."""
    head, blank, rest = data.partition(b"\r\n\r\n")
    match = re.match(rb"HTTP/1\.[01] (\d{3})", head)
    if not blank or match is None:
        return None
    fields = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    status = int(match[1])
    if fields.get(b"transfer-encoding") == b"chunked":
        body = _dechunk(rest)
        return None if body is None else Answer(status, body)
    length = fields.get(b"content-length", b"")
    if length.isdigit():
        return Answer(status, rest[: int(length)]) if len(rest) >= int(length) else None
    return Answer(status, rest) if ended else None


def _dechunk(data: bytes) -> bytes | None:
    body = bytearray()
    while True:
        line, found, data = data.partition(b"\r\n")
        if not found:
            return None
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            return None
        if size == 0:
            return bytes(body)
        if len(data) < size + 2:
            return None
        body += data[:size]
        data = data[size + 2 :]
