"""/v1/host, /livez, /readyz, /metrics: this host and this daemon."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from sparkd import wire
from sparkd.api.answer import json
from sparkd.api.problems import MEDIA_TYPE, documented
from sparkd.api.ring import caller
from sparkd.core.progress import SILENT
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.metrics import Metrics

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_NOT_SERVING: dict[str, Any] = {
    "description": "The ring does not serve, or sparkd has only just started",
    "content": {"text/plain": {}, MEDIA_TYPE: {}},
}


_REFUSED = documented(401, 403, 409, 413, 503, 507)


def router(loop: Loop, metrics: Metrics) -> APIRouter:
    api = APIRouter()

    @api.get(
        "/v1/host",
        response_model=wire.HostStatus,
        responses=documented(503),
        summary="This host, as it sees itself",
    )
    async def get_host() -> Response:
        return json(loop.host())

    @api.post(
        "/v1/host/fabric/down",
        response_model=wire.FabricStatus,
        status_code=202,
        responses=documented(401, 403, 409, 503, 507),
    )
    async def fabric_down(request: Request) -> Response:
        """Take this host's fabric ports from sparkd and restore them. Refused while the ring is up."""
        await loop.release(True, caller(request))
        return json(loop.fabric(), 202)

    @api.post(
        "/v1/host/fabric/up",
        response_model=wire.FabricStatus,
        status_code=202,
        responses=documented(401, 403, 409, 503, 507),
    )
    async def fabric_up(request: Request) -> Response:
        """Give this host's fabric ports back to sparkd."""
        await loop.release(False, caller(request))
        return json(loop.fabric(), 202)

    @api.post(
        "/v1/host/fabric/measure",
        response_model=wire.FabricStatus,
        status_code=202,
        responses=documented(401, 403, 409, 503, 507),
    )
    async def fabric_measure(request: Request) -> Response:
        """Forget how this host's rails were measured: the next start measures anew. Refused while a rank runs here."""
        await loop.remeasure(caller(request))
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
        return Response(metrics.text(), headers={"Content-Type": _EXPOSITION})

    return api
