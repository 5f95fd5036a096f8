"""logs: the lines of all nodes with the rank in front, in the order of time, and who is silent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sparkd.cli.moments import moment
from tests.cli.conftest import Ctl
from tests.cli.fakes import NODES, FakeRing
from tests.cli.test_show import running

AT = 1_800_000_000.0


def line(at: float, text: str, unit: str = "sparkd", priority: int = 6) -> dict[str, Any]:
    return {"at": AT + at, "unit": unit, "priority": priority, "text": text}


def node(name: str, *lines: dict[str, Any], offset: float = 0.0, error: str = "", cut: bool = False) -> dict[str, Any]:
    cursor = f"s=1;i={NODES.index(name)}{len(lines)}"
    told = {"node": name, "rank": NODES.index(name), "now": AT, "lines": list(lines), "cursor": cursor}
    return {**told, "cut": cut, "error": error, "offset": None if error else offset}


def answer(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": list(nodes)}


def query(ring: FakeRing) -> dict[str, list[str]]:
    return parse_qs(urlsplit(ring.asked[-1].split()[1]).query)


def test_lines_are_merged_with_the_rank_in_front(ring: FakeRing, ctl: Ctl) -> None:
    ring.logs = [
        answer(
            node("spark1", line(0.5, "first"), line(3, "fourth", "sparkd-rank@8", 3)),
            node("spark2", line(1.25, "second")),
            node("spark3", line(62, "third\n  of two lines", "sparkd-measure@8"), offset=60.0),
        )
    ]
    code, out, err = ctl("logs")
    assert code == 0
    parts = [(text[:8], *text[35:].split("  ", 1)) for text in out.splitlines()]
    assert [(start, unit.strip(), text.strip()) for start, unit, text in parts] == [
        ("0 spark1", "sparkd", "first"),
        ("1 spark2", "sparkd", "second"),
        ("2 spark3", "measure@8", "third"),
        ("2 spark3", "measure@8", "of two lines"),
        ("0 spark1", "rank@8", "fourth"),
    ]
    assert ":00.500  " in out.splitlines()[0]
    clock = "its clock is 60.0 s ahead; its lines are where they belong by the clock here"
    assert err == f"sparkctl: spark3: {clock}\n"


def test_for_programs_there_is_an_object_a_line(ring: FakeRing, ctl: Ctl) -> None:
    ring.logs = [answer(node("spark2", line(1, "x")), node("spark1", line(0, "\x1b[2J")))]
    told = [json.loads(text) for text in ctl("logs", "--json").out.splitlines()]
    assert told == [
        {"node": "spark1", "rank": 0, **line(0, "\x1b[2J")},
        {"node": "spark2", "rank": 1, **line(1, "x")},
    ]
    assert "\x1b" not in ctl("logs").out


def test_what_is_asked_of_the_daemon(ring: FakeRing, ctl: Ctl) -> None:
    ring.logs = [answer(node("spark1"))]
    ctl("logs")
    assert query(ring) == {"lines": ["200"]}
    ctl("logs", "--epoch", "8", "--rank", "spark2", "--lines", "5", "--grep", "a&b", "--since", "2026-11-30T12:00:00Z")
    since = str(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp())
    assert query(ring) == {"epoch": ["8"], "rank": ["1"], "lines": ["5"], "grep": ["a&b"], "since": [since]}
    ctl("logs", "--rank", "2")
    assert query(ring)["rank"] == ["2"]


def test_what_came_in_another_encoding_is_asked_for_as_it_can_be(ring: FakeRing, ctl: Ctl) -> None:
    ring.logs = [answer(node("spark1"))]
    assert ctl("logs", "--grep", "K\udcf6ln").code == 0
    assert query(ring)["grep"] == ["K?ln"]
    assert ctl("hold", "--reason", "K\udcf6ln").code == 0
    assert ring.asked[-1] == "POST /v1/ring/hold?reason=K%3Fln"


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--rank", "3", "--rank 3: expected a rank from 0 to 2, or one of spark1, spark2, spark3"),
        ("--rank", "spark9", "expected a rank from 0 to 2"),
        ("--lines", "0", "--lines 0: expected a number from 1 to 5000"),
        ("--epoch", "-1", "--epoch -1: expected the number of an epoch"),
        ("--since", "whenever", "--since whenever: expected 10m, 2h"),
        ("--since", "9999999d", "--since 9999999d: expected 10m, 2h"),
        ("--since", "9" * 400 + "d", "expected 10m, 2h"),
        ("--rank", "9" * 5000, "expected a rank from 0 to 2"),
    ],
)
def test_what_makes_no_sense(option: str, value: str, sentence: str, ring: FakeRing, ctl: Ctl) -> None:
    code, out, err = ctl("logs", f"{option}={value}")
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_silent_node_is_named_and_hides_no_other(ring: FakeRing, ctl: Ctl) -> None:
    ring.logs = [
        answer(node("spark1", line(0, "x")), node("spark2", error="spark2 cannot be asked: no answer in time"))
    ]
    code, out, err = ctl("logs")
    assert (code, out.count("\n")) == (0, 1)
    assert err == "sparkctl: spark2: its lines are not known: spark2 cannot be asked: no answer in time\n"
    ring.logs = [answer(node("spark2", error="no answer in time"))]
    assert ctl("logs").code == 1


def test_following_goes_on_where_it_was_also_over_a_restart(ring: FakeRing, tmp_path: Path) -> None:
    silent = node("spark2", error="no answer in time")
    ring.logs = [
        answer(node("spark1", line(0, "first")), silent),
        answer(node("spark1"), silent),
        answer(node("spark1", line(1, "nothing of it"), line(2, "SECOND")), silent),
        answer(node("spark1")),
    ]
    with running(tmp_path / "api.sock", "logs", "--follow", "--grep", "first|second", errors=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("  first\n")
        ring.drop = 1
        assert process.stdout.readline().endswith("  SECOND\n")
        time.sleep(0.1)
    assert "grep" in parse_qs(urlsplit(ring.asked[0].split()[1]).query)
    later = parse_qs(urlsplit(ring.asked[2].split()[1]).query)
    assert "grep" not in later
    assert later["after"][0].split(",")[0] == "spark1=s=1;i=00"


def test_an_answer_with_little_in_it_is_no_fault(ring: FakeRing, ctl: Ctl) -> None:
    ring.logs = [{"nodes": "x"}]
    assert ctl("logs") == (1, "", "")


NOW = datetime(2026, 11, 30, 14, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("30s", "2026-11-30T14:29:30+00:00"),
        ("10m", "2026-11-30T14:20:00+00:00"),
        ("1.5h ago", "2026-11-30T13:00:00+00:00"),
        ("2 d", "2026-11-28T14:30:00+00:00"),
        ("today", "2026-11-30T00:00:00+00:00"),
        ("yesterday", "2026-11-29T00:00:00+00:00"),
        ("14:00", "2026-11-30T14:00:00+00:00"),
        ("15:00", "2026-11-29T15:00:00+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
        ("2026-11-01 10:00", "2026-11-01T10:00:00+00:00"),
        ("2026-11-01T10:00:00+01:00", "2026-11-01T10:00:00+01:00"),
    ],
)
def test_moments(text: str, meant: str) -> None:
    assert moment(text, NOW).isoformat() == meant


@pytest.mark.parametrize("text", ["", "10", "m", "25:00", "2026-13-01", "-1h", "1y"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError):
        moment(text, NOW)


def test_a_reader_that_leaves_ends_it(ring: FakeRing, tmp_path: Path) -> None:
    ring.logs = [answer(node("spark1", *(line(number, "x" * 1000) for number in range(400))))]
    command = f"{sys.executable} -m sparkd.cli logs --socket {tmp_path / 'api.sock'} | head -n 1"
    done = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
