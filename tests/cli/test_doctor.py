"""doctor: what it tells, what it leaves out, and how it ends."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from sparkd.cli.doctor import sections, text, verdict
from sparkd.cli.failure import Exit
from sparkd.cli.text import Style
from tests.cli.conftest import Ctl
from tests.cli.fakes import FINDING, FakeRing


def check(id_: str, verdict: str, why: str = "seen") -> dict[str, str]:
    return {"id": id_, "about": f"what {id_} is about", "verdict": verdict, "why": why}


def finding(id_: str, node: str, severity: str = "refuse") -> dict[str, str]:
    words = {"subject": "here", "observed": "wrong", "expected": "right", "fix": "mend it"}
    return {"id": id_, "node": node, "severity": severity, **words}


def node(name: str, *checks: dict[str, str], findings: Any = (), **more: Any) -> dict[str, Any]:
    return {"node": name, "age": 0.4, "checks": list(checks), "findings": list(findings), "error": "", **more}


DOCTOR: dict[str, Any] = {
    "nodes": [
        node(
            "spark1",
            check("memlock-low", "pass"),
            check("swap-off", "fail"),
            check("pcie-narrow", "not-applicable"),
            check("gid-missing", "unknown", "no answer within 2 s"),
            check("kho-kernel", "fail"),
            findings=[
                finding("swap-off", "spark1", "warn"),
                finding("kho-kernel", "spark1"),
                finding("cable-unheard", "spark1", "repair"),
            ],
        ),
        node("spark2", check("memlock-low", "pass"), check("swap-off", "pass")),
        {"node": "spark3", "age": None, "checks": None, "findings": [], "error": "connection refused"},
    ],
    "compared": [check("driver-skew", "fail"), check("firmware-skew", "pass")],
    "findings": [finding("driver-skew", "spark2")],
}
GOOD: dict[str, Any] = {
    "nodes": [node("spark1", check("memlock-low", "pass"), check("pcie-narrow", "not-applicable"))],
    "compared": [check("driver-skew", "pass")],
    "findings": [],
}


def shown(answer: dict[str, Any], *, everything: bool = False) -> str:
    return text(sections(answer), Style(100), everything=everything)


def test_the_whole_of_it() -> None:
    assert (
        shown(DOCTOR)
        == """\
spark1: 1 refuse, 1 unknown, 1 wait, 1 warn, 1 pass, 1 n/a
  refuse   kho-kernel: here
           found     wrong
           expected  right
           fix       mend it
  unknown  gid-missing: what gid-missing is about
           no answer within 2 s
  wait     cable-unheard: here
           found     wrong
           expected  right
           fix       mend it
  warn     swap-off: here
           found     wrong
           expected  right
           fix       mend it

spark2: 2 pass

spark3: 1 unknown
  unknown  checks: what this node would say of itself
           connection refused

