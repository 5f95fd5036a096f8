"""smoke, as it is printed to people and to programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkd import wire
from tests.cli.conftest import Ctl
from tests.cli.fakes import FakeRing

CHECKS = [
    {"name": "arithmetic", "ok": True, "seconds": 0.42, "sentence": "17 * 3 is 51"},
    {"name": "batch", "ok": False, "seconds": 12.0, "sentence": "answer 7 of 8 is not readable: \x1b[31m%%%"},
]


def run(epoch: int, *, ok: bool) -> dict[str, Any]:
    sentence = "2 smoke tests passed" if ok else "batch: answer 7 of 8 is not readable"
    made = {"epoch": epoch, "at": 1_700_000_000.0, "profile": "flash-tp3", "model": "flash", "required": ok}
    return made | {"ok": ok, "sentence": sentence, "results": CHECKS}


@pytest.fixture
def kept(ring: FakeRing) -> FakeRing:
    ring.smoke = {"node": "spark1", "runs": [run(9, ok=False), run(8, ok=True)], "error": ""}
    assert wire.encode(wire.decode(wire.SmokeRuns, ring.smoke)) == ring.smoke
    return ring


def test_they_are_listed_by_epoch(kept: FakeRing, ctl: Ctl) -> None:
    lines = ctl("smoke").out.splitlines()
    assert lines[0].split() == ["EPOCH", "WHEN", "PROFILE", "RESULT"]
    assert [line.split()[0] for line in lines[1:]] == ["9", "8"]
    assert "flash-tp3  failed  batch: answer 7 of 8" in lines[1]
    assert lines[2].endswith("passed  2 smoke tests passed")


def test_one_is_shown_with_what_each_test_saw(kept: FakeRing, ctl: Ctl) -> None:
    out = ctl("smoke", "9").out
    assert out.startswith("epoch 9 failed: batch: answer 7 of 8 is not readable\n  flash with flash-tp3, 20")
    assert "the ring came up all the same: smoke_required is false in the profile" in out
    assert "  arithmetic  passed    0.4 s  17 * 3 is 51\n" in out
    assert "  batch       failed   12.0 s  answer 7 of 8 is not readable" in out
    assert "\x1b" not in out
    assert [each["epoch"] for each in json.loads(ctl("smoke", "8", "--json").out)["runs"]] == [8]
    assert len(json.loads(ctl("smoke", "--json").out)["runs"]) == 2


def test_what_is_not_there_is_said(kept: FakeRing, ctl: Ctl) -> None:
    ended = ctl("smoke", "7")
    assert (ended.code, "no smoke tests of epoch 7 are kept" in ended.err) == (1, True)
    kept.smoke = {"node": "spark1", "runs": [], "error": ""}
    assert ctl("smoke").out == "no smoke tests are on record\n"
    kept.smoke = {"node": "spark1", "runs": [], "error": "no answer in time"}
    ended = ctl("smoke")
    assert (ended.code, "spark1 keeps the results, and is silent: no answer in time" in ended.err) == (5, True)
