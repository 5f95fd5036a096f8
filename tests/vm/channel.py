"""Commands in a guest, over one of its virtio ports; the guest's side is agent.py."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from tests.lab.shell import LabError, tail
from tests.vm.layout import CHANNELS, Places

Take = Callable[[str, bytes], None]


def run(
    places: Places,
    node: str,
    argv: Sequence[str],
    *,
    check: bool = True,
    timeout: float | None = 60,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command on a node, as root, with its output captured.

    Raises LabError if the guest does not take it, it outlives `timeout` seconds, or (with `check`) fails.
    """
    said: dict[str, bytes] = {"out": b"", "err": b""}

    def take(stream: str, data: bytes) -> None:
        said[stream] += data

    status = stream(places, node, argv, take, timeout=timeout, stdin=stdin)
    out, err = (said[name].decode(errors="replace") for name in ("out", "err"))
    if check and status != 0:
        raise LabError(f"{node}: {' '.join(argv)}: exit {status}: {tail(out + err)}")
    return subprocess.CompletedProcess(list(argv), status, out, err)


def stream(
    places: Places,
    node: str,
    argv: Sequence[str],
    take: Take,
    *,
    timeout: float | None = None,
    stdin: str | None = None,
) -> int:
    """Run a command and hand on what it says ("out" or "err") as it comes. Returns its exit status.

    Whoever ends the caller ends the command: the guest kills it when the connection closes.
    """
    end = None if timeout is None else time.monotonic() + timeout
    step = " ".join(argv)
    with _free(places, node, end) as number, socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(places.channel(node, number)))
        except OSError as error:
            raise LabError(f"{node}: {step}: the guest is not running ({error})") from None
        token = secrets.token_hex(8)
        request = {"id": token, "argv": list(argv), "stdin": stdin and stdin.encode().decode("latin-1")}
        try:
            _until(connection, end)
            connection.sendall(json.dumps(request).encode() + b"\n")
            for answer in _answers(connection, token, end):
                for name in {"out", "err"} & answer.keys():
                    take(name, str(answer[name]).encode("latin-1"))
                if "status" in answer:
                    return int(str(answer["status"]))
        except TimeoutError:
            raise LabError(f"{node}: {step}: not done after {timeout:g} s") from None
        except OSError as error:
            raise LabError(f"{node}: {step}: the guest hung up ({error})") from None
    raise LabError(f"{node}: {step}: the guest hung up")


def _answers(connection: socket.socket, token: str, end: float | None) -> Iterator[dict[str, object]]:
    """Lines for this request; those for a caller before it, and halves of such, are passed over."""
    received = b""
    while True:
        _until(connection, end)
        got = connection.recv(65536)
        if not got:
            return
        *lines, received = (received + got).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict) and answer.get("id") == token:
                    yield answer


def _until(connection: socket.socket, end: float | None) -> None:
    if end is not None:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)


@contextlib.contextmanager
def _free(places: Places, node: str, end: float | None) -> Iterator[int]:
    """A port of the guest that no other process uses: QEMU serves one connection to each at a time."""
    if not places.node(node).is_dir():
        raise LabError(f"fleet: there is no {node} in {places.directory}; `fleet up` makes a fleet")
    while True:
        for number in range(CHANNELS):
            lock = places.channel(node, number).with_suffix(".lock")
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            try:
                yield number
                return
            finally:
                os.close(descriptor)
        if end is not None and time.monotonic() > end:
            raise LabError(f"{node}: all {CHANNELS} channels to the guest are in use")
        time.sleep(0.05)
