"""Whole runs against a fake engine whose times per token are known."""

import re
import time
from collections.abc import Callable

import pytest

from runtime.bench.measure import Settings
from runtime.bench.report import Report
from runtime.bench.run import run
from runtime.bench.scrape import GENERATED, Scraper, difference
from runtime.bench.table import table
from runtime.openai.client import Client
from runtime.openai.exchange import Deadline, Server
from runtime.openai.words import words
from tests.runtime.fake_engine import FakeEngine
from tests.runtime.fake_model import Faults

DECODE, PREFILL = 0.01, 0.0004


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """How busy the machine is that runs the tests is not what they are about."""
    monkeypatch.setattr("runtime.bench.measure.waited", lambda: None)


QUICK = Settings(streams=(1,), prefill=(), tokens=12, rounds=2, timeout=20)


def measure(engine: FakeEngine, settings: Settings = QUICK) -> Report:
    return run(engine.url, "", settings, lambda _: None)


def test_known_times_are_found() -> None:
    settings = Settings(streams=(1, 4), prefill=(150, 300), tokens=16, rounds=2, timeout=20)
    with FakeEngine(prefill=PREFILL, decode=DECODE) as engine:
        report = measure(engine, settings)
        # A warm-up and two rounds of each case, and two prompts to learn how long words are.
        assert engine.seen["/v1/completions"] == 3 * (1 + 4) + 3 * 2 + 2
        assert engine.peak == 4
    assert (report.failed, report.notes) == ("", ())
    one, four = report.decode
    for case in (one, four):
        # Sleeps are never too short; how much too long depends on the machine.
        assert 0.5 * case.streams / DECODE < case.tokens_per_second.median <= 1.02 * case.streams / DECODE
        assert case.tokens_per_second.low <= case.tokens_per_second.median <= case.tokens_per_second.high
        assert case.client is not None
        assert case.engine is not None
        assert 0.9 * DECODE < case.client.p50 < 2 * DECODE
        # Within 10-15 ms, the bucket that holds it, unless the machine is slow.
        assert DECODE <= case.engine.p50 < 2 * DECODE
        assert case.engine.count == case.client.count == 2 * case.streams * 15
        assert (case.tokens_per_message, case.notes) == (1.0, ())
    assert four.tokens_per_second.median > 2 * one.tokens_per_second.median
    short, long = report.prefill
    assert (short.asked, long.asked) == (150, 300)
    assert (short.tokens, long.tokens) == (150, 300)
    for filled in report.prefill:
        assert 0.5 / PREFILL < filled.tokens_per_second.median <= 1 / PREFILL
        assert PREFILL * filled.tokens <= filled.ttft.low
        assert filled.engine_ttft is not None
        assert filled.engine_ttft.count == 2
        assert filled.notes == ()


def test_merged_tokens_are_tokens() -> None:
    with FakeEngine(decode=DECODE, merged=4) as engine:
        (case,) = measure(engine).decode
    assert case.tokens_per_message == 4.0
    assert 0.5 / DECODE < case.tokens_per_second.median <= 1.02 / DECODE
    assert case.client is not None
    assert case.client.p50 < 2 * DECODE
    assert case.client.count == 2 * 8


@pytest.mark.parametrize("report_cache", [False, True])
def test_prompts_hit_no_cache(report_cache: bool) -> None:
    settings = Settings(streams=(2,), prefill=(200,), tokens=4, rounds=3)
    with FakeEngine(cache_report=report_cache) as engine:
        report = measure(engine, settings)
        firsts = [prompt[0] for prompt in engine.prompts]
    assert report.decode[0].cached is not None
    assert report.prefill[0].cached is not None
    # A word or two may be the same by chance.
    assert report.decode[0].cached <= 6
    assert report.prefill[0].cached <= 6
    assert len(set(firsts)) > len(firsts) // 2


