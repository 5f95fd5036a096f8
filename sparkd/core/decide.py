"""decide(snapshot) -> Decision: the whole of sparkd's judgement, as a pure function.

The phase is computed, never stored. Each host acts on itself alone; the order across hosts comes from the gates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkd.core import boots, bringup, draining, free, gates, intent, measuring, rails, recovery
from sparkd.core.actions import Action, Adopt, NoteBoot, Record
from sparkd.core.model import Attempt, Finding, Intent, Phase, Process, Unknown
from sparkd.core.ranks import RankView, view
from sparkd.core.snapshot import Snapshot


@dataclass(frozen=True)
class Decision:
    """`actions` in order; `waits` one sentence each; `after` seconds until deciding again is worth it, None if never.
    `left`: as in sparkd.core.free.

    `intent` and `attempt` are those that hold once the actions are done.
    """

    phase: Phase
    actions: tuple[Action, ...]
    waits: tuple[str, ...]
    summary: str
    ranks: tuple[RankView, ...]
    findings: tuple[Finding, ...]
    intent: Intent
    attempt: Attempt | None
    after: float | None = None
    left: tuple[Process, ...] | None = ()


def decide(s: Snapshot) -> Decision:
    actions: list[Action] = []
    newest = intent.newest(s)
    if newest != s.intent:
        actions.append(Adopt(newest))
        s = replace(s, intent=newest)
    followed = recovery.follow(s)
    if followed is not None:
        actions.append(Record(followed))
        s = replace(s, attempt=followed, just_ended=followed.ended_at is not None)
    # Not in the first cycle: a daemon that starts has better to do than to wait for a disk once more.
    if s.hardware is not None and (booted := boots.arrived(s)) is not None:
        actions.append(NoteBoot(booted))
    if s.intent.paused:
        return _left_alone(s, actions)
    if (next_ := draining.follow(s)) is not None:
        actions.append(Adopt(next_))
        s = replace(s, intent=next_)
    verdict = recovery.judge(s) if s.intent.want == "up" and not s.intent.drain else None
    if verdict is not None and verdict.intent is not None and s.conductor:
        actions.append(Adopt(verdict.intent))
        s = replace(s, intent=verdict.intent)
        verdict = None
    again = intent.recabled(s) if verdict is None else None
    if again is not None:
        actions.append(Adopt(again))
        s = replace(s, intent=again)
    actions += bringup.clean(s)
    actions += draining.tell(s)
    actions += bringup.mend(s)
    if verdict is None:
        actions += bringup.measure(s)
        actions += bringup.start(s)
    ranks = view(s)
    phase = _phase(s, ranks)
    if verdict is None:
        waits = _waits(s, phase, ranks)
        summary = _summary(s, phase, waits)
    else:
        pause, *after = (_after_death(s, verdict), *_after_pause(s, phase))
        waits = (pause, *after)
        # The pause is the least of what is waited for, as long as a cable or a host is missing.
        more = f" (and {len(after) - 1} more)" if len(after) > 1 else ""
        summary = _summary(s, phase, (f"{pause}, but {after[0]}{more}" if after else pause,))
    return Decision(
        phase,
        tuple(actions),
        waits,
        summary,
        ranks,
        gates.own_findings(s),
        s.intent,
        s.attempt,
        _after(s, verdict),
        free.left(s),
    )


def _left_alone(s: Snapshot, actions: list[Action]) -> Decision:
    """Maintenance: what happens is seen, recorded and told, and nothing follows from it."""
    ranks = view(s)
    phase = _phase(s, ranks)
    waits = (*gates.all_adopted(s), *_waits(s, phase, ranks))
    summary = _summary(s, phase, waits)
    assert s.intent.maintenance is not None
    summary = f"{s.intent.maintenance.sentence(s.now)}; {summary}"
    return Decision(
        phase, tuple(actions), waits, summary, ranks, gates.own_findings(s), s.intent, s.attempt, left=free.left(s)
    )


def _after(s: Snapshot, verdict: recovery.Verdict | None) -> float | None:
    if verdict is not None:
        return verdict.after if s.conductor else None
    if (time := draining.left(s)) is not None and s.conductor:
        return time
    if s.intent.want == "up" and rails.wanted(s) and (pause := measuring.pause(s)):
        return pause
    return free.look_again(s)


def _phase(s: Snapshot, ranks: tuple[RankView, ...]) -> Phase:
    phase = _phase_of(s, ranks)
    # Nobody sees to it that a ring in maintenance gets to where it would go.
    unseen = ("gated", "starting", "draining", "stopping")
    return "maintenance" if s.intent.paused and phase in unseen else phase


def _phase_of(s: Snapshot, ranks: tuple[RankView, ...]) -> Phase:
    alive = any(rank.alive for rank in ranks)
    if s.intent.want == "down":
        return "stopping" if alive or free.settling(s) else "held" if s.intent.held else "down"
    if any(rank.condition == "ended" for rank in ranks):
        return "stopping" if alive else "gated"
    if any(rank.condition == "stopping" for rank in ranks):
        return "stopping"
    if s.intent.drain is not None:
        return "draining"
    # One rank is ready only after the group has formed, so what a host said last before it fell silent, or before this
    # daemon started, is that its rank served.
    any_ready = any(rank.condition == "ready" for rank in ranks)
    if all(rank.condition == "ready" for rank in ranks):
        return "degraded" if gates.blemishes(s) else "ready"
    if all(rank.condition == "ready" or rank.was_ready for rank in ranks) and any_ready:
        return "degraded"
    return "starting" if alive else "gated"


def _waits(s: Snapshot, phase: Phase, ranks: tuple[RankView, ...]) -> tuple[str, ...]:
    match phase:
        case "gated":
            return gates.waits(s)
        case "starting":
            own = () if bringup.tried(s) else gates.waits(s)
            return (*own, *(rank.sentence for rank in ranks if rank.condition != "ready"))
        case "stopping":
            ending = (rank.left or f"{rank.unit} on {rank.node} to end" for rank in ranks if rank.alive)
            return (*ending, *(free.settling(s) if s.intent.want == "down" else ()))
        case "draining":
            return draining.waits(s, ranks)
        case "degraded":
            return (*(why for _, why in gates.silent(s)), *gates.blemishes(s))
        case "down" | "held":
            return (*(f"{why}, so it is not known to be free" for _, why in gates.silent(s)), *free.held(s))
        case "maintenance":
            # The likeliest cause of what has ended first.
            causes = [death.rank for death in recovery.deaths(s)] if s.intent.want == "up" else []
            left = sorted(ranks, key=lambda rank: causes.index(rank.rank) if rank.rank in causes else len(causes))
            unready = (rank.sentence for rank in left if rank.condition != "ready")
            return (*draining.waits(s, ranks), *unready)
        case "ready":
            return ()


def _after_death(s: Snapshot, verdict: recovery.Verdict) -> str:
    if verdict.after or s.conductor:
        return verdict.wait
    name = s.cluster.conductor.name
    quiet = next((f", but {why}" for peer, why in gates.silent(s) if peer.name == name), "")
    return f"{verdict.wait}: {name} is to issue epoch {s.intent.epoch + 1}{quiet}"


def _after_pause(s: Snapshot, phase: Phase) -> list[str]:
    """What will hold the next start back when its pause is over, once everything has stopped."""
    return [*gates.peers_answer(s), *gates.blemishes(s)] if phase == "gated" else []


def _summary(s: Snapshot, phase: Phase, waits: tuple[str, ...]) -> str:
    epoch = s.intent.epoch
    more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
    waiting = f"{waits[0]}{more}" if waits else ""
    if isinstance(s.units, Unknown):
        waiting = waiting or f"systemd cannot be asked: {s.units.why}"
    match phase:
        case "ready":
            return f"epoch {epoch} is ready: all {len(s.cluster.nodes)} ranks serve"
        case "degraded":
            return f"epoch {epoch} serves, but {waiting}"
        case "draining":
            return f"epoch {epoch} is draining: waits for {waiting}"
        case "starting":
            return f"epoch {epoch} is starting: {waiting or 'its ranks'}"
        case "stopping":
            return f"epoch {epoch} is stopping: {waiting or s.intent.reason}"
        case "gated":
            return f"epoch {epoch} waits: {waiting or 'every gate is open, the ranks are next'}"
        case "maintenance":
            return f"epoch {epoch} is left as it is: {waiting}"
        case "held":
            return f"held: {s.intent.reason}; mend it, then sparkctl clear and sparkctl up"
        case "down":
            free = f"; {waiting}" if waiting else ""
            return f"down: {s.intent.reason}{free}"
