"""A ring that drains: rank 0 is told to take no new requests, and the ring is stopped when none runs, or in time.

The order is a revision of the epoch, so that its ranks stay. What ends it is a new epoch, which the conductor issues.
Nothing is restarted meanwhile: a rank that dies has only brought the stop forward.
"""

from __future__ import annotations

from dataclasses import replace

from sparkd.core import gates, progress, recovery
from sparkd.core.actions import Action, TellRank
from sparkd.core.drain import Drain, Told, told
from sparkd.core.model import Intent, Unknown
from sparkd.core.ranks import RankView, view
from sparkd.core.snapshot import Snapshot


def serves(s: Snapshot) -> bool:
    """Whether there is anything to drain, as far as anybody knows."""
    up = s.intent.want == "up" and not any(gates.ended(s))
    return up and all(rank.condition == "ready" or rank.was_ready for rank in view(s))


def tell(s: Snapshot) -> tuple[Action, ...]:
    """Have the own rank 0 drain, or serve again, until its status says that it does."""
    if isinstance(s.units, Unknown) or s.rank != 0 or s.intent.want == "down":
        return ()
    wanted = s.intent.drain is not None
    return tuple(
        TellRank(unit.epoch, wanted)
        for unit in s.units
        if unit.epoch == s.intent.epoch and unit.active == "active" and unit.runs and not unit.job
        if (told(progress.parse(unit.text).text) is not None) != wanted
    )


def follow(s: Snapshot) -> Intent | None:
    """What the conductor is to issue now; None while the ring goes on draining, or does not."""
    drain = s.intent.drain
    if drain is None or not s.conductor or s.intent.want == "down":
        return None
    if s.now < drain.at:
        # The clock was set back: the time that is left would be as long as the clock was wrong.
        return replace(s.intent, revision=s.intent.revision + 1, drain=replace(drain, at=s.now))
    deaths = recovery.deaths(s)[:1]
    why = recovery.describe(deaths[0]) if deaths else next((text for _, text in gates.ended(s)), "")
    why = f"not all requests came to their end: {why}" if why else _over(drain, _rank_0(s, view(s)), s.now)
    if not why:
        return None
    end = Intent(s.next_epoch, "down", drain.by, f"stop asked for; {why}", s.now, deaths=(*s.intent.deaths, *deaths))
    return replace(end, clears=s.intent.clears, cluster=s.cluster.name)


def left(s: Snapshot) -> float | None:
    """Seconds until the time is over; None if the ring does not drain."""
    return None if s.intent.drain is None else s.intent.drain.left(s.now)


def waits(s: Snapshot, ranks: tuple[RankView, ...]) -> tuple[str, ...]:
    """How many requests are waited for and for how long, of a ring that drains."""
    drain = s.intent.drain
    if drain is None:
        return ()
    time = f"{drain.left(s.now):.0f} s at most"
    said, who = _rank_0(s, ranks), f"rank 0 ({s.cluster.conductor.name})"
    if said is None:
        return (f"{who} to say that it takes no new requests; {time}",)
    if said.running is None:
        return (f"{who} goes on taking requests and does not tell how many run; {time}",)
    if said.running == 0:
        return (f"{s.cluster.conductor.name} to issue the stop: no request is running any more",)
    running = "1 request" if said.running == 1 else f"{said.running} requests"
    more = "" if said.refuses else f"; {who} cannot refuse new ones"
    return (f"{running} on {who}, {time}{more}",)


def running(s: Snapshot, ranks: tuple[RankView, ...]) -> int | None:
    """Requests that are waited for; None while that is not told."""
    said = _rank_0(s, ranks)
    return None if said is None else said.running


def _rank_0(s: Snapshot, ranks: tuple[RankView, ...]) -> Told | None:
    of_rank_0 = next(rank for rank in ranks if rank.rank == 0)
    return told(of_rank_0.text) if of_rank_0.condition == "ready" and of_rank_0.epoch == s.intent.epoch else None


def _over(drain: Drain, said: Told | None, now: float) -> str:
    if said is not None and said.running == 0:
        return "no request was running any more"
    if drain.left(now) > 0:
        return ""
    still = "" if said is None or said.running is None else f", and {said.running} requests were running"
    return f"the {drain.seconds:.0f} s to drain were over{still}"
