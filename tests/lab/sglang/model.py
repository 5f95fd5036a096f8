"""A model small enough for three ranks on two cores: a Llama of two layers with random weights, as real files.

It speaks: the rows of the output projection are zero but for printable characters, so that whatever it generates is
readable text, though without a meaning, and the same for the same prompt. Written with the standard library alone, from
the formats of safetensors (eight bytes with the length of a JSON header, the header, the data) and of Hugging Face
(config.json, tokenizer.json, an index of shards).
"""

from __future__ import annotations

import array
import json
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEED = 20
HIDDEN, INTERMEDIATE, LAYERS = 96, 192, 2
# Divisible by three ranks: query heads, key heads, intermediate size and vocabulary.
HEADS, KEY_HEADS, HEAD_SIZE, VOCABULARY = 6, 3, 16, 384
CONTEXT = 1024
SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
BEGIN, END = 256, 257
SHARDS = 6
"""More than one file, so that there is progress to be seen while they are loaded."""
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
Tensor = tuple[str, tuple[int, ...], "array.array[float]"]


def tensors() -> Iterator[Tensor]:
    """Name, shape and values, row by row, of each weight."""
    chance = random.Random(SEED)

    def drawn(name: str, rows: int, columns: int, scale: float) -> Tensor:
        values = (chance.gauss(0.0, scale) for _ in range(rows * columns))
        return name, (rows, columns), array.array("f", values)

    def ones(name: str) -> Tensor:
        return name, (HIDDEN,), array.array("f", [1.0]) * HIDDEN

    yield drawn("model.embed_tokens.weight", VOCABULARY, HIDDEN, 1.0)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield ones(f"{prefix}.input_layernorm.weight")
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.k_proj", KEY_HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.v_proj", KEY_HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD_SIZE),
        ):
            yield drawn(f"{prefix}.{name}.weight", rows, columns, columns**-0.5)
        yield ones(f"{prefix}.post_attention_layernorm.weight")
        yield drawn(f"{prefix}.mlp.gate_proj.weight", INTERMEDIATE, HIDDEN, HIDDEN**-0.5)
        yield drawn(f"{prefix}.mlp.up_proj.weight", INTERMEDIATE, HIDDEN, HIDDEN**-0.5)
        yield drawn(f"{prefix}.mlp.down_proj.weight", HIDDEN, INTERMEDIATE, INTERMEDIATE**-0.5)
    yield ones("model.norm.weight")
    name, shape, values = drawn("lm_head.weight", VOCABULARY, HIDDEN, HIDDEN**-0.5)
    printable = range(0x20, 0x7F)
    for token in (token for token in range(VOCABULARY) if token not in printable):
        values[token * HIDDEN : (token + 1) * HIDDEN] = array.array("f", [0.0]) * HIDDEN
    yield name, shape, values


def byte_alphabet() -> list[str]:
    """What stands for each byte in a byte-level tokenizer: itself if it can be seen, or a character from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in visible else next(spare)) for byte in range(256)]


def tokenizer() -> dict[str, Any]:
    """One token per byte, whose id is the byte, then the special ones, and unused ones up to the model's size."""
    names = [*byte_alphabet(), *SPECIAL]
    names += [f"<|unused{number}|>" for number in range(VOCABULARY - len(names))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": number, "content": names[number], **flags} for number in range(256, VOCABULARY)],
        "pre_tokenizer": level, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {name: number for number, name in enumerate(names)}, "merges": [],
        },
    }  # fmt: skip


def descriptions() -> dict[str, dict[str, Any]]:
    """The files beside the weights, by name."""
    ends = {"bos_token_id": BEGIN, "eos_token_id": END}
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", **ends,
            "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "head_dim": HEAD_SIZE,
            "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        },
        "generation_config.json": ends,
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[0], "eos_token": SPECIAL[1],
            "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False, "chat_template": CHAT,
        },
    }  # fmt: skip


def safetensors(found: list[Tensor]) -> bytes:
    """A file with these tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape, values in found:
        raw = values.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write(directory: Path) -> None:
    """All files of the model."""
    directory.mkdir(parents=True)
    for name, description in descriptions().items():
        (directory / name).write_text(json.dumps(description, indent=1, ensure_ascii=False), encoding="utf-8")
    every = list(tensors())
    where: dict[str, str] = {}
    for shard in range(SHARDS):
        name = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        some = every[shard * len(every) // SHARDS : (shard + 1) * len(every) // SHARDS]
        (directory / name).write_bytes(safetensors(some))
        where |= dict.fromkeys((tensor[0] for tensor in some), name)
    size = sum(len(values) * values.itemsize for _, _, values in every)
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
