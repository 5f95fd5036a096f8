"""`systemctl reload sparkd`: the configuration read again, and as much of it taken over as serving ranks allow.

All of it or nothing: a configuration of which one half is in force is one that nobody has written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from sparkd.config import ConfigError, Settings
from sparkd.config.keys import Change, changes
from sparkd.reconcile.loop import Loop

_NEEDS = {"sparkd": "a restart of sparkd", "ring": "a restart of sparkd on every node and of the ring"}


class Reload:
    """`settings` are those in force; `read` reads the files anew, and raises ConfigError."""

    def __init__(self, settings: Settings, loop: Loop, read: Callable[[], Settings]) -> None:
        self.settings = settings
        self._loop = loop
        self._read = read
        self._task: asyncio.Task[None] | None = None
        self._asked = False

    def ask(self) -> None:
        """As SIGHUP does. One at a time; what is asked for during one is another, since it may have read already."""
        self._asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._runs(), name="reload")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _runs(self) -> None:
        while self._asked:
            self._asked = False
            await self.run()

    async def run(self) -> None:
        """Tells the outcome in the journal and, while the files are refused, in the unit's status."""
        events = self._loop.events
        try:
            fresh = await self._fresh()
        except ConfigError as error:
            for problem in error.problems:
                events.error(str(problem))
            self._refuse("the configuration is faulty and was not taken; the one before goes on")
            return
        changed = changes(self.settings, fresh)
        stuck = [change for change in changed if change.takes != "reload"]
        if stuck:
            for change in stuck:
                events.error(f"{change}: needs {_NEEDS[change.takes]}")
            names = ", ".join(change.key for change in stuck)
            self._refuse(f"the configuration was not taken, since {names} cannot change by a reload")
            return
        self._take(fresh, changed)

    async def _fresh(self) -> Settings:
        """On a thread of its own: the disk may be slow, and reloads are too rare to keep one."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="reload")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, self._read)
        finally:
            thread.shutdown(wait=False)

    def _take(self, fresh: Settings, changed: tuple[Change, ...]) -> None:
        loop = self._loop
        loop.site = replace(loop.site, policy=fresh.policy)
        loop.notice = ""
        self.settings = fresh
        told = "; ".join(str(change) for change in changed) or "nothing has changed in it"
        loop.events.add("action", f"the configuration was read again: {told}")
        loop.wake("host")

    def _refuse(self, sentence: str) -> None:
        self._loop.events.error(sentence)
        self._loop.notice = sentence
        self._loop.wake("host")
