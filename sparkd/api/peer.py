"""The application for peers, served over mutual TLS on the management address and nowhere else."""

from __future__ import annotations

from typing import cast, get_args

from fastapi import FastAPI, Request
from starlette.responses import Response

from sparkd import wire
from sparkd.api.app import PROBLEM_HANDLERS
from sparkd.api.problems import problem
from sparkd.api.ring import json
from sparkd.core.intent import Request as Change
from sparkd.core.model import Report
from sparkd.reconcile.loop import Loop

# The last two are for JSON that is nested too deeply, and for a number too large for a float.
_UNREADABLE = (wire.WireError, RecursionError, OverflowError)


def peer_app(loop: Loop) -> FastAPI:
    app = FastAPI(
        title="sparkd peer",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        exception_handlers=PROBLEM_HANDLERS.copy(),
    )

    @app.get("/peer/v1/report")
    async def get_report() -> Response:
        return json(loop.report())

    @app.post("/peer/v1/report")
    async def exchange(request: Request) -> Response:
        try:
            theirs = wire.loads(Report, await request.body())
        except _UNREADABLE as error:
            return problem("bad-request", str(error))
        return json(loop.receive(theirs))

    @app.post("/peer/v1/intent")
    async def intent(request: Request) -> Response:
        try:
            asked = wire.loads(wire.PeerRequest, await request.body())
        except _UNREADABLE as error:
            return problem("bad-request", str(error))
        if asked.request not in get_args(Change):
            return problem("bad-request", f"request: {asked.request!r} is none of {', '.join(get_args(Change))}")
        return json(await loop.conduct(cast(Change, asked.request), asked.by), 202)

    @app.get("/peer/v1/incidents")
    async def incidents() -> Response:
        return json(await loop.own_incidents())

    @app.get("/peer/v1/incidents/{epoch}")
    async def incident(epoch: int) -> Response:
        return json(await loop.own_incident(epoch))

    return app
