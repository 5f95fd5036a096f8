"""A server of files on loopback that costs as little as one can: ranges, and `sendfile`. For measuring alone."""

from __future__ import annotations

import http.server
import os
import sys
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    """Of the files below the directory that is named on the command line."""

    protocol_version = "HTTP/1.1"
    directory = Path()

    def do_GET(self) -> None:
        with (self.directory / self.path.lstrip("/")).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, end, status = 0, size, 200
            if asked := self.headers.get("Range"):
                begin, _, last = asked.removeprefix("bytes=").partition("-")
                first, end, status = int(begin), min(int(last) + 1, size), 206
            self.send_response(status)
            self.send_header("ETag", f'"{size}"')
            self.send_header("Content-Length", str(end - first))
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
            self.end_headers()
            self.wfile.flush()
            while first < end:
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, min(end - first, 1 << 24))

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def main() -> None:
    Handler.directory = Path(sys.argv[1])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
