"""Making values fit for a terminal: colour, width, ages, nothing that moves the cursor."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import IO, Any

COLOURS = ("auto", "always", "never")
_when_colour: ContextVar[str] = ContextVar("colour", default="auto")
_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "dim": "2"}
PHASE_COLOURS = {
    "ready": "green",
    "degraded": "yellow",
    "gated": "yellow",
    "starting": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "held": "red",
    "maintenance": "yellow",
}


@dataclass(frozen=True)
class Style:
    """How to write. width: columns. colour: whether to use it."""

    width: int = 80
    colour: bool = False

    def paint(self, text: str, colour: str | None) -> str:
        """The text in a colour; pad before, since the codes take no columns."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and colour else text

    def fit(self, text: str, indent: int = 0) -> str:
        """The text cut to what is left of a line."""
        room = max(self.width - indent, 20)
        return text if len(text) <= room else f"{text[: room - 3]}..."

    def wrap(self, text: str, first: str, rest: str) -> list[str]:
        """The text on as many lines as it needs, behind the given starts."""
        return textwrap.wrap(text, self.width, initial_indent=first, subsequent_indent=rest) or [first.rstrip()]


def style_of(stream: IO[str], environment: Mapping[str, str] = os.environ) -> Style:
    """80 to 100 columns. Colour as --color says; by default on terminals only, and without NO_COLOR (any value but
    none, see no-color.org)."""
    terminal = stream.isatty()
    columns = shutil.get_terminal_size((100, 24)).columns if terminal else 100
    colour = terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Style(min(max(columns, 80), 100), {"auto": colour, "always": True, "never": False}[_when_colour.get()])


def whole_lines(stream: IO[str], narrowest: int = 0) -> Style:
    """As style_of, but as wide as the terminal is; a file or a pipe gets each line whole, whatever its length."""
    return replace(style_of(stream), width=max(terminal_columns(stream) or sys.maxsize, narrowest))


def use_colour(when: str) -> None:
    """`when`: one of COLOURS, for all that is written from here on."""
    _when_colour.set(when)


def terminal_columns(stream: IO[str], environment: Mapping[str, str] = os.environ) -> int | None:
    """The width of the terminal that the stream is, if it is one whose cursor can be moved; otherwise None."""
    if not stream.isatty() or environment.get("TERM") == "dumb":
        return None
    return max(shutil.get_terminal_size((100, 24)).columns, 20)


def clean(value: Any) -> str:
    """The value on one line, without what a terminal would take for a command: ranks print what they like."""
    text = "" if value is None else str(value)
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def duration(seconds: float) -> str:
    """A time span in its largest sensible unit, e.g. `0.4 s`, `12 s`, `3 min`, `5 h`, `2 days`."""
    if seconds < 0:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


def bar(done: int, total: int, width: int = 12) -> str:
    """A progress bar; full only when all is done."""
    filled = width if done >= total else max(done, 0) * width // max(total, 1)
    return f"[{'#' * filled}{'-' * (width - filled)}]"


def columns(rows: list[list[str]]) -> list[list[str]]:
    """The cells padded to equal widths per column, the last column left as it is."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)] if rows else []
    return [[*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]] for row in rows]


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print at once, also into a pipe."""
    print(text, file=stream or sys.stdout, flush=True)
