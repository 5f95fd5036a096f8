"""What stands before every application: limits on what comes in, and a problem for what nobody expected."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparkd.api.problems import problem

BODY_LIMIT = 256 * 1024
TARGET_LIMIT = 8 * 1024
HEADERS_LIMIT = 32 * 1024
HEADERS_NUMBER = 100
BODY_SECONDS = 10.0
HEAD = "sparkd.head"
"""Key of an ASGI scope: the request is a HEAD, told to the application as a GET."""
_log = logging.getLogger("sparkd")


class Limits:
    """Outermost: refuses what is too large, answers HEAD as GET without its body, and an exception with a problem."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal:
                await problem(*refusal)(scope, receive, noting)
            elif scope["method"] == "HEAD":
                # The server leaves the body out by the method of the scope that it has made itself.
                await self._app({**scope, "method": "GET", HEAD: True}, receive, noting)
            else:
                await self._app(scope, receive, noting)
        except Exception as error:  # noqa: BLE001 - whatever it is: the caller gets an answer, and the daemon goes on
            _log.error("fault at %s %r", scope["method"], scope["path"][:200], exc_info=error)
            if not begun:
                failed = problem("internal-error", f"sparkd failed at this: {type(error).__name__}")
                await failed(scope, receive, noting)

    @staticmethod
    def _refusal(scope: Scope) -> tuple[str, str] | None:
        # What comes in one piece can be larger than the parser would wait for.
        if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_LIMIT:
            return "target-too-long", f"path and query have at most {TARGET_LIMIT} bytes together"
        headers = scope["headers"]
        if len(headers) > HEADERS_NUMBER or sum(len(name) + len(value) for name, value in headers) > HEADERS_LIMIT:
            return (
                "headers-too-large",
                f"there are at most {HEADERS_NUMBER} headers, with {HEADERS_LIMIT} bytes together",
            )
        return None


class Body:
    """Reads the body before the application is asked: at most `limit` bytes, and within `BODY_SECONDS`.

    `wanted`: the application reads it. Otherwise one that is not empty is refused: whoever sends `{"force": true}`
    must not believe that it was heard.
    """

    def __init__(self, app: ASGIApp, *, wanted: bool, limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._wanted = wanted
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = header(scope, b"content-length")
        if said.isdigit() and int(said[:20]) > self._limit:
            await self._refuse("body-too-large", scope, receive, send)
            return
        message = await receive()
        body = message.get("body", b"")
        size = len(body)
        if message.get("more_body", False):
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    while message.get("more_body", False) and size <= self._limit:
                        message = await receive()
                        more = message.get("body", b"")
                        size += len(more)
                        if self._wanted:
                            body += more
            except TimeoutError:
                await self._refuse("too-slow", scope, receive, send)
                return
        if message["type"] != "http.request":
            return  # the caller has gone
        if size > self._limit:
            await self._refuse("body-too-large", scope, receive, send)
        elif size and not self._wanted:
            await problem("body-not-allowed", "a body is not read here")(scope, receive, send)
        else:
            await self._app(scope, _given(body, receive), send)

    async def _refuse(self, code: str, scope: Scope, receive: Receive, send: Send) -> None:
        sentences = {
            "body-too-large": f"a body has at most {self._limit} bytes",
            "too-slow": f"a body has to arrive within {BODY_SECONDS:g} s",
        }
        answer = problem(code, sentences[code])
        answer.headers["Connection"] = "close"  # what is still to come of it is not waited for
        await answer(scope, receive, send)


def _given(body: bytes, receive: Receive) -> Receive:
    given = False

    async def whole() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return whole


def header(scope: Scope, name: bytes) -> bytes:
    """The first of that name, in lower case; empty without one."""
    values: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value for key, value in values if key == name), b"")
