"""What must hold at every moment, whatever happens. In prose:

* At no time do ranks of two epochs run.
* No rank runs while the ring is wanted down, beyond the deadline of a stop.
* Nothing starts while a gate is shut: not before every other host has lately said that it wants the same, that no rank
  of another start is alive there, that it is configured alike, and that its end of the fabric is as planned.
* A held ring stays held until an operator clears it.
* An epoch, and the revision within it, is one order: never two different ones, and on no host does it fall, unless a
  disk was lost.
* A ring that drains is stopped when no request runs, when the time is over or a rank has ended, and not before; and it
  comes up again only for an operator.
* In maintenance nothing is started, stopped or repaired (the simulated hosts refuse).
* Silence is no state: of a host that does not answer nothing is said but what it said last, and nothing is done on it.

Each is a function that raises AssertionError. They say it in their own words, without the gates of the core: a gate
that is dropped there must be missed here. That the fabric is never changed under a rank, and that a host starts at most
one rank per epoch, the simulated hosts themselves refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkd.core.actions import Adopt, ForgetRank, StartRank, StopRank
from sparkd.core.decide import Decision
from sparkd.core.model import Intent, RankUnit, Unknown
from sparkd.core.snapshot import Snapshot
from tests.sim.machine import STOP_DEADLINE, Host


def of_the_world(hosts: Iterable[Host], now: float) -> None:
    """After every step."""
    one_epoch_runs(hosts)
    nothing_runs_while_down(hosts, now)


def of_a_decision(s: Snapshot, d: Decision) -> None:
    """After every decision, before it is carried out."""
    starts_only_behind_open_gates(s, d)
    silence_is_no_state(s, d)
    a_drain_is_cut_off_only_for_a_reason(s, d)


def one_epoch_runs(hosts: Iterable[Host]) -> None:
    alive = sorted((unit.epoch, host.name) for host in hosts for unit in host.alive())
    assert len({epoch for epoch, _ in alive}) <= 1, f"two epochs run at once: {alive}"


def nothing_runs_while_down(hosts: Iterable[Host], now: float) -> None:
    for host in hosts:
        if host.down_since is None:
            continue
        for unit in host.alive():
            assert unit.active == "deactivating", f"{unit.name} on {host.name} runs, and nobody stops it"
            late = now - host.down_since - STOP_DEADLINE
            assert late <= 0, f"{unit.name} on {host.name} is alive {late:.0f} s after its deadline"


def starts_only_behind_open_gates(s: Snapshot, d: Decision) -> None:
    starts = [action for action in d.actions if isinstance(action, StartRank)]
    if not starts:
        return
    wanted = d.intent
    assert (wanted.want, wanted.held) == ("up", False), f"{s.node} starts a rank that is not wanted"
    assert not isinstance(s.units, Unknown), f"{s.node} starts a rank without knowing what runs"
    assert [unit for unit in s.units if unit.alive] == [], f"{s.node} starts a rank beside another"
    for peer in s.peers:
        who = f"{s.node} starts a rank although {peer.name}"
        told = peer.report
        assert told is not None and peer.age is not None and peer.age <= s.policy.peer_fresh, f"{who} is silent"
        assert told.intent == wanted, f"{who} is at epoch {told.intent.epoch}"
        assert told.units is not None, f"{who} cannot tell what runs there"
        assert _strange(told.units, wanted.epoch) == [], f"{who} has a rank of another start"
        assert told.digests == s.digests, f"{who} is configured otherwise"
        assert told.ends and all(end.verified for end in told.ends), f"{who} has a port that is not as planned"
        assert [f for f in told.findings if f.severity != "warn"] == [], f"{who} has something against it"
        over = told.attempt is not None and told.attempt.epoch == wanted.epoch and told.attempt.over
        assert not over, f"{who} has lost its rank"
        runs = any(unit.epoch == wanted.epoch and unit.runs for unit in told.units)
        assert runs or not s.conductor, f"{who} does not run its rank yet"


def _strange(units: Iterable[RankUnit], epoch: int) -> list[RankUnit]:
    return [unit for unit in units if unit.alive and unit.epoch != epoch]


def silence_is_no_state(s: Snapshot, d: Decision) -> None:
    conditions = {rank.node: rank.condition for rank in d.ranks}
    unheard = [p.name for p in s.peers if p.report is None or p.age is None or p.age > s.policy.peer_fresh]
    for name in unheard:
        assert conditions[name] == "unknown", f"{s.node} says that the rank on silent {name} is {conditions[name]}"
    if unheard:
        assert d.phase != "ready", f"{s.node} calls the ring ready, and {', '.join(unheard)} is silent"
        assert d.waits, f"{s.node} says {d.phase} without a word of silent {', '.join(unheard)}"
    if isinstance(s.units, Unknown):
        assert conditions[s.node] == "unknown", f"{s.node} says {conditions[s.node]} of a rank that it cannot see"
        done = [action for action in d.actions if isinstance(action, StartRank | StopRank | ForgetRank)]
        assert done == [], f"{s.node} acts on units that it cannot see: {done}"
        closed = d.attempt is not None and d.attempt.ended_at is not None
        assert not closed or s.attempt == d.attempt, f"{s.node} says that a rank has ended that it cannot see"


def an_epoch_is_one_order(issued: Mapping[tuple[int, int], Intent], new: Intent) -> None:
    before = issued.get(new.order, new)
    assert before == new, f"epoch {new.epoch} is two orders: {before} and {new}"


def a_drain_is_cut_off_only_for_a_reason(s: Snapshot, d: Decision) -> None:
    drain = s.intent.drain
    if drain is None or s.intent.want != "up":
        return
    stops = [action.epoch for action in d.actions if isinstance(action, StopRank)]
    issued = [a.intent for a in d.actions if isinstance(a, Adopt) and a.intent.by == drain.by and s.conductor]
    if s.intent.epoch not in stops and not any(intent.epoch > s.intent.epoch for intent in issued):
        return
    attempts = [d.attempt, s.attempt, *(peer.report.attempt for peer in s.peers if peer.report is not None)]
    ended = any(a is not None and a.epoch == s.intent.epoch and a.over for a in attempts)
    units = [] if isinstance(s.units, Unknown) else list(s.units)
    idle = any(unit.epoch == s.intent.epoch and unit.text == "ready draining 0" for unit in units)
    further = d.intent.epoch > s.intent.epoch and d.intent not in issued
    late = s.now >= drain.at + drain.seconds
    assert ended or idle or late or further, f"{s.node} stops a ring that drains, {drain.left(s.now):.0f} s too early"


def a_drain_ends_in_a_stop(issued: Mapping[tuple[int, int], Intent]) -> None:
    draining = False
    for order in sorted(issued):
        intent = issued[order]
        if intent.by == "operator" and intent.want == "up" and intent.drain is None:
            draining = False
        assert not draining or intent.want == "down" or intent.drain is not None, (
            f"epoch {intent.epoch} is up, and the ring was to drain and stop"
        )
        draining = intent.drain is not None


def held_stays_held(issued: Mapping[tuple[int, int], Intent]) -> None:
    """`issued`: every order that anybody may still know of, by epoch and revision."""
    held = False
    for order in sorted(issued):
        intent = issued[order]
        if intent.held:
            held = True
        elif intent.reason == "cleared":
            held = False
        else:
            assert not held or intent.want == "down", (
                f"epoch {intent.epoch} is {intent.want}, and nobody has cleared the ring"
            )
