"""Descriptions for the tests of ring_mesh: the one of the lab, and any valid one."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

from hypothesis import strategies as st

from ring_mesh import FABRIC_DEVICES

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


@st.composite
def base_ranges(draw: st.DrawFn) -> IPv4Network:
    """Ranges with room for six /24, none of them special."""
    length = draw(st.integers(8, 21))
    start = draw(st.integers(1 << 24, (224 << 24) - 1).filter(_unicast))
    return IPv4Network((start, length), strict=False)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Valid `[cluster]` tables with their nodes in any order."""
    base = draw(base_ranges())
    addresses = st.integers(1 << 24, (224 << 24) - 1).filter(_unicast).map(IPv4Address)
    chosen = draw(st.lists(addresses.filter(lambda a: a not in base), min_size=3, max_size=3, unique=True))
    named = draw(st.lists(names, min_size=3, max_size=3, unique=True))
    nodes: list[dict[str, Any]] = []
    for rank, (name, address) in enumerate(zip(named, chosen, strict=True)):
        node: dict[str, Any] = {"name": name, "rank": rank, "address": str(address)}
        if draw(st.booleans()):
            node["management_interface"] = draw(interfaces)
        nodes.append(node)
    table: dict[str, Any] = {
        "name": draw(names),
        "base_range": str(base),
        "node": draw(st.permutations(nodes)),
    }
    if draw(st.booleans()):
        table["management_interface"] = draw(interfaces)
    return table
