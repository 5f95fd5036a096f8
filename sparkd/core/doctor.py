"""The host checks in the decision: what this host's own say, and what comparing all hosts says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparkd.core import checks, reach
from sparkd.core.checks import CheckResult, Seen
from sparkd.core.hardware import GidFact, HardwareFacts
from sparkd.core.model import Attempt, CheckOutcome, Unknown

if TYPE_CHECKING:
    from sparkd.core.snapshot import Snapshot


def examine(s: Snapshot) -> tuple[CheckResult, ...]:
    """Every check of this host; () before its hardware has been looked at for the first time."""
    if s.hardware is None:
        return ()
    network = None if isinstance(s.network, Unknown) else s.network
    alive = None if isinstance(s.units, Unknown) else any(unit.alive for unit in s.units)
    available = None if isinstance(s.host, Unknown) else s.host.memory_available_kib or None
    return checks.run(
        Seen(
            s.node,
            s.hardware,
            network,
            alive,
            _gids_before(s.attempt),
            adopt=s.policy.adopt,
            available=available,
            reach=reach.peer_ports(s),
            hcas=tuple(end.hca for end in s.plan.ends_of(s.node)),
            pci_before=None if s.attempt is None else s.attempt.pci,
        )
    )


def _gids_before(began: Attempt | None) -> tuple[GidFact, ...] | None:
    if began is None or not began.gids:
        return None
    marks = ((hca, *mark.split()) for hca, mark in began.gids.items())
    return tuple(GidFact(hca, index=int(index), address=address) for hca, index, address in marks)


def compare(s: Snapshot) -> tuple[CheckResult, ...]:
    """Every check that compares hosts; one whose facts are not known is unknown, and never left out."""
    facts: dict[str, HardwareFacts | None] = {s.node: s.hardware}
    facts |= {peer.name: peer.report.hardware if peer.report is not None else None for peer in s.peers}
    return checks.compare({node.name: facts.get(node.name) for node in s.cluster.nodes})


def outcomes(results: tuple[CheckResult, ...]) -> tuple[CheckOutcome, ...] | None:
    """For the report; None while nothing has been looked at."""
    return tuple(CheckOutcome(r.id, r.verdict, r.why) for r in results) or None


def shared(facts: HardwareFacts | None) -> HardwareFacts | None:
    """The part that is compared between hosts, so that reports stay small."""
    if facts is None:
        return None
    return replace(facts, memory=None, gids=None, owners=None, rank=None, supervisors=None, rails=None, engine=None)
