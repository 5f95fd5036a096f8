"""The one line a rank tells of itself: `STAGE[ N/M] TEXT`, carried by systemd as the unit's StatusText."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast, get_args

from sparkd.core.model import Stage

# What an engine says may be anything; numbers of more digits than these would not fit into what others make of them.
_LINE = re.compile(r"(?P<stage>[a-z]+)(?: (?P<done>[0-9]{1,12})/(?P<total>[0-9]{1,12}))?(?: (?P<text>.*))?", re.DOTALL)
_WORK = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) tokens/s, ([0-9]{1,12}) running, ([0-9]{1,12}) queued")
# How a rank that is ready begins to tell that its engine gives no token although it is asked for one.
SILENT = "no token for "
_FORMED_FROM = frozenset({"formed", "load", "capture", "warmup", "ready"})


@dataclass(frozen=True)
class Progress:
    """`stage` is None for a line that does not follow the form: then only `text` is known, and nothing is guessed."""

    stage: Stage | None
    done: int | None
    total: int | None
    text: str

    @property
    def formed(self) -> bool:
        return self.stage in _FORMED_FROM

    def __str__(self) -> str:
        count = f" {self.done}/{self.total}" if self.total is not None else ""
        text = f", {self.text}" if self.text else ""
        return f"{self.stage}{count}{text}" if self.stage else self.text


@dataclass(frozen=True)
class Work:
    """What a ready engine says that it does: tokens a second, and requests."""

    tokens_per_second: float
    running: int
    queued: int


def work(text: str) -> Work | None:
    """Read from `Progress.text` of rank 0; None for an engine that does not tell, such as the probe."""
    match = _WORK.match(text)
    if match is not None:
        return Work(float(match[1]), int(match[2]), int(match[3]))
    return Work(0.0, 0, 0) if text.startswith("idle, canary ") else None


def parse(line: str) -> Progress:
    match = _LINE.fullmatch(line.strip())
    if match is None or match["stage"] not in get_args(Stage):
        return Progress(None, None, None, line.strip())
    done, total = (int(match["done"]), int(match["total"])) if match["total"] else (None, None)
    return Progress(cast(Stage, match["stage"]), done, total, match["text"] or "")
