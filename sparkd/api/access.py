"""Who may do what on a listener of operators, and a line in the journal for each change and each refusal."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparkd.api.callers import PROCESS, WHO, Caller, Process, local
from sparkd.api.guard import header
from sparkd.api.limits import Attempts, Changes
from sparkd.api.problems import STATUS, problem
from sparkd.ports import DoorError, Grant, Tokens

_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_CLOSED = frozenset({"/v1/logs"})
"""Looking that shows what the engine's users have written: for those alone who may change the ring."""
_EVIDENCE = "/v1/incidents/"
"""Everybody may look, but the files in it are like logs: who shows a token is asked for a good one."""
_ALWAYS = "/v1/ring/stop"
"""However often it is asked for: nobody who has to stop a ring is told to wait."""
_TOKEN = re.compile(r"sparkd_[A-Za-z0-9_-]+|(?<=token=)[^&]+", re.IGNORECASE)
"""In an address, where it does not belong and does not count; the journal has more readers than the token has."""
_audit = logging.getLogger("sparkd.audit")


@dataclass(frozen=True)
class Refused:
    """`why`: for the journal alone."""

    code: str
    sentence: str
    why: str = ""


Identify = Callable[[Scope, bool], Caller | Refused]
"""Who asks, given the scope and whether that has to be known. The caller of a refusal is its address."""


