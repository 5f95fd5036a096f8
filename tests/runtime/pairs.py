"""Connected channels inside one process."""

import contextlib
import socket
from collections.abc import Iterator

from runtime.probe.wire import Channel

PATIENCE = 10.0


@contextlib.contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one TCP connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        yield near, far


@contextlib.contextmanager
def channel_pair() -> Iterator[tuple[Channel, Channel]]:
    """Two ends of one connection as channels."""
    with socket_pair() as (near, far):
        yield Channel(near), Channel(far)
