"""wo_a, the grouped output projection, read as FP8 where that gives bf16's very bits.

SGLang keeps this weight in bf16, which it made from the checkpoint's FP8 with a scale per 32x32 block. A twin in FP8
is kept for a layer only if every bit of the bf16 weight comes back from it. It is then the same weight: the product is
that of the bf16 weight, summed in float32 in an order that depends on the shape alone.
"""

from __future__ import annotations

from typing import Any

from adapter.declare import SCHEDULER, Adapter, Option, Options, Symbol

_MODEL = "sglang.srt.models.deepseek_v4"
_MATMUL = f"{_MODEL}:_apply_wo_a_bf16_matmul"
_TARGET = f"{_MODEL}:DeepseekV4ForCausalLM"
_DRAFT = "sglang.srt.models.deepseek_v4_dspark:DeepseekV4ForCausalLMDSpark"
SMALL, MID, TILED = 8, 16, 64
"""Rows of the modes. MID: up to which the kernel was faster than bf16 on an H200 (adapter.bench). TILED: up to which
reading the twin once per 32 rows is less than making bf16 of it first."""
ADAPTER = Adapter(
    name="wo_a_w8",
    purpose="reads wo_a as FP8 where that is the same weight bit for bit",
    worth="wo_a 1.3 times as fast up to 8 rows, 1.1 at 16 (H200, adapter.bench); whole engine not run",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(_MATMUL, "4b6b43bbdd8f0cfe"),
        Symbol(f"{_TARGET}.post_load_weights", "f46c6d0afe621ca5"),
        Symbol(f"{_DRAFT}.post_load_weights", "fc68a01a16910cea"),
        Symbol("sglang.srt.models.deepseek_v4_dspark:DSparkAttention.forward", "f4e6862577e2e216"),
    ),
    options={
        "mode": Option(
            "mid",
            f"small: up to {SMALL} rows; mid: up to {MID}; drop: all rows, from the twin alone, and the bf16 weight is "
            "given back: less memory, slower prefill",
            choices=("small", "mid", "drop"),
        )
    },
    shares=("kernels",),
)


def path() -> str:
    from adapter.kernels.support import path

    return path("bf16 weight")


def install(options: Options) -> None:
    import sglang.srt.models.deepseek_v4_dspark  # noqa: F401 - the registry reaches names that are imported already

    from adapter.frame import hook

    twins = Twins(str(options["mode"]))
    hook(ADAPTER.symbol(_MATMUL), twins.multiply, "around")
    for owner in (_TARGET, _DRAFT):
        hook(ADAPTER.symbol(f"{owner}.post_load_weights"), twins.loaded, "after")


class Twins:
    """The twin of each layer's weight, made once it is loaded. taken: calls through a twin; kept, refused: layers."""

    def __init__(self, mode: str) -> None:
        self._drop = mode == "drop"
        self._rows = {"small": SMALL, "mid": MID, "drop": TILED}[mode]
        self._twins: dict[int, Any] = {}
        self.taken = self.kept = self.refused = 0

    def loaded(self, _result: None, model: Any, *_arguments: Any, **_options: Any) -> None:
        """After a model's weights are there: before SGLang sizes its caches by the memory that is left."""
        from adapter.kernels import support

        layers = [module for module in model.modules() if hasattr(module, "wo_a") and hasattr(module, "o_lora_rank")]
        if why := support.obstacle():
            support.say(ADAPTER.name, f"{why}, so wo_a is read as bf16")
            return
        for layer in layers:
            self.keep(layer.wo_a.weight, layer.n_local_groups, drop=not getattr(layer, "use_fused_wo_a", False))
        support.say(ADAPTER.name, f"{self.kept} layers have an exact twin, {self.refused} are read as bf16")

    def keep(self, weight: Any, groups: int, *, drop: bool = True) -> None:
        """Make the twin of a layer's weight [groups * columns, inner], if it is exact. drop: whether nobody else in the
        layer reads the weight."""
        import torch

        from adapter.kernels import support
        from adapter.kernels.blockfp8 import exact, quantized

        key = _key(weight)
        if weight.dtype != torch.bfloat16 or not weight.is_contiguous() or key in self._twins:
            self.refused += key not in self._twins
            return
        dense = weight.data.view(groups, -1, weight.shape[-1])
        try:
            twin = quantized(dense)
        except ValueError as error:
            support.say(ADAPTER.name, f"{error}, so wo_a is read as bf16")
            self.refused += 1
            return
        if not exact(twin, dense):
            support.say(ADAPTER.name, "a layer's wo_a is not exact in FP8, so it is read as bf16")
            self.refused += 1
            return
        self._twins[key] = twin
        self.kept += 1
        if self._drop and drop:
            # The parameter stays, with its shape, and without its memory.
            weight.untyped_storage().resize_(0)

    def multiply(self, original: Any, o: Any, wo_a: Any, *arguments: Any, **options: Any) -> Any:
        """o [rows, groups, inner], wo_a [groups, columns, inner]; [rows, groups, columns]."""
        twin = self._twins.get(_key(wo_a))
        if twin is None:
            return original(o, wo_a, *arguments, **options)
        rows = o.shape[0]
        aligned = o.stride(2) == 1 and o.stride(0) % 8 == 0 and o.stride(1) % 8 == 0
        # Asked for in another form than bf16, on GPUs that have one: that is SGLang's own kernel.
        other_form = any(options.get(form) for form in ("fuse_mxfp8_quant", "fp8_grid", "emit_fp8"))
        if 0 < rows <= self._rows and aligned and not other_form:
            from adapter.kernels.blockfp8 import product

            self.taken += 1
            return product(twin, o)
        dropped = wo_a.untyped_storage().nbytes() == 0
        return original(o, twin.dense() if dropped else wo_a, *arguments, **options)


def _key(weight: Any) -> int:
    """Of the memory that a weight and its views are in, also when that has been given back."""
    return int(weight.untyped_storage()._cdata)
