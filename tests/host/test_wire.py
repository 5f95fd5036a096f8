from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkd.core.model import Attempt, Death, EndState, Finding, Intent, RankUnit, Report
from sparkd.wire import WireError, decode, encode

DEATH = Death(6, 1, "spark2", 1_700_000_000.25, True, False, "SIGKILL", "rank 1 was killed")
INTENT = Intent(7, "up", "operator", "asked", 1_700_000_001.0, deaths=(DEATH, replace(DEATH, epoch=5)))
REPORT = Report(
    node="spark1",
    instance="a",
    sequence=3,
    boot_id="b",
    version="0.1.0",
    wire=1,
    intent=INTENT,
    attempt=Attempt(7, "b", 1.5),
    units=(RankUnit(7, "active", text="ready canary 152"),),
    ends=(EndState("enp1s0f0np0", True, True),),
    findings=(Finding("cable-missing", "spark1", "refuse", "port 0", "no carrier", "a cable", "plug it in"),),
    digests={"engine": "abc"},
    unknown=("netlink did not answer within 2 s",),
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(encode(value)))


@pytest.mark.parametrize(
    "value", [Intent(), INTENT, REPORT, replace(REPORT, units=None, ends=None, attempt=None), DEATH]
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert decode(type(value), through_json(value)) == value


@given(st.from_type(Report))
def test_any_report_comes_back_as_it_was(report: Report) -> None:
    try:
        assert decode(Report, through_json(report)) == report
    except WireError as error:
        assert "finite" in str(error)  # JSON has no infinity; Python's writes one all the same


def test_what_a_newer_version_adds_is_ignored_and_what_has_a_default_may_be_missing() -> None:
    assert decode(Intent, {"epoch": 7, "mood": "good"}) == Intent(7)


def test_what_has_no_default_may_not_be_missing() -> None:
    with pytest.raises(WireError, match=r"^boot_id: missing$"):
        decode(Attempt, {"epoch": 7, "started_at": 1.0})


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("epoch", "7", "epoch: expected an integer, got '7'"),
        ("epoch", 7.0, "epoch: expected an integer, got 7.0"),
        ("epoch", True, "epoch: expected an integer, got True"),
        ("epoch", None, "epoch: expected an integer, got None"),
        ("want", "sideways", "want: expected one of up, down, got 'sideways'"),
        ("want", ["up"], "want: expected one of up, down, got ['up']"),
        ("by", 5, "by: expected a string, got 5"),
        ("held", 1, "held: expected true or false, got 1"),
        ("at", "now", "at: expected a number, got 'now'"),
        ("at", float("nan"), "at: expected a finite number, got nan"),
        ("at", True, "at: expected a number, got True"),
        ("deaths", {}, "deaths: expected a list, got {}"),
        ("deaths", "abc", "deaths: expected a list, got 'abc'"),
        ("deaths", [7], "deaths[0]: expected an object, got 7"),
        ("deaths", [encode(DEATH), encode(DEATH) | {"rank": "1"}], "deaths[1].rank: expected an integer, got '1'"),
    ],
)
def test_nothing_is_guessed_and_the_field_is_named(path: str, value: object, complaint: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(Intent, encode(INTENT) | {path: value})
    assert str(caught.value) == complaint


@pytest.mark.parametrize("data", [None, [], "intent", 7])
def test_what_is_no_object_at_all(data: object) -> None:
    with pytest.raises(WireError, match=r"^value: expected an object"):
        decode(Intent, data)


def test_nested_places_are_named_in_full() -> None:
    with pytest.raises(WireError, match=r"^intent\.deaths\[0\]\.at: "):
        decode(Report, encode(REPORT) | {"intent": encode(INTENT) | {"deaths": [encode(DEATH) | {"at": "x"}]}})
    with pytest.raises(WireError, match=r"^digests\.engine: expected a string"):
        decode(Report, encode(REPORT) | {"digests": {"engine": 5}})


def test_a_long_value_is_not_repeated_in_full() -> None:
    with pytest.raises(WireError) as caught:
        decode(Intent, {"epoch": "7" * 10_000})
    assert len(str(caught.value)) < 120


def test_a_whole_number_is_a_number() -> None:
    found = decode(Intent, {"at": 5})
    assert found.at == 5.0
    assert isinstance(found.at, float)


def test_literals_are_those_of_the_model() -> None:
    for want in get_args(Intent.__annotations__["want"]) or ("up", "down"):
        assert decode(Intent, {"want": want}).want == want
