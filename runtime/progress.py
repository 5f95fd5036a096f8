"""How far a long command is, for people: one line that is overwritten on a terminal, a line now and then otherwise."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from runtime.durable import gib


class Progress:
    """Bytes done of a total, of any number of threads. `quiet` says nothing."""

    def __init__(self, what: str, total: int, *, quiet: bool = False, out: TextIO = sys.stderr) -> None:
        self._what, self._total, self._out = what, total, out
        self._done = 0
        self._moved = 0
        self._begin = self._said = time.monotonic()
        self._terminal = out.isatty()
        self._every = float("inf") if quiet else 0.5 if self._terminal else 10.0
        self._lock = threading.Lock()

    def add(self, count: int, *, moved: bool = True) -> None:
        """`moved` is False for what was there already, which says nothing about the speed, or is taken back."""
        with self._lock:
            self._done += count
            self._moved += count if moved else 0
            now = time.monotonic()
            if now - self._said < self._every:
                return
            self._said = now
            self._say(now)

    def end(self) -> None:
        """Leave the terminal's line."""
        if self._terminal and self._every < 60:
            self._out.write("\n")
            self._out.flush()

    def _say(self, now: float) -> None:
        speed = self._moved / max(now - self._begin, 1e-3)
        left = (self._total - self._done) / speed if speed > 0 else 0.0
        line = f"{self._what}: {gib(self._done)} of {gib(self._total)}, {speed / 1e6:.0f} MB/s"
        line += f", {left / 60:.0f} min left" if left >= 90 else f", {left:.0f} s left"
        self._out.write(f"\r\033[K{line}" if self._terminal else f"{line}\n")
        self._out.flush()
