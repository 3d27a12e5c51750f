"""Arithmetic, comparisons and selection.  Python's operators are used where they do what is wanted: on NumPy scalars
they are ten times as fast as the ufuncs, on tiles they are the ufuncs."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from .dtypes import F32, FLOATS, Value

Binary = Callable[[Value, Value], Value]


def remainder(a: Value, b: Value) -> Value:
    """Has the sign of the dividend."""
    return np.fmod(a, b)


def quotient(a: Value, b: Value) -> Value:
    """Truncated toward zero; the division left to do is exact."""
    if a.dtype.kind == "u":
        return a // b
    return (a - np.fmod(a, b)) // b


def minimum(a: Value, b: Value) -> Value:
    """The number where one operand is NaN; -0 is less than +0."""
    if a.dtype not in FLOATS:
        return np.minimum(a, b)
    smaller = np.fmin(a, b)
    if smaller.all():  # no zero whose sign NumPy leaves open
        return smaller
    zeros = (a == _zero(a)) & (b == _zero(b))
    return np.where(zeros, -((-a) + (-b)), smaller)[()]


def maximum(a: Value, b: Value) -> Value:
    """The number where one operand is NaN; +0 is greater than -0."""
    if a.dtype not in FLOATS:
        return np.maximum(a, b)
    larger = np.fmax(a, b)
    if larger.all():
        return larger
    zeros = (a == _zero(a)) & (b == _zero(b))
    return np.where(zeros, a + b, larger)[()]


def _zero(x: Value) -> Value:
    return x.dtype.type(0)


BINARY: dict[str, Binary] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "idiv": quotient,
    "rem": remainder,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "min": minimum,
    "max": maximum,
}
PREDICATES: dict[str, Binary] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def rsqrt(x: Value) -> Value:
    """1/sqrt(x), within 1.5 roundings; -0 gives -inf."""
    return F32.type(1) / np.sqrt(x)


def rsqrt_flushed(x: Value) -> Value:
    """As `v_rsq_f32`: a subnormal counts as zero of its sign."""
    return rsqrt(_flush(x))


def exp2(x: Value, ftz: bool) -> Value:
    """2**x; with `ftz` denormals of f32 are zero before and after."""
    return _flush(np.exp2(_flush(x))) if ftz else np.exp2(x)


def _flush(x: Value) -> Value:
    return np.where(np.abs(x) < np.finfo(F32).tiny, np.copysign(F32.type(0), x), x)[()]


UNARY: dict[str, Callable[[Value], Value]] = {
    "neg": operator.neg,
    "abs": operator.abs,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": rsqrt,
}


def select(condition: Value, a: Value, b: Value) -> Value:
    if condition.shape == ():
        return a if condition else b
    return np.where(condition, a, b)


def address(pointer: Value, offset: Value, size: int) -> Value:
    """Bytes, modulo 2**64; the offset counts elements of `size` bytes and is sign-extended first."""
    return pointer + np.multiply(offset, size, dtype=np.int64)
