"""What of a tensor a rank holds: as SGLang 0.5.23 divides DeepSeek-V4.1, heads and groups padded where they must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.budget.shapes import Shape

WIDTH = {"F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8}
VOCABULARY_STEP = 64
"""A rank's part of the vocabulary is a multiple of this."""
EXPERTS, ATTENTION, VOCABULARY, REPLICATED, TABLES = (
    "experts",
    "attention",
    "vocabulary",
    "on every rank",
    "engram tables",
)
_RULES = (
    (re.compile(r"\.engram\.embed\."), TABLES),
    (re.compile(r"\.ffn\.(shared_)?experts\."), EXPERTS),
    (re.compile(r"\.attn\.(wq_b|wo_a|wo_b|attn_sink)\b"), ATTENTION),
    (re.compile(r"^(embed|head)\.weight$"), VOCABULARY),
)


@dataclass(frozen=True)
class Division:
    """Of one group."""

    world: int
    heads: int
    groups: int
    vocabulary: int

    @classmethod
    def of(cls, config: Mapping[str, Any], world: int) -> Division:
        return cls(world, config["num_attention_heads"], config["o_groups"], config["vocab_size"])

    @property
    def padded_groups(self) -> int:
        """The heads of a group stay together, so that the groups are what is padded.

        To a power of two on each rank: attention's kernels are made for 8, 16, 32, 64 heads, not for 24.
        """
        each = -(-self.groups // self.world)
        return self.world << (each - 1).bit_length()

    @property
    def padded_heads(self) -> int:
        return self.padded_groups * self.heads // self.groups

    @property
    def padded_vocabulary(self) -> int:
        step = VOCABULARY_STEP * self.world
        return -(-self.vocabulary // step) * step

    def resident(self, tensor: Shape) -> tuple[str, float]:
        """The kind of a tensor, and how many bytes of it a rank holds in memory."""
        size = float(tensor.count * WIDTH[tensor.dtype])
        for each in tensor.shape:
            size *= each
        kind = next((name for pattern, name in _RULES if pattern.search(tensor.name)), REPLICATED)
        if kind == TABLES:
            # On NVMe; packed rows are read from there.
            return kind, 0.0
        if kind == EXPERTS:
            return kind, size / self.world
        if kind == ATTENTION:
            if tensor.name.endswith(".wo_a.weight"):
                # Multiplied in bf16: SGLang has no kernel for groups of it in fp8.
                size *= 2
            return kind, size / self.groups * self.padded_groups / self.world
        if kind == VOCABULARY:
            return kind, size / self.vocabulary * self.padded_vocabulary / self.world
        return kind, size
