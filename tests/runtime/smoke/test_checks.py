"""Each check passes with an engine that is well, and fails with one that has the fault it is for."""

import json
import re

import pytest

from runtime.smoke import CHECKS, Limits, SmokeResult, run
from tests.runtime.fake_engine import FakeEngine
from tests.runtime.fake_model import PROSE, Faults

LINES: list[str] = []


def smoke(engine: FakeEngine, *names: str, limits: Limits | None = None, timeout: float = 10.0) -> SmokeResult:
    return run(engine.url, names, model="", timeout=timeout, report=LINES.append, limits=limits)


def test_an_engine_that_is_well_passes_every_check() -> None:
    with FakeEngine() as engine:
        result = smoke(engine, *CHECKS)
    assert {check.name: check.sentence for check in result.results if not check.ok} == {}
    assert result.ok
    assert [check.name for check in result.results] == list(CHECKS)
    told = {check.name: check.sentence for check in result.results}
    assert told["prompts"] == "prompts of 1, 64 and 65 (page of 64), 256 and 257 (chunk of 256), 3584 (long) tokens"
    assert told["batch"].startswith("4 readable answers at once (as many as the engine runs)")
    assert told["completion"] == "32 tokens for a prompt of 8"
    assert result.sentence.startswith("9 of 9 checks passed in ")


# Name of the check, what is wrong, and what its sentence says of it.
CAUGHT = [
    ("arithmetic", Faults(wrong_sums=True), r"4 of 4 sums are wrong: 17 \+ 25 = '43', expected 42"),
    ("arithmetic", Faults(answer="142 or 4200"), r"17 \+ 25 = '142 or 4200', expected 42"),
    ("arithmetic", Faults(thinking=True), "nothing but thoughts"),
    ("structured", Faults(json_text='{"name": '), "the answer is no JSON"),
    ("structured", Faults(json_text='{"name": "Paris"}'), "does not conform to its schema: the value has no 'kind'"),
    ("structured", Faults(json_text="[" * 9000), "the JSON did not end within 512 tokens|nested too deeply"),
    ("structured", Faults(json_text="word " * 600), "the JSON did not end within 512 tokens"),
    ("tools", Faults(markup=True), "0 tool calls, expected one: .*--tool-call-parser"),
    ("tools", Faults(call={"name": "reed", "arguments": "{}"}), "the model called 'reed'"),
    ("tools", Faults(call={"name": "read_sensor", "arguments": "{room"}), "as arguments is no JSON: '{room'"),
    (
        "tools",
        Faults(call={"name": "read_sensor", "arguments": '{"room": "x", "quantity": "noise"}'}),
        "'quantity' is 'noise', expected one of",
    ),
    ("tools", Faults(deaf=True), "after the tool returned 31.7 the model did not say so: 'I cannot know that.'"),
    ("batch", Faults(garbage_from=4), "4 of 4 answers at once are not readable .*replacement characters"),
    ("batch", Faults(garbage_from=4, garbage="!" * 96), "repeats '!' 96 times"),
    ("batch", Faults(garbage_from=4, garbage="Это написано на другом языке и не годится."), "of another script"),
    (
        "batch",
        Faults(garbage_from=4, garbage="the ring of nodes and " * 12),
        "repeats '.*' 11 times",
    ),
    ("batch", Faults(garbage_from=1), "to a request that ran alone"),
    ("batch", Faults(swapped=True), "the answer on how a bicycle stays upright does not mention bicycle"),
    ("batch", Faults(changed_from=4), "reads differently alone and among 4 .* from character 0 of 110 on"),
    ("prompts", Faults(blind_from=65), "in a prompt of .* tokens the number .* was not found: 'I see no number.'"),
    ("prompts", Faults(blind_from=257), "in a prompt of 257 tokens"),
    ("prompts", Faults(blind_from=3000), "in a prompt of 3584 tokens"),
    ("repeat", Faults(chance=True), "answer 2 of 3 differs from the first at character"),
    ("stream", Faults(stream_text=PROSE), "the stream differs from the unstreamed answer at character"),
    ("stream", Faults(usages=2), "told its usage 2 times at its end, expected once"),
    ("stream", Faults(usages=0), "told its usage 0 times"),
    ("stream", Faults(wrong_usage=1), "the stream's usage is"),
    ("stream", Faults(unfinished=True), r"ended after 20 chunks without \[DONE\]|ended after 32 chunks without"),
    ("stream", Faults(error_after=3), "failed in the engine: CUDA out of memory"),
    ("stream", Faults(reset_after=3), "the connection broke after|ended after 3 chunks"),
    ("completion", Faults(stops_after=7), r"7 tokens came back \(finish_reason stop\), expected 32"),
    ("completion", Faults(nan=True), "the logits are no numbers"),
    (
        "completion",
        Faults(status=500),
        "answered with 500 Internal Server Error: 'CUDA error: an illegal memory access'",
    ),
    ("completion", Faults(body=b"<html>"), "the answer is no JSON: '<html>'"),
    ("completion", Faults(body=b"[" * 100000), "the answer is nested too deeply|the answer is no JSON"),
    ("completion", Faults(body=b"{}"), "the answer has 0 choices, expected one"),
    ("completion", Faults(body=b'{"choices": [{"text": 7, "finish_reason": "stop"}]}'), "expected a count|a string"),
    ("completion", Faults(reset=True), "the connection broke after 0 bytes of the answer: Connection reset by peer"),
    ("health", Faults(says_no={"/health", "/health_generate"}), "GET /health was answered with 404, expected 200"),
]


