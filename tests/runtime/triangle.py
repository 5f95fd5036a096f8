"""A group of real launcher processes on loopback addresses, cabled like the real nodes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from runtime.environment import Rail

ROOT = Path(__file__).resolve().parents[2]
PORT0 = ("enp1s0f0np0", "enP2p1s0f0np0")
PORT1 = ("enp1s0f1np1", "enP2p1s0f1np1")
KEY = "00112233445566778899aabbccddeeff"
# Processes of this many seconds are stuck, however busy the machine is.
PATIENCE = 25.0
_numbers = count(os.getpid() % 4000)


def triangle_rails(net: str, size: int, cables: int | None = None) -> dict[int, list[Rail]]:
    """The ends of ``size`` ranks by rank: cable c runs from port 0 of rank c to port 1 of the next rank.

    Link s has the addresses NET.(2s+1) and NET.(2s+2). Two ranks may share one cable instead of two.
    """
    cables = size if cables is None else cables
    rails: dict[int, list[Rail]] = {rank: [] for rank in range(size)}
    for cable in range(cables):
        near, far = cable, (cable + 1) % size
        for twin in (0, 1):
            link = 2 * cable + twin
            ours, theirs = f"{net}.{2 * link + 1}", f"{net}.{2 * link + 2}"
            rails[near].append(Rail(PORT0[twin], ours, far, theirs))
            rails[far].append(Rail(PORT1[twin], theirs, near, ours))
    return rails


def rails_text(rails: list[Rail]) -> str:
    """The value of SPARKD_RAILS."""
    return ",".join(f"{r.device}:{r.address}:{r.peer_rank}:{r.peer_address}" for r in rails)


@dataclass
class Rank:
    """One launcher process and what it told its notify socket."""

    number: int
    environ: dict[str, str]
    notify: socket.socket
    log: Path
    process: subprocess.Popen[bytes] | None = None
    said: list[str] = field(default_factory=list)

    def start(self, module: str = "runtime.launch") -> None:
        """Start the launcher, or a module of the tests that is one."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", module],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **self.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def exit_code(self, patience: float = PATIENCE) -> int:
        """Wait for the process to end."""
        assert self.process is not None
        code = self.process.wait(patience)
        self.listen()
        return code

    def listen(self) -> list[str]:
        """Everything said so far, one assignment per entry."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.said += self.notify.recv(65536).decode().split("\n")
        return self.said

    def statuses(self) -> list[str]:
        """The status texts so far."""
        return [line.removeprefix("STATUS=") for line in self.listen() if line.startswith("STATUS=")]

    def stages(self) -> list[str]:
        """The stages in order, each once, and READY where READY=1 was said."""
        stages: list[str] = []
        for line in self.listen():
            stage = "READY" if line == "READY=1" else line.removeprefix("STATUS=").split(" ")[0]
            if stage not in stages and not line.startswith("STOPPING"):
                stages.append(stage)
        return stages

    def text(self) -> str:
        """The log."""
        return self.log.read_text()

    def stop(self) -> None:
        """End the process whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Ranks(list[Rank]):
    """The ranks of one group, not yet started."""

    net: str = ""

    def start(self) -> None:
        """Start every rank."""
        for rank in self:
            rank.start()

    def until_ready(self) -> None:
        """Wait until every rank has said READY=1."""
        wait_until(lambda: self._ended() or all("READY=1" in rank.listen() for rank in self), self)
        assert not self._ended(), "\n".join(rank.text() for rank in self)

    def _ended(self) -> bool:
        return any(rank.process is not None and rank.process.poll() is not None for rank in self)

    def health(self) -> tuple[int, dict[str, object]]:
        """HTTP status and body of rank 0's /health."""
        host, _, port = self[0].environ["SPARKD_API"].partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: probe\r\n\r\n")
            reply = b""
            while piece := client.recv(65536):
                reply += piece
        head, _, body = reply.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


def wait_until(condition: Callable[[], object], ranks: Ranks, patience: float = PATIENCE) -> None:
    """Wait for ``condition``; on failure show what every rank logged."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            logs = "\n".join(rank.text() for rank in ranks if rank.log.exists())
            raise AssertionError(f"not within {patience:g} s\n{logs}")
        time.sleep(0.02)


@contextlib.contextmanager
def group(directory: Path, size: int = 3, cables: int | None = None, **tuning: str) -> Iterator[Ranks]:
    """A group on addresses of its own below 127/8; ``tuning`` is given to each rank as SPARKD_NAME=VALUE."""
    number = next(_numbers)
    net = f"127.{64 + number // 250 % 128}.{1 + number % 250}"
    rails = triangle_rails(net, size, cables)
    names = [f"spark{rank + 1}" for rank in range(size)]
    ranks = Ranks()
    ranks.net = net
    directory.mkdir(exist_ok=True)
    try:
        for rank, name in enumerate(names):
            notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            notify.bind(str(directory / f"notify-{rank}"))
            notify.setblocking(False)
            environ = {
                "NOTIFY_SOCKET": str(directory / f"notify-{rank}"),
                "SPARKD_ENGINE": "probe",
                "SPARKD_EPOCH": "7",
                "SPARKD_CLUSTER": "lab",
                "SPARKD_NODE": name,
                "SPARKD_RANK": str(rank),
                "SPARKD_WORLD_SIZE": str(size),
                "SPARKD_NODES": ",".join(names),
                "SPARKD_RENDEZVOUS": f"{net}.100:20000",
                "SPARKD_MANAGEMENT_ADDRESS": f"{net}.{100 + rank}",
                "SPARKD_API": f"{net}.200:8888",
                "SPARKD_RAILS": rails_text(rails[rank]),
                "SPARKD_GROUP_KEY": KEY,
                "SPARKD_RENDEZVOUS_TIMEOUT": str(PATIENCE),
                "SPARKD_MEASURE_SECONDS": "0.02",
                "SPARKD_CANARY_INTERVAL": "0.2",
                **{f"SPARKD_{key.upper()}": value for key, value in tuning.items()},
            }
            ranks.append(Rank(rank, environ, notify, directory / f"log-{rank}"))
        yield ranks
    finally:
        for member in ranks:
            member.stop()
            member.notify.close()
