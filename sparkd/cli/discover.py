"""plan --discover: the cables that are there, as the ports themselves hear them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ring_mesh import PORTS, Cabling, CablingError, Port, ring_order
from sparkd.cli import cables, render
from sparkd.cli.answer import STALE, Json, members, number, rows, words
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit
from sparkd.cli.text import Style, clean, columns, duration, say, style_of
from sparkd.core import cabling
from sparkd.core.facts import Neighbour

_ABOUT_CABLES = re.compile(
    r"cable-.*|twins-split|name-clash|node-id-twice|ipv6-off|link-local-missing|cx7-functions-missing|fabric-released"
)
_MARKS = {"repair": ("wait", "yellow"), "warn": ("warn", "yellow")}
_NEIGHBOUR = ("device", "node", "node_id", "remote", "cluster")
_SOURCES = ("network", "hello")


@dataclass(frozen=True)
class Cables:
    """What there is to show. good: the cables are one ring of all nodes, and nothing is wrong with any of them."""

    text: str
    good: bool


def discover(client: Client, *, as_json: bool) -> Exit:
    """Print the cabling as it is heard; REFUSED if it is not one ring."""
    ring = client.get("/v1/ring")
    found = look(ring, style_of(sys.stdout))
    if as_json:
        parts = [{key: row.get(key) for key in ("node", "ends", "neighbours")} for row in rows(ring, "fabric")]
        answer = {"ring": found.good, "cables": words(ring, "cables"), "fabric": parts, "findings": _findings(ring)}
        say(json.dumps(answer, indent=2))
    else:
        say(found.text)
    return Exit.OK if found.good else Exit.REFUSED


def look(ring: Json, style: Style) -> Cables:
    """The picture of the ring, or else what each port hears, with what is wrong and how to mend it. Pure."""
    nodes = members(ring)
    found = _findings(ring)
    wrong = any(finding.get("severity") != "warn" for finding in found)
    complete = cables.in_order(words(ring, "cables"), nodes)
    if complete is None:
        return Cables("\n".join(_apart(ring, nodes, found, style)), good=False)
    plural = "cables, each" if len(complete) > 1 else "cable,"
    title = f"One ring of {len(nodes)} nodes over {len(complete)} {plural} heard at both ends and on both PCI domains"
    lines = [*style.wrap(title, "", ""), "", *cables.picture(complete, nodes, style), *_stale(ring, style)]
    if found:
        lines += ["", style.paint("Findings", "bold"), *render.findings(found, style)]
    return Cables("\n".join(lines), good=not wrong)


def _apart(ring: Json, nodes: Sequence[str], found: Sequence[Json], style: Style) -> list[str]:
    """Each node with its ports and who is heard on them."""
    fabric = {clean(row.get("node")): row for row in rows(ring, "fabric")}
    left = list(found)
    lines = [style.paint(f"No ring of all {len(nodes)} nodes: what each port hears", "bold")]
    silent = dict(_silent(ring))
    for name in nodes:
        own = [finding for finding in left if clean(finding.get("node")) == name]
        heading = f"{name}, {silent[name]}" if name in silent else name
        lines += ["", *style.wrap(heading, "", "  ")]
        cells = columns([[f"  port {port.cage}", port.domain, port.device, heard(port, ring, name)] for port in PORTS])
        for cage in (0, 1):
            about = [finding for finding in own if _cage(finding) == cage]
            here = [row for row, port in zip(cells, PORTS, strict=True) if port.cage == cage]
            lines += [style.paint(style.fit("  ".join(row)), _colour(row[-1], about)) for row in here]
            lines += _marked(about, style)
        lines += _marked([finding for finding in own if _cage(finding) is None], style)
        left = [finding for finding in left if finding not in own]
    if left:
        lines += ["", *render.findings(left, style)]
    told = {(clean(finding.get("node")), _cage(finding)) for finding in found}
    rest = [line for line in _unsaid(fabric, nodes, told) for line in style.wrap(line, "  - ", "    ")]
    return [*lines, *(["", style.paint("To be one ring", "bold"), *rest] if rest else [])]


def heard(port: Port, ring: Json, node: str) -> str:
    """Who is at the other end of that port of the node, in a few words. Pure."""
    row = next((row for row in rows(ring, "fabric") if row.get("node") == node), {})
    found = [finding for finding in rows(ring, "findings") if finding.get("node") == node]
    here = [neighbour for neighbour in _neighbours(row) if neighbour.device == port.device]
    if here:
        return ", ".join(_name(neighbour) for neighbour in here)
    if any(finding.get("id") == "ipv6-off" and finding.get("subject") == port.device for finding in found):
        return "IPv6 off"
    if _mentions(found, "cx7-functions-missing", port.device):
        return "no device"
    end = next((end for end in rows(row, "ends") if end.get("device") == port.device), None)
    if end is not None and not end.get("carrier"):
        return "no carrier"
    if not isinstance(row.get("neighbours"), list):
        return "unknown"
    return "not heard yet" if _mentions(found, "cable-unheard", port.device) else "nobody"


def _mentions(found: Sequence[Json], id_: str, device: str) -> bool:
    return any(finding.get("id") == id_ and device in clean(finding.get("observed")) for finding in found)


def _neighbours(row: Json) -> list[Neighbour]:
    found = []
    for told in rows(row, "neighbours"):
        device, node, node_id, remote, cluster = (clean(told.get(key)) for key in _NEIGHBOUR)
        found.append(Neighbour(device, node, node_id, remote, cluster, told.get("ours") is True))
    return found


def _name(neighbour: Neighbour) -> str:
    if not neighbour.ours:
        return f"foreign: {neighbour.node or '?'} of {neighbour.cluster or '?'}"
    cage = cables.CAGES.get(neighbour.remote)
    where = neighbour.remote if cage is None else f"port {cage} ({neighbour.remote})"
    return f"{neighbour.node} {where}"


def _findings(ring: Json) -> list[Json]:
    """Those about cables, each once: a node tells its own, and the others repeat it."""
    kept: list[Json] = []
    for finding in rows(ring, "findings"):
        unasked = finding.get("id") == "unknown-is-a-state" and finding.get("subject") in _SOURCES
        if (unasked or _ABOUT_CABLES.fullmatch(clean(finding.get("id")))) and finding not in kept:
            kept.append(finding)
    return kept


def _cage(finding: Json) -> int | None:
    """Which of the node's two ports the finding is about, if it is about one."""
    subject = clean(finding.get("subject"))
    if subject in cables.CAGES:
        return cables.CAGES[subject]
    return int(subject[-1]) if subject in ("port 0", "port 1") else None


