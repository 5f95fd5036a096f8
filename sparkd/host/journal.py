"""The daemon's log: structured lines in the journal, or plain text on standard error where there is no journal.

The socket and its format are systemd's own (JOURNAL_NATIVE_PROTOCOL): a datagram of fields. python3-systemd has them
too, for 27 ms of imports, uuid and its search for a machine's addresses among them; this is a socket that is open.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

SOCKET = "/run/systemd/journal/socket"
# A datagram has to fit into the socket's buffer, of 208 KiB by default; what is longer would need a memory file.
_FIELD = 16 * 1024


def to_journal(stream: TextIO, environment: Mapping[str, str], path: str = SOCKET) -> logging.Handler:
    """The handler to log with: the journal's if that is what `stream` is connected to."""
    plain = logging.StreamHandler(stream)
    if not leads_to_journal(stream, environment):
        plain.setFormatter(logging.Formatter("%(message)s"))
        return plain
    plain.setFormatter(_Priority())
    return JournalHandler(plain, path) if Path(path).exists() else plain


def leads_to_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether JOURNAL_STREAM names this stream: it is inherited by those too whose output goes elsewhere."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM", "") == f"{found.st_dev}:{found.st_ino}"


class JournalHandler(logging.Handler):
    """Sends each record as one entry, with the fields of its attribute `journal`, given as `extra`, if it has one.

    It never waits: what the journal does not take at once goes to `fallback`.
    """

    def __init__(self, fallback: logging.Handler, path: str = SOCKET) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # or basicConfig gives it one
        self._fallback = fallback
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def emit(self, record: logging.LogRecord) -> None:
        given: Mapping[str, str] = getattr(record, "journal", {})
        entry = {
            "MESSAGE": self.format(record),
            "PRIORITY": str(priority(record)),
            "SYSLOG_IDENTIFIER": "sparkd",
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            **given,
        }
        try:
            # Not connected: the journal may be restarted, and its socket is another one then.
            self._socket.sendto(encode(entry), socket.MSG_DONTWAIT, self._path)
        except OSError:
            self._fallback.handle(record)

    def close(self) -> None:
        self._socket.close()
        super().close()


def encode(entry: Mapping[str, str]) -> bytes:
    """A value with a line break comes with its length, or it would begin fields of its own."""
    data = bytearray()
    for name, text in entry.items():
        value = text.encode("utf-8", "replace")[:_FIELD]
        if b"\n" in value:
            data += name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
        else:
            data += name.encode() + b"=" + value + b"\n"
    return bytes(data)


def priority(record: logging.LogRecord) -> int:
    """As syslog(3) counts them."""
    return 3 if record.levelno >= logging.ERROR else 4 if record.levelno >= logging.WARNING else 6


class _Priority(logging.Formatter):
    """The journal reads a line's priority from `<N>` at its start (sd-daemon(3))."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(f"<{priority(record)}>{line}" for line in super().format(record).splitlines())
