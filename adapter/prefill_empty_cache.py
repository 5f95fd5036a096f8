"""The allocator's cached blocks given back after each chunk of a long prompt.

A prompt is prefilled in chunks, each with its transient tensors, and each chunk attends to more tokens than the one
before: sizes grow, so that blocks cached for one chunk do not fit the next, and stay. On a Spark that memory is the
host's. Giving it back after a chunk bounds a long prompt to the transient of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from adapter.declare import SCHEDULER, Adapter, Option, Options, Symbol

_DONE = "sglang.srt.managers.scheduler_components.batch_result_processor:SchedulerBatchResultProcessor"
ADAPTER = Adapter(
    name="prefill_empty_cache",
    purpose="gives the allocator's cached blocks back after each chunk of a long prompt",
    worth="lets prompts over 100k tokens through where 6 GB are left (zurih, three Sparks); not measured here",
    processes=frozenset({SCHEDULER}),
    symbols=(Symbol(f"{_DONE}.process_batch_result_prefill", "26b0e4ead4919641"),),
    options={
        "tokens": Option(16384, "of a sequence, from which on it is done; each time costs some ms", low=1, high=1 << 24)
    },
)


def install(options: Options) -> None:
    import torch

    from adapter.frame import hook

    give_back = torch.cuda.empty_cache if torch.cuda.is_available() else _nothing
    limit = int(options["tokens"])  # type: ignore[arg-type]
    hook(ADAPTER.symbol(f"{_DONE}.process_batch_result_prefill"), partial(after_prefill, limit, give_back), "after")


def _nothing() -> None:
    """Without a GPU there is no such cache."""


def after_prefill(
    limit: int, give_back: Callable[[], None], _result: Any, _processor: Any, batch: Any, *_rest: Any, **_options: Any
) -> None:
    """After SGLang has taken what a chunk has given, when its kernels are done."""
    lengths = getattr(batch, "seq_lens_cpu", None)
    if lengths is not None and len(lengths) and int(max(lengths)) > limit:
        give_back()
