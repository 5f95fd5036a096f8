"""A network or mount namespace for one function.

It belongs to the thread that runs the function and goes with it, so that nothing has to be removed, also after a kill.
Threads and children that the function starts are in it too.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable

import pytest

NETWORK = 0x40000000  # CLONE_NEWNET
MOUNTS = 0x00020000  # CLONE_NEWNS


def inside(function: Callable[[], None], kinds: int = NETWORK) -> None:
    """Runs the function in new namespaces of these kinds, and raises what it raises."""
    if os.geteuid() != 0:
        pytest.fail("the tests of the real doors need root: they make network namespaces and a systemd of their own")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(kinds) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            function()
        except BaseException as error:  # noqa: BLE001 - carried over to the test's own thread
            raised.append(error)

    thread = threading.Thread(target=run, name="namespace")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def ip(*commands: str) -> None:
    """iproute2 commands without the leading `ip`, as one batch."""
    batch = "\n".join(commands)
    done = subprocess.run(["ip", "-batch", "-"], input=batch, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{batch}\n{done.stderr}"
