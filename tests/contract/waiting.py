"""Waiting for what the kernel or systemd does in its own time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(observe: Callable[[], Awaitable[T]], holds: Callable[[T], bool], seconds: float = 5.0) -> T:
    """Observes until it holds. A fake needs only turns of the loop, the real thing some milliseconds."""
    end = time.monotonic() + seconds
    pause = 0.0
    while not holds(seen := await observe()):
        assert time.monotonic() < end, f"after {seconds} s still {seen}"
        await asyncio.sleep(pause)
        pause = min(0.02, pause + 0.001)
    return seen


class Bell:
    """Counts wakes."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def __call__(self, source: str) -> None:
        self.sources.append(source)

    async def rings(self, seconds: float = 2.0) -> int:
        """Waits for the first ring since `clear`."""

        async def count() -> int:
            return len(self.sources)

        return await until(count, bool, seconds)

    async def quiet(self) -> None:
        """Lets what is still under way ring, then forgets it."""
        before = -1
        while before != len(self.sources):
            before = len(self.sources)
            await asyncio.sleep(0.1)
        self.sources.clear()
