"""The application for peers, served over mutual TLS on the management address and nowhere else."""

from __future__ import annotations

from typing import cast, get_args

from fastapi import FastAPI, Request
from starlette.responses import Response

from sparkd import wire
from sparkd.api.admission import NAMES
from sparkd.api.app import PROBLEM_HANDLERS
from sparkd.api.problems import problem
from sparkd.api.ring import json
from sparkd.core.intent import Request as Change
from sparkd.core.model import Report
from sparkd.reconcile.loop import Loop

EXAMINE = "examine"
"""The request to look at the own host anew; answered with the report that follows."""
# The last two are for JSON that is nested too deeply, and for a number too large for a float.
_UNREADABLE = (wire.WireError, RecursionError, OverflowError)


def peer_app(loop: Loop) -> FastAPI:
    """The caller's name is that in its certificate: no node speaks for another."""
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
        if theirs.node not in _names(request):
            told = ", ".join(sorted(_names(request))) or "nobody"
            return problem("not-yours", f"a report of {theirs.node} with the certificate of {told}")
        return json(loop.receive(theirs))

    @app.post("/peer/v1/intent")
    async def intent(request: Request) -> Response:
        try:
            asked = wire.loads(wire.PeerRequest, await request.body())
        except _UNREADABLE as error:
            return problem("bad-request", str(error))
        if asked.request == EXAMINE:
            return json(await loop.examine())
        if asked.request not in get_args(Change):
            return problem("bad-request", f"request: {asked.request!r} is none of {', '.join(get_args(Change))}")
        # An operator is named by the node that was asked; by whom it was handed over, the certificate says.
        way = "" if any(asked.by.endswith(f" on {name}") for name in _names(request)) else " by way of "
        by = asked.by + (way and way + (", ".join(sorted(_names(request))) or "nobody"))
        return json(await loop.conduct(cast(Change, asked.request), by), 202)

    return app


def _names(request: Request) -> frozenset[str]:
    """Without a certificate: none."""
    names: frozenset[str] = request.scope.get(NAMES, frozenset())
    return names
