"""Samples of Prometheus' text format."""

import math

import pytest

from runtime.prometheus import Sample, read_sample


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        ("up 1", "up", {}, 1.0),
        ("  sglang:x_total{} 1.5e+03  ", "sglang:x_total", {}, 1500.0),
        ('x{a="1",le="+Inf"} 3 1700000000000', "x", {"a": "1", "le": "+Inf"}, 3.0),
        (r'x{a="b\"}, c",d="e f"} -2', "x", {"a": r"b\"}, c", "d": "e f"}, -2.0),
        ("x +Inf", "x", {}, math.inf),
    ],
)
def test_a_sample_is_name_labels_and_value(line: str, name: str, labels: dict[str, str], value: float) -> None:
    sample = read_sample(line)
    assert sample is not None
    assert (sample.name, sample.labels, sample.value) == (name, labels, value)


@pytest.mark.parametrize("line", ["", "# HELP x y", "x", "x nonsense", "x{a=1 2", "9x 1", "x 1 2 3"])
def test_anything_else_is_none(line: str) -> None:
    assert read_sample(line) is None


def test_no_number_is_a_number_that_is_none() -> None:
    sample = read_sample("x NaN")
    assert sample is not None and math.isnan(sample.value)
    assert sample == Sample("x", "", sample.value)
