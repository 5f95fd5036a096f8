"""Who may change what the ring is to do, and whose intent counts.

There is no majority to find: tensor parallelism needs every rank, so the host of rank 0 is the conductor and the only
one that issues epochs. Everyone adopts the highest epoch seen at anyone, and within it the highest revision. Both
only grow.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from sparkd.core import draining, gates
from sparkd.core import findings as catalogue
from sparkd.core.drain import LONGEST, Drain
from sparkd.core.maintenance import Maintenance, tidy
from sparkd.core.model import Finding, Intent, Want
from sparkd.core.snapshot import Snapshot

Request = Literal["start", "stop", "clear", "hold", "resume"]


@dataclass(frozen=True)
class Accepted:
    """`new` is False when the ring is already meant to do what was asked: `intent` is then the one in force."""

    intent: Intent
    new: bool


@dataclass(frozen=True)
class Refused:
    code: str
    sentence: str
    findings: tuple[Finding, ...]


def newest(s: Snapshot) -> Intent:
    """The intent this host must follow."""
    # The conductor's first: an older version may tell the same order without what it does not know.
    peers = sorted(s.peers, key=lambda peer: peer.name != s.cluster.conductor.name)
    seen = [peer.report.intent for peer in peers if peer.report is not None]
    # A host may have been a member of another cluster, under the same CA; what that wanted is nothing to this one.
    seen = [intent for intent in seen if intent.of(s.cluster.name)]
    best = max(seen, key=lambda intent: intent.order, default=s.intent)
    further = best.order > s.intent.order or (best.order == s.intent.order and not _echoes(best, s.intent))
    if s.conductor and s.intent.blind and further:
        # A stop was asked of a conductor that could not know how far its peers were: the stop still holds.
        return replace(s.intent, epoch=best.epoch + 1, clears=max(best.clears, s.intent.clears))
    ordered = s.intent.maintenance
    if s.conductor and further and ordered is not None and ordered.blind and best.maintenance != ordered:
        return replace(best, revision=best.revision + 1, maintenance=ordered)
    return best if best.order > s.intent.order else s.intent


def _echoes(told: Any, mine: Any) -> bool:
    """Whether `told` is `mine`, perhaps without fields that an older version has read over."""
    if told == mine:
        return True
    if not is_dataclass(mine) or type(told) is not type(mine):
        return False
    values = ((getattr(told, f.name), getattr(mine, f.name), f.default) for f in fields(mine))
    return all(one == default or _echoes(one, other) for one, other, default in values)


def recabled(s: Snapshot) -> Intent | None:
    """The conductor's next intent when the cables have come to make another ring than the one planned for.

    Only while nobody has started a rank in this epoch: a plan is never changed under one.
    """
    cables, addresses = s.wiring
    if not s.conductor or s.intent.want != "up" or not cables:
        return None
    if s.intent.drain or (cables, addresses) == (s.intent.cables, s.intent.addresses):
        return None
    attempts = [s.attempt, *(peer.report.attempt for peer in s.peers if peer.report is not None)]
    if any(attempt is not None and attempt.epoch >= s.intent.epoch for attempt in attempts):
        return None
    reason = f"the cables are now {', '.join(s.cables)}"
    if cables == s.intent.cables:
        reason = "the addresses on the fabric ports are others now"
    again = replace(s.intent, epoch=s.next_epoch, by="recovery", reason=reason, at=s.now)
    return replace(again, cables=cables, addresses=addresses)


def accept(
    s: Snapshot, request: Request, by: str, reason: str = "", *, force: bool = False, drain: float = 0.0
) -> Accepted | Refused:
    """The conductor's answer to an operator. Pure: the caller saves the intent and answers only then.

    reason: of a hold. force: a stop that ends the maintenance, if the ring is in it. drain: seconds that a stop leaves
    to the requests that run, 0 for none; a ring that does not serve has none.
    """
    top = newest(s)
    s = replace(s, intent=top)
    if request == "start":
        return _accept_start(s, by)
    if request == "stop":
        return _accept_stop(s, by, force, drain)
    if request == "hold":
        return _accept_hold(s, by, tidy(reason))
    if request == "resume":
        return _resumed(s, by)
    cleared = replace(top, clears=top.clears + 1)
    if top.held:
        down = replace(_next(s, "down", by, "cleared"), maintenance=top.maintenance, clears=cleared.clears)
        return Accepted(down, new=True)
    if any(finding.id == "node-hard-reset" for finding in gates.ring_findings(s)):
        return Accepted(replace(cleared, revision=top.revision + 1), new=True)
    return Accepted(top, new=False)


def _accept_hold(s: Snapshot, by: str, reason: str) -> Accepted:
    """No new epoch: the epoch is in the name of the ranks' units, and a hold leaves them alone."""
    now = s.intent.maintenance
    if now is not None and now.on and reason in ("", now.reason):
        return Accepted(s.intent, new=False)
    ordered = Maintenance(by, reason, s.now, blind=_unheard(s))
    return Accepted(replace(s.intent, revision=s.intent.revision + 1, maintenance=ordered), new=True)


