"""Floating-point operations with one rounding, as IEEE 754 and the PTX and CDNA manuals ask.

`half` and `bfloat` arithmetic is done in float32 and rounded once more; for +, -, *, / and sqrt that second rounding is
innocuous because float32 has more than twice their precision. Where it would not be (fma, conversions from wider
types) the first rounding is to odd.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tlxc.emulator.values import BF16, Array

_F32, _F64, _F16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
NARROW = (BF16, _F16)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """a + b in float64, rounded to odd: when inexact the last mantissa bit is set, so that a later rounding to a
    format at least two bits shorter is the rounding of the exact sum."""
    total = np.asarray(a + b)
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + away, bits).view(np.float64)


def _float32_to_odd(value: Array) -> Array:
    """float64 to float32, rounded to odd."""
    short = value.astype(np.float32)
    back = short.astype(np.float64)
    bits = short.view(np.int32)
    overflow = np.isinf(short) & np.isfinite(value)
    inexact = np.isfinite(short) & (back != value) & (bits & 1 == 0)
    away = np.where(np.abs(value) > np.abs(back), np.int32(1), np.int32(-1))
    bits = np.where(inexact, bits + away, bits) - overflow.astype(np.int32)
    return bits.view(np.float32)


def convert(value: Array, dtype: np.dtype[Any]) -> Array:
    """Float to float conversion, round to nearest even."""
    if dtype in NARROW and value.dtype == _F64:
        return _float32_to_odd(value).astype(dtype)
    return value.astype(dtype, copy=False)


def from_integer(value: Array, dtype: np.dtype[Any]) -> Array:
    """Integer (signed or unsigned NumPy type, or bool) to float, round to nearest even."""
    if dtype not in NARROW:
        return value.astype(dtype)
    if value.dtype.itemsize == 8:  # keep 52 bits, the rest as one sticky bit: float64 then holds the value exactly
        sticky = (value & 0xFFF) != 0
        large = np.abs(value.astype(np.float64)) >= 2.0**53
        value = np.where(
            large, (value & ~np.array(0xFFF).astype(value.dtype)) | (sticky * 0x800).astype(value.dtype), value
        )
    return convert(value.astype(np.float64), dtype)


def to_integer(value: Array, signed: bool, bits: int) -> Array:
    """Float to integer, truncating; saturates, NaN becomes 0. (LLVM leaves these cases undefined; NVIDIA and AMD
    conversion instructions saturate.) The result is int64 or uint64."""
    wide = np.trunc(value.astype(np.float64))
    low = -(2.0 ** (bits - 1)) if signed else 0.0
    high = 2.0 ** (bits - 1 if signed else bits)
    dtype = np.int64 if signed else np.uint64
    inside = (wide > low) & (wide < high)
    result = np.where(inside, wide, 0.0).astype(dtype)
    lowest = -(1 << (bits - 1)) if signed else 0
    highest = (1 << (bits - 1 if signed else bits)) - 1
    result = np.where(wide <= low, np.array(lowest, dtype), result)
    return np.where(wide >= high, np.array(highest, dtype), result)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once (float64: to within one unit in the last place of the exact result)."""
    if a.dtype == _F64:
        return _fma_double(a, b, c)
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: at most 48 bits
    wide = c.astype(np.float64)
    total = product + wide
    if a.dtype == _F32:
        halfway = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
        if not halfway.any() and not (np.abs(total) < 2.0**-126).any():
            return total.astype(np.float32)  # the double rounding is harmless
    return convert(_sum_to_odd(product, wide), a.dtype)


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    """Error-free product and sum, then their small parts added once."""
    product = a * b
    split = 134217729.0
    ah, bh = a * split, b * split
    ah, bh = ah - (ah - a), bh - (bh - b)
    al, bl = a - ah, b - bh
    product_error = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part) + product_error
    return np.where(np.isfinite(total) & np.isfinite(error), total + error, total)


def unary(function: Any, value: Array) -> Array:
    """A NumPy function of one float argument; narrow types go through float32."""
    if value.dtype in NARROW:
        return function(value.astype(np.float32)).astype(value.dtype)
    return function(value)


def flush(value: Array) -> Array:
    """Denormal float32 to zero of the same sign (`.ftz`)."""
    return np.where(np.abs(value) < np.float32(2.0**-126), np.copysign(np.float32(0), value), value)


def _ordered_zeros(result: Array, a: Array, b: Array, largest: bool) -> Array:
    """-0 < +0, which NumPy does not promise."""
    zeros = (a == 0) & (b == 0)
    if not zeros.any():
        return result
    return np.where(zeros, a + b if largest else -((-a) + (-b)), result)


def minimum(a: Array, b: Array) -> Array:
    """NaN if either is NaN."""
    return _ordered_zeros(np.minimum(a, b), a, b, False)


def maximum(a: Array, b: Array) -> Array:
    """NaN if either is NaN."""
    return _ordered_zeros(np.maximum(a, b), a, b, True)


def min_number(a: Array, b: Array) -> Array:
    """The other operand if one is NaN."""
    return _ordered_zeros(np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.minimum(a, b))), a, b, False)


def max_number(a: Array, b: Array) -> Array:
    """The other operand if one is NaN."""
    return _ordered_zeros(np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.maximum(a, b))), a, b, True)
