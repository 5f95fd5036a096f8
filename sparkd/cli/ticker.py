"""What a waiting command tells meanwhile: one line that changes on a terminal, new sentences elsewhere."""

from __future__ import annotations

import re
from types import TracebackType
from typing import IO

from sparkd.cli.text import say, terminal_columns

# Of a countdown or a progress; `port 0`, `rank 1`, `spark1`, an address or a device name another thing with each digit.
_NUMBER = re.compile(r"(?<![\w./:~@-])(?<!port )(?<!rank )(?<!epoch )\d+(?:[./]\d+)?(?![\w:~@-]|[./]\d)")


class Ticker:
    """Tells on the stream. told: a sentence that the reader has already."""

    def __init__(self, stream: IO[str], told: str = "") -> None:
        self._stream = stream
        self._columns = terminal_columns(stream)
        self._shape = shape(told)
        self._pending = ""

    def __enter__(self) -> Ticker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the last sentence whole, with its line ended."""
        if self._pending:
            self._write(f"\r\x1b[K{self._pending}\n")

    def tell(self, seconds: float, sentence: str) -> None:
        """What is so after so many seconds of waiting."""
        line = _stamped(seconds, sentence)
        if self._columns is not None:
            # A character in the last column would leave the cursor where some terminals wrap at the next write.
            room = self._columns - 1
            self._write(f"\r{line if len(line) <= room else f'{line[: room - 3]}...'}\x1b[K")
            self._pending = line
        elif shape(sentence) != self._shape:
            say(line, self._stream)
        self._shape = shape(sentence)

    def note(self, seconds: float, sentence: str) -> None:
        """What has happened once, on a line of its own that stays."""
        line = _stamped(seconds, sentence)
        self._write(f"\r\x1b[K{line}\n" if self._columns is not None else f"{line}\n")
        self._pending = ""

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def shape(sentence: str) -> str:
    """The sentence without the numbers that stand alone in it; digits in names stay."""
    return _NUMBER.sub("#", sentence)


def _stamped(seconds: float, sentence: str) -> str:
    return f"{seconds:7.1f} s  {sentence}"
