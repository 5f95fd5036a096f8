"""When rank 0's engine is alive, with a clock that the tests turn."""

import json
from pathlib import Path

import pytest

from runtime.sglang.client import Answer
from runtime.sglang.config import EngineConfig, read_engine_config
from runtime.sglang.health import Ask, Opening, Vitals, gave_a_token, question
from tests.runtime.sglang.bench import config

TOKEN = Answer(200, json.dumps({"meta_info": {"completion_tokens": 1}, "usage": {"completion_tokens": 1}}).encode())
NONE = Answer(0, error="no answer in time")


def engine(tmp_path: Path, extra: tuple[str, ...] = ()) -> EngineConfig:
    launch: dict[str, object] = {"canary_idle_seconds": 10, "canary_timeout_seconds": 20, "hung_seconds": 60}
    return read_engine_config({"SPARKD_ENGINE_CONFIG": config(tmp_path, launch, {}, extra)})


def metrics(total: int, running: int = 0) -> Answer:
    body = f'sglang:realtime_tokens_total{{mode="decode"}} {total}.0\nsglang:num_running_reqs{{}} {running}.0\n'
    return Answer(200, body.encode())


class Engine:
    """An engine that answers as told, second by second."""

    def __init__(self, tmp_path: Path, with_metrics: bool = True) -> None:
        self.vitals = Vitals(engine(tmp_path).launch, with_metrics, 0)
        self.asked: list[tuple[Ask, float]] = []
        self.tokens = 0
        self.running = 0
        self.answers = True
        self._under_way: dict[Ask, float] = {}

    def second(self, now: int) -> None:
        while (ask := self.vitals.due(now)) is not None:
            self.asked.append((ask, now))
            if ask is Ask.METRICS:
                self.vitals.answered(ask, metrics(self.tokens, self.running), now)
            elif self.answers:
                self.vitals.answered(ask, TOKEN, now)
            else:
                self._under_way[ask] = now
        for ask, since in list(self._under_way.items()):
            if now - since >= 20:
                del self._under_way[ask]
                self.vitals.answered(ask, NONE, now)

    def canaries(self) -> list[float]:
        return [at for ask, at in self.asked if ask is not Ask.METRICS]


def test_no_canary_while_tokens_flow(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    for now in range(3600):
        engine.tokens += 50
        engine.running = 2
        engine.second(now)
    assert engine.canaries() == []
    assert engine.vitals.hung(3600) is None
    assert engine.vitals.text(3600) == "50.0 tokens/s, 2 running, 0 queued"


def test_a_canary_every_ten_seconds_when_idle(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    for now in range(101):
        engine.second(now)
    assert engine.canaries() == list(range(10, 101, 10))
    assert engine.vitals.text(100.3) == "idle, canary 0.3 s ago"


def test_a_long_generation_behind_which_the_canary_waits_is_never_hung(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.answers = False
    for now in range(3600):
        # One token in nine seconds is slow, and alive.
        engine.tokens += now % 9 == 0
        engine.second(now)
        assert engine.vitals.hung(now) is None


def test_silence_is_counted_from_the_first_question_without_an_answer(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    for now in range(25):
        engine.second(now)
    engine.answers = False
    for now in range(25, 95):
        engine.second(now)
        assert engine.vitals.hung(now) is None
    assert engine.vitals.text(94) == "no token for 74 s, canary: no answer in time"
    hung = engine.vitals.hung(95)
    assert hung is not None
    assert hung.code == 73
    assert "no token for 75 s although asked, 3 canaries without one (the last: no answer in time)" in hung.sentence


def test_a_token_of_anybody_ends_the_silence(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.answers = False
    for now in range(60):
        engine.second(now)
    engine.tokens += 1
    for now in range(60, 120):
        engine.second(now)
        assert engine.vitals.hung(now) is None


def test_an_error_is_an_answer_without_a_token(tmp_path: Path) -> None:
    vitals = Vitals(engine(tmp_path).launch, True, 0)
    assert vitals.due(10) is Ask.METRICS
    assert vitals.due(10) is Ask.GENERATE
    vitals.answered(Ask.GENERATE, Answer(500, b"CUDA error"), 10.2)
    assert vitals.hung(75) is not None
    assert "HTTP 500 CUDA error" in vitals.text(20)


def test_without_metrics_the_engine_is_asked_what_costs_a_busy_one_nothing(tmp_path: Path) -> None:
    engine = Engine(tmp_path, with_metrics=False)
    for now in range(31):
        engine.second(now)
    assert engine.asked == [(Ask.HEALTH, 10), (Ask.HEALTH, 20), (Ask.HEALTH, 30)]


def test_the_first_completion_goes_through_the_openai_api(tmp_path: Path) -> None:
    opening = Opening(engine(tmp_path).launch)
    assert opening.due(False, 0) is Ask.HEALTH
    assert opening.due(False, 1) is None
    opening.answered(Ask.HEALTH, Answer(503), 1)
    assert opening.due(False, 2) is None
    assert opening.due(True, 3) is Ask.CHAT
    opening.answered(Ask.CHAT, TOKEN, 4)
    assert opening.done


def test_where_the_log_is_not_understood_the_engine_is_asked(tmp_path: Path) -> None:
    opening = Opening(engine(tmp_path).launch)
    assert opening.due(False, 0) is Ask.HEALTH
    opening.answered(Ask.HEALTH, Answer(200), 1)
    assert opening.due(False, 1) is Ask.CHAT


def test_a_model_without_a_chat_template_proves_itself_otherwise(tmp_path: Path) -> None:
    opening = Opening(engine(tmp_path).launch)
    assert opening.due(True, 0) is Ask.CHAT
    opening.answered(Ask.CHAT, Answer(400, b"no template"), 0)
    assert opening.due(True, 0) is Ask.GENERATE
    opening.answered(Ask.GENERATE, Answer(200, b'{"meta_info": {"completion_tokens": 0}}'), 1)
    assert not opening.done
    failed = opening.expired(60)
    assert failed is not None
    assert failed.code == 73
    assert opening.expired(59) is None


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"usage": 1}', b'{"usage": {"completion_tokens": 0}}', b'{"usage": {"completion_to']
)
def test_an_answer_without_a_token_is_no_proof(body: bytes) -> None:
    assert not gave_a_token(Ask.CHAT, Answer(200, body))


def test_the_model_is_asked_for_by_the_name_it_is_served_under(tmp_path: Path) -> None:
    body = question(Ask.CHAT, engine(tmp_path, ("--served-model-name", "flash"))).body
    assert body is not None
    assert (body["model"], body["max_tokens"]) == ("flash", 1)
    body = question(Ask.CHAT, engine(tmp_path)).body
    assert body is not None
    assert body["model"] == str(tmp_path / "model")
