"""Values of the simulator: every pure op has a function, and its corner cases against exact references."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numeric.support import (
    Array,
    every_value,
    numbers,
    round_float,
    round_int,
    specials,
)

from tlxc.ir.core import Op, Value
from tlxc.ir.table import OPS
from tlxc.ir.types import DTYPES, DType, Pointer, Scalar, Tensor, int1, int32
from tlxc.simulator.values import TILE_OPS, convert, matmul, quiet, storage

FLOATS = [d for d in DTYPES.values() if d.is_float]
INTEGERS = [d for d in DTYPES.values() if d.is_int]

# Of the families that are values alone, what the machine does: the lanes of a vote, where the program is.
VALUE_FAMILIES = ("math", "shape", "reduce")
VALUES_ELSEWHERE = {"addptr", "dot"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


# ------------------------------------------------------------------------------------------------------------ coverage
@pytest.mark.parametrize("kind", sorted(OPS))
def test_every_op_that_is_a_value_has_a_function(kind: str) -> None:
    assert (kind in TILE_OPS) == (OPS[kind].family in VALUE_FAMILIES or kind in VALUES_ELSEWHERE)


def test_every_dtype_has_a_storage() -> None:
    for dtype in DTYPES.values():
        assert storage(dtype).itemsize == dtype.bytes
    assert storage(Pointer(int32)) == np.int64


# ---------------------------------------------------------------------------------------------- making an op by hand
def tile_op(kind: str, result: Any, *operands: Any, **attrs: Any) -> Op:
    return Op(kind, [Value(t) for t in operands], (result,), attrs)


def run(kind: str, result: Any, values: list[Any], **attrs: Any) -> Any:
    return TILE_OPS[kind](tile_op(kind, result, **attrs), values)


def bits(x: Array) -> Array:
    x = np.ascontiguousarray(x)
    return x.view(np.uint8) if x.dtype == bool else x.view(f"u{x.dtype.itemsize}")


def same(a: Any, b: Any) -> bool:
    """Equal values, signs of zero included, of one dtype; every NaN equals every other."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype.kind in "iub":
        return bool((a == b).all())
    nan = np.isnan(a) & np.isnan(b)
    return bool((nan | (bits(a) == bits(b))).all())


# ------------------------------------------------------------------------------------------------------------- integers
def pairs_of(dtype: DType) -> tuple[Array, Array]:
    rng = np.random.default_rng(dtype.bits)
    a = np.concatenate([specials(dtype), numbers(rng, dtype, 40)])
    x, y = np.meshgrid(a, a)
    return x.ravel(), y.ravel()


def wrapped(n: int, dtype: DType) -> int:
    low, _ = dtype.limits
    return (n - low) % (1 << dtype.bits) + low


