"""Engram's rows on disk, and looked up beside the model, in SGLang's own classes: bit for bit what memory gives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapter.engram_rows.build import build, library

STEPS, LAYERS = 5, 2


@pytest.fixture(scope="module")
def found(told: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    where = tmp_path_factory.mktemp("engram")
    core = build(where)
    # A library for the interpreter of tests is one for the engine's: it uses nothing of Python.
    assert core.name == library(Path(sys.prefix)).name
    seen: dict[str, Any] = told("engram", where, str(core), "python", "native", "uring")
    return seen


@pytest.mark.parametrize("reader", ["python", "native", "uring"])
def test_rows_on_disk_are_bit_for_bit_those_in_memory(found: dict[str, Any], reader: str) -> None:
    places = [f"{rank} of {world}" for world in (2, 3, 4) for rank in range(world)]
    assert found[reader]["differ"] == {place: [] for place in places}
    assert found[reader]["kept"] == 0, "a table in memory beside the one on disk"
    # The batches have rows of others, and values that are not numbers, or equality would show little.
    assert 0.2 < found["owned"] < 0.5
    assert found["not a number"] > 100


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ("cut", "has 8192 bytes, and its header means 229376; it was cut or appended to, pack it again"),
        ("swapped", "these rows are not the ones wanted: rank is 2, expected 1; row_start is 1409, expected 611"),
        ("another row", "row 611 is not the checkpoint's; pack the rows of this checkpoint"),
        ("empty", "has 0 bytes, and the header alone takes 4096; pack it again"),
        ("gone", "No such file or directory; pack the rows with `sparkd-engine model pack`"),
        ("cut later", "row 626: a short read: the file has been cut since it was opened; pack it again"),
    ],
)
def test_a_spoilt_file_ends_the_rank_and_gives_no_values(found: dict[str, Any], spoilt: str, says: str) -> None:
    status, said = found["python"]["refusals"][spoilt]
    assert status == 75
    assert said.startswith("adapter engram_rows: error: /")
    assert f"engram-layer1-rank1-of-3.rows: {says}" in said


def test_rows_of_no_manifest_are_refused(found: dict[str, Any]) -> None:
    said = found["python"]["without manifest"]
    assert said.startswith("the checkpoint cannot be compared with the packed rows: ")
    assert "model.safetensors.index.json" in said


@pytest.mark.parametrize("reader", ["python", "native", "uring"])
def test_the_engines_metrics_tell_how_the_reads_go(found: dict[str, Any], reader: str) -> None:
    seen = found[reader]["counted"]
    assert seen["rows"] > 500
    assert 0 < seen["reads"] < seen["rows"]
    assert (seen["errors"], seen["queue_depth_max"]) == (0, 16)
    assert 1e-6 <= seen["read_seconds_p50"] <= seen["read_seconds_p99"]


def test_prefetched_rows_are_bit_for_bit_the_synchronous_ones(found: dict[str, Any]) -> None:
    seen = found["on"]
    assert (seen["equal"], seen["order kept"]) == (True, True)
    assert (seen["started"], seen["used"], seen["unused"]) == (STEPS * LAYERS, STEPS * LAYERS, 0)
    # Only what nobody had asked for before was looked up on the model's way: the last token of each step.
    assert seen["here"] == STEPS


def test_check_mode_counts_what_differs_and_gives_the_synchronous_rows(found: dict[str, Any]) -> None:
    right, wrong = found["check"], found["spoilt"]
    assert (right["compared"], right["different"], right["equal"]) == (STEPS * LAYERS, 0, True)
    assert (wrong["compared"], wrong["different"], wrong["equal"]) == (STEPS * LAYERS, STEPS * LAYERS, True)
    assert wrong["said"] == "engram_prefetch: layer 1: differs from the synchronous lookup, 10 of 10 times"
