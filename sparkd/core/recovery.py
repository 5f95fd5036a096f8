"""What a rank's end means: noise before the group formed, the end of the epoch for all after it, and what follows.

Budget: `restarts` automatic restarts of a formed group within `window`, each after a back-off that doubles; then the
ring is held. An end before the group formed costs no budget, but the pause grows when one follows another, and the same
first error twice in a row while the ring was coming up is held at once: a third try would end the same way. So is a
second death for want of memory, and the first if the kernel's OOM killer struck while the rank was coming up; and the
first refusal by an engine of its arguments or its configuration. An operator's start, without deaths, begins anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparkd.core import boots, floor, guard, progress
from sparkd.core.boots import BootMemory
from sparkd.core.model import Attempt, Death, HostFacts, Intent, RankUnit, Unknown
from sparkd.core.snapshot import Snapshot

# Exit statuses with which a rank says that another one is, or may be, the cause (runtime.launch): only the root of a
# death if no other end is. 71: the group did not form, which every rank that waited for another one says.
_CONSEQUENCES = frozenset({69, 70, 71})
# The engine refused what it was told, which is the same at the next try.
_REFUSED = "exit:65"
_OUT_OF_MEMORY, _LEFT = 77, "left"
# What a rank says of its own engine, and never because it or another one is being stopped.
_ITS_OWN = frozenset({65, 72, 73, 75, 76, _OUT_OF_MEMORY})
_ALIKE = 5
_RESULTS = {"watchdog": "its launcher gave no sign of life for too long, as one that is stopped (SIGSTOP)"}
_REMEMBERED = 10
_SIGNALS = {2: "SIGINT", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
# si_code of waitid(2), which systemd shows as ExecMainCode.
_CLD_EXITED, _CLD_KILLED, _CLD_DUMPED = 1, 2, 3


@dataclass(frozen=True)
class Verdict:
    """`intent` is what the conductor is to issue now; None while `wait` says what for, `after` seconds at most."""

    intent: Intent | None
    wait: str
    after: float


def follow(s: Snapshot) -> Attempt | None:
    """This host's attempt as the units now show it, if that differs from what is recorded."""
    a = s.attempt
    if (found := _unrecorded(s)) is not None:
        return found
    if a is None or a.ended_at is not None or isinstance(s.units, Unknown) or isinstance(s.host, Unknown):
        return None
    if not a.incident and not a.stopped:
        a = replace(a, incident=s.befell.get(a.epoch, ""))
    unit = next((unit for unit in s.units if unit.epoch == a.epoch), None)
    if unit is not None and unit.alive:
        seen = progress.parse(unit.text)
        ready = a.ready or unit.active == "active"
        followed = replace(a, formed=a.formed or seen.formed or ready, ready=ready)
        if followed.formed and not a.incident and not a.stopped and not isinstance(s.network, Unknown):
            # A configuration that was edited under a serving rank says nothing about what the rank was started with.
            same = a.cluster == s.description
            seen_here = guard.incident(s.plan, s.node, s.network, a) if same else ""
            rdma = "" if isinstance(s.roce, Unknown) else guard.gid_incident(s.roce, a)
            lost = guard.function_lost(s.hardware, a) or guard.peer_lost(s)
            followed = replace(followed, incident=seen_here or rdma or lost)
        return followed if followed != s.attempt else None
    signature, sentence = _post_mortem(a, unit, s.host, s.boots)
    if unit is not None and unit.exit_code == _CLD_EXITED and unit.exit_status in _ITS_OWN:
        # It was about to say so when another one, which had lost it, was heard first and sparkd came to stop it.
        a = replace(a, stopped="")
    return replace(a, ended_at=s.now, signature=signature, sentence=a.incident or a.stopped or sentence)


def _unrecorded(s: Snapshot) -> Attempt | None:
    """An attempt for a rank of this epoch that runs though the record of its start is lost, with the disk it was on."""
    if isinstance(s.units, Unknown) or isinstance(s.host, Unknown):
        return None
    unit = next((unit for unit in s.units if unit.epoch == s.intent.epoch and unit.runs), None)
    if unit is None or (s.attempt is not None and s.attempt.epoch >= unit.epoch):
        return None
    return Attempt(unit.epoch, s.host.boot_id, s.now, cluster=s.description)


