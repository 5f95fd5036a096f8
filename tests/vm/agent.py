#!/usr/bin/python3
"""Runs commands in a guest for the machine outside: one at a time on each of its virtio ports.

A request is one line of JSON, {"id", "argv", "stdin"}; answers are lines {"id", "out" or "err"} as output comes, and at
last {"id", "status"}. Bytes are carried as text of Latin-1. A command ends with its caller: the port hangs up then.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

PORTS = "/dev/virtio-ports"
PAUSE = 0.2
"""A port without a caller is always "ready" to be read: with nothing."""


def serve(path: Path) -> None:
    port = os.open(path, os.O_RDWR)
    received = b""
    while True:
        line, newline, rest = received.partition(b"\n")
        if not newline:
            got = os.read(port, 65536)
            if not got:
                time.sleep(PAUSE)
            # Half a request is worth nothing without its caller.
            received = received + got if got else b""
            continue
        received = rest
        with contextlib.suppress(ValueError):
            perform(port, json.loads(line))


def perform(port: int, request: dict[str, Any]) -> None:
    """One request from its start to its end, or until its caller is gone or has another one."""
    with tempfile.TemporaryFile() as given:
        given.write((request.get("stdin") or "").encode("latin-1"))
        given.seek(0)
        try:
            child = subprocess.Popen(
                request["argv"], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            answer(port, request, err=f"{error}\n", status=127)
            return
    assert child.stdout is not None
    assert child.stderr is not None
    streams = {child.stdout.fileno(): "out", child.stderr.fileno(): "err"}
    with child:
        waiting = select.poll()
        for descriptor in (port, *streams):
            waiting.register(descriptor, select.POLLIN)
        while streams:
            for descriptor, _ in waiting.poll():
                if descriptor == port:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
                    return
                chunk = os.read(descriptor, 32768)
                if chunk:
                    answer(port, request, **{streams[descriptor]: chunk.decode("latin-1")})
                else:
                    waiting.unregister(descriptor)
                    del streams[descriptor]
        answer(port, request, status=child.wait())


def answer(port: int, request: dict[str, Any], **facts: object) -> None:
    data = json.dumps({"id": request["id"], **facts}).encode() + b"\n"
    while data:
        data = data[os.write(port, data) :]


if __name__ == "__main__":
    threads = [threading.Thread(target=serve, args=(Path(PORTS, name),)) for name in sys.argv[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
