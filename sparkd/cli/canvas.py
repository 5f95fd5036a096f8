"""A grid of characters to draw on: boxes, and wires with corners. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkd.cli.text import Style


@dataclass(frozen=True)
class Stroke:
    """How a wire looks: across, down, and its corners from the upper left one on, clockwise."""

    across: str
    down: str
    corners: str


BOTH, ONE, BROKEN, BOX = "both", "one", "broken", "box"
"""A wire with both of its rails, with one or none set up, and one with a fault; the edge of a box."""
_LINES = {
    BOTH: Stroke("═", "║", "╔╗╝╚"),
    ONE: Stroke("─", "│", "┌┐┘└"),
    BROKEN: Stroke("╌", "╎", "┌┐┘└"),
    BOX: Stroke("─", "│", "┌┐┘└"),
}
_PLAIN = {
    BOTH: Stroke("=", "|", "++++"),
    ONE: Stroke("-", "|", "++++"),
    BROKEN: Stroke("~", ":", "++++"),
    BOX: Stroke("-", "|", "++++"),
}


class Canvas:
    """fancy: with the box-drawing characters of Unicode, or with what every terminal has."""

    def __init__(self, *, fancy: bool) -> None:
        self._strokes = _LINES if fancy else _PLAIN
        self._cells: dict[tuple[int, int], tuple[str, str | None]] = {}

    def text(self, x: int, y: int, text: str, colour: str | None = None) -> None:
        for index, char in enumerate(text):
            self._cells[x + index, y] = char, colour

    def across(self, x: int, end: int, y: int, kind: str, colour: str | None = None) -> None:
        """From x to end, both included."""
        self.text(x, y, self._strokes[kind].across * (end - x + 1), colour)

    def down(self, x: int, y: int, end: int, kind: str, colour: str | None = None) -> None:
        for row in range(y, end + 1):
            self.text(x, row, self._strokes[kind].down, colour)

    def corner(self, x: int, y: int, which: int, kind: str, colour: str | None = None) -> None:
        """which: 0 for the upper left one, then clockwise."""
        self.text(x, y, self._strokes[kind].corners[which], colour)

    def box(self, x: int, y: int, text: str, colour: str | None = None) -> None:
        """Three rows high, and four columns wider than the text."""
        end = x + len(text) + 3
        for row, (left, right) in ((y, (0, 1)), (y + 2, (3, 2))):
            self.across(x, end, row, BOX)
            self.corner(x, row, left, BOX)
            self.corner(end, row, right, BOX)
        self.down(x, y + 1, y + 1, BOX)
        self.down(end, y + 1, y + 1, BOX)
        self.text(x + 1, y + 1, f" {text} ", colour)

    @property
    def width(self) -> int:
        return max((x for x, _ in self._cells), default=-1) + 1

    def lines(self, style: Style) -> list[str]:
        """From row 0 on, without blanks at the ends of lines."""
        rows = max((y for _, y in self._cells), default=-1) + 1
        return [self._line(y, style) for y in range(rows)]

    def _line(self, y: int, style: Style) -> str:
        end = max((x for x, row in self._cells if row == y), default=-1) + 1
        parts: list[tuple[str, str | None]] = []
        for x in range(end):
            char, colour = self._cells.get((x, y), (" ", None))
            if parts and parts[-1][1] == colour:
                parts[-1] = parts[-1][0] + char, colour
            else:
                parts.append((char, colour))
        return "".join(style.paint(text, colour) for text, colour in parts).rstrip()
