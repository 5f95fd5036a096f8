"""A program for a host of the lab: asks for a path at a steady rate, and prints how long each answer took.

    python3 -c PROGRAM ask WHERE PATH RATE SECONDS     WHERE: a Unix socket's path, or a port of 127.0.0.1
    python3 -c PROGRAM bare PORT BYTES                 serves that many bytes with uvicorn alone, until stdin ends

Times count from when a request was due, not from when it was sent: an answer that is late delays the next request, and
the callers that it stands for would have waited.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any


def ask(where: str, path: str, rate: float, seconds: float) -> list[float]:
    """Milliseconds of each answer, over one kept connection. Raises OSError or ValueError if one is not good."""
    times = []
    with _connected(where) as sock:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        _exchange(sock, request)  # the first one has the application made
        begin = time.perf_counter()
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            _exchange(sock, request)
            times.append((time.perf_counter() - due) * 1000)
    return times


def _connected(where: str) -> socket.socket:
    if where.isdigit():
        return socket.create_connection(("127.0.0.1", int(where)), 10)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    sock.connect(where)
    return sock


def _exchange(sock: socket.socket, request: bytes) -> None:
    sock.sendall(request)
    back = sock.recv(65536)
    while b"\r\n\r\n" not in back:
        back += _more(sock)
    head, _, body = back.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError(head.decode("latin-1"))
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = int(lengths[0].partition(b":")[2]) - len(body)
    while missing > 0:
        missing -= len(_more(sock))


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise OSError("the connection has ended")
    return data


async def bare(port: int, size: int) -> None:
    import uvicorn

    body = b"x" * size
    headers = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    sock = socket.create_server(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or each answer waits for a delayed acknowledgement
    config = uvicorn.Config(app, lifespan="off", log_level="critical", http="h11", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    print("up", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(bare(int(sys.argv[2]), int(sys.argv[3])))
    else:
        print(json.dumps(ask(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))))
