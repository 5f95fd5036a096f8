"""The memory floor: when a rank has to go, how it is recorded, and what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkd.core import floor
from sparkd.core.actions import Adopt, Record, StopRank
from sparkd.core.decide import decide
from sparkd.core.floor import Sample, breach, pause
from sparkd.core.hardware import HardwareFacts, PciFacts
from sparkd.core.model import Death, Intent, RankUnit
from sparkd.core.snapshot import Policy, Snapshot
from tests.core.builders import CABLES, NOW, attempt, peer, running, snapshot, with_peer

GIB = 1024 * 1024
FLOOR = 4 * GIB
SAID = "memory-floor: 3.0 GiB of memory available, 26.0 GiB less than 11.0 s before"


def samples(*points: tuple[float, float]) -> list[Sample]:
    return [Sample(at, int(gib * GIB)) for at, gib in points]


def test_a_fall_below_the_floor_is_a_breach() -> None:
    """Field report memory-floor: 29 to 6 GiB in 11 s was seen."""
    assert breach(samples((0, 29), (5, 18), (11, 3)), FLOOR) == SAID


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0, 29), (11, 4)],
        [(0, 3.5)],
        [(0, 3.5), (1, 3.4), (2, 3.5)],
        [(0, 29), (100, 3.5), (101, 3.5)],
        [(0, 3.0), (10, 3.5)],
    ],
    ids=["nothing seen", "at the floor", "once", "up and down", "fell long ago", "it rises"],
)
def test_above_it_or_steady_below_it_is_none(points: list[tuple[float, float]]) -> None:
    assert breach(samples(*points), FLOOR) == ""


def test_half_of_it_is_too_little_however_slowly_it_got_there() -> None:
    assert breach(samples((0, 1.9), (1, 1.9)), FLOOR) == "memory-floor: 1.9 GiB of memory available"


def test_it_is_looked_at_often_while_it_falls_near_the_floor() -> None:
    assert pause(samples((0, 9), (1, 7)), FLOOR) == 0.1
    for rare in ([(0, 29), (1, 9)], [(0, 7), (1, 7)], [(0, 7)]):
        assert pause(samples(*rare), FLOOR) == 1.0


def test_there_is_a_floor_on_a_spark_and_where_it_is_configured() -> None:
    spark = HardwareFacts(pci=PciFacts(gb10=True))
    assert floor.limit(snapshot()) == 0
    assert floor.limit(snapshot(hardware=spark)) == FLOOR
    assert floor.limit(snapshot(hardware=spark, policy=Policy(memory_floor_kib=0))) == 0
    assert floor.limit(snapshot(policy=Policy(memory_floor_kib=GIB))) == GIB


def test_only_a_rank_that_runs_is_guarded() -> None:
    assert floor.guarded(snapshot(units=(RankUnit(6, "failed"), running(7)))) == (7, 107)
    assert floor.guarded(snapshot(units=(RankUnit(7, "inactive", job="start"),))) is None


def struck(**changed: Any) -> Snapshot:
    units = (running(text="load 3/48", active="activating"),)
    values: dict[str, Any] = {"units": units, "attempt": attempt("spark2"), "befell": {7: SAID}}
    return snapshot("spark2", **(values | changed))


def test_what_befell_a_rank_is_recorded_as_an_incident_whether_it_still_runs_or_not() -> None:
    several: tuple[tuple[RankUnit, ...], ...] = ((running(active="activating"),), (), (killed(),))
    for units in several:
        actions = decide(struck(units=units)).actions
        [record] = [action for action in actions if isinstance(action, Record)]
        assert record.attempt.incident == SAID
        # Should the kill not have worked, the stop is on its way.
        assert any(isinstance(action, StopRank) for action in actions) == any(unit.alive for unit in units)


def test_what_befell_another_epoch_or_a_rank_that_is_being_stopped_is_none() -> None:
    for changed in ({"befell": {6: SAID}}, {"attempt": attempt("spark2", stopped="stopped by sparkd: x")}):
        recorded = [a.attempt.incident for a in decide(replace(struck(), **changed)).actions if isinstance(a, Record)]
        assert SAID not in recorded


def killed(result: str = "signal") -> RankUnit:
    return RankUnit(7, "failed", "failed", result=result, exit_code=2, exit_status=9)


def issued(history: tuple[Death, ...] = (), **ended: Any) -> Intent:
    """What the conductor issues after this end of rank 1, once the pause is over."""
    intent = Intent(7, "up", "recovery", "restart", NOW - 100, deaths=history, cables=CABLES)
    values: dict[str, Any] = {"ended_at": NOW - 400, "signature": "signal:9", "sentence": "killed"}
    s = with_peer(
        snapshot("spark1", intent=intent), peer("spark2", intent, attempt=attempt("spark2", **(values | ended)))
    )
    [adopted] = [action.intent for action in decide(s).actions if isinstance(action, Adopt)]
    return adopted


def death(signature: str, at: float = NOW - 900, *, ready: bool = True) -> Death:
    return Death(6, 2, "spark3", at, ready, ready, f"2:{signature}", "x")


def test_the_first_time_the_ring_starts_again_and_the_second_time_it_is_held() -> None:
    first = issued(incident=SAID, formed=True, ready=True)
    assert (first.want, first.deaths[-1].signature) == ("up", "1:incident:memory-floor")
    for before in (death("incident:memory-floor"), death("incident:memory-floor", ready=False), death("oom-kill")):
        second = issued((before,), incident=SAID, formed=True, ready=True)
        assert second.held
        assert second.reason.startswith("out of memory 2 times within 60 min: incident on spark2: memory-floor: 3.0")
    assert not issued((death("incident:memory-floor", NOW - 3700),), incident=SAID).held, "long ago"
    assert not issued((death("signal:9"),), incident=SAID).held, "another reason"


def test_oom_at_load_is_held_at_once() -> None:
    """Field report oom-at-load."""
    [record] = [a for a in decide(struck(befell={}, units=(killed("oom-kill"),))).actions if isinstance(a, Record)]
    assert (record.attempt.signature, record.attempt.sentence) == (
        "oom-kill",
        "the kernel killed it because memory ran out",
    )
    told = RankUnit(
        7, "failed", exit_code=1, exit_status=77, text="failed load: the kernel killed a process of the engine"
    )
    [record] = [a for a in decide(struck(befell={}, units=(told,))).actions if isinstance(a, Record)]
    assert (record.attempt.signature, record.attempt.sentence[:16]) == ("oom-kill", "load: the kernel")
    held = issued(signature="oom-kill", sentence="the kernel killed it because memory ran out")
    assert held.held
    assert held.reason.startswith("out of memory while coming up, as every further try would be: rank 1 (spark2) ended")


def test_an_oom_kill_of_a_rank_that_served_is_a_death_like_any_other_once() -> None:
    served: dict[str, Any] = {"signature": "oom-kill", "formed": True, "ready": True}
    everybody = {"units": (running(),), "attempt": attempt("spark1", formed=True, ready=True)}
    intent = Intent(7, "up", "x", "y", NOW - 100, cables=CABLES)
    s = snapshot("spark1", intent=intent, **everybody)
    s = with_peer(s, peer("spark2", intent, attempt=attempt("spark2", ended_at=NOW - 400, sentence="x", **served)))
    s = with_peer(s, peer("spark3", intent, attempt=attempt("spark3", formed=True, ready=True)))
    [adopted] = [action.intent for action in decide(s).actions if isinstance(action, Adopt)]
    assert (adopted.want, adopted.held) == ("up", False)
