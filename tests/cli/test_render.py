"""The screen of `sparkctl status`, from dictionaries written by hand."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from sparkd.cli.render import sentence, status
from sparkd.cli.text import Style, bar, clean, duration

DEVICES = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")
NOW = 1_800_000_000.0


def ends(*states: str) -> list[dict[str, Any]]:
    """Of port 0 and port 1: ok, bare (carrier, but not as planned) or dead."""
    return [
        {"device": device, "carrier": state != "dead", "verified": state == "ok"}
        for device, state in zip(DEVICES, [state for state in states for _ in range(2)], strict=True)
    ]


STARTING: dict[str, Any] = {
    "phase": "starting",
    "want": "up",
    "epoch": 7,
    "summary": "waiting for rank 1 (spark2): warmup 3/6",
    "waits": ["rank 1 (spark2): warmup 3/6, measuring enp1s0f1np1", "rank 2 (spark3): formed"],
    "ranks": [
        {
            "rank": rank,
            "node": f"spark{rank + 1}",
            "unit": "sparkd-rank@7.service",
            "state": state,
            "stage": stage,
            "progress": progress,
            "text": text,
            "pid": 100 + rank,
        }
        for rank, (state, stage, progress, text) in enumerate(
            [
                ("ready", "ready", None, "canary 152, slowest rail enp1s0f0np0 9.1 Gb/s"),
                ("starting", "warmup", {"done": 3, "total": 6}, "measuring enp1s0f1np1"),
                ("starting", "formed", None, ""),
            ]
        )
    ],
    "node": "spark1",
    "conductor": "spark1",
    "cluster": "lab",
    "version": "0.1.0",
    "reason": "asked",
    "by": "root (uid 0) on spark1",
    "findings": [],
    "peers": [
        {"node": "spark2", "age": 0.4, "error": "", "epoch": 7, "version": "0.1.0"},
        {"node": "spark3", "age": 0.9, "error": "", "epoch": 7, "version": "0.1.0"},
    ],
    "fabric": [{"node": f"spark{rank}", "ends": ends("ok", "ok"), "neighbours": None} for rank in (1, 2, 3)],
    "cables": [],
    "rails": [],
    "engine": {"name": "probe", "api": "127.0.0.1:8888", "profile": "", "openai": "", "adapters": []},
    "deaths": [],
    "budget": {"used": 0, "restarts": 3, "window": 3600.0},
    "drain": None,
    "serving": False,
    "memory": [],
    "work": None,
    "maintenance": None,
}


def ring(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(STARTING), **changes}


def screen(of: dict[str, Any], width: int = 80) -> list[str]:
    return status(of, Style(width), NOW).splitlines()


def test_the_profile_is_named_beside_the_engine() -> None:
    engine = {"name": "sglang", "api": "127.0.0.1:8888", "profile": "tiny"}
    assert "  engine sglang with tiny, API on spark1 127.0.0.1:8888" in screen(STARTING | {"engine": engine})


def test_what_is_added_to_the_engine_is_named() -> None:
    engine = {"name": "sglang", "api": "127.0.0.1:8888", "profile": "tiny", "adapters": ["engram_rows", "tp3_pad"]}
    assert "  added to the engine: engram_rows, tp3_pad" in screen(STARTING | {"engine": engine})


def test_the_address_of_the_openai_api_is_told_where_there_is_one() -> None:
    engine = {"name": "sglang", "api": "127.0.0.1:8888", "profile": "tiny", "openai": "http://127.0.0.1:8888/v1"}
    told = screen(STARTING | {"engine": engine})
    assert "  engine sglang with tiny, OpenAI API on spark1: http://127.0.0.1:8888/v1" in told


def test_the_whole_screen() -> None:
    assert "\n".join(screen(STARTING)) == (
        """\
STARTING  waiting for rank 1 (spark2): warmup 3/6
  ring lab, epoch 7
  wanted up by root on spark1
  engine probe, no OpenAI API; health at 127.0.0.1:8888 on spark1
  told by spark1, conductor spark1

Waits for
  - rank 1 (spark2): warmup 3/6, measuring enp1s0f1np1
  - rank 2 (spark3): formed

Cables    port 0        port 1
  spark1  ok      ====  ok      spark2
  spark2  ok      ====  ok      spark3
  spark3  ok      ====  ok      spark1

