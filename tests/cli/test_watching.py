"""status --watch on a terminal: in place, over a restart of the daemon and another size, and nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import socketserver
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from sparkd.cli.client import Client
from tests.cli.fakes import FakeRing
from tests.cli.test_show import COMMAND

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Watched:
    """A command on a terminal of its own, with all that it has written."""

    def __init__(self, columns: int, lines: int, *arguments: str) -> None:
        self.leader, follower = pty.openpty()
        self.resize(columns, lines)
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        environment |= {"TERM": "xterm", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        self.before = termios.tcgetattr(follower)
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT,TERM", *COMMAND, *arguments],
            stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True,
        )  # fmt: skip
        self.follower = follower
        self.out = ""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while part := os.read(self.leader, 65536):
                self.out += part.decode("utf-8", errors="replace")

    def until(self, holds: Callable[[], object], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.out
            time.sleep(0.02)

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.close()
        return code

    def close(self) -> None:
        """Once it has ended."""
        if self.leader < 0:
            return
        assert termios.tcgetattr(self.follower) == self.before
        os.close(self.follower)
        self._thread.join(20)
        os.close(self.leader)
        self.leader = -1


@contextmanager
def watching(socket: Path, columns: int = 80, lines: int = 24) -> Iterator[Watched]:
    watched = Watched(columns, lines, "status", "--watch", "--socket", str(socket))
    try:
        yield watched
    finally:
        if watched.process.poll() is None:
            watched.end()
        watched.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 130), (signal.SIGHUP, 130)])
def test_the_terminal_is_left_as_it_was(number: int, code: int, ring: FakeRing, tmp_path: Path) -> None:
    with watching(tmp_path / "api.sock") as watched:
        watched.until(lambda: "nobody has asked" in watched.out)
        assert watched.end(number) == code
    assert watched.out.startswith(ENTER)
    assert watched.out.rstrip("\r\n").endswith(LEAVE)


def test_only_what_has_changed_is_written(ring: FakeRing, tmp_path: Path) -> None:
    with watching(tmp_path / "api.sock") as watched:
        watched.until(lambda: "nobody has asked" in watched.out)
        looks = len(ring.asked)
        watched.until(lambda: len(ring.asked) > looks + 2)
        seen = len(watched.out)
        ring.summary = "something else"
        watched.until(lambda: "something else" in watched.out)
        news = watched.out[seen:]
    assert "\x1b[2J" not in news
    assert len(re.findall(r"\x1b\[\d+;1H", news)) == 1, news
    assert news.startswith("\x1b[?2026h\x1b[1;1H")


def test_a_daemon_that_is_restarted(ring: FakeRing, tmp_path: Path) -> None:
    with watching(tmp_path / "api.sock") as watched:
        watched.until(lambda: "nobody has asked" in watched.out)
        ring.drop = 2
        watched.until(lambda: "trying again: " in watched.out)
        ring.summary = "it is back"
        watched.until(lambda: "it is back" in watched.out)
        assert watched.process.poll() is None


def test_a_terminal_that_gets_another_size(ring: FakeRing, tmp_path: Path) -> None:
    ring.summary = "x " * 60
    with watching(tmp_path / "api.sock", 100, 40) as watched:
        watched.until(lambda: "sparkd-rank" in watched.out or "Rank  node" in watched.out)
        seen = len(watched.out)
        watched.resize(50, 10)
        watched.until(lambda: "\x1b[10;1H" in watched.out[seen:])
        time.sleep(0.2)
        drawn = watched.out[seen:]
    rows = re.findall(r"\x1b\[(\d+);1H([^\x1b]*)", drawn)
    assert {int(row) for row, text in rows if text} <= set(range(1, 11))
    assert max(len(text) for _, text in rows) <= 50


def test_what_does_not_mend_itself_ends_it(tmp_path: Path) -> None:
    """The terminal is back before the sentence is written."""
    socket = tmp_path / "api.sock"
    with watching(socket) as watched:
        assert watched.process.wait(20) in (5, 7)
        watched.until(lambda: "hint: " in watched.out)
        assert watched.out.index(LEAVE) < watched.out.index("sparkctl: ")


@pytest.fixture
def events(tmp_path: Path) -> Iterator[tuple[Path, Callable[[bytes], None]]]:
    """A socket whose /v1/events is a stream, and what sends a line on it."""
    path, gone, streams = tmp_path / "events.sock", threading.Event(), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.headers["Accept"].startswith("text/event-stream")
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            streams.append(self.wfile)
            gone.wait(20)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's stderr clean."""

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = False

    def send(line: bytes) -> None:
        while not streams:
            time.sleep(0.01)
        streams[0].write(line)

    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield path, send
        finally:
            gone.set()
            server.shutdown()
            thread.join()


def test_events_are_a_reason_to_look(events: tuple[Path, Callable[[bytes], None]]) -> None:
    path, send = events
    send_later = threading.Timer(0.1, lambda: (send(b": keep\n\n"), send(b"id: 8\ndata: {}\n\n")))
    send_later.start()
    with Client(path).stream("/v1/events") as stream:
        assert stream is not None
        lines = [stream.readline() for _ in range(4)]
    send_later.join()
    assert lines == [b": keep\n", b"\n", b"id: 8\n", b"data: {}\n"]


def test_a_daemon_without_a_stream_is_polled(ring: FakeRing, tmp_path: Path) -> None:
    client = Client(tmp_path / "api.sock")
    with client.stream("/v1/ring") as stream:
        assert stream is None
    told, tag = client.news("/v1/ring", '"x"')
    assert told is not None
    assert (told["epoch"], tag) == (7, "")
