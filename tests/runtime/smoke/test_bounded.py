"""Nothing takes longer than its deadline, whatever the engine does; and the sentence says what was waited for."""

import re
import socket
import time

import pytest

from runtime.smoke import run
from tests.runtime.fake_engine import FakeEngine
from tests.runtime.fake_model import Faults

SECONDS = 0.3


@pytest.mark.parametrize(
    ("name", "faults", "sentence"),
    [
        (
            "arithmetic",
            Faults(hang="/v1/chat/completions"),
            r"POST /v1/chat/completions \(sum 1 of 4, 17 \+ 25\): no whole answer within 0.3 s; not one byte came",
        ),
        (
            "stream",
            Faults(hang_after=4),
            r"POST /v1/completions \(streamed\): no whole answer within 0.3 s \(answered before: 1\); only \d+ bytes",
        ),
        (
            "completion",
            Faults(drip=True),
            r"POST /v1/completions \(32 tokens\): no whole answer within 0.3 s; only \d+ by",
        ),
        ("batch", Faults(hang="/server_info"), "GET /server_info: no whole answer within 0.3 s; not one byte came"),
        ("health", Faults(hang="/health_generate"), "GET /health_generate: no whole answer within 0.3 s"),
        ("repeat", Faults(hang="/v1/models"), "GET /v1/models: no whole answer within 0.3 s"),
    ],
)
def test_a_server_that_hangs_is_a_sentence(name: str, faults: Faults, sentence: str) -> None:
    with FakeEngine(faults) as engine:
        began = time.monotonic()
        # The second answer of a check may be the one that hangs; whether all do shows in the next check.
        names = [name] if faults.hang_after else [name, "completion"]
        result = run(engine.url, names, model="", timeout=SECONDS, report=lambda _: None)
        took = time.monotonic() - began
    first, *others = result.results
    assert re.match(sentence, first.sentence), first.sentence
    assert SECONDS <= first.seconds <= took < 10 * SECONDS
    # Nobody waits for each check in turn at an engine that does not answer.
    for other in others:
        assert (other.ok, other.seconds, other.sentence) == (False, 0.0, f"not run: the engine did not answer {name}")


def test_one_deadline_is_for_all_requests_of_a_check() -> None:
    with FakeEngine(prefill=0.012) as engine:
        began = time.monotonic()
        (check,) = run(engine.url, ["arithmetic"], model="tiny", timeout=SECONDS, report=lambda _: None).results
        took = time.monotonic() - began
    # Each sum takes 0.2 s or less, so no single request is too slow.
    assert re.search(r"sum [234] of 4, .* within 0.3 s", check.sentence), check.sentence
    assert took < 5 * SECONDS


def test_an_engine_that_is_only_slow_is_asked_on() -> None:
    with FakeEngine(prefill=0.012) as engine:
        result = run(engine.url, ["arithmetic", "health"], model="tiny", timeout=SECONDS, report=lambda _: None)
    assert [check.ok for check in result.results] == [False, True]


def test_an_engine_that_refuses_some_requests_is_asked_on() -> None:
    with FakeEngine(Faults(status=503)) as engine:
        result = run(engine.url, ["completion", "health"], model="tiny", timeout=5, report=lambda _: None)
    assert [check.ok for check in result.results] == [False, True]


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = run(f"http://127.0.0.1:{port}/v1", ["health", "batch"], model="", timeout=5, report=lambda _: None)
    assert result.sentence == (
        f"health failed: GET /v1/models: cannot connect to 127.0.0.1:{port}: Connection refused (and 1 more)"
    )


def test_a_listener_that_never_accepts() -> None:
    # The kernel completes connections for it until its queue is full.
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (check,) = run(url, ["completion"], model="tiny", timeout=SECONDS, report=lambda _: None).results
    assert "no whole answer within 0.3 s; not one byte came" in check.sentence


@pytest.mark.parametrize("url", ["https://127.0.0.1:8888", "ftp://x", "http://", "http://a:b@c:1", "http://h:99999"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected http://HOST:PORT|[Pp]ort"):
        run(url, ["health"], model="", timeout=1, report=lambda _: None)
