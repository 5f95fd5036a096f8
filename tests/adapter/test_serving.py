"""The small adapters and what SGLang has by itself, in SGLang's own classes; and their pure parts."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapter import source
from adapter.prefill_empty_cache import after_prefill
from adapter.serving_guards.loops import lines_loop, tokens_loop
from adapter.upstream import UPSTREAM
from tests.adapter.conftest import REPOSITORY, Child

PROFILE = tomllib.loads((REPOSITORY / "profiles/deepseek-v4.1-flash-tp3.toml").read_text())
CHI_SQUARE_3_0001 = 21.11
"""Of three degrees of freedom: one in 10,000 is above."""


@pytest.fixture(scope="module")
def found(child: Child) -> dict[str, Any]:
    done = child(REPOSITORY / "tests/adapter/child/serving.py", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize(
    ("answer", "how", "at"),
    [
        ("equal", "64 equal tokens", 64),
        ("cycle of 5", "35 tokens 4 times", 144),
        ("cycle of 100", "100 tokens 4 times", 400),
        ("cycle, six at a time", "40 tokens 4 times", 162),
        ("lines", "40 tokens 4 times", 160),
        ("lines of words", "8 equal lines", 64),
    ],
)
def test_an_answer_that_goes_in_circles_is_ended(found: dict[str, Any], answer: str, how: str, at: int) -> None:
    told = {"type": "length", "length": at, "reason": "repetition", "repeated": how}
    assert found["guards"][answer] == [told, at]


def test_other_answers_are_left_alone(found: dict[str, Any]) -> None:
    seen = found["guards"]
    assert [seen[name] for name in ("short lines", "prose", "measured")] == [[None, 60], [None, 250], [None, 200]]
    assert seen["length first"] == [{"type": "length", "length": 30}, 30]


def test_enable_thinking_is_thinking_unless_that_is_said_too(found: dict[str, Any]) -> None:
    assert found["requests"]["thinking"] == [None, False, True, False, None]


def test_named_efforts_are_budgets_for_v41_alone(found: dict[str, Any]) -> None:
    assert found["requests"]["efforts"] == [50, 75, 100, 75, 75, 30, 30, "medium", "max"]


def test_products_go_to_b12x_unless_another_kernel_is_asked_for(found: dict[str, Any]) -> None:
    seen = found["products"]
    assert [call[-1] for call in seen["routed"]] == ["b12x", "b12x", "trtllm", "cutlass"]
    assert all(call[:3] == [1, 2, 3] for call in seen["routed"])
    assert seen["without a GPU"].endswith("it needs a Blackwell GPU and flashinfer")
    assert "has no backend b12x; install the pinned flashinfer" in seen["old FlashInfer"]


def test_the_cache_is_given_back_after_a_chunk_of_a_long_sequence(found: dict[str, Any]) -> None:
    assert found["prefill"] is True
    given: list[int] = []
    for lengths in ([10], [100, 3], [101, 3], [5000], [], None):
        batch = SimpleNamespace(seq_lens_cpu=lengths)
        after_prefill(100, lambda lengths=lengths: given.append(max(lengths)), None, None, batch, None)  # type: ignore[misc]
    assert given == [101, 5000]


def test_a_hook_that_sglang_did_not_apply_is_refused(found: dict[str, Any]) -> None:
    says = "SchedulerBatchResultProcessor.process_batch_result_prefill; its log says why"
    assert found["twice"].startswith("prefill_empty_cache: SGLang did not apply the hook at ")
    assert found["twice"].endswith(says)


# What SGLang has by itself.


@pytest.mark.parametrize("each", UPSTREAM, ids=lambda each: each.name)
def test_what_a_setting_rests_on_is_in_the_release(sglang: Path, each: Any) -> None:
    assert source.drifts(sglang, each.symbols) == []
    table, _, key = each.setting.partition(".")
    assert not table or key in PROFILE[table], f"the profile does not set {key}"


def test_block_verification_emits_the_targets_distribution(found: dict[str, Any]) -> None:
    seen = found["verified"]
    for counts, shares in zip((seen["first"], seen["second"]), seen["target"], strict=True):
        total = sum(counts)
        off = sum((count - total * share) ** 2 / (total * share) for count, share in zip(counts, shares, strict=True))
        assert off < CHI_SQUARE_3_0001, counts
    assert sum(seen["second"]) > 180


def test_no_answer_is_longer_than_the_profile_says(found: dict[str, Any]) -> None:
    assert found["limited"] == [32768, 100, 32768]
    assert PROFILE["environment"]["SGLANG_MAX_NEW_TOKENS_LIMIT"]["value"] == "32768"


def test_numbers_of_the_chunked_indexer(sglang: Path) -> None:
    text = (sglang / "srt/layers/attention/dsv4/v41_indexer/scoring.py").read_text()
    assert "\n_DEEP_GEMM_SCORE_BUDGET_BYTES = 2 << 30\n" in text
    assert "\n_SM120_INDEXER_M_CHUNK = 4096\n" in (sglang / "srt/layers/attention/dsv4/metadata.py").read_text()


# Pure.


@pytest.mark.parametrize(("cycle", "copies", "loops"), [(32, 4, True), (31, 4, False), (512, 4, True), (513, 4, False)])
def test_a_cycle_has_32_to_512_tokens_and_four_copies(cycle: int, copies: int, loops: bool) -> None:
    chance = random.Random(cycle)
    body = chance.sample(range(10000), cycle)
    tokens = [*chance.sample(range(10000, 20000), 50), *body * copies]
    assert bool(tokens_loop(tokens)) is loops
    assert tokens_loop(tokens[:-1]) == ""
    spoilt = list(tokens)
    spoilt[-2 * cycle] += 1
    assert tokens_loop(spoilt) == ""


def test_equal_tokens_are_64() -> None:
    assert tokens_loop([1] + [2] * 63) == ""
    assert tokens_loop([1] + [2] * 64) == "64 equal tokens"
    assert tokens_loop([]) == ""


def test_equal_lines_are_8_of_at_least_16_characters() -> None:
    line = "sixteen letters."
    assert lines_loop(f"{line}\n" * 8) == "8 equal lines"
    assert lines_loop(f"{line}\n" * 8 + "and on") == "8 equal lines"
    assert lines_loop(f"{line}\n" * 7) == ""
    assert lines_loop(f"{line[1:]}\n" * 8) == ""
    assert lines_loop(f"{'x' * 4}{' ' * 20}\n" * 8) == ""


def test_a_look_costs_little() -> None:
    """Counted, not timed: of 481 cycles nearly none gets further than two comparisons."""

    class Counted(list[int]):
        slices = 0

        def __getitem__(self, place: Any) -> Any:
            Counted.slices += isinstance(place, slice)
            return super().__getitem__(place)

    chance = random.Random(4)
    assert tokens_loop(Counted(chance.randrange(129280) for _ in range(2048))) == ""
    assert Counted.slices < 10
