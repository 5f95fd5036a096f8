"""Maintenance: who orders it and ends it, what it keeps from happening, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core.actions import Adopt, Record
from sparkd.core.decide import decide
from sparkd.core.intent import Accepted, Refused, accept, newest
from sparkd.core.maintenance import Maintenance, tidy
from sparkd.core.model import Intent, PeerView
from sparkd.core.snapshot import Snapshot
from tests.core.builders import CABLES, NOW, attempt, bare_network, peer, running, snapshot, with_peer

ORDER = Maintenance("operator on spark2", "a new cable", NOW - 720)
UP = Intent(7, "up", "operator", "start asked for", NOW - 900, cables=CABLES)
PAUSED = replace(UP, revision=1, maintenance=ORDER)
SAID = "maintenance since 12 min, by operator on spark2: a new cable"


def serving(intent: Intent = PAUSED, **changed: Any) -> Snapshot:
    served: dict[str, Any] = {"formed": True, "ready": True}
    peers = tuple(
        peer(name, intent, units=(running(),), attempt=attempt(name, **served)) for name in ("spark2", "spark3")
    )
    values = {"units": (running(),), "attempt": attempt("spark1", **served), "peers": peers}
    return snapshot("spark1", intent=intent, **(values | changed))


def dead(node: str) -> Any:
    return attempt(node, formed=True, ready=True, ended_at=NOW - 1, signature="signal:9", sentence="it was killed")


def test_a_hold_is_a_revision_of_the_epoch_so_that_its_ranks_stay() -> None:
    answer = accept(serving(UP), "hold", "operator on spark2", " a  new\ncable\x1b ")
    assert isinstance(answer, Accepted) and answer.new
    ordered = Maintenance("operator on spark2", "a new cable", NOW)
    assert answer.intent == replace(UP, revision=1, maintenance=ordered)
    assert newest(serving(UP, peers=(peer("spark2", answer.intent),))) == answer.intent


def test_a_serving_ring_says_so_and_goes_on_serving() -> None:
    decision = decide(serving())
    assert (decision.phase, decision.actions) == ("ready", ())
    assert decision.summary == f"{SAID}; epoch 7 is ready: all 3 ranks serve"


def test_a_rank_that_dies_is_shown_and_nothing_follows_until_resume() -> None:
    s = with_peer(serving(), peer("spark2", PAUSED, attempt=dead("spark2")))
    later = replace(s, now=NOW + 600)
    for each in (s, later):
        decision = decide(each)
        assert (decision.phase, decision.actions, decision.after) == ("maintenance", (), None)
        assert decision.waits == ("rank 1 (spark2): it was killed",)
        assert decision.summary.endswith("; epoch 7 is left as it is: rank 1 (spark2): it was killed")
    resumed = accept(later, "resume", "operator on spark1")
    assert isinstance(resumed, Accepted) and resumed.new and not resumed.intent.paused
    after = replace(later, intent=resumed.intent)
    [adopted, *_] = [a.intent for a in decide(after).actions if isinstance(a, Adopt)]
    assert (adopted.epoch, adopted.by, adopted.maintenance) == (8, "recovery", None)


def test_the_end_of_the_own_rank_is_recorded() -> None:
    decision = decide(serving(units=()))
    assert [type(action) for action in decision.actions] == [Record]
    assert decision.attempt is not None and decision.attempt.ended_at == NOW


def test_nothing_is_started_or_repaired() -> None:
    peers = tuple(peer(name, PAUSED) for name in ("spark2", "spark3"))
    s = snapshot("spark2", intent=PAUSED, network=bare_network("spark2"), peers=(peer("spark1", PAUSED), peers[1]))
    assert decide(s).actions == ()
    assert decide(replace(s, intent=replace(UP, revision=1))).actions != ()
    ready_to_start = snapshot("spark2", intent=PAUSED, peers=(peer("spark1", PAUSED), peers[1]))
    assert decide(ready_to_start).actions == ()


def test_nothing_is_stopped_not_even_a_rank_of_another_epoch() -> None:
    s = serving(units=(running(), running(6)))
    assert decide(s).actions == ()
    assert decide(replace(s, intent=replace(UP, revision=1))).actions != ()


def test_who_has_not_adopted_it_yet_is_named() -> None:
    s = with_peer(serving(), peer("spark3", UP, units=(running(),), attempt=attempt("spark3", ready=True)))
    assert decide(s).waits[0] == "spark3 has not adopted epoch 7.1 yet (it is at 7)"


@pytest.mark.parametrize("request_", ["start", "stop"])
def test_a_start_and_a_stop_are_refused_with_what_to_do(request_: Any) -> None:
    answer = accept(serving(), request_, "operator on spark1")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.sentence) == ("maintenance", f"nothing is started or stopped: {SAID}")
    assert "sparkctl resume" in answer.findings[0].fix
    assert ("--force" in answer.findings[0].fix) == (request_ == "stop")


def test_a_forced_stop_ends_it() -> None:
    answer = accept(serving(), "stop", "operator on spark1", force=True)
    assert isinstance(answer, Accepted)
    assert (answer.intent.epoch, answer.intent.want, answer.intent.maintenance) == (8, "down", None)


def test_a_hold_that_is_in_force_stays_unless_there_is_another_reason() -> None:
    assert accept(serving(), "hold", "operator on spark3") == Accepted(PAUSED, new=False)
    again = accept(serving(), "hold", "operator on spark3", "a new fan")
    assert isinstance(again, Accepted) and again.new
    assert again.intent.maintenance == Maintenance("operator on spark3", "a new fan", NOW)


def test_resume_without_a_hold_changes_nothing() -> None:
    assert accept(serving(UP), "resume", "x") == Accepted(UP, new=False)


def test_clear_leaves_the_maintenance_in_force() -> None:
    held = Intent(9, "down", "recovery", "gave up", NOW, held=True, revision=1, maintenance=ORDER)
    s = snapshot("spark1", intent=held)
    assert decide(s).phase == "held"
    answer = accept(s, "clear", "operator on spark1")
    assert isinstance(answer, Accepted)
    assert not answer.intent.held and answer.intent.paused


def test_a_conductor_without_a_memory_holds_what_its_peers_turn_out_to_do() -> None:
    lost = snapshot("spark1", intent=Intent(), peers=(PeerView("spark2"), PeerView("spark3")))
    answer = accept(lost, "hold", "operator on spark1", "x")
    assert isinstance(answer, Accepted)
    heard = replace(lost, intent=answer.intent, peers=(peer("spark2", UP), PeerView("spark3")))
    again = newest(heard)
    assert again == replace(UP, revision=1, maintenance=answer.intent.maintenance)
    adopted = replace(heard, intent=again, peers=(peer("spark2", again), peer("spark3", again)))
    assert newest(adopted) == again


def test_a_reason_is_one_printable_line_of_limited_length() -> None:
    assert tidy(" a\n\tb\x07c ") == "a bc"
    assert len(tidy("x" * 500)) == 200
