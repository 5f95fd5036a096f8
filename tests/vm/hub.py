"""The management network: whatever a machine sends comes out at all others, and never at itself."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

SEND_SECONDS = 0.2
"""A machine whose queue stays full for so long is paused or off, and must not hold up the others."""


def serve(ports: Mapping[Path, Path]) -> None:
    """Forward frames until killed. `ports`: the socket of the machine by the hub's socket for it."""
    sockets = {_bound(own): machine for own, machine in ports.items()}
    silent: set[Path] = set()
    waiting = select.poll()
    by_descriptor = {each.fileno(): each for each in sockets}
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in waiting.poll():
            origin = by_descriptor[descriptor]
            frame = origin.recv(65536)
            silent.discard(sockets[origin])
            for machine in sockets.values():
                if machine != sockets[origin] and machine not in silent:
                    _send(origin, frame, machine, silent)


def _send(origin: socket.socket, frame: bytes, machine: Path, silent: set[Path]) -> None:
    try:
        origin.sendto(frame, str(machine))
    except BlockingIOError:
        # It is heard again as soon as it sends something.
        silent.add(machine)
    except (FileNotFoundError, ConnectionRefusedError):
        pass  # it is not there (yet)


def _bound(path: Path) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(path))
    # A queue of the kernel takes few frames; waiting is what a full switch makes its senders do.
    whole, part = divmod(SEND_SECONDS, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(whole), int(part * 1e6)))
    return made
