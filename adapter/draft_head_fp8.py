"""The draft's pass through the target's head in FP8: half the bytes of the largest weight that a draft step reads.

The twin has one power of two per 32x32 block and is for drafting alone; the target goes on with bf16. What the draft
proposes may differ, and with it how much is accepted; what is accepted is decided by the target as before.
"""

from __future__ import annotations

from typing import Any

from adapter.declare import SCHEDULER, Adapter, AdapterError, Option, Options, Symbol, end_process

_DRAFT = "sglang.srt.models.deepseek_v4_dspark:DeepseekV4ForCausalLMDSpark"
_PROJECT = "sglang.srt.models.dspark:project_through_lm_head"
MOST = 32
"""Rows up to which the kernel was never slower than bf16 (adapter.bench, H200)."""
ADAPTER = Adapter(
    name="draft_head_fp8",
    purpose="drafts through an FP8 twin of the target's head",
    worth="the head's pass 1.7 times as fast up to 8 rows, 1.5 at 16 (H200, adapter.bench); whole engine not run",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(_PROJECT, "845b6702cb3b4999"),
        Symbol(f"{_DRAFT}.attach_shared_modules", "6abce46163b74ab9"),
        Symbol(f"{_DRAFT}._logits_from_x_post_hc", "a132155a86adbcf6"),
    ),
    options={"rows": Option(MOST, "up to which the twin is used; more go through the bf16 head", low=1, high=64)},
    shares=("kernels",),
)


def path() -> str:
    from adapter.kernels.support import path

    return path("bf16 head")


def install(options: Options) -> None:
    import sglang.srt.models.deepseek_v4_dspark  # noqa: F401 - the registry reaches names that are imported already

    from adapter.frame import hook

    head = Head(int(options["rows"]))  # type: ignore[arg-type]
    hook(ADAPTER.symbol(f"{_DRAFT}.attach_shared_modules"), head.attached, "after")
    hook(ADAPTER.symbol(_PROJECT), head.project, "around")


class Head:
    """The twin of one head. taken, left: calls that went through it, and that did not."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._weight: Any = None
        self.twin: Any = None
        self.taken = self.left = 0

    def attached(self, _result: None, model: Any, *_arguments: Any, **_modules: Any) -> None:
        try:
            self._attach(model.lm_head)
        except AdapterError as error:
            end_process(ADAPTER.name, str(error))

    def _attach(self, lm_head: Any) -> None:
        """Raises AdapterError for a head that has no twin."""
        import torch

        from adapter.kernels import support

        weight = getattr(lm_head, "weight", None)
        if weight is None or weight.dtype != torch.bfloat16:
            kind = "no weight" if weight is None else str(weight.dtype)
            raise AdapterError(f"the target's head has {kind}, expected bf16; turn draft_head_fp8 off")
        if why := support.obstacle():
            support.say(ADAPTER.name, f"{why}, so the draft goes through the bf16 head")
            return
        from adapter.kernels.blockfp8 import quantized

        try:
            self.twin = quantized(weight.data)
        except ValueError as error:
            raise AdapterError(f"the target's head: {error}; turn draft_head_fp8 off") from error
        # The head that the twin is of, by what it holds: SGLang may hand the same weight on in another module.
        self._weight = weight.data_ptr()

    def project(self, original: Any, hidden: Any, lm_head: Any) -> Any:
        """hidden [rows, hidden size]; logits of this rank's part of the vocabulary, bf16."""
        rows = hidden.shape[0]
        if self.twin is None or not 0 < rows <= self._rows or lm_head.weight.data_ptr() != self._weight:
            self.left += 1
            return original(hidden, lm_head)
        from adapter.kernels.blockfp8 import product

        self.taken += 1
        return product(self.twin, hidden.to(lm_head.weight.dtype).contiguous().unsqueeze(1)).squeeze(1)
