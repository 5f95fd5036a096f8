"""What reaches the journal's socket, read as journald reads it, and what becomes of it where there is none."""

from __future__ import annotations

import io
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from sparkd.host.journal import JournalHandler, to_journal


class Journal:
    """A journal's socket. `entries` raises where journald would drop the entry or read other fields."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def entries(self) -> list[dict[str, str]]:
        found = []
        while True:
            try:
                found.append(parse(self._socket.recv(1 << 20)))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


def parse(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", rest[:8])
            value, end, rest = rest[8 : 8 + length], rest[8 + length : 9 + length], rest[9 + length :]
            assert len(value) == length and end == b"\n"
        key = name.decode("ascii")
        assert key == key.upper() and key.replace("_", "").isalnum() and not key.startswith("_"), key
        assert key not in fields
        fields[key] = value.decode()
        data = rest
    return fields


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "socket")
    yield made
    made.close()


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "stderr").open("w+") as made:
        yield made


def environment(stream: TextIO) -> dict[str, str]:
    found = os.fstat(stream.fileno())
    return {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}


def written(stream: TextIO) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def say(handler: logging.Handler, text: str, level: int = logging.INFO, **journal: str) -> None:
    record = logging.LogRecord("sparkd", level, "/x/loop.py", 7, "%s", (text,), None)
    if journal:
        record.journal = journal
    handler.handle(record)
    handler.close()


def test_an_entry_has_its_fields(journal: Journal, stream: TextIO) -> None:
    handler = to_journal(stream, environment(stream), str(journal.path))
    say(handler, "epoch 8 is ready", SPARKD_EPOCH="8", MESSAGE_ID="0" * 32)
    (entry,) = journal.entries()
    assert entry == {
        "MESSAGE": "epoch 8 is ready",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "sparkd",
        "CODE_FILE": "/x/loop.py",
        "CODE_LINE": "7",
        "SPARKD_EPOCH": "8",
        "MESSAGE_ID": "0" * 32,
    }
    assert written(stream) == ""


def test_line_breaks_make_no_fields(journal: Journal, stream: TextIO) -> None:
    handler = to_journal(stream, environment(stream), str(journal.path))
    hostile = "an error\nPRIORITY=0\n_UID=0\n\n"
    say(handler, hostile, logging.ERROR, SPARKD_FIX=hostile)
    (entry,) = journal.entries()
    assert (entry["MESSAGE"], entry["SPARKD_FIX"], entry["PRIORITY"]) == (hostile, hostile, "3")


def test_what_is_too_long_is_cut_and_not_lost(journal: Journal, stream: TextIO) -> None:
    handler = to_journal(stream, environment(stream), str(journal.path))
    say(handler, "x" * 10_000_000, logging.WARNING, SPARKD_FIX="y" * 10_000_000)
    (entry,) = journal.entries()
    assert entry["PRIORITY"] == "4"
    assert set(entry["MESSAGE"]) == {"x"} and 1000 < len(entry["MESSAGE"]) < 100_000


def test_a_journal_that_does_not_listen_or_is_full_is_not_waited_for(journal: Journal, stream: TextIO) -> None:
    handler = to_journal(stream, environment(stream), str(journal.path))
    for number in range(2000):
        handler.handle(logging.LogRecord("sparkd", logging.INFO, "", 0, "line %d", (number,), None))
    taken = len(journal.entries())
    assert 0 < taken < 2000
    assert written(stream).splitlines()[0] == f"<6>line {taken}"
    journal.path.unlink()
    say(handler, "two\nlines", logging.ERROR)
    assert written(stream).splitlines()[-2:] == ["<3>two", "<3>lines"]


def test_output_that_goes_elsewhere_is_plain_text(journal: Journal, stream: TextIO) -> None:
    """As of a daemon in a terminal, started from a shell whose own output goes to the journal."""
    handler = to_journal(stream, {"JOURNAL_STREAM": "1:2"}, str(journal.path))
    say(handler, "hello", logging.ERROR)
    assert journal.entries() == []
    assert written(stream) == "hello\n"
    assert not isinstance(to_journal(io.StringIO(), environment(stream), str(journal.path)), JournalHandler)


def test_without_a_native_socket_the_stream_keeps_its_priorities(tmp_path: Path, stream: TextIO) -> None:
    handler = to_journal(stream, environment(stream), str(tmp_path / "none"))
    say(handler, "hello", logging.WARNING)
    assert written(stream) == "<4>hello\n"


def test_the_words_of_an_entry_are_the_line_and_no_more(journal: Journal, stream: TextIO) -> None:
    """basicConfig puts level and logger before the words of a handler that has no format of its own."""
    handler = to_journal(stream, environment(stream), str(journal.path))
    assert handler.formatter is not None
    say(handler, "hello")
    assert [entry["MESSAGE"] for entry in journal.entries()] == ["hello"]
