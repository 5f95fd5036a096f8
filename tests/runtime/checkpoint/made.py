"""A checkpoint that is made up: index, shards and Engram tables in the format of the real one, with random bytes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.engram.ownership import column_bounds

STEP = 4 << 20


@dataclass(frozen=True)
class Table:
    """The numbers of an Engram table, small: as in config.json."""

    layers: tuple[int, ...] = (1, 14)
    vocabulary: int = 40
    heads: int = 4
    orders: int = 3
    dim: int = 256

    @property
    def config(self) -> dict[str, object]:
        return {
            "engram_layer_ids": list(self.layers),
            "engram_vocab_size": self.vocabulary,
            "engram_n_heads": self.heads,
            "engram_max_ngram_size": self.orders + 1,
            "engram_head_dim": self.dim,
            "engram_num_embeddings": self.rows,
        }

    @property
    def bounds(self) -> list[tuple[int, ...]]:
        return column_bounds(self.vocabulary, self.orders, self.heads, len(self.layers))

    @property
    def rows(self) -> list[int]:
        return [bounds[-1] for bounds in self.bounds]


def shard(path: Path, tensors: Mapping[str, tuple[str, Sequence[int], int]], seed: int) -> None:
    """A safetensors file with tensors of (type, shape, bytes of an element), whose content is random."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (kind, shape, width) in tensors.items():
        size = width
        for each in shape:
            size *= each
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for piece in random_bytes(offset, seed):
            file.write(piece)


def random_bytes(size: int, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    while size:
        step = min(size, STEP)
        yield chance.randbytes(step)
        size -= step


def checkpoint(directory: Path, table: Table | None = None, *, seed: int = 1, filler: int = 50_000) -> Path:
    """Two shards with an Engram table each, one with `filler` bytes of weights, and the files beside them."""
    table = table or Table()
    directory.mkdir(parents=True)
    where: dict[str, str] = {}
    names = [
        f"model-{number:05}-of-{len(table.layers) + 1:05}.safetensors" for number in range(1, len(table.layers) + 2)
    ]
    plain: dict[str, tuple[str, Sequence[int], int]] = {
        "embed.weight": ("BF16", [filler // 200, 100], 2),
        "norm.weight": ("BF16", [10], 2),
    }
    shard(directory / names[0], plain, seed)
    where |= dict.fromkeys(plain, names[0])
    for number, (layer, rows) in enumerate(zip(table.layers, table.rows, strict=True), 1):
        prefix = f"layers.{layer}.engram"
        tensors: dict[str, tuple[str, Sequence[int], int]] = {
            # Something lies in front of the table, so that no place in the file is round.
            f"{prefix}.q_weight": ("BF16", [4, 5], 2),
            f"{prefix}.embed.weight": ("F8_E4M3", [rows, table.dim], 1),
            f"{prefix}.embed.scale": ("F8_E8M0", [rows, table.dim // 32], 1),
        }
        shard(directory / names[number], tensors, seed + number)
        where |= dict.fromkeys(tensors, names[number])
    config = {"architectures": ["DeepseekV41ForCausalLM"], "text_config": table.config}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}), encoding="utf-8")
    (directory / "encoding").mkdir()
    (directory / "encoding/README.md").write_text("How to speak to it.\n", encoding="utf-8")
    return directory


def digests(directory: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}