@pytest.mark.parametrize("report_cache", [False, True])
def test_a_cache_that_is_hit_is_told(report_cache: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a bench does that begins all its prompts with the same words.
    same: Callable[[int], str] = lambda count: words(count, seed=b"ring")  # noqa: E731
    monkeypatch.setattr("runtime.bench.prompts.words", same)
    settings = Settings(streams=(), prefill=(200,), rounds=2)
    with FakeEngine(prefill=0.001, cache_report=report_cache) as engine:
        report = measure(engine, settings)
    (case,) = report.prefill
    assert case.cached == 2 * 199
    assert case.tokens_per_second.median > 2000
    assert case.notes == ("398 of 400 tokens of prompts came from the prefix cache: prefill looks faster than it is",)
    assert "came from the prefix cache" in table(report)


def test_without_metrics_the_client_is_all_there_is() -> None:
    with FakeEngine(metrics=False, continuous=False, decode=0.002) as engine:
        report = measure(engine)
    (case,) = report.decode
    assert (case.engine, case.engine_ttft, case.cached) == (None, None, None)
    assert case.client is not None
    assert report.notes == (
        "GET /metrics was answered with 404 (the engine was started without --enable-metrics?); all times are by the "
        "client's clock alone",
    )
    assert case.notes == ("the engine does not count tokens as it streams: each message is taken for equally many",)


def test_usage_that_comes_twice_does_not_count_twice() -> None:
    with FakeEngine(Faults(usages=2), decode=DECODE) as engine:
        (case,) = measure(engine).decode
    assert case.tokens_per_second.high <= 1.02 / DECODE
    assert case.notes == ()


def test_tokens_that_are_held_back_are_told() -> None:
    fast = 0.004
    with FakeEngine(Faults(held=True), decode=fast) as engine:
        (case,) = measure(engine, Settings((1,), (), tokens=40, rounds=2)).decode
    assert case.tokens_per_second.high <= 1.1 / fast
    held, disagreement = case.notes
    assert held.startswith("in 2 of 2 rounds nearly all tokens came at once at the end")
    found = re.search(r"made a token every (\S+) ms .* by the engine's mean the rate is (\S+) tokens/s", disagreement)
    assert found is not None
    assert 1000 * fast <= float(found[1]) < 4000 * fast
    assert 0.25 / fast < float(found[2]) <= 1 / fast


def test_streams_that_end_early_are_named() -> None:
    with FakeEngine(Faults(stops_after=7), decode=0.002) as engine:
        (case,) = measure(engine).decode
    assert case.notes == ("2 of 2 streams ended after 7 tokens or more, not 12",)


def test_others_at_work_are_noticed() -> None:
    with FakeEngine(decode=0.002) as engine:
        engine.extra_tokens = 30
        (case,) = measure(engine).decode
    (note,) = case.notes
    # How many of the others' are counted by then is a matter of when the engine is asked.
    match = re.match(r"the engine generated (\d+) tokens meanwhile, 24 of them for this: others", note)
    assert match is not None and 24 < int(match[1]) <= 24 + 2 * 30, note


def test_counters_that_come_late_are_waited_for() -> None:
    with FakeEngine(decode=0.002, late=0.15) as engine:
        assert measure(engine).decode[0].notes == ()
        client = Client(Server.at(engine.url), "tiny")
        scraper = Scraper(client)
        before = scraper.read(Deadline(5))
        client.stream("a ring", Deadline(5), max_tokens=7, ignore_eos=True)
        after = scraper.settle(before, 7, Deadline(5))
    assert before is not None
    assert after is not None
    assert difference(before, after, GENERATED) == 7


def test_more_streams_than_the_engine_runs_are_no_batch() -> None:
    with FakeEngine(decode=DECODE, running=2) as engine:
        (case,) = measure(engine, Settings(streams=(4,), prefill=(), tokens=8, rounds=1)).decode
    assert case.notes == (
        "the engine runs 2 requests at once, so not all 4 streams decoded together",
        "at no time did all streams decode, so ramps are in the rate",
    )
    assert case.tokens_per_second.median < 2.6 / DECODE


def test_prompts_that_are_too_long_are_left_out() -> None:
    with FakeEngine(context=300) as engine:
        report = measure(engine, Settings(streams=(), prefill=(100, 2048), rounds=1))
    assert [case.asked for case in report.prefill] == [100]
    assert report.notes == ("prefill of 2048 tokens is left out: the engine takes 300 at most",)


def test_the_report_says_what_it_was_made_on() -> None:
    with FakeEngine() as engine:
        report = measure(engine)
    assert {key: report.engine[key] for key in ("model", "path", "version", "running requests")} == {
        "model": "tiny",
        "path": "/models/tiny",
        "version": "0.5.23",
        "running requests": "4",
    }
    assert report.engine["arguments"] == "launch_server --model-path /models/tiny --api-key ... --enable-metrics"
    assert re.fullmatch(r"\d+ x \w+", report.machine["processor"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+00:00", report.date)
    assert report.settings == {"streams": "1", "prefill": "", "tokens": "12", "rounds": "2", "timeout": "20"}


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (Faults(hang_after=3), r"POST /v1/completions \(decode, 2 streams, number 1\): no whole answer within 0.3 s"),
        (Faults(status=500), "was answered with 500 Internal Server Error: 'CUDA error"),
        (Faults(reset_after=2), r"the connection broke after|without \[DONE\]"),
        (Faults(usages=0), "decode, 2 streams: the stream ended without its usage"),
        (Faults(hang="/metrics"), "GET /metrics: no whole answer within 0.3 s"),
    ],
)
def test_a_failure_is_a_sentence_and_ends_the_run(faults: Faults, sentence: str) -> None:
    settings = Settings(streams=(2, 4), prefill=(100,), tokens=8, rounds=1, timeout=0.3)
    with FakeEngine(faults, continuous=False) as engine:
        began = time.monotonic()
        report = measure(engine, settings)
        assert time.monotonic() - began < 5
    assert re.search(sentence, report.failed), report.failed
    assert (report.decode, report.prefill) == ((), ())
    assert "FAILED, and ended there: " in table(report)


def test_what_was_measured_before_a_failure_is_kept() -> None:
    with FakeEngine(context=60) as engine:
        engine.faults.says_no.add("/v1/models")
        report = run(engine.url, "tiny", Settings((1,), (40, 400), tokens=8, rounds=1), lambda _: None)
    assert len(report.decode) == 1
    assert "Requested token count exceeds the model's maximum context length of 60 tokens" in report.failed
