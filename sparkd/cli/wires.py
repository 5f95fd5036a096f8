"""The ring as a picture with the state of each cable: a triangle of three, a square of four, a line of two. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from ring_mesh import Socket, by_order
from ring_mesh.cabling import CablePair, cables_in_order
from sparkd.cli import cables, rates, render
from sparkd.cli.answer import Json, members, rows, words
from sparkd.cli.canvas import BOTH, BROKEN, ONE, Canvas
from sparkd.cli.text import Style, clean

_WIDEST = 80


@dataclass(frozen=True)
class Wire:
    """One cable as it is drawn. told: its rates, or its fault in a few words."""

    a: Socket
    b: Socket
    kind: str
    colour: str | None
    told: str

    def at(self, node: str) -> int:
        """The port that it has there."""
        return self.a.cage if self.a.node == node else self.b.cage


def wires(ring: Json, plan: Sequence[str] = ()) -> list[Wire]:
    """The cables in the order in which they go around; plan: those to show while no ring is heard."""
    nodes = members(ring)
    known = {clean(row.get("node")): row for row in rows(ring, "fabric")}
    if len(nodes) < 2 or not known:
        return []
    order = cables.in_order(words(ring, "cables"), nodes) or cables.in_order(plan, nodes)
    return [_wire(ring, known, pair) for pair in order or cables_in_order(by_order(nodes), nodes)]


def _wire(ring: Json, known: dict[str, Json], pair: CablePair) -> Wire:
    a, b = pair
    ends = [(end, cables.end_state(known.get(end.node, {}), end, far)) for end, far in ((a, b), (b, a))]
    states = {state for _, state in ends}
    rate = rates.of_cable(ring, a)
    if states == {"ok"}:
        slow = rates.fault(ring, pair)
        return Wire(a, b, BOTH, "red" if slow else "green", f"{slow}: {rate}" if slow else rate or "ok")
    faults = [(end, state) for end, state in ends if state.startswith(cables.FAULTS)]
    if faults:
        half = all(state.startswith("carrier ") for _, state in faults)
        return Wire(a, b, ONE if half else BROKEN, "red", _fault(faults))
    if "unknown" in states:
        silent = " and ".join(dict.fromkeys(end.node for end, state in ends if state == "unknown"))
        return Wire(a, b, BROKEN, "yellow", f"unknown: {silent} is silent")
    # Without a ring that is wanted up there are no addresses on its fabric, as it should be.
    if ring.get("want") != "up":
        return Wire(a, b, ONE, None, rate or "cabled")
    where = " and ".join(f"{end.node}.{end.cage}" for end, state in ends if state != "ok")
    return Wire(a, b, ONE, "yellow", f"not set up at {where}")


def _fault(faults: Sequence[tuple[Socket, str]]) -> str:
    """Told once if both ends tell the same."""
    if len({state for _, state in faults}) == 1 and len(faults) == 2:
        return faults[0][1]
    return "; ".join(f"{end.node} port {end.cage}: {state}" for end, state in faults[:1])


def picture(ring: Json, style: Style, *, fancy: bool, plan: Sequence[str] = ()) -> list[str]:
    """At most 80 columns and, up to four nodes, nine lines; a line for each cable where the picture has no room."""
    drawn = wires(ring, plan)
    if not drawn:
        return []
    order = list(dict.fromkeys([wire.a.node for wire in drawn] + [wire.b.node for wire in drawn]))
    boxes = _boxes(ring, order)
    width = min(style.width, _WIDEST)
    widest = max(len(text) for text, _ in boxes.values()) + 4
    canvas = Canvas(fancy=fancy)
    if len(order) == 2 and 2 * widest + 16 <= width:
        _line(canvas, drawn, boxes, order, width)
    elif len(order) == 3 and 2 * widest + 12 <= width:
        _triangle(canvas, drawn, boxes, order, width)
    elif len(order) == 4 and 2 * widest + 12 <= width:
        _square(canvas, drawn, boxes, order, width)
    else:
        return _list(drawn, style)
    return canvas.lines(style)


def _boxes(ring: Json, order: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """What stands in each node's box, and its colour: that of its rank."""
    found = {}
    for row in rows(ring, "ranks"):
        state = clean(row.get("state"))
        found[clean(row.get("node"))] = (
            f"{clean(row.get('node'))} rank {clean(row.get('rank'))}",
            render.STATE_COLOURS.get(state),
        )
    return {name: found.get(name, (name, None)) for name in order}


