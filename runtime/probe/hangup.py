"""Rails that the far end's kernel closed, noticed at once and without reading from them."""

import asyncio
import select
from collections.abc import Callable

from runtime.probe.wire import Channel


class Hangups:
    """Calls back once for each watched channel whose far end is gone; use as a context manager.

    The event loop tells only that there is something to read, and between two canaries nobody reads a rail. An
    epoll set of its own waits for the end of the stream alone, which the kernel tells even behind unread data.
    """

    def __init__(self) -> None:
        self._set = select.epoll()
        self._callbacks: dict[int, Callable[[str], None]] = {}

    def __enter__(self) -> "Hangups":
        # An epoll set is itself readable while one of its members has something to tell.
        asyncio.get_running_loop().add_reader(self._set.fileno(), self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._set.fileno())
        self._set.close()

    def watch(self, channel: Channel, callback: Callable[[str], None]) -> None:
        """``callback`` is told in a few words how ``channel`` ended."""
        self._callbacks[channel.fileno()] = callback
        self._set.register(channel.fileno(), select.EPOLLRDHUP)

    def _wake(self) -> None:
        for number, events in self._set.poll(0):
            # Reported until somebody reads it, which may be never.
            self._set.unregister(number)
            reset = events & select.EPOLLERR
            self._callbacks.pop(number)("reset the connection" if reset else "closed the connection")
