"""Maintenance: an operator's order that sparkd starts, stops and repairs nothing, until an operator takes it back."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST = 200  # characters of a reason


@dataclass(frozen=True)
class Maintenance:
    """Who ordered it or, with `on` false, took it back. `at`: Unix seconds, by the clock of the conductor.

    `blind`: it was ordered before every peer had been heard, and is ordered again above whatever a peer turns out to
    have.
    """

    by: str
    reason: str
    at: float
    on: bool = True
    blind: bool = False

    def sentence(self, now: float) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"maintenance since {_ago(now - self.at)}, by {self.by}{why}"


def tidy(reason: str) -> str:
    """The reason as one line: it becomes a part of sentences, and of what systemd is told line by line."""
    words = " ".join(reason.split())
    return "".join(letter for letter in words if letter.isprintable())[:_LONGEST]


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
