"""/v1/logs: the journals of all nodes. An engine's log can hold what its users wrote, so not everybody may read it."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from sparkd.api.answer import EPOCHS
from sparkd.api.guard import MAY_OPERATE
from sparkd.api.problems import documented
from sparkd.core import journal
from sparkd.reconcile.journals import MOST_LINES
from sparkd.reconcile.loop import Loop, Refusal


def may_operate(request: Request) -> None:
    """Refuses callers who may only read: those over TCP without the token."""
    over_tcp = request.client is not None and bool(request.client.host)
    if over_tcp and not request.scope.get(MAY_OPERATE, False):
        raise Refusal("token-missing", "logs are for those who may operate the ring: send the token")


def router(loop: Loop) -> APIRouter:
    api = APIRouter(prefix="/v1")

    @api.get(
        "/logs",
        response_model=journal.Journals,
        responses=documented(401, 403, 422, 503),
        dependencies=[Depends(may_operate)],
    )
    async def logs(
        epoch: int | None = Query(None, ge=0, lt=EPOCHS),
        rank: int | None = Query(None, ge=0),
        since: float | None = Query(None, ge=0, lt=1e11),
        lines: int = Query(200, ge=1, le=MOST_LINES),
        grep: str = Query("", max_length=200),
        cursor: list[str] = Query([]),  # noqa: B008 - FastAPI's way of writing a parameter
    ) -> Response:
        """What the daemons and ranks of all nodes have printed, from any node; `lines` of each node, the newest.

        With `cursor` (NODE=CURSOR, once for each node, from an earlier answer), what has followed since.
        """
        asked = journal.Query(lines, epoch, since, grep)
        cursors = dict(given.partition("=")[::2] for given in cursor)
        for node, given in cursors.items():
            if node not in loop.nodes or not journal.CURSOR.fullmatch(given):
                raise Refusal("bad-request", "query.cursor: expected NODE=CURSOR, as in an earlier answer")
        return Response(await loop.logs(asked, rank, cursors), media_type="application/json")

    return api
