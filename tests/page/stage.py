"""The page as the daemon serves it, over documents that a test has composed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sparkd import wire
from sparkd.api import dashboard
from sparkd.api.problems import problem
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.samples import History, RailHistory
from tests.api.serving import TOKEN, served
from tests.page.scenes import Scene


class Stage:
    """`requests`: every change that was asked for, as (path with query, Authorization). `down`: nobody answers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.requests: list[tuple[str, str]] = []
        self.refusal: Response | None = None
        self.down = False
        self.closed = False  # readers need a token too
        self._news = asyncio.Condition()
        self._turn = 0
        self.addresses: list[str] = []

    async def become(self, scene: Scene) -> None:
        """The ring is another one from now on, and whoever follows is told."""
        self.scene = scene
        await self._wake()

    async def vanish(self) -> None:
        """Every connection ends, and no request is answered any more."""
        self.down = True
        await self._wake()

    async def return_(self) -> None:
        self.down = False

    async def _wake(self) -> None:
        async with self._news:
            self._turn += 1
            self._news.notify_all()

    async def stream(self) -> AsyncIterator[bytes]:
        """As /v1/events: the ring at once and with each change, and the events there are."""
        for event in self.scene.events:
            yield f"event: event\nid: d-{event.id}\ndata: {wire.dumps(event).decode()}\n\n".encode()
        while not self.down:
            turn = self._turn
            yield f"event: ring\ndata: {wire.dumps(self.scene.ring).decode()}\n\n".encode()
            async with self._news:
                await self._news.wait_for(partial(self._later, turn))

    def _document(self, path: str) -> Any:
        scene = self.scene
        documents = {"ring": scene.ring, "plan": scene.plan, "doctor": scene.doctor, "incidents": scene.incidents}
        return wire.encode(documents[path.removeprefix("/v1/")])

    def _later(self, turn: int) -> bool:
        return self._turn != turn

    def app(self) -> Any:
        app = FastAPI(openapi_url=None)
        app.include_router(dashboard.router(cast(Loop, self)))

        @app.get("/v1/events")
        async def events(request: Request) -> Response:
            if "text/event-stream" in request.headers["accept"]:
                return StreamingResponse(self.stream(), media_type="text/event-stream")
            told = wire.Events(tuple(self.scene.events), len(self.scene.events))
            return JSONResponse(wire.encode(told))

        @app.get("/v1/incidents/{epoch}")
        async def incident(epoch: int) -> Response:
            if epoch not in self.scene.details:
                return problem("no-such-incident", f"no node has kept anything of epoch {epoch}")
            return JSONResponse(wire.encode(self.scene.details[epoch]))

        @app.post("/v1/ring/{change}")
        async def change(request: Request, change: str, dry_run: bool = False) -> Response:
            given = request.headers.get("authorization", "")
            self.requests.append((f"{request.url.path}?{request.url.query}", given))
            if given != f"Bearer {TOKEN}":
                return problem("token-wrong", "the token is not the one of this machine")
            if dry_run:
                return JSONResponse(dict(self.scene.trial))
            made = wire.Operation("/v1/operations/9", 9, "down", "as asked")
            return self.refusal or JSONResponse(wire.encode(made), 202)

        async def known(request: Request) -> Response:
            return JSONResponse(self._document(request.url.path))

        for path in ("/v1/ring", "/v1/plan", "/v1/doctor", "/v1/incidents"):
            app.add_api_route(path, known)

        async def whole(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.addresses.append(scope["path"] + "?" + scope["query_string"].decode())
                headers = dict(scope["headers"])
                if self.down:
                    await Response(status_code=502)(scope, receive, send)
                    return
                if self.closed and scope["path"].startswith("/v1/") and b"authorization" not in headers:
                    await problem("token-missing", "reading needs a token here")(scope, receive, send)
                    return
            await app(scope, receive, send)

        return whole

    def history(self, after: int) -> History:
        """What the dashboard's router asks of the loop."""
        whole = self.scene.history
        if after < whole.last:
            return whole
        nothing = dict.fromkeys(("at", "phases", "memory_available", "tokens_per_second", "running", "queued"), ())
        rails = tuple(RailHistory(rail.device, (), ()) for rail in whole.rails)
        return replace(whole, **nothing, rails=rails)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def staged(scene: Scene) -> AsyncIterator[tuple[Stage, str]]:
    """The stage and the address of its page."""
    stage = Stage(scene)
    async with served(stage.app()) as port:
        try:
            yield stage, f"http://127.0.0.1:{port}/"
        finally:
            await stage.vanish()