def _line(
    canvas: Canvas, drawn: Sequence[Wire], boxes: dict[str, tuple[str, str | None]], order: Sequence[str], width: int
) -> None:
    left, right = order
    here, there = boxes[left][0], boxes[right][0]
    start, end = 2 + len(here) + 4, width - 3 - len(there) - 4
    for row, wire in enumerate(drawn[:2]):
        y = 1 + 4 * row
        if row == 0:
            canvas.box(2, 0, *boxes[left])
            canvas.box(end + 1, 0, *boxes[right])
        _between(canvas, wire, (left, right), (start, end), y + row)


def _triangle(
    canvas: Canvas, drawn: Sequence[Wire], boxes: dict[str, tuple[str, str | None]], order: Sequence[str], width: int
) -> None:
    """Rank 0's node on top; from its port 0 the ring goes to the right."""
    top, right, left = order
    first, second, third = drawn
    x = (width - len(boxes[top][0]) - 4) // 2
    end = x + len(boxes[top][0]) + 3
    down_left, down_right = 2 + 6, width - 3 - 6
    canvas.box(x, 0, *boxes[top])
    canvas.box(2, 5, *boxes[left])
    at = width - 2 - len(boxes[right][0]) - 4
    canvas.box(at, 5, *boxes[right])
    for wire, corner, column, span, node in (
        (third, 0, down_left, (down_left + 1, x - 1), left),
        (first, 1, down_right, (end + 1, down_right - 1), right),
    ):
        canvas.across(*span, 1, wire.kind, wire.colour)
        canvas.corner(column, 1, corner, wire.kind, wire.colour)
        canvas.down(column, 2, 4, wire.kind, wire.colour)
        canvas.text(column, 4, str(wire.at(node)), wire.colour)
        canvas.text(span[0] if corner else span[1], 1, str(wire.at(top)), wire.colour)
    room = (down_right - down_left) // 2 - 3
    for row, text in enumerate(_wrapped(third.told, room)):
        canvas.text(down_left + 2, 3 + row, text, third.colour)
    for row, text in enumerate(_wrapped(first.told, room)):
        canvas.text(down_right - 1 - len(text), 3 + row, text, first.colour)
    _between(canvas, second, (left, right), (2 + len(boxes[left][0]) + 4, at - 1), 6)


def _square(
    canvas: Canvas, drawn: Sequence[Wire], boxes: dict[str, tuple[str, str | None]], order: Sequence[str], width: int
) -> None:
    """From rank 0's node, on the upper left, clockwise."""
    one, two, three, four = order
    right = {name: width - 2 - len(boxes[name][0]) - 4 for name in (two, three)}
    for name, x, y in ((one, 2, 0), (two, right[two], 0), (three, right[three], 6), (four, 2, 6)):
        canvas.box(x, y, *boxes[name])
    _between(canvas, drawn[0], (one, two), (2 + len(boxes[one][0]) + 4, right[two] - 1), 1)
    _between(canvas, drawn[2], (four, three), (2 + len(boxes[four][0]) + 4, right[three] - 1), 7)
    for wire, column, upper, lower in ((drawn[3], 8, one, four), (drawn[1], width - 9, two, three)):
        canvas.down(column, 3, 5, wire.kind, wire.colour)
        canvas.text(column, 3, str(wire.at(upper)), wire.colour)
        canvas.text(column, 5, str(wire.at(lower)), wire.colour)
        text = next(iter(_wrapped(wire.told, width // 2 - 12)), "")
        canvas.text(column + 2 if column == 8 else column - 1 - len(text), 4, text, wire.colour)


def _between(canvas: Canvas, wire: Wire, nodes: tuple[str, str], span: tuple[int, int], y: int) -> None:
    """A wire from left to right, with its words below."""
    start, end = span
    canvas.across(start, end, y, wire.kind, wire.colour)
    canvas.text(start, y, str(wire.at(nodes[0])), wire.colour)
    canvas.text(end, y, str(wire.at(nodes[1])), wire.colour)
    for row, text in enumerate(_wrapped(wire.told, end - start - 1)[:2]):
        canvas.text(start + (end - start - len(text)) // 2 + 1, y + 1 + row, text, wire.colour)


def _wrapped(text: str, room: int) -> list[str]:
    """On two lines at most."""
    lines = textwrap.wrap(text, max(room, 8)) or [""]
    return (
        [*lines[:1], lines[1] if len(lines) == 2 else f"{lines[1][: max(room, 8) - 3]}..."] if len(lines) > 1 else lines
    )


def _list(drawn: Sequence[Wire], style: Style) -> list[str]:
    marks = {BOTH: "====", ONE: "----", BROKEN: "-X- "}
    return [
        style.paint(style.fit(f"  {wire.a} {marks[wire.kind]} {wire.b}: {wire.told}"), wire.colour) for wire in drawn
    ]
