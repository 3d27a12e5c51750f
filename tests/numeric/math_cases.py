"""Elementwise arithmetic: every operator, conversion and function over every dtype that takes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int1, int8, int32, int64, uint8, uint32

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
    every_value,
    exact,
    near,
    numbers,
    pairs,
    plain,
    round_float,
    round_int,
    specials,
    storage,
    to_storage,
    values,
    wide,
)

FLOATS = [d for d in DTYPES.values() if d.is_float]
INTEGERS = [d for d in DTYPES.values() if d.is_int]
NUMBERS = INTEGERS + FLOATS
ALL = [int1, *NUMBERS]

BLOCK, SMALL_N, BIG_N = 256, 2 * 256 - 37, 40 * 256 - 37


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def unary_kernel(x, out, n, FN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, FN(tl.load(x + offsets, mask=inside)), mask=inside)


@tlxc.kernel
def binary_kernel(x, y, out, n, FN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside)
    b = tl.load(y + offsets, mask=inside, other=1)
    tl.store(out + offsets, FN(a, b), mask=inside)


@tlxc.kernel
def ternary_kernel(x, y, z, out, n, FN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside)
    b = tl.load(y + offsets, mask=inside)
    c = tl.load(z + offsets, mask=inside)
    tl.store(out + offsets, FN(a, b, c), mask=inside)


@tlxc.kernel
def cast_kernel(x, o0, o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, n, TO: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside)
    outs = (o0, o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11)
    for i in tl.static_range(12):
        tl.store(outs[i] + offsets, a.to(TO[i]), mask=inside)


@tlxc.kernel
def bitcast_kernel(x, out, n, TO: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside).to(TO, bitcast=True), mask=inside)


@tlxc.kernel
def constant_kernel(out, n, VALUES: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for i in tl.static_range(len(VALUES)):
        tl.store(out + i * n + offsets, tl.full((BLOCK,), VALUES[i], DTYPE), mask=offsets < n)


@tlxc.kernel
def scalar_kernel(a, b, out, FN: tl.constexpr):
    tl.store(out + tl.program_id(0), FN(a, b))


def add(a, b):
    return a + b


def sub(a, b):
    return a - b


def mul(a, b):
    return a * b


def divide(a, b):
    return a / b


def floordiv(a, b):
    return a // b


def mod(a, b):
    return a % b


def bit_and(a, b):
    return a & b


def bit_or(a, b):
    return a | b


def bit_xor(a, b):
    return a ^ b


def shift_left(a, b):
    return a << b


def shift_right(a, b):
    return a >> b


def minimum(a, b):
    return tl.minimum(a, b)


def maximum(a, b):
    return tl.maximum(a, b)


def ceil_divide(a, b):
    return tl.cdiv(a, b)


def comparisons(a, b):
    flags = (a == b).to(tl.int32) + (a != b).to(tl.int32) * 2 + (a < b).to(tl.int32) * 4
    return flags + (a <= b).to(tl.int32) * 8 + (a > b).to(tl.int32) * 16 + (a >= b).to(tl.int32) * 32


def negate(a):
    return -a


def invert(a):
    return ~a


def absolute(a):
    return tl.abs(a)


def logical_not(a):
    return not a


def choose(c, a, b):
    return tl.where(c, a, b)


def multiply_add(a, b, c):
    return a * b + c


def literals(a):
    return 3 - a * 2 + 1


def float_literals(a):
    return 1.5 - a * 0.25


# ---------------------------------------------------------------------------------------------------------- references
def _float_binary(fn: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """In float64; of 16 and 32-bit operands one rounding of that is the correctly rounded result."""
    return lambda a, b: fn(a.astype(np.float64), b.astype(np.float64))


def _truncated(a: Array, b: Array) -> tuple[Array, Array]:
    """Quotient toward zero and its remainder, as Python ints."""
    x, y = wide(a), wide(b)
    q = np.array([abs(m) // abs(n) * (1 if (m < 0) == (n < 0) else -1) for m, n in zip(x, y)], object)
    return q, x - q * y


def _comparison_bits(a: Array, b: Array) -> Array:
    tests = (a == b, a != b, a < b, a <= b, a > b, a >= b)
    return sum(t.astype(np.int32) << i for i, t in enumerate(tests))


def _shift(a: Array, b: Array, left: bool) -> Array:
    return np.array([int(m) << int(n) if left else int(m) >> int(n) for m, n in zip(a, b)], object)


def _bits(values: Array, dtype: DType) -> Array:
    """Python ints modulo 2**bits, in the dtype's storage."""
    modulus = 1 << dtype.bits
    low = dtype.limits[0]
    return np.array([(int(v) - low) % modulus + low for v in values], storage(dtype))


