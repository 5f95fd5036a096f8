"""The application for operators, served on the Unix socket and on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sparkd import __version__
from sparkd.api import host, logs, problems, ring
from sparkd.reconcile.loop import Loop, Refusal
from sparkd.reconcile.metrics import Metrics

PROBLEM_HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    Refusal: problems.on_refusal,
    HTTPException: problems.on_http,
    RequestValidationError: problems.on_invalid,
}


def operator_app(loop: Loop) -> FastAPI:
    app = FastAPI(
        title="sparkd",
        version=__version__,
        description="Status and control of a ring of DGX Sparks, answered by every node.",
        docs_url=None,  # both pages would be fetched from a content network; /openapi.json has it all
        redoc_url=None,
        exception_handlers=PROBLEM_HANDLERS.copy(),
    )
    app.include_router(ring.router(loop))
    app.include_router(logs.router(loop))
    app.include_router(host.router(loop, Metrics(loop)))
    return app
