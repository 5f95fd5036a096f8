"""The gates of a start, in order. A gate is a list of sentences saying what it still waits for; empty means open.

Silence never opens a gate: a peer that has not answered lately is waited for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ring_mesh import CablingError
from sparkd.core import cabling, checks, doctor, free, judge, links, measuring, rails
from sparkd.core import findings as catalogue
from sparkd.core.model import Finding, Intent, PeerView, Report, Unknown
from sparkd.core.skew import skews
from sparkd.core.snapshot import Snapshot


def fresh(s: Snapshot) -> Iterator[tuple[PeerView, Report]]:
    """The peers whose report may be relied on now."""
    for peer in s.peers:
        if peer.report is not None and peer.age is not None and peer.age <= s.policy.peer_fresh:
            yield peer, peer.report


def silent(s: Snapshot) -> Iterator[tuple[PeerView, str]]:
    """The others, each with why it may not be relied on."""
    heard = {peer.name for peer, _ in fresh(s)}
    for peer in s.peers:
        if peer.name in heard:
            continue
        said = f" ({peer.error})" if peer.error else ""
        if peer.report is None or peer.age is None:
            yield peer, f"{peer.name} has not answered yet{said}"
        else:
            yield peer, f"{peer.name} has not answered for {peer.age:.0f} s{said}"


def own_findings(s: Snapshot) -> tuple[Finding, ...]:
    """What this host's own facts say against a start."""
    return s.findings


def ring_findings(s: Snapshot) -> tuple[Finding, ...]:
    """What any host says against a start, this one first, and what their differences say."""
    found = list(own_findings(s))
    found += [catalogue.peer_unheard(s.node, peer.name, why) for peer, why in silent(s)]
    for _, report in fresh(s):
        found += report.findings
    found += _skews(s)
    found += checks.findings(doctor.compare(s))
    found += [finding for finding in judge.unfit_addresses(s) if finding not in found]
    found += rails.findings(s)
    # Each cable is right and has been heard, as far as anybody says, and yet they make no ring.
    if not s.cables and all(f.severity != "refuse" and f.id != "cable-unheard" for f in found):
        found.append(catalogue.cable_ring(s.node, cable_fault(s)))
    return tuple(found)


def cable_fault(s: Snapshot) -> str:
    """Why the cables that are seen are not a ring of this cluster; empty if they are."""
    try:
        cabling.discovered(s.cluster, s.heard)
    except CablingError as error:
        return str(error)
    return ""


def blemishes(s: Snapshot) -> list[str]:
    """What would refuse a start now, while the ring serves: it goes on serving, and says so."""
    found = list(own_findings(s))
    for _, report in fresh(s):
        found += report.findings
    found += _skews(s)
    return [finding.sentence for finding in found if finding.severity == "refuse"]


def _skews(s: Snapshot) -> list[Finding]:
    return skews(s.node, s.digests, (report for _, report in fresh(s)))


def peers_answer(s: Snapshot) -> list[str]:
    return [why for _, why in silent(s)]


def all_adopted(s: Snapshot) -> list[str]:
    return [
        f"{report.node} has not adopted epoch {_number(s.intent)} yet (it is at {_number(report.intent)}"
        + ("" if report.intent.of(s.cluster.name) else f" of cluster {report.intent.cluster}")
        + ")"
        for _, report in fresh(s)
        if report.intent.order != s.intent.order or not report.intent.of(s.cluster.name)
    ]


def _number(intent: Intent) -> str:
    return f"{intent.epoch}.{intent.revision}" if intent.revision else str(intent.epoch)


def no_older_rank(s: Snapshot) -> list[str]:
    """A rank of another start beside a new one hangs both in rendezvous, or mixes their messages."""
    waits = []
    if isinstance(s.units, Unknown):
        waits.append(f"{s.node} cannot tell which ranks run: {s.units.why}")
    else:
        waits += [f"{unit.name} on {s.node} is still alive" for unit in s.units if _older(s, unit.alive, unit.epoch)]
    for _, report in fresh(s):
        if report.units is None:
            waits.append(f"{report.node} cannot tell which ranks run: {'; '.join(report.unknown)}")
        else:
            waits += [f"{u.name} on {report.node} is still alive" for u in report.units if _older(s, u.alive, u.epoch)]
    return waits + free.waits(s)


