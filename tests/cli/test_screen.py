"""The one screen of `sparkctl status`: a picture of the cables, the ranks, what is wrong, the last incident."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from ring_mesh import by_order
from sparkd.cli import cables, wires
from sparkd.cli.screen import Beside, screen
from sparkd.cli.text import Style
from tests.cli.fakes import NODES, FakeRing, plan, rail, wired
from tests.cli.test_render import NOW, STARTING, dark

FOUR = tuple(f"spark{rank}" for rank in (1, 2, 3, 4))
RAILS = [
    rail("spark1.enp1s0f0np0", "spark2.enp1s0f1np1", 98.14),
    rail("spark1.enP2p1s0f0np0", "spark2.enP2p1s0f1np1", 97.9),
]
MEMORY = [
    {"node": node, "total_kib": 127_000_000, "available_kib": kib, "floor_kib": 4_194_304}
    for node, kib in zip(NODES, (6_291_456, 9_000_000, None), strict=True)
]
INCIDENT = {"epoch": 6, "at": NOW - 7200, "sentence": "rank 2 (spark3) ended: it was killed by SIGKILL"}


def ready(**changes: Any) -> dict[str, Any]:
    ring = FakeRing(phase="ready", want="up", summary="epoch 7 is ready: all 3 ranks serve", rails=RAILS, by="operator")
    return {**ring.look(), **changes}


def shown(ring: dict[str, Any], beside: Beside = Beside(), width: int = 80, **more: Any) -> list[str]:  # noqa: B008
    return screen(ring, Style(width), NOW, beside, **{"fancy": True, **more})


def test_a_ring_that_serves() -> None:
    ring = ready(
        engine={"name": "sglang", "api": "127.0.0.1:8888", "profile": "tiny", "openai": "http://192.168.77.1:8888/v1"},
        work={"tokens_per_second": 41.24, "running": 2, "queued": 0},
        memory=MEMORY,
    )
    ring["ranks"] = [{**row, "stage": "ready", "text": "canary 152"} for row in ring["ranks"]]
    assert "\n".join(shown(ring, Beside(incident=INCIDENT), height=23)) == (
        """\
READY  epoch 7 is ready: all 3 ranks serve
  ring lab, epoch 7, wanted up by operator: never started, 0 of 3 restarts used
  sglang with tiny, OpenAI API http://192.168.77.1:8888/v1 on spark1, 41.2 to...

                               ┌───────────────┐
        ╔═════════════════════1│ spark1 rank 0 │0══════════════════════╗
        ║                      └───────────────┘                       ║
        ║ ok                                          98.1 + 97.9 Gb/s ║
        0                                                              1
  ┌───────────────┐                                          ┌───────────────┐
  │ spark3 rank 2 │1════════════════════════════════════════0│ spark2 rank 1 │
  └───────────────┘                    ok                    └───────────────┘

Rank  node    state  stage  memory left
  0   spark1  ready  ready  6.0 GiB      canary 152
  1   spark2  ready  ready  8.6 GiB      canary 152
  2   spark3  ready  ready  ?            canary 152

