"""The settle gate: the memory that was there before the last start has to be back before the next one.

On a DGX Spark host memory is GPU memory. A driver that keeps what a dead rank had makes the next rank fail late and
unclearly, and only a reboot helps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkd.core.checks.memory import gib
from sparkd.core.model import Attempt, Finding, HostFacts, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot

SHARE = 0.9  # on a Spark; what else runs there needs a few GiB more or less


def finding(s: Snapshot) -> Finding | None:
    """memory-not-back: "repair" while it may still come, "refuse" once `Policy.memory_back_seconds` have passed."""
    a, share = s.attempt, _share(s)
    if a is None or not share or isinstance(s.host, Unknown) or isinstance(s.units, Unknown):
        return None
    if a.ended_at is None or any(unit.alive for unit in s.units):
        return None
    before = remembered(a, s.host)
    if s.host.memory_available_kib >= before * share:
        return None
    waited = max(s.now - a.ended_at, 0.0)
    has, wants = gib(s.host.memory_available_kib), gib(int(before * share))
    late = waited > s.policy.memory_back_seconds
    told = f"not {wants} after {waited:.0f} s" if late else f"waiting for {wants} to be back ({waited:.0f} s)"
    return Finding(
        "memory-not-back",
        s.node,
        "refuse" if late else "repair",
        "memory",
        f"{has} available, {told}",
        f"{wants}, of the {gib(before)} before the last start",
        "stop what holds the memory (ps aux --sort=-rss); if no process does, the driver does: reboot the node"
        if late
        else "none needed: a start waits for it",
    )


def remembered(a: Attempt | None, host: HostFacts) -> int:
    """KiB that were available before a start of this boot, the most of any; 0 without one."""
    return a.available_kib if a is not None and a.boot_id == host.boot_id else 0


def before_start(s: Snapshot, host: HostFacts) -> int:
    """What the attempt of the next start is to remember. Not only the latest: memory may be lost bit by bit."""
    return max(remembered(s.attempt, host), host.memory_available_kib)


def pending(s: Snapshot) -> bool:
    return any(found.id == "memory-not-back" and found.severity == "repair" for found in s.findings)


def _share(s: Snapshot) -> float:
    if s.policy.memory_back is not None:
        return s.policy.memory_back
    return SHARE if s.hardware is not None and s.hardware.spark else 0.0
