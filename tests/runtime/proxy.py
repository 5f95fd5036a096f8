"""A connection's wire in the hands of a test: passes bytes on until it is told to swallow or to bend them."""

import contextlib
import selectors
import socket
import threading
from types import TracebackType


class Wire:
    """Connects ``(low, listening port)`` with whoever comes to ``(low, rail port)``, speaking from ``high``.

    Loopback lets anyone use any address of 127/8, so both ends see the addresses of a direct cable. What is
    swallowed is gone without a trace, the end of a stream too, as on a network that drops every frame.
    """

    def __init__(self, low: str, high: str, rail_port: int, listening_port: int) -> None:
        self._high = high
        self._target = (low, listening_port)
        self._server = socket.create_server((low, rail_port))
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.swallow = threading.Event()
        self.bend = threading.Event()

    def __enter__(self) -> "Wire":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.close()
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._woken.close()
        self._server.close()

    def _run(self) -> None:
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._server:
                        self._join(stack, selector)
                    else:
                        self._pass_on(selector, key)

    def _join(self, stack: contextlib.ExitStack, selector: selectors.BaseSelector) -> None:
        near, _ = self._server.accept()
        stack.enter_context(near)
        try:
            far = stack.enter_context(socket.create_connection(self._target, source_address=(self._high, 0)))
        except OSError:
            near.close()
            return
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)

    def _pass_on(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        source, sink = key.fileobj, key.data
        assert isinstance(source, socket.socket)
        try:
            data = bytearray(source.recv(65536))
            if self.swallow.is_set():
                if not data:
                    selector.unregister(source)
                return
            if self.bend.is_set() and len(data) > 100:
                data[-1] ^= 1
            if data:
                sink.sendall(data)
        except OSError:
            data = bytearray()
        if not data:
            selector.unregister(source)
            if self.swallow.is_set():
                return
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
