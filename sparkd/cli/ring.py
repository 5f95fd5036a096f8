"""up, down, restart, clear, hold, resume: changing what the ring does, and waiting until it does."""

from __future__ import annotations

import json
import sys
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkd.cli import render
from sparkd.cli.answer import rows
from sparkd.cli.client import Client, Json
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import clean, say, style_of
from sparkd.cli.ticker import Ticker

POLL = 0.2
# sparkd may be restarted or upgraded while one waits; the ring does not care and neither should the command.
SILENCE = 30.0
# Seconds for the conductor's news to reach this node.
HEARING = 5.0

Verdict = Callable[[Json], bool]
"""Whether the ring is as asked; raises Failure once it will not be."""


@dataclass(frozen=True)
class Manner:
    """How a change is made. wait: until the ring is as asked, at most `timeout` seconds. as_json: one document on
    standard output, with how it went in place of what is told meanwhile."""

    wait: bool = False
    timeout: float | None = None
    as_json: bool = False
    began: float = field(default_factory=time.monotonic)


def up(client: Client, manner: Manner) -> Exit:
    """Ask for a start; with `wait`, until the ring is ready (OK), held, or was stopped by someone else (ERROR)."""
    return _change(client, "start", _is_up, manner)


def down(client: Client, manner: Manner, *, force: bool = False, drain: float | None = None) -> Exit:
    """Ask for a stop; with `wait`, until no rank is left (OK) or someone else has started the ring (ERROR).

    force: also of a ring in maintenance, which ends with it. drain: seconds that requests which run have to end.
    """
    options = {"force": "true"} if force else {}
    if drain is not None:
        options["drain"] = f"{drain:g}"
    what = f"stop?{urllib.parse.urlencode(options)}" if options else "stop"
    return _change(client, what, _is_down, manner)


def restart(client: Client, manner: Manner) -> Exit:
    """Ask for a stop, and for a start once no rank is left; a ring that is down is started. With `wait` as `up`.

    A ring that a start would be refused to now is left as it is: Failure, with the findings.
    """
    ring = client.get("/v1/ring")
    # A start alone would take the drain back, and the ranks would stay those that they are.
    if ring.get("want") == "up" or ring.get("drain"):
        against = [finding for finding in rows(ring, "findings") if finding.get("severity") == "refuse"]
        if against:
            text = "not restarted: a start would be refused now, so the ring is left as it is"
            raise Failure(Exit.REFUSED, text, "sparkctl down stops it all the same", against)
        operation = _ask(client, "stop", manner)
        try:
            _follow(client, operation, _is_down, manner)
        except Failure as failure:
            # What goes on by itself is the stop alone.
            hint = "once it is down: sparkctl up"
            raise Failure(failure.exit_code, f"not started again: {failure.text}", hint, failure.findings) from None
    return up(client, manner)


def clear(client: Client, manner: Manner) -> Exit:
    """Take back that the ring is held."""
    return _change(client, "clear", None, manner)


def hold(client: Client, reason: str, manner: Manner) -> Exit:
    """Ask for maintenance."""
    return _change(
        client,
        f"hold?{urllib.parse.urlencode({'reason': reason}, errors='replace')}" if reason else "hold",
        None,
        manner,
    )


def resume(client: Client, manner: Manner) -> Exit:
    """End the maintenance."""
    return _change(client, "resume", None, manner)


def _change(client: Client, what: str, verdict: Verdict | None, manner: Manner) -> Exit:
    operation = _ask(client, what, manner)
    end = _follow(client, operation, verdict, manner) if verdict is not None and manner.wait else {}
    if manner.as_json:
        say(json.dumps({**operation, **({"ring": end} if end else {})}, indent=2))
    return Exit.OK


