"""The kernels of decoding: in Triton's interpreter against plain PyTorch, and what they make of sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

BF16 = 4e-3
"""Relative, of a result rounded to bf16; the interpreter rounds down, which is at most twice as far."""
CASES = 200
CHI_SQUARE = 140.0
"""Of 63 degrees of freedom, a right rule exceeds this with a probability under 1e-7. A rule that is wrong by the
shift that the wrong ones here have adds over 400, so that it is missed with a probability far below that."""


@pytest.fixture(scope="module")
def kernels(told: Callable[..., Any]) -> dict[str, Any]:
    seen: dict[str, Any] = told("interpreted")
    return seen


@pytest.fixture(scope="module")
def sampled(told: Callable[..., Any]) -> dict[str, Any]:
    seen: dict[str, Any] = told("sampling", str(CASES))
    return seen


def test_every_value_of_fp8_comes_back_with_every_scale(kernels: dict[str, Any]) -> None:
    assert kernels["codes"] is True


def test_a_product_is_bit_for_bit_that_of_the_bf16_weight(kernels: dict[str, Any]) -> None:
    for name, seen in kernels["products"].items():
        assert seen["bits of bf16"] and seen["exact again"], name
        assert seen["off"] < BF16, name
        assert (seen["counts"], seen["of the original"]) == (0, False), name
    assert kernels["products"]["groups"]["shape"] == [6, 4, 64]


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ("odd", "33 x 64 does not divide into blocks of 32 x 32"),
        ("nan", "a weight is not finite"),
        ("large", "a weight of 9.98244e+08 is too large, expected at most 2^15"),
    ],
)
def test_a_weight_that_has_no_twin_is_refused(kernels: dict[str, Any], weight: str, says: str) -> None:
    assert kernels["refusals"][weight] == says


def test_a_block_is_cut_as_plain_pytorch_cuts_it(kernels: dict[str, Any]) -> None:
    assert len(kernels["caps"]) == 12
    assert all(kernels["caps"].values()), kernels["caps"]


def test_dead_rows_have_the_experts_of_their_anchor(kernels: dict[str, Any]) -> None:
    assert kernels["experts"] is True


@pytest.mark.parametrize("rule", ["block", "block, cut", "singly, cut", "tau", "tau, cut"])
def test_sequences_are_distributed_as_the_targets(sampled: dict[str, Any], rule: str) -> None:
    assert sampled[rule] < CHI_SQUARE


@pytest.mark.parametrize("rule", ["wrong cut", "wrong tau"])
def test_a_wrong_rule_is_found(sampled: dict[str, Any], rule: str) -> None:
    assert sampled[rule] > 2 * CHI_SQUARE


@pytest.mark.parametrize("rule", ["block", "singly"])
def test_the_kernel_of_sglang_decides_as_the_paper_does(sampled: dict[str, Any], rule: str) -> None:
    seen = sampled["upstream"]
    assert seen[rule] == 0
    assert min(seen[f"{rule} lengths"]) > CASES // 20, "each number of accepted drafts is among the cases"
