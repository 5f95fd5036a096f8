"""The application for peers, served over mutual TLS on the management address and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sparkd import wire
from sparkd.api.answer import EPOCHS, json
from sparkd.api.callers import NAMES
from sparkd.api.problems import on_http, on_refusal, problem
from sparkd.core.intent import Request as Change
from sparkd.core.model import Report
from sparkd.reconcile.journals import from_query
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.refusal import Refusal

EXAMINE = "examine"
"""The request to look at the own host anew; answered with the report that follows."""
# The last two are for JSON that is nested too deeply, and for a number too large for a float.
_UNREADABLE = (wire.WireError, RecursionError, OverflowError)
Endpoint = Callable[[Request], Awaitable[Response]]


def peer_app(loop: Loop) -> ASGIApp:
    """Endpoints that only other daemons call. Each change on any host costs every host a few of these requests, while a
    ring starts or dies, so there is nothing between them and uvicorn.

    The caller's name is that in its certificate: no node speaks for another.
    """

    async def get_report(_: Request) -> Response:
        return json(loop.report())

    async def exchange(request: Request) -> Response:
        try:
            theirs = wire.loads(Report, await request.body())
        except _UNREADABLE as error:
            return problem("bad-request", str(error))
        if theirs.node not in _names(request):
            told = ", ".join(sorted(_names(request))) or "nobody"
            return problem("not-yours", f"a report of {theirs.node} with the certificate of {told}")
        return json(loop.receive(theirs))

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
        made = await loop.conduct(replace(asked, by=by))
        return json(made, 200 if asked.trial else 202)

    async def incidents(_: Request) -> Response:
        return json(await loop.own_incidents())

    async def incident(request: Request) -> Response:
        epoch = request.query_params.get("epoch", "")
        if not (epoch.isascii() and epoch.isdecimal() and len(epoch) < len(str(EPOCHS))):
            return problem("bad-request", f"query.epoch: {epoch!r} is no epoch")
        return json(await loop.own_incident(int(epoch)))

    async def smoke(_: Request) -> Response:
        return json(await loop.own_smokes())

    async def logs(request: Request) -> Response:
        try:
            asked = from_query(request.query_params)
        except ValueError as error:
            return problem("bad-request", str(error))
        return Response(await loop.own_logs(asked), media_type="application/json")

    return _Application(
        {
            "/peer/v1/report": {"GET": get_report, "POST": exchange},
            "/peer/v1/intent": {"POST": intent},
            "/peer/v1/incidents": {"GET": incidents},
            "/peer/v1/incident": {"GET": incident},
            "/peer/v1/smoke": {"GET": smoke},
            "/peer/v1/logs": {"GET": logs},
        }
    )


class _Application:
    def __init__(self, endpoints: dict[str, dict[str, Endpoint]]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        methods = self._endpoints.get(request.scope["path"])
        if methods is None:
            return await on_http(request, HTTPException(404))
        endpoint = methods.get(request.method)
        if endpoint is None:
            return await on_http(request, HTTPException(405, headers={"Allow": ", ".join(methods)}))
        try:
            return await endpoint(request)
        except Refusal as refusal:
            return await on_refusal(request, refusal)


def _names(request: Request) -> frozenset[str]:
    """Without a certificate: none."""
    names: frozenset[str] = request.scope.get(NAMES, frozenset())
    return names
