"""incidents: what the nodes have kept of failures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sparkd.cli.answer import Json, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import Style, clean, columns, say, style_of, whole_lines

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(
    commands: Commands, daemon: argparse.ArgumentParser, client: Callable[[argparse.Namespace], Client]
) -> None:
    """`incidents [show EPOCH]`. daemon: the options that say where sparkd listens, which `client` reads."""
    text = "list the failures that the nodes have kept evidence of, the newest first"
    more = "With `show`, what ended that epoch, and what each node has kept of it."
    parser = commands.add_parser("incidents", help=text, description=f"{text.capitalize()}. {more}", parents=[daemon])
    # No command of its own below this one: options would belong to either of them.
    parser.add_argument("show", nargs="?", choices=["show"], metavar="show")
    parser.add_argument("epoch", nargs="?", type=int, metavar="EPOCH", help="one that is in the list")
    parser.add_argument("--json", action="store_true", help="print what the API says; with show, the files as well")
    parser.set_defaults(run=lambda options: _run(client(options), options))


def _run(client: Client, options: argparse.Namespace) -> Exit:
    if options.show is None:
        return incidents(client, as_json=options.json)
    if options.epoch is None:
        raise Failure(Exit.USAGE, "incidents show: expected an EPOCH, one that `sparkctl incidents` lists")
    return show(client, options.epoch, as_json=options.json)


def incidents(client: Client, *, as_json: bool) -> Exit:
    """List the failures that any node has kept something of, the newest first."""
    answer = client.get("/v1/incidents")
    say(json.dumps(answer, indent=2) if as_json else "\n".join(_listed(answer, whole_lines(sys.stdout))))
    return Exit.OK


def show(client: Client, epoch: int, *, as_json: bool) -> Exit:
    """What is known of one of them; with its files as the API gives them, for programs."""
    answer = client.get(f"/v1/incidents/{epoch}")
    say(json.dumps(answer, indent=2) if as_json else "\n".join(_shown(answer, style_of(sys.stdout))))
    return Exit.OK


def _listed(answer: Json, style: Style) -> Iterator[str]:
    epochs: dict[int, list[Mapping[str, Any]]] = {}
    for node in rows(answer, "nodes"):
        for kept in rows(node, "incidents"):
            epochs.setdefault(int(kept.get("epoch") or 0), []).append(kept)
    table = [["EPOCH", "WHEN", "WHERE", "WHAT"]]
    for epoch in sorted(epochs, reverse=True):
        kept = epochs[epoch][0]
        table.append([str(epoch), _when(kept.get("at")), clean(kept.get("root")), clean(kept.get("sentence"))])
    if len(table) == 1:
        yield "no failure is on record"
    else:
        yield from (style.fit("  ".join(row)) for row in columns(table))
    yield from _silent(answer)


def _shown(answer: Json, style: Style) -> Iterator[str]:
    told = False
    for node in rows(answer, "nodes"):
        kept = node.get("incident")
        if not isinstance(kept, dict):
            continue
        if not told:
            told = True
            yield style.paint(f"epoch {clean(kept.get('epoch'))} ended: {clean(kept.get('sentence'))}", "bold")
            yield f"  on {clean(kept.get('root'))}, rank {clean(kept.get('rank'))}, {_when(kept.get('at'))}"
            yield f"  signature {clean(kept.get('signature'))}"
        yield ""
        yield f"{clean(node.get('node'))}: {clean(kept.get('outcome'))}"
        yield f"  first error: {clean(kept.get('first')) or 'it printed none'}"
        yield from (f"  {clean(sentence)}" for sentence in kept.get("missing") or ())
        if not kept.get("complete"):
            yield "  not complete: the rank had not ended, or sparkd did, before it was"
        files = node.get("files")
        names = ", ".join(clean(name) for name in files) if isinstance(files, dict) else ""
        yield f"  in /var/lib/sparkd/incidents/{clean(kept.get('epoch'))}: {names or 'nothing more'}"
    yield from _silent(answer)


def _silent(answer: Json) -> Iterator[str]:
    for node in rows(answer, "nodes"):
        if node.get("error"):
            yield f"{clean(node.get('node'))}: not known: {clean(node.get('error'))}"


def _when(at: object) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(at, (int, float)) else "?"
