"""/v1/ring, /v1/operations, /v1/plan, /v1/events: what the ring is and does, and changing it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from sparkd import wire
from sparkd.api.access import by
from sparkd.api.answer import EPOCHS, Encoded, Kept, answers, json, only_known
from sparkd.api.callers import operates
from sparkd.api.guard import HEAD
from sparkd.api.problems import MEDIA_TYPE, documented
from sparkd.api.stream import MEDIA_TYPE as STREAM
from sparkd.api.stream import Followers, wanted
from sparkd.core.drain import LONGEST
from sparkd.core.intent import Request as Change
from sparkd.reconcile.loop import Forwarded, Loop
from sparkd.reconcile.refusal import Refusal

_EPOCH = Query(None, ge=0, lt=EPOCHS, description="Refuse (epoch-changed) unless this epoch is in force")
_DRY = Query(False, description="Only say what would come of it, with all findings; change nothing")
_CLOSED = "for those alone who may change the ring: root, group sparkd, or with a token of that role\n"
_TRIAL: dict[int | str, Any] = {200: {"description": "With dry_run: what would come of it"}}
_CHANGE_REFUSED = {**_TRIAL, **documented(409, 422, 503, 507)}
_STREAM: dict[int | str, Any] = {200: {"content": {STREAM: {"schema": {"type": "string"}}}}}


def _without_texts(told: wire.IncidentDetails) -> wire.IncidentDetails:
    """What a rank has printed can hold what the engine's users wrote, and a command line what only its owner knows."""
    nodes = (replace(node, files=dict.fromkeys(node.files, _CLOSED)) for node in told.nodes)
    return replace(told, nodes=tuple(nodes))


