"""How a start waits for the rails to be measured, and when measuring is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkd.core import rails
from sparkd.core.model import Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot

# Seconds. The longest pause is shorter than the time for which a host waits for another.
_PAUSE, _PAUSE_MAX = 2.0, 8.0


def pause(s: Snapshot) -> float:
    """Seconds until measuring may be tried again, ever more of them while something is left.

    The first pause is also for the news of the far ends: both have measured, and theirs are told a moment later.
    """
    if isinstance(s.rails, Unknown) or not s.rails.tries:
        return 0.0
    return max(0.0, min(_PAUSE * 2.0 ** (s.rails.tries - 1), _PAUSE_MAX) - s.rails.rested)


def waits(s: Snapshot) -> list[str]:
    """What a start still waits for; it is asked only once the fabric is as planned everywhere."""
    if s.policy.rails is None:
        return []
    if _begun(s):
        # Too late to measure, which would disturb the ranks that run, and they wait for the others.
        own = None if isinstance(s.rails, Unknown) else s.rails.running
        return [] if own is None else [f"{own.name} on {s.node} is still alive"]
    left, total = rails.todo(s), len(s.plan.links)
    told = _failures(s)
    for node, text in rails.measuring(s):
        return [*told, f"{node} is {text}, {total - len(left)} of {total} rails are measured"]
    if told and (rest := pause(s)):
        told[0] += f"; again in {rest:.0f} s"
    if told or not left:
        return told
    first, far = left[0].ends
    return [f"{len(left)} of {total} rails are to be measured, first {first.device} of {first.node} to {far.node}"]


def _failures(s: Snapshot) -> list[str]:
    """Why rails of this host are not measured though it was tried."""
    if isinstance(s.rails, Unknown):
        return [f"{s.node} cannot tell what was measured: {s.rails.why}"]
    mine = rails.wanted(s)
    failed = [fact for fact in s.rail_facts if fact.error and fact.device in mine]
    told = [f"{s.node}: {f.device} to {f.node} is not measured: {f.error}" for f in failed]
    # What this host has measured is missing only until the far end has told of it, too.
    here = {fact.device for fact in rails.valid(s)}
    if not told and s.rails.tries and s.rails.running is None and any(device not in here for device in mine):
        return [f"{s.node}: the rails could not be measured: journalctl -u 'sparkd-measure@*' says why"]
    return told


def _begun(s: Snapshot) -> bool:
    """Some host has found every gate open, and has started its rank of this epoch."""
    own = () if isinstance(s.units, Unknown) else s.units
    theirs = (unit for peer in s.peers if peer.report is not None for unit in peer.report.units or ())
    return any(unit.alive and unit.epoch == s.intent.epoch for unit in (*own, *theirs))