def truncated(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "idiv": truncated,
    "rem": lambda a, b: a - truncated(a, b) * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", EXACT)
def test_integers_against_python(kind: str, dtype: DType) -> None:
    a, b = pairs_of(dtype)
    if kind in ("idiv", "rem"):
        low = dtype.limits[0]
        keep = (b != 0) & ~((a == low) & (b.astype(object) == -1))
        a, b = a[keep], b[keep]
    elif kind in ("shl", "shr"):
        b = (b.astype(object) % dtype.bits).astype(storage(dtype))
    wanted = np.array([wrapped(EXACT[kind](int(x), int(y)), dtype) for x, y in zip(a, b)], storage(dtype))
    assert same(run(kind, Tensor(a.shape, dtype), [a, b]), wanted)
    for i in range(0, len(a), 97):
        scalar = run(kind, Scalar(dtype), [a[i], b[i]])
        assert isinstance(scalar, np.generic) and same(scalar, wanted[i])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_negation_and_magnitude_wrap(dtype: DType) -> None:
    a = specials(dtype)
    wanted = np.array([wrapped(-int(x), dtype) for x in a], a.dtype)
    assert same(run("neg", Tensor(a.shape, dtype), [a]), wanted)
    if dtype.signed:
        wanted = np.array([wrapped(abs(int(x)), dtype) for x in a], a.dtype)
        assert same(run("abs", Tensor(a.shape, dtype), [a]), wanted)


def test_undefined_operations_give_some_number() -> None:
    one, zero = np.array([1], np.int32), np.array([0], np.int32)
    for kind, b in (("idiv", zero), ("rem", zero), ("shl", one * 77), ("shr", one * -1)):
        assert run(kind, Tensor((1,), int32), [one, b]).dtype == np.int32


# --------------------------------------------------------------------------------------------------------------- floats
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div"])
def test_float_arithmetic_rounds_once(kind: str, dtype: DType) -> None:
    """Of two f32 numbers float64 holds the product, and its sum and quotient round alike to f32 except at ties."""
    a, b = pairs_of(dtype)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[kind]
    x, y = a.astype(np.float64), b.astype(np.float64)
    wanted = round_float(function(x, y), dtype).astype(np.float32).astype(storage(dtype))
    assert same(run(kind, Tensor(a.shape, dtype), [a, b]), wanted)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extremes_of_nan_and_zeros(dtype: DType) -> None:
    """-0 < +0, and a NaN loses against a number; of tiles, of scalars and of reductions alike."""

    def key(x: Any) -> tuple[float, bool]:
        return float(x), not np.signbit(x)

    a, b = pairs_of(dtype)
    for kind, pick in (("min", min), ("max", max)):
        wanted = [x if np.isnan(y) else y if np.isnan(x) else pick(x, y, key=key) for x, y in zip(a, b)]
        expected = np.array(wanted, storage(dtype))
        assert same(run(kind, Tensor(a.shape, dtype), [a, b]), expected)
        both = np.stack([a, b], 1)
        assert same(run("reduce", Tensor(a.shape, dtype), [both], axis=1, combine=kind), expected)
        for i in range(0, len(a), 53):
            assert same(run(kind, Scalar(dtype), [a[i], b[i]]), expected[i])
            assert same(run("reduce", Scalar(dtype), [both[i]], axis=0, combine=kind), expected[i])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sign_bits(dtype: DType) -> None:
    x = every_value(dtype) if dtype.bits == 16 else specials(dtype)
    sign = np.array(1 << (dtype.bits - 1), bits(x).dtype)
    assert (bits(run("neg", Tensor(x.shape, dtype), [x])) == bits(x) ^ sign).all()
    assert (bits(run("abs", Tensor(x.shape, dtype), [x])) == bits(x) & ~sign).all()


def test_functions_are_within_their_bounds() -> None:
    rng = np.random.default_rng(1)
    x = np.abs(rng.standard_normal(4000) * 2.0 ** rng.integers(-40, 40, 4000)).astype(np.float32)
    wide, t = x.astype(np.float64), Tensor(x.shape, DTYPES["f32"])
    small = rng.uniform(-125, 127, 4000).astype(np.float32)
    for found, wanted, bound in (
        (run("rsqrt", t, [x]), 1 / np.sqrt(wide), 2**-22.9),
        (run("exp2", t, [small]), np.exp2(small.astype(np.float64)), 2**-22),
        (run("log2", t, [x]), np.log2(wide), 2**-22),
    ):
        error = np.abs(found.astype(np.float64) - wanted)
        assert found.dtype == np.float32 and (error <= bound * np.maximum(np.abs(wanted), 2**-22)).all()
    assert same(run("sqrt", t, [x]), np.sqrt(wide).astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "x", "wanted"),
    [
        ("exp2", [-np.inf, np.inf, np.nan, -149, -0.0], [0, np.inf, np.nan, 2.0**-149, 1]),
        ("log2", [0, -0.0, -1, np.inf, 2.0**-149], [-np.inf, -np.inf, np.nan, np.inf, -149]),
        ("rsqrt", [0, -0.0, np.inf, -1, np.nan], [np.inf, -np.inf, 0, np.nan, np.nan]),
        ("sqrt", [0, -0.0, np.inf, -1, np.nan], [0, -0.0, np.inf, np.nan, np.nan]),
    ],
)
def test_special_values_of_functions(kind: str, x: list[float], wanted: list[float]) -> None:
    found = run(kind, Tensor((5,), DTYPES["f32"]), [np.array(x, np.float32)])
    assert same(found, np.array(wanted, np.float32))


def test_exp2_flushes_denormals_where_it_is_asked_to() -> None:
    x = np.array([-150, -127, 2.0**-130, -126, -np.inf], np.float32)
    found = run("exp2", Tensor((5,), DTYPES["f32"]), [x], ftz=True)
    assert same(found, np.array([0, 0, 1, 2.0**-126, 0], np.float32))


