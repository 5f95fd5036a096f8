"""/v1/ring, /v1/operations, /v1/plan, /v1/events: what the ring is and does, and changing it."""

from __future__ import annotations

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from sparkd import wire
from sparkd.api.answer import EPOCHS, json
from sparkd.api.problems import MEDIA_TYPE, documented
from sparkd.core.drain import LONGEST
from sparkd.core.intent import Request as Change
from sparkd.reconcile.loop import Forwarded, Loop, Refusal

_CHANGE_REFUSED = documented(401, 403, 409, 413, 422, 503, 507)


def caller(request: Request) -> str:
    """Who asks, for the journal: the Unix socket has no address of a client."""
    client = request.client
    return "operator over the Unix socket" if client is None or not client.host else f"operator at {client.host}"


def router(loop: Loop) -> APIRouter:
    api = APIRouter(prefix="/v1")

    async def change(
        request: Request, what: Change, reason: str = "", *, force: bool = False, drain: float = 0.0
    ) -> Response:
        by = f"{caller(request)} on {loop.site.node}"
        answer = await loop.request(what, by, reason, force=force, drain=drain)
        if isinstance(answer, Forwarded):
            media_type = "application/json" if answer.status < 400 else MEDIA_TYPE
            response: Response = JSONResponse(dict(answer.body), answer.status, media_type=media_type)
            where = answer.body.get("operation")
        else:
            response = json(answer, 202)
            where = answer.operation
        if where:
            response.headers["Location"] = str(where)
        return response

    @api.get(
        "/ring", response_model=wire.RingStatus, responses=documented(503), summary="The ring, as this node knows it"
    )
    async def get_ring() -> Response:
        return json(loop.ring())

    @api.post("/ring/start", status_code=202, response_model=wire.Operation, responses=_CHANGE_REFUSED)
    async def start(request: Request) -> Response:
        """Bring the ring up. Idempotent: a ring that is meant to be up already answers with its operation."""
        return await change(request, "start")

    @api.post("/ring/stop", status_code=202, response_model=wire.Operation, responses=_CHANGE_REFUSED)
    async def stop(request: Request, force: bool = False, drain: float = Query(0, ge=0, le=LONGEST)) -> Response:
        """Take the ring down; valid in every state but maintenance, which only `force` ends with it.

        With `drain`, the seconds that requests which run have to come to their end: no new ones are taken meanwhile,
        and the ring is stopped as soon as none runs. A stop without it ends this at once, a start takes it back.
        """
        return await change(request, "stop", force=force, drain=drain)

    @api.post("/ring/hold", status_code=202, response_model=wire.Operation, responses=_CHANGE_REFUSED)
    async def hold(request: Request, reason: str = Query("", max_length=200)) -> Response:
        """Maintenance: leave everything as it is. Nothing is started, stopped or repaired until resume."""
        return await change(request, "hold", reason)

    @api.post("/ring/resume", status_code=202, response_model=wire.Operation, responses=_CHANGE_REFUSED)
    async def resume(request: Request) -> Response:
        """End the maintenance: what is wanted is seen to again."""
        return await change(request, "resume")

    @api.post("/ring/clear", status_code=202, response_model=wire.Operation, responses=_CHANGE_REFUSED)
    async def clear(request: Request) -> Response:
        """Let a held ring start again. It stays down until it is started."""
        return await change(request, "clear")

    @api.get("/operations/{epoch}", response_model=wire.OperationStatus, responses=documented(404, 422, 503))
    async def operation(epoch: int) -> Response:
        found = loop.operation(epoch)
        if found is None:
            raise Refusal("no-such-operation", f"no operation has made epoch {epoch}")
        return json(found)

    @api.get("/doctor", response_model=wire.DoctorStatus, responses=documented(503))
    async def doctor() -> Response:
        """Every check of every node, from any node: what it looked at, its verdict, and how to put it right."""
        return json(loop.doctor())

    @api.get("/incidents", response_model=wire.Incidents)
    async def incidents() -> Response:
        """What every node has kept of the failures there were, from any node."""
        return json(await loop.incidents())

    @api.get("/incidents/{epoch}", response_model=wire.IncidentDetails, responses=documented(404, 422))
    async def incident(epoch: int = Path(ge=0, lt=EPOCHS)) -> Response:
        """The evidence of one failure, by the epoch that it ended, from every node."""
        return json(await loop.incident(epoch))

    @api.get("/plan", summary="The planned fabric: cables, links, ends, routes, environment")
    async def plan() -> JSONResponse:
        return JSONResponse(loop.plan())

    @api.get("/events", response_model=wire.Events, responses=documented(422))
    async def events(after: int = Query(0, ge=0), limit: int = Query(100, ge=1, le=500)) -> Response:
        """What this node has seen and done since it started, oldest first, with ids above `after`."""
        return json(loop.events.since(after, limit))

    return api
