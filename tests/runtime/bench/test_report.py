"""The report as JSON, as text, as a picture, and beside an older one."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from runtime.bench.__main__ import main
from runtime.bench.against import against
from runtime.bench.histograms import Percentiles
from runtime.bench.plot import plot, tick
from runtime.bench.report import Decode, Prefill, Report, Spread
from runtime.bench.table import table
from tests.runtime.fake_engine import FakeEngine
from tests.runtime.fake_model import Faults

ENGINE = Percentiles(0.019, 0.024, 8.0, 0.02, 768, 8.0)
CLIENT = Percentiles(0.0195, 0.025, 0.031, 0.02, 765)


def decode(streams: int, rate: float, engine: Percentiles | None = ENGINE, notes: tuple[str, ...] = ()) -> Decode:
    spread = Spread(rate, 0.98 * rate, 1.02 * rate)
    return Decode(streams, 256, spread, Spread(0.223, 0.2, 0.3), 2.5, engine, CLIENT, None, 0, notes)


def prefill(asked: int, tokens: int, rate: float, cached: int | None = 0) -> Prefill:
    return Prefill(asked, tokens, Spread(rate, rate, rate), Spread(tokens / rate, 0.1, 0.9), None, cached)


REPORT = Report(
    "2026-01-02T03:04:05+00:00",
    {"host": "spark1", "product": "DGX Spark"},
    {"model": "deepseek <v4.1>", "version": "0.5.23", "arguments": "--tp-size 3"},
    {"rounds": "3", "tokens": "256"},
    (decode(1, 51.0), decode(2, 75.1), decode(4, 85.4)),
    (prefill(512, 514, 2000.0), prefill(2048, 2047, 2223.0, None)),
    ("a note",),
)


def test_json_keeps_everything() -> None:
    assert Report.read(REPORT.to_json()) == REPORT
    failed = replace(REPORT, decode=(decode(1, 51.0, None, ("slow",)),), prefill=(), failed="why")
    assert Report.read(failed.to_json()) == failed
    assert json.loads(REPORT.to_json())["version"] == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "is no JSON"),
        ("[]", "has version None, expected 1"),
        ('{"version": 2}', "has version 2, expected 1"),
        ('{"version": 1, "decode": [{"streams": 1}]}', "has tokens = None, expected a count"),
        (
            '{"version": 1, "prefill": [{"asked": 1, "tokens": 1, "tokens_per_second": {"median": "x"}}]}',
            "expected a number",
        ),
        (REPORT.to_json().replace("75.1", "NaN"), "tokens_per_second.median = nan, expected a number"),
    ],
)
def test_what_is_no_report_is_said(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Report.read(text)


def test_the_table() -> None:
    report = replace(
        REPORT, decode=(*REPORT.decode, decode(8, 90.0, None, ("queued",)), decode(16, 91.0, None, ("queued",)))
    )
    lines = table(report).splitlines()
    assert max(map(len, lines)) <= 120
    rows = {line.split()[0]: line.split() for line in lines if line.strip()[:1].isdigit()}
    assert " ".join(rows["1"]) == "1 51.0 50.0-52.0 51.0 223 200-300 2.50 19.0 24.0 >8000 19.5 25.0 31.0"
    assert rows["4"][3] == "21.4"
    assert rows["8"][7:10] == ["-", "-", "-"]
    assert rows["514"][1:3] == ["2000.0", "2000.0-2000.0"]
    assert (rows["514"][-1], rows["2047"][-1]) == ("0", "?")
    assert "note: decode at 8, 16: queued" in lines
    assert "note: a note" in lines


def test_ratios_against_an_older_report() -> None:
    old = replace(
        REPORT,
        date="2025-12-31T00:00:00+00:00",
        engine={**REPORT.engine, "version": "0.5.22"},
        decode=(decode(1, 25.5), decode(2, 75.0, None), decode(16, 1.0)),
        prefill=(prefill(512, 509, 1000.0),),
    )
    lines = against(REPORT, old).splitlines()
    assert lines[0] == "against 2025-12-31T00:00:00+00:00: new, old, and new/old"
    assert "differs in engine: version: 0.5.23; it was 0.5.22" in lines
    assert [line.split()[:3] for line in lines[-3:]] == [
        ["decode", "at", "1"],
        ["decode", "at", "2"],
        ["prefill", "of", "512"],
    ]
    one, two, filled = (" ".join(line.split()[3:]) for line in lines[-3:])
    assert one == "51.0 25.5 2.000 223 223 1.000 19.0 19.0 1.000"
    # One of them has no times of the engine: both are by the client's clock then.
    assert two == "75.1 75.0 1.001 223 223 1.000 19.5 19.5 1.000 within the spread"
    assert filled == "2000.0 1000.0 2.000 257 509 0.505 - - -"


def test_nothing_in_common_is_said() -> None:
    assert against(REPORT, replace(REPORT, decode=(), prefill=())).endswith("no case is in both")


def numbers(points: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, point.split(","))) for point in points.split()]


def test_the_plot_is_a_picture_of_the_figures() -> None:
    old = replace(REPORT, decode=(decode(1, 25.0), decode(4, 40.0)))
    root = ElementTree.fromstring(plot(REPORT, old))
    space = {"s": "http://www.w3.org/2000/svg"}
    lines = [numbers(line.get("points", "")) for line in root.findall(".//s:polyline", space)]
    # Old behind new, in both panels.
    assert [len(line) for line in lines] == [2, 3, 2, 2]
    behind, before = lines[:2]
    assert [x for x, _ in before] == sorted(x for x, _ in before)
    # Both panels begin at 0, so heights are as the rates.
    base = 346.0
    assert (base - before[0][1]) / (base - before[2][1]) == pytest.approx(51.0 / 85.4, abs=0.01)
    assert (base - behind[0][1]) / (base - before[0][1]) == pytest.approx(25.0 / 51.0, abs=0.01)
    assert len(root.findall(".//s:circle", space)) == 9
    # The axis says what the heights mean.
    heights = {text.text: base - float(text.get("y", "0")) + 4 for text in root.findall(".//s:text", space)[4:10]}
    assert heights["60"] / (base - before[0][1]) == pytest.approx(60 / 51.0, abs=0.01)
    texts = [text.text for text in root.findall(".//s:text", space)]
    assert "deepseek <v4.1>, 0.5.23, on spark1" in texts
    assert {"51.0", "75.1", "85.4", "2000", "2223"} <= set(texts)
    for _, y in (point for line in lines for point in line):
        assert 76 <= y <= base


def test_a_plot_of_nothing_says_so() -> None:
    assert plot(replace(REPORT, decode=(), prefill=())).count("not measured") == 2
    assert plot(replace(REPORT, decode=REPORT.decode[:1])).count("<polyline") == 2


@pytest.mark.parametrize(("highest", "step"), [(85.4, 20), (2223, 500), (6, 1), (0.5, 0.1), (61, 20), (1, 0.2)])
def test_ticks_are_round(highest: float, step: float) -> None:
    assert tick(highest) == pytest.approx(step)


def test_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, picture = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "new.svg"
    small = ["--streams", "1,2", "--prefill", "64", "--tokens", "8", "--rounds", "1"]
    with FakeEngine(decode=0.002) as engine:
        assert main([engine.url, *small, "--json", str(old)]) == 0
        assert main([engine.url, *small, "--json", str(new), "--plot", str(picture), "--against", str(old)]) == 0
        shown = capsys.readouterr()
        assert main([engine.url, *small, "--json", "-"]) == 0
        piped = capsys.readouterr()
        engine.faults = Faults(status=500)
        assert main([engine.url, *small]) == 1
    assert "against 20" in shown.out
    assert "decode, 2 streams: round 1 of 1" in shown.err
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")
    assert [case.streams for case in Report.read(new.read_text()).decode] == [1, 2]
    assert Report.read(piped.out).failed == ""
    assert "FAILED, and ended there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--against", "/nowhere.json"], "cannot read /nowhere.json: No such file or directory"),
        (["--streams", "0"], "0 is not a number from 1 on"),
        (["--rounds", "many"], "invalid _count value: 'many'"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["http://127.0.0.1:1", *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
