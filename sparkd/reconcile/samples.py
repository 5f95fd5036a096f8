"""The last hour in numbers, for curves: kept from what the cycles have seen anyway, in a few 10 kB that never grow."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import get_args

from ring_mesh import FABRIC_DEVICES
from sparkd.core import progress
from sparkd.core.decide import Decision
from sparkd.core.model import Phase, Unknown
from sparkd.core.snapshot import Snapshot

STEP = 10.0
"""Seconds between two samples, at least: one of two ticks takes one."""
KEPT = 360
_EARLY = 1.0  # seconds; a tick is never exactly on time
_PHASES: tuple[str, ...] = get_args(Phase)
_NAN = float("nan")
_DEVICES = tuple(sorted(FABRIC_DEVICES))


@dataclass(frozen=True)
class RailHistory:
    """Bytes per second through a port of this host, RDMA and all else."""

    device: str
    received: tuple[float | None, ...]
    sent: tuple[float | None, ...]


@dataclass(frozen=True)
class History:
    """GET /v1/history: the last hour, a sample each `step` seconds, as `node` saw it. `last`: the number of the newest.

    The lists run side by side, the oldest sample first; null is what was not known. `at`: Unix seconds; memory of this
    host in bytes; tokens per second, and requests that run and wait, are those of the ring's engine.
    """

    node: str
    last: int
    step: float
    at: tuple[float, ...]
    phases: tuple[str, ...]
    memory_total: int
    memory_available: tuple[float | None, ...]
    tokens_per_second: tuple[float | None, ...]
    running: tuple[float | None, ...]
    queued: tuple[float | None, ...]
    rails: tuple[RailHistory, ...]


class Samples:
    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=KEPT)
        # One row for each sample: phase, memory available, tokens per second, running, queued, and of each device what
        # it received and sent per second. A row of C floats takes 52 bytes, and a tuple of Python's ten times that.
        self._rows: deque[array[float]] = deque(maxlen=KEPT)
        self._count = 0
        self._taken = -STEP
        self._total = 0
        self._before: tuple[float, dict[str, tuple[int, int]]] = (0.0, {})

    def see(self, s: Snapshot, d: Decision, monotonic: float) -> None:
        """What a cycle has seen and come to; `monotonic`: its time, in seconds of a clock that nobody sets."""
        if monotonic - self._taken < STEP - _EARLY:
            return
        self._taken = monotonic
        known = None if isinstance(s.host, Unknown) else s.host
        if known is not None:
            self._total = known.memory_total_kib * 1024
        work = next((progress.work(rank.text) for rank in d.ranks if rank.rank == 0 and rank.stage == "ready"), None)
        row = [
            _PHASES.index(d.phase),
            _NAN if known is None else known.memory_available_kib * 1024.0,
            *((_NAN, _NAN, _NAN) if work is None else (work.tokens_per_second, work.running, work.queued)),
            *self._rates(moved(s), monotonic),
        ]
        self._at.append(round(s.now, 1))
        self._rows.append(array("f", row))
        self._count += 1

    def _rates(self, now: dict[str, tuple[int, int]], monotonic: float) -> list[float]:
        at, before = self._before
        self._before = monotonic, now
        rates = []
        for device in _DEVICES:
            for way in (0, 1):
                grown = now[device][way] - before[device][way] if device in now and device in before else -1
                # A counter that has gone back was reset with its device.
                rates.append(grown / (monotonic - at) if grown >= 0 and monotonic > at else _NAN)
        return rates

    def after(self, number: int, node: str) -> History:
        """The samples that were taken after the one of this number."""
        fresh = min(max(self._count - number, 0), len(self._at))
        rows = list(self._rows)[len(self._rows) - fresh :]

        def column(index: int, digits: int | None = None) -> tuple[float | None, ...]:
            return tuple(None if row[index] != row[index] else round(row[index], digits) for row in rows)

        return History(
            node=node,
            last=self._count,
            step=STEP,
            at=tuple(self._at)[len(self._at) - fresh :],
            phases=tuple(_PHASES[int(row[0])] for row in rows),
            memory_total=self._total,
            memory_available=column(1),
            tokens_per_second=column(2, 1),
            running=column(3),
            queued=column(4),
            rails=tuple(
                RailHistory(device, column(5 + 2 * place), column(6 + 2 * place))
                for place, device in enumerate(_DEVICES)
            ),
        )


def moved(s: Snapshot) -> dict[str, tuple[int, int]]:
    """Bytes received and sent by each fabric port of this host, over RDMA and over everything else."""
    found: dict[str, tuple[int, int]] = {}
    if not isinstance(s.host, Unknown):
        found = {port.device: (port.received, port.sent) for port in s.host.traffic}
    for device in () if isinstance(s.roce, Unknown) else s.roce:
        if device.received is not None and device.sent is not None:
            received, sent = found.get(device.netdev, (0, 0))
            found[device.netdev] = received + device.received, sent + device.sent
    return found
