"""Server-sent events: what happens on this node, and what the ring has come to, as long as somebody follows.

Events of the journal have an id, with which a follower that was cut off goes on: `DAEMON-NUMBER`, since numbers begin
anew with each start of the daemon. Of the ring's state only the newest counts, so that it has none and comes at once to
whoever connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from sparkd import wire
from sparkd.api.answer import Kept
from sparkd.api.callers import WHO
from sparkd.api.protocol import LEAVING
from sparkd.reconcile.loop import Loop
from sparkd.reconcile.refusal import Refusal

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
"""After so long without news a comment is sent: whatever stands between keeps an idle connection no longer than a
minute, and a follower that is gone is found out."""
FOLLOWERS = 32
FOLLOWERS_OF_ONE = 16
_PAUSE = 0.05  # s; a start is dozens of changes in a moment
_PAGE = 500
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def wanted(request: Request) -> bool:
    """Whether the caller asks for a stream."""
    return MEDIA_TYPE in request.headers.get("accept", "")


class Followers:
    """Who follows now. Nothing of the daemon knows of them, and nothing is done, while there are none."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._kept = Kept()
        self._callers: Counter[str] = Counter()

    def stream(self, request: Request, after: int) -> Response:
        """Raises Refusal if there are too many already. `after`: the last id that the caller has, or Last-Event-ID."""
        key = request.scope[WHO].key if WHO in request.scope else ""
        if self._callers.total() >= FOLLOWERS or self._callers[key] >= FOLLOWERS_OF_ONE:
            sentence = f"at most {FOLLOWERS} follow at a time, and {FOLLOWERS_OF_ONE} of one caller"
            raise Refusal("too-many-followers", sentence, retry_after=30)
        return _Stream(self, self._loop, key, *self._place(request, after))

    def _place(self, request: Request, after: int) -> tuple[int, bool]:
        """The id to go on after, and whether what followed the caller's last is lost with an earlier daemon."""
        match = re.fullmatch(r"([!-~]{1,80})-([0-9]{1,15})", request.headers.get("last-event-id", ""))
        if match is None:
            return after, False
        own = match[1] == self._loop.site.identity.instance
        return (int(match[2]), False) if own else (0, True)

    @contextlib.contextmanager
    def _joined(self, key: str, news: asyncio.Event) -> Any:
        events = self._loop.events

        def told(_: object = None) -> None:
            news.set()

        self._callers[key] += 1
        events.follow(told)
        self._loop.follow(told)
        try:
            yield
        finally:
            self._loop.unfollow(told)
            events.unfollow(told)
            self._callers[key] -= 1
            if not self._callers[key]:
                del self._callers[key]


class _Stream(Response):
    media_type = MEDIA_TYPE

    def __init__(self, followers: Followers, loop: Loop, key: str, after: int, lost: bool) -> None:
        super().__init__(headers=_HEADERS, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._followers = followers
        self._loop = loop
        self._key = key
        self._after = after
        self._lost = lost
        self._tag = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        news = asyncio.Event()
        leaving: asyncio.Event = scope.get(LEAVING) or asyncio.Event()
        ends = [asyncio.create_task(_gone(receive)), asyncio.create_task(_left(leaving))]
        for end in ends:
            end.add_done_callback(lambda _: news.set())
        try:
            with self._followers._joined(self._key, news):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await _say(send, "retry: 2000\n\n")
                while not any(end.done() for end in ends):
                    news.clear()
                    text = self._news()
                    if text:
                        await _say(send, text)
                        await asyncio.sleep(_PAUSE)
                    try:
                        async with asyncio.timeout(HEARTBEAT_SECONDS):
                            await news.wait()
                    except TimeoutError:
                        await _say(send, ":\n\n")
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    def _news(self) -> str:
        """All that is new since the last time."""
        daemon = self._loop.site.identity.instance
        found = self._loop.events.since(self._after, _PAGE)
        said = []
        if found.lost or self._lost:
            last = found.events[0].id - 1 if found.events else found.last
            said.append(_message("lost", wire.dumps(wire.Lost(daemon, last)), f"{daemon}-{last}"))
        self._lost = False
        said += [_message("event", wire.dumps(event), f"{daemon}-{event.id}") for event in found.events]
        self._after = found.last
        with contextlib.suppress(Refusal):  # before the first cycle
            ring = self._followers._kept.encoded(self._loop.ring())
            if ring.tag != self._tag:
                self._tag = ring.tag
                said.append(_message("ring", ring.body))
        return "".join(said)


async def _say(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


async def _left(leaving: asyncio.Event) -> None:
    await leaving.wait()


def _message(kind: str, data: bytes, number: str = "") -> str:
    # JSON text has no line break of its own.
    return f"{f'id: {number}' + chr(10) if number else ''}event: {kind}\ndata: {data.decode()}\n\n"
