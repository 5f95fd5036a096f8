"""Real launchers with the stand-in for SGLang as their engine."""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from runtime.sglang.processes import Process, descendants
from tests.runtime.triangle import Rank, Ranks, group, wait_until

FAKE = Path(__file__).parent / "fake"
LAUNCH: dict[str, object] = {
    "transport": "any",
    "init_stuck_seconds": 10,
    "stall_seconds": 10,
    "load_cap_seconds": 30,
    "canary_idle_seconds": 0.3,
    "canary_timeout_seconds": 0.5,
    "hung_seconds": 10,
    "smoke": [],
    "smoke_required": True,
    "plugins": [],
}


def config(directory: Path, launch: dict[str, object], fake: dict[str, str], extra: tuple[str, ...] = ()) -> str:
    """The value of SPARKD_ENGINE_CONFIG."""
    model = directory / "model"
    model.mkdir(exist_ok=True)
    arguments = ["--model-path", str(model), "--load-format", "dummy", "--enable-metrics", *extra]
    return json.dumps(
        {
            "profile": "test",
            "python": sys.executable,
            "version": "0.5.23",
            "arguments": arguments,
            "environment": {"PYTHONPATH": str(FAKE), **fake},
            "launch": {**LAUNCH, **launch},
        }
    )


@contextlib.contextmanager
def engines(
    directory: Path, size: int = 2, extra: tuple[str, ...] = (), launch: dict[str, object] | None = None, **fake: str
) -> Iterator[Ranks]:
    """A group whose ranks are not yet started; ``fake`` says what goes wrong, see the stand-in."""
    with group(directory, size) as ranks:
        for rank in ranks:
            # On one machine the servers of the ranks above 0 share the loopback address, so each has its own port.
            host = rank.environ["SPARKD_API"].partition(":")[0] if rank.number == 0 else "127.0.0.1"
            port = free_port(host)
            rank.environ |= {
                "SPARKD_ENGINE": "sglang",
                "SPARKD_API": f"{host}:{port}",
                "SPARKD_ENGINE_CONFIG": config(
                    directory, launch or {}, {f"FAKE_{k}": v for k, v in fake.items()}, extra
                ),
            }
        yield ranks
        for rank in ranks:
            end(rank)


@contextlib.contextmanager
def engine(
    directory: Path, number: int = 0, extra: tuple[str, ...] = (), launch: dict[str, object] | None = None, **fake: str
) -> Iterator[Rank]:
    """One rank whose engine does without its peers."""
    with engines(directory, 2, extra, launch, ALONE="1", **fake) as ranks:
        yield ranks[number]


def end(rank: Rank) -> None:
    """Let nothing of a rank outlive its test, whatever has become of it."""
    if rank.process is not None and rank.process.poll() is None:
        for process in tree(rank):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def tree(rank: Rank) -> list[Process]:
    """The engine's processes."""
    assert rank.process is not None
    return descendants(rank.process.pid)


def scheduler(rank: Rank) -> int:
    """The pid of its scheduler."""
    return next(process.pid for process in tree(rank) if process.name.startswith("sglang::sched"))


def until(rank: Rank, text: str) -> None:
    """Wait for a status that holds ``text``."""
    ranks = Ranks([rank])
    wait_until(lambda: any(text in status for status in rank.statuses()), ranks)


def until_ready(rank: Rank) -> None:
    """Start it and wait for READY=1."""
    if rank.process is None:
        rank.start()
    Ranks([rank]).until_ready()


def post(rank: Rank, path: str, body: object) -> bytes:
    """The whole answer of rank 0's engine."""
    host, _, port = rank.environ["SPARKD_API"].partition(":")
    content = json.dumps(body).encode()
    fields = f"Host: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    head = f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(head.encode() + content)
        reply = b""
        while piece := client.recv(65536):
            reply += piece
    return reply


def in_background(rank: Rank, tokens: int) -> threading.Thread:
    """Somebody's generation of so many tokens."""
    body = {"text": "x", "sampling_params": {"max_new_tokens": tokens}}
    thread = threading.Thread(target=post, args=(rank, "/generate", body))
    thread.start()
    return thread
