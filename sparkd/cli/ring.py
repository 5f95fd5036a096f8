"""up, down, clear, hold, resume: changing what the ring does, and waiting until it does."""

from __future__ import annotations

import sys
import time
import urllib.parse
from collections.abc import Callable

from sparkd.cli import render
from sparkd.cli.answer import rows
from sparkd.cli.client import Client, Json
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import clean, say, style_of
from sparkd.cli.ticker import Ticker

POLL = 0.2
# sparkd may be restarted or upgraded while one waits; the ring does not care and neither should the command.
SILENCE = 30.0

Verdict = Callable[[Json], Exit | None]


def up(client: Client, *, wait: bool, timeout: float | None = None) -> Exit:
    """Ask for a start; with `wait`, until the ring is ready (OK), held, or was stopped by someone else (ERROR)."""
    return _change(client, "start", _is_up if wait else None, timeout)


def down(
    client: Client, *, wait: bool, timeout: float | None = None, force: bool = False, drain: float | None = None
) -> Exit:
    """Ask for a stop; with `wait`, until no rank is left (OK) or someone else has started the ring (ERROR).

    force: also of a ring in maintenance, which ends with it. drain: seconds that requests which run have to end.
    """
    options = {"force": "true"} if force else {}
    if drain is not None:
        options["drain"] = f"{drain:g}"
    what = f"stop?{urllib.parse.urlencode(options)}" if options else "stop"
    return _change(client, what, _is_down if wait else None, timeout)


def clear(client: Client) -> Exit:
    """Take back that the ring is held."""
    return _change(client, "clear", None, None)


def hold(client: Client, reason: str) -> Exit:
    """Ask for maintenance."""
    return _change(client, f"hold?{urllib.parse.urlencode({'reason': reason})}" if reason else "hold", None, None)


def resume(client: Client) -> Exit:
    """End the maintenance."""
    return _change(client, "resume", None, None)


def _change(client: Client, what: str, verdict: Verdict | None, timeout: float | None) -> Exit:
    started = time.monotonic()
    operation = client.post(f"/v1/ring/{what}")
    epoch = operation.get("epoch")
    if not isinstance(epoch, int):
        raise Failure(Exit.ERROR, f"the answer to {what.partition('?')[0]} names no epoch")
    summary = clean(operation.get("summary"))
    line = summary if summary.startswith(f"epoch {epoch} ") else f"epoch {epoch}: {summary}"
    say("\n".join(style_of(sys.stdout).wrap(line, "", "  ")) if sys.stdout.isatty() else line)
    if verdict is None:
        return Exit.OK
    with Ticker(sys.stdout, summary) as ticker:
        return _wait(client, epoch, verdict, (started, timeout), ticker)


def _wait(client: Client, epoch: int, verdict: Verdict, patience: tuple[float, float | None], ticker: Ticker) -> Exit:
    """Tell what the ring says until there is a verdict on it. patience: since when, and for how long."""
    (started, timeout), followed = patience, epoch
    answered = time.monotonic()
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
            heard = isinstance(ring.get("epoch"), int) and ring["epoch"] >= epoch
            line = render.sentence(ring) if heard else f"waiting for this node to hear of epoch {epoch}"
            ring = ring if heard else {}
            if ring and ring["epoch"] > followed:
                # Asked for once, the ring may take several: other cables are a new plan, and a death a new attempt.
                followed = ring["epoch"]
                ticker.note(now - started, f"now epoch {followed}: {clean(ring.get('reason'))}")
        ticker.tell(now - started, line)
        if ring and (end := verdict(ring)) is not None:
            return end
        if timeout is not None and now - started > timeout:
            raise Failure(Exit.TIMEOUT, f"not there after {timeout:g} s; last: {line}", "it goes on: sparkctl status")
        try:
            time.sleep(POLL)
        except KeyboardInterrupt:
            raise Failure(Exit.INTERRUPTED, "no longer waiting; the ring goes on", "sparkctl status") from None


def _is_up(ring: Json) -> Exit | None:
    if ring.get("phase") == "ready":
        return Exit.OK
    if ring.get("phase") == "held":
        raise Failure(Exit.ERROR, f"the ring is held: {clean(ring.get('reason'))}", "sparkctl status; sparkctl clear")
    if ring.get("phase") == "maintenance":
        raise Failure(Exit.ERROR, clean(ring.get("summary")), "sparkctl resume")
    if ring.get("want") != "up":
        raise Failure(Exit.ERROR, f"stopped by {clean(ring.get('by'))}: {clean(ring.get('reason'))}")
    return None


def _is_down(ring: Json) -> Exit | None:
    if ring.get("want") == "up":
        raise Failure(Exit.ERROR, f"started again by {clean(ring.get('by'))}: {clean(ring.get('reason'))}")
    if ring.get("phase") == "maintenance":
        raise Failure(Exit.ERROR, clean(ring.get("summary")), "sparkctl down --force")
    # A held ring is down as well, and says so by its ranks.
    states = {row.get("state") for row in rows(ring, "ranks")}
    gone = ring.get("phase") == "down" or (ring.get("phase") == "held" and states <= {"down", "ended"})
    return Exit.OK if gone else None
