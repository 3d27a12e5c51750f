"""Numeric conversions: one function per pair of dtypes, chosen once when this module is imported.

Rules, as in docs/numerics.md: to a narrower float one rounding to nearest even; float to integer toward zero,
saturating, NaN to 0; to bool x != 0; integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tlxc.ir.types import DTYPES, DType

from .dtypes import BF16, F32, F64, FLOATS, STORAGE, Value

Rule = Callable[[Value], Value]

# Bits of a float64's fraction below the 7 of a bf16, and of an integer's lowest bits that no rounding to bf16 sees.
_BELOW_BF16 = 45
_STICKY = 0xFFF


def _plain(dtype: np.dtype[Any]) -> Rule:
    """A C conversion: exact, wrapping, or rounded once, as NumPy does it."""
    return lambda x: x.astype(dtype)


def _through_f32(dtype: np.dtype[Any]) -> Rule:
    """Where float32 holds every value of the source."""
    return lambda x: x.astype(F32).astype(dtype)


def _saturating(to: DType) -> Rule:
    """Float to an integer of at most 32 bits, whose limits float64 holds."""
    low, high = to.limits
    dtype = STORAGE[to.short]

    def rule(x: Value) -> Value:
        wide = x.astype(F64)
        inside = np.fmin(np.fmax(wide, low), high)
        return np.where(wide == wide, inside, 0.0).astype(dtype)[()]

    return rule


def _saturating_64(to: DType) -> Rule:
    """The same for 64 bits: `high` + 1 is a power of two, which float64 holds."""
    low, high = to.limits
    dtype = STORAGE[to.short]

    def rule(x: Value) -> Value:
        wide = x.astype(F64)
        inside = np.where((wide > low) & (wide < high + 1), wide, 0.0).astype(dtype)
        inside = np.where(wide <= low, dtype.type(low), inside)
        return np.where(wide >= high + 1, dtype.type(high), inside)[()]

    return rule


def _wide_integer_to_bf16(x: Value) -> Value:
    """Rounds once: through a float64 that rounds like the integer, cut by hand to the precision of bf16."""
    x = np.asarray(x)
    if x.dtype.itemsize == 8:  # more than float64 holds: whether any low bit is set is all that matters
        low = x & _STICKY
        sticky = (x - low) | np.where(low, (_STICKY + 1) // 2, 0).astype(x.dtype)
        x = np.where(np.abs(x.astype(F64)) >= 2.0**53, sticky, x)
    bits = x.astype(F64).view(np.int64)
    bits = bits + ((1 << (_BELOW_BF16 - 1)) - 1) + (bits >> _BELOW_BF16 & 1)
    return (bits >> _BELOW_BF16 << _BELOW_BF16).view(F64).astype(F32).astype(BF16)[()]


def _rule(source: DType, to: DType) -> Rule:
    dtype = STORAGE[to.short]
    if source == to:
        return lambda x: x
    if source.is_float and to.is_int:
        return (_saturating_64 if to.bits == 64 else _saturating)(to)
    if dtype == BF16 and source.is_int and source.bits > 16:
        return _wide_integer_to_bf16
    if dtype in FLOATS and source.bits <= 16:
        return _through_f32(dtype)
    return _plain(dtype)


_RULES = {(STORAGE[a.short], b.short): _rule(a, b) for a in DTYPES.values() for b in DTYPES.values()}


def convert(x: Value, to: DType) -> Value:
    """`x`, of any storage dtype, converted to `to` as `cast` does."""
    rule: Rule = _RULES[x.dtype, to.short]
    return rule(x)
