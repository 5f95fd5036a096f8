"""Draining: the door in front of the engine's server, and whole launchers that are told to shut and to open it."""

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Awaitable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from runtime.sglang.plugin.sparkd_drain import NAME, RETRY_SECONDS, SIZE, Board, Door
from runtime.sglang.shared import PLUGIN, MemoryFile, Shared
from tests.runtime.sglang.bench import engine, in_background, post, until, until_ready
from tests.runtime.triangle import Rank, Ranks, wait_until

Message = MutableMapping[str, Any]


@pytest.fixture
def board() -> Iterator[Board]:
    memory = MemoryFile("test", SIZE)
    board = Board(memory.descriptor)
    yield board
    board.close()
    memory.close()


class App:
    """Begins its answer, and ends it once it may."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.seen: list[str] = []

    async def __call__(self, scope: Message, receive: object, send: Any) -> None:
        self.seen.append(scope.get("path", scope["type"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.go_on.wait()
        if scope.get("path") == "/broken":
            raise ConnectionResetError
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        await send({"type": "http.response.body", "body": b"done"})
        if scope.get("path") == "/lingers":
            await asyncio.sleep(60)


async def ask(door: Door, path: str, method: str = "POST", kind: str = "http", **more: object) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    await door({"type": kind, "path": path, "method": method, **more}, receive, send)
    return sent


def in_loop(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, 10)

    asyncio.run(bounded())


def test_what_runs_goes_on_and_what_is_new_is_refused_with_when_to_try_again(board: Board) -> None:
    async def story() -> None:
        app = App()
        door = Door(app, board)
        running = [asyncio.create_task(ask(door, "/v1/completions")) for _ in range(2)]
        while len(app.seen) < 2:
            await asyncio.sleep(0)
        assert board.running == 2
        board.shut = True
        start, body = await ask(door, "/v1/chat/completions")
        assert start["status"] == 503
        assert (b"retry-after", str(RETRY_SECONDS).encode()) in start["headers"]
        assert (b"connection", b"close") in start["headers"]
        said = json.loads(body["body"])
        assert said["error"]["code"] == "draining"
        assert "takes no new ones" in said["error"]["message"]
        assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
        app.go_on.set()
        assert [each[-1]["body"] for each in await asyncio.gather(*running)] == [b"done", b"done"]
        assert board.running == 0
        assert app.seen == ["/v1/completions"] * 2
        board.shut = False
        assert (await ask(door, "/v1/completions"))[0]["status"] == 200

    in_loop(story())


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/health", "GET", 503),
        ("/ready", "GET", 503),
        ("/health_generate", "GET", 200),
        ("/metrics", "GET", 200),
        ("/v1/models", "GET", 200),
        ("/v1/responses/7/cancel", "POST", 200),
        ("/abort_request", "POST", 200),
        ("/v1/responses/7", "DELETE", 200),
        ("/generate", "PUT", 503),
        ("/anything/new", "POST", 503),
    ],
)
def test_only_work_and_readiness_are_refused(board: Board, path: str, method: str, status: int) -> None:
    async def story() -> None:
        app = App()
        app.go_on.set()
        board.shut = True
        assert (await ask(Door(app, board), path, method))[0]["status"] == status
        assert (await ask(Door(app, board), f"/root{path}", method, root_path="/root"))[0]["status"] == status
        board.shut = False
        assert (await ask(Door(app, board), path, method))[0]["status"] == 200
        assert board.running == 0

    in_loop(story())


def test_a_request_that_breaks_is_not_counted_for_ever(board: Board) -> None:
    async def story() -> None:
        app = App()
        app.go_on.set()
        with pytest.raises(ConnectionResetError):
            await ask(Door(app, board), "/broken")
        assert board.running == 0

    in_loop(story())


def test_a_request_is_over_when_its_last_byte_is_sent(board: Board) -> None:
    async def story() -> None:
        app = App()
        app.go_on.set()
        lingers = asyncio.create_task(ask(Door(app, board), "/lingers"))
        while not app.seen:
            await asyncio.sleep(0)
        assert board.running == 0
        lingers.cancel()
        await asyncio.gather(lingers, return_exceptions=True)
        assert board.running == 0

    in_loop(story())


def test_a_websocket_is_refused_and_the_servers_own_life_is_not(board: Board) -> None:
    async def story() -> None:
        app = App()
        app.go_on.set()
        door = Door(app, board)
        board.shut = True
        [closed] = await ask(door, "/v1/realtime", kind="websocket")
        assert (closed["type"], closed["code"]) == ("websocket.close", 1013)
        answer = await ask(door, "/v1/realtime", kind="websocket", extensions={"websocket.http.response": {}})
        assert (answer[0]["type"], answer[0]["status"]) == ("websocket.http.response.start", 503)
        await ask(door, "", kind="lifespan")
        assert len(app.seen) == 1

    in_loop(story())


def test_the_plug_in_is_found_by_its_entry_point_where_the_launcher_puts_it() -> None:
    from importlib.metadata import distributions

    [found] = distributions(path=[str(PLUGIN)])
    [entry] = found.entry_points
    assert (entry.group, entry.name, entry.value) == ("sglang.srt.plugins", NAME, "sparkd_drain:install")


def test_rank_0_alone_is_given_a_door_beside_what_the_profile_asks_for() -> None:
    first, worker = Shared(0), Shared(1)
    try:
        told = first.environment({"SGLANG_PLUGINS": "-", "PYTHONPATH": "/mine", "X": "1"})
        assert (told["SGLANG_PLUGINS"], told["X"]) == (NAME, "1")
        assert told["PYTHONPATH"] == f"{PLUGIN}:/mine"
        assert first.environment({"SGLANG_PLUGINS": "a,b"})["SGLANG_PLUGINS"] == f"a,b,{NAME}"
        assert set(worker.environment({"SGLANG_PLUGINS": "-"})) == {"SGLANG_PLUGINS", "SPARKD_PLUGIN_PROOF"}
        for name in ("SPARKD_PLUGIN_PROOF", "SPARKD_DRAIN"):
            assert os.path.exists(told[name])
    finally:
        first.close()
        worker.close()
    assert not os.path.exists(told["SPARKD_DRAIN"])


def metrics(rank: Rank) -> bytes:
    host, _, port = rank.environ["SPARKD_API"].partition(":")
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        told: bytes = answer.read()
    return told


def last(rank: Rank) -> str:
    return rank.statuses()[-1]


def test_a_rank_drains_tells_how_many_run_and_serves_again(tmp_path: Path) -> None:
    with engine(tmp_path, STEP="0.02") as rank:
        until_ready(rank)
        generation = in_background(rank, 60)
        wait_until(lambda: b"running_reqs{" in (told := metrics(rank)) and b"} 1.0" in told, Ranks([rank]))
        rank.signal(signal.SIGUSR1)
        until(rank, "draining 1, ")
        refused = post(rank, "/v1/chat/completions", {})
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"takes no new ones" in refused
        generation.join()
        until(rank, "draining 0, ")
        # An engine that drains is still asked whether it lives, by what it does not refuse.
        time.sleep(1)
        assert rank.process is not None and rank.process.poll() is None
        assert "no token" not in last(rank)
        rank.signal(signal.SIGUSR2)
        wait_until(lambda: "draining" not in last(rank), Ranks([rank]))
        assert b"completion_tokens" in post(rank, "/generate", {"sampling_params": {"max_new_tokens": 1}})
        rank.signal(signal.SIGTERM)
        assert rank.exit_code() == 0


def test_an_engine_without_the_plug_in_says_so_and_counts_by_its_metrics(tmp_path: Path) -> None:
    with engine(tmp_path, DOORLESS="1") as rank:
        until_ready(rank)
        rank.signal(signal.SIGUSR1)
        until(rank, "draining 0 and taking new requests, ")


def test_a_rank_that_does_not_serve_yet_is_not_moved(tmp_path: Path) -> None:
    with engine(tmp_path, WEDGE="load") as rank:
        rank.start()
        until(rank, "load")
        rank.signal(signal.SIGUSR1)
        time.sleep(0.2)
        assert rank.process is not None and rank.process.poll() is None
        assert not any("draining" in status for status in rank.statuses())


def test_a_worker_is_not_moved(tmp_path: Path) -> None:
    with engine(tmp_path, 1) as worker:
        until_ready(worker)
        worker.signal(signal.SIGUSR1)
        time.sleep(0.2)
        assert last(worker) == "ready waits for work, sockets (lab)"
