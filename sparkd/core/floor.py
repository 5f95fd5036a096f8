"""The memory floor: when a rank has to go at once, before the host can do nothing any more.

On a DGX Spark the last GiB go within seconds, no OOM kill comes, and then the machine answers to nobody. So it is this
host alone that decides, from what is available now, and does not ask anyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkd.core.checks.memory import GIB, gib
from sparkd.core.model import Death, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot

DEFAULT_KIB = 4 * GIB  # on a Spark
WINDOW = 30.0  # seconds over which memory has to fall
_FALL = 16  # the part of the floor that it has to fall by: less comes and goes by itself
INCIDENT = "memory-floor"
OOM = "oom-kill"  # systemd's Result= of a unit that the kernel's OOM killer has struck


@dataclass(frozen=True)
class Sample:
    """`at`: seconds of a monotonic clock."""

    at: float
    available_kib: int


def limit(s: Snapshot) -> int:
    """KiB, 0 for none."""
    if s.policy.memory_floor_kib is not None:
        return s.policy.memory_floor_kib
    return DEFAULT_KIB if s.hardware is not None and s.hardware.spark else 0


def guarded(s: Snapshot) -> tuple[int, int] | None:
    """Epoch and main process of the rank that runs here; None without one."""
    if isinstance(s.units, Unknown):
        return None
    return next(((unit.epoch, unit.main_pid) for unit in s.units if unit.runs), None)


def breach(samples: Sequence[Sample], floor_kib: int) -> str:
    """Why the rank has to go, as "memory-floor: sentence"; empty if it need not. The newest sample is the last.

    Below the floor and falling; or below half of it, however it got there.
    """
    if not samples or samples[-1].available_kib >= floor_kib:
        return ""
    now = samples[-1]
    highest = max((s for s in samples if now.at - s.at <= WINDOW), key=lambda s: s.available_kib)
    fallen = highest.available_kib - now.available_kib
    if fallen * _FALL < floor_kib and now.available_kib * 2 >= floor_kib:
        return ""
    since = f", {gib(fallen)} less than {now.at - highest.at:.1f} s before" if fallen else ""
    return f"{INCIDENT}: {gib(now.available_kib)} of memory available{since}"


def pause(samples: Sequence[Sample], floor_kib: int) -> float:
    """Seconds until the next look: short while memory falls near the floor, where each second takes GiB."""
    near = samples[-1].available_kib < 2 * floor_kib
    falls = len(samples) > 1 and samples[-1].available_kib < samples[-2].available_kib
    return 0.1 if near and falls else 1.0


def in_vain(history: Sequence[Death], now: float, window: float) -> str:
    """Why no further try may follow a death for want of memory; empty if one may, or the last was none."""
    last = history[-1]
    if _kind(last) == OOM and not last.ready:
        return "out of memory while coming up, as every further try would be"
    if _kind(last) in (OOM, f"incident:{INCIDENT}"):
        times = sum(_kind(d) in (OOM, f"incident:{INCIDENT}") and now - d.at < window for d in history)
        return f"out of memory {times} times within {window / 60:.0f} min" if times > 1 else ""
    return ""


def _kind(death: Death) -> str:
    return death.signature.partition(":")[2]
