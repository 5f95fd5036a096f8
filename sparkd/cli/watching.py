"""status --watch on a terminal: one screen that is kept up to date in place."""

from __future__ import annotations

import contextlib
import locale
import sys
import time
from dataclasses import replace
from typing import NoReturn

from sparkd.cli import cables, screen
from sparkd.cli.answer import Json, number, rows
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.live import Ended, Pipe, Terminal, events_wake
from sparkd.cli.text import Style, clean, style_of

POLL = 1.0
"""Seconds between two looks. With the API's events in between, and for nothing if the status has not changed."""
_INCIDENTS = 30.0  # seconds between looks at what is on record: every node is asked for it
_PATIENCE = 2.0
_PAUSE = 0.1  # seconds; a start is dozens of events in a moment


class Beside:
    """What stands beside the ring's status, asked for no more often than it changes."""

    def __init__(self, client: Client) -> None:
        self._client = replace(client, timeout=_PATIENCE, patience=0.0)
        self._key: object = None
        self._plan: tuple[str, ...] = ()
        self._incident: Json | None = None
        self._memory: dict[str, float] = {}
        self._looked = float("-inf")

    def of(self, ring: Json) -> screen.Beside:
        key = (ring.get("epoch"), ring.get("phase"), len(rows(ring, "deaths")))
        if key != self._key or time.monotonic() - self._looked > _INCIDENTS:
            self._key, self._looked = key, time.monotonic()
            self._look(ring)
        return screen.Beside(self._plan, self._incident, self._memory)

    def _look(self, ring: Json) -> None:
        self._plan = ()
        if not ring.get("cables"):
            with contextlib.suppress(Failure):
                self._plan = cables.planned(self._client.get("/v1/plan"))
        with contextlib.suppress(Failure):
            kept = [row for node in rows(self._client.get("/v1/incidents"), "nodes") for row in rows(node, "incidents")]
            self._incident = max(kept, key=lambda row: number(row.get("at")) or 0.0, default=None)
        if not rows(ring, "memory"):
            with contextlib.suppress(Failure):
                report = self._client.get("/v1/host").get("report")
                kib = number(report.get("memory_available_kib")) if isinstance(report, dict) else None
                self._memory = {clean(ring.get("node")): kib} if kib else {}


def frame(ring: Json, style: Style, beside: screen.Beside, height: int) -> list[str]:
    return screen.screen(ring, style, time.time(), beside, fancy=fancy(), height=height)


def fancy() -> bool:
    """Whether the terminal takes the box-drawing characters."""
    return (sys.stdout.encoding or locale.getpreferredencoding(False)).lower().replace("-", "") == "utf8"


def watch(client: Client) -> Exit:
    """Until interrupted. Raises Failure for what waiting does not mend, with the terminal as it was."""
    pipe = Pipe()
    try:
        with Terminal(sys.stdout, pipe.wake) as terminal, events_wake(client, pipe.wake):
            _watch(client, terminal, pipe)
    except Ended:
        return Exit.INTERRUPTED
    finally:
        pipe.close()


def _watch(client: Client, terminal: Terminal, pipe: Pipe) -> NoReturn:
    ring: Json | None = None
    tag, problem = "", ""
    beside = Beside(client)
    while True:
        try:
            news, tag = client.news("/v1/ring", tag)
            ring, problem = news or ring, ""
        except Failure as failure:
            # A daemon that is being restarted or upgraded: what it said last stays, and it is said that it is old.
            if failure.exit_code != Exit.UNREACHABLE:
                raise
            tag, problem = "", clean(failure)
        columns, height = terminal.size()
        style = replace(style_of(sys.stdout), width=min(columns, 100))
        lines = [] if ring is None else frame(ring, style, beside.of(ring), height - (1 if problem else 0))
        if problem:
            lines = [style.paint(style.fit(f"trying again: {problem}"), "yellow"), *lines]
        terminal.draw(lines)
        if ring is not None and any(peer.get("error") for peer in rows(ring, "peers")):
            tag = ""  # how long a node has been silent is no change to a daemon, but it is to who looks
        time.sleep(_PAUSE)
        pipe.wait(POLL - _PAUSE)
