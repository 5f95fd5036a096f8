"""Engram of SGLang with its own hasher, with and without engram_prefetch, over steps of a made-up sequence."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers import engram
from sglang.srt.model_executor.forward_batch_info import ForwardMode

HIDDEN, STREAMS, COLUMNS, DIM = 64, 4, 24, 256
LAYERS = (1, 3)
STEPS = ((0, 9), (9, 1), (10, 1), (11, 30), (41, 1))


def layout() -> engram.EngramLayout:
    config = SimpleNamespace(
        engram_layer_ids=LAYERS, engram_max_ngram_size=3, engram_n_heads=12, engram_vocab_size=50,
        engram_num_embeddings=(), engram_head_dim=DIM,
    )  # fmt: skip
    made = engram.EngramLayout.from_config(config)
    assert made is not None
    sizes = tuple(made.column_bounds(index)[-1] for index in range(len(LAYERS)))
    return engram.EngramLayout(
        max_ngram_size=made.max_ngram_size, layer_ids=made.layer_ids, num_embeddings=sizes, primes=made.primes,
        n_heads=made.n_heads, head_dim=made.head_dim,
    )  # fmt: skip


class Model:
    """The hasher and two Engram layers, with values in their tables."""

    def __init__(self, tokenizer: Path) -> None:
        from transformers import PreTrainedTokenizerFast

        words = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer))
        kept = layout()
        _, size = engram.build_compressed_token_map(words)
        self.hasher = engram.EngramHasher(kept, words, 2, size)
        self.hasher.init_history(4, "cpu")
        config = SimpleNamespace(rms_norm_eps=1e-6, hidden_size=HIDDEN, hc_mult=STREAMS)
        self.layers = [engram.Engram(config, layer, kept) for layer in LAYERS]
        chance = torch.Generator().manual_seed(11)
        for layer in self.layers:
            rows = layer.embed.rows
            layer.embed.weight.data = torch.randn(rows, DIM, generator=chance).to(torch.float8_e4m3fn)
            scales = torch.randint(120, 130, (rows, DIM // 32), dtype=torch.uint8, generator=chance)
            layer.embed.scale.data = scales.view(torch.float8_e8m0fnu)
            drawn = torch.randn(layer.wkv.weight.shape, generator=chance) * 0.01
            layer.wkv.weight.data = drawn.bfloat16()

    def step(self, begin: int, number: int) -> list[torch.Tensor]:
        ids = torch.tensor([(place * 37 + 5) % 384 for place in range(begin, begin + number)])
        batch = SimpleNamespace(
            forward_mode=ForwardMode.EXTEND, positions=torch.arange(begin, begin + number),
            req_pool_indices=torch.tensor([1]), extend_seq_lens=torch.tensor([number]),
            extend_start_loc=torch.tensor([0]), extend_seq_lens_cpu=[number], engram_history=None, out_cache_loc=None,
            engram_staged_rows=None,
        )  # fmt: skip
        hashes = self.hasher(ids, batch)
        x = torch.linspace(-1, 1, number * STREAMS * HIDDEN).view(number, STREAMS, HIDDEN)
        found = []
        for layer in self.layers:
            x = layer(x, hashes[:, layer.layer_hash_index], batch, input_ids=ids)
            found.append(x)
        # As a model that goes on with its last tokens alone: these ids were never asked for.
        found.append(self.layers[0](x[-1:], hashes[-1:, 0], batch, input_ids=ids[-1:]))
        return found


def sequence(tokenizer: Path) -> list[torch.Tensor]:
    logging.disable(logging.INFO)
    model = Model(tokenizer)
    with torch.no_grad():
        return [value for begin, number in STEPS for value in model.step(begin, number)]


def run_scheduler_process(mode: str) -> Any:
    """Installs it; returns what counts."""
    import json

    from adapter import engram_prefetch, plugin

    made: list[engram_prefetch.Prefetch] = []

    class Kept(engram_prefetch.Prefetch):
        def __init__(self, *, check: bool) -> None:
            super().__init__(check=check)
            made.append(self)

    engram_prefetch.Prefetch = Kept  # type: ignore[misc]
    plugin.install(json.dumps({"engram_prefetch": {"mode": mode}}), os.environ)
    return made[0]


def compared(tokenizer: Path, before: list[torch.Tensor], mode: str, *, spoil: bool = False) -> dict[str, Any]:
    prefetch = run_scheduler_process(mode)
    order: list[tuple[str, int]] = []
    real = engram.EngramEmbedding._owned_rows

    def watched(table: Any, ids: torch.Tensor) -> torch.Tensor:
        order.append((threading.current_thread().name.rpartition("_")[0], table.rows))
        found = real(table, ids)
        beside = threading.current_thread() is not threading.main_thread()
        return found + 1 if spoil and beside else found

    engram.EngramEmbedding._owned_rows = watched
    after = sequence(tokenizer)
    beside = [rows for name, rows in order if name == "engram-prefetch"]
    first, second = layout().num_embeddings
    return {
        "equal": all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(before, after, strict=True)),
        "order kept": beside == [first, second] * len(STEPS),
        "here": len(order) - len(beside),
        **{name: getattr(prefetch, name) for name in ("started", "used", "unused", "compared", "different")},
    }
