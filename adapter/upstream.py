"""What others added to SGLang and the pinned release has by itself: settings of the profile, and what they rest on.

Nothing here is installed. `python -m adapter check` and the tests compare the digests, so that a later release that has
lost one, or does it in another way, is noticed before it serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapter.declare import Symbol

_OPS = "sglang.kernels.ops"
_DSV4 = "sglang.srt.layers.attention.dsv4"


@dataclass(frozen=True)
class Upstream:
    """setting: as the profile has it, "" where there is none to set."""

    name: str
    setting: str
    does: str
    symbols: tuple[Symbol, ...]


UPSTREAM = (
    Upstream(
        "block_verify",
        "arguments.speculative-use-block-verification",
        "accepts a block of drafts together, with the same distribution",
        (
            Symbol(f"{_OPS}.speculative.reject_sampling:speculative_sampling_classic_kernel", "aea4fbe1c251b706"),
            Symbol(f"{_OPS}.speculative.reject_sampling:chain_speculative_sampling_triton", "c9e07dafcdd5a1e3"),
        ),
    ),
    Upstream(
        "indexer_chunked",
        "",
        "scores at most 2 GiB of the indexer's logits, and 4096 rows on sm_12x, at a time",
        (
            Symbol(f"{_DSV4}.v41_indexer.scoring:_DEEP_GEMM_SCORE_BUDGET_BYTES", "cea117a9fb85ec00"),
            Symbol(f"{_DSV4}.metadata:_SM120_INDEXER_M_CHUNK", "c0df1ea649ae65af"),
            Symbol(f"{_DSV4}.metadata:plan_indexer_row_chunks", "35e3c7f87e2fa77a"),
        ),
    ),
    Upstream(
        "page_split",
        "environment.SGLANG_OPT_SM120_DIRECT_SWA_KV",
        "keeps the sliding window's KV in pages of 64 tokens on sm_12x, or splits pages of 256",
        (
            Symbol(f"{_OPS}.attention.flash_mla_sm120:_split_kv_pages_to_64", "d998ed713c0ee8a2"),
            Symbol(f"{_OPS}.attention.flash_mla_sm120:_sm120_sparse_decode_fwd", "c8c04c04677d9367"),
        ),
    ),
    Upstream(
        "spec_tp_sync",
        "environment.SGLANG_SPEC_TP_SYNC",
        "says which of the speculative decisions rank 0 sends to the others",
        (Symbol("sglang.srt.speculative.spec_tp_sync:parse_spec_tp_sync", "8253998116dda9c5"),),
    ),
    Upstream(
        "completion_cap",
        "environment.SGLANG_MAX_NEW_TOKENS_LIMIT",
        "caps the tokens of an answer, whatever a request asks for",
        (Symbol("sglang.srt.managers.scheduler:Scheduler.init_req_max_new_tokens", "bfa9cc26a9d9f05c"),),
    ),
)
