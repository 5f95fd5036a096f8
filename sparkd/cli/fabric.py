"""fabric down, up, show: this host's fabric ports, and whether sparkd may configure them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ring_mesh import PORTS
from sparkd.cli import discover, rates
from sparkd.cli.answer import Json, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit
from sparkd.cli.text import Style, clean, columns, say, style_of

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(
    commands: Commands, daemon: argparse.ArgumentParser, client: Callable[[argparse.Namespace], Client]
) -> None:
    """`fabric` with its own commands. daemon: the options that say where sparkd listens, which `client` reads."""
    text = "show the fabric ports of this node, take them from sparkd or give them back"
    parser = commands.add_parser("fabric", help=text, description=f"{text.capitalize()}.")
    inner = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def add(name: str, text: str, more: str) -> argparse.ArgumentParser:
        return inner.add_parser(name, help=text, description=f"{text.capitalize()}. {more}", parents=[daemon])

    more = "Other nodes keep theirs. It is refused while the ring is up, and holds until `fabric up`."
    command = add("down", "restore the fabric ports of this node as sparkd found them, and leave them alone", more)
    command.set_defaults(run=lambda options: down(client(options), as_json=options.json))

    command = add("up", "let sparkd configure the fabric ports of this node again", "Other nodes are left as they are.")
    command.set_defaults(run=lambda options: up(client(options), as_json=options.json))

    more = "It is refused while a rank runs on this node. Other nodes keep what was measured between them."
    command = add("measure", "forget how the rails of this node were measured: the next start measures them anew", more)
    command.set_defaults(run=lambda options: measure(client(options), as_json=options.json))

    command = add("show", "show the fabric ports of this node and what they are cabled to", "")
    command.add_argument("--json", action="store_true", help="print what the API says")
    command.set_defaults(run=lambda options: show(client(options), as_json=options.json))


def down(client: Client, *, as_json: bool = False) -> Exit:
    """Take the ports from sparkd. Raises Failure while the ring needs them."""
    answer = client.post("/v1/host/fabric/down")
    node = clean(answer.get("node"))
    if as_json:
        say(json.dumps(answer, indent=2))
        return Exit.OK
    say(f"{node}: sparkd restores its fabric ports as it found them and leaves them alone; other nodes keep theirs")
    say(f"{node}: no ring can start until, here: sparkctl fabric up")
    return Exit.OK


def up(client: Client, *, as_json: bool = False) -> Exit:
    """Give the ports back to sparkd."""
    answer = client.post("/v1/host/fabric/up")
    node = clean(answer.get("node"))
    if as_json:
        say(json.dumps(answer, indent=2))
        return Exit.OK
    say(f"{node}: sparkd configures its fabric ports again; other nodes are as they were")
    return Exit.OK


def measure(client: Client, *, as_json: bool = False) -> Exit:
    """Forget what was measured. Raises Failure while a rank runs here."""
    answer = client.post("/v1/host/fabric/measure")
    node = clean(answer.get("node"))
    if as_json:
        say(json.dumps(answer, indent=2))
        return Exit.OK
    say(f"{node}: what was measured of its rails is forgotten; the next start measures them again")
    return Exit.OK


def show(client: Client, *, as_json: bool) -> Exit:
    """Print the ports of this node."""
    ring, host = client.get("/v1/ring"), client.get("/v1/host")
    if as_json:
        part = next((row for row in rows(ring, "fabric") if row.get("node") == ring.get("node")), {})
        devices = {port.device for port in PORTS}
        links = [row for row in rows(host, "links") if row.get("device") in devices]
        known = links if isinstance(host.get("links"), list) else None
        measured = ring.get("rails")
        say(json.dumps({**part, "released": _released(ring), "links": known, "rails": measured}, indent=2))
    else:
        say(table(ring, host, style_of(sys.stdout)))
    return Exit.OK


def table(ring: Json, host: Json, style: Style) -> str:
    """A line for each port of the node that answers; rates only if there are any. Pure."""
    node = clean(ring.get("node"))
    part = next((row for row in rows(ring, "fabric") if row.get("node") == node), {})
    known = {clean(link.get("device")): link for link in rows(host, "links")}
    ends = {clean(end.get("device")): end for end in rows(part, "ends")}
    measured = bool(rows(ring, "rails"))
    lines = [["  port", "domain", "device", "carrier", "MTU", "state", *(["Gb/s"] if measured else []), "neighbour"]]
    for port in PORTS:
        link, end = known.get(port.device), ends.get(port.device)
        if isinstance(host.get("links"), list):
            carrier = "no device" if link is None else "yes" if link.get("carrier") else "no"
        else:
            carrier = "unknown"
        mtu = clean(link.get("mtu")) if link else "-"
        heard = discover.heard(port, ring, node)
        rate = [rates.of_device(ring, node, port.device)] if measured else []
        lines.append([f"  {port.cage}", port.domain, port.device, carrier, mtu, _state(link, end), *rate, heard])
    text = [style.fit("  ".join(row)) for row in columns(lines)]
    text[1:] = [
        style.paint(line, None if row[3] == "yes" and row[5] == "as planned" else "yellow")
        for line, row in zip(text[1:], lines[1:], strict=True)
    ]
    released = ["  taken from sparkd by an operator; to give them back: sparkctl fabric up"] if _released(ring) else []
    return "\n".join([f"Fabric ports of {node}", *released, *text])


def _state(link: Json | None, end: Json | None) -> str:
    if link is not None and not link.get("up"):
        return "down"
    if end is None:
        return "not planned" if link is not None else "unknown"
    return "as planned" if end.get("verified") else "not set up"


def _released(ring: Json) -> bool:
    return any(
        finding.get("id") == "fabric-released" and finding.get("node") == ring.get("node")
        for finding in rows(ring, "findings")
    )
