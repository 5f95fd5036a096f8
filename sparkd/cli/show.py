"""status, plan, events: looking at the ring."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import ring_mesh
from sparkd.cli import cables, render, watching
from sparkd.cli.answer import Json, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import PHASE_COLOURS, Style, clean, say, style_of, terminal_columns, whole_lines

POLL = 1.0
_LIMIT = 500
# Columns that the text of an event needs to be wrapped beside its time and kind, and the indent if it has fewer.
_TEXT, _HANGING, _NARROWEST = 40, 21, 70


def status(client: Client, *, as_json: bool, watch: bool, full: bool = False) -> Exit:
    """Print the status; with `watch`, again and again until interrupted, also over a restart of sparkd.

    On a terminal it is one screen, unless `full`: then, and elsewhere, it is all that there is to say.
    """
    one_screen = not full and terminal_columns(sys.stdout) is not None
    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            if one_screen and not as_json:
                return watching.watch(client)
            _watch(client, as_json=as_json)
        return Exit.OK
    ring = client.get("/v1/ring")
    if as_json:
        say(json.dumps(ring, indent=2))
    elif one_screen:
        height = shutil.get_terminal_size((80, 24)).lines - 1  # one is the shell's
        looked = watching.Beside(client)
        say("\n".join(watching.frame(ring, style_of(sys.stdout), looked.of(ring), height)))
    else:
        say(_status(client, ring))
    return Exit.OK


def _status(client: Client, ring: Json) -> str:
    # Without a ring that is heard, the cables to show are those that the daemon plans for.
    plan: tuple[str, ...] = ()
    if not ring.get("cables"):
        with contextlib.suppress(Failure):
            plan = cables.planned(client.get("/v1/plan"))
    return render.status(ring, style_of(sys.stdout), time.time(), plan)


def _watch(client: Client, *, as_json: bool) -> None:
    """For a program or a file: each news, one after the other."""
    told = ""
    while True:
        try:
            ring = client.get("/v1/ring")
            # How long ago a peer was heard changes each time: to a program or a file that is no news.
            news = json.dumps({**ring, "peers": [{**peer, "age": None} for peer in rows(ring, "peers")]})
            text = json.dumps(ring) if as_json else _status(client, ring)
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE:
                raise
            news, text = str(failure), "" if as_json else f"{failure} (trying again)"
        if news != told and text:
            say(text if as_json else f"{text}\n")
        told = news
        time.sleep(POLL)


def plan(client: Client, *, as_json: bool) -> Exit:
    """Print the plan of the fabric, over the cables that it is made for."""
    answer = client.get("/v1/plan")
    if as_json:
        say(json.dumps(answer, indent=2))
        return Exit.OK
    try:
        text = ring_mesh.render(ring_mesh.plan_from_json(answer))
    except ring_mesh.PlanError as error:
        hint = "sparkctl plan --json prints it as it is"
        raise Failure(Exit.ERROR, f"this sparkctl cannot read the plan: {error}", hint) from error
    say(text.rstrip("\n"))
    return Exit.OK


def events(client: Client, *, as_json: bool, follow: bool) -> Exit:
    """Print the events that sparkd has kept; with `follow`, new ones until interrupted, also over its restart."""
    style = whole_lines(sys.stdout, _NARROWEST)
    after = _tell(client, 0, style, as_json=as_json)
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(client, after, style, as_json=as_json)
    return Exit.OK


def _follow(client: Client, after: int, style: Style, *, as_json: bool) -> None:
    silent = False
    while True:
        time.sleep(POLL)
        try:
            last = _tell(client, after, style, as_json=as_json)
            # A restarted sparkd counts from 1 again, and has to be asked for all it has.
            after = _tell(client, 0, style, as_json=as_json) if last < after else last
            silent = False
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE:
                raise
            if not silent:
                say(f"sparkctl: {failure} (trying again)", sys.stderr)
            silent = True


def _tell(client: Client, after: int, style: Style, *, as_json: bool) -> int:
    """Print the events after that number; returns the last number there is."""
    answer = client.get(f"/v1/events?after={after}&limit={_LIMIT}")
    for event in rows(answer, "events"):
        say(json.dumps(event) if as_json else _event(event, style))
    last = answer.get("last")
    return last if isinstance(last, int) else after


def _event(event: Mapping[str, Any], style: Style) -> str:
    at = event.get("at")
    when = f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(at, (int, float)) else "-" * 19
    epoch, phase, kind, text = (clean(event.get(key)) for key in ("epoch", "phase", "kind", "text"))
    shown = style.paint(f"{phase:<8}", PHASE_COLOURS.get(phase))
    start, painted = (f"{when}  {epoch:>4}  {name}  {kind:<7}  " for name in (f"{phase:<8}", shown))
    indent = len(start) if style.width >= len(start) + _TEXT else _HANGING
    first, *more = style.wrap(text, start, " " * indent)
    colour = "red" if kind == "error" else None
    lines = [f"{painted}{style.paint(first[len(start) :], colour)}"]
    return "\n".join([*lines, *(f"{' ' * indent}{style.paint(line[indent:], colour)}" for line in more)])
