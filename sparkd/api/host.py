"""/v1/host, /livez, /readyz, /metrics: this host and this daemon."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from sparkd import wire
from sparkd.api.access import by
from sparkd.api.answer import Encoded, answers, json, only_known
from sparkd.api.problems import MEDIA_TYPE, documented
from sparkd.core.progress import SILENT
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.metrics import Metrics

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_NOT_SERVING: dict[str, Any] = {
    "description": "The ring does not serve, or sparkd has only just started",
    "content": {"text/plain": {}, MEDIA_TYPE: {}},
}


_REFUSED = documented(409, 422, 503, 507)


def router(loop: Loop, metrics: Metrics) -> APIRouter:
    api = APIRouter()

    @api.get(
        "/v1/host",
        responses=documented(304, 503),
        summary="This host, as it sees itself",
    )
    @answers(wire.HostStatus)
    async def get_host(request: Request) -> Response:
        return Encoded(loop.host()).answer(request)

    @api.post(
        "/v1/host/fabric/down",
        status_code=202,
        responses=_REFUSED,
    )
    @answers(wire.FabricStatus)
    async def fabric_down(request: Request) -> Response:
        """Take this host's fabric ports from sparkd and restore them. Refused while the ring is up."""
        only_known(request)
        await loop.release(True, by(request.scope, loop.site.node))
        return json(loop.fabric(), 202)

    @api.post(
        "/v1/host/fabric/up",
        status_code=202,
        responses=_REFUSED,
    )
    @answers(wire.FabricStatus)
    async def fabric_up(request: Request) -> Response:
        """Give this host's fabric ports back to sparkd."""
        only_known(request)
        await loop.release(False, by(request.scope, loop.site.node))
        return json(loop.fabric(), 202)

    @api.post(
        "/v1/host/fabric/measure",
        status_code=202,
        responses=_REFUSED,
    )
    @answers(wire.FabricStatus)
    async def fabric_measure(request: Request) -> Response:
        """Forget how this host's rails were measured: the next start measures anew. Refused while a rank runs here."""
        only_known(request)
        await loop.remeasure(by(request.scope, loop.site.node))
        return json(loop.fabric(), 202)

    @api.get(
        "/livez",
        response_class=PlainTextResponse,
        responses=documented(503),
        summary="200 once the daemon has finished a cycle",
    )
    async def livez() -> PlainTextResponse:
        loop.ring()
        return PlainTextResponse("ok\n")

    @api.get("/readyz", response_class=PlainTextResponse, responses={503: _NOT_SERVING})
    async def readyz() -> PlainTextResponse:
        """200 while tokens flow, for a load balancer; the body says in a sentence what the ring does, either way."""
        ring = loop.ring()
        why = "" if ring.serving else "".join(f"; {r.node}: {r.text}" for r in ring.ranks if r.text.startswith(SILENT))
        return PlainTextResponse(f"{ring.summary}{why}\n", 200 if ring.serving else 503)

    @api.get("/metrics", response_class=PlainTextResponse, responses=documented(503))
    async def get_metrics() -> Response:
        # As a header, since Starlette before 0.35 appends another charset to a media type that has one.
        return Response(await metrics.text(), headers={"Content-Type": _EXPOSITION})

    return api
