"""A tiny V4.1: its configuration, and a checkpoint's tensors by the names that DeepSeek gives them. Imports torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

HEADS, GROUPS, HEAD_DIM, ROPE, HIDDEN, Q_LORA, O_LORA = 64, 8, 32, 8, 64, 32, 32
LAYERS, EXPERTS, EXPERT, VOCABULARY = 2, 6, 96, 384
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v41", "torch_dtype": "float32",
    "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "o_groups": GROUPS,
    "head_dim": HEAD_DIM, "qk_rope_head_dim": ROPE, "qk_nope_head_dim": HEAD_DIM - ROPE, "v_head_dim": HEAD_DIM,
    "q_lora_rank": Q_LORA, "o_lora_rank": O_LORA, "kv_lora_rank": HEAD_DIM, "num_key_value_heads": 1,
    "vocab_size": VOCABULARY, "n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": EXPERT, "intermediate_size": EXPERT, "n_group": 1, "topk_group": 1,
    "topk_method": "noaux_tc", "scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
    "compress_ratios": [0] * (LAYERS + 1), "n_hash_layers": 0, "num_hash_layers": 0, "window_size": 16,
    "sliding_window": 16, "hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-6, "hc_pre_from_prev_sublayer": True,
    "q_head_norm": False, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 8, "max_position_embeddings": 256,
    "rope_scaling": None, "rope_theta": 10000, "compress_rope_theta": 40000, "rms_norm_eps": 1e-6,
    "vision_n_layers": 0, "engram_layer_ids": [],
    "dspark_block_size": 4, "dspark_markov_rank": 8, "dspark_noise_token_id": 2, "dspark_target_layer_ids": [0],
    "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
HC = (2 + CONFIG["hc_mult"]) * CONFIG["hc_mult"]


def write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))


def attention(chance: torch.Generator, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance) * shape[-1] ** -0.5

    yield f"{prefix}.attn_sink", torch.randn(HEADS, generator=chance)
    yield f"{prefix}.wq_a.weight", drawn(Q_LORA, HIDDEN)
    yield f"{prefix}.wkv.weight", drawn(HEAD_DIM, HIDDEN)
    yield f"{prefix}.q_norm.weight", 1 + drawn(1, Q_LORA)[0]
    yield f"{prefix}.kv_norm.weight", 1 + drawn(1, HEAD_DIM)[0]
    yield f"{prefix}.wq_b.weight", drawn(HEADS * HEAD_DIM, Q_LORA)
    yield f"{prefix}.wo_a.weight", drawn(GROUPS * O_LORA, HEADS * HEAD_DIM // GROUPS).bfloat16()
    yield f"{prefix}.wo_b.weight", drawn(HIDDEN, GROUPS * O_LORA)


def released(chance: torch.Generator, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """With wo_a as it is released: FP8 with a scale per block, which SGLang multiplies out when it loads."""
    for name, tensor in attention(chance, prefix):
        if not name.endswith("wo_a.weight"):
            yield name, tensor
            continue
        yield name, tensor.to(torch.float8_e4m3fn)
        scales = torch.randint(124, 129, [size // 32 for size in tensor.shape], dtype=torch.uint8, generator=chance)
        yield name.removesuffix("weight") + "scale", scales.view(torch.float8_e8m0fnu)


def checkpoint(seed: int = 7) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the target, and one layer of a draft's attention."""
    chance = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance) * shape[-1] ** -0.5

    yield "embed.weight", torch.randn(VOCABULARY, HIDDEN, generator=chance)
    for layer in range(LAYERS):
        prefix = f"layers.{layer}"
        yield from released(chance, f"{prefix}.attn")
        for part in ("attn", "ffn"):
            yield f"{prefix}.hc_{part}_fn", drawn(HC, CONFIG["hc_mult"] * HIDDEN)
            yield f"{prefix}.hc_{part}_base", torch.randn(HC, generator=chance)
            yield f"{prefix}.hc_{part}_scale", torch.rand(3, generator=chance)
            yield f"{prefix}.{part}_norm.weight", 1 + drawn(1, HIDDEN)[0]
        yield f"{prefix}.ffn.gate.weight", drawn(EXPERTS, HIDDEN)
        yield f"{prefix}.ffn.gate.bias", torch.randn(EXPERTS, generator=chance)
        for expert in (*(f"experts.{number}" for number in range(EXPERTS)), "shared_experts"):
            yield f"{prefix}.ffn.{expert}.w1.weight", drawn(EXPERT, HIDDEN)
            yield f"{prefix}.ffn.{expert}.w2.weight", drawn(HIDDEN, EXPERT)
            yield f"{prefix}.ffn.{expert}.w3.weight", drawn(EXPERT, HIDDEN)
    yield from released(chance, "mtp.0.attn")
    yield "norm.weight", 1 + drawn(1, HIDDEN)[0]
    yield "head.weight", drawn(VOCABULARY, HIDDEN)


def blocks(seed: int = 9) -> Iterator[tuple[str, torch.Tensor]]:
    """The attention of layer 0 in FP8 with e8m0 scales of 32 x 32 blocks, but for wo_a as loaded by SGLang, in bf16."""
    chance = torch.Generator().manual_seed(seed)
    for name, tensor in attention(chance, "layers.0.attn"):
        if not name.endswith(("wq_b.weight", "wo_b.weight", "attn_sink", "wo_a.weight")):
            continue
        if not name.endswith(("wq_b.weight", "wo_b.weight")):
            yield name, tensor
            continue
        yield name, tensor.to(torch.float8_e4m3fn)
        shape = tuple(size // 32 for size in tensor.shape)
        exponents = torch.randint(100, 126, shape, dtype=torch.uint8, generator=chance)
        yield name.removesuffix("weight") + "scale", exponents.view(torch.float8_e8m0fnu)
