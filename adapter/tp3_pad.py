"""Attention heads and output groups padded to what the ranks can share, so that V4.1 divides by three.

DeepSeek V4 has 64 query heads in 8 output groups of 8. SGLang takes `heads // ranks` and `groups // ranks`, which loses
heads without a word where it does not fail. Here each rank gets as many whole groups as the largest power of two that
is needed (attention kernels exist for 8, 16, 32, 64 and 128 heads): at three ranks 4 slots, 96 heads and 12 groups.

What is padded is zero, block scales of it are 1. A padded head has q = 0 and so attends evenly, and its group's rows of
wo_a and columns of wo_b are zero: it adds exact zeros to the output. Uninitialised padding would also do that in
exact arithmetic, but holds denormals and NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapter.declare import MAIN, SCHEDULER, Adapter, AdapterError, Option, Options, Symbol, end_process

_MODEL = "sglang.srt.models.deepseek_v4"
_DRAFT = "sglang.srt.models.deepseek_v4_dspark"
_CONFIG = "sglang.srt.configs.model_config:ModelConfig.from_server_args"
ADAPTER = Adapter(
    name="tp3_pad",
    purpose="pads query heads and output groups, so that V4.1 and its draft divide by any number of ranks",
    worth="the model does not start on three ranks without it (zurih, TP3 on three Sparks)",
    processes=frozenset({MAIN, SCHEDULER}),
    symbols=(
        Symbol(_CONFIG, "395f0ee6fd1bc270"),
        Symbol(f"{_MODEL}:MqaAttentionBase.__init__", "e2ce08e40244b4b9"),
        Symbol(f"{_MODEL}:MqaAttentionBase._local_attn_sink", "3cefffb84174d5ff"),
        Symbol(f"{_MODEL}:DeepseekV4ForCausalLM.load_weights", "78e550d1f1c69f5a"),
        Symbol(f"{_MODEL}:_dequant_fp8_wo_a_streaming", "1fa5a27f448bf6b5"),
        Symbol(f"{_DRAFT}:DSparkAttention.__init__", "0ad2e849fd82e3ea"),
        Symbol(f"{_DRAFT}:DeepseekV4ForCausalLMDSpark.load_weights", "64be28adfc07694a"),
        Symbol(f"{_DRAFT}:_dspark_stage_config", "f9ae503709450770"),
    ),
    options={
        "padding": Option(
            "spread",
            "spread: each rank has its share of real groups, 3, 3 and 2; end: the last rank has padding alone",
            choices=("spread", "end"),
        )
    },
)
_REAL = "sparkd_real_heads_and_groups"
_TYPES = frozenset({"deepseek_v4", "deepseek_v41"})
_ATTENTION = re.compile(r"(?P<layer>.*\b(?:attn|self_attn))\.(?P<part>wq_b|wo_a|wo_b|attn_sink)(?:\.(?P<kind>\w+))?")
_WEIGHTS = frozenset({"weight", "weight_packed"})
_SCALES = frozenset({"scale", "weight_scale", "weight_scale_inv"})
_BLOCKS = (1, 32, 128)
"""Rows or columns that share a scale, in the checkpoints that there are."""
_E8M0_ONE = 127
Named = tuple[str, Any]


@dataclass(frozen=True)
class Layout:
    """Where each real group goes. Units of heads and groups, of the whole group of ranks."""

    heads: int
    groups: int
    ranks: int
    padding: str

    def __post_init__(self) -> None:
        if self.groups <= 0 or self.heads % self.groups or self.ranks <= 0:
            raise AdapterError(
                f"{self.heads} heads in {self.groups} output groups for {self.ranks} ranks: not divisible"
            )

    @property
    def divides(self) -> bool:
        return self.groups % self.ranks == 0

    @property
    def slots(self) -> int:
        """Groups of each rank: a power of two, or the exact share where the ranks divide them."""
        if self.divides:
            return self.groups // self.ranks
        return 1 << (-(-self.groups // self.ranks) - 1).bit_length()

    @property
    def padded_groups(self) -> int:
        return self.slots * self.ranks

    @property
    def padded_heads(self) -> int:
        return self.padded_groups * (self.heads // self.groups)

    def places(self) -> tuple[int | None, ...]:
        """The real group of each slot, rank after rank; None for padding."""
        if self.padding == "end":
            return tuple(slot if slot < self.groups else None for slot in range(self.padded_groups))
        found: list[int | None] = []
        first = 0
        for rank in range(self.ranks):
            share = self.groups // self.ranks + (rank < self.groups % self.ranks)
            found += [*range(first, first + share), *([None] * (self.slots - share))]
            first += share
        return tuple(found)


def install(options: Options) -> None:
    from adapter.frame import hook

    padding = str(options["padding"])
    hook(ADAPTER.symbol(_CONFIG), partial(_pad_config, padding), "after")
    # The main process only counts heads and groups; the model is the scheduler's.
    from adapter.frame import process

    if process() == SCHEDULER:
        hook(ADAPTER.symbol(f"{_MODEL}:DeepseekV4ForCausalLM.load_weights"), partial(_pad_weights, padding), "before")
        draft = ADAPTER.symbol(f"{_DRAFT}:DeepseekV4ForCausalLMDSpark.load_weights")
        hook(draft, partial(_pad_weights, padding), "before")


def _pad_config(padding: str, result: Any, server_args: Any, *_arguments: Any, **_options: Any) -> Any:
    """After ModelConfig.from_server_args, for target and draft alike."""
    try:
        return pad_config(result, ranks_of(server_args), padding)
    except AdapterError as error:
        end_process(ADAPTER.name, str(error))


def ranks_of(server_args: Any) -> int:
    """Ranks that share the attention heads. Raises AdapterError where these are not all of the tensor-parallel ones."""
    for name in ("enable_dp_attention", "enable_dsa_prefill_context_parallel", "enable_prefill_context_parallel"):
        if getattr(server_args, name, False):
            raise AdapterError(f"{name.replace('_', '-')} shares attention in another way; leave it out of the profile")
    if (getattr(server_args, "attn_cp_size", None) or 1) != 1:
        raise AdapterError("attn-cp-size above 1 shares attention in another way; leave it out of the profile")
    return int(server_args.tp_size)


def pad_config(model_config: Any, ranks: int, padding: str) -> Any:
    """Let a ModelConfig of SGLang, and the configuration of the checkpoint in it, have the padded numbers."""
    for config in {id(each): each for each in (model_config.hf_config, model_config.hf_text_config)}.values():
        if getattr(config, "model_type", None) not in _TYPES or hasattr(config, _REAL):
            continue
        layout = Layout(config.num_attention_heads, config.o_groups, ranks, padding)
        if layout.divides:
            continue
        setattr(config, _REAL, (layout.heads, layout.groups))
        config.num_attention_heads = layout.padded_heads
        config.o_groups = layout.padded_groups
    padded = model_config.hf_text_config
    if hasattr(padded, _REAL):
        model_config.num_attention_heads = padded.num_attention_heads
    return model_config


def _pad_weights(padding: str, model: Any, weights: Iterable[Named], *arguments: Any, **options: Any) -> Any:
    """Before load_weights: returns the arguments that it is called with instead, None for the same ones."""
    config = model.config
    if not hasattr(config, _REAL):
        return None
    from sglang.srt.runtime_context import get_parallel

    heads, groups = getattr(config, _REAL)
    layout = Layout(heads, groups, get_parallel().attn_tp_size, padding)
    draft = hasattr(model, "stages")
    return (model, _guarded(padded(weights, layout, config, draft=draft)), *arguments), options


def _guarded(weights: Iterator[Named]) -> Iterator[Named]:
    """What SGLang makes of an exception in here names neither tensor nor adapter."""
    try:
        yield from weights
    except AdapterError as error:
        end_process(ADAPTER.name, str(error))


def padded(weights: Iterable[Named], layout: Layout, config: Any, *, draft: bool) -> Iterator[Named]:
    """The tensors of a checkpoint, with those that are per head or group at their padded size. One at a time.

    draft: of the draft's layers, "mtp.", instead of the target's. Raises AdapterError for a tensor of attention whose
    form is not known, and in the end if a layer has not had all of its four.
    """
    if layout.padded_heads != config.num_attention_heads or layout.padded_groups != config.o_groups:
        raise AdapterError(
            f"the model has {config.num_attention_heads} heads in {config.o_groups} groups, expected "
            f"{layout.padded_heads} in {layout.padded_groups} for {layout.ranks} ranks"
        )
    seen: dict[str, set[str]] = {}
    for name, tensor in weights:
        match = _ATTENTION.fullmatch(name)
        if match is None or name.startswith("mtp.") is not draft:
            yield name, tensor
            continue
        seen.setdefault(match["layer"], set()).add(match["part"])
        yield name, expand(name, match["part"], match["kind"] or "", tensor, layout, config)
    for layer, parts in seen.items():
        if missing := {"wq_b", "wo_a", "wo_b", "attn_sink"} - parts:
            raise AdapterError(
                f"{layer}: the checkpoint has no {', '.join(sorted(missing))}, so it stays without values"
            )


def expand(name: str, part: str, kind: str, tensor: Any, layout: Layout, config: Any) -> Any:
    """A tensor with its groups at their places, zero between them, or one for scales. Raises AdapterError."""
    weight = kind in _WEIGHTS or part == "attn_sink"
    if not weight and kind not in _SCALES:
        raise AdapterError(f"{name}: no form of {part} that is known; expected weight or scale")
    if not weight and tensor.numel() == 1:
        return tensor
    axis = 1 if part == "wo_b" else 0
    full = _full(part, layout, config)
    if tensor.dim() != len(full):
        raise AdapterError(f"{name}: it has the shape {_shape(tensor)}, expected {len(full)} dimensions")
    _check_shape(name, tensor, full, weight=weight)
    if part == "attn_sink":
        return _placed(tensor, axis, layout, 0)
    return _placed(tensor, axis, layout, 0 if weight else 1)


def _full(part: str, layout: Layout, config: Any) -> tuple[int, ...]:
    """Shape of the weight in elements."""
    shapes: Mapping[str, tuple[int, ...]] = {
        "attn_sink": (layout.heads,),
        "wq_b": (layout.heads * config.head_dim, config.q_lora_rank),
        "wo_a": (layout.groups * config.o_lora_rank, layout.heads * config.head_dim // layout.groups),
        "wo_b": (config.hidden_size, layout.groups * config.o_lora_rank),
    }
    return shapes[part]


def _check_shape(name: str, tensor: Any, full: tuple[int, ...], *, weight: bool) -> None:
    shape = tuple(tensor.shape)
    if weight:
        kind = str(tensor.dtype).removeprefix("torch.")
        # Two FP4 values in a byte, along the last axis.
        packed = kind in ("uint8", "int8", "float4_e2m1fn_x2")
        if not packed and kind not in ("bfloat16", "float16", "float32", "float8_e4m3fn"):
            raise AdapterError(f"{name}: it is of {kind}, expected bf16, FP8 (e4m3) or packed FP4")
        expected = (*full[:-1], full[-1] // 2) if packed else full
        if shape != expected:
            raise AdapterError(f"{name}: it has the shape {_shape(tensor)}, expected {' x '.join(map(str, expected))}")
        return
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in ("float8_e8m0fnu", "uint8", "float32", "bfloat16"):
        raise AdapterError(f"{name}: its scales are of {kind}, expected e8m0 or float32")
    fits = all(any(size * block == whole for block in _BLOCKS) for size, whole in zip(shape, full, strict=True))
    if not fits:
        blocks = ", ".join(map(str, _BLOCKS))
        raise AdapterError(f"{name}: {_shape(tensor)} scales for {_shape_of(full)} values, expected blocks of {blocks}")


def _placed(tensor: Any, axis: int, layout: Layout, fill: int) -> Any:
    import torch

    if tensor.shape[axis] % layout.groups:
        raise AdapterError(f"{_shape(tensor)} scales do not divide into {layout.groups} groups: a block spans two")
    each = tensor.shape[axis] // layout.groups
    # Copied as bytes where torch has no arithmetic for the type; e8m0 has no zero, and 1 is the exponent's bias.
    plain = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
    value = _E8M0_ONE if fill and tensor.element_size() == 1 else fill
    shape = list(plain.shape)
    shape[axis] = each * layout.padded_groups
    result = torch.full(shape, value, dtype=plain.dtype, device=plain.device)
    for slot, group in enumerate(layout.places()):
        if group is not None:
            result.narrow(axis, slot * each, each).copy_(plain.narrow(axis, group * each, each))
    return result.view(tensor.dtype)


def _shape(tensor: Any) -> str:
    return _shape_of(tuple(tensor.shape))


def _shape_of(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one value"
