"""The tensors of a DeepSeek-V4.1 checkpoint, from the numbers of its config.json alone.

Dense weights are e4m3 with a scale (e8m0) for each 32 x 32; routed experts two e2m1 in a byte, with a scale for each 32
values of a row; norms, routers and vision bf16; hyper-connections and sinks fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BLOCK = 32


@dataclass(frozen=True)
class Shape:
    """`count` tensors of one name, but for a number in it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int = 1


def tensors(config: Mapping[str, Any], vision: Mapping[str, Any]) -> Iterator[Shape]:
    """All of them; experts of a layer are counted together."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield Shape("embed.weight", "BF16", (vocabulary, hidden))
    yield Shape("head.weight", "BF16", (vocabulary, hidden))
    yield Shape("norm.weight", "BF16", (hidden,))
    yield Shape("image_start", "BF16", (hidden,), 3)
    for layer in range(config["num_hidden_layers"]):
        yield from _layer(config, f"layers.{layer}", config["n_routed_experts"])
        yield from _sources(config, layer)
        yield from _engram(config, layer)
    yield from _draft(config)
    yield from _vision(vision, hidden)


def _layer(config: Mapping[str, Any], prefix: str, experts: int) -> Iterator[Shape]:
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    width = config["num_attention_heads"] * config["head_dim"]
    latent = config["num_key_value_heads"] * config["head_dim"]
    groups = config["o_groups"] * config["o_lora_rank"]
    yield from _dense(f"{prefix}.attn.wq_a", config["q_lora_rank"], hidden)
    yield from _dense(f"{prefix}.attn.wq_b", width, config["q_lora_rank"])
    yield from _dense(f"{prefix}.attn.wkv", latent, hidden)
    yield from _dense(f"{prefix}.attn.wo_a", groups, width // config["o_groups"])
    yield from _dense(f"{prefix}.attn.wo_b", hidden, groups)
    yield Shape(f"{prefix}.attn.q_norm.weight", "BF16", (config["q_lora_rank"],))
    yield Shape(f"{prefix}.attn.kv_norm.weight", "BF16", (latent,))
    yield Shape(f"{prefix}.attn.attn_sink", "F32", (config["num_attention_heads"],))
    copies = config["hc_mult"]
    outputs = copies * (copies + 2)
    for each in ("attn", "ffn"):
        yield Shape(f"{prefix}.hc_{each}_fn", "F32", (outputs, copies * hidden))
        yield Shape(f"{prefix}.hc_{each}_base", "F32", (outputs,))
        yield Shape(f"{prefix}.hc_{each}_scale", "F32", (3,))
        yield Shape(f"{prefix}.{each}_norm.weight", "BF16", (hidden,))
    yield Shape(f"{prefix}.ffn.gate.weight", "BF16", (experts, hidden))
    yield Shape(f"{prefix}.ffn.gate.bias", "F32", (experts,), 2)
    for name, rows, columns in (("w1", inner, hidden), ("w2", hidden, inner), ("w3", inner, hidden)):
        yield Shape(f"{prefix}.ffn.experts.0.{name}.weight", "I8", (rows, columns // 2), experts)
        yield Shape(f"{prefix}.ffn.experts.0.{name}.scale", "F8_E8M0", (rows, _blocks(columns)), experts)
        yield from _dense(f"{prefix}.ffn.shared_experts.{name}", rows, columns)


def _sources(config: Mapping[str, Any], layer: int) -> Iterator[Shape]:
    """What layers have that choose tokens for attention, and those whose keys and values others use."""
    prefix, hidden, latent = f"layers.{layer}.attn", config["hidden_size"], config["head_dim"]
    heads, size = config["index_n_heads"], config["index_head_dim"]
    if layer in config["index_source_layer_ids"]:
        yield from _dense(f"{prefix}.indexer.wq_b", heads * size, config["q_lora_rank"])
        yield Shape(f"{prefix}.indexer.weights_proj.weight", "BF16", (heads, hidden))
    if layer in config["kv_source_layer_ids"]:
        yield Shape(f"{prefix}.indexer.wk.weight", "BF16", (size, latent))
        yield Shape(f"{prefix}.indexer.k_norm.weight", "BF16", (size,))
        yield Shape(f"{prefix}.compressor.wkv.weight", "BF16", (latent, hidden))
        yield Shape(f"{prefix}.compressor.norm.weight", "BF16", (latent,))
        if config["compress_ratios"][layer] > 1:
            yield Shape(f"{prefix}.compressor.wgate.weight", "BF16", (latent, hidden))


def _engram(config: Mapping[str, Any], layer: int) -> Iterator[Shape]:
    if layer not in config["engram_layer_ids"]:
        return
    prefix, hidden, copies = f"layers.{layer}.engram", config["hidden_size"], config["hc_mult"]
    rows = config["engram_num_embeddings"][list(config["engram_layer_ids"]).index(layer)]
    dim = config["engram_head_dim"]
    columns = (config["engram_max_ngram_size"] - 1) * config["engram_n_heads"]
    yield Shape(f"{prefix}.embed.weight", "F8_E4M3", (rows, dim))
    yield Shape(f"{prefix}.embed.scale", "F8_E8M0", (rows, _blocks(dim)))
    yield Shape(f"{prefix}.q_weight", "BF16", (copies, hidden), 2)
    yield from _dense(f"{prefix}.wkv", hidden * (copies + 1), columns * dim)


def _draft(config: Mapping[str, Any]) -> Iterator[Shape]:
    layers, hidden = config["num_nextn_predict_layers"], config["hidden_size"]
    for layer in range(layers):
        yield from _layer(config, f"mtp.{layer}", config["dspark_n_routed_experts"])
    if layers:
        rank, last = config["dspark_markov_rank"], f"mtp.{layers - 1}"
        yield Shape("mtp.0.main_norm.weight", "BF16", (hidden,))
        yield from _dense("mtp.0.main_proj", hidden, hidden * len(config["dspark_target_layer_ids"]))
        yield Shape(f"{last}.norm.weight", "BF16", (hidden,))
        yield Shape(f"{last}.markov_head.embed.weight", "BF16", (config["vocab_size"], rank), 2)
        yield Shape(f"{last}.confidence_head.proj.weight", "BF16", (1, hidden + rank))


def _vision(vision: Mapping[str, Any], hidden: int) -> Iterator[Shape]:
    if not vision:
        return
    width, inner, layers = vision["hidden_size"], vision["intermediate_size"], vision["num_hidden_layers"]
    yield Shape("vision.patch_embed.proj.weight", "BF16", (width, 3 * vision["patch_size"] ** 2))
    yield Shape("vision.patch_embed.proj.bias", "BF16", (width,))
    for name, shape in (
        ("attn.wqkv.weight", (3 * width, width)), ("attn.wqkv.bias", (3 * width,)), ("attn.wo.weight", (width, width)),
        ("attn.wo.bias", (width,)), ("mlp.w1.weight", (2 * inner, width)), ("mlp.w2.weight", (width, inner)),
        ("norm1.weight", (width,)), ("norm2.weight", (width,)),
    ):  # fmt: skip
        yield Shape(f"vision.blocks.0.{name}", "BF16", shape, layers)
    yield Shape("vision.norm.weight", "BF16", (width,))
    yield Shape("aligner.w1.weight", "BF16", (hidden, width * vision["downsample_ratio"] ** 2))
    yield Shape("aligner.w2.weight", "BF16", (hidden, hidden))
    yield Shape("aligner.w1.bias", "BF16", (hidden,), 2)


def _dense(prefix: str, rows: int, columns: int) -> Iterator[Shape]:
    yield Shape(f"{prefix}.weight", "F8_E4M3", (rows, columns))
    yield Shape(f"{prefix}.scale", "F8_E8M0", (_blocks(rows), _blocks(columns)))


def _blocks(size: int) -> int:
    return -(-size // BLOCK)
