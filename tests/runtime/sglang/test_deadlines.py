"""Deadlines that count from the last progress."""

from pathlib import Path

from runtime.exits import RankFailure
from runtime.notify import Stage
from runtime.sglang.config import Limits, read_engine_config
from runtime.sglang.deadlines import BYTES_MIN, Deadlines, Work
from tests.runtime.sglang.bench import config


def limits(tmp_path: Path) -> Limits:
    launch: dict[str, object] = {"init_stuck_seconds": 120, "stall_seconds": 600, "load_cap_seconds": 3600}
    return read_engine_config({"SPARKD_ENGINE_CONFIG": config(tmp_path, launch, {})}).launch


def code(failure: RankFailure | None) -> int | None:
    return None if failure is None else int(failure.code)


def test_a_group_that_does_not_form_is_given_up_though_it_spins(tmp_path: Path) -> None:
    deadlines = Deadlines(limits(tmp_path), 0)
    deadlines.entered(Stage.RENDEZVOUS, 30)
    for now in range(31, 150):
        deadlines.worked(Work(now * BYTES_MIN, float(now)), now)
        assert deadlines.expired(now) is None
    assert code(deadlines.expired(150)) == 71


def test_a_peer_that_comes_or_a_line_is_progress(tmp_path: Path) -> None:
    deadlines = Deadlines(limits(tmp_path), 0)
    deadlines.entered(Stage.RENDEZVOUS, 0)
    deadlines.said(100)
    assert deadlines.expired(219) is None
    assert code(deadlines.expired(220)) == 71


def test_reading_and_computing_are_progress_while_loading(tmp_path: Path) -> None:
    deadlines = Deadlines(limits(tmp_path), 0)
    deadlines.entered(Stage.LOAD, 0)
    deadlines.worked(Work(0, 0.0), 0)
    deadlines.worked(Work(BYTES_MIN, 0.0), 500)
    assert deadlines.expired(1099) is None
    deadlines.worked(Work(BYTES_MIN, 60.0), 1000)
    assert deadlines.expired(1599) is None
    assert code(deadlines.expired(1600)) == 72


def test_threads_that_only_look_at_the_clock_are_none(tmp_path: Path) -> None:
    deadlines = Deadlines(limits(tmp_path), 0)
    deadlines.entered(Stage.LOAD, 0)
    for now in range(1, 600):
        deadlines.worked(Work(now * 100, now * 0.01), now)
    assert code(deadlines.expired(600)) == 72


def test_a_process_that_ends_takes_its_share_away_and_that_is_no_progress(tmp_path: Path) -> None:
    deadlines = Deadlines(limits(tmp_path), 0)
    deadlines.entered(Stage.LOAD, 0)
    deadlines.worked(Work(10 * BYTES_MIN, 100.0), 1)
    deadlines.worked(Work(0, 0.0), 2)
    assert deadlines.last_progress == 1


def test_no_progress_lasts_for_ever(tmp_path: Path) -> None:
    deadlines = Deadlines(limits(tmp_path), 0)
    deadlines.entered(Stage.CAPTURE, 0)
    deadlines.said(3599)
    failure = deadlines.expired(3600)
    assert code(failure) == 72
    assert failure is not None
    assert failure.sentence == "capture: not ready within 3600 s"
