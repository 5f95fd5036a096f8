"""Tests that need an event loop, and leave nothing in it or beside it."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")
GRACE = 2.0  # seconds for what was told to end, to end
LIMIT = 20.0


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test in a loop of its own. It fails if a task or a thread outlives it; so does, because
    warnings are errors, a socket or a transport that nobody closed."""
    return within(LIMIT)(test)


def within(
    seconds: float,
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """The same for a test that may take longer."""

    def made(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        return _in_loop(test, seconds)

    return made


def _in_loop(test: Callable[P, Coroutine[Any, Any, None]], seconds: float) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        gc.freeze()  # what was there before is looked at by nobody below, which is most of the work
        before = set(threading.enumerate())
        asyncio.run(_checked(test(*args, **kwargs), seconds))
        end = time.monotonic() + GRACE
        while (left := set(threading.enumerate()) - before) and time.monotonic() < end:
            time.sleep(0.005)
        assert not left, f"threads that go on: {left}"
        gc.collect()
        gc.unfreeze()

    return run


async def _checked(test: Coroutine[Any, Any, None], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await test
    end = time.monotonic() + GRACE
    while (left := asyncio.all_tasks() - {asyncio.current_task()}) and time.monotonic() < end:
        await asyncio.sleep(0.005)
    assert not left, f"tasks that go on: {left}"


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> float:
    """Let the loop turn until it holds; returns the seconds that took. Raises AssertionError."""
    began = time.monotonic()
    looks = 0
    while not holds():
        assert time.monotonic() - began < seconds, f"does not hold after {seconds} s"
        looks += 1
        await turns(10)
        if looks > 20:
            await asyncio.sleep(0.002)
    return time.monotonic() - began


async def turns(number: int = 50) -> None:
    """So many turns of the loop: enough for everything that needs no time."""
    for _ in range(number):
        await asyncio.sleep(0)
