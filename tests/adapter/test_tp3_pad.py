"""tp3_pad in the real classes of SGLang: three ranks over Gloo against one, target and draft, with both paddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adapter.declare import AdapterError
from adapter.tp3_pad import Layout

ZERO = "zero"
SPREAD = [[0, 1, 2, ZERO], [3, 4, 5, ZERO], [6, 7, ZERO, ZERO]]
END = [[0, 1, 2, 3], [4, 5, 6, 7], [ZERO] * 4]
FLOAT = 2e-5
"""Of the largest value: sums of three ranks are added in another order than those of one."""


@pytest.fixture(scope="module")
def found(told: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    seen: dict[str, Any] = told("tp3", tmp_path_factory.mktemp("tp3"))
    return seen


@pytest.mark.parametrize("padding", ["spread", "end"])
def test_three_ranks_attend_draft_and_answer_as_one(found: dict[str, Any], padding: str) -> None:
    seen = found[padding]
    assert seen["heads"] == [96, 96, 96]
    for what, off in seen["off"].items():
        assert off <= FLOAT * seen["size"][what], what
    assert seen["tokens"] == [seen["tokens_of_one"]] * 3
    assert len(set(seen["tokens_of_one"][8:])) > 3, "a model that repeats itself would show little"


@pytest.mark.parametrize(("padding", "slots"), [("spread", SPREAD), ("end", END)])
def test_each_slot_has_a_real_group_or_exact_zeros(found: dict[str, Any], padding: str, slots: list[Any]) -> None:
    assert found[padding]["slots"] == {"weights": slots, "draft_weights": slots}


def test_padded_blocks_of_fp8_are_zero_and_their_scales_exactly_one(found: dict[str, Any]) -> None:
    for rank, by_name in enumerate(found["spread"]["blocks"]):
        assert len(by_name) == 6
        for name, slots in by_name.items():
            fill = "one" if name.endswith("scale") else ZERO
            assert slots == [fill if each == ZERO else each for each in SPREAD[rank]], name


# Without SGLang.


@pytest.mark.parametrize(
    ("groups", "ranks", "slots", "places"),
    [
        (8, 3, 4, [0, 1, 2, None, 3, 4, 5, None, 6, 7, None, None]),
        (8, 2, 4, list(range(8))),
        (8, 8, 1, list(range(8))),
        (8, 5, 2, [0, 1, 2, 3, 4, 5, 6, None, 7, None]),
        (4, 3, 2, [0, 1, 2, None, 3, None]),
    ],
)
def test_groups_are_spread_evenly(groups: int, ranks: int, slots: int, places: list[int | None]) -> None:
    layout = Layout(groups * 8, groups, ranks, "spread")
    assert (layout.slots, list(layout.places())) == (slots, places)
    assert layout.padded_heads == 8 * layout.padded_groups
    end = Layout(groups * 8, groups, ranks, "end").places()
    assert end == (*range(groups), *[None] * (len(places) - groups))


def test_heads_that_are_not_of_groups_are_refused() -> None:
    with pytest.raises(AdapterError, match="65 heads in 8 output groups for 3 ranks: not divisible"):
        Layout(65, 8, 3, "spread")
