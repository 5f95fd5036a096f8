"""How long a plan takes."""

import timeit
from ipaddress import IPv4Address, IPv4Network

from ring_mesh.cluster import MAX_NODES, Cluster, Node
from ring_mesh.plan import plan


def plan_milliseconds(nodes: int = MAX_NODES, runs: int = 10) -> float:
    """The shortest time that a plan of that many nodes took in so many runs: the one with the fewest interruptions."""
    members = tuple(
        Node(f"spark{rank + 1}", rank, IPv4Address("192.168.77.1") + rank, "enP7s7") for rank in range(nodes)
    )
    cluster = Cluster("bench", IPv4Network("10.77.0.0/16"), members)
    return min(timeit.repeat(lambda: plan(cluster), number=1, repeat=runs)) * 1000


def report() -> str:
    """One line per measurement, `WHAT: VALUE UNIT`."""
    return f"plan {MAX_NODES} nodes: {plan_milliseconds():.1f} ms"
