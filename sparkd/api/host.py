"""/v1/host, /livez, /readyz, /metrics: this host and this daemon."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from sparkd import wire
from sparkd.api.ring import PROBLEM, caller, json
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.metrics import Metrics


def router(loop: Loop, metrics: Metrics) -> APIRouter:
    api = APIRouter()

    @api.get("/v1/host", response_model=wire.HostStatus, summary="This host, as it sees itself")
    async def get_host() -> Response:
        return json(loop.host())

    @api.post("/v1/host/fabric/down", response_model=wire.FabricStatus, responses=PROBLEM)
    async def fabric_down(request: Request) -> Response:
        """Take this host's fabric ports from sparkd and restore them. Refused while the ring is up."""
        await loop.release(True, caller(request))
        return json(loop.fabric(), 202)

    @api.post("/v1/host/fabric/up", response_model=wire.FabricStatus, responses=PROBLEM)
    async def fabric_up(request: Request) -> Response:
        """Give this host's fabric ports back to sparkd."""
        await loop.release(False, caller(request))
        return json(loop.fabric(), 202)

    @api.get("/livez", response_class=PlainTextResponse, summary="200 while the daemon's cycle runs")
    async def livez() -> PlainTextResponse:
        loop.ring()
        return PlainTextResponse("ok\n")

    @api.get("/readyz", response_class=PlainTextResponse, responses={503: {"description": "The ring does not serve"}})
    async def readyz() -> PlainTextResponse:
        """200 while the ring serves, for a load balancer; the body is the ring's sentence either way."""
        ring = loop.ring()
        return PlainTextResponse(ring.summary + "\n", 200 if ring.phase in ("ready", "degraded") else 503)

    @api.get("/metrics", response_class=PlainTextResponse)
    async def get_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return api
