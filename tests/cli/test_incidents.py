"""incidents, as it is printed to people and to programs."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing


def kept(node: str, **changed: Any) -> dict[str, Any]:
    return {
        "epoch": 7,
        "at": 1_700_000_000.0,
        "root": "spark2",
        "rank": 1,
        "signature": "1:exit:1:no such checkpoint",
        "sentence": "no such checkpoint",
        "node": node,
        "outcome": f"outcome on {node}",
        "first": "FileNotFoundError: \x1b[31m/models/x",
        "missing": ["kernel.txt cannot be had: refused"],
        "complete": True,
        **changed,
    }


def test_without_a_failure_there_is_nothing_to_list(ring: FakeRing, ctl: Ctl) -> None:
    ring.incidents = {"nodes": [{"node": "spark1", "incidents": [], "error": ""}]}
    assert ctl("incidents").out == "no failure is on record\n"


def test_a_failure_is_listed_once_and_silence_is_told(ring: FakeRing, ctl: Ctl) -> None:
    ring.incidents = {
        "nodes": [
            {"node": "spark1", "incidents": [kept("spark1", epoch=9, sentence="another"), kept("spark1")], "error": ""},
            {"node": "spark2", "incidents": [kept("spark2")], "error": ""},
            {"node": "spark3", "incidents": [], "error": "no answer in time"},
        ]
    }
    head, *lines = ctl("incidents").out.splitlines()
    assert head.split() == ["EPOCH", "WHEN", "WHERE", "WHAT"]
    assert [line.split()[0] for line in lines[:2]] == ["9", "7"]
    assert lines[1].endswith("spark2  no such checkpoint")
    assert lines[2:] == ["spark3: not known: no answer in time"]
    assert json.loads(ctl("incidents", "--json").out) == ring.incidents


def test_one_is_shown_with_cause_and_first_error_of_each_node(ring: FakeRing, ctl: Ctl) -> None:
    ring.details[7] = {
        "epoch": 7,
        "nodes": [
            {"node": "spark1", "incident": kept("spark1", first="", complete=False), "files": {}, "error": ""},
            {
                "node": "spark2",
                "incident": kept("spark2"),
                "files": {"journal.txt": "a", "kernel.txt": ""},
                "error": "",
            },
            {"node": "spark3", "incident": None, "files": {}, "error": "it is off"},
        ],
    }
    text = ctl("incidents", "show", "7").out
    assert text.startswith("epoch 7 ended: no such checkpoint\n  on spark2, rank 1, ")
    assert "  signature 1:exit:1:no such checkpoint\n" in text
    assert "spark1: outcome on spark1\n  first error: it printed none\n" in text
    assert "  not complete: " in text
    assert "spark2: outcome on spark2\n  first error: FileNotFoundError: [31m/models/x\n" in text
    assert "  kernel.txt cannot be had: refused\n" in text
    assert "  in /var/lib/sparkd/incidents/7: journal.txt, kernel.txt\n" in text
    assert text.endswith("spark3: not known: it is off\n")
    assert json.loads(ctl("incidents", "show", "7", "--json").out) == ring.details[7]


def test_one_that_there_is_not_is_an_error(ring: FakeRing, ctl: Ctl) -> None:
    result = ctl("incidents", "show", "8")
    assert result.code == 1
    assert "no node has kept anything of epoch 8" in result.err
    assert ctl("incidents", "show").code == 2


def test_into_a_pipe_each_failure_is_a_whole_line(ring: FakeRing, ctl: Ctl) -> None:
    sentence = "no such checkpoint " * 20 + "at all"
    ring.incidents = {"nodes": [{"node": "spark1", "incidents": [kept("spark1", sentence=sentence)], "error": ""}]}
    lines = ctl("incidents").out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(sentence)
