"""Whether every rail of a serving ring carries traffic: NCCL goes on without one, at a part of the speed."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, not_applicable, unknown
from sparkd.core.hardware import RailFact
from sparkd.core.model import Finding

# A ring that is asked nothing sends next to nothing, and then no rail can be blamed: bytes of the busiest in a minute.
BUSY = 100_000_000
# Hellos, ARP and the heartbeats of connections move the counter of a rail that NCCL does not use.
SHARE = 1000


def rail_idle(node: str, rail: RailFact, busiest: RailFact) -> Finding:
    return Finding(
        "rail-idle",
        node,
        "warn",
        rail.hca,
        f"sent {rail.sent / 1e6:.1f} MB in {rail.seconds:.0f} s, while {busiest.hca} sent {busiest.sent / 1e6:.0f} MB",
        "traffic on every rail of a serving ring",
        f"look for {rail.hca} in the NET/IB lines of the ranks' logs; restart the ring, and measure its rails",
    )


def check(seen: Seen) -> Outcome:
    rails = seen.hardware.rails
    if rails is None:
        return unknown(seen.hardware.why("rails"))
    planned = [rail for rail in rails if rail.hca in seen.hcas]
    if not planned:
        return not_applicable("nothing to compare: no ring has served here over RDMA for a minute")
    busiest = max(planned, key=lambda rail: rail.sent)
    if busiest.sent < BUSY * busiest.seconds / 60:
        return not_applicable("the ring had nothing to do")
    idle = [rail for rail in planned if rail.sent * SHARE < busiest.sent]
    return judged([rail_idle(seen.node, rail, busiest) for rail in idle], f"{len(planned)} rails carry traffic")
