"""The rates of the rails: which measurements count, what is still to be measured, and what the rates mean.

A rail can be bad though every link, PCIe, MTU and counter check is clean; only a measurement shows it. One counts as
long as boot and carrier of both ends, and the far end, are those of the measurement. Each host judges its own, and
tells its peers only what counts, so that all agree on what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ring_mesh import End, Link
from sparkd.core import railfindings as catalogue
from sparkd.core.checks import CheckResult, Outcome
from sparkd.core.checks.outcome import judged, not_applicable, unknown
from sparkd.core.model import Finding, Unknown
from sparkd.core.railfacts import RailFact, RailPolicy

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot

ABOUT = {
    "rail-degraded-13g": "each rail has its rate",
    "node-slow": "no node is slower than the others",
    "mtu-wrong": "packets of 8972 bytes pass on each rail",
}


@dataclass(frozen=True)
class Rail:
    """A link whose two ends have one measurement that counts."""

    link: Link
    gbps: float | None
    method: str
    mtu_passed: bool | None

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(end.node for end in self.link.ends)

    def slow(self, policy: RailPolicy) -> bool:
        limit = policy.min_gbps if self.method == "rdma" else policy.min_tcp_gbps
        return self.gbps is not None and self.gbps < limit


def current(s: Snapshot) -> tuple[RailFact, ...]:
    """What is on record of this host's rails as they are now, also that they could not be measured."""
    if s.policy.rails is None or isinstance(s.rails, Unknown) or not s.rails.measured:
        return ()
    if isinstance(s.network, Unknown) or isinstance(s.host, Unknown):
        return ()
    flaps = {link.device: link.carrier_changes for link in s.network.links}
    pairs = [pair for link in s.plan.links for pair in (link.ends, link.ends[::-1])]
    far = {end.device: (other.node, other.device) for end, other in pairs if end.node == s.node}
    return tuple(
        fact
        for fact in s.rails.measured
        if fact.boot_id == s.host.boot_id
        and flaps.get(fact.device) == fact.carrier_changes
        and far.get(fact.device) == (fact.node, fact.remote)
    )


def valid(s: Snapshot) -> tuple[RailFact, ...]:
    """This host's measurements that count."""
    return tuple(fact for fact in s.rail_facts if not fact.error)


def measured(s: Snapshot) -> tuple[Rail, ...]:
    """The links that need no measuring, in the plan's order."""
    if s.policy.rails is None:
        return ()
    facts = {(s.node, fact.device): fact for fact in valid(s)}
    for peer in s.peers:
        if peer.report is not None:
            facts |= {(peer.name, fact.device): fact for fact in peer.report.rails}
    rails = []
    for link in s.plan.links:
        a, b = link.ends
        one, other = facts.get((a.node, a.device)), facts.get((b.node, b.device))
        if one is None or (one.node, one.remote) != (b.node, b.device):
            continue
        if other is None or (other.node, other.remote) != (a.node, a.device):
            continue
        rates = [gbps for gbps in (one.gbps, other.gbps) if gbps is not None]
        passed = [passes for passes in (one.mtu_passed, other.mtu_passed) if passes is not None]
        rails.append(Rail(link, min(rates, default=None), one.method, all(passed) if passed else None))
    return tuple(rails)


def todo(s: Snapshot) -> tuple[Link, ...]:
    """The links to be measured before a start, in the plan's order."""
    if s.policy.rails is None:
        return ()
    done = {rail.link.index for rail in s.rated}
    return tuple(link for link in s.plan.links if link.index not in done)


def wanted(s: Snapshot) -> tuple[str, ...]:
    """The devices of this host among them."""
    return tuple(end.device for link in todo(s) for end in link.ends if end.node == s.node)


def findings(s: Snapshot) -> tuple[Finding, ...]:
    """What the rates and the packets that do not pass say against a start, on any host.

    Nothing while any host measures: whether a rail is slow or its node shows only when all is known.
    """
    if s.policy.rails is None or measuring(s):
        return ()
    left = {end.node for link in todo(s) for end in link.ends}
    nodes = [node.name for node in s.cluster.nodes if node.name not in left]
    return tuple(_findings(s.rated, s.policy.rails, nodes))