Ranks  sparkd-rank@7.service
  0  spark1  ready     ready                          canary 152, slowest rai...
  1  spark2  starting  warmup     [######------] 3/6  measuring enp1s0f1np1
  2  spark3  starting  formed

Peers
  spark2  heard 0.4 s ago  epoch 7
  spark3  heard 0.9 s ago  epoch 7"""
    )


@pytest.mark.parametrize(("used", "line"), [(0, None), (1, "2 of 3"), (3, "0 of 3"), (4, "0 of 3")])
def test_what_is_left_of_the_budget_is_told_once_some_of_it_is_used(used: int, line: str | None) -> None:
    told = [row for row in screen(ring(budget={"used": used, "restarts": 3, "window": 3600.0})) if "restarts" in row]
    assert told == ([f"  restarts left: {line} within 60 min"] if line else [])


def test_the_sentence_comes_first_and_every_line_fits() -> None:
    long = ring(summary="waiting for " + "x " * 100, waits=["y " * 100], by="z" * 300)
    for width in (80, 100):
        lines = screen(long, width)
        assert lines[0].startswith("STARTING  waiting for x x")
        # A word that is longer than a line is broken, and nothing else is longer than the terminal.
        assert max(len(line) for line in lines) <= width


@pytest.mark.parametrize(
    ("here", "there", "line"),
    [
        (ends("ok", "ok"), ends("ok", "ok"), "spark1  ok  ====  ok  spark2"),
        (ends("dead", "ok"), ends("ok", "dead"), "spark1  no carrier  -X-  no carrier  spark2"),
        (ends("bare", "ok"), ends("ok", "ok"), "spark1  not set up  ----  ok  spark2"),
        (ends("ok", "ok"), None, "spark1  ok  ????  unknown  spark2"),
        (ends("dead", "ok"), None, "spark1  no carrier  -X-  unknown  spark2"),
        (ends("ok", "ok")[1:], [], "spark1  ok  -X-  no device  spark2"),
        (
            [{"device": DEVICES[0], "carrier": True, "verified": True}, {"device": DEVICES[1], "carrier": False}],
            ends("ok", "ok"),
            "spark1  carrier 1 of 2  -X-  ok  spark2",
        ),
    ],
)
def test_cables(here: Any, there: Any, line: str) -> None:
    fabric = [{"node": "spark1", "ends": here}, {"node": "spark2", "ends": there}, {"node": "spark3", "ends": None}]
    lines = screen(ring(fabric=fabric))
    first = lines[next(index for index, text in enumerate(lines) if text.startswith("Cables")) + 1]
    assert re.split(r"\s{2,}", first.strip()) == line.split("  ")


def test_findings_come_with_their_fix() -> None:
    finding = {
        "id": "cable-missing",
        "node": "spark1",
        "severity": "refuse",
        "subject": "enp1s0f0np0 (port 0)",
        "observed": "no carrier",
        "expected": "a cable to port 1 of spark2",
        "fix": "plug the cable in, " * 8,
    }
    lines = screen(ring(findings=[finding]))
    start = lines.index("Findings")
    assert lines[start + 1 : start + 5] == [
        "  refuse  spark1: cable-missing, enp1s0f0np0 (port 0)",
        "          found     no carrier",
        "          expected  a cable to port 1 of spark2",
        "          fix       plug the cable in, plug the cable in, plug the cable in,",
    ]
    assert lines[start + 5].startswith(" " * 20 + "plug")


@pytest.mark.parametrize(("severity", "word"), [("refuse", "refuse"), ("repair", "wait  "), ("warn", "warn  ")])
def test_what_comes_right_by_itself_is_waited_for(severity: str, word: str) -> None:
    finding = {"id": "cable-unheard", "node": "spark1", "severity": severity, "subject": "port 0"}
    assert screen(ring(findings=[finding]))[-1] == f"  {word}  spark1: cable-unheard, port 0"


def test_peers_that_are_silent_or_of_another_version() -> None:
    peers = [
        {"node": "spark2", "age": None, "error": "connection refused", "epoch": None, "version": None},
        {"node": "spark3", "age": 75.2, "error": "timed out", "epoch": 6, "version": "0.2.0"},
    ]
    lines = screen(ring(peers=peers), 90)
    assert lines[-2:] == [
        "  spark2  not heard yet   last error: connection refused",
        "  spark3  heard 75 s ago  epoch 6, version 0.2.0 (here 0.1.0), last error: timed out",
    ]


def test_the_last_death() -> None:
    deaths = [
        {"epoch": 6, "rank": 2, "node": "spark3", "at": NOW - 200, "sentence": "killed by SIGKILL"},
        {"epoch": 5, "rank": 1, "node": "spark2", "at": NOW - 900, "sentence": "earlier"},
    ]
    assert screen(ring(deaths=deaths))[-2:] == [
        "Last death  rank 2 on spark3, epoch 6, 3 min ago (2 deaths since the last start)",
        "  killed by SIGKILL",
    ]


def test_the_number_of_deaths() -> None:
    one = {"epoch": 6, "rank": 2, "node": "spark3", "at": NOW - 200, "sentence": "killed by SIGKILL"}
    assert screen(ring(deaths=[one]))[-2].endswith(" (1 death since the last start)")
    # The daemon keeps ten.
    assert screen(ring(deaths=[one] * 10))[-2].endswith(" (10 or more deaths since the last start)")


def test_colour_is_around_words_and_takes_no_columns() -> None:
    plain, colourful = status(STARTING, Style(80), NOW), status(STARTING, Style(80, True), NOW)
    assert "\x1b" not in plain
    assert colourful.startswith("\x1b[33mSTARTING\x1b[0m  waiting")
    for code in (0, 1, 2, 31, 32, 33):
        colourful = colourful.replace(f"\x1b[{code}m", "")
    assert colourful == plain


@pytest.mark.parametrize(
    ("want", "here", "code"),
    [("up", "bare", 33), ("down", "bare", None), ("down", "dead", 31), ("up", "ok", None)],
)
def test_colours_of_cables(want: str, here: str, code: int | None) -> None:
    fabric = [{"node": f"spark{rank}", "ends": ends(here if rank == 1 else "ok", "ok")} for rank in (1, 2, 3)]
    lines = status(ring(want=want, fabric=fabric), Style(80, True), NOW).splitlines()
    lines = lines[next(index for index, line in enumerate(lines) if "Cables" in line) + 1 :]
    assert lines[0].startswith(f"\x1b[{code}m" if code else "  spark1")
    assert lines[1].startswith("  spark2")


def test_the_phase_is_told_once() -> None:
    down = ring(phase="down", summary="down: never started")
    assert screen(down)[0] == "DOWN  never started"
    assert sentence(down) == "down: never started"
    assert sentence(ring(summary="epoch 7 waits: for spark3")) == "epoch 7 waits: for spark3"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"reason": "start asked for", "by": "laptop (token) at 127.0.0.1 on spark3"}, "wanted up by laptop on spark3"),
        (
            {"want": "down", "reason": "cleared", "by": "operator on spark2"},
            "wanted down by operator on spark2: cleared",
        ),
        ({"want": "down", "reason": "never started", "by": "nobody"}, "wanted down: never started"),
        (
            {"reason": "restart: rank 1 (spark2) ended: it was killed by SIGKILL", "by": "recovery"},
            "wanted up; last restart: rank 1 (spark2) ended: it was killed by SIGKILL",
        ),
        (
            {"reason": "the addresses on the fabric ports are others now", "by": "recovery"},
            "wanted up; planned anew: the addresses on the fabric ports are others now",
        ),
        (
            {"phase": "held", "want": "down", "reason": "the same end twice", "by": "recovery"},
            "wanted down: sparkd has given up",
        ),
    ],
)
def test_who_wanted_it(changes: dict[str, Any], line: str) -> None:
    assert screen(ring(**changes))[2] == f"  {line}"


def dark(node: str, port: int, far: str) -> dict[str, Any]:
    """A port without carrier, as its own node tells it."""
    device = DEVICES[2 * port]
    return {
        "id": "cable-missing",
        "node": node,
        "severity": "refuse",
        "subject": f"port {port}",
        "observed": f"no carrier on {device}",
        "expected": f"a cable from {node} port {port} to {far} port {1 - port}",
        "fix": f"seat the cable between {node} port {port} and {far} port {1 - port}",
    }


def shown_findings(*found: dict[str, Any]) -> list[str]:
    lines = screen(ring(findings=list(found)), 100)
    return [line.strip() for line in lines[lines.index("Findings") + 1 :]]


def test_the_two_ends_of_one_cable_are_one_finding() -> None:
    assert shown_findings(dark("spark1", 0, "spark2"), dark("spark3", 0, "spark1"), dark("spark2", 1, "spark1")) == [
        "refuse  spark1 port 0 and spark2 port 1: cable-missing",
        "found     spark1 port 0: no carrier on enp1s0f0np0",
        "spark2 port 1: no carrier on enp1s0f1np1",
        "expected  a cable from spark1 port 0 to spark2 port 1",
        "fix       seat the cable between spark1 port 0 and spark2 port 1",
        "refuse  spark3: cable-missing, port 0",
        "found     no carrier on enp1s0f0np0",
        "expected  a cable from spark3 port 0 to spark1 port 1",
        "fix       seat the cable between spark3 port 0 and spark1 port 1",
    ]


def test_ends_that_see_the_same_tell_it_once_and_different_cables_stay_apart() -> None:
    same = {
        "id": "cable-same-port",
        "severity": "refuse",
        "subject": "port 0",
        "observed": "the cable between spark1 and spark2 joins port 0 to port 0",
        "expected": "port 0 of one node to port 1 of the next",
        "fix": "at spark2, exchange the two cables",
    }
    other = same | {"observed": "the cable between spark2 and spark3 joins port 1 to port 1", "subject": "port 1"}
    told = shown_findings(
        same | {"node": "spark1"}, same | {"node": "spark2"}, other | {"node": "spark2"}, other | {"node": "spark3"}
    )
    assert told[:3] == [
        "refuse  spark1 port 0 and spark2 port 0: cable-same-port",
        "found     the cable between spark1 and spark2 joins port 0 to port 0",
        "expected  port 0 of one node to port 1 of the next",
    ]
    assert told[4] == "refuse  spark2 port 1 and spark3 port 1: cable-same-port"
    assert len(told) == 8
    # Two that do not agree on what to do are both heard.
    told = shown_findings(same | {"node": "spark1"}, same | {"node": "spark2", "fix": "something else"})
    assert [line for line in told if line.startswith("refuse")] == [
        "refuse  spark1: cable-same-port, port 0",
        "refuse  spark2: cable-same-port, port 0",
    ]


def test_a_loop_is_one_cable_and_a_repeated_finding_is_one() -> None:
    loop = {"id": "cable-loop", "node": "spark1", "severity": "refuse", "subject": "port 0", "fix": "move one end"}
    told = shown_findings(loop, loop | {"subject": "port 1"}, loop | {"node": "spark2"}, {"id": "held"}, {"id": "held"})
    assert [line for line in told if ":" in line] == [
        "refuse  spark1 port 0 and spark1 port 1: cable-loop",
        "refuse  spark2: cable-loop, port 0",
        ": held,",
    ]


def test_what_is_amiss_while_ranks_serve_is_told_once() -> None:
    missing = dark("spark1", 0, "spark2")
    wait = f"spark1: port 0: {missing['observed']}; expected {missing['expected']}"
    silent = "spark3 has not answered for 12 s (timed out)"
    serving = ring(phase="degraded", findings=[missing], waits=[silent, wait], summary=f"serves, but {silent}")
    lines = screen(serving)
    assert "Waits for" not in lines
    assert "\n".join(lines).count("no carrier on") == 1
    skew = "spark2: cluster.name: lab; expected test, as on spark1"
    lines = screen({**serving, "waits": [silent, wait, skew]})
    assert lines[lines.index("Not as it should be") + 1] == f"  - {skew}"
    assert lines[lines.index("Not as it should be") + 2] == ""
    # What holds back a start is listed whole.
    assert f"  - {silent}" in screen({**serving, "phase": "gated"})


def test_units_are_those_of_ranks_that_have_one() -> None:
    ranks = [{**row, "state": "down"} for row in STARTING["ranks"]]
    assert "Ranks" in screen(ring(ranks=ranks))
    ranks[1] |= {"state": "ended", "unit": "sparkd-rank@6.service"}
    assert "Ranks  sparkd-rank@6.service" in screen(ring(ranks=ranks))


def test_what_a_rank_prints_cannot_move_the_cursor() -> None:
    hostile = ring(summary="a\x1b[2Jb\nc\x07\u202e", waits=["\x9b2J"])
    hostile["ranks"][0]["text"] = "\x1b]0;title\x07"
    assert all(char.isprintable() or char == "\n" for char in status(hostile, Style(80), NOW))


@pytest.mark.parametrize("answer", [{}, {"ranks": None, "peers": 3, "fabric": [1], "waits": "x", "engine": []}])
def test_an_answer_with_little_in_it_is_still_shown(answer: dict[str, Any]) -> None:
    assert screen(answer)[0] == "UNKNOWN  no summary"
    assert sentence(answer) == "unknown: no summary"


def test_words_and_bars() -> None:
    assert [bar(done, 6, 6) for done in (0, 3, 6, 9)] == ["[------]", "[###---]", "[######]", "[######]"]
    assert bar(99, 100, 10) == "[#########-]"
    assert [duration(seconds) for seconds in (-1, 0.44, 12, 119, 300, 10_000, 200_000)] == [
        "0 s",
        "0.4 s",
        "12 s",
        "119 s",
        "5 min",
        "3 h",
        "2 days",
    ]
    assert clean(None) == ""
