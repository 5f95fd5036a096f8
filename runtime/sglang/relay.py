"""Standard error without waiting: a journal that is slow must not stop the launcher, and through it the engine."""

import io
import os
import select
import time
from collections import deque

PENDING_MAX = 1 << 20
# What poll(2) reports as writable takes so much at once without blocking, be it a pipe or a socket.
_PIECE = 4096


class Relay(io.TextIOBase):
    """Keeps what cannot be written just now, up to ``limit`` bytes; beyond that it is dropped, and that is said."""

    def __init__(self, descriptor: int = 2, limit: int = PENDING_MAX) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    @property
    def pending(self) -> bool:
        return bool(self._pieces)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "replace")
        if self._dropped and self._size < self._limit // 2:
            self._push(f"{self._dropped} lines were dropped: the log is read too slowly\n".encode())
            self._dropped = 0
        if self._size + len(data) > self._limit or self._dropped:
            self._dropped += 1
        else:
            self._push(data)
        return len(text)

    def _push(self, data: bytes) -> None:
        self._size += len(data)
        self._pieces += [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]

    def flush(self) -> None:
        """Write what can be written now."""
        while self._pieces:
            ready = self._poll.poll(0)
            if not ready or not ready[0][1] & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                return
            try:
                written = os.write(self._descriptor, self._pieces[0])
            except BlockingIOError:
                return
            except OSError:
                # Nobody reads any more; there is nobody to tell.
                self._pieces.clear()
                self._size = 0
                return
            self._size -= written
            if written == len(self._pieces[0]):
                self._pieces.popleft()
            else:
                self._pieces[0] = self._pieces[0][written:]

    def finish(self, seconds: float = 1.0) -> None:
        """Write the rest, for so long at most."""
        end = time.monotonic() + seconds
        while self._pieces and time.monotonic() < end:
            self._poll.poll(50)
            self.flush()
