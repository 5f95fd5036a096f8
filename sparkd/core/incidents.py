"""What is kept of the end of an epoch, on each host that had a part in it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from sparkd.core import recovery
from sparkd.core.model import Attempt, Death
from sparkd.core.ranks import RankView
from sparkd.core.snapshot import Snapshot

_HEAD, _TAIL = 40, 100
# Words with which programs, Python, CUDA, NCCL and the kernel begin to speak of an error; rather one line too many.
_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception)\b|\b(?:error|fatal|failed|panic)\b|NCCL WARN|Segmentation fault|out of memory"
    r"|\blost\b",
    re.IGNORECASE,
)
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Incident:
    """One host's part in the end of an epoch.

    `at` (Unix seconds), `root`, `rank`, `signature` and `sentence` are those of the death that ended it, wherever that
    was; `outcome` is how this host's own rank ended. `first` is the first error that it printed, empty if it printed
    none. `missing`: what could not be had, a sentence each. `complete`: nothing more is to come.
    """

    epoch: int
    at: float
    root: str
    rank: int
    signature: str
    sentence: str
    node: str
    outcome: str
    first: str = ""
    missing: tuple[str, ...] = ()
    complete: bool = False


def ended(s: Snapshot, attempt: Attempt | None) -> Death | None:
    """The death that ended the epoch of this host's last attempt; None if it goes on, or ended in order."""
    if attempt is None:
        return None
    if attempt.epoch == s.intent.epoch:
        return next(iter(recovery.deaths(s)), None)
    return next((death for death in reversed(s.intent.deaths) if death.epoch == attempt.epoch), None)


def begun(s: Snapshot, attempt: Attempt, death: Death) -> Incident:
    outcome = attempt.sentence or attempt.incident or attempt.stopped or "its rank is still alive"
    return Incident(attempt.epoch, death.at, death.node, death.rank, death.signature, death.sentence, s.node, outcome)


def witnessed(s: Snapshot) -> Death | None:
    """The death that ended the current epoch elsewhere, if this host never started a rank in it: its cables, memory and
    kernel may still be the reason."""
    started = s.attempt is not None and s.attempt.epoch >= s.intent.epoch
    return None if started else next(iter(recovery.deaths(s)), None)


def seen_from(node: str, death: Death) -> Incident:
    outcome = "it had started no rank of this epoch"
    return Incident(death.epoch, death.at, death.node, death.rank, death.signature, death.sentence, node, outcome)


def hung(s: Snapshot, ranks: Sequence[RankView]) -> bool:
    """Whether the rank of this host seems to hang: it is alive, and another has left because it had lost this one."""
    death = next(iter(recovery.deaths(s)), None)
    own = any(rank.alive for rank in ranks if rank.node == s.node)
    return own and death is not None and recovery.hearsay(death) == 2 and f"({s.node}) lost" in death.sentence


@dataclass(frozen=True)
class Excerpt:
    """`first`: the first error line. `text`: the first lines with errors, and the last lines of all."""

    first: str
    text: str


def excerpt(lines: Iterable[str], declared: Container[str] = ()) -> Excerpt:
    """Of a rank's journal, each line with its time and unit up to the first "]: ". `declared`: lines logged as errors.

    The first error is what counts: the later ones are mostly its consequences. Of a Python traceback it is the line
    after its frames. Where the rank itself has called lines errors, others are not searched for words: an engine that
    comes up well says "error" in passing, too.
    """
    first, guessed, within = "", "", False
    errors: list[str] = []
    tail: deque[str] = deque(maxlen=_TAIL)
    count = 0
    for line in lines:
        count += 1
        tail.append(line)
        who, _, said = line.partition("]: ")
        if who.endswith(" systemd[1"):
            continue  # it tells how the rank ended, which is known, and not why
        said = said or line
        begins = _TRACEBACK in said
        frame = within and said.startswith((" ", "\t"))
        if begins or within or line in declared or _ERROR.search(said):
            if len(errors) < _HEAD:
                errors.append(line)
            if begins or frame:
                pass
            elif line in declared:
                first = first or said.strip()
            else:
                guessed = guessed or said.strip()
        within = begins or frame
    last = list(tail)
    text = "\n".join(["first lines with errors:", *errors, "", f"last of {count} lines:", *last, ""])
    return Excerpt(first or guessed, text)
