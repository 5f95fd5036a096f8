"""`lab page NODE`: a host's page for a browser of this machine, whose loopback is not the host's."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.shell import LabError

PORT = 7474
_CLONE_NEWNET = 0x40000000
_CHUNK = 65536


def show(space: Path, port: int, say: Callable[[str], None]) -> None:
    """Pass connections to 127.0.0.1:`port` (0: any that is free) on into the network namespace, until interrupted."""
    try:
        asyncio.run(_serve(space, port, say))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except OSError as error:
        raise LabError(f"page: 127.0.0.1 port {port}: {error.strerror or error}; --port takes another one") from error


async def _serve(space: Path, port: int, say: Callable[[str], None]) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    # Also where a shell has started it in the background, with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    # The thread is moved into the namespace, and no other: a socket stays in the one that it was made in.
    with ThreadPoolExecutor(1, initializer=_enter, initargs=(space,)) as inside:

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                made = await asyncio.get_running_loop().run_in_executor(inside, _connected)
                far_reader, far_writer = await asyncio.open_connection(sock=made)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(reader, far_writer))
                    both.create_task(_copy(far_reader, writer))
            writer.close()

        server = await asyncio.start_server(pass_on, "127.0.0.1", port)
        say(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/  (until Ctrl-C)")
        async with server:
            await server.serve_forever()


def _enter(space: Path) -> None:
    descriptor = os.open(space, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)


def _connected() -> socket.socket:
    return socket.create_connection(("127.0.0.1", PORT), timeout=5)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