# ---------------------------------------------------------------------------------------------------------- conversions
def reference(x: Any, source: DType, to: DType) -> Any:
    """One value converted, by the table of docs/numerics.md."""
    n: Any = float(x) if source.is_float else int(x)
    if to.kind == "bool":
        return n != 0
    if to.is_float:
        value = round_int(n, to) if not source.is_float else float(round_float(n, to))
        return storage(to).type(value)
    low, high = to.limits
    if source.is_float:
        n = 0 if math.isnan(n) else high if n == math.inf else low if n == -math.inf else int(n)
        return storage(to).type(min(max(n, low), high))
    return storage(to).type(wrapped(n, to))


def awkward(source: DType) -> Array:
    """Special values, numbers, and neighbours of where roundings to any format tie."""
    rng = np.random.default_rng(7)
    found = [specials(source), numbers(rng, source, 60)]
    if source.is_float:
        limits = [float(n + d) for t in INTEGERS for n in t.limits for d in (-1, 0, 1)]
        ties = [
            s * 2.0**e * (1 + h) for e in (-14, -24, -25, 0, 15) for h in (0, 2**-9, 2**-12, 3 * 2**-9) for s in (1, -1)
        ]
        found.append(
            np.array([*limits, *ties, 65519.0, 65520.0, 0.5, -0.5, 1.5]).astype(np.float32).astype(storage(source))
        )
    elif source.is_int:
        low, high = source.limits
        near = [
            s * ((1 << e) + (1 << (e - 8)) * k + d)
            for e in range(8, 64)
            for k in (0, 1, 3)
            for d in (-1, 0, 1)
            for s in (1, -1)
        ]
        near += [65519, 65520, 65504, 2**24 + 1, 2**53 + 1]
        found.append(np.array([n for n in near if low <= n <= high], storage(source)))
    return np.concatenate(found)


@pytest.mark.parametrize("source", DTYPES.values(), ids=str)
def test_conversions(source: DType) -> None:
    x = awkward(source)
    for to in DTYPES.values():
        op = tile_op("cast", Tensor(x.shape, to))
        wanted = np.array([reference(v, source, to) for v in x], storage(to))
        assert same(TILE_OPS["cast"](op, [x]), wanted), to
        scalar = TILE_OPS["cast"](op, [x[3]])
        assert isinstance(scalar, np.generic) and same(scalar, wanted[3]), to


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_conversions_of_every_16_bit_float(source: str) -> None:
    x = every_value(DTYPES[source])
    wide = x.astype(np.float32).astype(np.float64)
    other = DTYPES["bf16" if source == "f16" else "f16"]
    assert same(convert(x, other), round_float(wide, other).astype(np.float32).astype(storage(other)))
    assert same(convert(x, int1), np.isnan(wide) | (wide != 0))
    finite = np.where(np.isnan(wide), 0, np.clip(np.trunc(wide), -(2**31), 2**31 - 1))
    assert same(convert(x, int32), finite.astype(np.int32))


def test_comparisons_and_selection() -> None:
    a, b = (np.array(v, np.float32) for v in ([1, np.nan, 0.0, -1], [1, 1, -0.0, np.nan]))
    wanted = {"eq": "1010", "ne": "0101", "lt": "0000", "le": "1010", "gt": "0000", "ge": "1010"}
    t = Tensor((4,), int1)
    for x, y in (
        (a, b),
        (a.astype(np.float16), b.astype(np.float16)),
        (a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)),
    ):
        for pred, truth in wanted.items():
            assert same(run("cmp", t, [x, y], pred=pred), np.array([c == "1" for c in truth]))
    assert same(run("select", Tensor((4,), DTYPES["f32"]), [a == b, a, b]), np.where(a == b, a, b))
    one = run("select", Scalar(int32), [np.False_, np.int32(1), np.int32(2)])
    assert isinstance(one, np.int32) and one == 2
    assert run("cmp", Scalar(int1), [np.False_, np.True_], pred="lt")


