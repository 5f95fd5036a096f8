"""Pure: of what one rank noticed about the end of the group, the part to believe."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.exits import ExitCode


class Notice(enum.IntEnum):
    """How an end was noticed, the most telling first.

    A member that leaves because of another says so before its connections close. So what was said outranks what
    was merely seen, and a member that closes without a word is itself the one that was lost.
    """

    ABORTED = 0
    LEFT = 1
    SILENT = 2
    CLOSED = 3


@dataclass(frozen=True)
class Loss:
    """One observation: the exit code it leads to, and a sentence that is true on every node."""

    notice: Notice
    code: ExitCode
    sentence: str


def first_cause(losses: Sequence[Loss]) -> Loss:
    """The most telling of at least one loss; of equals the earliest."""
    return min(losses, key=lambda loss: loss.notice)


@dataclass(frozen=True)
class Standing:
    """What a rank last said: chunks received so far, and the link it waits on (-1 if none)."""

    progress: int
    waiting: int


def stalled_link(standings: Mapping[int, Standing]) -> tuple[int, int] | None:
    """The rank and the link where a stalled all-reduce hangs although every member lives, or None.

    In a ring every rank ends up waiting for its predecessor. The one that got least is the one whose predecessor
    has already sent what it waits for: the link between them carries nothing.
    """
    waiting = {rank: standing for rank, standing in standings.items() if standing.waiting >= 0}
    if not waiting:
        return None
    rank = min(waiting, key=lambda member: (waiting[member].progress, member))
    return rank, waiting[rank].waiting


def silent_member(silences: Mapping[int, float], timeout: float) -> int | None:
    """Of the seconds of silence by rank, the member to blame for an all-reduce that stalled; None if all answer.

    Who went on being heard the longest is the last to have failed. The others have been silent, perhaps for hours,
    while the all-reduce moved.
    """
    silent = [(seconds, rank) for rank, seconds in silences.items() if seconds > timeout]
    return min(silent)[1] if silent else None


class SilenceClock:
    """When each member was last heard. Time during which this process itself did not run does not count."""

    def __init__(self, members: Sequence[int], now: float, period: float) -> None:
        self._heard = dict.fromkeys(members, now)
        self._looked = now
        self._period = period

    def hear(self, rank: int, now: float) -> None:
        """``rank`` was heard at ``now``."""
        self._heard[rank] = now

    def look(self, now: float) -> dict[int, float]:
        """Seconds of silence by rank; to be called every ``period`` seconds."""
        missed = now - self._looked - self._period
        if missed > self._period:
            # Stopped or starved ourselves: what the others sent meanwhile is still in the socket buffers.
            self._heard = {rank: min(now, heard + missed) for rank, heard in self._heard.items()}
        self._looked = now
        return {rank: now - heard for rank, heard in self._heard.items()}
