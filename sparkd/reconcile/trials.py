"""How often rails were measured in vain: what keeps a rail that cannot be measured from being tried all the time."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core.model import Unknown
from sparkd.core.railfacts import RailFacts


class Trials:
    """Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._tries = 0
        self._running = False
        self._ended = 0.0

    def began(self) -> None:
        self._running = True
        self._tries += 1

    def failed(self, now: float) -> None:
        """It began, and could not even be started."""
        self._running, self._ended = False, now

    def again(self) -> None:
        """Nothing is left to measure, or an operator wants it anew."""
        self._tries = 0

    @property
    def in_vain(self) -> bool:
        return self._tries > 0

    def seen(self, rails: RailFacts | Unknown, now: float) -> RailFacts | Unknown:
        """The facts with `tries` and `rested`."""
        if isinstance(rails, Unknown):
            return rails
        running = rails.running is not None
        if self._running and not running:
            self._ended = now
        self._running = running
        return replace(rails, tries=self._tries, rested=now - self._ended)
