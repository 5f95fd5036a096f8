"""The application for operators, served on the Unix socket, on 127.0.0.1 and where `[api] listen` says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparkd import __version__
from sparkd.api import dashboard, host, logs, problems, ring, stream
from sparkd.api.document import document
from sparkd.api.guard import header
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.metrics import Metrics
from sparkd.reconcile.refusal import Refusal

PROBLEM_HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    Refusal: problems.on_refusal,
    HTTPException: problems.on_http,
    RequestValidationError: problems.on_invalid,
    Exception: problems.on_fault,
}
_JSON = frozenset({"*/*", "application/*", "application/json", problems.MEDIA_TYPE})
_RESOURCES = "/v1/"


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = document(self)
        return self.openapi_schema


class _Resources:
    """Of everything below /v1: only to whom JSON is acceptable, and with how old the knowledge of each peer is."""

    def __init__(self, app: ASGIApp, loop: Loop) -> None:
        self._app = app
        self._loop = loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_RESOURCES):
            await self._app(scope, receive, send)
            return

        async def with_ages(message: Message) -> None:
            if message["type"] == "http.response.start":
                ages = (b"sparkd-peers", self._ages())
                message = {**message, "headers": [*message.get("headers", ()), ages]}
            await send(message)

        said = header(scope, b"accept").strip()
        accepted = _media(said)
        formats = _JSON | {stream.MEDIA_TYPE} if scope["path"] == "/v1/events" else _JSON
        if said and not accepted & formats:
            sentence = f"there is {' or '.join(sorted(formats - {'*/*', 'application/*', problems.MEDIA_TYPE}))} only"
            await problems.problem("not-acceptable", sentence)(scope, receive, with_ages)
            return
        await self._app(scope, receive, with_ages)

    def _ages(self) -> bytes:
        """A list of RFC 9651."""
        ages = self._loop.ages().items()
        return ", ".join(name if age is None else f"{name};age={age:.1f}" for name, age in ages).encode()


def _media(accept: bytes) -> frozenset[str]:
    """The media types that an Accept header allows, without those at q=0."""
    found = set()
    for part in accept.decode("latin-1").lower().split(","):
        name, _, parameters = part.partition(";")
        if (
            name.strip()
            and not parameters.replace(" ", "").startswith(("q=0;", "q=0,", "q=0.0"))
            and parameters != "q=0"
        ):
            found.add(name.strip())
    return frozenset(found)


def operator_app(loop: Loop) -> FastAPI:
    app = _Application(
        title="sparkd",
        version=__version__,
        docs_url=None,  # both pages would be fetched from a content network; /openapi.json has it all
        redoc_url=None,
        exception_handlers=PROBLEM_HANDLERS.copy(),
    )
    # An address with a slash too many is another one: a redirect would pass for a change that was made.
    app.router.redirect_slashes = False
    app.add_middleware(_Resources, loop=loop)
    app.include_router(ring.router(loop))
    app.include_router(logs.router(loop))
    app.include_router(dashboard.router(loop))
    app.include_router(host.router(loop, Metrics(loop)))
    return app