def router(loop: Loop) -> APIRouter:
    api = APIRouter(prefix="/v1")
    followers, kept = Followers(loop), Kept()

    async def change(
        request: Request,
        what: Change,
        expect: int | None,
        trial: bool,
        reason: str = "",
        *,
        force: bool = False,
        drain: float = 0.0,
    ) -> Response:
        only_known(request)
        who = by(request.scope, loop.site.node)
        answer = await loop.request(what, who, reason, force=force, drain=drain, expect=expect, trial=trial)
        if isinstance(answer, Forwarded):
            media_type = "application/json" if answer.status < 400 else MEDIA_TYPE
            response: Response = JSONResponse(dict(answer.body), answer.status, media_type=media_type)
            where = answer.body.get("operation")
        elif isinstance(answer, wire.Trial):
            return json(answer)
        else:
            response = json(answer, 202)
            where = answer.operation
        if where:
            response.headers["Location"] = str(where)
        return response

    @api.get("/ring", responses=documented(304, 503))
    @answers(wire.RingStatus)
    async def get_ring(request: Request) -> Response:
        """The ring, as this node knows it."""
        return kept.encoded(loop.ring()).answer(request)

    @api.post("/ring/start", status_code=202, responses=_CHANGE_REFUSED)
    @answers(wire.Operation, trial=wire.Trial)
    async def start(request: Request, expect_epoch: int | None = _EPOCH, dry_run: bool = _DRY) -> Response:
        """Bring the ring up. Idempotent: a ring that is meant to be up already answers with its operation."""
        return await change(request, "start", expect_epoch, dry_run)

    @api.post("/ring/stop", status_code=202, responses=_CHANGE_REFUSED)
    @answers(wire.Operation, trial=wire.Trial)
    async def stop(
        request: Request,
        force: bool = False,
        drain: float = Query(0, ge=0, le=LONGEST),
        expect_epoch: int | None = _EPOCH,
        dry_run: bool = _DRY,
    ) -> Response:
        """Take the ring down; valid in every state but maintenance, which only `force` ends with it.

        With `drain`, the seconds that requests which run have to come to their end: no new ones are taken meanwhile,
        and the ring is stopped as soon as none runs. A stop without it ends this at once, a start takes it back.
        """
        return await change(request, "stop", expect_epoch, dry_run, force=force, drain=drain)

    @api.post("/ring/hold", status_code=202, responses=_CHANGE_REFUSED)
    @answers(wire.Operation, trial=wire.Trial)
    async def hold(
        request: Request,
        reason: str = Query("", max_length=200),
        expect_epoch: int | None = _EPOCH,
        dry_run: bool = _DRY,
    ) -> Response:
        """Maintenance: leave everything as it is. Nothing is started, stopped or repaired until resume."""
        return await change(request, "hold", expect_epoch, dry_run, reason)

    @api.post("/ring/resume", status_code=202, responses=_CHANGE_REFUSED)
    @answers(wire.Operation, trial=wire.Trial)
    async def resume(request: Request, expect_epoch: int | None = _EPOCH, dry_run: bool = _DRY) -> Response:
        """End the maintenance: what is wanted is seen to again."""
        return await change(request, "resume", expect_epoch, dry_run)

    @api.post("/ring/clear", status_code=202, responses=_CHANGE_REFUSED)
    @answers(wire.Operation, trial=wire.Trial)
    async def clear(request: Request, expect_epoch: int | None = _EPOCH, dry_run: bool = _DRY) -> Response:
        """Let a held ring start again. It stays down until it is started."""
        return await change(request, "clear", expect_epoch, dry_run)

    @api.get("/operations/{epoch}", responses=documented(404, 422, 503))
    @answers(wire.OperationStatus)
    async def operation(epoch: int = Path(ge=0, lt=EPOCHS)) -> Response:
        """How the operation that made this epoch stands, or how it ended."""
        found = loop.operation(epoch)
        if found is None:
            raise Refusal("no-such-operation", f"no operation has made epoch {epoch}")
        return json(found)

    @api.get("/doctor", responses=documented(304, 503))
    @answers(wire.DoctorStatus)
    async def doctor(request: Request) -> Response:
        """Every check of every node, from any node: what it looked at, its verdict, and how to put it right."""
        return Encoded(loop.doctor()).answer(request)

    @api.get("/incidents")
    @answers(wire.Incidents)
    async def incidents() -> Response:
        """What every node has kept of the failures there were, from any node."""
        return json(await loop.incidents())

    @api.get("/incidents/{epoch}", responses=documented(404, 422))
    @answers(wire.IncidentDetails)
    async def incident(request: Request, epoch: int = Path(ge=0, lt=EPOCHS)) -> Response:
        """The evidence of one failure, by the epoch that it ended, from every node.

        The text of the files, among them the rank's journal, goes to those alone who may change the ring.
        """
        told = await loop.incident(epoch)
        return json(told if operates(request.scope) else _without_texts(told))

    @api.get("/smoke")
    @answers(wire.SmokeRuns)
    async def smoke() -> Response:
        """What came of the smoke tests that the engine had to pass before it was ready, by epoch, from any node."""
        return json(await loop.smokes())

    @api.get("/plan", responses=documented(304), summary="The planned fabric: cables, links, ends, routes, environment")
    async def plan(request: Request) -> Response:
        return Encoded(loop.plan()).answer(request)

    @api.get("/events", responses={**_STREAM, **documented(422)})
    @answers(wire.Events)
    async def events(
        request: Request, after: int = Query(0, ge=0, lt=EPOCHS), limit: int = Query(100, ge=1, le=500)
    ) -> Response:
        """What this node has seen and done since it started, oldest first, with ids above `after`.

        With `Accept: text/event-stream` it goes on as server-sent events: `event` (an Event, with an id to resume
        after by Last-Event-ID), `ring` (a RingStatus: first as it is, then each change) and `lost` (a Lost, in place
        of events that are gone). A comment every 15 s shows that the daemon is there.
        """
        if wanted(request) and HEAD not in request.scope:
            return followers.stream(request, after)
        return json(replace(loop.events.since(after, limit), daemon=loop.site.identity.instance))

    return api
