"""Whether an epoch has ended in a failure, and what of a journal is worth keeping."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkd.core import incidents
from sparkd.core.model import Attempt, Death, Intent
from tests.core.builders import NOW, attempt, peer, snapshot, with_peer

DEATH = Death(7, 1, "spark2", NOW - 3, True, True, "1:signal:9", "it was killed by SIGKILL")
STOPPED = attempt("spark1", stopped="stopped by sparkd: x", sentence="stopped by sparkd: x", ended_at=NOW)


def dead(node: str) -> Attempt:
    return attempt(node, ended_at=NOW - 3, formed=True, signature="signal:9", sentence="it was killed by SIGKILL")


def test_a_death_anywhere_ends_the_epoch_for_this_host_too() -> None:
    s = snapshot("spark1", attempt=STOPPED)
    assert incidents.ended(s, s.attempt) is None
    s = with_peer(s, peer("spark2", s.intent, attempt=dead("spark2")))
    found = incidents.ended(s, s.attempt)
    assert found is not None
    assert (found.node, found.rank, found.signature) == ("spark2", 1, "1:signal:9")


def test_the_restart_that_follows_does_not_cover_it_up() -> None:
    s = snapshot("spark1", intent=Intent(8, "up", "recovery", "restart", NOW, deaths=(DEATH,)), attempt=STOPPED)
    assert incidents.ended(s, s.attempt) == DEATH
    begun = incidents.begun(s, STOPPED, DEATH)
    assert (begun.epoch, begun.root, begun.node, begun.outcome) == (7, "spark2", "spark1", "stopped by sparkd: x")
    assert not begun.complete


def test_a_stop_that_was_asked_for_is_no_incident() -> None:
    s = snapshot("spark1", intent=Intent(8, "down", "operator", "stop asked for", NOW), attempt=STOPPED)
    assert incidents.ended(s, s.attempt) is None
    assert incidents.ended(replace(s, attempt=None), None) is None


@pytest.mark.parametrize("own", [None, attempt("spark1", 6, ended_at=NOW - 60)])
def test_a_host_that_started_no_rank_sees_a_death_elsewhere(own: Attempt | None) -> None:
    s = snapshot("spark1", attempt=own)
    assert incidents.witnessed(s) is None
    s = with_peer(s, peer("spark2", s.intent, attempt=dead("spark2")))
    found = incidents.witnessed(s)
    assert found is not None
    seen = incidents.seen_from("spark1", found)
    assert (seen.epoch, seen.root, seen.node, seen.outcome) == (
        7, "spark2", "spark1", "it had started no rank of this epoch"
    )  # fmt: skip
    assert incidents.witnessed(replace(s, attempt=attempt("spark1"))) is None


def line(said: str) -> str:
    return f"2026-11-30T22:00:00.000000+0000 sparkd-rank[12]: {said}"


TRACEBACK = [
    "loading shard 3 of 48",
    "Traceback (most recent call last):",
    '  File "engine.py", line 12, in load',
    "    raise FileNotFoundError(path)",
    "FileNotFoundError: /models/x",
    "",
    "Traceback (most recent call last):",
    "RuntimeError: the scheduler has left",
]


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (TRACEBACK, "FileNotFoundError: /models/x"),
        (["all is well", "CUDA error: out of memory", "ValueError: 3"], "CUDA error: out of memory"),
        (["NCCL WARN Call to ibv_modify_qp failed", "RuntimeError: x"], "NCCL WARN Call to ibv_modify_qp failed"),
        (["rank 0 (spark1): rank 1 (spark2) lost"], "rank 0 (spark1): rank 1 (spark2) lost"),
        (["all is well", "ready"], ""),
        ([], ""),
    ],
)
def test_the_first_error_counts(lines: list[str], first: str) -> None:
    assert incidents.excerpt(map(line, lines)).first == first
    assert incidents.excerpt(lines).first == first


def test_what_the_rank_itself_logs_as_an_error_is_one_whatever_its_words() -> None:
    lines = [line("all is well"), line("rank 2 (spark3) missing"), line("ValueError: 3")]
    assert incidents.excerpt(lines).first == "ValueError: 3"
    assert incidents.excerpt(lines, {lines[1]}).first == "rank 2 (spark3) missing"


def test_what_sounds_like_an_error_is_none_where_the_rank_has_called_another_line_one() -> None:
    """As of SGLang, whose log speaks of errors from which it goes on."""
    lines = [line("Ignore import error when loading a model"), line("rank 2 (spark3) missing")]
    assert incidents.excerpt(lines).first == "Ignore import error when loading a model"
    assert incidents.excerpt(lines, {lines[1]}).first == "rank 2 (spark3) missing"
    assert lines[0] in incidents.excerpt(lines, {lines[1]}).text


def test_what_systemd_says_of_the_end_is_kept_and_is_no_error_of_the_rank() -> None:
    lines = ["2026-11-30T22:00:00+0000 systemd[1]: sparkd-rank@7.service: Failed with result 'signal'.", line("well")]
    assert incidents.excerpt(lines).first == ""
    assert lines[0] in incidents.excerpt(lines).text


def test_an_excerpt_is_short_and_has_the_first_errors_and_the_last_lines() -> None:
    lines = [f"error {number}" for number in range(1000)] + [f"line {number}" for number in range(1000)]
    found = incidents.excerpt(map(line, lines))
    assert found.first == "error 0"
    assert line("error 39") in found.text
    assert line("error 40") not in found.text
    assert line("line 900") in found.text
    assert line("line 899") not in found.text
    assert "last of 2000 lines" in found.text
