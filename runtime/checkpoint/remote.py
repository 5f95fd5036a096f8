"""One HTTP request to where a checkpoint comes from: a hub, or a peer's copy. Standard library only."""

from __future__ import annotations

import email.utils
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import IO, Any, Protocol, cast

from runtime.trouble import Trouble

TIMEOUT = 30.0
"""Seconds without a byte before a connection counts as dead."""
AGENT = "sparkd-engine"
JSON_LIMIT = 64 << 20
PAUSE_LIMIT = 300.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LOST = (OSError, http.client.HTTPException)
"""What a dying connection raises; urllib's URLError and ssl's errors are OSErrors."""


class Response(Protocol):
    """What of urllib's answer is used."""

    status: int
    headers: Message

    def readinto(self, buffer: memoryview, /) -> int: ...
    def read(self, size: int = -1, /) -> bytes: ...
    def close(self) -> None: ...


class Refused(Exception):
    """An answer that is none: its status, and for how many seconds the server wants to be left alone, if it said so."""

    def __init__(self, url: str, status: int, reason: str, pause: float | None, length: int | None = None) -> None:
        super().__init__(f"{plain(url)}: HTTP {status} {reason}")
        self.url, self.status, self.pause, self.length = url, status, pause, length

    @property
    def final(self) -> bool:
        """Whether the same request would end the same way."""
        return 400 <= self.status < 500 and self.status not in (408, 416, 425, 429)

    def trouble(self) -> Trouble:
        hints = {
            401: "the server wants a token: put it into a file and give --token-file",
            403: "the token does not admit this; has its owner accepted the model's terms?",
            404: "are repository, revision and address right?",
        }
        return Trouble(str(self), hints.get(self.status, ""))


@dataclass
class Remote:
    """Asks one server. `context` is for https; `token` goes to this server alone, and to none that it redirects to."""

    base: str
    token: str = ""
    context: ssl.SSLContext | None = None
    timeout: float = TIMEOUT
    _opener: urllib.request.OpenerDirector = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.base = self.base.rstrip("/")
        parts = urllib.parse.urlsplit(self.base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Trouble(f"{plain(self.base)}: expected an address as https://HOST or http://HOST:PORT")
        if self.token and parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise Trouble(f"{plain(self.base)}: a token would go over the network unencrypted", "use https")
        handlers: list[urllib.request.BaseHandler] = [_Redirects()]
        if self.context is not None:
            # A peer is next door: a proxy that is set for the rest of the world does not know the way.
            handlers += [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context)]
        self._opener = urllib.request.build_opener(*handlers)

    def open(self, path: str, headers: dict[str, str] | None = None) -> Response:
        """Ask for `path` below the base. Raises Refused, or one of LOST."""
        request = urllib.request.Request(self.base + path, headers={"User-Agent": AGENT, "Accept-Encoding": "identity"})
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        if self.token:
            # Unredirected: what this server redirects to gets none.
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        try:
            return cast(Response, self._opener.open(request, timeout=self.timeout))
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(
                    request.full_url, error.code, str(error.reason), pause_of(error.headers), total_of(error.headers)
                ) from None

    def json(self, path: str, attempts: int = 5) -> Any:
        """The JSON at `path`. Raises Trouble."""
        for attempt in range(1, attempts + 1):
            try:
                answer = self.open(path)
                try:
                    return json.loads(answer.read(JSON_LIMIT))
                finally:
                    answer.close()
            except ValueError as error:
                raise Trouble(f"{plain(self.base + path)}: the answer is not JSON: {error}") from error
            except Refused as refused:
                if refused.final or attempt == attempts:
                    raise refused.trouble() from refused
                time.sleep(min(refused.pause if refused.pause is not None else 2.0**attempt / 2, PAUSE_LIMIT))
            except LOST as error:
                if attempt == attempts:
                    raise Trouble(f"{plain(self.base + path)}: {said(error)}, {attempts} times") from error
                time.sleep(2.0**attempt / 10)
        raise AssertionError("not reached")


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.URLError(f"is redirected from https to {plain(newurl)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def peer_context(directory: Path, *, server: bool) -> ssl.SSLContext:
    """Mutual TLS with the certificates of the cluster, as in /etc/sparkd/tls: ca.crt, node.crt, node.key.

    A peer is asked at an address of the fabric, which its certificate does not name: what counts is that it is one of
    this cluster's CA. Raises Trouble.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(directory / "ca.crt")
        context.load_cert_chain(directory / "node.crt", directory / "node.key")
    except OSError as error:
        raise Trouble(
            f"{directory}: ca.crt, node.crt and node.key cannot be used: {error.strerror or error}",
            "`sparkctl cluster install` puts them there; --tls gives another directory",
        ) from error
    if not server:
        context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def said(error: BaseException) -> str:
    """An error of the network in a few words."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return said(error.reason)
    text = getattr(error, "strerror", None) or str(error)
    return f"{text}" if text else type(error).__name__


def plain(url: str) -> str:
    """A URL without what may be a secret: user, password, query."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def pause_of(headers: Message) -> float | None:
    """Retry-After, in seconds from now: a number, or a date."""
    text = headers.get("Retry-After", "").strip()
    if text.isdigit():
        return min(float(text), PAUSE_LIMIT)
    try:
        return min(max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0), PAUSE_LIMIT)
    except ValueError:
        return None


def total_of(headers: Message) -> int | None:
    """The whole length that a Content-Range tells: `bytes 0-9/100` or `bytes */100`."""
    total = headers.get("Content-Range", "").rpartition("/")[2].strip()
    return int(total) if total.isdigit() else None


def start_of(headers: Message) -> int | None:
    """The first byte that a Content-Range tells."""
    first = headers.get("Content-Range", "").strip().removeprefix("bytes ").partition("-")[0].strip()
    return int(first) if first.isdigit() else None
