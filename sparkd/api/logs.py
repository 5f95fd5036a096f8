"""/v1/logs: the journals of all nodes. An engine's log can hold what its users wrote, so not everybody may read it."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from sparkd.api.answer import EPOCHS, answers
from sparkd.api.callers import operates
from sparkd.api.problems import documented
from sparkd.core import journal
from sparkd.reconcile.journals import MOST_LINES
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.refusal import Refusal


def may_operate(request: Request) -> None:
    """Refuses callers who may only look; a second lock behind that of sparkd.api.access, which knows who asks."""
    if not operates(request.scope):
        raise Refusal("read-only", "logs are for those who may change the ring")


def router(loop: Loop) -> APIRouter:
    api = APIRouter(prefix="/v1")

    @api.get(
        "/logs",
        responses=documented(401, 403, 422, 503),
        dependencies=[Depends(may_operate)],
    )
    @answers(journal.Journals)
    async def logs(
        epoch: int | None = Query(None, ge=0, lt=EPOCHS),
        rank: int | None = Query(None, ge=0),
        since: float | None = Query(None, ge=0, lt=1e11),
        lines: int = Query(200, ge=1, le=MOST_LINES),
        grep: str = Query("", max_length=200),
        after: str = Query("", max_length=6000),
    ) -> Response:
        """What the daemons and ranks of all nodes have printed, from any node; `lines` of each node, the newest.

        `after`: what has followed since an earlier answer, as NODE=CURSOR,NODE=CURSOR with the cursors in it.
        """
        if "\0" in grep:
            raise Refusal("bad-request", "query.grep: no line has a NUL, nor can a pattern")
        asked = journal.Query(lines, epoch, since, grep)
        cursors = dict(given.partition("=")[::2] for given in after.split(",") if given)
        for node, given in cursors.items():
            if node not in loop.nodes or not journal.CURSOR.fullmatch(given):
                raise Refusal("bad-request", "query.after: expected NODE=CURSOR, as in an earlier answer")
        return Response(await loop.logs(asked, rank, cursors), media_type="application/json")

    return api
