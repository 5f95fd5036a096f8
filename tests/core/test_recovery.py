"""What follows a death: back-off, budget, the same end twice, and whose end is the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core import recovery
from sparkd.core.actions import Adopt, Record
from sparkd.core.decide import decide
from sparkd.core.model import Attempt, Death, HostFacts, Intent, PeerView, RankUnit, Unknown
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import CABLES, NOW, attempt, peer, running, snapshot, with_peer


def death(epoch: int, at: float, *, formed: bool = True, ready: bool = True, signature: str = "1:signal:9") -> Death:
    return Death(epoch, 1, "spark2", at, formed, ready, signature, "it was killed by SIGKILL")


def dead(node: str, at: float = NOW, **changed: Any) -> Attempt:
    values: dict[str, Any] = {
        "ended_at": at,
        "signature": "signal:9",
        "sentence": "it was killed by SIGKILL",
        "formed": True,
        "ready": True,
    }
    return attempt(node, **(values | changed))


def after(deaths: tuple[Death, ...] = (), ended: Attempt | None = None, now: float = NOW) -> Snapshot:
    """Rank 1 of epoch 7 has ended, seen by the conductor."""
    intent = Intent(7, "up", "recovery", "restart", NOW - 100, deaths=deaths)
    s = snapshot("spark1", intent=intent, now=now)
    return with_peer(s, peer("spark2", intent, attempt=ended or dead("spark2")))


def issued(s: Snapshot) -> Intent | None:
    return next((action.intent for action in decide(s).actions if isinstance(action, Adopt)), None)


def test_a_death_is_followed_by_a_new_epoch_after_the_back_off() -> None:
    s = after()
    assert issued(s) is None
    decision = decide(s)
    assert decision.after == 5.0
    assert decision.waits == ("rank 1 (spark2) ended: it was killed by SIGKILL; epoch 8 starts in 5 s",)
    again = issued(replace(s, now=NOW + 5))
    assert again is not None
    assert (again.epoch, again.want, again.by) == (8, "up", "recovery")
    assert [d.epoch for d in again.deaths] == [7]


def test_a_cable_that_is_missing_is_told_while_the_pause_goes_on() -> None:
    s = after()
    assert not isinstance(s.network, Unknown)
    dark = tuple(replace(link, carrier=False) if "f0np0" in link.device else link for link in s.network.links)
    decision = decide(replace(s, network=replace(s.network, links=dark)))
    assert decision.after == 5.0
    assert decision.waits[0].endswith("epoch 8 starts in 5 s")
    assert "epoch 8 starts in 5 s, but spark1: port 0: no carrier" in decision.summary


def test_a_host_that_is_silent_is_told_while_the_pause_goes_on() -> None:
    s = after()
    gone = PeerView("spark3", peer("spark3", s.intent).report, 60.0, "No route to host")
    decision = decide(with_peer(s, gone))
    assert "starts in 5 s, but spark3 has not answered for 60 s (No route to host)" in decision.summary


def test_only_the_conductor_issues_the_next_epoch() -> None:
    s = after(now=NOW + 60)
    other = replace(s, node="spark3", host=HostFacts("boot-spark3"))
    assert issued(other) is None
    assert "spark1 is to issue epoch 8" in decide(other).summary


@pytest.mark.parametrize(("deaths", "pause"), [(0, 5), (1, 10), (2, 20)])
def test_the_back_off_doubles(deaths: int, pause: int) -> None:
    s = after(tuple(death(epoch, NOW - 60) for epoch in range(deaths)))
    assert decide(s).after == pause


def test_restart_storm_ends_in_held_when_the_budget_is_spent() -> None:
    """Field report restart-storm."""
    s = after(tuple(death(epoch, NOW - 600 + epoch) for epoch in range(3)), now=NOW + 300)
    held = issued(s)
    assert held is not None
    assert (held.epoch, held.want, held.held) == (8, "down", True)
    assert "3 restarts within 60 min were not enough" in held.reason
    assert "SIGKILL" in held.reason


def test_deaths_outside_the_window_cost_no_budget() -> None:
    s = after(tuple(death(epoch, NOW - 3700) for epoch in range(3)), now=NOW + 10)
    again = issued(s)
    assert again is not None
    assert not again.held


def test_exit_before_formed_costs_no_budget() -> None:
    """Field report exit-before-formed."""
    noise = tuple(death(e, NOW - 100, formed=False, ready=False, signature=f"1:signal:{e}") for e in range(9))
    s = after(noise, dead("spark2", formed=False, ready=False), now=NOW + 6)
    assert issued(s) is None, "but the pause has grown"
    again = issued(replace(s, now=NOW + 301))
    assert again is not None
    assert not again.held


def test_same_death_twice_while_coming_up_is_held() -> None:
    """Field report same-death-twice."""
    own: dict[str, Any] = {
        "signature": "exit:1:no such checkpoint",
        "sentence": "no such checkpoint",
        "formed": False,
        "ready": False,
    }
    first = death(6, NOW - 50, formed=False, ready=False, signature="1:exit:1:no such checkpoint")
    held = issued(after((first,), dead("spark2", **own)))
    assert held is not None
    assert held.held
    assert "the same end twice" in held.reason
    assert "no such checkpoint" in held.reason


@pytest.mark.parametrize(
    "before",
    [
        death(6, NOW - 50, formed=False, ready=False, signature="1:exit:1:another reason"),
        death(6, NOW - 50, formed=False, ready=False, signature="2:exit:1:no such checkpoint"),
        death(6, NOW - 50, signature="1:exit:1:no such checkpoint"),
    ],
    ids=["another reason", "another rank", "it had been ready"],
)
def test_a_different_death_is_tried_again(before: Death) -> None:
    own: dict[str, Any] = {"signature": "exit:1:no such checkpoint", "formed": False, "ready": False}
    s = after((before,), dead("spark2", **own), now=NOW + 30)
    again = issued(s)
    assert again is not None
    assert not again.held


def test_a_signal_twice_while_coming_up_is_not_the_ranks_own_doing() -> None:
    s = after((death(6, NOW - 50, ready=False),), dead("spark2", ready=False), now=NOW + 30)
    again = issued(s)
    assert again is not None
    assert not again.held


def test_the_cause_is_the_rank_that_did_not_leave_for_another() -> None:
    s = after()
    lost = dead("spark3", at=NOW - 1, signature="exit:70:rank # lost", sentence="rank 1 (spark2) lost")
    s = with_peer(s, peer("spark3", s.intent, attempt=lost))
    assert [d.node for d in recovery.deaths(s)] == ["spark2", "spark3"]
    again = issued(replace(s, now=NOW + 9))
    assert again is not None
    assert again.deaths[-1].node == "spark2"


def test_a_flap_of_the_cable_to_a_host_that_went_is_not_the_cause() -> None:
    s = after()
    flap = dead("spark3", at=NOW - 1, incident="carrier-flap: the carrier of x has changed 2 times since the start")
    s = with_peer(s, peer("spark3", s.intent, attempt=flap))
    assert [d.node for d in recovery.deaths(s)] == ["spark2", "spark3"]


def test_a_stop_that_a_crash_kept_from_the_record_is_not_the_cause() -> None:
    """1. spark2's rank is killed. 2. sparkd on spark1 stops its own for it and dies before that is on disk. 3. Its next
    process sees both ends for the first time, at once: its own rank has left in order, and nothing says why.
    """
    killed = dead("spark2")
    s = snapshot("spark1", attempt=attempt("spark1", formed=True, ready=True))
    s = with_peer(s, peer("spark2", s.intent, attempt=killed))
    followed = recovery.follow(s)
    assert followed is not None
    assert (followed.signature, followed.stopped) == ("left", "")
    s = replace(s, attempt=followed, ages={"spark1": 0.0, "spark2": 0.0})
    assert [d.node for d in recovery.deaths(s)] == ["spark2", "spark1"]


def test_a_rank_that_sparkd_stopped_has_not_died_but_its_epoch_is_over() -> None:
    stopped = dead("spark2", stopped="stopped by sparkd: x", sentence="stopped by sparkd: x")
    s = after(ended=stopped)
    assert recovery.deaths(s) == ()
    assert recovery.judge(s) is not None
    assert issued(replace(s, now=NOW + 6)) is not None


def test_a_clock_set_back_does_not_stretch_the_pause() -> None:
    s = after(now=NOW - 86400)
    assert decide(s).after == 5.0


def test_the_back_off_has_a_ceiling() -> None:
    policy = Policy(backoff=100, backoff_max=150, restarts=9)
    s = replace(after(tuple(death(epoch, NOW - 60) for epoch in range(5))), policy=policy)
    assert decide(s).after == 150


@pytest.mark.parametrize(
    ("unit", "signature", "sentence"),
    [
        (RankUnit(7, "failed", exit_code=2, exit_status=9), "signal:9", "it was killed by SIGKILL"),
        (RankUnit(7, "failed", exit_code=3, exit_status=11), "signal:11", "it was killed by SIGSEGV"),
        (RankUnit(7, "failed", exit_code=2, exit_status=40), "signal:40", "it was killed by signal 40"),
        (RankUnit(7, "failed", exit_code=1, exit_status=3), "exit:3", "it left with status 3"),
        (
            RankUnit(7, "failed", exit_code=1, exit_status=74, text="failed rail enp1s0f0np0 wrong sum 12"),
            "exit:74:rail enp1s0f0np0 wrong sum #",
            "rail enp1s0f0np0 wrong sum 12",
        ),
        (RankUnit(7, "failed", result="timeout"), "result:timeout", "systemd ended it: timeout"),
        (None, "left", "it left or was stopped from outside"),
    ],
)
def test_a_post_mortem_says_who_and_how(unit: RankUnit | None, signature: str, sentence: str) -> None:
    s = snapshot("spark2", units=(unit,) if unit else (), attempt=attempt("spark2"))
    record = decide(s).actions[0]
    assert isinstance(record, Record)
    assert (record.attempt.signature, record.attempt.sentence) == (signature, sentence)
    assert record.attempt.ended_at == NOW


def test_node_hard_reset_ends_the_attempt_of_the_boot_before() -> None:
    """Field report node-hard-reset."""
    s = snapshot("spark2", attempt=attempt("spark2"), host=HostFacts("another-boot"))
    record = decide(s).actions[0]
    assert isinstance(record, Record)
    assert record.attempt.signature == "reboot"


@pytest.mark.parametrize(
    ("text", "active", "formed", "ready"),
    [
        ("init", "activating", False, False),
        ("rendezvous 2/3 waiting for rank 1", "activating", False, False),
        ("formed", "activating", True, False),
        ("warmup 1/6 measuring", "activating", True, False),
        ("ready canary 3", "active", True, True),
        ("Loading model...", "activating", False, False),
    ],
)
def test_how_far_a_rank_came_is_recorded_before_it_dies(text: str, active: str, formed: bool, ready: bool) -> None:
    followed = recovery.follow(snapshot("spark2", units=(running(7, text, active),), attempt=attempt("spark2")))
    assert followed == (attempt("spark2", formed=formed, ready=ready) if formed else None)


def test_one_member_that_saw_the_group_form_is_enough() -> None:
    s = after(ended=dead("spark2", formed=False, ready=False))
    s = with_peer(s, peer("spark3", s.intent, units=(running(),), attempt=attempt("spark3", formed=True)))
    assert recovery.deaths(s)[0].formed


UNFORMED: dict[str, Any] = {"formed": False, "ready": False}


@pytest.mark.parametrize("clock", [NOW + 7200, NOW - 7200], ids=["two hours ahead", "two hours behind"])
def test_the_clock_of_the_host_of_a_death_decides_neither_pause_nor_budget(clock: float) -> None:
    """What counts is how long ago this daemon has seen it, by its own monotonic clock."""
    s = replace(after(ended=dead("spark2", at=clock)), ages={"spark2": 1.0})
    assert issued(s) is None
    assert decide(s).after == 4.0
    again = issued(replace(s, ages={"spark2": 5.0}, now=NOW + 4))
    assert again is not None
    assert again.deaths[-1].at == NOW - 1
    spent = tuple(death(epoch, NOW - 60 * epoch) for epoch in range(3))
    held = issued(replace(after(spent, ended=dead("spark2", at=clock)), ages={"spark2": 60.0}))
    assert held is not None
    assert held.held


@pytest.mark.parametrize(
    "signature",
    ["signal:11", "left", "result:resources", "exit:69:rank # (spark3) missing", "exit:71:the group has not formed"],
)
def test_the_same_end_before_forming_is_not_tried_for_ever(signature: str) -> None:
    noise = tuple(death(e, NOW - 900 + e, signature=f"1:{signature}", **UNFORMED) for e in range(4))
    held = issued(after(noise, dead("spark2", signature=signature, **UNFORMED), now=NOW + 301))
    assert held is not None
    assert held.held
    assert "the same end 5 times while coming up" in held.reason


def test_what_an_engine_refuses_is_not_tried_again() -> None:
    refused = dead("spark2", signature="exit:65:init: unrecognized arguments", sentence="init: no --x", **UNFORMED)
    held = issued(after((), refused, now=NOW + 30))
    assert held is not None
    assert held.held
    assert "the engine refuses its configuration" in held.reason
    assert "init: no --x" in held.reason


def test_a_group_that_did_not_form_is_not_the_cause_beside_an_end_that_says_more() -> None:
    stuck = dead("spark3", at=NOW - 1, signature="exit:71:the group has not formed", **UNFORMED)
    s = after((), dead("spark2", signature="exit:1:no such checkpoint", **UNFORMED))
    s = with_peer(s, peer("spark3", s.intent, attempt=stuck))
    assert [d.node for d in recovery.deaths(s)] == ["spark2", "spark3"]


def test_two_different_nodes_lost_while_coming_up_are_not_the_same_end() -> None:
    """Rank 0 says "rank 1 (spark2) lost" once, and "rank 2 (spark3) lost" the next time."""
    lost = "exit:74:rail to rank # (spark{}) closed"
    before = (death(6, NOW - 60, signature=f"0:{lost.format(2)}", formed=True, ready=False),)
    intent = Intent(7, "up", "recovery", "restart", NOW - 100, deaths=before)
    mine = dead("spark1", signature=lost.format(3), sentence="rail to rank 2 (spark3) closed", ready=False)
    s = with_peer(snapshot("spark1", intent=intent, now=NOW + 30, attempt=mine), peer("spark2", intent))
    again = issued(s)
    assert again is not None
    assert not again.held, again.reason


def test_deaths_before_forming_do_not_push_others_out_of_the_budget() -> None:
    history = tuple(death(e, NOW - 600 + e) for e in range(3))
    for nth in range(12):
        noise = dead("spark2", at=NOW - 1000, signature=f"signal:{nth}", **UNFORMED)
        again = issued(after(history, ended=noise))
        assert again is not None and not again.held
        history = again.deaths
    held = issued(after(history, now=NOW + 60))
    assert held is not None
    assert held.held


def test_a_budget_above_ten_is_a_budget() -> None:
    history: tuple[Death, ...] = ()
    for restarts in range(13):
        s = replace(after(history, ended=dead("spark2", at=NOW - 10)), policy=Policy(restarts=12, backoff_max=5))
        again = issued(s)
        assert again is not None
        assert not again.held, restarts
        history = again.deaths
        if restarts == 11:
            break
    held = issued(replace(after(history, ended=dead("spark2", at=NOW - 10)), policy=Policy(restarts=12, backoff_max=5)))
    assert held is not None
    assert held.held


def test_a_rank_whose_record_is_lost_is_taken_up_again_and_not_stopped() -> None:
    """The disk is lost under a serving rank: whose it is, is for the peers to say."""
    empty = Intent()
    unheard = snapshot("spark2", intent=empty, units=(running(),), peers=(PeerView("spark1"), PeerView("spark3")))
    assert decide(unheard).actions == ()
    up = Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES)
    served: dict[str, Any] = {"units": (running(),), "attempt": attempt("spark1", formed=True, ready=True)}
    s = replace(unheard, peers=(peer("spark1", up, **served), peer("spark3", up, **served)))
    decision = decide(s)
    assert [type(action) for action in decision.actions] == [Adopt, Record]
    assert decision.phase == "ready"


def test_a_new_epoch_is_above_every_attempt_that_is_known() -> None:
    """The intents are lost everywhere, the attempts are not: an epoch that was tried already could never start."""
    s = after(ended=dead("spark2"), now=NOW + 9)
    s = replace(s, attempt=attempt("spark1", epoch=73, ended_at=NOW, stopped="x"))
    again = issued(s)
    assert again is not None
    assert again.epoch == 74


def test_a_host_whose_systemd_is_away_does_not_make_a_serving_ring_a_starting_one() -> None:
    up = Intent(7, "up", "operator", "start asked for", NOW, cables=CABLES)
    own = attempt("spark1", formed=True, ready=True)
    away = peer("spark2", up, units=None, unknown=("gone",), attempt=attempt("spark2", formed=True, ready=True))
    well = peer("spark3", up, units=(running(),), attempt=attempt("spark3", formed=True, ready=True))
    s = snapshot("spark1", intent=up, units=(running(),), attempt=own, peers=(away, well))
    assert decide(s).phase == "degraded"


HUNG = RankUnit(7, "failed", "failed", exit_code=1, exit_status=73, text="failed ready: python is stopped for 20 s")


def stopped_unit(unit: RankUnit) -> Attempt:
    """What is recorded of a rank that sparkd was stopping, for another one had said that it had lost it."""
    own = attempt("spark1", formed=True, ready=True, stopped="stopped by sparkd: rank 2 (spark3) ended: rank 0 lost")
    s = replace(snapshot("spark1"), units=(unit,), attempt=own)
    [record] = [action for action in decide(s).actions if isinstance(action, Record)]
    return record.attempt


def test_a_rank_that_tells_why_it_ends_while_it_is_stopped_is_the_cause() -> None:
    """1. rank 0 finds its engine standing still and kills it. 2. rank 2 loses the connection and leaves at once.
    3. sparkd stops rank 0. 4. rank 0 leaves with what it had found.
    """
    told = stopped_unit(HUNG)
    assert (told.stopped, told.sentence) == ("", "ready: python is stopped for 20 s")
    intent = Intent(7, "up", "recovery", "restart", NOW - 100)
    lost = dead("spark3", at=NOW - 1, signature="exit:70:ready: rank 0 lost", sentence="ready: rank 0 lost")
    s = replace(with_peer(snapshot("spark1", intent=intent), peer("spark3", intent, attempt=lost)), attempt=told)
    assert recovery.deaths(s)[0].node == "spark1"


@pytest.mark.parametrize("status", [0, 1, 70, 74])
def test_what_a_rank_may_say_because_it_is_stopped_is_no_cause(status: int) -> None:
    told = stopped_unit(replace(HUNG, exit_status=status))
    assert told.stopped
    assert told.sentence == told.stopped
