"""The kernel's log, record by record as it grows: /dev/kmsg (Documentation/ABI/testing/dev-kmsg of the kernel)."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

_RECORD = 8192  # bytes; the kernel cuts a record off below that
_TURN = 64  # records at a time, so that a full buffer of some thousand holds nothing up


class KernelLog:
    """Costs nothing while the kernel says nothing. `path` is another file in tests."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._path = path
        self._descriptor = -1
        self._tell: Callable[[str, bool], None] = lambda text, new: None
        self._new = False

    def follow(self, tell: Callable[[str, bool], None]) -> str:
        """`tell(text, new)` for each of the kernel's own messages since the boot; `new` is False for those that were
        there before. Returns why it cannot be, or "".
        """
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        self._tell = tell
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        except PermissionError:
            os.close(self._descriptor)
            self._descriptor = -1
            return f"{self._path}: not the kernel's log but a file that never has news"
        return ""

    def close(self) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        for _ in range(_TURN):
            try:
                record = os.read(self._descriptor, _RECORD)
            except BlockingIOError:
                self._new = True
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # records were overwritten before they were read; the next one is the oldest there is
                self.close()
                return
            if not record:
                self.close()
                return
            if (text := message(record)) is not None:
                self._tell(text, self._new)


def message(record: bytes) -> str | None:
    """The text of a record; None if it is not the kernel's own: whoever may write to /dev/kmsg can say anything."""
    prefix, semicolon, rest = record.partition(b";")
    try:
        facility = int(prefix.split(b",", 1)[0]) >> 3
    except ValueError:
        return None
    if not semicolon or facility:
        return None
    # What follows on lines of their own are the record's properties.
    return rest.split(b"\n", 1)[0].decode(errors="replace")