@pytest.mark.parametrize(("name", "faults", "sentence"), CAUGHT)
def test_a_fault_is_caught(name: str, faults: Faults, sentence: str) -> None:
    with FakeEngine(faults) as engine:
        result = smoke(engine, name)
    (check,) = result.results
    assert not check.ok
    assert not result.ok
    assert re.search(sentence, check.sentence), check.sentence
    assert result.sentence == f"{name} failed: {check.sentence}"


def test_every_check_is_seen_failing() -> None:
    assert {name for name, _, _ in CAUGHT} == set(CHECKS)


def test_garbage_at_a_batch_size_is_none_below_it() -> None:
    with FakeEngine(Faults(garbage_from=4)) as engine:
        assert smoke(engine, "batch", limits=Limits(batch=3)).ok
        assert engine.peak == 3
        assert not smoke(engine, "batch", limits=Limits(batch=4)).ok


def test_a_model_that_is_not_served_is_no_health() -> None:
    with FakeEngine() as engine:
        result = run(engine.url, ["health"], model="large", timeout=5, report=LINES.append)
    assert result.sentence == "health failed: GET /v1/models (200) lists tiny, not large"


def test_an_engine_that_does_not_tell_its_sizes_is_tried_at_guesses() -> None:
    with FakeEngine(Faults(says_no={"/server_info"})) as engine:
        result = smoke(engine, "batch", "prompts", limits=Limits(long_prompt=2000))
    assert result.ok, result.sentence
    batch, prompts = (check.sentence for check in result.results)
    assert (
        "4 readable answers at once (the engine does not say how many it runs (GET /server_info was answered" in batch
    )
    guessed = "256 and 257 (page of 256, a guess), 1024 and 1025 (chunk of 1024, a guess)"
    assert prompts == f"prompts of 1, {guessed}, 2000 (long) tokens"


def test_sizes_that_cannot_be_tried_are_named() -> None:
    with FakeEngine(page=1, chunk=8192) as engine:
        sentence = smoke(engine, "prompts").results[0].sentence
    assert "none around a page of 1, which is not between the shortest and longest prompt" in sentence
    assert "none around a chunk of 8192" in sentence


def test_no_prompt_is_asked_twice() -> None:
    with FakeEngine() as engine:
        assert smoke(engine, "prompts").ok
    # Two to learn how long a word is, two around each size, and a long one.
    assert engine.seen["/v1/chat/completions"] == 2 + 2 + 2 + 1


def test_no_name_is_guessed() -> None:
    with pytest.raises(ValueError, match="no smoke check is called arithmetics; there are health, completion"):
        run("http://127.0.0.1:1", ["health", "arithmetics"], model="", timeout=1, report=LINES.append)


def test_the_result_goes_into_a_file() -> None:
    with FakeEngine(Faults(wrong_sums=True)) as engine:
        result = smoke(engine, "health", "arithmetic")
    document = json.loads(result.to_json())
    assert "\n" not in result.to_json()
    assert (document["ok"], document["sentence"]) == (False, result.sentence)
    assert [(check["name"], check["ok"]) for check in document["results"]] == [("health", True), ("arithmetic", False)]
    assert all(check["seconds"] >= 0 for check in document["results"])


def test_progress_is_told_as_it_is_made() -> None:
    told: list[str] = []
    with FakeEngine() as engine:
        run(engine.url, ["health", "repeat"], model="tiny", timeout=5, report=told.append)
    assert told[0] == "smoke 1/2 health"
    assert told[1] == "smoke 1/2 health passed: /health_generate says 200, and tiny is served"
    assert told[2] == "smoke 2/2 repeat"
    assert len(told) == 4


def test_no_check_at_all_is_said() -> None:
    result = run("http://127.0.0.1:1", [], model="", timeout=1, report=LINES.append)
    assert (result.ok, result.sentence) == (True, "no check was asked for")
