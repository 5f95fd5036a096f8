"""How often a caller may change something, and what becomes of attempts without a right."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

CHANGES = 30
"""In a row of one caller; after that, one each `CHANGE_SECONDS`."""
CHANGE_SECONDS = 1.0
LINE_SECONDS = 60.0
"""The journal gets one line of a source in that time, with a count."""
_SOURCES = 256
_FREE_FAILURES = 3
_FIRST_DELAY = 0.25
_LONGEST_DELAY = 4.0
_WAITING = 8
_log = logging.getLogger("sparkd.audit")


class Changes:
    """A share of `CHANGES` for each caller. `now`: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._full_again: OrderedDict[str, float] = OrderedDict()

    def wait(self, caller: str) -> float:
        """Counts one more change of this caller. 0 if it may be made now, else the seconds until one may."""
        now = self._now()
        full = max(self._full_again.pop(caller, now), now)
        late = full + CHANGE_SECONDS - now - CHANGES * CHANGE_SECONDS
        if late <= 0:
            full += CHANGE_SECONDS
        self._full_again[caller] = full
        while len(self._full_again) > _SOURCES:
            self._full_again.popitem(last=False)
        return max(late, 0.0)


@dataclass
class _Source:
    failures: int = 0
    waiting: int = 0
    unsaid: int = 0
    timer: asyncio.TimerHandle | None = None


class Attempts:
    """What is refused for want of a right, by source: slowed down, and told without flooding the journal.

    A token that is right passes whatever else its address has done: all users of this host share 127.0.0.1, and none of
    them may lock the others out. It costs nothing: 256 random bits cannot be guessed at any rate.

    first, longest: seconds that a failure after some free ones waits, and the most that it doubles to.
    """

    def __init__(self, first: float = _FIRST_DELAY, longest: float = _LONGEST_DELAY) -> None:
        self._first = first
        self._longest = longest
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def tell(self, source: str, line: str) -> None:
        """One line at once, and after a minute how many there were since."""
        known = self._source(source)
        if known.timer is not None:
            known.unsaid += 1
            return
        _log.warning("%s", line)
        known.timer = asyncio.get_running_loop().call_later(LINE_SECONDS, self._minute, source)

    async def slow(self, source: str) -> bool:
        """Counts a failure, and returns when it may be answered; False if too many are waiting for that already."""
        known = self._source(source)
        known.failures += 1
        if known.failures <= _FREE_FAILURES:
            return True
        if known.waiting >= _WAITING:
            return False
        known.waiting += 1
        try:
            doublings = min(known.failures - _FREE_FAILURES - 1, 10)
            await asyncio.sleep(min(self._first * 2**doublings, self._longest))
        finally:
            known.waiting -= 1
        return True

    def close(self) -> None:
        for known in self._sources.values():
            if known.timer is not None:
                known.timer.cancel()
        self._sources.clear()

    def _source(self, source: str) -> _Source:
        known = self._sources.get(source)
        if known is None:
            if len(self._sources) >= _SOURCES:
                # The rest share one. Taking the place of an older one would let a crowd make each of its lines a new
                # source's.
                source = "others"
            known = self._sources.setdefault(source, _Source())
        return known

    def _minute(self, source: str) -> None:
        known = self._source(source)
        known.timer = None
        if known.unsaid:
            _log.warning("%d more refused from %s within %g s", known.unsaid, source, LINE_SECONDS)
            known.unsaid = 0
            known.timer = asyncio.get_running_loop().call_later(LINE_SECONDS, self._minute, source)
        elif not known.waiting:
            self._sources.pop(source, None)