def _ask(client: Client, what: str, manner: Manner) -> Json:
    """The operation that the request has made or found in force, told to people."""
    operation = client.post(f"/v1/ring/{what}")
    epoch = operation.get("epoch")
    if not isinstance(epoch, int):
        raise Failure(Exit.ERROR, f"the answer to {what.partition('?')[0]} names no epoch")
    summary = clean(operation.get("summary"))
    line = summary if f"epoch {epoch}" in summary else f"epoch {epoch}: {summary}"
    if not manner.as_json:
        say("\n".join(style_of(sys.stdout).wrap(line, "", "  ")) if sys.stdout.isatty() else line)
    return operation


def _follow(client: Client, operation: Json, verdict: Verdict, manner: Manner) -> Json:
    """The ring once it is as asked."""
    with Ticker(sys.stderr if manner.as_json else sys.stdout, clean(operation.get("summary"))) as ticker:
        return _wait(client, operation, verdict, (manner.began, manner.timeout), ticker)


def _wait(client: Client, asked: Json, verdict: Verdict, patience: tuple[float, float | None], ticker: Ticker) -> Json:
    """Tell what the ring says until there is a verdict on it. patience: since when, and for how long.

    The ring as it is then. Raises Failure if it went another way.
    """
    started, timeout = patience
    epoch = followed = int(asked["epoch"])
    answered = accepted = time.monotonic()
    agreed = False
    while True:
        now = time.monotonic()
        try:
            ring = client.get("/v1/ring")
            answered = now
        except Failure as failure:
            if failure.exit_code != Exit.UNREACHABLE or now - answered > SILENCE:
                raise
            ring, line = {}, f"{failure}; trying again"
        else:
            # The conductor has accepted, but this node may not have heard of it yet: what it says is of the past.
            there = ring["epoch"] - epoch if isinstance(ring.get("epoch"), int) else -1
            # An order to drain, and to take that back, is within the epoch: only what the ring is to do tells of it.
            told = ring.get("want") == asked.get("want") or now - accepted > HEARING
            agreed = agreed or there > 0 or (there == 0 and told)
            heard = agreed and there >= 0
            line = render.sentence(ring) if heard else f"waiting for this node to hear of epoch {epoch}"
            ring = ring if heard else {}
            if ring and ring["epoch"] > followed:
                # Asked for once, the ring may take several: other cables are a new plan, and a death a new attempt.
                followed = ring["epoch"]
                ticker.note(now - started, f"now epoch {followed}: {clean(ring.get('reason'))}")
        ticker.tell(now - started, line)
        if ring and verdict(ring):
            return ring
        if timeout is not None and now - started > timeout:
            raise Failure(Exit.TIMEOUT, f"not there after {timeout:g} s; last: {line}", "it goes on: sparkctl status")
        try:
            time.sleep(POLL)
        except KeyboardInterrupt:
            raise Failure(Exit.INTERRUPTED, "no longer waiting; the ring goes on", "sparkctl status") from None


def _is_up(ring: Json) -> bool:
    if ring.get("phase") == "ready":
        return True
    if ring.get("phase") == "held":
        raise Failure(Exit.ERROR, f"the ring is held: {clean(ring.get('reason'))}", "sparkctl status; sparkctl clear")
    if ring.get("phase") == "maintenance":
        raise Failure(Exit.ERROR, clean(ring.get("summary")), "sparkctl resume")
    if ring.get("want") != "up":
        raise Failure(Exit.ERROR, f"stopped by {clean(ring.get('by'))}: {clean(ring.get('reason'))}")
    return False


def _is_down(ring: Json) -> bool:
    if ring.get("want") == "up":
        raise Failure(Exit.ERROR, f"started again by {clean(ring.get('by'))}: {clean(ring.get('reason'))}")
    if ring.get("phase") == "maintenance":
        raise Failure(Exit.ERROR, clean(ring.get("summary")), "sparkctl down --force")
    # A held ring is down as well, and says so by its ranks.
    states = {row.get("state") for row in rows(ring, "ranks")}
    return ring.get("phase") == "down" or (ring.get("phase") == "held" and states <= {"down", "ended"})
