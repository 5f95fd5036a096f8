"""The engine's metrics over a real socket, from servers that behave and from such that do not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from sparkd.host.scrape import scrape
from sparkd.ports import DoorError
from tests.reconcile.running import in_loop


@contextlib.asynccontextmanager
async def server(*parts: bytes, stay: bool = False) -> AsyncIterator[str]:
    """Answers each connection with the parts, and closes it, or not. Yields its address."""
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /metrics HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
            if stay:
                await left.wait()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        left.set()
        listening.close()
        await listening.wait_closed()


async def refused(address: str, **limits: float) -> str:
    with pytest.raises(DoorError) as error:
        await scrape(address, **limits)  # type: ignore[arg-type]
    return str(error.value)


@in_loop
async def test_answers_with_a_length_in_chunks_and_until_the_end() -> None:
    for head, body in (
        (b"Content-Length: 4\r\n", b"a 1\n"),
        (b"Transfer-Encoding: chunked\r\n", b"2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"),
        (b"", b"a 1\n"),
    ):
        async with server(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", body[:1], body[1:]) as address:
            assert await scrape(address) == "a 1\n"


@in_loop
async def test_an_engine_that_says_nothing_is_given_up_in_time() -> None:
    for parts in ((), (b"HTTP/1.1 200 OK\r\n\r\na 1\n",)):
        async with server(*parts, stay=True) as address:
            began = time.monotonic()
            assert await refused(address, deadline=0.05) == (
                f"the engine at {address} did not answer /metrics within 0.05 s"
            )
            assert time.monotonic() - began < 2


@in_loop
async def test_other_answers_are_refused_with_what_was_said() -> None:
    async with server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as address:
        assert await refused(address) == f"the engine at {address} answers /metrics with 404"
    async with server(b"SSH-2.0-OpenSSH\r\n") as address:
        assert "does not tell its metrics" in await refused(address)
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n") as address:
        assert "does not tell its metrics" in await refused(address)
    async with server(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 1000] * 50) as address:
        assert await refused(address, limit=10_000) == f"the engine at {address} has more than 10000 bytes of metrics"
    assert "does not tell its metrics" in await refused(address)