def _resumed(s: Snapshot, by: str) -> Accepted:
    if not s.intent.paused:
        return Accepted(s.intent, new=False)
    over = Maintenance(by, "", s.now, on=False, blind=_unheard(s))
    return Accepted(replace(s.intent, revision=s.intent.revision + 1, maintenance=over), new=True)


def _paused(s: Snapshot, fix: str) -> Refused:
    assert s.intent.maintenance is not None
    said = s.intent.maintenance.sentence(s.now)
    finding = Finding("maintenance", s.node, "refuse", f"epoch {s.intent.epoch}", said, "a ring that is not held", fix)
    return Refused("maintenance", f"nothing is started or stopped: {said}", (finding,))


def _accept_start(s: Snapshot, by: str) -> Accepted | Refused:
    if s.intent.paused:
        return _paused(s, "sparkctl resume")
    if s.intent.held:
        found = (catalogue.held(s.node, s.intent),)
        return Refused("held", f"the ring is held: {s.intent.reason}", found)
    if s.intent.drain is not None:
        # A start takes an order to drain back: the ranks go on.
        return Accepted(replace(s.intent, revision=s.intent.revision + 1, drain=None), new=True)
    if s.intent.want == "up":
        return Accepted(s.intent, new=False)
    against = tuple(finding for finding in gates.ring_findings(s) if finding.severity == "refuse")
    if against:
        more = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
        return Refused("start-refused", f"the ring cannot start: {against[0].sentence}{more}", against)
    return Accepted(replace(_next(s, "up", by, "start asked for"), cables=s.wiring[0], addresses=s.wiring[1]), new=True)


def _accept_stop(s: Snapshot, by: str, force: bool, drain: float) -> Accepted | Refused:
    if s.intent.paused and not force:
        return _paused(s, "sparkctl resume first, or sparkctl down --force, which ends the maintenance as well")
    if drain > 0 and draining.serves(s):
        ordered = Drain(by, s.now, min(drain, LONGEST))
        return Accepted(replace(s.intent, revision=s.intent.revision + 1, maintenance=None, drain=ordered), new=True)
    if s.intent.paused:
        return Accepted(_next(s, "down", by, "stop asked for, which ends the maintenance"), new=True)
    if s.intent.want == "down" and (s.intent.held or s.intent.blind or not _unheard(s)):
        return Accepted(s.intent, new=False)
    return Accepted(_next(s, "down", by, "stop asked for"), new=True)


def _next(s: Snapshot, want: Want, by: str, reason: str) -> Intent:
    blind = want == "down" and _unheard(s)
    name = s.cluster.name
    return Intent(s.next_epoch, want, by, reason, s.now, blind=blind, clears=s.intent.clears, cluster=name)


def _unheard(s: Snapshot) -> bool:
    return any(peer.report is None for peer in s.peers)