def _older(s: Snapshot, alive: bool, epoch: int) -> bool:
    return alive and epoch != s.intent.epoch


def digests_equal(s: Snapshot) -> list[str]:
    return [f"{f.subject} differs: {f.node} has {f.observed}, expected {f.expected}" for f in _skews(s)]


def fabric_verified(s: Snapshot) -> list[str]:
    if isinstance(s.network, Unknown):
        return [f"{s.node} cannot see its network: {s.network.why}"]
    waits = [f.sentence for f in own_findings(s) if f.severity != "warn"]
    blamed = {s.node} if waits else set()
    for _, report in fresh(s):
        theirs = [f.sentence for f in report.findings if f.severity != "warn"]
        waits += theirs
        if theirs:
            blamed.add(report.node)
    if not s.cables or s.cables != s.intent.cables:
        return waits or [_other_cables(s)]
    unready = {s.node: [end.device for end in links.ends(s.plan, s.node, s.network) if not end.verified]}
    for _, report in fresh(s):
        unready[report.node] = [e.device for e in report.ends if not e.verified] if report.ends else ["every port"]
    waits += [
        f"{node} is still configuring {', '.join(devices)}"
        for node, devices in unready.items()
        if devices and node not in blamed
    ]
    return waits


def _other_cables(s: Snapshot) -> str:
    if not s.cables:
        return f"the cables are no ring as far as they are heard: {cable_fault(s)}"
    planned = ", ".join(s.intent.cables) or "none"
    return f"{s.cluster.conductor.name} is to plan for the cables that are there, {', '.join(s.cables)}, not {planned}"


def no_death(s: Snapshot) -> list[str]:
    return [f"rank {s.cluster.node(node).rank} on {node}: {why}" for node, why in ended(s)]


def ended(s: Snapshot) -> Iterator[tuple[str, str]]:
    """The nodes whose rank of this epoch has ended, with how."""
    if s.attempt is not None and s.attempt.epoch == s.intent.epoch and s.attempt.over:
        yield s.node, s.attempt.incident or s.attempt.sentence
    for peer in s.peers:
        if peer.report is None or peer.report.attempt is None:
            continue
        attempt = peer.report.attempt
        if attempt.epoch == s.intent.epoch and attempt.over:
            yield peer.name, attempt.incident or attempt.sentence


def rails_measured(s: Snapshot) -> list[str]:
    """Every rail has been measured as it is now, and is good. Nothing is measured any more."""
    return [finding.sentence for finding in rails.findings(s)] + measuring.waits(s)


def workers_run(s: Snapshot) -> list[str]:
    """Rank 0 goes last, but does not wait for the workers to be ready: only until their processes run."""
    if not s.conductor:
        return []
    return [
        f"rank {s.cluster.node(report.node).rank} on {report.node} does not run yet"
        for _, report in fresh(s)
        if not any(unit.epoch == s.intent.epoch and unit.runs for unit in report.units or ())
    ]


GATES: tuple[Callable[[Snapshot], list[str]], ...] = (
    no_death,
    peers_answer,
    all_adopted,
    no_older_rank,
    digests_equal,
    fabric_verified,
    rails_measured,
    workers_run,
)
_LATE = 2


def before_measuring(s: Snapshot) -> list[str]:
    """The sentences of every shut gate before the rails are measured."""
    return [sentence for gate in GATES[:-_LATE] for sentence in gate(s)]


def waits(s: Snapshot) -> tuple[str, ...]:
    """What a start of this host's rank waits for: the sentences of every shut gate, in the order of the gates.

    The last two only speak when all before them are open, since nothing is measured, and nothing runs, before.
    """
    sentences = before_measuring(s)
    for gate in GATES[-_LATE:]:
        sentences = sentences or gate(s)
    return tuple(sentences)
