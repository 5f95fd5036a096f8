"""The adapters of decoding in SGLang's own modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adapter.autotune_keep import fingerprint_of
from adapter.declare import AdapterError
from adapter.verify_cap import thresholds_of

BF16 = 5e-3
ALL, NONE = [True] * 3, [False] * 3


@pytest.fixture(scope="module")
def found(told: Callable[..., Any]) -> dict[str, Any]:
    seen: dict[str, Any] = told("decode")
    return seen


@pytest.fixture(scope="module")
def tuned(told: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    seen: dict[str, Any] = told("autotune", tmp_path_factory.mktemp("autotune"))
    return seen


def test_what_a_reader_holds_outlives_the_next_step(found: dict[str, Any]) -> None:
    # The race: SGLang hands out the buffers themselves. Nothing was trimmed in either step.
    assert [name for name, kept in found["without the fence"].items() if kept] == ["cap_trim_lens"]
    assert all(found["with it"].values())


def test_a_folded_accept_is_cut_at_the_first_doubtful_draft(found: dict[str, Any]) -> None:
    """Four drafts of each request are right; the second draft of the first is doubtful, and the first of the last."""
    seen = found["by confidence"]
    assert seen["correct_len"] == [1, 4, 0]
    assert seen["bonus"] == [2, 12, 13]
    assert seen["cap_trim_lens"] == [3, 0, 4]
    assert (seen["commit_lens"], seen["new_seq_lens"]) == ([2, 5, 1], [12, 25, 31])
    assert seen["out_tokens"] == [[1, 2, 0, 0, 0, 0], [7, 8, 9, 10, 12, 0], [13, 0, 0, 0, 0, 0]]


def test_dead_rows_of_a_verify_pass_take_the_anchors_experts(found: dict[str, Any]) -> None:
    verify, prefill = found["experts"]["verify"], found["experts"]["prefill"]
    assert prefill == list(range(0, 36, 2))
    assert verify == [0, 2, 0, 0, 0, 0, *prefill[6:12], *[24] * 6]
    assert found["experts"]["hooked"] == [True, True]


@pytest.mark.parametrize("way", ["static", "eager"])
def test_the_draft_is_sampled_at_tau_times_the_temperature(found: dict[str, Any], way: str) -> None:
    temperatures, steps = found["tau"][way]
    assert temperatures == pytest.approx([0.45, 0.65, 0.2])
    assert steps == pytest.approx([0.45, 0.0, 0.2])
    assert found["tau"]["greedy"] == [0.0, 0.0]


def test_the_target_keeps_its_temperature_in_a_graph(found: dict[str, Any]) -> None:
    assert found["tau"]["target"] is True


def test_twins_give_what_sglang_gives(found: dict[str, Any]) -> None:
    seen = found["weights"]
    assert all(seen["head"]) and all(seen["wo_a"]) and seen["hooked"]
    assert max(seen["head off"], seen["wo_a off"]) < BF16
    kept, refused, taken = seen["kept"]
    assert (kept, refused, taken) == (1, 1, 1)


def test_a_dropped_weight_leaves_the_result(found: dict[str, Any]) -> None:
    size, same, shape, finite = found["weights"]["dropped"]
    assert (size, same, shape, finite) == (0, True, [70, 2, 32], True)


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ("conf:0.5", [0.5] * 3),
        ("conf:0.9,0.5,0", [0.9, 0.5, 0.0]),
        ("2", [0.0, 0.0, float("inf")]),
        ("5", [0.0] * 3),
    ],
)
def test_forms_of_live(live: str, expected: list[float]) -> None:
    assert thresholds_of(live, 3) == expected


@pytest.mark.parametrize("live", ["", "0", "6", "conf:", "conf:2", "conf:x", "conf:0.1,0.2", "conf:nan", "fixed:2"])
def test_other_forms_of_live_are_refused(live: str) -> None:
    with pytest.raises(AdapterError, match=r"^adapters.verify_cap.live: found '.*', expected conf:"):
        thresholds_of(live, 3)


@pytest.mark.parametrize(
    ("case", "loads"),
    [
        ("agree", ALL),
        ("other tactics", ALL),
        ("other problems", NONE),
        ("missing", NONE),
        ("stale", NONE),
        ("no stamp", NONE),
        ("stamp of before", NONE),
        ("broken", NONE),
        ("all stale", NONE),
        ("other environment", NONE),
    ],
)
def test_three_ranks_load_what_was_tuned_or_none_does(tuned: dict[str, Any], case: str, loads: list[bool]) -> None:
    assert tuned["with"][case] == loads


def test_sglang_alone_drops_what_agrees_and_loads_what_does_not(tuned: dict[str, Any]) -> None:
    assert tuned["without"]["other tactics"] == NONE
    assert tuned["without"]["stale"] == ALL


def test_a_launch_is_told_from_another_and_a_rank_is_not() -> None:
    launch = {"model_path": "m", "tp_size": 3, "node_rank": 0}
    assert fingerprint_of(launch) == fingerprint_of({**launch, "node_rank": 2})
    assert fingerprint_of(launch) != fingerprint_of({**launch, "tp_size": 4})
