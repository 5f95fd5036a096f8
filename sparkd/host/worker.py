"""Blocking calls on one thread of their own, under a deadline.

A call into the kernel can hang for ever: an oops in a driver leaves the rtnl lock held, a dead device leaves sysfs
reads waiting. Such a thread can be neither interrupted nor ended, so there is exactly one per door, and as long as it
is stuck the door says at once that it does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from sparkd.ports import DoorError

T = TypeVar("T")
_CLOSE_GRACE = 0.5  # seconds that close() waits for a call in progress


class Worker:
    """Runs calls one after the other on a daemon thread that starts with the first of them.

    `what` opens every sentence, e.g. "netlink"; `deadline` is in seconds and counts from `call`, so that a caller
    waits no longer when others queue before it.
    """

    def __init__(self, what: str, deadline: float) -> None:
        self.what = what
        self.deadline = deadline
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: _Job | None = None
        self._closed = False

    @property
    def overdue(self) -> float | None:
        """Seconds since the call in progress began, if it should have returned by now."""
        job = self._running
        if job is None:
            return None
        age = time.monotonic() - job.started
        return age if job.abandoned or age > self.deadline else None

    async def call(self, function: Callable[[], T]) -> T:
        """The function's result. Raises DoorError when it is late, when an older call is still stuck, and for an
        OSError of the function. A late call's result is dropped, but what it does to the host still happens; a call
        that had not begun when its time was up never begins.
        """
        if self._closed:
            raise DoorError(f"{self.what} is closed")
        if (age := self.overdue) is not None:
            raise DoorError(f"{self.what} has not answered for {age:.0f} s")
        job = _Job(self, function)
        self._start()
        self._queue.put(job.run)
        try:
            done, _ = await asyncio.wait({job.future}, timeout=self.deadline)
        except asyncio.CancelledError:
            job.abandon()
            raise
        if not done:
            job.abandon()
            raise DoorError(f"{self.what} did not answer within {self.deadline:g} s")
        try:
            result: T = job.future.result()
        except OSError as error:
            raise DoorError(f"{self.what}: {describe(error)}") from error
        return result

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Ends the thread; `last` runs on it first, e.g. to close a socket that only this thread uses.

        A stuck thread cannot be ended: it is left behind, ends when its call returns and does not keep the process.
        """
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            if last is not None:
                last()
            return
        if last is not None:
            self._queue.put(last)
        self._queue.put(None)
        self._thread.join(_CLOSE_GRACE)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self.what, daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while (run := self._queue.get()) is not None:
            run()

    def begin(self, job: _Job | None) -> None:
        self._running = job


class _Job:
    def __init__(self, worker: Worker, function: Callable[[], Any]) -> None:
        self._worker = worker
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.started = 0.0
        self.abandoned = False

    def abandon(self) -> None:
        """Called in the loop: nobody waits any more."""
        with self._lock:
            self.abandoned = True
        self.future.cancel()

    def run(self) -> None:
        """Called in the worker's thread."""
        with self._lock:
            if self.abandoned:
                return
            self.started = time.monotonic()
            self._worker.begin(self)
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._function()
        except BaseException as raised:  # noqa: BLE001 - whatever it is belongs to the caller, not to this thread
            error = raised
        self._worker.begin(None)
        # The loop may have closed while a late call was under way: then there is nobody to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def describe(error: OSError) -> str:
    """The error in words, with the file it is about."""
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words
