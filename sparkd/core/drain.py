"""Draining: the order to let the requests that run come to their end before a stop, and what rank 0 tells of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 86400.0  # seconds
_TOLD = re.compile(r"draining(?: (?P<running>\d+))?(?P<takes> and taking new requests)?(?:,|$)")


@dataclass(frozen=True)
class Drain:
    """Who ordered it, when (Unix seconds, by the clock of the conductor), and how many seconds it may take."""

    by: str
    at: float
    seconds: float

    def left(self, now: float) -> float:
        """Seconds. The clock of another host, or one that has been set, says no more than the order itself."""
        return max(0.0, min(self.seconds, self.at + self.seconds - now))


@dataclass(frozen=True)
class Told:
    """`running`: requests, None if the engine does not tell. `refuses`: it takes no new ones."""

    running: int | None
    refuses: bool


def told(text: str) -> Told | None:
    """What the text of a ready rank 0 says of draining; None if it does not drain."""
    match = _TOLD.match(text)
    if match is None:
        return None
    running = None if match["running"] is None else int(match["running"])
    return Told(running, refuses=running is not None and match["takes"] is None)