def _post_mortem(a: Attempt, unit: RankUnit | None, host: HostFacts, booted: BootMemory) -> tuple[str, str]:
    if a.boot_id != host.boot_id:
        if boots.was_reset(booted, host.boot_id):
            return "node-hard-reset", "the host has rebooted without a shutdown"
        return "reboot", "the host has rebooted"
    if unit is None:
        # systemd forgets a unit that ended well: it left by itself, or somebody stopped it.
        return _LEFT, "it left or was stopped from outside"
    if unit.result == floor.OOM:
        return floor.OOM, "the kernel killed it because memory ran out"
    if unit.result not in _RESULTS and unit.exit_code in (_CLD_KILLED, _CLD_DUMPED):
        name = _SIGNALS.get(unit.exit_status, f"signal {unit.exit_status}")
        return f"signal:{unit.exit_status}", f"it was killed by {name}"
    if unit.exit_code == _CLD_EXITED:
        said = progress.parse(unit.text)
        if unit.exit_status == _OUT_OF_MEMORY and said.stage == "failed":
            # It was a process of the rank's that the kernel killed, not its main one, whose end systemd shows.
            return floor.OOM, said.text
        if said.stage == "failed":
            return f"exit:{unit.exit_status}:{_faceless(said.text)}", said.text
        return f"exit:{unit.exit_status}", f"it left with status {unit.exit_status}"
    return f"result:{unit.result}", f"systemd ended it: {_RESULTS.get(unit.result, unit.result)}"


def _faceless(sentence: str) -> str:
    """The sentence without what differs between two deaths of one kind: numbers, addresses, pids; names stay."""
    return re.sub(r"(?<!\w)\d+", "#", sentence)


def deaths(s: Snapshot) -> tuple[Death, ...]:
    """The ranks of the current epoch that ended on their own, the likeliest cause first.

    A rank that left because it lost another one comes last, and before it a flap of the cable to a host that went, the
    loss of that host, and an end in order: all may be consequences. The hosts' clocks only order ends of equal kind.
    """
    found = [_death(s, node, attempt) for node, attempt in _ended(s) if attempt.incident or not attempt.stopped]
    return tuple(sorted(found, key=lambda death: (hearsay(death), death.at, death.rank)))


def _ended(s: Snapshot) -> Iterator[tuple[str, Attempt]]:
    mine = [(s.node, s.attempt)] if s.attempt is not None else []
    theirs = [(p.name, p.report.attempt) for p in s.peers if p.report is not None and p.report.attempt is not None]
    for node, attempt in mine + theirs:
        if attempt.epoch == s.intent.epoch and attempt.over:
            yield node, attempt


def _death(s: Snapshot, node: str, attempt: Attempt) -> Death:
    rank = s.cluster.node(node).rank
    at = s.now - s.ages[node] if node in s.ages else min(attempt.ended_at or s.now, s.now)
    # The group has formed as soon as any of its members has said so.
    formed = attempt.formed or any(other.formed for other in _attempts(s))
    ready = attempt.ready or all(other.ready for other in _attempts(s))
    signature = f"incident:{attempt.incident.partition(':')[0]}" if attempt.incident else attempt.signature
    sentence = attempt.incident or attempt.sentence
    return Death(attempt.epoch, rank, node, at, formed, ready, f"{rank}:{signature}", sentence)


def _attempts(s: Snapshot) -> list[Attempt]:
    reported = [peer.report.attempt for peer in s.peers if peer.report is not None]
    return [a for a in [s.attempt, *reported] if a is not None and a.epoch == s.intent.epoch]


def hearsay(death: Death) -> int:
    """0 for an end that speaks for itself, more the likelier it follows from another."""
    signature = death.signature.split(":", 1)[1]
    if signature.startswith(tuple(f"exit:{status}" for status in _CONSEQUENCES)):
        return 2
    return 1 if signature in ("incident:carrier-flap", "incident:peer-lost", _LEFT) else 0


