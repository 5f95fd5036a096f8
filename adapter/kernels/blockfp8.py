"""A weight in FP8 with one power of two per 32x32 block, and its product with a few rows of bf16.

Decoding reads a whole weight for a handful of rows, so its time is that of the bytes; half the bytes is half the time.
A block of 32x32 values is 1024 bytes in a row, so that a program which walks along the inner dimension needs one scale
per 32 weight rows and step. A weight becomes bf16 by moving its bits into place, which leaves it too small by 2^120,
and one multiplication with 2^(120+e): exact, subnormals included, and cheaper than the conversion that the hardware
has, which goes by way of FP16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK, UNIT = 32, 16
_BIAS = 120
"""Of bf16 above that of e4m3: 127 - 7."""
_E4M3_MAX = 448.0
_LOW, _HIGH = -110, 127 - _BIAS
"""Exponents of which 2^(120+e) is a normal bf16 and every product a normal one or zero."""


@dataclass(frozen=True)
class Config:
    """How a launch is cut; all are powers of two. rows: of x in a tile, 8 or more; units: of 16 weight rows for a warp,
    2 or more; steps: of 32 along the inner dimension at a time; split: programs that share the inner dimension;
    warps: of a program, wide of which are side by side over the weight's rows, the others share the inner dimension.
    """

    rows: int
    units: int
    steps: int
    split: int
    warps: int
    wide: int = 1

    @property
    def columns(self) -> int:
        """Weight rows of a tile."""
        return self.wide * self.units * UNIT

    @property
    def inner(self) -> int:
        """What the inner dimension has to be a multiple of."""
        return BLOCK * self.steps * self.split * (self.warps // self.wide)


_WIDE = {8: Config(8, 2, 4, 2, 1), 16: Config(16, 2, 4, 2, 2, 2), 32: Config(32, 4, 4, 2, 2, 2)}
_NARROW = {8: Config(8, 2, 4, 8, 2), 16: Config(16, 2, 8, 8, 2, 2), 32: Config(32, 2, 2, 8, 2, 2)}
_MANY = 16384
"""Weight rows, in all groups, from which on there are enough tiles to fill a GPU with few shares of each."""


def config_for(rows: int, columns: int, inner: int, groups: int) -> Config:
    """By the shape alone, so that every rank and every run adds up in the same order. Measured by adapter.bench.

    Raises ValueError for an inner dimension that is not a multiple of 32.
    """
    if inner % BLOCK:
        raise ValueError(f"an inner dimension of {inner}, expected a multiple of {BLOCK}")
    table = _WIDE if columns * groups >= _MANY else _NARROW
    config = table[next((most for most in table if rows <= most), 32)]
    while inner % config.inner:
        if config.split > 1:
            config = replace(config, split=config.split // 2)
        elif config.warps > config.wide:
            config = replace(config, warps=config.warps // 2)
        else:
            config = replace(config, steps=config.steps // 2)
    return config


@dataclass(frozen=True)
class Twin:
    """values: uint8 [groups, columns/16, inner/32, 512], e4m3, see `_packed`; factors: int32 [groups, columns/32,
    inner/32], 2^(120+e) as bf16, twice, for two values at a time; counts: int32, zero between launches."""

    values: torch.Tensor
    factors: torch.Tensor
    counts: torch.Tensor

    @property
    def groups(self) -> int:
        return int(self.values.shape[0])

    @property
    def columns(self) -> int:
        return int(self.values.shape[1]) * UNIT

    @property
    def inner(self) -> int:
        return int(self.values.shape[2]) * BLOCK

    def dense(self) -> torch.Tensor:
        """The weight that it stands for, bf16 [groups, columns, inner]."""
        factors = (self.factors << 16).view(torch.float32) * 2.0**-_BIAS
        dense = torch.empty((self.groups, self.columns, self.inner), dtype=torch.bfloat16, device=self.values.device)
        for group in range(self.groups):
            for first in range(0, self.columns // BLOCK, 32):
                part = slice(first, first + 32)
                values = _unpacked(self.values[group, first * 2 : first * 2 + 64]).view(torch.float8_e4m3fn).float()
                blocks = values.view(-1, BLOCK, self.inner // BLOCK, BLOCK) * factors[group, part, None, :, None]
                dense[group, first * BLOCK : first * BLOCK + values.shape[0]] = blocks.flatten(2).flatten(0, 1)
        return dense


def _packed(values: torch.Tensor) -> torch.Tensor:
    """uint8 [columns, inner] as [columns/16, inner/32, 512]: what a lane multiplies is 16 bytes in a row.

    Lane 4m + q has the eight values 8q.. of row m and the eight of row m + 8, which are its part of the tensor core's
    16x16 operands, up to an order along the inner dimension that the other operand can be given as well. So a warp
    loads its operand straight into registers, all lanes side by side, with no shared memory and no barrier.
    """
    columns, inner = values.shape
    units = values.view(columns // UNIT, 2, 8, inner // BLOCK, 4, 8)
    return units.permute(0, 3, 2, 4, 1, 5).reshape(columns // UNIT, inner // BLOCK, UNIT * BLOCK)


def _unpacked(units: torch.Tensor) -> torch.Tensor:
    bands, steps, _ = units.shape
    return units.view(bands, steps, 8, 4, 2, 8).permute(0, 4, 2, 1, 3, 5).reshape(bands * UNIT, steps * BLOCK)


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
    shape = (groups, columns // UNIT, inner // BLOCK, UNIT * BLOCK)
    values = torch.empty(shape, dtype=torch.uint8, device=weight.device)
    factors = torch.empty((groups, columns // BLOCK, inner // BLOCK), dtype=torch.int32, device=weight.device)
    for group in range(groups):
        for first in range(0, columns, 1024):
            part = dense[group, first : first + 1024].float()
            here = slice(first // BLOCK, (first + part.shape[0]) // BLOCK)
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
            plain = scaled.to(torch.float8_e4m3fn).view(torch.uint8).transpose(1, 2).reshape(part.shape)
            values[group, first // UNIT : (first + part.shape[0]) // UNIT] = _packed(plain)
            one = (exponent + (_BIAS + 127)) << 7
            factors[group, here] = one | one << 16
    return Twin(values, factors, torch.zeros(groups * (columns // BLOCK) * 16, dtype=torch.int32, device=weight.device))


def exact(twin: Twin, weight: torch.Tensor) -> bool:
    """Whether the twin stands for these bits, the sign of zero included."""
    dense = weight if weight.dim() == 3 else weight.unsqueeze(0)
    for group in range(twin.groups):
        one = Twin(twin.values[group : group + 1], twin.factors[group : group + 1], twin.counts)
        if not torch.equal(one.dense()[0].view(torch.int16), dense[group].view(torch.int16)):
            return False
    return True


@triton.jit  # type: ignore[untyped-decorator]
def _widened(values, factors, GPU: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """e4m3 as uint8, times a factor: bf16. In Triton's interpreter, which has no assembler, float32."""
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


