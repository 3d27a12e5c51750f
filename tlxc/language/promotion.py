"""Which dtype an expression has: the typing of literals and the promotion of operands.

The rules, in order; `docs/numerics.md` publishes the resulting table and a test compares both.

Literals.  A Python bool, int or float takes the dtype of the value it meets when its kind (bool < int < float) is not
higher: `x * 2` keeps an f16 tile f16.  A higher kind keeps its natural dtype: bool int1; int the first of int32,
uint32, int64, uint64 that represents it; float float32.  A literal that its dtype cannot hold is an error, never a
wrapped, infinite or zero value; an int must be exact, a float rounds to nearest even.

Run-time values, scalars and tiles alike (a run-time scalar takes part like a tile, so 64-bit offsets are never cut):
  1. equal dtypes stay;
  2. a bool takes the other dtype;
  3. two different floats give float32, and so do an integer and a float of any width: 16-bit floats hold too few
     integers to receive one silently;
  4. two integers: the wider one wins, the unsigned one wins between equal widths.
Two bools in arithmetic (`+ - *`, shifts, `//`, `%`, minimum, maximum, negation) give int32; `& | ^` keep them bool.
The left operand alone gives the dtype of a shift.
"""

from __future__ import annotations

import math
from typing import Union

from tlxc.errors import CompileError
from tlxc.ir.types import DType, float32, int1, int32, int64, uint32, uint64

Literal = Union[bool, int, float]

_KIND_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2}
# Binary floats: bits of precision, exponent of the smallest subnormal, largest finite value.
_FORMATS: dict[str, tuple[int, int, float]] = {
    "float16": (11, -24, 65504.0),
    "bfloat16": (8, -133, (2.0 - 2.0**-7) * 2.0**127),
    "float32": (24, -149, (2.0 - 2.0**-23) * 2.0**127),
}


def is_literal(x: object) -> bool:
    """A number that is known at compile time."""
    return isinstance(x, (bool, int, float))


def is_symbolic(x: object) -> bool:
    """An integer of the host that stands for any, as the extents of a tensor are while torch traces (torch.SymInt)."""
    return hasattr(type(x), "__sym_float__")


def kind_rank(x: DType | Literal) -> int:
    """0 for bool, 1 for integers, 2 for floats, of a dtype or a literal."""
    if isinstance(x, DType):
        return _KIND_RANK[x.kind]
    return 0 if isinstance(x, bool) else 1 if isinstance(x, int) else 2


def natural(value: Literal) -> DType:
    """The dtype of a literal that meets no run-time value."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, float):
        return float32
    for dtype in (int32, uint32, int64, uint64):
        low, high = dtype.limits
        if low <= value <= high:
            return dtype
    raise CompileError(
        f"the literal {value} has no dtype",
        allowed=f"integers from {int64.limits[0]} to {uint64.limits[1]}",
        fix="write it as a float, or split it into two integers",
    )


def literal_dtype(value: Literal, other: DType) -> DType:
    """The dtype of a literal in an operation with a run-time value of dtype `other`."""
    return other if kind_rank(value) <= kind_rank(other) else natural(value)


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two run-time values (rules 1 to 4); two bools stay bool."""
    if a == b or b.kind == "bool":
        return a
    if a.kind == "bool":
        return b
    if a.is_float or b.is_float:
        return float32
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind == "uint" else b


def arithmetic(dtype: DType) -> DType:
    """The dtype in which arithmetic on `dtype` is done: int32 for bool."""
    return int32 if dtype.kind == "bool" else dtype


def fit(value: Literal, dtype: DType) -> Literal:
    """The value as `dtype` holds it: a Python bool, int or float that it represents exactly; an error where it
    cannot."""
    if dtype.is_float:
        return _fit_float(value, dtype)
    if isinstance(value, float) and not value.is_integer():
        raise CompileError(
            f"the literal {value} is not exact in {dtype!r}",
            allowed=f"integers from {dtype.limits[0]} to {dtype.limits[1]}",
            fix="write an integer, or make the value a float with `.to(tl.float32)`",
        )
    low, high = dtype.limits
    whole = int(value)
    if not low <= whole <= high:
        raise CompileError(
            f"the literal {value} is out of range of {dtype!r}",
            allowed=f"{low} to {high}",
            fix="write a value in range, or cast what it meets to a wider dtype with `.to(...)`",
        )
    return bool(whole) if dtype.kind == "bool" else whole


def round_to(value: float, dtype: DType) -> float:
    """Round to nearest even in a float dtype, with its subnormals; too large becomes infinity."""
    if value == 0 or not math.isfinite(value):
        return value
    precision, smallest, largest = _FORMATS[dtype.name]
    if abs(value) >= 2 * largest:
        return math.copysign(math.inf, value)
    quantum = max(math.frexp(value)[1] - precision, smallest)
    rounded = math.ldexp(float(round(math.ldexp(value, -quantum))), quantum)
    return rounded if abs(rounded) <= largest else math.copysign(math.inf, value)


def _fit_float(value: Literal, dtype: DType) -> float:
    try:
        rounded = round_to(float(value), dtype)
    except OverflowError:
        rounded = math.inf
    largest = _FORMATS[dtype.name][2]
    if math.isinf(rounded) and not (isinstance(value, float) and math.isinf(value)):
        raise CompileError(
            f"the literal {value} is out of range of {dtype!r}",
            allowed=f"{-largest:g} to {largest:g}, or float('inf')",
            fix="write a value in range, or cast what it meets with `.to(tl.float32)`",
        )
    if rounded == 0 and value != 0:
        raise CompileError(
            f"the literal {value} rounds to zero in {dtype!r}",
            allowed=f"magnitudes from {2.0 ** _FORMATS[dtype.name][1]:g}, or 0.0",
            fix="write 0.0, or cast what it meets with `.to(tl.float32)`",
        )
    if not isinstance(value, float) and rounded != value:
        raise CompileError(
            f"the integer {value} is not exact in {dtype!r}",
            found=f"the nearest value is {rounded:g}",
            allowed=f"every integer up to {1 << _FORMATS[dtype.name][0]} in magnitude is exact",
            fix=f"write {value}.0 if rounding is meant, or cast what it meets with `.to(tl.float32)`",
        )
    return rounded
