"""Descriptions for the tests of ring_mesh: the one of the lab, and any valid one, with any valid cabling."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

from hypothesis import strategies as st

from ring_mesh import FABRIC_DEVICES, Cabling, Cluster, Plan, Socket, parse_cluster

LAB = """
[cluster]
name = "lab"
base_range = "10.77.0.0/21"

[[cluster.node]]
name = "spark1"
rank = 0
address = "192.168.77.1"

[[cluster.node]]
name = "spark2"
rank = 1
address = "192.168.77.2"

[[cluster.node]]
name = "spark3"
rank = 2
address = "192.168.77.3"
"""


def lab(nodes: int = 3) -> dict[str, Any]:
    """The `[cluster]` table of LAB, anew for each caller; with another number of nodes, one like it."""
    rows = [{"name": f"spark{rank + 1}", "rank": rank, "address": f"192.168.77.{rank + 1}"} for rank in range(nodes)]
    return {"name": "lab", "base_range": "10.77.0.0/21" if nodes < 5 else "10.77.0.0/17", "node": rows}


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"

names = st.builds(
    "{}{}".format, st.sampled_from(_LETTERS + _DIGITS), st.text(alphabet=_LETTERS + _DIGITS + "-", max_size=62)
)
interfaces = st.builds(
    "{}{}".format, st.sampled_from(_LETTERS), st.text(alphabet=_LETTERS + _DIGITS, max_size=14)
).filter(lambda name: name != "lo" and name not in FABRIC_DEVICES)


def _unicast(address: int) -> bool:
    first = address >> 24
    return 1 <= first < 224 and first != 127


def cable(text: str) -> tuple[Socket, Socket]:
    """`spark1.0-spark2.1`: the cable from port 0 of spark1 to port 1 of spark2."""
    a, b = (end.rpartition(".") for end in text.split("-"))
    return Socket(a[0], int(a[2])), Socket(b[0], int(b[2]))


def wired(text: str) -> Cabling:
    """The cables that are described in words as `cable` takes them."""
    return Cabling(tuple(cable(word) for word in text.split()))


def addresses(plan: Plan) -> dict[tuple[str, str], list[IPv4Interface]]:
    """What the hosts' ports have once the plan was applied."""
    return {(end.node, end.device): [end.address] for link in plan.links for end in link.ends}


@st.composite
def base_ranges(draw: st.DrawFn, longest: int = 21) -> IPv4Network:
    """Ranges of that prefix length or larger, none of them special."""
    length = draw(st.integers(8, longest))
    start = draw(st.integers(1 << 24, (224 << 24) - 1).filter(_unicast))
    return IPv4Network((start, length), strict=False)


sizes = st.sampled_from([2, 3, 4]) | st.integers(2, 64)


@st.composite
def tables(draw: st.DrawFn, nodes: st.SearchStrategy[int] = sizes) -> dict[str, Any]:
    """Valid `[cluster]` tables with their nodes in any order, and room for two /24 per node."""
    count = draw(nodes)
    base = draw(base_ranges(24 - (2 * count - 1).bit_length()))
    unicast = st.integers(1 << 24, (224 << 24) - 1).filter(_unicast).map(IPv4Address)
    # Names and addresses by chance are slow to draw and tell nothing more when there are many of them.
    some = min(count, 4)
    chosen = draw(st.lists(unicast.filter(lambda a: a not in base), min_size=some, max_size=some, unique=True))
    named = draw(st.lists(names, min_size=some, max_size=some, unique=True))
    outside = IPv4Address("172.31.0.0") if IPv4Address("192.168.0.0") in base else IPv4Address("192.168.0.0")
    spare = (outside + index for index in range(1, 1000) if outside + index not in chosen)
    chosen += [next(spare) for _ in range(some, count)]
    named += [f"{name}{index}"[-63:] for index, name in zip(range(some, count), ["node-"] * count, strict=False)]
    rows: list[dict[str, Any]] = []
    for rank, (name, address) in enumerate(zip(named, chosen, strict=True)):
        row: dict[str, Any] = {"name": name, "rank": rank, "address": str(address)}
        if rank < some and draw(st.booleans()):
            row["management_interface"] = draw(interfaces)
        rows.append(row)
    table: dict[str, Any] = {
        "name": draw(names),
        "base_range": str(base),
        "node": draw(st.permutations(rows)),
    }
    if draw(st.booleans()):
        table["management_interface"] = draw(interfaces)
    return table


_PAIRS = ("a.0-b.0", "a.0-b.1", "a.1-b.0", "a.1-b.1", "a.0-b.0 a.1-b.1", "a.0-b.1 a.1-b.0")


@st.composite
def cablings(draw: st.DrawFn, nodes: Sequence[str]) -> Cabling:
    """Rings of all the nodes, in any order and either direction, their cables and ends described in any order."""
    around = draw(st.permutations(nodes))
    if len(around) == 2:
        pair = dict(zip("ab", around, strict=True))
        found = [
            tuple(Socket(pair[socket.node], socket.cage) for socket in ends)
            for ends in wired(draw(st.sampled_from(_PAIRS))).cables
        ]
    else:
        found = [(Socket(name, 0), Socket(around[index - 1], 1)) for index, name in enumerate(around)]
    return Cabling(tuple((a, b) if draw(st.booleans()) else (b, a) for a, b in draw(st.permutations(found))))


@st.composite
def rings(draw: st.DrawFn, nodes: st.SearchStrategy[int] = sizes) -> tuple[Cluster, Cabling]:
    """Valid clusters with a valid cabling."""
    cluster = parse_cluster(draw(tables(nodes)))
    return cluster, draw(cablings([node.name for node in cluster.nodes]))