def measuring(s: Snapshot) -> list[tuple[str, str]]:
    """The hosts that measure now, each with what it says of it, this host first."""
    own = None if isinstance(s.rails, Unknown) else s.rails.running
    here = [(s.node, own.text or "about to measure its rails")] if own is not None else []
    return here + [(p.name, p.report.measuring) for p in s.peers if p.report is not None and p.report.measuring]


def _findings(rails: Sequence[Rail], policy: RailPolicy, nodes: Sequence[str]) -> Iterator[Finding]:
    """nodes: those of which all rails have been measured."""
    slow = next((node for node in nodes if _node_slow(node, rails, policy)), "")
    if slow:
        own, others = _split(slow, rails)
        yield catalogue.node_slow(slow, [(_end(r.link, slow).device, r.gbps or 0.0) for r in own], _median(others))
    for rail in rails:
        end, far = rail.link.ends
        if rail.mtu_passed is False:
            yield catalogue.mtu_blocked(end.node, end.device, far.node, far.device)
        elif rail.slow(policy) and slow not in rail.nodes:
            limit = policy.min_gbps if rail.method == "rdma" else policy.min_tcp_gbps
            yield catalogue.rail_degraded(
                end.node, end.device, far.node, far.device, rail.gbps or 0.0, rail.method, limit
            )


def _node_slow(node: str, rails: Sequence[Rail], policy: RailPolicy) -> bool:
    """All its rails are below the threshold and none of the others is, or they have but a part of the others' rate.

    Rates of different methods are not compared: TCP shows the core that feeds it.
    """
    own, others = _split(node, rails)
    if not own or not others or len({rail.method for rail in (*own, *others)}) > 1:
        return False
    if all(rail.slow(policy) for rail in own) and not any(rail.slow(policy) for rail in others):
        return True
    return policy.slow_ratio > 0 and max(rail.gbps or 0.0 for rail in own) <= policy.slow_ratio * _median(others)


def _split(node: str, rails: Sequence[Rail]) -> tuple[list[Rail], list[Rail]]:
    """The rails with a rate that end at the node, and those between other nodes."""
    rated = [rail for rail in rails if rail.gbps is not None]
    return [rail for rail in rated if node in rail.nodes], [rail for rail in rated if node not in rail.nodes]


def _end(link: Link, node: str) -> End:
    return next(end for end in link.ends if end.node == node)


def _median(rails: Sequence[Rail]) -> float:
    # Not the module statistics, which would bring decimals, fractions and chance into the daemon's memory.
    rates = sorted(rail.gbps or 0.0 for rail in rails)
    return (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2


def examine(s: Snapshot) -> tuple[CheckResult, ...]:
    """For doctor: a row for each of ABOUT, about all nodes."""
    found = findings(s)
    return tuple(_result(id_, _outcome(s, id_, [f for f in found if f.id == id_])) for id_ in ABOUT)


def _outcome(s: Snapshot, id_: str, found: list[Finding]) -> Outcome:
    left, total = todo(s), len(s.plan.links)
    if s.policy.rails is None:
        return not_applicable("fabric.measure_seconds is 0: rails are not measured")
    if id_ == "node-slow" and len(s.cluster.nodes) < 3:
        return not_applicable("two nodes have no others to compare with")
    if found:
        return judged(found, "")
    if left:
        return unknown(f"{len(left)} of {total} rails are not measured since boot, or since their carrier changed")
    rails = s.rated
    rates = [rail.gbps for rail in rails if rail.gbps is not None]
    doubts = (
        ["no datagrams pass, of any size"] if id_ == "mtu-wrong" and any(r.mtu_passed is None for r in rails) else []
    )
    slowest = f", the slowest {min(rates):.3g} Gb/s ({rails[0].method})" if rates else ""
    return judged([], f"{total} rails measured{slowest}", doubts)


def _result(id_: str, outcome: Outcome) -> CheckResult:
    return CheckResult(id_, "", outcome.verdict, outcome.why, outcome.findings)
