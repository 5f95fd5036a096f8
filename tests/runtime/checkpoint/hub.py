"""A server that speaks like a hub, on loopback, and goes wrong in the ways in which servers and networks do."""

from __future__ import annotations

import hashlib
import http.server
import itertools
import json
import socket
import struct
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = "maker/model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 4096
"""From how many bytes on a file is in the hub's large store."""
STEP = 1 << 20


@dataclass
class Fault:
    """What goes wrong with the next `times` answers for a file whose name ends in `name`.

    kind: reset (after `after` bytes), short (a clean end there), status (`status`, with `headers`), length (the file
    seems to have `after` bytes more), whole (ranges are ignored), etag (each answer has another one), flip (one byte
    differs), stall (nothing comes), redirect (to `target`).
    """

    kind: str
    name: str = ""
    times: int = 1
    after: int = 0
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    target: str = ""


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    range: str
    if_range: str
    authorization: str


class Hub(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, directory: Path, *faults: Fault, token: str = "") -> None:
        self.directory, self.token = directory, token
        self.faults = list(faults)
        self.asked: list[Asked] = []
        self.versions = itertools.count()
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.served = 0
        self.revision = COMMIT
        self.now, self.most = 0, 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, name: str) -> Fault | None:
        """The fault that is next for a file."""
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and name.endswith(fault.name):
                    fault.times -= 1
                    return fault
        return None

    def names(self) -> list[str]:
        return sorted(
            path.relative_to(self.directory).as_posix()
            for path in self.directory.rglob("*")
            if path.is_file() and ".sparkd" not in path.parts
        )

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is a part of the tests."""


@contextmanager
def running(directory: Path, *faults: Fault, token: str = "") -> Iterator[Hub]:
    """Ends with no thread of it left."""
    hub = Hub(directory, *faults, token=token)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        with self.server.lock:
            self.server.asked.append(
                Asked(path, self.headers.get("Range", ""), self.headers.get("If-Range", ""),
                      self.headers.get("Authorization", ""))
            )  # fmt: skip
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._end(401)
        elif path.startswith(f"/api/models/{REPOSITORY}/revision/"):
            self._end(200, json.dumps(self._listing()).encode())
        else:
            name = path.partition(f"/{self.server.revision}/")[2] or path.removeprefix("/")
            if (self.server.directory / name).is_file():
                self._file(name)
            else:
                self._end(404)

    def _listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name in self.server.names():
            path = self.server.directory / name
            size = path.stat().st_size
            each: dict[str, object] = {"rfilename": name, "size": size}
            if size >= LARGE:
                with path.open("rb") as file:
                    each["lfs"] = {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "size": size}
            else:
                blob = b"blob %d\0" % size + path.read_bytes()
                each["blobId"] = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
            siblings.append(each)
        return {"sha": self.server.revision, "siblings": siblings}

    def _file(self, name: str) -> None:
        fault = self.server.take(name)
        kind = fault.kind if fault else ""
        if fault and kind == "status":
            self._end(fault.status, headers=fault.headers)
            return
        if fault and kind == "redirect":
            self._end(302, headers={"Location": f"{fault.target}/{urllib.parse.quote(name)}"})
            return
        if kind == "stall":
            self.server.released.wait(30)
            return
        path = self.server.directory / name
        there = path.stat()
        etag = f'"{there.st_size:x}-{there.st_mtime_ns:x}"'
        if kind == "etag":
            etag = f'"{next(self.server.versions)}"'
        size = there.st_size + (fault.after if fault and kind == "length" else 0)
        first, end, status = 0, there.st_size, 200
        asked = self.headers.get("Range", "")
        if asked and kind != "whole" and self.headers.get("If-Range", etag) == etag:
            begin, _, last = asked.removeprefix("bytes=").partition("-")
            if int(begin) >= size:
                self._end(416, headers={"Content-Range": f"bytes */{size}"})
                return
            first, end, status = int(begin), min(int(last) + 1, there.st_size), 206
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str((end - first) if status == 206 else size))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
        self.end_headers()
        if fault and kind in ("reset", "short"):
            end = min(first + fault.after, end)
        with self.server.lock:
            self.server.served += end - first
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            self._send(path, first, end, flip=kind == "flip")
        finally:
            with self.server.lock:
                self.server.now -= 1
        if kind == "reset":
            # With this option, closing sends a reset instead of an end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if kind:
            self.close_connection = True

    def _send(self, path: Path, first: int, end: int, *, flip: bool) -> None:
        with path.open("rb") as file:
            file.seek(first)
            while first < end and (data := bytearray(file.read(min(end - first, STEP)))):
                if flip:
                    data[0] ^= 1
                self.wfile.write(data)
                first += len(data)

    def _end(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""
