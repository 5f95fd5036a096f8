"""The page at `/`, its files below `/page/`, and what its curves are drawn from, /v1/history."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sparkd.api.answer import EPOCHS, answers, json
from sparkd.api.problems import documented
from sparkd.reconcile import samples
from sparkd.reconcile.loop import Loop

_FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but this daemon's own files is run or asked, no text ever becomes HTML, and no other page shows this one.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A browser asks each time whether it is still so, since an upgrade changes it under the same name.
    "Cache-Control": "no-cache",
}


@cache
def _file(name: str) -> tuple[bytes, str, str] | None:
    """Content, type and tag of a file of the page."""
    path = _FOLDER / name
    if "/" in name or path.suffix not in _TYPES or not path.is_file():
        return None
    content = path.read_bytes()
    return content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:20]}"'


def _answer(name: str, request: Request) -> Response:
    found = _file(name) if name.isascii() and len(name) < 80 else None
    if found is None:
        raise HTTPException(404)
    content, kind, tag = found
    # As a header, since Starlette before 0.35 appends another charset to a media type that has one.
    headers = {**_HEADERS, "ETag": tag, "Content-Type": kind}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


def router(loop: Loop) -> APIRouter:
    api = APIRouter()

    @api.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return _answer("index.html", request)

    @api.get("/page/{name}", include_in_schema=False)
    async def part(request: Request, name: str) -> Response:
        return _answer(name, request)

    @api.get("/v1/history", responses=documented(422))
    @answers(samples.History)
    async def history(after: int = Query(0, ge=0, lt=EPOCHS)) -> Response:
        """The last hour as this node saw it, in samples above number `after`: memory, rails, tokens, phases."""
        return json(loop.history(after))

    return api
