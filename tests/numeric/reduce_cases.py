"""Reductions along every axis of tiles of rank 1 to 3, and what is built of them: softmax, moments, running sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl
from tlxc.ir.types import (
    DTYPES,
    DType,
    bfloat16,
    float16,
    float32,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)

from .indexing import row_major
from .support import (
    WARPS,
    Array,
    Case,
    Expect,
    In,
    Launch,
    Out,
    cells,
    dtype_of,
    exact,
    near,
    numbers,
    plain,
    small_integers,
    storage,
    values,
    wide,
)

ALL = list(DTYPES.values())
_SUM = {"i1": int32, "i8": int32, "i16": int32, "u8": uint32, "u16": uint32}
_COMPUTED = {"i1": int32, "f16": float32, "bf16": float32}


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def both_axes_kernel(x, down, along, total, FN: tl.constexpr, SHAPE: tl.constexpr):
    """Over the rows, over the columns, and over all of a tile of rank 2."""
    tile = tl.load(x + row_major(SHAPE))
    tl.store(down + tl.arange(0, SHAPE[1]), FN(tile, 0))
    tl.store(along + tl.arange(0, SHAPE[0]), FN(tile, 1))
    tl.store(total, FN(tile, None))


@tlxc.kernel
def axis_kernel(x, out, FN: tl.constexpr, SHAPE: tl.constexpr, OUT: tl.constexpr, AXIS: tl.constexpr):
    result = FN(tl.load(x + row_major(SHAPE)), AXIS)
    tl.static_assert(result.shape == OUT, "the shape of the reduction")
    tl.store(out + row_major(OUT), result)


@tlxc.kernel
def kept_kernel(x, out, FN: tl.constexpr, SHAPE: tl.constexpr, AXIS: tl.constexpr):
    """x - reduction, broadcast back."""
    tile = tl.load(x + row_major(SHAPE))
    tl.store(out + row_major(SHAPE), tile - FN(tile, AXIS, keep_dims=True))


@tlxc.kernel
def flat_kernel(x, out, n, FN: tl.constexpr, BLOCK: tl.constexpr, NEUTRAL: tl.constexpr):
    """A tile of rank 1 to a scalar, which then meets the tile again."""
    pid = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + pid * n + offsets, mask=offsets < n, other=NEUTRAL)
    result = FN(tile, 0)
    tl.store(out + pid * (BLOCK + 1), result)
    tl.store(out + pid * (BLOCK + 1) + 1 + offsets, tl.zeros((BLOCK,), result.dtype) + result)


@tlxc.kernel
def typed_sum_kernel(x, out, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)), dtype=DTYPE))


@tlxc.kernel
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    scores = tl.load(x + row * columns + offsets, mask=inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(scores - tl.max(scores, 0))
    tl.store(out + row * columns + offsets, powers / tl.sum(powers, 0), mask=inside)


@tlxc.kernel
def rows_softmax_kernel(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    scores = tl.load(x + r[:, None] * columns + c[None, :], mask=inside, other=-6e4).to(tl.float32)
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    tl.store(out + r[:, None] * columns + c[None, :], powers / tl.sum(powers, 1)[:, None], mask=inside)


@tlxc.kernel
def moments_kernel(x, out, columns, eps, BLOCK: tl.constexpr):
    """Layer norm: mean, variance and normalised row."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside).to(tl.float32)
    mean = tl.sum(values, 0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + eps)
    tl.store(out + row * columns + offsets, centred * scale, mask=inside)


