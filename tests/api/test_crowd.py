"""A scan: a thousand connections that say nothing, or a byte at a time, while others ask and are answered."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sparkd.api.admission import CONNECTIONS
from sparkd.api.listener import Listener
from sparkd.peers.tls import Credentials, client_context, server_context
from tests.api.serving import Where, api, ask, listening, receive
from tests.api.test_admission import _app
from tests.peers.tls import Certificates
from tests.reconcile.cluster import cluster
from tests.reconcile.running import in_loop

CROWD = 1000
IN_TIME = 1.0
HALVES = [
    b"",
    b"G",
    b"GET /v1/ring HT",
    b"POST /v1/ring/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
]


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Enough for both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def standing(where: Where, number: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    unix = isinstance(where, Path)
    sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    sock.setblocking(False)
    while True:
        try:
            await loop.sock_connect(sock, str(where) if unix else ("127.0.0.1", where))
        except BlockingIOError:  # a Unix socket's backlog is full
            await asyncio.sleep(0.005)
            continue
        break
    with contextlib.suppress(OSError):
        await loop.sock_sendall(sock, HALVES[number % len(HALVES)])
    return sock


@contextlib.asynccontextmanager
async def crowd(*wheres: Where) -> AsyncIterator[list[socket.socket]]:
    """Comes, and goes on coming: whoever is turned out comes back, until the end."""
    inside: list[socket.socket] = []

    async def come(where: Where) -> None:
        for number in range(CROWD):
            inside.append(await standing(where, number))
            if number % 20 == 0:
                await asyncio.sleep(0.01)

    coming = [asyncio.create_task(come(where)) for where in wheres]
    try:
        yield inside
        await asyncio.gather(*coming)
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        for sock in inside:
            sock.close()


@in_loop
async def test_the_api_answers_in_time_beside_a_thousand_that_only_stand_there(tmp_path: Path) -> None:
    async with cluster() as ring:
        await ring.reach("down")
        async with api(ring.conductor.loop, tmp_path) as served:
            assert (await ask(served.unix, "GET", "/v1/ring")).status == 200
            slowest = 0.0
            async with crowd(served.unix, served.tcp) as inside:
                while len(inside) < 2 * CROWD:
                    for where in (served.unix, served.tcp):
                        began = time.monotonic()
                        assert (await ask(where, "GET", "/v1/ring")).status == 200
                        slowest = max(slowest, time.monotonic() - began)
                    await asyncio.sleep(0.02)
                answer = await ask(served.unix, "POST", "/v1/ring/start")
                assert answer.status == 202
            assert slowest < IN_TIME


def test_a_crowd_before_a_handshake_keeps_no_peer_out(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)

    @in_loop
    async def stand() -> None:
        sock = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = int(sock.getsockname()[1])
        context = server_context(Credentials.below(certificates.folder / "spark1"))
        async with listening(Listener(_app, sock, context, per_caller=CONNECTIONS)), crowd(port) as inside:
            peer = client_context(Credentials.below(certificates.folder / "spark2"))
            while len(inside) < CROWD:
                began = time.monotonic()
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=peer)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await receive(reader)).body == b"ok"
                assert time.monotonic() - began < IN_TIME
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                await asyncio.sleep(0.02)

    stand()
