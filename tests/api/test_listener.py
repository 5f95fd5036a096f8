"""Sockets: whose they are, what an idle server costs, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkd.api.app import operator_app
from sparkd.api.listener import Listener, tcp_socket, unix_socket
from tests.api.serving import api, ask, connect, receive, served
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop, turns, until


def test_a_unix_socket_has_its_mode_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    before = os.umask(0o022)
    try:
        with unix_socket(path, 0o660):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_socket_that_an_earlier_daemon_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with unix_socket(path, 0o600), socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["missing/api.sock", "x" * 120])
def test_a_unix_socket_that_cannot_be_leaves_nothing_open(name: str, tmp_path: Path) -> None:
    before, umask = len(os.listdir("/proc/self/fd")), os.umask(0o022)
    os.umask(umask)
    with pytest.raises(OSError):
        unix_socket(tmp_path / name, 0o660)
    assert len(os.listdir("/proc/self/fd")) == before
    assert os.umask(umask) == umask


def test_a_port_in_use_leaves_nothing_open() -> None:
    with tcp_socket("127.0.0.1", 0) as taken:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="in use"):
            tcp_socket("127.0.0.1", taken.getsockname()[1])
        assert len(os.listdir("/proc/self/fd")) == before


def test_an_address_that_the_host_does_not_have_yet_can_be_listened_on() -> None:
    with tcp_socket("192.0.2.77", 0) as sock:
        assert sock.getsockname()[0] == "192.0.2.77"


@in_loop
async def test_kept_connections_do_not_hold_up_the_end(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring.conductor.loop, tmp_path) as to:
            callers = [await connect(where) for where in (to.unix, to.tcp, to.tcp, to.unix)]
            for reader, writer in callers[:2]:
                for _ in range(2):
                    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert (await receive(reader)).body == b"ok\n"
            # The third has said nothing yet, and the fourth half of its request.
            callers[3][1].write(b"POST /v1/ring/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
            await turns()
            began = time.monotonic()
        assert time.monotonic() - began < 1.0
        assert [await closed(reader) for reader, _ in callers[:3]] == [True] * 3
        for _, writer in callers:
            writer.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(2):
            return await reader.read() == b""
    except ConnectionError:
        return True


@in_loop
async def test_after_its_end_nobody_listens(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring.conductor.loop, tmp_path) as to:
            assert (await to.get("/livez", to.tcp)).status == 200
        for where in (to.tcp, to.unix):
            with pytest.raises(OSError):
                await connect(where)


@in_loop
async def test_a_listener_that_is_told_to_end_before_it_serves_ends() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody asks")

    listener = Listener(app, tcp_socket("127.0.0.1", 0))
    task = asyncio.create_task(listener.serve())
    listener.stop()
    async with asyncio.timeout(2):
        await task
    assert task.done()


@in_loop
async def test_signals_stay_the_daemons(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring.conductor.loop, tmp_path):
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@in_loop
async def test_an_idle_server_wakes_nobody() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with served(app) as port:
        reader, writer = await connect(port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await receive(reader)).status == 200
        await asyncio.sleep(0.05)
        turned = count_turns(asyncio.get_running_loop())
        await asyncio.sleep(0.5)
        # One for the end of the sleep, and one for the task that slept.
        assert turned() <= 3
        writer.close()


def count_turns(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """How often the loop has come back from waiting for something to happen."""
    selector: Any = loop._selector  # type: ignore[attr-defined]
    inner, number = selector.select, 0

    def select(timeout: float | None = None) -> Any:
        nonlocal number
        number += 1
        return inner(timeout)

    selector.select = select

    def stop() -> int:
        selector.select = inner
        return number

    return stop


@in_loop
async def test_answers_carry_no_word_of_the_server(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring.conductor.loop, tmp_path) as to:
            answer = await ask(to.unix, "GET", "/livez")
            assert set(answer.headers) == {"content-length", "content-type"}


@in_loop
async def test_many_callers_at_once(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring.conductor.loop, tmp_path) as to:
            answers = await asyncio.gather(*(to.get("/livez") for _ in range(60)))
            assert {answer.status for answer in answers} == {200}
            starts = await asyncio.gather(*(to.post("/v1/ring/start") for _ in range(10)))
            assert {answer.json["epoch"] for answer in starts} == {1}
            await until(lambda: ring.all_in("ready"))


def test_the_application_needs_no_running_loop_to_be_made() -> None:
    @in_loop
    async def make() -> None:
        async with cluster(boot=False) as ring:
            assert operator_app(ring.conductor.build()).openapi()["info"]["title"] == "sparkd"

    make()