Last incident  epoch 6, 2 h ago: rank 2 (spark3) ended: it was killed by SIGKILL
  sparkctl incidents show 6"""
    )


def test_without_box_drawing_characters_it_is_ascii() -> None:
    lines = shown({**ready(), "memory": MEMORY}, fancy=False)
    assert all(line.isascii() for line in lines)
    assert lines[5] == "        +=====================1| spark1 rank 0 |0======================+"


@pytest.mark.parametrize("height", [12, 23, 40])
@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("nodes", [FOUR[:2], NODES, FOUR])
def test_every_line_fits_and_the_screen_does(nodes: Sequence[str], width: int, height: int) -> None:
    ring = FakeRing(nodes=tuple(nodes), wires=by_order(nodes), phase="ready", want="up").look()
    ring["findings"] = [dark("spark1", 0, "spark2")] * 9
    lines = shown(ring, Beside(incident=INCIDENT), width, height=height)
    assert max(map(len, lines)) <= width
    if height >= 23 and width >= 80:
        assert len(lines) <= height


def test_three_nodes_with_all_that_can_be_wrong_fit_80_by_24() -> None:
    found = [dark("spark1", 0, "spark2"), dark("spark2", 1, "spark1"), dark("spark3", 0, "spark1")]
    waits = [f"{node} has not answered for 21 s (no answer in time)" for node in NODES]
    peers = [{"node": node, "age": 75.0, "error": "timed out", "epoch": 6, "version": "0.2.0"} for node in NODES[1:]]
    ring = ready(phase="gated", findings=found, waits=waits, peers=peers, summary="waits " * 40)
    lines = shown(ring, Beside(incident=INCIDENT), height=23)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 23
    more = next(line for line in lines if "lines more" in line)
    assert re.fullmatch(r"  and \d+ lines more: sparkctl status --full", more)
    assert "spark2: heard 75 s ago, last error: timed out; runs sparkd 0.2.0 (here 0.1.0)" in "\n".join(lines)


def test_what_is_wrong_comes_with_what_to_do_and_once() -> None:
    missing = dark("spark1", 0, "spark2")
    wait = f"spark1: port 0: {missing['observed']}; expected {missing['expected']}"
    rank = "rank 1 (spark2): warmup 3/6"
    lines = shown(
        ready(phase="gated", findings=[missing, dark("spark2", 1, "spark1")], waits=[wait, rank, "something"])
    )
    assert lines[4:9] == [
        "  waits   something",
        "  refuse  spark1 port 0 and spark2 port 1: no carrier on enp1s0f0np0",
        "          -> seat the cable between spark1 port 0 and spark2 port 1",
        "",
        "                               ┌───────────────┐",
    ]


def test_a_wait_that_the_sentence_tells_is_not_told_again() -> None:
    ring = ready(phase="gated", waits=["spark3 sleeps"], summary="epoch 8 waits: spark3 sleeps")
    assert "\n".join(shown(ring)).count("spark3 sleeps") == 1


def told(ring: dict[str, Any], planned: Sequence[str] = ()) -> list[tuple[str, str, str, str | None]]:
    return [
        (f"{w.a.node}.{w.a.cage}-{w.b.node}.{w.b.cage}", w.kind, w.told, w.colour) for w in wires.wires(ring, planned)
    ]


def test_cables_with_both_rails_and_their_rates() -> None:
    assert told(ready()) == [
        ("spark1.0-spark2.1", "both", "98.1 + 97.9 Gb/s", "green"),
        ("spark2.0-spark3.1", "both", "ok", "green"),
        ("spark3.0-spark1.1", "both", "ok", "green"),
    ]


def test_a_slow_rail_is_named() -> None:
    finding = {"id": "rail-degraded-13g", "node": "spark2", "severity": "refuse", "subject": "enP2p1s0f1np1"}
    assert told(ready(findings=[finding]))[0] == ("spark1.0-spark2.1", "both", "slow: 98.1 + 97.9 Gb/s", "red")


@pytest.mark.parametrize(
    ("change", "kind", "words", "colour"),
    [
        ([{"carrier": False}, {"carrier": False}], "broken", "spark1 port 0: no carrier", "red"),
        ([{"carrier": False}, {}], "one", "spark1 port 0: carrier 1 of 2", "red"),
        ([{"verified": False}, {}], "one", "not set up at spark1.0", "yellow"),
    ],
)
def test_faults_are_named(change: list[dict[str, bool]], kind: str, words: str, colour: str) -> None:
    ring = ready()
    ends = ring["fabric"][0]["ends"]
    ring["fabric"][0]["ends"] = [{**ends[0], **change[0]}, {**ends[1], **change[1]}, *ends[2:]]
    assert told(ring)[0][1:] == (kind, words, colour)


def test_both_ends_without_carrier_are_one_fault_and_a_silent_node_is_unknown() -> None:
    ring = FakeRing(wires=wired("10-31", "30-21"), ring_heard=False, phase="degraded", want="up").look()
    planned = ("spark1.0~spark3.1", "spark3.0~spark2.1", "spark2.0~spark1.1")
    assert [wire[1:] for wire in told(ring, planned)] == [
        ("one", "not set up at spark1.0 and spark3.1", "yellow"),
        ("one", "not set up at spark3.0 and spark2.1", "yellow"),
        ("broken", "no carrier", "red"),
    ]
    ring = ready()
    ring["fabric"][1] |= {"ends": None, "neighbours": None}
    assert told(ring)[0][1:] == ("broken", "unknown: spark2 is silent", "yellow")


def test_a_ring_that_is_down_has_its_cables_and_no_fault() -> None:
    assert {wire[1:] for wire in told(FakeRing().look())} == {("one", "cabled", None)}


def test_a_cable_that_goes_elsewhere_says_what_is_heard() -> None:
    ring = FakeRing(wires=wired("10-20", "21-31", "30-11"), ring_heard=False).look()
    assert told(ring)[0][1:3] == ("broken", "spark1 port 0: hears spark2 port 0")


def test_four_are_a_square_and_two_a_line() -> None:
    ring = FakeRing(nodes=FOUR, wires=by_order(FOUR), phase="ready", want="up").look()
    drawn = wires.picture(ring, Style(80), fancy=True)
    assert drawn[1].startswith("  │ spark1 rank 0 │0═")
    assert drawn[1].endswith("═1│ spark2 rank 1 │")
    assert drawn[7].startswith("  │ spark4 rank 3 │1═")
    assert (drawn[3][8], drawn[5][8]) == ("1", "0")
    pair = FakeRing(nodes=FOUR[:2], wires=wired("10-20", "11-21"), phase="ready", want="up").look()
    assert [line.count("═") > 10 for line in wires.picture(pair, Style(80), fancy=True)].count(True) == 2


def test_names_too_long_for_a_picture_are_a_list() -> None:
    names = tuple(f"{'x' * 40}{rank}" for rank in range(3))
    ring = FakeRing(nodes=names, phase="ready", want="up").look()
    ring["cables"] = []
    ring["fabric"] = [{**part, "node": name} for part, name in zip(ring["fabric"], names, strict=True)]
    lines = wires.picture(ring, Style(100), fancy=True)
    assert len(lines) == 3
    assert all(" -X-  " in line or "====" in line for line in lines)


def test_progress_and_memory_of_an_older_daemon() -> None:
    lines = shown(STARTING, Beside(memory={"spark1": 3 * 1024 * 1024}))
    table = lines[next(index for index, line in enumerate(lines) if line.startswith("Rank")) :][:4]
    assert table == [
        "Rank  node    state     stage                   memory left",
        "  0   spark1  ready     ready                   3.0 GiB      canary 152, slow...",
        "  1   spark2  starting  warmup  █████░░░░░ 3/6  ?            measuring enp1s0...",
        "  2   spark3  starting  formed                  ?",
    ]
    assert "memory left" not in "\n".join(shown(STARTING))


def test_tokens_per_second_of_an_older_daemon() -> None:
    ring = ready(engine={"name": "sglang", "api": "127.0.0.1:8888", "profile": ""})
    ring["ranks"][0]["text"] = "12.5 tokens/s, 1 running, 0 queued"
    line = "  sglang, OpenAI API http://127.0.0.1:8888/v1 on spark1, 12.5 tokens/s, 1 run..."
    assert shown(ring)[2] == line
    assert "tokens/s" not in shown({**ring, "phase": "starting"})[2]


def test_the_newest_incident_counts_wherever_it_is_from() -> None:
    death = {"epoch": 9, "at": NOW - 60, "sentence": "later"}
    assert "epoch 9, 60 s ago: later" in "\n".join(shown(ready(deaths=[death]), Beside(incident=INCIDENT)))
    assert "Last incident" not in "\n".join(shown(ready()))


def test_the_plan_is_shown_while_no_ring_is_heard() -> None:
    ring = FakeRing(ring_heard=False).look()
    planned = cables.planned(plan(by_order(("spark1", "spark3", "spark2"))))
    assert told(ring, planned)[0][0] == "spark1.0-spark3.1"


def test_colour_takes_no_columns() -> None:
    ring = ready(findings=[dark("spark1", 0, "spark2")], memory=MEMORY)
    plain = screen(ring, Style(80), NOW, Beside(incident=INCIDENT), fancy=True)
    colourful = screen(ring, Style(80, True), NOW, Beside(incident=INCIDENT), fancy=True)
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in colourful] == plain
    assert any("\x1b[32m" in line for line in colourful)


@pytest.mark.parametrize(
    "answer", [{}, {"ranks": None, "peers": 3, "fabric": [1], "waits": "x", "engine": [], "memory": 3}]
)
def test_an_answer_with_little_in_it_is_still_shown(answer: dict[str, Any]) -> None:
    assert shown(answer)[0] == "UNKNOWN  no summary"


def test_what_a_rank_prints_cannot_move_the_cursor() -> None:
    hostile = ready(summary="a\x1b[2Jb", waits=["\x9b2J"])
    hostile["ranks"][0] |= {"text": "\x1b]0;title\x07", "stage": "\x1b[A", "node": "spark1"}
    assert all(
        char.isprintable()
        for line in shown(hostile, Beside(incident={**INCIDENT, "sentence": "\x1b[H"}))
        for char in line
    )
