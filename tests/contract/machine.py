"""Several hosts in one process: each a thread with a network namespace and an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.contract.namespace import NETWORK, ip

T = TypeVar("T")
_TENTATIVE = 0x40  # IFA_F_TENTATIVE


class Machine:
    """Its functions run on its thread, and so in its namespace; a blocking one stops its loop meanwhile."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.fail("the tests of the real doors need root: they make network namespaces")
        self.loop = asyncio.new_event_loop()
        up: Future[int] = Future()
        self._thread = threading.Thread(target=self._live, args=(up,), name="machine")
        self._thread.start()
        self.tid = up.result()

    def _live(self, up: Future[int]) -> None:
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(NETWORK) != 0:
                up.set_exception(OSError(ctypes.get_errno(), "no network namespace can be made"))
                return
            up.set_result(threading.get_native_id())
            self.loop.run_forever()
        finally:
            self.loop.close()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    def do(self, function: Callable[[], T]) -> T:
        """Waits for the function, whatever loop it is called in."""

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)

    def ip(self, *commands: str) -> None:
        self.do(lambda: ip(*commands))

    def sysctl(self, name: str, value: str) -> None:
        self.do(lambda: Path("/proc/sys/net", name).write_text(value, "ascii"))

    def cable(self, device: str, other: Machine, other_device: str) -> None:
        """Both ends are new, and up."""
        where = f" netns {other.tid}" if other is not self else ""
        self.ip(f"link add dev {device} type veth peer name {other_device}{where}")
        self.ip(f"link set dev {device} up")
        other.ip(f"link set dev {other_device} up")

    def address(self, device: str, *, tried_out: bool = True) -> str:
        """The device's fe80:: address, which the kernel makes in its own time once there is carrier."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for line in self.do(Path("/proc/thread-self/net/if_inet6").read_text).splitlines():
                digits, _, _, _, flags, name = line.split()
                if name == device and digits.startswith("fe80") and not (tried_out and int(flags, 16) & _TENTATIVE):
                    return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            time.sleep(0.005)
        raise AssertionError(f"{device} has no link-local address")

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


@contextlib.contextmanager
def machines(number: int, *, quick: bool = True) -> Iterator[list[Machine]]:
    """`quick`: addresses may be used at once; by default the kernel tries them out for one or two seconds."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(number):
            machine = Machine()
            stack.callback(machine.end)
            made.append(machine)
            if quick:
                machine.sysctl("ipv6/conf/default/accept_dad", "0")
        yield made
