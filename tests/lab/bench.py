"""What the daemon costs and how fast it is, measured in the lab: `make bench`.

All hosts of a lab share one kernel, so systemd's monotonic timestamps and this process's clock are the same clock.
These machines are small and shared: what a start and a death cost is compared with the least that they can cost there
(tests.lab.floor), round by round in the same run. Compare ratios; figures only of runs on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.lab import floor
from tests.lab.control import Lab
from tests.lab.layout import NODES, address
from tests.lab.ring import Ring

RESTARTS = 7
POWER_CUTS = 3
IDLE_SECONDS = 30.0
BACKOFF = 5.0
"""[recovery] backoff_seconds of a first restart, which the lab leaves at its default."""
_PAUSE = 0.4  # s; right after a start, PID 1 gets through the next one in a third of the time
_POST = """
import socket, time
s = socket.socket(socket.AF_UNIX)
s.connect("/run/sparkd/api.sock")
print(time.monotonic(), flush=True)
s.sendall(b"POST /v1/ring/start HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
assert b" 202 " in s.recv(4096)
"""
_KILL = "import os, sys, time; print(time.time(), flush=True); os.kill(int(sys.argv[1]), 9)"


@dataclass
class Samples:
    """Milliseconds; the floors are those of the same rounds."""

    starts: list[float] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    floor_starts: list[float] = field(default_factory=list)
    floor_kills: list[float] = field(default_factory=list)
    floor_asks: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Kill:
    """When (Unix seconds) the rank of a unit on `victim` was killed."""

    at: float
    victim: str
    unit: str


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    ring = Ring(Lab())
    if not ring.lab.is_up():
        ring.lab.up()
        print("(the lab stays up; make lab-down removes it)")
    now = datetime.datetime.now(datetime.UTC)
    load = os.getloadavg()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Linux {platform.release()}"
    print(f"{now:%Y-%m-%d %H:%M} UTC, {machine}")
    found = _rounds(ring, options.rounds)
    _row("floor of a request to a host (mutual TLS, kept)", "ms", found.floor_asks)
    _compared("POST start to the last of three units started", found.starts, found.floor_starts)
    _compared("SIGKILL of a rank to the last other unit inactive", found.kills, found.floor_kills)
    _row("  until systemd is told to stop the last of them", "ms", found.told)
    _row("SIGKILL to ready again, without back-off and engine", "ms", found.again)
    if options.quick:
        return 0
    _row("power cut to the last other unit inactive", "ms", _power_cuts(ring))
    _row("systemctl restart sparkd: exec to READY=1, serving", "ms", _restarts(ring))
    ring.fresh()
    _row("memory of sparkd while serving, PSS", "MiB", [pss(ring, node) for node in NODES])
    _row("CPU of sparkd while serving, per hour", "s", _idle(ring))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="starts and deaths (default: 20)")
    parser.add_argument("--quick", action="store_true", help="only starts and deaths")
    return parser.parse_args(argv)


def _p99(values: Sequence[float]) -> float:
    """The nearest rank: below a hundred values that is the largest."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def _row(what: str, unit: str, values: Sequence[float]) -> None:
    middle = statistics.median(values)
    print(f"{what:52} median {middle:8.1f} {unit:3}  p99 {_p99(values):8.1f}  (n={len(values)})")


def _compared(what: str, values: Sequence[float], floors: Sequence[float]) -> None:
    _row(what, "ms", values)
    _row("  the floor of that", "ms", floors)
    middle, last = statistics.median(values) / statistics.median(floors), _p99(values) / _p99(floors)
    print(f"{'  as a multiple of it':52} median {middle:8.2f}      p99 {last:8.2f}")


class Floor:
    """tests.lab.floor at work on the three hosts. The first drives."""

    def __init__(self, ring: Ring, driver: subprocess.Popen[str]) -> None:
        self._ring = ring
        self._driver = driver

    def round(self, number: int, found: Samples) -> float:
        """A start and a death; returns when (Unix seconds) the death was."""
        found.floor_asks.append(self._ask("ask", 0))
        found.floor_starts.append(self._ask("start", number))
        time.sleep(_PAUSE)
        return self._ask("die", number)

    def _ask(self, verb: str, number: int) -> float:
        assert self._driver.stdin is not None
        self._driver.stdin.write(f"{verb} {number}\n")
        self._driver.stdin.flush()
        return float(_line(self._driver.stdout))


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline()
    assert line, "the floor's process has ended; its error is above"
    return line


@contextlib.contextmanager
def _floor(ring: Ring) -> Iterator[Floor]:
    program = Path(floor.__file__).read_text()

    def run(node: str, *words: str) -> subprocess.Popen[str]:
        command = ring.lab.command(node, "/usr/bin/python3", "-c", program, *words)
        return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(run(node, "serve")) for node in NODES[1:]]
        for server in servers:
            _line(server.stdout)
        # The servers end with the driver's connections, and the driver with its input.
        driver = stack.enter_context(run(NODES[0], "drive", *map(address, NODES[1:])))
        yield Floor(ring, driver)


