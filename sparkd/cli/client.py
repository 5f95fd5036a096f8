"""Talking to sparkd on this machine, over its Unix socket or over loopback TCP."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkd.cli.failure import Exit, Failure, exit_of
from sparkd.config import DEFAULT_CONFIG

SOCKET = Path("/run/sparkd/api.sock")
_BODY_LIMIT = 16 * 1024 * 1024
_NOT_MODIFIED, _PROBLEMS = 304, 400
_EVENT_STREAM = "text/event-stream"
_NOT_CONFIGURED = (
    "make a configuration with `sparkctl cluster create` and put it here with `sparkctl cluster install`; "
    "see sparkctl(1)"
)
_NOT_RUNNING = "systemctl start sparkd; if it fails: sparkd --check-config; journalctl -u sparkd -n 20"
# What the API advises is for programs that talk to it themselves.
_HINTS = {
    "token-missing": "--token-file FILE, with a token of `sparkctl token create`; or leave --url out, "
    "and be root or in group sparkd"
}

Json = dict[str, Any]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True)
class Client:
    """Where sparkd listens. tcp: (host, port) in place of the Unix socket. config: its absence explains silence.

    timeout: seconds for one answer. patience: seconds to ask again while sparkd says that it is starting.
    """

    unix: Path = SOCKET
    tcp: tuple[str, int] | None = None
    token: str | None = field(default=None, repr=False)
    config: Path = DEFAULT_CONFIG
    timeout: float = 10.0
    patience: float = 10.0

    def get(self, path: str) -> Json:
        """The JSON object at the path. Raises Failure."""
        return self._ask("GET", path)

    def post(self, path: str) -> Json:
        """The JSON object that answers a change. Raises Failure, with findings if the ring refused it."""
        return self._ask("POST", path)

    def news(self, path: str, tag: str) -> tuple[Json | None, str]:
        """The JSON object at the path with its entity tag; None in its place if it is still the one with that tag.

        Raises Failure. A daemon without tags gives the object each time.
        """
        status, body, tag_now = self._exchange("GET", path, tag)
        if status == _NOT_MODIFIED:
            return None, tag
        return body if status < _PROBLEMS else self.get(path), tag_now

    @contextlib.contextmanager
    def stream(self, path: str) -> Iterator[http.client.HTTPResponse | None]:
        """The server-sent events at the path, to be read line by line; None if there are none. Raises Failure."""
        connection = self._connection()
        try:
            connection.request("GET", path, headers=self._headers("text/event-stream, application/json;q=0.5"))
            response = connection.getresponse()
            streams = response.status < _PROBLEMS and response.getheader("Content-Type", "").startswith(_EVENT_STREAM)
            yield response if streams else None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _ask(self, method: str, path: str) -> Json:
        end = time.monotonic() + self.patience
        while True:
            status, body, _ = self._exchange(method, path)
            if status < _PROBLEMS:
                return body
            if body.get("code") != "starting" or time.monotonic() > end:
                raise _refusal(status, body)
            time.sleep(0.2)

    def _connection(self) -> http.client.HTTPConnection:
        if self.tcp is None:
            return _UnixConnection(self.unix, self.timeout)
        return http.client.HTTPConnection(*self.tcp, timeout=self.timeout)

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Connection": "close", "Accept": accept}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def _exchange(self, method: str, path: str, tag: str = "") -> tuple[int, Json, str]:
        """Status, JSON object and entity tag, if it has one. tag: of the object that the caller has."""
        connection = self._connection()
        headers = self._headers("application/json")
        if tag:
            headers["If-None-Match"] = tag
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            body = response.read(_BODY_LIMIT)
            if response.length:  # with a limit given, a connection that ends early is no error to http.client
                raise http.client.IncompleteRead(body, response.length)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if response.status == _NOT_MODIFIED:
            return response.status, {}, tag
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = f"{self._where} gave an answer that is not sparkd's (status {response.status})"
            raise Failure(Exit.ERROR, text)
        return response.status, answer, response.getheader("ETag", "")

    @property
    def _where(self) -> str:
        return str(self.unix) if self.tcp is None else f"http://{self.tcp[0]}:{self.tcp[1]}"

    def _unreachable(self, error: Exception) -> Failure:
        if isinstance(error, TimeoutError):
            return Failure(
                Exit.UNREACHABLE, f"sparkd does not answer within {self.timeout:g} s", "look at `journalctl -u sparkd`"
            )
        if isinstance(error, PermissionError):
            hint = "run as root or join group sparkd: usermod --append --groups sparkd USER"
            return Failure(Exit.DENIED, f"no permission to use {self.unix}", hint)
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            if not self.config.exists():
                text = f"sparkd is not configured on this machine: there is no {self.config}"
                return Failure(Exit.CONFIG, text, _NOT_CONFIGURED)
            text = "sparkd is not running on this machine"
            if self.tcp is not None:
                text = f"nothing listens on {self._where}; is sparkd running on this machine?"
            return Failure(Exit.UNREACHABLE, text, _NOT_RUNNING)
        return Failure(Exit.UNREACHABLE, f"the connection to {self._where} broke: {str(error) or type(error).__name__}")


def parse_url(url: str) -> tuple[str, int]:
    """Host and port of http://HOST:PORT on loopback. Raises Failure for any other: the token travels in the clear."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        port = None
        parts = urllib.parse.SplitResult("", "", "", "", "")
    rest = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    host = parts.hostname or ""
    if parts.scheme != "http" or port is None or rest or not re.fullmatch(r"localhost|127(\.[0-9]{1,3}){3}", host):
        hint = "over the network, use `ssh HOST sparkctl ...`"
        raise Failure(Exit.USAGE, f"--url {url}: expected http://127.0.0.1:PORT", hint)
    return host, port


def read_token(file: Path | None) -> str | None:
    """The token in the file; None without one. Raises Failure."""
    if file is None:
        return None
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise Failure(Exit.CONFIG, f"cannot read the token in {file}: {reason}") from error
    if not token.isprintable() or " " in token or not token:
        raise Failure(Exit.CONFIG, f"{file} holds no token: expected one word")
    return token


def _refusal(status: int, body: Json) -> Failure:
    findings = body.get("findings")
    return Failure(
        exit_of(status),
        str(body.get("detail") or body.get("title") or f"status {status}"),
        _HINTS.get(str(body.get("code"))) or str(body.get("hint") or ""),
        findings if isinstance(findings, list) else (),
    )
