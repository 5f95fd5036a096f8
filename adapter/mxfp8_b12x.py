"""Dense MXFP8 products by FlashInfer's b12x kernel for sm_120 and sm_121, instead of its CUTLASS one.

`--fp8-gemm-backend flashinfer_cutlass` has SGLang swizzle weights and scales as FlashInfer wants them, and ask
FlashInfer's mm_mxfp8 for "cutlass". The b12x kernel takes the same operands, so only that word is another.
"""

from __future__ import annotations

import inspect
from typing import Any

from adapter.declare import SCHEDULER, Adapter, AdapterError, Options, Symbol

_FP8 = "sglang.srt.layers.quantization.fp8_utils"
ADAPTER = Adapter(
    name="mxfp8_b12x",
    purpose="has FlashInfer multiply dense MXFP8 with its b12x kernel (sm_12x)",
    worth="faster decode on sm_121 than CUTLASS (knapcio and b12x's authors); not measured here",
    processes=frozenset({SCHEDULER}),
    symbols=(
        Symbol(f"{_FP8}:_flashinfer_mm_mxfp8_impl", "20c14acc93b81b64"),
        Symbol(f"{_FP8}:flashinfer_mm_mxfp8", "e81a5256121bed27"),
    ),
)


def install(_options: Options) -> None:
    """Raises AdapterError where SGLang or FlashInfer has no such product."""
    from sglang.srt.layers.quantization import fp8_utils

    from adapter.frame import hook

    implementation = getattr(fp8_utils, "_flashinfer_mm_mxfp8_impl", None)
    if implementation is None:
        raise AdapterError("SGLang multiplies no MXFP8 with FlashInfer here: it needs a Blackwell GPU and flashinfer")
    if not _offers(implementation):
        raise AdapterError("FlashInfer's mm_mxfp8 has no backend b12x; install the pinned flashinfer (0.7.2)")
    hook(ADAPTER.symbol(f"{_FP8}:_flashinfer_mm_mxfp8_impl"), routed, "around")


def _offers(implementation: Any) -> bool:
    """By its signature, which names the backends."""
    try:
        parameter = inspect.signature(implementation).parameters["backend"]
    except (KeyError, TypeError, ValueError):
        return False
    return "b12x" in str(parameter.annotation)


def routed(original: Any, *arguments: Any, backend: str = "auto", use_8x4_sf_layout: bool = False, **rest: Any) -> Any:
    """Around mm_mxfp8. Whoever asks for another kernel than CUTLASS, or for its layout of scales, is given it."""
    if backend in ("cutlass", "auto") and not use_8x4_sf_layout:
        backend = "b12x"
    return original(*arguments, backend=backend, use_8x4_sf_layout=use_8x4_sf_layout, **rest)