def judge(s: Snapshot) -> Verdict | None:
    """What follows the end of the current epoch; None if it has not ended. Only the conductor acts on `intent`."""
    found = deaths(s)
    stopped = [(node, a) for node, a in _ended(s) if a.stopped]
    if not found and not stopped:
        return None
    if not found:
        # Every end was sparkd's own doing, and the cause has not been told yet: the epoch is over all the same.
        node, attempt = stopped[0]
        found = (_death(s, node, attempt),)
    root = found[0]
    history = (*s.intent.deaths, root)
    reason = describe(root)
    again_in_vain = _same_twice(history)
    if again_in_vain:
        return _hold(s, history, f"{again_in_vain}: {reason}")
    if out_of_memory := floor.in_vain(history, s.now, s.policy.window):
        return _hold(s, history, f"{out_of_memory}: {reason}")
    recent = spent(s, history)
    if len(recent) > s.policy.restarts:
        minutes = s.policy.window / 60
        return _hold(s, history, f"{s.policy.restarts} restarts within {minutes:.0f} min were not enough: {reason}")
    doublings = max(0, len(recent) - 1, min(_in_vain(history), 20) - 3)
    pause = min(s.policy.backoff * 2.0**doublings, s.policy.backoff_max)
    left = min(pause, root.at + pause - s.now)
    if left > 0:
        return Verdict(None, f"{reason}; epoch {s.next_epoch} starts in {left:.0f} s", left)
    again = Intent(
        s.next_epoch,
        "up",
        "recovery",
        f"restart: {reason}",
        s.now,
        deaths=_kept(s, history),
        cables=s.wiring[0] or s.intent.cables,
        addresses=s.wiring[1] if s.wiring[0] else s.intent.addresses,
        clears=s.intent.clears,
        cluster=s.cluster.name,
    )
    return Verdict(again, f"{reason}; restarting", 0.0)


def spent(s: Snapshot, history: tuple[Death, ...]) -> list[Death]:
    """The deaths that count against the budget."""
    return [death for death in history if death.formed and s.now - death.at < s.policy.window]


def describe(death: Death) -> str:
    if ":incident:" in death.signature:
        return f"incident on {death.node}: {death.sentence}"
    return f"rank {death.rank} ({death.node}) ended: {death.sentence}"


def _same_twice(history: tuple[Death, ...]) -> str:
    """Why a further try would end the same way; empty if it may not.

    The same own error twice in a row while coming up is enough. Of ends that say less of their cause (a signal, another
    rank that is missing, a start that failed) it takes more.
    """
    last = history[-1]
    vain = history[-_in_vain(history) :] if _in_vain(history) else ()
    alike = [death for death in vain if death.signature == last.signature]
    signature = last.signature.split(":", 1)[1]
    if signature.startswith(_REFUSED) and not last.ready:
        return "the engine refuses its configuration, as it would at every further try"
    own_error = signature.startswith("exit:") and signature != "exit:not-started" and not hearsay(last)
    if own_error and len(history) > 1 and vain[-2:] == history[-2:] and history[-2].signature == last.signature:
        return "the same end twice while coming up"
    if len(alike) >= _ALIKE:
        return f"the same end {len(alike)} times while coming up"
    return ""


def _in_vain(history: tuple[Death, ...]) -> int:
    """How many tries in a row, up to the last, never got ready."""
    count = 0
    for death in reversed(history):
        if death.ready:
            break
        count += 1
    return count


def _kept(s: Snapshot, history: tuple[Death, ...]) -> tuple[Death, ...]:
    """What the budget needs to remember: formed deaths of the window, and the last others."""
    formed = spent(s, history)
    others = [death for death in history if not death.formed]
    kept = {id(death) for death in (*formed[-(s.policy.restarts + 1) :], *others[-_REMEMBERED:], history[-1])}
    return tuple(death for death in history if id(death) in kept)


def _hold(s: Snapshot, history: tuple[Death, ...], reason: str) -> Verdict:
    kept, name = _kept(s, history), s.cluster.name
    held = Intent(s.next_epoch, "down", "recovery", reason, s.now, held=True, deaths=kept, cluster=name)
    return Verdict(replace(held, clears=s.intent.clears), reason, 0.0)
