"""A terminal taken for as long as something is watched on it, and left as it was found, however that ends."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType, TracebackType
from typing import IO

from sparkd.cli.client import Client
from sparkd.cli.failure import Failure

# The alternate screen keeps what was there before; the cursor would jump about.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J", "\x1b[?25h\x1b[?1049l"
# The terminal shows nothing of a frame before it is whole, if it knows of that (mode 2026).
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None]
_QUIET = 60.0  # seconds without a word on a stream of events, after which it is asked for anew
_RETRY = 5.0  # seconds until events are tried again


class Pipe:
    """Wakes who waits, from a signal's handler as from another thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def wake(self) -> None:
        # Full: it is awake already. Closed: nobody waits any more.
        with contextlib.suppress(OSError):
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> None:
        select.select([self._read], [], [], max(seconds, 0.0))
        with contextlib.suppress(OSError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        # Its number may soon be another file's, and the thread of the events may still be about to write.
        write, self._write = self._write, -1
        os.close(self._read)
        os.close(write)


class Ended(Exception):
    """The process was told to end; the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Terminal:
    """Draws frames on the stream while it is entered. woken: called when the terminal has another size."""

    def __init__(self, stream: IO[str], woken: Callable[[], None]) -> None:
        self._stream = stream
        self._woken = woken
        self._before: dict[signal.Signals, object] = {}
        self._shown: list[str] = []

    def __enter__(self) -> Terminal:
        handlers: dict[signal.Signals, Handler] = {signal.SIGWINCH: self._resized, signal.SIGTSTP: self._suspended}
        for number in _ENDING:
            handlers[number] = self._ended
        for number, handler in handlers.items():
            self._before[number] = signal.signal(number, handler)
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        # A terminal that is gone needs nothing.
        with contextlib.suppress(OSError):
            self._write(_LEAVE)

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        columns, lines = shutil.get_terminal_size((80, 24))
        with contextlib.suppress(OSError, ValueError):
            columns, lines = os.get_terminal_size(self._stream.fileno())
        return max(columns, 20), max(lines, 5)

    def draw(self, lines: list[str]) -> None:
        """Show these; only the lines that differ are written, so that nothing flickers."""
        _, height = self.size()
        lines = lines[:height]
        out = []
        for row in range(max(len(lines), len(self._shown))):
            line = lines[row] if row < len(lines) else ""
            if row >= len(self._shown) or line != self._shown[row]:
                out.append(f"\x1b[{row + 1};1H{line}\x1b[K")
        self._shown = lines
        if out:
            self._write(f"{_BEGIN}{''.join(out)}{_END}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        # A terminal moves what it shows when it gets another width.
        self._shown = []
        self._woken()

    def _ended(self, number: int, _frame: FrameType | None) -> None:
        raise Ended(number)

    def _suspended(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its screen, and the frame is drawn anew after `fg`."""
        self._write(_LEAVE)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._write(_ENTER)
        self._shown = []
        self._woken()


@contextlib.contextmanager
def events_wake(client: Client, woken: Callable[[], None]) -> Iterator[None]:
    """`woken` is called whenever the daemon has an event to tell, for as long as it streams them; a daemon that does
    not, or that is being restarted, is asked again in a while."""
    stop = threading.Event()
    client = replace(client, timeout=_QUIET)
    thread = threading.Thread(target=_listen, args=(client, woken, stop), name="events", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()


def _listen(client: Client, woken: Callable[[], None], stop: threading.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(Failure, ValueError), client.stream("/v1/events") as stream:
            while stream is not None and not stop.is_set():
                line = stream.readline()
                if not line:
                    break
                if line.startswith(b"data:"):
                    woken()
        stop.wait(_RETRY)