@tlxc.kernel
def running_sum_kernel(x, out, steps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One sum per row over a loop: partial sums may stay in the threads until it ends."""
    place = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS,), tl.sum(tl.load(x + place), 1).dtype)
    for i in range(steps):
        total += tl.sum(tl.load(x + i * ROWS * COLUMNS + place), 1)
    tl.store(out + tl.arange(0, ROWS), total)


@tlxc.kernel
def online_softmax_kernel(x, out, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Row maxima and scaled sums carried by a loop over blocks of columns, as in attention."""
    r, c = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = (start + c)[None, :] < columns
        scores = tl.load(x + r[:, None] * columns + start + c[None, :], mask=inside, other=float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        total = total * tl.exp(best - higher) + tl.sum(tl.exp(scores - higher[:, None]), 1)
        best = higher
    tl.store(out + r, best + tl.log(total))


def column_sums_of_transpose(t, axis):
    return tl.sum(tl.trans(t), axis)


def sum_of_sums(t, axis):
    return tl.sum(tl.sum(t, axis))


# ----------------------------------------------------------------------------------------------------------- references
def reduced(fn: Any, x: Array, axis: Any) -> Array:
    """The exact result, in float64 or as Python ints, NaN ignored by max and min."""
    if fn is tl.sum:
        return np.asarray(wide(x).sum(axis))
    if dtype_of(x).is_float:
        with np.errstate(all="ignore"):
            return np.asarray(
                (np.fmax if fn is tl.max else np.fmin).reduce(
                    x.astype(np.float64).ravel() if axis is None else x.astype(np.float64), axis=axis or 0
                )
            )
    return np.asarray(x.max(axis) if fn is tl.max else x.min(axis))


def result_dtype(fn: Any, dtype: DType) -> DType:
    return _SUM.get(dtype.short, dtype) if fn is tl.sum else dtype


def _computed(fn: Any, dtype: DType) -> DType:
    return _COMPUTED.get(dtype.short) or result_dtype(fn, dtype)


def _expect(fn: Any, x: Array, axis: Any) -> Expect:
    value, dtype = reduced(fn, x, axis), result_dtype(fn, dtype_of(x))
    if fn is tl.sum and not dtype.is_float:
        low, modulus = dtype.limits[0], 1 << dtype.bits
        flat = [(int(v) - low) % modulus + low for v in np.atleast_1d(value).ravel()]
        return exact(np.array(flat, storage(dtype)).reshape(value.shape))
    return exact(value, signed_zero=False)


def _inputs(fn: Any, dtype: DType, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """For sums of floats small integers, which no order of additions rounds; else all values, with a row of NaN."""
    n = int(np.prod(shape))
    if fn is tl.sum:
        return (small_integers if dtype.is_float else values)(rng, dtype, n).reshape(shape)
    x = values(rng, dtype, n).reshape(shape)
    if dtype.is_float and len(shape) == 2:
        x[shape[0] // 2], x[:, shape[1] // 2] = np.nan, np.nan
    return x


def _both_axes_case(fn: Any, dtype: DType, shape: tuple[int, int], warps: int) -> Case:
    result = result_dtype(fn, dtype)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _inputs(fn, dtype, rng, shape)
        outs = {"down": Out(shape[1], result), "along": Out(shape[0], result), "total": Out((), result)}
        expect = {"down": _expect(fn, x, 0), "along": _expect(fn, x, 1), "total": _expect(fn, x, None)}
        return Launch((1,), {"x": In(x), **outs, "FN": fn, "SHAPE": shape}, expect)

    computed = _computed(fn, dtype).short
    listed = cells("reduce" if warps == 1 else "reduce partial_reduce", computed)
    name = f"{fn.__name__}-{dtype}-{shape[0]}x{shape[1]}-w{warps}"
    return Case(name, both_axes_kernel, make, warps, listed)


def _axis_case(fn: Any, dtype: DType, shape: tuple[int, ...], axis: int, warps: int, reference: Any = None) -> Case:
    base = reference or fn

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _inputs(base, dtype, rng, shape)
        expect = _expect(base, x, axis)
        out = tuple(np.delete(shape, axis))
        args = {
            "x": In(x),
            "out": Out(out, result_dtype(base, dtype)),
            "FN": fn,
            "SHAPE": shape,
            "OUT": tuple(map(int, out)),
            "AXIS": axis,
        }
        return Launch((1,), args, {"out": expect})

    return Case(f"{fn.__name__}-{dtype}-{'x'.join(map(str, shape))}-axis{axis}-w{warps}", axis_kernel, make, warps)


def _transposed_sum_case(shape: tuple[int, int], axis: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, float32, shape[0] * shape[1]).reshape(shape)
        out = x.T.astype(np.float64).sum(axis)
        args = {
            "x": In(x),
            "out": Out(out.shape, float32),
            "FN": column_sums_of_transpose,
            "SHAPE": shape,
            "OUT": out.shape,
            "AXIS": axis,
        }
        return Launch((1,), args, {"out": exact(out, signed_zero=False)})

    return Case(f"sum-of-transpose-{shape[0]}x{shape[1]}-axis{axis}-w{warps}", axis_kernel, make, warps)


def _kept_case(fn: Any, dtype: DType, shape: tuple[int, ...], axis: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, int(np.prod(shape))).reshape(shape)
        expect = plain(x) - np.expand_dims(plain(reduced(fn, x, axis).astype(x.dtype)), axis)
        return Launch(
            (1,),
            {"x": In(x), "out": Out(shape, dtype), "FN": fn, "SHAPE": shape, "AXIS": axis},
            {"out": exact(expect, signed_zero=False)},
        )

    return Case(f"kept-{fn.__name__}-{dtype}-{'x'.join(map(str, shape))}-axis{axis}-w{warps}", kept_kernel, make, warps)


_NEUTRAL = {tl.sum: 0, tl.max: float("-inf"), tl.min: float("inf")}


def _flat_case(fn: Any, dtype: DType, n: int, block: int, warps: int) -> Case:
    result = result_dtype(fn, dtype)
    neutral = _NEUTRAL[fn] if dtype.is_float or fn is tl.sum else dtype.limits[fn is tl.min]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 5 if big else 1
        x = _inputs(fn, dtype, rng, (programs * n,)).reshape(programs, n)
        one = _expect(fn, x, 1)
        expect = exact(np.repeat(np.asarray(one.value)[:, None], block + 1, 1), signed_zero=False)
        args = {
            "x": In(x),
            "out": Out((programs, block + 1), result),
            "n": n,
            "FN": fn,
            "BLOCK": block,
            "NEUTRAL": neutral,
        }
        return Launch((programs,), args, {"out": expect})

    return Case(
        f"{fn.__name__}-{dtype}-flat{n}of{block}-w{warps}", flat_kernel, make, warps, cells("splat", result.short)
    )


def _typed_sum_case(dtype: DType, result: DType, block: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = np.ones(block, storage(dtype))
        args = {"x": In(x), "out": Out((), result), "DTYPE": result, "BLOCK": block}
        return Launch((1,), args, {"out": exact(np.asarray(block))})

    return Case(f"sum-{dtype}-as-{result}", typed_sum_kernel, make, 4)


def _softmax_case(dtype: DType, columns: int, block: int, warps: int, rows_per_tile: int = 0) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows = 33 if big else 3
        x = numbers(rng, dtype, rows * columns).reshape(rows, columns)
        v = x.astype(np.float64)
        powers = np.exp(v - v.max(1, keepdims=True))
        y = powers / powers.sum(1, keepdims=True)
        # exp: 2**-22 + |x| 2**-23, also in the sum, whose additions round once each; the difference and the quotient
        spread = np.abs(v).max() * 2
        error = y * (2.0**-21 + spread * 2.0**-21 + columns * 2.0**-24)
        args = {"x": In(x), "out": Out(x.shape, dtype), "columns": columns, "BLOCK": block}
        if rows_per_tile:
            args |= {"rows": rows, "ROWS": rows_per_tile}
        grid = (-(-rows // rows_per_tile),) if rows_per_tile else (rows,)
        return Launch(grid, args, {"out": near(y, error)})

    name = f"softmax{f'-{rows_per_tile}rows' if rows_per_tile else ''}-{dtype}-{columns}of{block}-w{warps}"
    return Case(name, rows_softmax_kernel if rows_per_tile else softmax_kernel, make, warps)


def _moments_case(dtype: DType, columns: int, block: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows = 20 if big else 2
        x = (numbers(rng, dtype, rows * columns).astype(np.float32) + 3).astype(storage(dtype)).reshape(rows, columns)
        v = x.astype(np.float64)
        centred = v - v.mean(1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(1, keepdims=True) + np.float32(1e-5))
        y = centred / deviation
        # Each sum rounds `columns` times; the difference loses what the mean has more digits than the deviation.
        error = (1 + np.abs(y)) * (columns + 4 * np.abs(v).max(1, keepdims=True) / deviation) * 2.0**-22
        args = {"x": In(x), "out": Out(x.shape, dtype), "columns": columns, "eps": 1e-5, "BLOCK": block}
        return Launch((rows,), args, {"out": near(y, error)})

    return Case(f"moments-{dtype}-{columns}of{block}-w{warps}", moments_kernel, make, warps)


def _running_sum_case(dtype: DType, steps: int, warps: int) -> Case:
    shape = (16, 64)
    result = result_dtype(tl.sum, dtype)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, max(1, steps) * shape[0] * shape[1]).reshape(-1, *shape)
        total = wide(x)[:steps].sum((0, 2)) + np.zeros(shape[0], np.int64)
        args = {"x": In(x), "out": Out(shape[0], result), "steps": steps, "ROWS": shape[0], "COLUMNS": shape[1]}
        return Launch(
            (1,), args, {"out": exact(total if result.is_float else total.astype(storage(result)), signed_zero=False)}
        )

    listed = cells("partial_reduce", result.short) if dtype.bits >= 32 else frozenset()
    return Case(f"running-sum-{dtype}-{steps}-w{warps}", running_sum_kernel, make, warps, listed)


def _online_softmax_case(columns: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = numbers(rng, float32, 16 * columns).reshape(16, columns)
        v = x.astype(np.float64)
        y = np.log(np.exp(v - v.max(1, keepdims=True)).sum(1)) + v.max(1)
        args = {"x": In(x), "out": Out(16, float32), "columns": columns, "BLOCK": 32, "ROWS": 16}
        return Launch((1,), args, {"out": near(y, (1 + np.abs(v).max()) * 2.0**-19)})

    return Case(f"online-softmax-{columns}-w{warps}", online_softmax_kernel, make, warps)


# ----------------------------------------------------------------------------------------------------------------- list
REDUCTIONS: tuple[Callable[..., Any], ...] = (tl.sum, tl.max, tl.min)


def cases() -> Iterator[Case]:
    for warps in WARPS:
        for fn in REDUCTIONS:
            yield from (_both_axes_case(fn, dtype, (16, 32), warps) for dtype in ALL)
        yield _axis_case(tl.sum, float32, (128, 4), 0, warps)
        yield _axis_case(tl.max, float16, (4, 256), 1, warps)
        yield _softmax_case(float32, 100, 128, warps)
        yield _moments_case(float16, 200, 256, warps)
        yield _online_softmax_case(80, warps)
        yield from (_running_sum_case(dtype, 3, warps) for dtype in (float32, int32, uint32, int64, uint64))
    yield from _extent_cases()
    yield from _composed_cases()


def _extent_cases() -> Iterator[Case]:
    """Axis lengths from 1 to 4096, odd extents, rank 3."""
    for i, length in enumerate((1, 2, 4, 8, 64, 256, 1024)):
        warps = WARPS[i % 4]
        yield _axis_case(REDUCTIONS[i % 3], float32, (4, length), 1, warps)
        yield _axis_case(REDUCTIONS[(i + 1) % 3], int32, (length, 4), 0, warps)
        yield _flat_case(REDUCTIONS[i % 3], int64, length, length, warps)
    yield _axis_case(tl.sum, float32, (1, 4096), 1, 8)
    yield _axis_case(tl.max, bfloat16, (4096, 1), 0, 4)
    for shape in ((16, 80), (24, 16), (3, 32), (96, 8), (12, 20)):
        for axis in (0, 1):
            yield _axis_case(tl.sum, float32, shape, axis, 4)
            yield _axis_case(tl.max, int16, shape, axis, 2)
    for axis in range(3):
        yield _axis_case(tl.sum, float16, (4, 8, 16), axis, 4)
        yield _axis_case(tl.min, uint8, (8, 4, 8), axis, 1)
        yield _kept_case(tl.max, int32, (4, 8, 16), axis, 4)
    for axis in (0, 1):
        yield _kept_case(tl.sum, float32, (16, 32), axis, 4)
        yield _kept_case(tl.min, bfloat16, (32, 16), axis, 8)
        yield from (_transposed_sum_case((32, 16), axis, warps) for warps in (1, 4))
    for fn, dtype, n, block, warps in (
        (tl.sum, float32, 1000, 1024, 4), (tl.sum, float16, 4096, 4096, 8), (tl.max, float32, 4095, 4096, 4),
        (tl.min, bfloat16, 100, 128, 1), (tl.max, int8, 77, 128, 8), (tl.sum, uint64, 300, 512, 2),
        (tl.sum, int1, 90, 128, 4),
    ):  # fmt: skip
        yield _flat_case(fn, dtype, n, block, warps)
    for dtype, result in (
        (int1, int32),
        (int8, int32),
        (bfloat16, bfloat16),
        (bfloat16, float32),
        (int8, int64),
        (int32, float32),
        (float16, float32),
    ):
        yield _typed_sum_case(dtype, result, 1024)


def _composed_cases() -> Iterator[Case]:
    for dtype, columns, block, warps in (
        (float16, 1000, 1024, 4),
        (bfloat16, 77, 128, 2),
        (float32, 1, 16, 4),
        (float32, 2048, 2048, 8),
    ):
        yield _softmax_case(dtype, columns, block, warps)
        yield _moments_case(dtype, max(columns, 2), block, warps)
    yield from (_softmax_case(float32, 60, 64, warps, rows_per_tile=16) for warps in (1, 4))
    yield _softmax_case(float16, 80, 80, 4, rows_per_tile=8)
    yield from (_running_sum_case(float16, steps, 4) for steps in (0, 1, 2))
    yield from (_running_sum_case(dtype, 2, 2) for dtype in (int8, bfloat16, int1))
    yield from (_online_softmax_case(columns, 4) for columns in (1, 32, 200))
