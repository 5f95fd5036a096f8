"""The operators' application is made when somebody asks, once."""

import asyncio
import subprocess
import sys
import threading

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Scope

from sparkd.api.later import Later
from tests.architecture.repository import ROOT

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}


async def ask(app: ASGIApp) -> bytes:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(SCOPE, receive, send)
    return b"".join(message.get("body", b"") for message in sent)


@pytest.mark.asyncio
async def test_it_is_made_once_and_beside_the_loop() -> None:
    begun, go = threading.Event(), threading.Event()
    made: list[str] = []

    def make() -> ASGIApp:
        begun.set()
        assert go.wait(5)
        made.append(threading.current_thread().name)
        return PlainTextResponse("here")

    later = Later(make)
    assert made == []
    asking = [asyncio.create_task(ask(later)) for _ in range(3)]
    while not begun.is_set():
        await asyncio.sleep(0.001)
    go.set()

    assert await asyncio.gather(*asking) == [b"here"] * 3
    assert await ask(later) == b"here"
    assert len(made) == 1
    assert made[0] != threading.current_thread().name


@pytest.mark.asyncio
async def test_what_goes_wrong_is_the_callers_and_the_next_one_tries_again() -> None:
    attempts = 0

    def make() -> ASGIApp:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ImportError("No module named 'fastapi'")
        return PlainTextResponse("here")

    later = Later(make)
    with pytest.raises(ImportError, match="fastapi"):
        await ask(later)
    assert await ask(later) == b"here"


def test_a_daemon_that_nobody_asks_has_no_framework_in_memory() -> None:
    """Host memory is GPU memory, and the ring waits for the daemon to be ready."""
    program = "import sys, sparkd.daemon; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()

    assert "uvicorn" in loaded
    assert not {"fastapi", "pydantic", "prometheus_client"} & set(loaded)