@triton.jit  # type: ignore[untyped-decorator]
def _added(a, b, acc, GPU: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    if GPU:  # noqa: SIM108 - Triton compiles one branch alone
        total = tl.dot(a, b, acc)
    else:
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    return total


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _product(  # type: ignore[no-untyped-def]  # noqa: ANN202, PLR0915
    x, w, factors, y, parts, counts,  # noqa: ANN001
    rows, columns, inner,  # noqa: ANN001
    x_row, x_group, y_row, y_group,  # noqa: ANN001
    ROWS: tl.constexpr, UNITS: tl.constexpr, STEPS: tl.constexpr, SPLIT: tl.constexpr, WARPS: tl.constexpr,
    FP8: tl.constexpr, GPU: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """y[r, g, c] = sum over k of x[r, g, k] w[g, c, k]; grid: (tiles of columns times SPLIT, groups, tiles of rows)."""
    share = tl.program_id(0) % SPLIT
    tile = tl.program_id(0) // SPLIT
    group = tl.program_id(1)
    row_tile = tl.program_id(2)
    steps = tl.multiple_of(inner // 32, STEPS)
    bands = columns // 32
    DEEP: tl.constexpr = WARPS // WIDE
    turns = steps // (STEPS * DEEP * SPLIT)
    HIGH: tl.constexpr = ROWS // 8

    # What Triton gives a thread follows from the order of these axes: the lanes of a warp first, then its warps, each
    # of which has a part of the inner dimension to itself, and the rest in registers.
    lane = tl.arange(0, 32)
    warp = tl.arange(0, WARPS)
    unit = tl.arange(0, UNITS)
    step = tl.arange(0, STEPS)
    byte = tl.arange(0, 16)
    own = (share * DEEP + warp // WIDE) * turns * STEPS

    # Bands of 32 weight rows, two units of 16 in each. The last tile may reach beyond the weight: it reads the last
    # band again and stores nothing of it.
    bands_at = (tile * WIDE + warp % WIDE) * (UNITS // 2)
    band = tl.minimum(bands_at[:, None] + tl.arange(0, UNITS // 2)[None, :], bands - 1).to(tl.int64)
    unit = tl.minimum(bands_at[:, None] + unit[None, :] // 2, bands - 1).to(tl.int64) * 2 + unit[None, :] % 2
    base = w + group.to(tl.int64) * columns * inner
    if FP8:
        w_at = (
            base
            + unit[None, :, :, None, None] * (steps * 512)
            + own[None, :, None, None, None] * 512
            + (step[None, None, None, :, None] * 512 + lane[:, None, None, None, None] * 16)
            + byte[None, None, None, None, :]
        )
        f_at = (
            factors
            + group * bands * steps
            + (
                band[None, :, :, None] * steps
                + own[None, :, None, None]
                + step[None, None, None, :]
                + lane[:, None, None, None] * 0
            )
        )
    else:
        # Row 8h + m of a unit, columns 8q + 0..7 of a step: the same values for the same lane. Taken as bytes, for
        # Triton orders the tensor core's operands by the width of what was loaded.
        low = (lane // 4)[:, None, None, None, None] + (byte // 8 * 8)[None, None, None, None, :]
        w_at = (
            base
            + group.to(tl.int64) * columns * inner
            + 2
            * (
                (unit[None, :, :, None, None] * 16 + low) * inner
                + own[None, :, None, None, None] * 32
                + step[None, None, None, :, None] * 32
                + (lane % 4 * 8)[:, None, None, None, None]
                + (byte % 8)[None, None, None, None, :]
            )
        )
        f_at = factors
    m = tl.arange(0, 8)
    high = tl.arange(0, HIGH)
    r = row_tile * ROWS + high[None, None, :, None, None] * 8 + m[:, None, None, None, None]
    x_at = (
        x
        + group * x_group
        + r.to(tl.int64) * x_row
        + own[None, :, None, None, None] * 32
        + step[None, None, None, :, None] * 32
        + tl.arange(0, 32)[None, None, None, None, :]
    )
    x_live = tl.broadcast_to(r < rows, (8, WARPS, HIGH, STEPS, 32))
    acc = tl.zeros((WARPS, UNITS * 16, ROWS), tl.float32)
    for turn in range(turns):
        # Weights pass through once; what stays in the first cache is x.
        if FP8:
            ws = tl.load(w_at + turn * (STEPS * 512), cache_modifier=".cg")
        else:
            ws = tl.load(w_at + turn * (STEPS * 64)).to(tl.int16)
            ws = (ws | (tl.load(w_at + turn * (STEPS * 64) + 1).to(tl.int16) << 8)).to(tl.bfloat16, bitcast=True)
        xs = tl.load(x_at + turn * (STEPS * 32), mask=x_live, other=0.0)
        right = tl.reshape(xs, (8, WARPS, HIGH, STEPS, 4, 2, 4))
        right = tl.reshape(tl.permute(right, (1, 3, 5, 4, 6, 2, 0)), (WARPS, STEPS * 32, ROWS))
        if FP8:
            fs = tl.load(f_at + turn * STEPS)
            spread = tl.broadcast_to(fs[:, :, :, None, :, None], (32, WARPS, UNITS // 2, 2, STEPS, 16))
            ws = _widened(ws, tl.reshape(spread, (32, WARPS, UNITS, STEPS, 16)), GPU)
        left = tl.permute(tl.reshape(ws, (8, 4, WARPS, UNITS, STEPS, 2, 2, 4)), (2, 3, 5, 0, 4, 6, 1, 7))
        acc = _added(tl.reshape(left, (WARPS, UNITS * 16, STEPS * 32)), right, acc, GPU)
    COLUMNS: tl.constexpr = WIDE * UNITS * 16
    acc = tl.reshape(tl.sum(tl.reshape(acc, (DEEP, WIDE, UNITS * 16, ROWS)), axis=0), (COLUMNS, ROWS))

    r = row_tile * ROWS + tl.arange(0, ROWS)
    live = r < rows
    c = tile * COLUMNS + tl.arange(0, COLUMNS)
    if SPLIT > 1:
        # Whoever comes last adds up all shares in their order, so the sum does not depend on who that is.
        place = (row_tile * tl.num_programs(1) + group) * (tl.num_programs(0) // SPLIT) + tile
        inside = tl.arange(0, ROWS)[None, :] + tl.arange(0, COLUMNS)[:, None] * ROWS
        mine = parts + place.to(tl.int64) * (SPLIT * ROWS * COLUMNS)
        tl.store(mine + share * (ROWS * COLUMNS) + inside, acc)
        tl.debug_barrier()
        before = tl.atomic_add(counts + place, 1, sem="acq_rel")
        if before == SPLIT - 1:
            tl.debug_barrier()
            total = tl.load(mine + inside, cache_modifier=".cg")
            for other in tl.static_range(1, SPLIT):
                total += tl.load(mine + other * (ROWS * COLUMNS) + inside, cache_modifier=".cg")
            tl.store(counts + place, 0)
            y_at = y + group * y_group + r[None, :].to(tl.int64) * y_row + c[:, None]
            tl.store(y_at, total.to(y.dtype.element_ty), mask=live[None, :] & (c < columns)[:, None])
    else:
        y_at = y + group * y_group + r[None, :].to(tl.int64) * y_row + c[:, None]
        tl.store(y_at, acc.to(y.dtype.element_ty), mask=live[None, :] & (c < columns)[:, None])


def product(twin: Twin, x: torch.Tensor, config: Config | None = None, *, weight: Any = None) -> torch.Tensor:
    """y[r, g, c] = sum over k of x[r, g, k] w[g, c, k] for bf16 x [rows, groups, inner]; y [rows, groups, columns].

    Sums in float32, in an order that depends on the config alone. With `weight`, a bf16 [groups, columns, inner], it is
    read in the twin's place, by the same program: that is how the two are compared bit for bit.
    """
    rows = x.shape[0]
    groups, columns, inner = twin.groups, twin.columns, twin.inner
    config = config or config_for(rows, columns, inner, groups)
    y = torch.empty((rows, groups, columns), dtype=torch.bfloat16, device=x.device)
    tiles = triton.cdiv(columns, config.columns)
    row_tiles = triton.cdiv(rows, config.rows)
    size = tiles * groups * row_tiles * config.split * config.rows * config.columns if config.split > 1 else 1
    parts = torch.empty(size, dtype=torch.float32, device=x.device)
    _product[(tiles * config.split, groups, row_tiles)](
        x, twin.values if weight is None else weight.view(torch.uint8), twin.factors, y, parts, twin.counts,
        rows, columns, inner, x.stride(0), x.stride(1), y.stride(0), y.stride(1),
        ROWS=config.rows, UNITS=config.units, STEPS=config.steps, SPLIT=config.split, WARPS=config.warps,
        FP8=weight is None, GPU=x.is_cuda, WIDE=config.wide, num_warps=config.warps, num_stages=1,
    )  # fmt: skip
    return y
