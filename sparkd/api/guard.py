"""What stands before an application on a listener: a limit on bodies, and a token before anything that changes."""

from __future__ import annotations

import hmac
import logging
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from sparkd.api.problems import problem

BODY_LIMIT = 256 * 1024
MAY_OPERATE = "sparkd.may_operate"
"""Key of an ASGI scope: whether the caller over TCP has sent the token."""
_OPEN = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logging.getLogger("sparkd")


class BodyLimit:
    """Refuses a body above `BODY_LIMIT` bytes, whether it says its length or not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = _header(scope, b"content-length")
        if said.isdigit() and int(said) > BODY_LIMIT:
            await problem("body-too-large", f"a body has at most {BODY_LIMIT} bytes")(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the caller has gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > BODY_LIMIT:
                await problem("body-too-large", f"a body has at most {BODY_LIMIT} bytes")(scope, receive, send)
                return
        given = False

        async def whole() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, send)


class TokenGuard:
    """Lets GET pass and asks for `Authorization: Bearer TOKEN` otherwise. Without a token nothing else passes."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            code, sentence = self._refusal(_header(scope, b"authorization"))
            if code and scope["method"] not in _OPEN:
                client = scope.get("client") or ("?", 0)
                # Quoted, or a line break in the path would begin a line of the caller's own in the journal.
                _log.warning("%s %r from %s refused: %s", scope["method"], scope["path"], client[0], sentence)
                await problem(code, sentence)(scope, receive, send)
                return
            scope = {**scope, MAY_OPERATE: not code}
        await self._app(scope, receive, send)

    def _refusal(self, header: bytes) -> tuple[str, str]:
        if self._token is None:
            return "token-not-set", "no token is set on this machine, so TCP callers may only read"
        scheme, _, given = header.partition(b" ")
        if scheme.lower() != b"bearer" or not given.strip():
            return "token-missing", "a change needs a token"
        if not hmac.compare_digest(given.strip(), self._token.encode()):
            return "token-wrong", "the token is not the one of this machine"
        return "", ""


def _header(scope: Scope, name: bytes) -> bytes:
    values: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value for key, value in values if key == name), b"")
