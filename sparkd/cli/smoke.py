"""smoke: what came of the tests that the engine passed, or not, before it was ready."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from sparkd.cli.answer import Json, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import Style, clean, columns, say, style_of

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(
    commands: Commands, daemon: argparse.ArgumentParser, client: Callable[[argparse.Namespace], Client]
) -> None:
    """`smoke [EPOCH]`. daemon: the options that say where sparkd listens, which `client` reads."""
    text = "list the smoke tests that the engine had to pass before it was ready, by epoch, the newest first"
    more = "With an EPOCH, what each of its tests saw. The profile says which tests there are."
    parser = commands.add_parser("smoke", help=text, description=f"{text.capitalize()}. {more}", parents=[daemon])
    parser.add_argument("epoch", nargs="?", type=int, metavar="EPOCH", help="one that is in the list")
    parser.add_argument("--json", action="store_true", help="print what the API says")
    parser.set_defaults(run=lambda options: smoke(client(options), options.epoch, as_json=options.json))


def smoke(client: Client, epoch: int | None, *, as_json: bool) -> Exit:
    """List all runs, or show one. Fails with 1 for an epoch that is not kept."""
    answer = client.get("/v1/smoke")
    runs = [run for run in rows(answer, "runs") if epoch in (None, run.get("epoch"))]
    if error := clean(answer.get("error")):
        raise Failure(Exit.UNREACHABLE, f"{clean(answer.get('node'))} keeps the results, and is silent: {error}")
    if epoch is not None and not runs:
        raise Failure(Exit.ERROR, f"no smoke tests of epoch {epoch} are kept", "sparkctl smoke lists those that are")
    if as_json:
        say(json.dumps({**answer, "runs": runs}, indent=2))
        return Exit.OK
    style = style_of(sys.stdout)
    say("\n".join(_listed(runs, style) if epoch is None else _shown(runs[0], style)))
    return Exit.OK


def _listed(runs: list[Json], style: Style) -> Iterator[str]:
    if not runs:
        yield "no smoke tests are on record"
        return
    table = [["EPOCH", "WHEN", "PROFILE", "RESULT", ""]]
    table += [
        [clean(run.get("epoch")), _when(run), clean(run.get("profile")), _verdict(run), clean(run.get("sentence"))]
        for run in runs
    ]
    yield from (style.fit("  ".join(row).rstrip()) for row in columns(table))


def _shown(run: Json, style: Style) -> Iterator[str]:
    head = f"epoch {clean(run.get('epoch'))} {_verdict(run)}: {clean(run.get('sentence'))}"
    yield style.paint(head, "green" if run.get("ok") else "red")
    yield f"  {clean(run.get('model'))} with {clean(run.get('profile'))}, {_when(run)}"
    if not run.get("ok") and not run.get("required"):
        yield "  the ring came up all the same: smoke_required is false in the profile"
    checks = rows(run, "results")
    names = max((len(clean(check.get("name"))) for check in checks), default=0)
    for check in checks:
        seconds = check.get("seconds")
        took = f"{seconds:.1f} s" if isinstance(seconds, (int, float)) else "?"
        start = f"  {clean(check.get('name')):<{names}}  {_verdict(check):<6}  {took:>7}  "
        first, *more = style.wrap(clean(check.get("sentence")), start, " " * len(start))
        yield style.paint(first, None if check.get("ok") else "red")
        yield from more


def _verdict(one: Json) -> str:
    return "passed" if one.get("ok") else "failed"


def _when(run: Json) -> str:
    at = run.get("at")
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(at, (int, float)) else "?"
