"""What the daemon costs and how fast it is, measured in the lab: `make bench`.

All hosts of a lab share one kernel, so systemd's monotonic timestamps and this process's clock are the same clock.
These machines are small and shared: compare ratios within a run, and runs only on a quiet machine.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Sequence

from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.ring import Ring

ROUNDS = 7
IDLE_SECONDS = 30.0
_POST = """
import socket, time
s = socket.socket(socket.AF_UNIX)
s.connect("/run/sparkd/api.sock")
print(time.monotonic(), flush=True)
s.sendall(b"POST /v1/ring/start HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
assert b" 202 " in s.recv(4096)
"""
_KILL = "import os, sys, time; print(time.monotonic(), flush=True); os.kill(int(sys.argv[1]), 9)"


def main() -> int:
    ring = Ring(Lab())
    if not ring.lab.is_up():
        ring.lab.up()
        print("(the lab stays up; make lab-down removes it)")
    now = datetime.datetime.now(datetime.UTC)
    print(f"{now:%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}")
    _row("POST start to the last of three units started", "ms", _starts(ring))
    _row("SIGKILL of a rank to the last other unit inactive", "ms", _kills(ring))
    _row("systemctl restart sparkd: exec to READY=1, serving", "ms", _restarts(ring))
    ring.fresh()
    _row("memory of sparkd while serving, PSS", "MiB", [_pss(ring, node) for node in NODES])
    _row("CPU of sparkd while serving, per hour", "s", _idle(ring))
    return 0


def _row(what: str, unit: str, values: Sequence[float]) -> None:
    print(f"{what:52} median {statistics.median(values):8.1f} {unit:3}  max {max(values):8.1f}  (n={len(values)})")


def _starts(ring: Ring) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        ring.idle()
        began = float(ring.lab.exec("spark1", "python3", "-c", _POST).stdout)
        epoch = ring.phase("ready")["epoch"]
        unit = f"sparkd-rank@{epoch}.service"
        started = [int(ring.show(node, unit, "ExecMainStartTimestampMonotonic")) / 1e6 for node in NODES]
        found.append((max(started) - began) * 1000)
    return found


def _kills(ring: Ring) -> list[float]:
    found = []
    for number in range(ROUNDS):
        epoch = ring.fresh()["epoch"]
        victim = NODES[number % len(NODES)]
        unit = f"sparkd-rank@{epoch}.service"
        pid = ring.show(victim, unit, "MainPID")
        at = float(ring.lab.exec(victim, "python3", "-c", _KILL, pid).stdout)
        ring.phase("ready", above=epoch)
        others = [node for node in NODES if node != victim]
        # The unit is unloaded when it has ended, and its own timestamp with it; systemd's line in the journal stays.
        ends = [_monotonic(ring, node, unit, "Deactivated successfully") for node in others]
        found.append((max(ends) - at) * 1000)
    return found


def _monotonic(ring: Ring, node: str, unit: str, words: str) -> float:
    text = ring.lab.exec(node, "journalctl", "-q", "-u", unit, "-o", "short-monotonic").stdout
    line = next(line for line in text.splitlines() if words in line)
    return float(line.strip("[ ").split("]")[0])


def _restarts(ring: Ring) -> list[float]:
    found = []
    for number in range(ROUNDS):
        node = NODES[number % len(NODES)]
        ring.lab.exec(node, "systemctl", "restart", "sparkd")
        begin, ready = (
            int(ring.show(node, "sparkd", key)) / 1e6
            for key in ("ExecMainStartTimestampMonotonic", "ActiveEnterTimestampMonotonic")
        )
        found.append((ready - begin) * 1000)
    return found


def _pss(ring: Ring, node: str) -> float:
    pid = ring.show(node, "sparkd", "MainPID")
    text = ring.lab.exec(node, "cat", f"/proc/{pid}/smaps_rollup").stdout
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
    assert found is not None, text
    return int(found[1]) / 1024


def _idle(ring: Ring) -> list[float]:
    before = {node: _cpu(ring, node) for node in NODES}
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)
    spent = time.monotonic() - began
    return [(_cpu(ring, node) - before[node]) * 3600 / spent for node in NODES]


def _cpu(ring: Ring, node: str) -> float:
    pid = ring.show(node, "sparkd", "MainPID")
    # To the nanosecond, where /proc/PID/stat counts hundredths of a second.
    text = ring.lab.exec(node, "sh", "-c", f"cat /proc/{pid}/task/*/schedstat").stdout
    return sum(int(line.split()[0]) for line in text.splitlines()) / 1e9


if __name__ == "__main__":
    sys.exit(main())