# --------------------------------------------------------------------------------------------------------------- shapes
def test_shapes() -> None:
    f32 = DTYPES["f32"]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert same(run("permute", Tensor((4, 2), f32), [x], order=(1, 0)), x.T)
    assert same(run("reshape", Tensor((8,), f32), [x.T]), x.T.reshape(-1))
    assert same(run("expand_dims", Tensor((2, 1, 4), f32), [x], axis=1), x[:, None])
    assert same(run("broadcast", Tensor((2, 3, 4), f32), [x[:, None]]), np.stack([x] * 3, 1))
    assert same(run("arange", Tensor((4,), int32), [], start=3, end=7), np.arange(3, 7, dtype=np.int32))
    joined = run("join", Tensor((2, 4, 2), f32), [x, x + 1])
    assert same(joined, np.stack([x, x + 1], -1))
    first, second = run("split", Tensor((2, 4), f32), [joined])
    assert same(first, x) and same(second, x + 1)
    for dtype in (*DTYPES.values(), Pointer(int32)):
        scalar = storage(dtype).type(1)
        assert same(run("splat", Tensor((2, 2), dtype), [scalar]), np.array([[scalar] * 2] * 2))
    for kind in ("convert_layout", "require_layout"):
        assert run(kind, Tensor((2, 4), f32), [x]) is x


def test_constants_have_their_dtype() -> None:
    for dtype in DTYPES.values():
        for value in (0, 1, -0.0 if dtype.is_float else 0):
            found = run("constant", Scalar(dtype), [], value=value)
            assert same(found, np.array(value, storage(dtype))[()])


def test_addresses_are_64_bits() -> None:
    p = np.array([1 << 40, 8], np.int64)
    offset = np.array([-(2**31), -1], np.int32)
    assert run("addptr", Tensor((2,), Pointer(DTYPES["f32"])), [p, offset]).tolist() == [(1 << 40) - 2**33, 4]
    assert run("addptr", Pointer(DTYPES["i8"]), [p[0], np.int64(-5)]) == (1 << 40) - 5


# ------------------------------------------------------------------------------------------------- reductions, products
@pytest.mark.parametrize("combine", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", [DTYPES[s] for s in ("i32", "u64", "f32")], ids=str)
def test_partial_results_reduce_to_the_whole(combine: str, dtype: DType) -> None:
    x = np.random.default_rng(3).integers(0, 100, (4, 8, 2)).astype(storage(dtype))
    for axis in range(3):
        kept = x.shape[:axis] + x.shape[axis + 1 :]
        whole = run("reduce", Tensor(kept, dtype), [x], axis=axis, combine=combine)
        assert same(whole, getattr(np, combine)(x, axis=axis).astype(x.dtype))
        for parts in (1, 2):
            t = Tensor((*kept, parts), dtype)
            partial = run("partial_reduce", t, [x], axis=axis, combine=combine, level="warp")
            assert partial.shape == t.shape
            assert same(run("reduce", Tensor(kept, dtype), [partial], axis=2, combine=combine), whole)


def test_integer_sums_wrap_in_their_dtype() -> None:
    x = np.full(4, 2**31 - 1, np.int32)
    assert same(run("reduce", Scalar(int32), [x], axis=0, combine="sum"), np.int32(-4))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_products_of_matrices(dtype: str) -> None:
    rng = np.random.default_rng(5)
    kind, t = storage(DTYPES[dtype]), Tensor((16, 8), DTYPES["f32"])
    a, b = (rng.integers(-4, 5, s).astype(kind) for s in ((16, 32), (32, 8)))
    acc = rng.integers(-9, 9, (16, 8)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    op = tile_op("dot", t)
    assert same(matmul(op, a, b, None), exact.astype(np.float32))
    assert same(TILE_OPS["dot"](op, [a, b, acc]), (exact + acc).astype(np.float32))


def test_tf32_drops_13_bits() -> None:
    a = np.array([[1 + 2**-10 + 2**-11 + 2**-23]], np.float32)
    one = np.ones((1, 1), np.float32)
    op = tile_op("async_dot", Tensor((1, 1), DTYPES["f32"]))
    assert matmul(op, a, one, None) == np.float32(1 + 2**-10) == matmul(op, one, a.T, None)


def test_small_tiles_are_fast() -> None:
    """A table lookup and a call of NumPy; the bound is wide, for machines that are busy."""
    x, t = np.ones((16, 16), np.float32), Tensor((16, 16), DTYPES["f32"])
    op, n = tile_op("add", t), 2000
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(n):
            TILE_OPS[op.kind](op, [x, x])
        best = min(best, (time.perf_counter() - start) / n)
    assert best < 10e-6
