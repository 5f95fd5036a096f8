"""Prometheus text, differences, percentiles."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.bench.histograms import Histogram, Metrics, Percentiles

NAME = "sglang:inter_token_latency_seconds"
TEXT = """\
# HELP sglang:inter_token_latency_seconds Histogram of inter-token latency in seconds.
# TYPE sglang:inter_token_latency_seconds histogram
sglang:inter_token_latency_seconds_sum{engine_type="unified",model_name="a \\"b\\" {c}, d"} 3.5
sglang:inter_token_latency_seconds_bucket{engine_type="unified",le="0.02",model_name="a \\"b\\" {c}, d"} 10.0
sglang:inter_token_latency_seconds_bucket{engine_type="unified",le="0.04",model_name="a \\"b\\" {c}, d"} 30.0
sglang:inter_token_latency_seconds_bucket{engine_type="unified",le="+Inf",model_name="a \\"b\\" {c}, d"} 40.0
sglang:inter_token_latency_seconds_count{engine_type="unified",model_name="a \\"b\\" {c}, d"} 40.0
sglang:inter_token_latency_seconds_sum{engine_type="unified",model_name="other"} 0.5
sglang:inter_token_latency_seconds_bucket{engine_type="unified",le="0.02",model_name="other"} 10.0
sglang:inter_token_latency_seconds_bucket{engine_type="unified",le="0.04",model_name="other"} 10.0
sglang:inter_token_latency_seconds_bucket{engine_type="unified",le="+Inf",model_name="other"} 10.0
sglang:generation_tokens_total{is_streaming="true"} 1.5e+03
sglang:generation_tokens_total{is_streaming="false"} 20 1700000000000
sglang:token_usage NaN
"""


def histogram(*counts: float) -> Histogram:
    return Histogram((0.01, 0.02, 0.04, math.inf), counts, 1.0)


def test_series_are_added_over_their_labels() -> None:
    metrics = Metrics.read(TEXT)
    assert metrics.values["sglang:generation_tokens_total"] == 1520
    assert metrics.histogram(NAME) == Histogram((0.02, 0.04, math.inf), (20, 40, 50), 4.0)
    assert metrics.histogram("sglang:nothing") is None


@pytest.mark.parametrize("line", ["<html>", "name{a=1", "two words more", "x y"])
def test_what_is_no_metrics_is_said(line: str) -> None:
    with pytest.raises(ValueError, match="is not the text format of Prometheus"):
        Metrics.read(f"{TEXT}{line}\n")


def test_only_what_came_since_counts() -> None:
    assert histogram(5, 9, 9, 10) - histogram(1, 4, 4, 5) == Histogram((0.01, 0.02, 0.04, math.inf), (4, 5, 5, 5), 0.0)
    assert histogram(5, 9, 9, 10) - None == histogram(5, 9, 9, 10)
    with pytest.raises(ValueError, match="restarted"):
        _ = histogram(1, 4, 4, 5) - histogram(5, 9, 9, 10)


@pytest.mark.parametrize(
    ("share", "seconds"),
    [(0.0, 0.0), (0.05, 0.005), (0.1, 0.01), (0.5, 0.015), (0.9, 0.02), (0.95, 0.03), (1.0, 0.04)],
)
def test_percentiles_are_interpolated_within_a_bucket(share: float, seconds: float) -> None:
    assert histogram(10, 90, 100, 100).quantile(share) == pytest.approx(seconds)


def test_beyond_the_last_bound_only_that_bound_is_known() -> None:
    found = Percentiles.of_histogram(histogram(0, 50, 60, 100))
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.beyond) == (0.02, 0.04, 0.04, 0.04)
    assert (found.count, found.mean) == (100, 0.01)


def test_nothing_observed_is_nothing() -> None:
    assert math.isnan(histogram(0, 0, 0, 0).quantile(0.5))
    assert Percentiles.of_histogram(histogram(0, 0, 0, 0)) is None
    assert Percentiles.of_weighted([]) is None


def test_weights_count_as_often() -> None:
    found = Percentiles.of_weighted([(0.3, 1), (0.1, 8), (0.2, 1)])
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.mean) == pytest.approx((0.1, 0.2, 0.3, 0.13))
    assert (found.count, found.beyond) == (10, None)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any), st.floats(0, 1), st.floats(0, 1))
def test_percentiles_never_fall(each: list[int], one: float, other: float) -> None:
    counts = [sum(each[: index + 1]) for index in range(4)]
    low, high = sorted((one, other))
    assert histogram(*counts).quantile(low) <= histogram(*counts).quantile(high) <= 0.04
