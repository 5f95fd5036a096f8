"""A crowd at a listener's door: it is turned away, and those who are inside go on being served."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from asyncio import sslproto
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from sparkd.api import admission, protocol
from sparkd.api.listener import Listener, tcp_socket
from sparkd.peers.tls import Credentials, server_context
from tests.peers.tls import Certificates
from tests.reconcile.running import in_loop


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def listening(per_caller: int, credentials: Credentials | None = None, app: Any = None) -> AsyncIterator[int]:
    sock = tcp_socket("127.0.0.1", 0)
    port = int(sock.getsockname()[1])
    context = server_context(credentials) if credentials is not None else None
    listener = Listener(app or _app, sock, context, per_caller=per_caller)
    serving = asyncio.create_task(listener.serve())
    await listener.bound()
    try:
        yield port
    finally:
        listener.stop()
        await serving


@contextlib.contextmanager
def crowd(port: int, number: int) -> Iterator[list[socket.socket]]:
    """Connections that send nothing."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), 5)) for _ in range(number)]


async def closed(sock: socket.socket) -> bool:
    """Whether the other side closes it within a second."""
    sock.setblocking(False)
    try:
        async with asyncio.timeout(1):
            return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@in_loop
async def test_whoever_asks_goes_before_who_only_stands() -> None:
    async with listening(per_caller=3) as port:
        with crowd(port, 3) as inside:
            await asyncio.sleep(0.05)
            with crowd(port, 2):
                assert [await closed(sock) for sock in inside[:2]] == [True, True], "the longest there go first"
                assert not await closed(inside[2])
                assert b"200 OK" in await ask(port)


@in_loop
async def test_nobody_who_is_being_answered_is_turned_out() -> None:
    go = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await _app(scope, receive, send)

    async with listening(per_caller=2, app=slow) as port:
        asking = [asyncio.create_task(ask(port)) for _ in range(2)]
        await asyncio.sleep(0.1)
        with crowd(port, 2) as turned_away:
            assert [await closed(sock) for sock in turned_away] == [True, True]
        go.set()
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*asking))


@in_loop
async def test_a_request_in_drips_is_told_that_it_is_too_slow() -> None:
    before, protocol.REQUEST_SECONDS = protocol.REQUEST_SECONDS, 0.3
    try:
        async with listening(per_caller=3) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" in await reader.readuntil(b"ok")
            # Also the second one on a kept connection, whose every byte would put off a plain time-out.
            for letter in b"GET / HTTP/1.1":
                writer.write(bytes([letter]))
                await asyncio.sleep(0.01)
            back = await reader.read()
            assert back.startswith(b"HTTP/1.1 408 "), back
            assert b'"code":"too-slow"' in back
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    finally:
        protocol.REQUEST_SECONDS = before


@in_loop
async def test_who_does_not_take_the_answer_is_cut_off() -> None:
    before, protocol.TAKE_SECONDS = protocol.TAKE_SECONDS, 0.2

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    try:
        async with listening(per_caller=1, app=large) as port:
            with crowd(port, 1) as (deaf,):
                deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await asyncio.sleep(0.6)
                assert b"200 OK" in await ask(port), "its place is free"
    finally:
        protocol.TAKE_SECONDS = before


@in_loop
async def test_a_connection_that_says_nothing_is_closed() -> None:
    before, protocol.REQUEST_SECONDS = protocol.REQUEST_SECONDS, 0.2
    try:
        async with listening(per_caller=3) as port:
            with crowd(port, 1) as silent:
                assert await closed(silent[0])
            assert b"200 OK" in await ask(port)
    finally:
        protocol.REQUEST_SECONDS = before


def test_a_handshake_that_is_not_finished_takes_a_place_only_for_a_while(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)

    @in_loop
    async def wait() -> None:
        before, admission.HANDSHAKE_SECONDS = admission.HANDSHAKE_SECONDS, 0.3
        try:
            async with listening(per_caller=2, credentials=Credentials.below(certificates.folder / "spark1")) as port:
                with crowd(port, 2) as silent:
                    await asyncio.sleep(0.05)
                    with crowd(port, 1) as third:
                        assert await closed(third[0])
                    assert [await closed(sock) for sock in silent] == [True, True]
        finally:
            admission.HANDSHAKE_SECONDS = before

    wait()


def test_a_crowd_with_broken_handshakes_leaves_no_memory_behind(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)

    def left() -> int:
        return sum(type(each) is sslproto.SSLProtocol for each in gc.get_objects())

    @in_loop
    async def come() -> None:
        async with listening(per_caller=128, credentials=Credentials.below(certificates.folder / "spark1")) as port:
            before = left()
            for _ in range(25):
                with crowd(port, 10) as broken:
                    for sock in broken:
                        sock.sendall(b"\x16\x03\x01" + b"x" * 60)
                    assert all([await closed(sock) for sock in broken])
            assert left() - before < 150, "of 250"

    gc.disable()  # left to itself it comes by chance, and late
    try:
        come()
    finally:
        gc.enable()


@in_loop
async def test_kept_connections_are_not_cut_off() -> None:
    before, protocol.REQUEST_SECONDS = protocol.REQUEST_SECONDS, 0.2
    try:
        async with listening(per_caller=3) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"200" in await reader.readuntil(b"ok")
                await asyncio.sleep(0.25)
            writer.close()
            await writer.wait_closed()
    finally:
        protocol.REQUEST_SECONDS = before
