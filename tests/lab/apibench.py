"""How fast GET /v1/ring is answered while the ring starts and while it serves: the second part of `make bench`.

200 requests a second over one kept connection, beside an answer of the same size from uvicorn alone in the same minute
on the same host. Compare ratios; figures only of runs on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab import asking
from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.ring import SOCKET, Ring

RATE = 200
PORT = "7474"
BARE = "7999"
GOAL = 10.0
"""Milliseconds that the slowest of a hundred may take."""
_PROGRAM = Path(asking.__file__).read_text()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="apibench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="for each row (default: 20)")
    options = parser.parse_args(argv)
    ring = Ring(Lab())
    if not ring.lab.is_up():
        ring.lab.up()
        print("(the lab stays up; make lab-down removes it)")
    print(f"GET /v1/ring of {NODES[0]}, {RATE} a second, milliseconds")
    ring.rest()
    ring.settled()
    size = len(json.dumps(ring.get(NODES[0]), separators=(",", ":")))
    with _bare(ring, size):
        floor = _row(f"uvicorn alone, {size} bytes, the ring down", _asked(ring, BARE, options.seconds))
    starting = _asking(ring, PORT, 12)
    time.sleep(1)
    ring.start()
    ring.phase("ready")
    _compared(_row("while the ring starts", _times(starting)), floor)
    served = _row("while it serves", _asked(ring, PORT, options.seconds))
    _compared(served, floor)
    _row("while it serves, the Unix socket", _asked(ring, SOCKET, options.seconds))
    with _bare(ring, size):
        _row("uvicorn alone while it serves", _asked(ring, BARE, options.seconds))
    print(f"CPU of sparkd for a request: {_cpu_of_a_request(ring):.2f} ms")
    return 0


def _asking(ring: Ring, where: str, seconds: float) -> subprocess.Popen[str]:
    words = ("ask", where, "/v1/ring", str(RATE), str(seconds))
    command = ring.lab.command(NODES[0], "/usr/bin/python3", "-c", _PROGRAM, *words)
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE)


def _times(child: subprocess.Popen[str]) -> list[float]:
    said, _ = child.communicate()
    assert child.returncode == 0, "its error is above"
    times: list[float] = json.loads(said)
    return times


def _asked(ring: Ring, where: str, seconds: float) -> list[float]:
    return _times(_asking(ring, where, seconds))


@contextlib.contextmanager
def _bare(ring: Ring, size: int) -> Iterator[None]:
    command = ring.lab.command(NODES[0], "/usr/bin/python3", "-c", _PROGRAM, "bare", BARE, str(size))
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n", "its error is above"
        yield
        assert child.stdin is not None
        child.stdin.close()


def _row(what: str, times: Sequence[float]) -> tuple[float, float]:
    last = sorted(times)[math.ceil(0.99 * len(times)) - 1]
    middle = statistics.median(times)
    print(f"{what:48} p50 {middle:7.2f}  p99 {last:7.2f}  most {max(times):7.2f}  (n={len(times)})", flush=True)
    return middle, last


def _compared(found: tuple[float, float], floor: tuple[float, float]) -> None:
    good = "" if found[1] <= GOAL else f", above the goal of {GOAL:g} ms"
    ratios = f"p50 {found[0] / floor[0]:7.2f}  p99 {found[1] / floor[1]:7.2f}"
    print(f"{'  as a multiple of uvicorn alone':48} {ratios}{good}")


def _cpu_of_a_request(ring: Ring) -> float:
    """Milliseconds of the daemon's time for one, less what it spends in as long without any."""

    def spent() -> float:
        pid = ring.show(NODES[0], "sparkd", "MainPID")
        text = ring.lab.exec(NODES[0], "sh", "-c", f"cat /proc/{pid}/task/*/schedstat").stdout
        return sum(int(line.split()[0]) for line in text.splitlines()) / 1e6

    before, began = spent(), time.monotonic()
    asked = len(_asked(ring, PORT, 5))
    after, took = spent(), time.monotonic() - began
    time.sleep(took)
    return ((after - before) - (spent() - after)) / asked


if __name__ == "__main__":
    sys.exit(main())