def _colour(heard: str, found: Sequence[Json]) -> str | None:
    if any(finding.get("severity") == "refuse" for finding in found):
        return "red"
    return None if "port" in heard else "yellow"


def _marked(found: Sequence[Json], style: Style) -> list[str]:
    lines = []
    for finding in found:
        id_ = clean(finding.get("id"))
        word, colour = _MARKS.get(clean(finding.get("severity")), ("wrong", "red"))
        lines.append(f"    {style.paint(word, colour)}  {id_}, {clean(finding.get('subject'))}")
        lines += render.details(finding, style, 6)
    return lines


def _unsaid(fabric: Mapping[str, Json], nodes: Sequence[str], told: set[tuple[str, int | None]]) -> Iterator[str]:
    """Why the cables that are heard from both ends are no ring, as far as no finding says it."""
    known = {name: _neighbours(row) for name, row in fabric.items() if isinstance(row.get("neighbours"), list)}
    yield from (f"{name}: what its ports hear is not known" for name in nodes if name not in known)
    far = cabling.far_sockets(known)
    one_sided = {near: end for near, end in far.items() if far.get(end) != near}
    mentioned = {*one_sided, *one_sided.values()}
    for near, end in one_sided.items():
        if end.node in known and not {(near.node, near.cage), (end.node, end.cage)} & told:
            yield f"{near} hears {end}, which does not hear it"
    try:
        ring_order(Cabling(tuple((near, end) for near, end in far.items() if near not in one_sided)), nodes)
    except CablingError as error:
        for problem in error.cables:
            socket = problem.sockets[0]
            # A cable that some node says nothing of is not missing.
            silence = problem.id == "cable-missing" and (socket in mentioned or len(known) < len(nodes))
            if not silence and (socket.node, socket.cage) not in told:
                yield f"{socket}: found {problem.found}, expected {problem.expected}"
    except ValueError:
        return


def _silent(ring: Json) -> Iterator[tuple[str, str]]:
    """The nodes whose word is of the past, or that have never said any."""
    for peer in rows(ring, "peers"):
        age, error = number(peer.get("age")), clean(peer.get("error"))
        why = f": {error}" if error else ""
        if age is None:
            yield clean(peer.get("node")), f"not heard yet{why}"
        elif age > STALE:
            yield clean(peer.get("node")), f"as it was {duration(age)} ago{why}"


def _stale(ring: Json, style: Style) -> list[str]:
    notes = [f"{name} is shown {told}" for name, told in _silent(ring)]
    return ["", *(line for note in notes for line in style.wrap(note, "", "  "))] if notes else []
