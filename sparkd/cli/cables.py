"""The cables of the ring as text, in the order in which they go around. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ring_mesh import PORTS, CablingError, Socket, by_order
from ring_mesh.cabling import CablePair, cables_in_order
from sparkd.cli import rates
from sparkd.cli.answer import Json, members, rows, words
from sparkd.cli.text import Style, clean, columns
from sparkd.core import cabling

CAGES = {port.device: port.cage for port in PORTS}
_GAP = "----"
_HEARS = "hears "
FAULTS = ("no ", "carrier ", _HEARS)
"""How the state of an end begins that is not as it should be, however the ring is wanted."""


def in_order(cables: Sequence[str], nodes: Sequence[str]) -> tuple[CablePair, ...] | None:
    """The cables from rank 0 on, each with its port 0 first; None if they are not one ring of these nodes.

    cables: each as "spark1.0~spark2.1". nodes: all, by rank.
    """
    try:
        return cables_in_order(cabling.parse(cables), nodes) if cables else None
    except (CablingError, ValueError):
        return None


def planned(plan: Json) -> tuple[str, ...]:
    """The cables in what GET /v1/plan says."""
    return tuple("~".join(_plug(cable.get(end)) for end in ("from", "to")) for cable in rows(plan, "cables"))


def _plug(end: Any) -> str:
    return f"{end.get('node')}.{end.get('cage')}" if isinstance(end, dict) else ""


def block(ring: Json, style: Style, plan: Sequence[str] = ()) -> list[str]:
    """A line for each cable, with the state of both ends and the rates of its two rails, if they were measured; plan:
    the cables to show while no ring is heard.

    An end that hears another port than the cable's far one says so.
    """
    nodes = members(ring)
    known = {clean(row.get("node")): row for row in rows(ring, "fabric")}
    if len(nodes) < 2 or not known:
        return []
    cables = in_order(words(ring, "cables"), nodes) or in_order(plan, nodes)
    cables = cables or cables_in_order(by_order(nodes), nodes)
    pair = len(nodes) == 2
    table = [["Cables", "", "", "", "", ""] if pair else ["Cables", "port 0", "", "port 1", "", ""]]
    for a, b in cables:
        here, there = (end_state(known.get(end.node, {}), end, far) for end, far in ((a, b), (b, a)))
        left, right = (str(a), str(b)) if pair else (a.node, b.node)
        table.append([f"  {left}", here, _wire(here, there), there, right, rates.of_cable(ring, a)])
    head, *lines = [style.fit("  ".join(row).rstrip()) for row in columns(table)]
    # A ring that is down has no addresses on its fabric, which is as it should be.
    colours = {" -X- ": "red", " ????": "yellow", " ----": "yellow" if ring.get("want") == "up" else None}
    painted = [style.paint(line, next((colours[mark] for mark in colours if mark in line), None)) for line in lines]
    return [style.paint("Cables", "bold") + head.removeprefix("Cables"), *painted]


def picture(cables: Sequence[CablePair], nodes: Sequence[str], style: Style) -> list[str]:
    """The ring as boxes in a row, or as a line for each cable where those would not fit.

    cables: in the order of `in_order`. nodes: all, by rank.
    """
    order = list(nodes) if len(nodes) == 2 else [a.node for a, _ in cables]
    boxes = {name: (clean(name), f"rank {nodes.index(name)}") for name in order}
    width = max(len(text) for box in boxes.values() for text in box)
    lines = _pair(cables, order, boxes, width) if len(nodes) == 2 else _around(order, boxes, width)
    if max(len(line) for line in lines) <= style.width:
        return lines
    left = max(len(str(a)) for a, _ in cables)
    return [f"  {a!s:<{left}} ======== {b}" for a, b in cables]


def _around(order: list[str], boxes: dict[str, tuple[str, str]], width: int) -> list[str]:
    edge = "-" * (width + 2)
    gap = " " * len(f"0{_GAP}1")
    names = f"0{_GAP}1".join(f"| {boxes[name][0]:<{width}} |" for name in order)
    ranks = gap.join(f"| {boxes[name][1]:<{width}} |" for name in order)
    return [
        f"     {gap.join([f'.{edge}.'] * len(order))}",
        f"  .-1{names}0-.",
        f"  |  {ranks}  |",
        f"  |  {gap.join([_bottom(edge)] * len(order))}  |",
        f"  '{'-' * (len(names) + 4)}'",
    ]


def _pair(cables: Sequence[CablePair], order: list[str], boxes: dict[str, tuple[str, str]], width: int) -> list[str]:
    edge = "-" * (width + 2)
    gap = " " * len(f"0{_GAP * 2}0")
    left, right = (boxes[name] for name in order)
    lines = [f"  .{edge}.{gap}.{edge}."]
    for row in range(2):
        wire = gap
        if row < len(cables):
            ends = {socket.node: socket.cage for socket in cables[row]}
            wire = f"{ends[order[0]]}{_GAP * 2}{ends[order[1]]}"
        lines.append(f"  | {left[row]:<{width}} |{wire}| {right[row]:<{width}} |")
    return [*lines, f"  {_bottom(edge)}{gap}{_bottom(edge)}"]


def _bottom(edge: str) -> str:
    return f"'{edge}'"


def end_state(row: Json, here: Socket, far: Socket) -> str:
    """The state of one end, or what is heard there if that is not the far end."""
    state = _cage(row.get("ends"), here.cage)
    told = [one for one in rows(row, "neighbours") if CAGES.get(str(one.get("device"))) == here.cage]
    others = list(dict.fromkeys(map(_neighbour, told)))
    if state.startswith("no ") or not set(others) - {str(far)}:
        return state
    return f"{_HEARS}{', '.join(others)}"


def _neighbour(told: Json) -> str:
    node, remote = clean(told.get("node")), clean(told.get("remote"))
    if told.get("ours") is not True:
        return f"foreign {node}".rstrip()
    return f"{node} port {CAGES[remote]}" if remote in CAGES else f"{node} {remote}"


def _cage(ends: Any, cage: int) -> str:
    """The state of one port in a few words; its node may not be able to tell."""
    if not isinstance(ends, list):
        return "unknown"
    twins = [end for end in ends if isinstance(end, dict) and CAGES.get(str(end.get("device"))) == cage]
    with_carrier = sum(bool(end.get("carrier")) for end in twins)
    if not twins:
        return "no device"
    if with_carrier == 0:
        return "no carrier"
    if with_carrier < len(twins):
        return f"carrier {with_carrier} of {len(twins)}"
    return "ok" if all(end.get("verified") for end in twins) else "not set up"


def _wire(here: str, there: str) -> str:
    states = {here, there}
    if states == {"ok"}:
        return "===="
    if any(state.startswith(FAULTS) for state in states):
        return "-X-"
    return "????" if "unknown" in states else "----"