All nodes (compared): 1 refuse, 1 pass
  refuse   driver-skew: spark2, here
           found     wrong
           expected  right
           fix       mend it"""
    )


def test_all_shows_what_passes_and_what_does_not_apply() -> None:
    lines = shown(DOCTOR, everything=True).splitlines()
    start = lines.index("  pass     memlock-low: what memlock-low is about")
    assert lines[start + 1 : start + 4] == [
        "           seen",
        "  n/a      pcie-narrow: what pcie-narrow is about",
        "           seen",
    ]


def ended(**changes: Any) -> Exit:
    """How it ends when the one node of GOOD is otherwise."""
    answer = copy.deepcopy(GOOD)
    answer["nodes"][0] |= changes
    return verdict(sections(answer))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, Exit.OK),
        ({"checks": [check("kho-kernel", "fail")], "findings": [finding("kho-kernel", "spark1")]}, Exit.ERROR),
        ({"checks": [check("kho-kernel", "fail")]}, Exit.ERROR),
        ({"findings": [finding("cable-missing", "spark1")]}, Exit.ERROR),
        ({"checks": [check("swap-off", "fail")], "findings": [finding("swap-off", "spark1", "warn")]}, Exit.DOUBT),
        ({"findings": [finding("cable-unheard", "spark1", "repair")]}, Exit.DOUBT),
        ({"findings": [finding("unknown-is-a-state", "spark1")]}, Exit.DOUBT),
        ({"checks": [check("kho-kernel", "unknown")]}, Exit.DOUBT),
        ({"checks": [check("kho-kernel", "a verdict of a later version")]}, Exit.DOUBT),
        ({"checks": None}, Exit.DOUBT),
        ({"age": 75.0, "error": "timed out"}, Exit.DOUBT),
        (
            {"checks": [check("a", "unknown")], "findings": [finding("cable-missing", "spark1")]},
            Exit.ERROR,
        ),
    ],
)
def test_how_it_ends(changes: dict[str, Any], code: Exit) -> None:
    assert ended(**changes) == code


@pytest.mark.parametrize("answer", [{}, {"nodes": [], "compared": None}, {"nodes": [{}]}, {"nodes": 3}])
def test_nothing_is_no_pass(answer: dict[str, Any]) -> None:
    assert verdict(sections(answer)) == Exit.DOUBT
    assert "pass" not in shown(answer)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {"age": 75.0, "error": "timed out"},
            [
                "spark1 (75 s ago): 1 unknown, 1 pass, 1 n/a",
                "  unknown  checks: whether this still holds",
                "           it answered last 75 s ago: timed out; what follows is of then",
            ],
        ),
        (
            {"checks": None},
            [
                "spark1: 1 unknown",
                "  unknown  checks: what this node would say of itself",
                "           it has not looked at itself yet",
            ],
        ),
        (
            {"checks": None, "age": None},
            [
                "spark1: 1 unknown",
                "  unknown  checks: what this node would say of itself",
                "           it has not answered yet",
            ],
        ),
    ],
)
def test_silence_is_unknown(changes: dict[str, Any], lines: list[str]) -> None:
    answer = copy.deepcopy(GOOD)
    answer["nodes"][0] |= changes
    assert shown(answer).splitlines()[:3] == lines


def test_a_finding_that_two_checks_tell_is_told_once() -> None:
    twice = [finding("cable-missing", "spark1")] * 2
    answer = {"nodes": [node("spark1", findings=twice)]}
    assert shown(answer).splitlines()[0] == "spark1: 1 refuse"


def test_colour_is_around_words_and_takes_no_columns() -> None:
    plain = shown(DOCTOR, everything=True)
    colourful = text(sections(DOCTOR), Style(100, True), everything=True)
    assert "  \x1b[31mrefuse \x1b[0m  kho-kernel" in colourful
    for code in (0, 1, 2, 31, 32, 33):
        colourful = colourful.replace(f"\x1b[{code}m", "")
    assert colourful == plain


def test_what_a_node_says_cannot_move_the_cursor() -> None:
    hostile = {"nodes": [node("a\x1b[2J", check("x\x07", "unknown", "\x9b2J"), findings=[FINDING | {"fix": "\x1bc"}])]}
    assert all(char.isprintable() or char == "\n" for char in shown(hostile, everything=True))


def test_the_command(ring: FakeRing, ctl: Ctl) -> None:
    ring.doctor = DOCTOR
    assert ctl("doctor") == (1, shown(DOCTOR) + "\n", "")
    assert ctl("doctor", "--all") == (1, shown(DOCTOR, everything=True) + "\n", "")
    code, out, _ = ctl("doctor", "--json")
    assert (code, json.loads(out)) == (1, DOCTOR)
    ring.doctor = GOOD
    assert ctl("doctor") == (0, "spark1: 1 pass, 1 n/a\n\nAll nodes (compared): 1 pass\n", "")
    ring.doctor = GOOD | {"compared": [check("driver-skew", "unknown", "spark2 has not told")]}
    assert ctl("doctor").code == 8
