"""Server-sent events: what a follower is told, how it goes on, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sparkd import wire
from sparkd.api import stream
from tests.api.serving import BEARER, Api, Where, api, connect
from tests.reconcile.cluster import Cluster, cluster
from tests.reconcile.running import in_loop, until

Told = tuple[str, str, Any]
"""Kind, id ("" without one) and data of a message."""


class Follower:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.comments = 0

    async def next(self) -> Told:
        """Raises EOFError at the end of the stream."""
        while True:
            size = int((await self._reader.readline()) or b"0", 16)
            if not size:
                raise EOFError
            text = (await self._reader.readexactly(size + 2)).decode().rstrip("\r\n")
            for part in text.split("\n\n"):
                fields = dict(line.split(": ", 1) for line in part.split("\n") if ": " in line)
                if "data" in fields:
                    self._waiting.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
                self.comments += part == ":"
            if self._waiting:
                return self._waiting.pop(0)

    _waiting: list[Told]

    async def told(self) -> Told:
        if self._waiting:
            return self._waiting.pop(0)
        async with asyncio.timeout(5):
            return await self.next()

    async def until(self, of: str, **fields: Any) -> Any:
        """The data of the next message of that kind with such fields."""
        while True:
            found, _, data = await self.told()
            if found == of and all(data[name] == value for name, value in fields.items()):
                return data


@contextlib.asynccontextmanager
async def follow(where: Where, query: str = "", **headers: str) -> AsyncIterator[Follower]:
    reader, writer = await connect(where)
    host = "localhost" if isinstance(where, int) else "x"
    lines = [f"GET /v1/events{query} HTTP/1.1", f"Host: {host}", "Accept: text/event-stream"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200 "), head
        assert "content-type: text/event-stream" in head
        assert "cache-control: no-store" in head
        follower = Follower(reader)
        follower._waiting = []
        yield follower
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def down(ring: Cluster) -> None:
    await ring.reach("down")
    await ring.quiet()


def nobody_follows(ring: Cluster) -> bool:
    loop = ring.conductor.loop
    return not loop._followers and not loop.events._followers


@in_loop
async def test_a_start_can_be_followed_without_asking_again(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring["spark2"].loop, tmp_path) as served:
            for where in (served.unix, served.tcp):
                async with follow(where) as follower:
                    first = wire.decode(wire.RingStatus, await follower.until("ring"))
                    assert first.phase == "down"
                    assert (await served.post("/v1/ring/start")).status == 202
                    told = wire.decode(wire.Event, await follower.until("event", phase="ready"))
                    ready = wire.decode(wire.RingStatus, await follower.until("ring", phase="ready"))
                    assert [rank.state for rank in ready.ranks] == ["ready"] * 3
                    assert told.text == ready.summary
                    assert (await served.post("/v1/ring/stop")).status == 202
                    await follower.until("ring", phase="down")


@in_loop
async def test_ids_lead_on_and_nothing_is_told_twice(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.up()
        await ring.quiet()
        loop = ring.conductor.loop
        async with api(loop, tmp_path) as served:
            newest = loop.events.since(0, 500).last
            async with follow(served.unix) as follower:
                seen: list[str] = []
                while len(seen) < newest:
                    kind, number, _ = await follower.told()
                    if kind == "event":
                        seen.append(number)
            daemon = loop.site.identity.instance
            assert seen == [f"{daemon}-{number}" for number in range(1, newest + 1)]
            for query, resume in (("?after={}", False), ("", True), ("?after=1", True)):
                headers = {"Last_Event_ID": f"{daemon}-{newest}"} if resume else {}
                async with follow(served.unix, query.format(newest), **headers) as follower:
                    assert (await follower.told())[0] == "ring"
                    loop.events.add("action", "something new")
                    assert (await follower.until("event"))["text"] == "something new"
                newest += 1


@in_loop
async def test_an_id_of_an_earlier_daemon_is_told_that_events_are_lost(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        loop = ring.conductor.loop
        async with api(loop, tmp_path) as served:
            earlier = {"Last_Event_ID": "4711-earlier-3"}
            for query, headers in (("", earlier), ("?after=99999", {}), ("?after=2", earlier)):
                async with follow(served.unix, query, **headers) as follower:
                    kind, number, data = await follower.told()
                    assert kind == "lost"
                    assert wire.decode(wire.Lost, data) == wire.Lost(loop.site.identity.instance, 0)
                    assert number == f"{loop.site.identity.instance}-0"
                    assert (await follower.until("event"))["id"] == 1, "what is there comes all the same"
            page = (await served.get("/v1/events?after=99999")).json
            assert (page["lost"], page["events"][0]["id"]) == (True, 1)
            assert not (await served.get("/v1/events?after=1")).json["lost"]


@in_loop
async def test_who_falls_behind_is_told_so(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        loop = ring.conductor.loop
        for number in range(700):
            loop.events.add("action", f"number {number}")
        async with api(loop, tmp_path) as served:
            async with follow(served.unix, "?after=3") as follower:
                assert (await follower.told())[0] == "lost"
                first = await follower.until("event")
                assert first["id"] == loop.events.since(0, 1).last - 499
            assert (await served.get("/v1/events?after=3")).json["lost"]


@in_loop
async def test_a_silent_stream_beats(tmp_path: Path) -> None:
    before, stream.HEARTBEAT_SECONDS = stream.HEARTBEAT_SECONDS, 0.1
    try:
        async with cluster() as ring:
            await down(ring)
            async with api(ring.conductor.loop, tmp_path) as served, follow(served.tcp) as follower:
                await follower.until("ring")
                waiting = asyncio.create_task(follower.told())
                await until(lambda: follower.comments >= 3)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
    finally:
        stream.HEARTBEAT_SECONDS = before


@in_loop
async def test_the_end_of_the_daemon_ends_the_stream_cleanly(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with contextlib.AsyncExitStack() as stack:
            async with api(ring.conductor.loop, tmp_path) as served:
                follower = await stack.enter_async_context(follow(served.unix))
                await follower.until("ring")
                began = time.monotonic()
            assert time.monotonic() - began < 1.0
            ended = False
            while not ended:
                try:
                    await follower.told()
                except EOFError:
                    ended = True
        assert nobody_follows(ring)


async def refused(served: Api, **headers: str) -> Any:
    given = {"Accept": "text/event-stream"} | headers
    return (await served.get("/v1/events", served.tcp, headers=given)).problem["code"]


@in_loop
async def test_followers_are_few_and_leave_nothing(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        assert nobody_follows(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            async with contextlib.AsyncExitStack() as stack:
                for where in (served.tcp, served.unix):
                    for _ in range(stream.FOLLOWERS_OF_ONE):
                        await (await stack.enter_async_context(follow(where))).told()
                assert await refused(served) == "too-many-followers"
                assert (await served.get("/v1/ring", served.tcp)).status == 200
            await until(lambda: nobody_follows(ring))
            async with follow(served.tcp) as follower:
                await follower.until("ring")
            await until(lambda: nobody_follows(ring))


@in_loop
async def test_a_head_of_the_stream_does_not_last(tmp_path: Path) -> None:
    async with cluster() as ring:
        await down(ring)
        async with api(ring.conductor.loop, tmp_path) as served:
            answer = await served.call(
                "HEAD", "/v1/events", served.tcp, headers={"Accept": "text/event-stream", **BEARER}
            )
            assert (answer.status, answer.body) == (200, b"")
