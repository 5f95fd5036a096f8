"""A weight in FP8 with one power of two per 32x32 block, and its product with a few rows of bf16.

Decoding reads a whole weight for a handful of rows, so its time is that of the bytes; half the bytes is half the time.
A block of 32x32 values is 1024 bytes in a row, so that a program which walks along the inner dimension needs one scale
per 32 weight rows and step. A weight becomes bf16 by moving its bits into place, which leaves it too small by 2^120,
and one multiplication with 2^(120+e): exact, subnormals included, and cheaper than the conversion that the hardware
has, which goes by way of FP16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 32
_BIAS = 120
"""Of bf16 above that of e4m3: 127 - 7."""
_E4M3_MAX = 448.0
_LOW, _HIGH = -110, 127 - _BIAS
"""Exponents of which 2^(120+e) is a normal bf16 and every product a normal one or zero."""


@dataclass(frozen=True)
class Config:
    """How a launch is cut. rows: of a tile, 16 or more; columns: weight rows of a tile, a multiple of 32;
    blocks: 32-wide steps in an iteration; split: programs that share the inner dimension."""

    rows: int
    columns: int
    blocks: int
    split: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Twin:
    """values: uint8 [groups, columns/32, inner/32, 32, 32], e4m3; factors: int32 [groups, inner/32, columns/32],
    2^(120+e) as bf16, twice, for two values at a time; counts: int32, zero between launches."""

    values: torch.Tensor
    factors: torch.Tensor
    counts: torch.Tensor

    @property
    def groups(self) -> int:
        return self.values.shape[0]

    @property
    def columns(self) -> int:
        return self.values.shape[1] * BLOCK

    @property
    def inner(self) -> int:
        return self.values.shape[2] * BLOCK

    def dense(self) -> torch.Tensor:
        """The weight that it stands for, bf16 [groups, columns, inner]."""
        values = self.values.view(torch.float8_e4m3fn).float()
        factors = (self.factors << 16).view(torch.float32) * 2.0**-_BIAS
        blocks = values * factors.transpose(1, 2)[:, :, :, None, None]
        return blocks.permute(0, 1, 3, 2, 4).reshape(self.groups, self.columns, self.inner).to(torch.bfloat16)


def quantized(weight: torch.Tensor) -> Twin:
    """The twin of bf16 [columns, inner] or [groups, columns, inner], both multiples of 32.

    The scale of a block is the smallest power of two with which its largest value is within e4m3, so a weight that came
    from e4m3 with such scales comes back bit for bit (`exact` says so) unless its block was scaled too high to tell
    small values apart. Works through a group and 1024 rows at a time: whole copies in float32 would not fit.

    Raises ValueError for a shape that does not divide, values that are not finite, or a block too large.
    """
    dense = weight if weight.dim() == 3 else weight.unsqueeze(0)
    groups, columns, inner = dense.shape
    if columns % BLOCK or inner % BLOCK:
        raise ValueError(f"{columns} x {inner} does not divide into blocks of 32 x 32")
    values = torch.empty(
        (groups, columns // BLOCK, inner // BLOCK, BLOCK, BLOCK), dtype=torch.uint8, device=weight.device
    )
    factors = torch.empty((groups, inner // BLOCK, columns // BLOCK), dtype=torch.int32, device=weight.device)
    for group in range(groups):
        for first in range(0, columns, 1024):
            part = dense[group, first : first + 1024].float()
            here = slice(first // BLOCK, first // BLOCK + part.shape[0] // BLOCK)
            blocks = part.view(-1, BLOCK, inner // BLOCK, BLOCK).transpose(1, 2)
            largest = blocks.abs().amax((2, 3))
            if not bool(torch.isfinite(largest).all()):
                raise ValueError("a weight is not finite")
            # frexp: largest = m * 2^e with m in [0.5, 1); 448 = 0.875 * 2^9.
            mantissa, exponent = torch.frexp(largest / _E4M3_MAX)
            exponent = torch.where(mantissa == 0.5, exponent - 1, exponent).clamp(min=_LOW)
            if bool((exponent > _HIGH).any()):
                raise ValueError(f"a weight of {float(largest.max()):g} is too large, expected at most 2^15")
            scaled = torch.ldexp(blocks, -exponent[:, :, None, None])
            values[group, here] = scaled.to(torch.float8_e4m3fn).view(torch.uint8)
            one = ((exponent + _BIAS + 127) << 7).t()
            factors[group, :, here] = one | one << 16
    return Twin(values, factors, torch.zeros(groups * (columns // BLOCK) * 16, dtype=torch.int32, device=weight.device))


def exact(twin: Twin, weight: torch.Tensor) -> bool:
    """Whether the twin stands for these bits, the sign of zero included."""
    dense = weight if weight.dim() == 3 else weight.unsqueeze(0)
    for group in range(twin.groups):
        one = Twin(twin.values[group : group + 1], twin.factors[group : group + 1], twin.counts)
        if not torch.equal(one.dense()[0].view(torch.int16), dense[group].view(torch.int16)):
            return False
    return True


@triton.jit
def _widened(values, factors, GPU: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """e4m3 as uint8, times a factor: bf16. Triton's interpreter has no assembler and multiplies no bf16: there float32."""
    if GPU:
        wide = tl.inline_asm_elementwise(
            _WIDEN_ASM, "=r,=r,r,r,r,r,r", [values, factors], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    else:
        bits = values.to(tl.int32)
        wide = (((bits & 0x80) << 24) | ((bits & 0x7F) << 20)).to(tl.float32, bitcast=True) * (factors << 16).to(
            tl.float32, bitcast=True
        )
    return wide


_WIDEN_ASM = tl.constexpr(
    """
{
.reg .b32 a, b;
prmt.b32 a, $2, 0, 0x1404;
prmt.b32 b, $2, 0, 0x3424;
{
.reg .b32 c, d;
shr.b32 c, a, 4;
shr.b32 d, b, 4;
and.b32 c, c, 0x07f007f0;
and.b32 d, d, 0x07f007f0;
lop3.b32 a, a, 0x80008000, c, 0xea;
lop3.b32 b, b, 0x80008000, d, 0xea;
}
mul.rn.bf16x2 $0, a, $3;
mul.rn.bf16x2 $1, b, $3;
}
"""
)


@triton.jit
def _added(a, b, acc, GPU: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    if GPU:
        total = tl.dot(a, b, acc)
    else:
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    return total


@triton.jit(do_not_specialize=["rows"])
def _product(  # type: ignore[no-untyped-def]  # noqa: ANN202
    x, w, factors, y, parts, counts,  # noqa: ANN001
    rows, columns, inner,  # noqa: ANN001
    x_row, x_group, y_row, y_group,  # noqa: ANN001
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, SPLIT: tl.constexpr,
    FP8: tl.constexpr, GPU: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    """y[r, g, c] = sum over k of x[r, g, k] w[g, c, k]; grid: (tiles of columns times SPLIT, groups, tiles of rows)."""
    program = tl.program_id(0)
    group = tl.program_id(1)
    row_tile = tl.program_id(2)
    tile = program // SPLIT
    share = program % SPLIT
    row_blocks = columns // 32
    steps = inner // 32

    r = row_tile * ROWS + tl.arange(0, ROWS)
    c = tile * COLUMNS + tl.arange(0, COLUMNS)
    # The last tile may reach beyond the weight; it reads the last block again and stores nothing of it.
    block = tl.minimum(c // 32, row_blocks - 1)
    k = tl.arange(0, 32)
    live = r < rows

    first = (steps * share // SPLIT) // BLOCKS * BLOCKS
    last = tl.where(share == SPLIT - 1, steps, (steps * (share + 1) // SPLIT) // BLOCKS * BLOCKS)

    x_base = x + group * x_group + r.to(tl.int64) * x_row
    if FP8:
        w_base = w + group.to(tl.int64) * columns * inner + block.to(tl.int64) * (inner * 32) + (c % 32) * 32
        f_base = factors + group * (row_blocks * steps) + block
    else:
        w_base = w + group.to(tl.int64) * columns * inner + (block * 32 + c % 32).to(tl.int64) * inner
        f_base = factors
    if SWAP:
        acc = tl.zeros((COLUMNS, ROWS), tl.float32)
    else:
        acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(first, last, BLOCKS):
        for sub in tl.static_range(BLOCKS):
            at = step + sub
            if SWAP:
                xs = tl.load(x_base[None, :] + (at * 32 + k)[:, None], mask=live[None, :], other=0.0)
                if FP8:
                    ws = tl.load(w_base[:, None] + at * 1024 + k[None, :])
                    fs = tl.load(f_base + at * row_blocks)
                    wide = _widened(ws, tl.broadcast_to(fs[:, None], (COLUMNS, 32)), GPU)
                else:
                    wide = tl.load(w_base[:, None] + (at * 32 + k)[None, :])
                acc = _added(wide, xs, acc, GPU)
            else:
                xs = tl.load(x_base[:, None] + (at * 32 + k)[None, :], mask=live[:, None], other=0.0)
                if FP8:
                    ws = tl.load(w_base[None, :] + at * 1024 + k[:, None])
                    fs = tl.load(f_base + at * row_blocks)
                    wide = _widened(ws, tl.broadcast_to(fs[None, :], (32, COLUMNS)), GPU)
                else:
                    wide = tl.load(w_base[None, :] + (at * 32 + k)[:, None])
                acc = _added(xs, wide, acc, GPU)

    if SPLIT > 1:
        # Whoever comes last adds up all shares in their order, so the sum does not depend on who that is.
        places = ((row_tile * tl.num_programs(1) + group) * (tl.num_programs(0) // SPLIT) + tile)
        inside = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        if SWAP:
            inside = tl.arange(0, ROWS)[None, :] * COLUMNS + tl.arange(0, COLUMNS)[:, None]
        own = parts + places.to(tl.int64) * (SPLIT * ROWS * COLUMNS)
        tl.store(own + share * (ROWS * COLUMNS) + inside, acc)
        tl.debug_barrier()
        before = tl.atomic_add(counts + places, 1, sem="acq_rel")
        if before != SPLIT - 1:
            return
        tl.debug_barrier()
        acc = tl.load(own + inside, cache_modifier=".cg")
        for other in tl.static_range(1, SPLIT):
            acc += tl.load(own + other * (ROWS * COLUMNS) + inside, cache_modifier=".cg")
        tl.store(counts + places, 0)
    y_base = y + group * y_group
    result = acc.to(y.dtype.element_ty)
    if SWAP:
        tl.store(y_base + r[None, :].to(tl.int64) * y_row + c[:, None], result, mask=live[None, :] & (c < columns)[:, None])
    else:
        tl.store(y_base + r[:, None].to(tl.int64) * y_row + c[None, :], result, mask=live[:, None] & (c < columns)[None, :])


def product(twin: Twin, x: torch.Tensor, config: Config, *, swap: bool = False, weight: Any = None) -> torch.Tensor:
    """y[r, g, c] = sum over k of x[r, g, k] w[g, c, k] for bf16 x [rows, groups, inner]; y bf16 [rows, groups, columns].

    Sums in float32, in an order that depends on the config alone. With `weight`, a bf16 [groups, columns, inner], it is
    read in the twin's place, by the same program: that is how the two are compared bit for bit.
    """
    rows = x.shape[0]
    groups, columns, inner = twin.groups, twin.columns, twin.inner
    y = torch.empty((rows, groups, columns), dtype=torch.bfloat16, device=x.device)
    tiles = triton.cdiv(columns, config.columns)
    row_tiles = triton.cdiv(rows, config.rows)
    size = tiles * groups * row_tiles * config.split * config.rows * config.columns if config.split > 1 else 1
    parts = torch.empty(size, dtype=torch.float32, device=x.device)
    _product[(tiles * config.split, groups, row_tiles)](
        x, twin.values if weight is None else weight, twin.factors, y, parts, twin.counts,
        rows, columns, inner, x.stride(0), x.stride(1), y.stride(0), y.stride(1),
        ROWS=config.rows, COLUMNS=config.columns, BLOCKS=config.blocks, SPLIT=config.split,
        FP8=weight is None, GPU=x.is_cuda, SWAP=swap, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return y
