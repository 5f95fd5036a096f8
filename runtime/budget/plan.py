"""What a rank takes, and whether that fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.budget.division import TABLES, WIDTH, Division
from runtime.budget.published import GIB, HEAD_BYTES, KV_BYTES_PER_TOKEN, MEMORY, NCCL_BYTES, UNCOUNTED
from runtime.budget.shapes import Shape


@dataclass(frozen=True)
class Settings:
    """What of a profile decides about memory."""

    profile: str
    tokens: int
    """In the KV cache of all requests together (max-total-tokens)."""
    fraction: float
    """mem-fraction-static: what of the memory weights and KV cache may take."""
    expert_parallel: int
    rows_on_disk: bool = False
    """Whether the adapter is on by which Engram's tables stay on NVMe (adapters.engram_rows)."""


@dataclass(frozen=True)
class Budget:
    """Bytes of rank 0, which takes most."""

    world: int
    weights: Mapping[str, int]
    """By kind of tensor."""
    kv: int
    nccl: int
    head: int
    memory: int
    uncounted: int
    table_rows: int
    """Bytes of packed rows on this rank's disk."""
    faults: tuple[str, ...]

    @property
    def resident(self) -> int:
        return sum(self.weights.values())

    @property
    def total(self) -> int:
        return self.resident + self.kv + self.nccl + self.head

    @property
    def left(self) -> int:
        return self.memory - self.total

    @property
    def fits(self) -> bool:
        return not self.faults


def plan(
    tensors: Iterable[Shape], config: Mapping[str, Any], settings: Settings, world: int,
    *, memory: int = MEMORY, uncounted: int = UNCOUNTED,
) -> Budget:  # fmt: skip
    """What rank 0 of `world` takes."""
    division = Division.of(config, world)
    weights: dict[str, float] = {}
    tables = 0
    for tensor in tensors:
        kind, size = division.resident(tensor)
        weights[kind] = weights.get(kind, 0.0) + size
        if kind == TABLES:
            tables += tensor.count * WIDTH[tensor.dtype] * tensor.shape[0] * tensor.shape[1]
    by_kind = {kind: round(size) for kind, size in weights.items() if kind != TABLES}
    kv = round(settings.tokens * KV_BYTES_PER_TOKEN)
    nccl = NCCL_BYTES if world > 1 else 0
    found = Budget(world, by_kind, kv, nccl, HEAD_BYTES, memory, uncounted, tables // world, ())
    return Budget(**{**vars(found), "faults": tuple(_faults(found, config, settings, memory, uncounted))})


def _faults(
    budget: Budget, config: Mapping[str, Any], settings: Settings, memory: int, uncounted: int
) -> Iterable[str]:
    static = budget.resident + budget.kv
    if budget.left < uncounted:
        yield (
            f"rank 0 takes {budget.total / GIB:.1f} GiB of {memory / GIB:.1f}, and {uncounted / GIB:.1f} are needed "
            f"beside it: {(uncounted - budget.left) / GIB:.1f} GiB too much"
        )
    if static > settings.fraction * memory:
        yield (
            f"weights and KV cache take {static / GIB:.1f} GiB, and mem-fraction-static {settings.fraction:g} admits "
            f"{settings.fraction * memory / GIB:.1f}"
        )
    for key in ("n_routed_experts", "dspark_n_routed_experts"):
        count = config.get(key, 0)
        if count % settings.expert_parallel:
            yield f"{key} {count} does not divide by ep-size {settings.expert_parallel}"
    if budget.world % settings.expert_parallel:
        yield f"{budget.world} ranks do not divide by ep-size {settings.expert_parallel}"
    inner = config["moe_intermediate_size"] * settings.expert_parallel
    if inner % budget.world:
        yield f"moe_intermediate_size {config['moe_intermediate_size']} does not divide by {budget.world} ranks"