def _arithmetic(fn: Callable[[Any, Any], Any]) -> Callable[[Array, Array, DType], Expect]:
    """+, -, *: floats rounded once, integers modulo their width (bools count in int32)."""

    def expect(a: Array, b: Array, result: DType) -> Expect:
        if result.is_float:
            return exact(_float_binary(fn)(a, b))
        return exact(_bits(fn(wide(a), wide(b)), result))

    return expect


def _extreme(float_fn: Callable[..., Array], int_fn: Callable[..., Array]) -> Callable[[Array, Array, DType], Expect]:
    def expect(a: Array, b: Array, result: DType) -> Expect:
        if result.is_float:
            return exact(_float_binary(float_fn)(a, b), signed_zero=False)
        return exact(int_fn(a.astype(storage(result)), b.astype(storage(result))))

    return expect


def _quotient(a: Array, b: Array, result: DType) -> Expect:
    if dtype_of(a).is_float:
        with np.errstate(all="ignore"):
            q = a.astype(np.float64) / b.astype(np.float64)
        # 16-bit quotients are rounded to float32 first.
        return exact(round_float(q, float32))
    x, y = (np.array([round_int(int(v), float32) for v in z]) for z in (a, b))
    return exact(x / y)


def _ceil(a: Array, b: Array, result: DType) -> Expect:
    return exact(np.array([-(-m // n) for m, n in zip(wide(a), wide(b))], object))


BinaryReference = Callable[[Array, Array, DType], Expect]

# function -> (op kinds, operand dtypes, reference)
_BINARY: dict[Any, tuple[str, list[DType], BinaryReference]] = {
    add: ("add", ALL, _arithmetic(lambda a, b: a + b)),
    sub: ("sub", ALL, _arithmetic(lambda a, b: a - b)),
    mul: ("mul", ALL, _arithmetic(lambda a, b: a * b)),
    minimum: ("min", ALL, _extreme(np.fmin, np.minimum)),
    maximum: ("max", ALL, _extreme(np.fmax, np.maximum)),
    divide: ("div", [*FLOATS, int32, uint8, int64], _quotient),
    floordiv: ("idiv", INTEGERS, lambda a, b, r: exact(_truncated(a, b)[0])),
    mod: ("rem", INTEGERS, lambda a, b, r: exact(_truncated(a, b)[1])),
    bit_and: ("and", [int1, *INTEGERS], lambda a, b, r: exact(a & b)),
    bit_or: ("or", [int1, *INTEGERS], lambda a, b, r: exact(a | b)),
    bit_xor: ("xor", [int1, *INTEGERS], lambda a, b, r: exact(a ^ b)),
    shift_left: ("shl", INTEGERS, lambda a, b, r: exact(_bits(_shift(a, b, True), r))),
    shift_right: ("shr", INTEGERS, lambda a, b, r: exact(_bits(_shift(a, b, False), r))),
    comparisons: ("cmp", ALL, lambda a, b, r: exact(_comparison_bits(a, b))),
    ceil_divide: ("idiv rem", [int8, int32, int64, uint8, uint32], _ceil),
}


def _result(fn: Any, dtype: DType) -> DType:
    """The dtype of `fn` on two operands of one dtype."""
    if fn is comparisons or (dtype.kind == "bool" and fn not in (bit_and, bit_or, bit_xor)):
        return int32
    return float32 if fn is divide and not dtype.is_float else dtype


def _operands(fn: Any, dtype: DType, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Pairs that the op is defined on."""
    a, b = pairs(rng, dtype, n)
    if fn in (shift_left, shift_right):
        b = rng.integers(0, dtype.bits, n).astype(storage(dtype))
    if fn in (floordiv, mod, ceil_divide):
        b = np.where(b == 0, storage(dtype).type(3), b)
        b = np.where((a == dtype.limits[0]) & (wide(b) == -1), storage(dtype).type(2), b)
    if fn is divide and not dtype.is_float:
        b = np.where(b == 0, storage(dtype).type(3), b)
    return a, b


def _grid(n: int) -> tuple[int]:
    return (-(-n // BLOCK),)


def _binary_case(fn: Any, dtype: DType, warps: int) -> Case:
    kinds, _, reference = _BINARY[fn]
    result = _result(fn, dtype)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        a, b = _operands(fn, dtype, rng, n)
        args = {"x": In(a), "y": In(b), "out": Out(n, result), "n": n, "FN": fn, "BLOCK": BLOCK}
        with np.errstate(all="ignore"):
            return Launch(_grid(n), args, {"out": reference(a, b, result)})

    computed = float32 if fn is divide else result if fn is not comparisons else dtype
    listed = cells(kinds, computed.short) | cells("arange", "i32")
    return Case(f"{fn.__name__}-{dtype}-w{warps}", binary_kernel, make, warps, listed)


# ---------------------------------------------------------------------------------------------------------- one operand
def _exp2_error(x: Array, y: Array) -> Array:
    return np.abs(y) * 2.0**-22 + 2.0**-148


def _exp_error(x: Array, y: Array) -> Array:
    return np.abs(y) * (2.0**-22 + np.abs(x) * 2.0**-23) + 2.0**-148


def exp2_ftz(x):
    return tl.exp2(x, ftz=True)


def _exp2_ftz(x: Array) -> Array:
    """Denormals of f32 are zero before and after."""
    smallest = 2.0**-126
    y = np.exp2(np.where(np.abs(x) < smallest, 0.0, x))
    return np.where(np.abs(y) < smallest, 0.0, y)


def _exp2_ftz_error(x: Array, y: Array) -> Array:
    """A result beside the smallest normal number may be flushed or not."""
    return np.abs(y) * 2.0**-22 + np.where(np.abs(y) < 2.0**-125, 2.0**-125, 0.0) * (np.abs(x + 126) < 2.0**-16)


def _log_error(relative: float) -> Callable[[Array, Array], Array]:
    return lambda x, y: np.where((x > 0.5) & (x < 2), 2.0**-22, np.abs(y) * relative)


# tl function -> (op kinds, reference in float64, error of the float32 result)
_FUNCTIONS: dict[Any, tuple[str, Callable[[Array], Array], Callable[[Array, Array], Array]]] = {
    tl.exp2: ("exp2", np.exp2, _exp2_error),
    exp2_ftz: ("exp2", _exp2_ftz, _exp2_ftz_error),
    tl.exp: ("exp2 mul", np.exp, _exp_error),
    tl.log2: ("log2", np.log2, _log_error(2.0**-22)),
    tl.log: ("log2 mul", np.log, _log_error(2.0**-21)),
    tl.sqrt: ("sqrt", lambda x: round_float(np.sqrt(x), float32), lambda x, y: 0.0 * y),
    tl.rsqrt: ("rsqrt", lambda x: 1 / np.sqrt(x), lambda x, y: np.abs(y) * 2.0**-22.9),
}


def _function_inputs(fn: Any, dtype: DType, rng: np.random.Generator, n: int) -> Array:
    """Special values, and the range in which the function has most to get wrong."""
    x = values(rng, dtype, n)
    if fn in (tl.exp, tl.exp2, exp2_ftz):
        return np.where(rng.random(n) < 0.5, to_storage(round_float(rng.uniform(-160, 160, n), dtype), dtype), x)
    return np.where(rng.random(n) < 0.8, np.abs(x), x)


def _function_case(fn: Any, dtype: DType, warps: int) -> Case:
    kinds, reference, error = _FUNCTIONS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        exhaustive = big and warps == 4 and dtype.bits == 16
        n = 1 << 16 if exhaustive else BIG_N if big else SMALL_N
        x = every_value(dtype) if exhaustive else _function_inputs(fn, dtype, rng, n)
        v = plain(x)
        with np.errstate(all="ignore"):
            y = reference(v)
            expect = near(y, np.where(np.isfinite(v) & np.isfinite(y), error(v, y), 0.0))
        args = {"x": In(x), "out": Out(n, dtype), "n": n, "FN": fn, "BLOCK": BLOCK}
        return Launch(_grid(n), args, {"out": expect})

    amd = fn is not tl.rsqrt or dtype is float16  # AMD takes a subnormal float32 as 0
    return Case(f"{fn.__name__}-{dtype}-w{warps}", unary_kernel, make, warps, cells(kinds, "f32"), amd)


def _negated(x: Array, result: DType) -> Array:
    return -x.astype(np.float64) if result.is_float else _bits(-wide(x), result)


def _magnitude(x: Array, result: DType) -> Array:
    return np.abs(x.astype(np.float64)) if result.is_float else _bits(abs(wide(x)), result)


# function -> (op kind, operand dtypes, reference)
_UNARY: dict[Any, tuple[str, list[DType], Callable[[Array, DType], Array]]] = {
    negate: ("neg", ALL, _negated),
    absolute: ("abs", ALL, _magnitude),
    invert: ("xor", [int1, *INTEGERS], lambda x, result: ~x),
    logical_not: ("xor", ALL, lambda x, result: x == 0),
}


def _unary_case(fn: Any, dtype: DType, warps: int) -> Case:
    kind, _, reference = _UNARY[fn]
    result = int1 if fn is logical_not else int32 if dtype == int1 and fn is negate else dtype

    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        x = values(rng, dtype, n)
        args = {"x": In(x), "out": Out(n, result), "n": n, "FN": fn, "BLOCK": BLOCK}
        with np.errstate(all="ignore"):
            return Launch(_grid(n), args, {"out": exact(reference(x, result))})

    computes = fn is not absolute or dtype.kind in ("int", "float")  # of unsigned values abs is the value
    listed = cells(kind, result.short) if computes else frozenset()
    return Case(f"{fn.__name__}-{dtype}-w{warps}", unary_kernel, make, warps, listed)


# ------------------------------------------------------------------------------------------------------------- literals
def _literal_case(dtype: DType) -> Case:
    """`3 - x * 2 + 1` keeps the dtype; the product is exact, so that fusing it changes nothing."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        x = numbers(rng, dtype, n)
        if dtype.is_float:
            y = round_float(3 - x.astype(np.float64) * 2, dtype) + 1
        else:
            y = _bits(4 - wide(x) * 2, dtype)
        args = {"x": In(x), "out": Out(n, dtype), "n": n, "FN": literals, "BLOCK": BLOCK}
        return Launch(_grid(n), args, {"out": exact(y)})

    return Case(f"literals-{dtype}", unary_kernel, make, 4)


def _float_literal_case(dtype: DType) -> Case:
    """`1.5 - x * 0.25` keeps a float dtype and makes integers float32."""
    result = dtype if dtype.is_float else float32

    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        x = numbers(rng, dtype, n)
        v = x.astype(np.float64) if dtype.is_float else np.array([round_int(int(i), float32) for i in x])
        args = {"x": In(x), "out": Out(n, result), "n": n, "FN": float_literals, "BLOCK": BLOCK}
        return Launch(_grid(n), args, {"out": exact(1.5 - v * 0.25)})

    return Case(f"float-literals-{dtype}", unary_kernel, make, 4)


# ------------------------------------------------------------------------------------------ three operands, conversions
def _where_case(dtype: DType, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        c, (a, b) = rng.integers(0, 2, n).astype(bool), pairs(rng, dtype, n)
        args = {"x": In(c), "y": In(a), "z": In(b), "out": Out(n, dtype), "n": n, "FN": choose, "BLOCK": BLOCK}
        chosen = np.where(c, a, b)
        return Launch(_grid(n), args, {"out": exact(chosen.astype(np.float64) if dtype.is_float else chosen)})

    return Case(f"where-{dtype}-w{warps}", ternary_kernel, make, warps, cells("select load store", dtype.short))


def _multiply_add_case(dtype: DType, warps: int) -> Case:
    """The product may be rounded or not."""
    precision = {"f16": 11, "bf16": 8, "f32": 24}[dtype.short]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        a, b, c = (numbers(rng, dtype, n) for _ in range(3))
        product = a.astype(np.float64) * b.astype(np.float64)
        args = {"x": In(a), "y": In(b), "z": In(c), "out": Out(n, dtype), "n": n, "FN": multiply_add, "BLOCK": BLOCK}
        expect = near(product + c.astype(np.float64), np.abs(product) * 2.0**-precision + 2.0**-24)
        return Launch(_grid(n), args, {"out": expect})

    return Case(f"multiply-add-{dtype}-w{warps}", ternary_kernel, make, warps)


_FLOAT_EDGES = (127.5, 128.0, -128.5, -129.0, 255.5, 256.0, 32767.9, -32769.0, 65519.0, 65520.0, 2.0**31 - 128,
                2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**32, 2.0**63 - 2.0**40, 2.0**63, -(2.0**63), 2.0**64, 1e30,
                0.99, -0.99, 1.5, 2.5, 1e-40, 6e-8, 3e-8, 2.0**-25, 1.00390625, 1.01171875, 2049.0, 2051.0)  # fmt: skip
_INTEGER_EDGES = (255, 256, 257, 259, -257, -259, 2047, 2049, 2051, 33000, -33000, 65504, 65519, 65520, 65536,
                  2**24 - 1, 2**24 + 1, 2**24 + 3, 2**31 - 65, 2**31 - 64, 2**40 + 2**16 + 1, 2**53 + 1, 2**62 + 2**38,
                  2**62 + 2**38 + 1, 2**63 - 1, 2**64 - 1)  # fmt: skip


def _cast_inputs(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    if dtype.kind == "bool":
        return values(rng, dtype, n)
    if dtype.is_float:
        edges = to_storage(round_float(_FLOAT_EDGES, dtype), dtype)
    else:
        low, high = dtype.limits
        edges = np.array([v for v in _INTEGER_EDGES if low <= v <= high], storage(dtype))
    return rng.permutation(np.concatenate([edges, values(rng, dtype, n)])[:n])


def converted(x: Array, to: DType) -> Array:
    """The rules of docs/numerics.md, in float64 or integers."""
    source = dtype_of(x)
    if to.kind == "bool":
        return x != 0
    if source.is_float and to.is_float:
        return round_float(x.astype(np.float64), to)
    if source.is_float:
        low, high = to.limits
        return np.array(
            [0 if v != v else low if v <= low else high if v >= high else int(v) for v in map(float, x)], storage(to)
        )
    if to.is_float:
        return np.array([round_int(int(v), to) for v in x])
    return _bits(wide(x), to)


def _cast_case(source: DType, warps: int) -> Case:
    targets = tuple(DTYPES.values())

    def make(rng: np.random.Generator, big: bool) -> Launch:
        exhaustive = big and warps == 4 and 8 <= source.bits <= 16
        n = 1 << source.bits if exhaustive else BIG_N if big else SMALL_N
        x = every_value(source) if exhaustive else _cast_inputs(rng, source, n)
        outs = {f"o{i}": Out(n, to) for i, to in enumerate(targets)}
        args = {"x": In(x), **outs, "n": n, "TO": targets, "BLOCK": BLOCK}
        with np.errstate(all="ignore"):
            return Launch(_grid(n), args, {f"o{i}": exact(converted(x, to)) for i, to in enumerate(targets)})

    return Case(f"cast-{source}-w{warps}", cast_kernel, make, warps, cells("cast", source.short))


def _bitcast_case(source: DType, to: DType, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        x = rng.integers(0, 256, n * source.bytes, np.uint8).view(storage(source))
        if source.is_float:  # which NaN comes out is left open
            with np.errstate(invalid="ignore"):
                x = np.where(x == x, x, x.dtype.type(1))
        args = {"x": In(x), "out": Out(n, to), "n": n, "TO": to, "BLOCK": BLOCK}
        return Launch(_grid(n), args, {"out": exact(x.view(storage(to)))})

    return Case(f"bitcast-{source}-{to}-w{warps}", bitcast_kernel, make, warps, cells("bitcast", to.short))


def _constant_case(dtype: DType, warps: int) -> Case:
    constants = tuple(v.item() for v in specials(dtype).astype(np.float64 if dtype.is_float else storage(dtype)))

    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BLOCK - 37
        args = {"out": Out((len(constants), n), dtype), "n": n, "VALUES": constants, "DTYPE": dtype, "BLOCK": BLOCK}
        wanted = np.array(constants, np.float64 if dtype.is_float else storage(dtype))
        return Launch((1,), args, {"out": exact(np.repeat(wanted[:, None], n, 1))})

    return Case(f"constant-{dtype}-w{warps}", constant_kernel, make, warps, cells("constant", dtype.short))


# ------------------------------------------------------------------------------------------------ promotion and scalars
# (left, right, dtype of their sum): the table of docs/numerics.md in examples
_PROMOTED = (
    (int1, int32, int32), (int1, bfloat16, bfloat16), (int8, int32, int32), (int32, uint32, uint32),
    (int32, int64, int64), (uint8, int8, uint8), (uint32, int64, int64), (int32, bfloat16, float32),
    (uint8, float16, float32), (int64, float16, float32), (float16, bfloat16, float32), (float16, float32, float32),
    (bfloat16, float32, float32), (int1, uint8, uint8),
)  # fmt: skip


def _promotion_case(left: DType, right: DType, result: DType) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = BIG_N if big else SMALL_N
        a, b = numbers(rng, left, n), numbers(rng, right, n)
        if result.is_float:
            with np.errstate(all="ignore"):
                expect = exact(converted(a, result).astype(np.float64) + converted(b, result).astype(np.float64))
        else:
            expect = exact(_bits(wide(a) + wide(b), result))
        args = {"x": In(a), "y": In(b), "out": Out(n, result), "n": n, "FN": add, "BLOCK": BLOCK}
        return Launch(_grid(n), args, {"out": expect})

    return Case(f"promote-{left}-{right}", binary_kernel, make, 4)


# (function, a, b, dtype of the result, result): run-time scalars, by the rules of tiles
_SCALARS = (
    (add, 2**31 - 2, 3, int32, -(2**31) + 1), (add, 2**40, 3, int64, 2**40 + 3), (mul, 1 << 20, 1 << 13, int32, 0),
    (floordiv, -7, 3, int32, -2), (mod, -7, 3, int32, -1), (floordiv, 7, -3, int32, -2), (mod, 7, -3, int32, 1),
    (ceil_divide, -36, 5, int32, -7), (ceil_divide, 7, -3, int32, -2), (divide, 7, 2, float32, 3.5),
    (sub, 2.5, 7, float32, -4.5), (minimum, 2.5, float("nan"), float32, 2.5), (maximum, True, False, int32, 1),
    (bit_xor, True, False, int1, True), (shift_right, -9, 2, int32, -3), (comparisons, 3, 4, int32, 2 + 4 + 8),
)  # fmt: skip


def _scalar_case(index: int, warps: int) -> Case:
    fn, a, b, dtype, result = _SCALARS[index]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        return Launch((2,), {"a": a, "b": b, "out": Out(2, dtype), "FN": fn}, {"out": exact(np.full(2, result))})

    return Case(f"scalar-{fn.__name__}-{a}-{b}-w{warps}", scalar_kernel, make, warps)


def cases() -> Iterator[Case]:
    for warps in WARPS:
        for fn, (_, dtypes, _) in _BINARY.items():
            yield from (_binary_case(fn, dtype, warps) for dtype in dtypes)
        for fn, (_, dtypes, _) in _UNARY.items():
            yield from (_unary_case(fn, dtype, warps) for dtype in dtypes)
        for fn in _FUNCTIONS:
            yield from (_function_case(fn, dtype, warps) for dtype in FLOATS)
        for dtype in ALL:
            yield _where_case(dtype, warps)
            yield _cast_case(dtype, warps)
            yield _constant_case(dtype, warps)
        for a, b in itertools.permutations(NUMBERS, 2):
            if a.bits == b.bits:
                yield _bitcast_case(a, b, warps)
        yield from (_multiply_add_case(dtype, warps) for dtype in FLOATS)
    for dtype in NUMBERS:
        yield _literal_case(dtype)
        yield _float_literal_case(dtype)
    yield from (_promotion_case(*row) for row in _PROMOTED)
    yield from (_scalar_case(i, (1, 4)[i % 2]) for i in range(len(_SCALARS)))
