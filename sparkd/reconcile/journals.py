"""The journals of all nodes in one answer, from any of them.

Each daemon reads that of its own host and no other. Nothing here is done in the event loop but waiting: texts of
megabytes are put together on a thread that lives as long as that takes.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from sparkd import wire
from sparkd.core.journal import CURSOR, NodeJournal, Query, ahead
from sparkd.ports import Clock, DoorError, JournalReader, Peers

GATHERING = 8.0
"""Seconds for the answers of all nodes."""
MOST_LINES = 5000
_AT_ONCE = 2
Part = tuple[bytes, float, float]
"""What a node told, and the own clock before and after."""


class Journals:
    """`nodes`: all, by rank. `door` is made when it is first needed: hardly any daemon is ever asked."""

    def __init__(self, node: str, nodes: Sequence[str], door: Callable[[], JournalReader], clock: Clock) -> None:
        self._node = node
        self._nodes = tuple(nodes)
        self._make = door
        self._door: JournalReader | None = None
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def close(self) -> None:
        if self._door is not None:
            self._door.close()

    async def own(self, query: Query) -> bytes:
        """This host's NodeJournal, as JSON; what cannot be read is said in it."""
        if self._door is None:
            self._door = self._make()
        try:
            return await self._door.read(query)
        except DoorError as error:
            rank = self._nodes.index(self._node)
            return wire.dumps(NodeJournal(self._node, rank, self._clock.now(), error=str(error)))

    async def everywhere(
        self, query: Query, peers: Peers, only: Sequence[str] = (), cursors: Mapping[str, str] | None = None
    ) -> bytes:
        """The Journals of all nodes, or of those named, as JSON. cursors: of an earlier answer, by node."""
        given = cursors or {}
        wanted = [name for name in self._nodes if not only or name in only]

        async def ask(name: str) -> Part | str:
            asked = replace(query, cursor=given.get(name, ""))
            before = self._clock.now()
            try:
                async with asyncio.timeout(GATHERING):
                    if name == self._node:
                        told = await self.own(asked)
                    else:
                        told = await peers.fetch_apart(name, f"logs?{as_query(asked)}")
            except (DoorError, TimeoutError) as error:
                late = f"{name} did not answer within {GATHERING:g} s"
                return late if isinstance(error, TimeoutError) else str(error)
            return told, before, self._clock.now()

        async with self._turns:
            parts = dict(zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True))
            thread = ThreadPoolExecutor(1, thread_name_prefix="journals")
            try:
                work = partial(_together, parts, self._nodes, self._node, self._clock.now(), given)
                return await asyncio.get_running_loop().run_in_executor(thread, work)
            finally:
                thread.shutdown(wait=False)


def as_query(query: Query) -> str:
    """The query as it travels in a URL; see `from_query`."""
    given = {"epoch": query.epoch, "since": query.since, "grep": query.grep, "cursor": query.cursor}
    told = {name: str(value) for name, value in given.items() if value not in (None, "")}
    return urllib.parse.urlencode({"lines": str(query.lines), **told})


def from_query(given: Mapping[str, str]) -> Query:
    """Raises ValueError, with a sentence."""
    lines, epoch, since = given.get("lines", "200"), given.get("epoch"), given.get("since")
    if not (lines.isascii() and lines.isdecimal() and len(lines) < 6 and 1 <= int(lines) <= MOST_LINES):
        raise ValueError(f"query.lines: {lines!r} is not from 1 to {MOST_LINES}")
    if epoch is not None and not (epoch.isascii() and epoch.isdecimal() and len(epoch) <= 15):
        raise ValueError(f"query.epoch: {epoch!r} is no epoch")
    moment = None if since is None else float(since)
    if moment is not None and not 0 <= moment < 1e11:
        raise ValueError(f"query.since: {since!r} is no Unix time")
    cursor = given.get("cursor", "")
    if cursor and not CURSOR.fullmatch(cursor):
        raise ValueError(f"query.cursor: {cursor[:80]!r} is no cursor of a journal")
    if "\0" in given.get("grep", ""):
        raise ValueError("query.grep: a NUL")
    return Query(int(lines), None if epoch is None else int(epoch), moment, given.get("grep", ""), cursor)


def _together(
    parts: Mapping[str, Part | str], nodes: Sequence[str], own: str, now: float, cursors: Mapping[str, str]
) -> bytes:
    told = []
    for name, part in parts.items():
        missing = NodeJournal(name, nodes.index(name), now, cursor=cursors.get(name, ""))
        if isinstance(part, str):
            told.append(wire.encode(replace(missing, error=part)))
            continue
        body, before, after = part
        journal = _read(body, name)
        if journal is None:
            told.append(wire.encode(replace(missing, error=f"{name} gave an answer that is no journal")))
            continue
        clock = float(journal["now"])
        offset = 0.0 if name == own else round(ahead(clock, before, after), 3)
        told.append({**journal, "rank": nodes.index(name), "offset": offset})
    return json.dumps({"nodes": told}, separators=(",", ":"), ensure_ascii=False).encode()


def _read(body: bytes, name: str) -> dict[str, Any] | None:
    """Checked like all that a peer sends; what fits is handed on as it is."""
    try:
        journal = wire.loads(NodeJournal, body)
    except (wire.WireError, RecursionError, OverflowError):
        return None
    return dict(wire.encode(journal)) if journal.node == name else None
