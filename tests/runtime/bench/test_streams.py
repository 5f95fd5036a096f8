"""Rates and times from stamps that are known: no clock runs here."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runtime.bench.histograms import Percentiles
from runtime.bench.streams import Course, rate
from runtime.openai.answers import Chunk, Streamed, Usage


def streamed(
    *points: tuple[float, int | None], sent: float = 0.0, completion: int | None = None, prompt: int = 10
) -> Streamed:
    """A stream with a message at each (second, tokens so far)."""
    made = completion if completion is not None else max(tokens or 0 for _, tokens in points)
    chunks = tuple(Chunk(at, tokens, 5) for at, tokens in points)
    return Streamed(sent, chunks, "text", "length", Usage(prompt, made), 1)


def course(*points: tuple[float, int | None], sent: float = 0.0, completion: int | None = None) -> Course:
    return Course.of(streamed(*points, sent=sent, completion=completion))


def test_the_first_token_is_prefill_and_not_decode() -> None:
    one = course((3.0, 1), (3.1, 2), (3.2, 3), (3.3, 4), sent=1.0)
    assert one.ttft == 2.0
    found = rate([one])
    assert (found.tokens_per_second, found.seconds) == pytest.approx((10.0, 0.3))
    assert found.whole


def test_tokens_are_counted_and_not_messages() -> None:
    # Five tokens a message, as speculative decoding may make them: 50 tokens/s in 10 messages/s.
    merged = course(*((number / 10, 5 * number) for number in range(1, 11)))
    assert rate([merged]).tokens_per_second == pytest.approx(50.0)
    assert merged.tokens_per_message == 5.0
    found = Percentiles.of_weighted(merged.gaps())
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.mean) == pytest.approx((0.02, 0.02, 0.02, 0.02))
    assert found.count == 45


def test_several_streams_count_while_all_decode() -> None:
    # From 1 to 2 s the first decodes alone at 20/s, then both at 10/s each, then the second alone at 20/s.
    first = course((1.0, 1), (2.0, 21), (4.0, 41))
    second = course((2.0, 1), (4.0, 21), (4.5, 31))
    found = rate([first, second])
    assert (found.tokens_per_second, found.seconds) == pytest.approx((20.0, 2.0))
    assert found.whole


def test_the_edge_of_the_window_may_fall_between_messages() -> None:
    first = course((0.0, 1), (1.0, 11), (2.0, 21))
    second = course((0.5, 1), (1.5, 11), (2.5, 21))
    assert rate([first, second]).tokens_per_second == pytest.approx(20.0)


def test_streams_that_waited_for_each_other_are_no_batch() -> None:
    found = rate([course((0.0, 1), (1.0, 11)), course((1.5, 1), (2.5, 11))])
    assert not found.whole
    assert found.tokens_per_second == pytest.approx(20 / 2.5)


def test_a_moment_together_is_no_batch_either() -> None:
    found = rate([course((0.0, 1), (1.0, 11)), course((0.9, 1), (1.9, 11))])
    assert not found.whole
    assert found.seconds == pytest.approx(1.9)


def test_tokens_that_were_held_back_have_no_rate_of_their_own() -> None:
    # As seen with a client that got no CPU: 64 tokens in a millisecond after a quarter of a second.
    burst = course(*((1.25 + number / 64000, number) for number in range(1, 65)), sent=1.0)
    found = rate([burst])
    assert (found.held, found.whole) == (True, False)
    assert found.tokens_per_second == pytest.approx(64 / 0.251)
    assert not rate([course((1.7, 1), (2.0, 64), sent=1.0)]).held


def test_without_counts_messages_share_the_usage() -> None:
    one = course((1.0, None), (1.5, None), (2.0, None), completion=21)
    assert not one.counted
    assert rate([one]).tokens_per_second == pytest.approx(20.0)


def test_usage_that_is_told_again_is_not_added() -> None:
    twice = course((1.0, 1), (2.0, 11), (2.0, 11), (9.0, 11))
    assert rate([twice]).seconds == pytest.approx(1.0)
    assert twice.completion == 11


def test_messages_without_tokens_are_no_tokens() -> None:
    role = Chunk(0.1, 0, 0)
    rest = (Chunk(1.0, 4, 9), Chunk(2.0, 8, 9), Chunk(5.0, 8, 0))
    one = Course.of(Streamed(0.0, (role, *rest), "text", "length", Usage(3, 8), 1))
    assert (one.ttft, rate([one]).tokens_per_second) == pytest.approx((1.0, 4.0))


def test_what_cannot_be_measured_is_said() -> None:
    with pytest.raises(ValueError, match="without its usage"):
        Course.of(Streamed(0.0, (Chunk(1.0, 1, 1),), "x", "stop", None, 0))
    with pytest.raises(ValueError, match="no tokens in 1 chunks"):
        Course.of(Streamed(0.0, (Chunk(1.0, 0, 0),), "", "stop", Usage(3, 0), 1))
    with pytest.raises(ValueError, match="all tokens came in one message"):
        rate([course((1.0, 64))])


@given(st.lists(st.tuples(st.floats(0.001, 5.0), st.integers(1, 9)), min_size=2, max_size=30), st.floats(0.0, 100.0))
def test_one_stream_has_the_rate_of_its_tokens(steps: list[tuple[float, int]], sent: float) -> None:
    points: list[tuple[float, int]] = []
    for seconds, tokens in steps:
        at, had = points[-1] if points else (sent, 0)
        points.append((at + seconds, had + tokens))
    one = course(*points, sent=sent)
    assume(not rate([one]).held)
    (first, had), (last, has) = points[0], points[-1]
    assert rate([one]).tokens_per_second == pytest.approx((has - had) / (last - first))
    assert sum(seconds * tokens for seconds, tokens in one.gaps()) == pytest.approx(last - first)
    assert one.ttft == pytest.approx(steps[0][0])
