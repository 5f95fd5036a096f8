"""A firewall between the nodes' management addresses, in which the engine's own connections would get lost."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, not_applicable, unknown
from sparkd.core.model import Finding
from sparkd.core.reach import PeerPort, ReachFact


def firewall_blocks(node: str, there: PeerPort, fact: ReachFact) -> Finding:
    return Finding(
        "firewall-blocks",
        node,
        "refuse",
        f"TCP to {there.peer}",
        f"{there.peer} answers sparkd, but its TCP port {there.address}:{fact.port}, one that its kernel chose, "
        f"cannot be reached from {node} ({there.own_address}): {fact.why}",
        f"every TCP port of {there.peer} open to {node}: the engine connects at ports that the kernel chooses",
        f"allow peers by address; on {there.peer}: ufw allow from {there.own_address}, or: "
        f"nft insert rule inet filter input ip saddr {there.own_address} accept",
    )


def firewall_untried(node: str, there: PeerPort) -> Finding:
    return Finding(
        "firewall-untried",
        node,
        "repair",
        f"TCP to {there.peer}",
        f"port {there.address}:{there.port} has not been tried yet",
        "a try within seconds",
        "none needed: a start waits for it",
    )


def check(seen: Seen) -> Outcome:
    """Unknown while a peer does not answer, or this host cannot try: neither says anything of a firewall."""
    if seen.reach is None:
        return unknown("the peers' ports were not looked at")
    if not seen.reach:
        return not_applicable("no peers")
    findings, doubts, reached = [], [], []
    for there in seen.reach:
        fact = there.fact
        if not there.port:
            doubts.append(f"{there.peer} does not answer, or tells no port to try")
        elif fact is None:
            findings.append(firewall_untried(seen.node, there))
        elif fact.answer == "untried":
            doubts.append(f"{there.peer} could not be tried: {fact.why}")
        elif not fact.blocked:
            reached.append(there.peer)
        elif there.answers:
            findings.append(firewall_blocks(seen.node, there, fact))
        else:
            doubts.append(f"{there.peer} was not reached at {there.address}:{fact.port}, and has not answered since")
    return judged(findings, f"{' and '.join(reached)} can be reached", doubts)