class Access:
    """Lets through who may. One for each listener; what they count is shared."""

    def __init__(self, app: ASGIApp, identify: Identify, attempts: Attempts, changes: Changes) -> None:
        self._app = app
        self._identify = identify
        self._attempts = attempts
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        change = scope["method"] not in _LOOKING
        closed = scope["path"] in _CLOSED
        shown = scope["path"].startswith(_EVIDENCE) and bool(header(scope, b"authorization"))
        found = self._identify(scope, change or closed or shown)
        if isinstance(found, Refused):
            await self._refuse(found, _address(scope), _address(scope), scope, receive, send)
        elif change and found.role != "operate":
            sentence = f"{found.name} may look at the ring, but not change it"
            await self._refuse(Refused("read-only", sentence), found.key, _by(found), scope, receive, send)
        elif closed and found.role != "operate":
            sentence = f"{found.name} may look at the ring, but not read its logs"
            await self._refuse(Refused("read-only", sentence), found.key, _by(found), scope, receive, send)
        elif change:
            await self._change(found, scope, receive, send)
        else:
            await self._app({**scope, WHO: found}, receive, send)

    async def _change(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        late = self._changes.wait(caller.key)
        if late and scope["path"] != _ALWAYS:
            sentence = f"{caller.name} changes too much: the next change can be made in {late:.1f} s"
            self._attempts.tell(caller.key, f"{_what(scope)} by {_by(caller)}: refused, too-many-changes")
            await problem("too-many-changes", sentence, retry_after=late)(scope, receive, send)
            return
        result = Result(send)
        try:
            await self._app({**scope, WHO: caller}, receive, result.send)
        finally:
            line = f"{_what(scope)} by {_by(caller)}: {result}"
            if result.status < 400 or result.status in (409, 503, 507):
                _audit.info("%s", line)
            else:
                self._attempts.tell(caller.key, line)

    async def _refuse(
        self, refused: Refused, source: str, who: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._attempts.tell(
            source, f"{_what(scope)} by {who}: refused, {refused.code}: {_safe(refused.why or refused.sentence)}"
        )
        if STATUS[refused.code] == 401 and header(scope, b"authorization") and not await self._attempts.slow(source):
            sentence = "too many tokens that do not count have come from there"
            await problem("too-many-failures", sentence, retry_after=4)(scope, receive, send)
            return
        await problem(refused.code, refused.sentence)(scope, receive, send)


class Result:
    """Passes an answer on, and remembers what it was."""

    def __init__(self, send: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self.status = 500
        self._where = ""
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._where = next((v.decode("latin-1") for k, v in message.get("headers", []) if k == b"location"), "")
        elif self.status >= 400 and len(self._body) < 65536:
            self._body += message.get("body", b"")
        await self._send(message)

    def __str__(self) -> str:
        if self.status < 400:
            return f"accepted, {self._where}" if self._where else "accepted"
        try:
            told = json.loads(self._body)
            return _safe(f"refused, {told['code']}: {told['detail']}")
        except (ValueError, KeyError, TypeError):
            return f"refused, {self.status}"


def over_the_socket(group: int) -> Identify:
    """Of a Unix socket: by the process at its other end. `group`: whose members operate."""

    def identify(scope: Scope, change: bool) -> Caller | Refused:
        process: Process | None = scope.get(PROCESS)
        if process is None:
            return Refused("read-only", "the kernel does not tell who is at the other end")
        return local(process, group, named=change)

    return identify


@dataclass(frozen=True)
class Site:
    """What a TCP listener is called. `names`: without port, in lower case."""

    names: frozenset[str]
    scheme: str = "http"

    def refusal(self, scope: Scope) -> Refused | None:
        """Of a page that another site has brought: its name is not ours, or it says whose it is.

        A browser carries out what any page tells it, with the rights of whoever sits before it, and a name of a
        stranger's can be made to lead to 127.0.0.1. The port does not count: it is another one behind a tunnel.
        """
        host = header(scope, b"host").decode("latin-1").lower()
        if host and _name(host) not in self.names:
            return Refused("host-not-allowed", f"this listener is not called {_name(host)[:100]!r}")
        origin = header(scope, b"origin").decode("latin-1").lower()
        if origin and origin != f"{self.scheme}://{host}":
            return Refused("origin-not-allowed", f"a page of {origin[:100]!r} asks for it")
        # What a page only loads, or sends and may not read the answer of, has no Origin: it would still take a place
        # among those who follow, and have every node asked. A link to here is another thing.
        between = header(scope, b"sec-fetch-site"), header(scope, b"sec-fetch-mode")
        if between[0] in (b"cross-site", b"same-site") and between[1] != b"navigate":
            return Refused("origin-not-allowed", "a page of another site asks for it")
        return None


def over_tcp(site: Site, tokens: Tokens, *, reading_open: bool, now: Callable[[], float] = time.time) -> Identify:
    """Of a TCP listener: by a token. `reading_open`: looking takes none.

    Nor do the page's own files, which have nothing of the ring in them, and ask for the token themselves.
    """

    def identify(scope: Scope, change: bool) -> Caller | Refused:
        refusal = site.refusal(scope)
        if refusal is not None:
            return refusal
        given = header(scope, b"authorization")
        if (reading_open or _is_page(scope["path"])) and not change:
            return Caller("anybody", _address(scope), "read", _address(scope))
        scheme, _, secret = given.partition(b" ")
        if scheme.lower() != b"bearer" or not secret.strip():
            what = "reading logs" if scope["path"] in _CLOSED else "a change" if change else "this listener"
            return Refused("token-missing", f"{what} needs a token")
        try:
            found = tokens.find(secret.strip().decode("ascii", "replace"))
        except DoorError as error:
            # Whoever asks may be anybody, and the fault is told by what is in the file.
            return Refused("tokens-unreadable", str(error).partition(": ")[0], str(error))
        return _bearer(found, scope, now())

    return identify


def _is_page(path: str) -> bool:
    return path == "/" or path.startswith("/page/")


def _bearer(found: Grant | None, scope: Scope, now: float) -> Caller | Refused:
    if found is None:
        return Refused("token-wrong", "the token is none of this machine's")
    if found.expires is not None and found.expires <= now:
        return Refused("token-expired", f"the token {found.name} has expired")
    return Caller(f"{found.name} (token)", _address(scope), found.role, f"token {found.name}")


def _name(host: str) -> str:
    """A Host header's without the port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _by(caller: Caller) -> str:
    return f"{caller.name} at {caller.where}"


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client and client[0] else "the Unix socket"


def _what(scope: Scope) -> str:
    # Quoted, or a line break in the path would begin a line of the caller's own in the journal.
    query = scope["query_string"].decode("latin-1")
    return f"{scope['method'][:20]} {_safe(scope['path'][:200] + ('?' + query if query else ''))[:400]!r}"


def _safe(text: str) -> str:
    return _TOKEN.sub("[secret]", text)


def by(scope: Mapping[str, object], node: str) -> str:
    """Who asks, as an intent names it on every node."""
    caller = scope[WHO]
    assert isinstance(caller, Caller)
    where = "" if caller.where == "the Unix socket" else f" at {caller.where}"
    return f"{caller.name}{where} on {node}"
