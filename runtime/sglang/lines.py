"""From what a pipe gives to lines: cut, decoded, and progress bars told apart from lines."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

LINE_MAX = 4096
_CUT = " [cut]"
_ENDS = re.compile(rb"\r?\n|\r")


@dataclass(frozen=True)
class Line:
    """``bar``: ended by a carriage return or not yet at all, so that a later one takes its place."""

    text: str
    bar: bool = False


class Lines:
    """Splits at line feeds and carriage returns. ``whole`` tells of a text without an end that it is a finished bar.

    tqdm writes a carriage return *before* each bar and nothing behind it, so the newest would only be seen when the
    next one comes.
    """

    def __init__(self, whole: Callable[[str], bool], limit: int = LINE_MAX) -> None:
        self._whole = whole
        self._limit = limit
        self._rest = bytearray()
        self._shown = ""

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that ``data`` completes, in order; empty ones are left out."""
        start = 0
        for end in _ENDS.finditer(data):
            self._add(data[start : end.start()])
            start = end.end()
            yield from self._take(bar=end[0] == b"\r")
        self._add(data[start:])
        text = self._text()
        if text and text != self._shown and self._whole(text):
            self._shown = text
            yield Line(text, bar=True)

    def finish(self) -> Iterator[Line]:
        """What is left when nothing more comes."""
        yield from self._take(bar=False)

    def _add(self, piece: bytes) -> None:
        # One byte more than is shown tells that there was more.
        room = self._limit + 1 - len(self._rest)
        self._rest += piece[: max(room, 0)]

    def _text(self) -> str:
        cut = len(self._rest) > self._limit
        text = self._rest[: self._limit].decode("utf-8", "replace").rstrip()
        return text + _CUT if cut else text

    def _take(self, bar: bool) -> Iterator[Line]:
        text = self._text()
        self._rest.clear()
        if text and text != self._shown:
            yield Line(text, bar)
        self._shown = ""