def _rounds(ring: Ring, rounds: int) -> Samples:
    found = Samples()
    kills: list[Kill] = []
    floors: list[Kill] = []
    # The first start after a boot measures the rails; the others find them measured.
    ring.fresh()
    with _floor(ring) as lowest:
        for number in range(rounds):
            ring.rest()
            time.sleep(_PAUSE)
            floors.append(Kill(lowest.round(number, found), NODES[0], floor.UNIT.format(number)))
            time.sleep(_PAUSE)
            epoch = _start(ring, found)
            kills.append(_kill(ring, NODES[number % len(NODES)], epoch))
            time.sleep(_PAUSE)
            if number < RESTARTS:
                found.again.append(_again(ring, kills[-1], epoch))
    found.kills = [_spread(ring, kill) for kill in kills]
    found.told = [_spread(ring, kill, "Stopping ") for kill in kills]
    found.floor_kills = [_spread(ring, kill) for kill in floors]
    return found


def _start(ring: Ring, found: Samples) -> int:
    began = float(ring.lab.exec(NODES[0], "python3", "-c", _POST).stdout)
    time.sleep(_PAUSE)
    epoch = int(ring.phase("ready")["epoch"])
    found.starts.append((_last(ring, epoch, "ExecMainStartTimestampMonotonic") - began) * 1000)
    return epoch


def _last(ring: Ring, epoch: int, prop: str) -> float:
    unit = f"sparkd-rank@{epoch}.service"
    return max(int(ring.show(node, unit, prop)) / 1e6 for node in NODES)


def _kill(ring: Ring, victim: str, epoch: int) -> Kill:
    unit = f"sparkd-rank@{epoch}.service"
    pid = ring.show(victim, unit, "MainPID")
    return Kill(float(ring.lab.exec(victim, "python3", "-c", _KILL, pid).stdout), victim, unit)


def _spread(ring: Ring, kill: Kill, *said: str) -> float:
    """The unit is unloaded when it has ended, and its own timestamp with it; systemd's line in the journal stays."""
    said = said or ("Deactivated successfully", "Failed with result")
    return max((_at(ring, node, kill, said) - kill.at) * 1000 for node in NODES if node != kill.victim)


def _at(ring: Ring, node: str, kill: Kill, said: Sequence[str]) -> float:
    """Unix seconds of the first line of systemd's after the death with one of these, by the stamp that the kernel put
    on the message: the journal may get to it later."""
    text = ring.lab.exec(node, "journalctl", "-q", "-u", kill.unit, "-o", "json").stdout
    entries = [json.loads(line) for line in text.splitlines()]
    found = [
        int(e["_SOURCE_REALTIME_TIMESTAMP"]) / 1e6
        for e in entries
        if e.get("SYSLOG_IDENTIFIER") == "systemd" and any(words in e["MESSAGE"] for words in said)
    ]
    return next(at for at in found if at > kill.at)


def _again(ring: Ring, kill: Kill, epoch: int) -> float:
    """All that is sparkd's own: to the units' start but for the back-off, and from the last READY=1 to being ready."""
    after = int(ring.phase("ready", above=epoch)["epoch"])
    events = ring.ask(NODES[0], "GET", "/v1/events").body["events"]
    told: float = next(e["at"] for e in events if (e["epoch"], e["phase"], e["kind"]) == (after, "ready", "summary"))
    since_boot = time.time() - time.monotonic()
    started = _last(ring, after, "ExecMainStartTimestampMonotonic") + since_boot
    ready = _last(ring, after, "ActiveEnterTimestampMonotonic") + since_boot
    return ((started - kill.at - BACKOFF) + (told - ready)) * 1000


def _power_cuts(ring: Ring) -> list[float]:
    found = []
    for number in range(POWER_CUTS):
        epoch = ring.fresh()["epoch"]
        victim = NODES[number % len(NODES)]
        unit = f"sparkd-rank@{epoch}.service"
        at = time.time()
        ring.lab.power_cut(victim)
        for other in NODES:
            if other != victim:
                ring.until(other, lambda seen: seen["phase"] == "gated")
        found.append(_spread(ring, Kill(at, victim, unit)))
        ring.lab.power_on(victim)
        ring.phase("ready", above=epoch)
    return found


def _restarts(ring: Ring) -> list[float]:
    found = []
    for number in range(RESTARTS):
        node = NODES[number % len(NODES)]
        ring.lab.exec(node, "systemctl", "restart", "sparkd")
        begin, ready = (
            int(ring.show(node, "sparkd", key)) / 1e6
            for key in ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
        )
        found.append((ready - begin) * 1000)
    return found


def pss(ring: Ring, node: str) -> float:
    pid = ring.show(node, "sparkd", "MainPID")
    text = ring.lab.exec(node, "cat", f"/proc/{pid}/smaps_rollup").stdout
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
    assert found is not None, text
    return int(found[1]) / 1024


def _idle(ring: Ring) -> list[float]:
    before = {node: cpu(ring, node) for node in NODES}
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)
    spent = time.monotonic() - began
    return [(cpu(ring, node) - before[node]) * 3600 / spent for node in NODES]


def cpu(ring: Ring, node: str) -> float:
    pid = ring.show(node, "sparkd", "MainPID")
    # To the nanosecond, where /proc/PID/stat counts hundredths of a second.
    text = ring.lab.exec(node, "sh", "-c", f"cat /proc/{pid}/task/*/schedstat").stdout
    return sum(int(line.split()[0]) for line in text.splitlines()) / 1e9


if __name__ == "__main__":
    sys.exit(main())
