"""The small adapters in SGLang's own classes, and what SGLang has by itself; prints JSON with what was seen.

With TRITON_INTERPRET=1, by which Triton runs a kernel on a CPU, slowly.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from sglang.kernels.ops.speculative.reject_sampling import chain_speculative_sampling_triton
from sglang.srt.entrypoints.openai import serving_chat, serving_deepseek_recipe
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.layers.quantization import fp8_utils
from sglang.srt.managers import schedule_batch, scheduler
from sglang.srt.managers.scheduler_components import batch_result_processor
from sglang.srt.sampling.sampling_params import SamplingParams

from adapter import plugin
from adapter.declare import AdapterError

ROWS, SLOTS, WORDS = 300, 3, 4
TARGET = torch.tensor([[0.50, 0.25, 0.15, 0.10], [0.10, 0.20, 0.30, 0.40], [0.25, 0.25, 0.25, 0.25]])
DRAFT = torch.tensor([[0.20, 0.30, 0.25, 0.25], [0.30, 0.30, 0.20, 0.20]])
GUARDS = json.dumps({"serving_guards": {}})


def run_scheduler_process(adapters: str) -> None:
    plugin.install(adapters, os.environ)


def launch(adapters: str) -> None:
    plugin.install(adapters, os.environ)


# Guards.


class Words:
    """A vocabulary of words, so that a line is a few tokens; the first is the end of a line."""

    additional_stop_token_ids = eos_token_id = None

    def decode(self, tokens: list[int]) -> str:
        return "".join("\n" if token == 0 else f"word{token} " for token in tokens)

    def encode(self, text: str, **_options: object) -> list[int]:
        return [len(text)]


def ended(tokens: list[int], words: Any, limit: int = 100000, *, ignore_eos: bool = False, at_once: int = 1) -> Any:
    """Feeds a request of SGLang these tokens; returns its reason and how many of them it took."""
    parameters = SamplingParams(max_new_tokens=limit, ignore_eos=ignore_eos)
    parameters.normalize(words)
    request = schedule_batch.Req("r", "", [1, 2, 3], parameters, vocab_size=100000)
    request.tokenizer = words
    for first in range(0, len(tokens), at_once):
        new = tokens[first : first + at_once]
        request.output_ids.extend(new)
        request.update_finish_state(len(new))
        if request.finished():
            return [request.finished_reason.to_json(), request.finished_len]
    return [None, len(tokens)]


def guards(words: Any) -> dict[str, Any]:
    run_scheduler_process(GUARDS)
    line = b"the same line again\n"
    prose = [(place * 7919) % 251 for place in range(3000)]
    return {
        "equal": ended([5] * 200, words),
        "cycle of 5": ended([1, 2, 3, 4, 5] * 200, words),
        "cycle of 100": ended(list(range(100)) * 8, words),
        "cycle, six at a time": ended(list(range(40)) * 8, words, at_once=6),
        "lines": ended(list(line) * 20, words),
        "short lines": ended(list(b"row 1\n") * 10, words),
        "lines of words": ended([1, 2, 3, 0] * 20, Words()),
        "prose": ended(prose[:250], words),
        "measured": ended([5] * 200, words, ignore_eos=True),
        "length first": ended([5] * 200, words, limit=30),
    }


def requests() -> dict[str, Any]:
    launch(GUARDS)
    chat = object.__new__(serving_chat.OpenAIServingChat)
    chat.reasoning_parser = ""
    chat.template_manager = SimpleNamespace(reasoning_config=None)
    chat.is_gpt_oss = False

    def thinking(settings: dict[str, Any] | None) -> Any:
        # SGLang refuses this one early, after the hook.
        request = ChatCompletionRequest(
            model="m", messages=[{"role": "user", "content": "x"}], chat_template_kwargs=settings, stream=True,
            return_token_ids=True,
        )  # fmt: skip
        try:
            chat._convert_to_internal_request(request)
        except ValueError as error:
            assert "return_token_ids" in str(error)
        return (request.chat_template_kwargs or {}).get("thinking")

    encoder = object.__new__(serving_deepseek_recipe.DeepSeekRecipeChatEncodingAdapter)
    encoder._spec, encoder._default_effort = "dsv41", 75
    seen: list[Any] = []

    def encode(body: dict[str, Any], *, effort_budget: int | None, **_rest: Any) -> list[int]:
        seen.append(body.get("reasoning_effort", effort_budget))
        return []

    encoder.deepseek_recipe = SimpleNamespace(encode=encode)
    for effort in ("low", "high", "max", "none", None, "30", 0.3, "medium"):
        encoder._encode({}, effort=effort)
    encoder._spec = "dsv4"
    encoder._encode({}, effort="max")
    return {
        "thinking": [
            thinking(each)
            for each in (
                None, {"enable_thinking": False}, {"enable_thinking": True},
                {"enable_thinking": True, "thinking": False}, {"enable_thinking": "no"},
            )
        ],
        "efforts": seen,
    }  # fmt: skip


# Small ones.


def products() -> dict[str, Any]:
    both = json.dumps({"mxfp8_b12x": {}})
    found: dict[str, Any] = {}
    try:
        run_scheduler_process(both)
    except AdapterError as error:
        found["without a GPU"] = str(error)

    def old(a: int, b: int, out_dtype: Any = None, backend: Literal["cutlass", "auto"] = "auto") -> str:
        return backend

    fp8_utils._flashinfer_mm_mxfp8_impl = old
    try:
        run_scheduler_process(both)
    except AdapterError as error:
        found["old FlashInfer"] = str(error)

    def product(
        a: int, b: int, out_dtype: Any = None, use_8x4_sf_layout: bool = False,
        backend: Literal["cutlass", "trtllm", "b12x", "auto"] = "auto",
    ) -> list[Any]:  # fmt: skip
        return [a, b, out_dtype, use_8x4_sf_layout, backend]

    fp8_utils._flashinfer_mm_mxfp8_impl = product
    run_scheduler_process(both)
    routed = fp8_utils._flashinfer_mm_mxfp8_impl
    found["routed"] = [
        routed(1, 2, out_dtype=3, use_8x4_sf_layout=layout, backend=backend)
        for layout, backend in ((False, "cutlass"), (False, "auto"), (False, "trtllm"), (True, "cutlass"))
    ]
    return found


def twice() -> str:
    """SGLang applies hooks to a target once, and says nothing of those that come later."""
    try:
        run_scheduler_process(json.dumps({"prefill_empty_cache": {"tokens": 200}}))
    except AdapterError as error:
        return str(error)
    return ""


def prefill() -> bool:
    before = batch_result_processor.SchedulerBatchResultProcessor.process_batch_result_prefill
    run_scheduler_process(json.dumps({"prefill_empty_cache": {"tokens": 100}}))
    after = batch_result_processor.SchedulerBatchResultProcessor.process_batch_result_prefill
    return after is not before and after.__wrapped__ is before


# SGLang's own.


def limited() -> list[int]:
    """SGLANG_MAX_NEW_TOKENS_LIMIT: what becomes of no limit, of a smaller and of a larger one."""
    found = []
    for asked in (None, 100, 100000):
        request = SimpleNamespace(
            rid="r", origin_input_ids=[1] * 10, sampling_params=SimpleNamespace(max_new_tokens=asked, min_new_tokens=0)
        )
        allocator = SimpleNamespace(max_new_tokens_for_memory=lambda _length, wanted, **_rest: wanted)
        some = SimpleNamespace(
            max_new_tokens_limit=32768, max_req_len=262144, max_total_num_tokens=750000, page_size=256,
            kv_shard_widening=1, sliding_window_size=None, chunked_prefill_size=1024,
            token_to_kv_pool_allocator=allocator,
        )  # fmt: skip
        scheduler.Scheduler.init_req_max_new_tokens(some, request)
        found.append(request.sampling_params.max_new_tokens)
    return found


def verified() -> dict[str, Any]:
    """Block verification of drafts, by SGLang's own kernel: how often each word was emitted at the first places."""
    chance = torch.Generator().manual_seed(17)
    drafts = torch.stack([torch.multinomial(row, ROWS, replacement=True, generator=chance) for row in DRAFT], 1)
    candidates = torch.cat([torch.zeros(ROWS, 1, dtype=torch.int64), drafts], 1)
    places = torch.arange(ROWS * SLOTS).view(ROWS, SLOTS)
    predicts = torch.full((ROWS * SLOTS,), -1, dtype=torch.int32)
    accepted = torch.full((ROWS, SLOTS), -1, dtype=torch.int32)
    number = torch.zeros(ROWS, dtype=torch.int32)
    chain_speculative_sampling_triton(
        predicts, accepted, number, candidates, places, None, None,
        torch.rand(ROWS, SLOTS, generator=chance), torch.rand(ROWS, generator=chance),
        TARGET.expand(ROWS, -1, -1).contiguous(), DRAFT.expand(ROWS, -1, -1).contiguous(), 1.0, 1.0, True,
        block_verification=True,
    )  # fmt: skip
    emitted = predicts.view(ROWS, SLOTS)
    return {
        "first": torch.bincount(emitted[:, 0], minlength=WORDS).tolist(),
        "second": torch.bincount(emitted[number >= 1, 1], minlength=WORDS).tolist(),
        "target": TARGET[:2].tolist(),
    }


def main() -> dict[str, Any]:
    from transformers import PreTrainedTokenizerFast

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    words = PreTrainedTokenizerFast(tokenizer_file=str(Path(sys.prefix) / "models/tiny/tokenizer.json"))
    words.additional_stop_token_ids = None  # as SGLang's own get_tokenizer leaves it
    return {
        "guards": guards(words),
        "requests": requests(),
        "products": products(),
        "prefill": prefill(),
        "twice": twice(),
        "limited": limited(),
        "verified": verified(),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
