"""Boots of a host that no shutdown came before: node-hard-reset.

A host that resets itself again and again takes the ring down each time, and wears out what makes it do so. The second
time within hours it is held out of the ring until an operator has looked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkd.core.model import Finding, HostFacts, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot


@dataclass(frozen=True)
class Reset:
    """`at`: Unix seconds at which the daemon saw it, after the boot. `clears`: the intent's at that time."""

    at: float
    clears: int


@dataclass(frozen=True)
class BootMemory:
    """What persists of a host's boots. `clean`: the daemon was stopped in order since it last ran in that boot, as each
    shutdown does; a host that was reset while its daemon was stopped by hand passes for one that was shut down.
    """

    boot_id: str = ""
    clean: bool = False
    resets: tuple[Reset, ...] = ()


def was_reset(memory: BootMemory, boot_id: str) -> bool:
    return bool(memory.boot_id) and memory.boot_id != boot_id and not memory.clean


def arrived(s: Snapshot) -> BootMemory | None:
    """What is to be remembered from now on, if that differs from what is."""
    if isinstance(s.host, Unknown):
        return None
    now = replace(s.boots, boot_id=s.host.boot_id, clean=False, resets=_resets(s, s.host))
    return now if now != s.boots else None


def _resets(s: Snapshot, host: HostFacts) -> tuple[Reset, ...]:
    """With that of this boot, if it was one, and without those that no longer count."""
    if not s.policy.hard_reset_window:
        return ()
    resets = s.boots.resets
    if was_reset(s.boots, host.boot_id):
        resets = (
            *(old for old in resets if s.now - old.at < s.policy.hard_reset_window),
            Reset(s.now, s.intent.clears),
        )
    return tuple(reset for reset in resets if reset.clears >= s.intent.clears)


def finding(s: Snapshot) -> Finding | None:
    if not s.policy.hard_reset_window or isinstance(s.host, Unknown):
        return None
    resets = _resets(s, s.host)
    if len(resets) < 2:
        return None
    hours = s.policy.hard_reset_window / 3600
    return Finding(
        "node-hard-reset",
        s.node,
        "refuse",
        "boots",
        f"it was reset {len(resets)} times within {hours:g} h, without a shutdown",
        "a host that stays up, or is shut down",
        "look for the cause (power, heat, journalctl -b -1 -n 50, /sys/fs/pstore), then sparkctl clear",
    )
