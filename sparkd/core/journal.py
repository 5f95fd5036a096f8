"""The journals of the nodes: what is asked of them, what each tells, and the order of lines of several clocks. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
CURSOR = re.compile(r"[a-z]=[0-9a-f]+(;[a-z]=[0-9a-f]+){1,9}")
"""Of a line, as systemd writes it: `s=...;i=...;b=...;m=...;t=...;x=...`."""


@dataclass(frozen=True)
class Query:
    """Of the daemon and the ranks of one host, the newest `lines` lines.

    `epoch`: of that epoch alone. `since`: Unix seconds. `grep`: as journalctl's --grep. `cursor`: what follows it,
    as an earlier answer gave it.
    """

    lines: int = 200
    epoch: int | None = None
    since: float | None = None
    grep: str = ""
    cursor: str = ""


@dataclass(frozen=True)
class Line:
    """`at`: Unix seconds by the clock of its host. `unit`: sparkd, sparkd-rank@8, ... `priority`: as in syslog(3)."""

    at: float
    unit: str
    priority: int
    text: str


@dataclass(frozen=True)
class NodeJournal:
    """What a host has to tell, oldest first. `now`: its clock when it told. `cursor`: where to go on.

    `cut`: older lines are left out, for want of room or time. `error`: why nothing is known. `offset`: seconds that its
    clock is ahead of the one of the host that was asked; null if that cannot be told.
    """

    node: str
    rank: int
    now: float
    lines: tuple[Line, ...] = ()
    cursor: str = ""
    cut: bool = False
    error: str = ""
    offset: float | None = None


@dataclass(frozen=True)
class Journals:
    """GET /v1/logs: by rank."""

    nodes: tuple[NodeJournal, ...]


def ahead(now: float, before: float, after: float) -> float:
    """Seconds that a clock which showed `now` is ahead of the own one, which showed `before` when it was asked and
    `after` once it had answered; 0 if that may as well be the time that the question took.

    As in Cristian's algorithm: the middle of the two is wrong by half of the round trip at most.
    """
    offset = now - (before + after) / 2
    return offset if abs(offset) > max((after - before) / 2, 0.0) else 0.0


def merged(journals: Iterable[tuple[float, Sequence[tuple[float, T]]]]) -> Iterator[tuple[float, T]]:
    """The lines of several journals in one order, each with its time by the own clock.

    journals: for each the seconds that its clock is ahead, and its lines with their times. The lines of one journal
    stay in its order, also where its clock was set back between them.
    """
    return heapq.merge(*(_rising(offset, lines) for offset, lines in journals), key=lambda line: line[0])


def _rising(offset: float, lines: Sequence[tuple[float, T]]) -> Iterator[tuple[float, T]]:
    latest = float("-inf")
    for at, line in lines:
        latest = max(latest, at - offset)
        yield latest, line
