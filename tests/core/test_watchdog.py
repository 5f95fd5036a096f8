"""The end of a rank whose launcher gave systemd no sign of life."""

from __future__ import annotations

from sparkd.core.decide import decide
from sparkd.core.model import RankUnit
from tests.core.builders import attempt, snapshot


def test_it_is_told_as_what_it_was_and_not_as_a_signal() -> None:
    killed = RankUnit(7, "failed", result="watchdog", exit_code=2, exit_status=9, text="ready idle")
    decision = decide(snapshot("spark2", units=(killed,), attempt=attempt("spark2", formed=True, ready=True)))
    assert decision.attempt is not None
    assert decision.attempt.signature == "result:watchdog"
    assert decision.attempt.sentence.startswith("systemd ended it: its launcher gave no sign of life for too long")
