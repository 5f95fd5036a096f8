"""This host's copy for its peers: read-only, over mutual TLS with the cluster's certificates, verified files only."""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import json
import re
import socket
import socketserver
import ssl
import threading
import urllib.parse
from http import HTTPStatus
from pathlib import Path

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint import receipts
from runtime.checkpoint.manifest import Manifest
from runtime.trouble import Trouble

PORT = 7480
CONNECTIONS = 64
"""At once; more are told to come again."""
IDLE = 60.0
CHUNK = 1 << 20
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """One address. `shutdown` ends it, and answers under way are cut."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, checkpoint: Path, address: str, port: int, context: ssl.SSLContext) -> None:
        """Raises Trouble for a copy without a manifest, and for an address that is not one of a single network."""
        where = ipaddress.ip_address(address)
        if where.is_unspecified or where.is_global or where.is_multicast:
            raise Trouble(
                f"--listen {address}: expected an address of the fabric, as `sparkctl plan` lists them",
                "a copy is served on the links between the Sparks, not on every network that this host is in",
            )
        self.checkpoint = checkpoint
        self.manifest: Manifest = manifests.load(checkpoint)
        self.context = context
        self.places = threading.BoundedSemaphore(CONNECTIONS)
        self.address_family = socket.AF_INET6 if where.version == 6 else socket.AF_INET
        try:
            super().__init__((address, port), _Handler)
        except OSError as error:
            raise Trouble(
                f"{address} port {port}: {error.strerror}", "is the fabric set up, and the port free?"
            ) from error

    def verified(self, name: str) -> bool:
        """Looked up anew for each request: a file may be replaced while others are served."""
        entry = self.manifest.files.get(name)
        receipt = receipts.load(self.checkpoint).get(name)
        if entry is None or receipt is None:
            return False
        with contextlib.suppress(OSError):
            return receipt == receipts.of_file(self.checkpoint / name, entry.sha256)
        return False

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that hangs up, or one without a certificate, is no event."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = IDLE

    def setup(self) -> None:
        # Here, in the connection's own thread: a caller that never finishes the handshake holds up nobody.
        self.request.settimeout(IDLE)
        self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        with contextlib.suppress(OSError):
            self.request.close()

    def do_GET(self) -> None:
        if not self.server.places.acquire(blocking=False):
            self._text(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections", {"Retry-After": "1"})
            return
        try:
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            if path == "/manifest":
                self._text(HTTPStatus.OK, json.dumps(self.server.manifest.as_json()))
            elif path.startswith("/files/") and path.removeprefix("/files/") in self.server.manifest.files:
                self._file(path.removeprefix("/files/"))
            else:
                self._text(HTTPStatus.NOT_FOUND, "no such file in the manifest")
        finally:
            self.server.places.release()

    def _file(self, name: str) -> None:
        entry = self.server.manifest.files[name]
        if not self.server.verified(name):
            self._text(HTTPStatus.CONFLICT, f"{name} is not verified here: run sparkd-engine model verify on this host")
            return
        etag = f'"{entry.sha256}"'
        first, end, status = 0, entry.size, HTTPStatus.OK
        if (asked := self.headers.get("Range")) and self.headers.get("If-Range", etag) == etag:
            match = _RANGE.fullmatch(asked.strip())
            if match is None or int(match[1]) >= entry.size or (match[2] and int(match[2]) < int(match[1])):
                self._text(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    "no such range",
                    {"Content-Range": f"bytes */{entry.size}"},
                )
                return
            first, end = int(match[1]), min(int(match[2]) + 1 if match[2] else entry.size, entry.size)
            status = HTTPStatus.PARTIAL_CONTENT
        with (self.server.checkpoint / name).open("rb", buffering=0) as file:
            self.send_response(status)
            self.send_header("ETag", etag)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(end - first))
            if status is HTTPStatus.PARTIAL_CONTENT:
                self.send_header("Content-Range", f"bytes {first}-{end - 1}/{entry.size}")
            self.end_headers()
            file.seek(first)
            buffer = memoryview(bytearray(CHUNK))
            while first < end and (size := file.readinto(buffer[: min(CHUNK, end - first)])):
                self.wfile.write(buffer[:size])
                first += size
            self.close_connection = self.close_connection or first < end

    def _text(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """What was asked is not worth a line."""

    def version_string(self) -> str:
        return "sparkd-engine"
