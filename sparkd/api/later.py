"""An application that is made when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send


class Later:
    """FastAPI and what it brings are a large part of a daemon's start and memory, and a ring needs neither: only
    operators do. `make` imports and builds it, on a thread of its own, so that the loop goes on meanwhile. What it
    raises is raised to the caller, and the next one tries again.
    """

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app or await self._made())(scope, receive, send)

    async def _made(self) -> ASGIApp:
        async with self._making:
            if self._app is None:
                with ThreadPoolExecutor(1, thread_name_prefix="operators' application") as thread:
                    self._app = await asyncio.get_running_loop().run_in_executor(thread, self._make)
            return self._app
