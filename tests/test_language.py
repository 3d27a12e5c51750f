"""The language builds the right ops: kernels put together by hand, without the frontend."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlxc.ir.core import Builder, Module, Op, Param, Value
from tlxc.ir.layout import cute
from tlxc.ir.printer import print_module
from tlxc.ir.types import DTYPES, DType, Element, Pointer, Scalar, Tensor, element_of
from tlxc.ir.verifier import verify
from tlxc.language import core, promotion, tl, tlx
from tlxc.language.context import Context, building
from tlxc.language.core import tensor
from tlxc.targets import get_target

DOCS = Path(__file__).parents[1] / "docs"
ALL = list(DTYPES.values())
FLOATS = [d for d in ALL if d.is_float]
INTS = [d for d in ALL if d.is_int]


class Kernel:
    """A kernel under construction; `text` verifies what was built and prints its body."""

    def __init__(self) -> None:
        self.module = Module("k", num_warps=4)
        self.builder = Builder(self.module)

    def param(self, element: Element, name: str = "p") -> tensor:
        """A scalar or pointer parameter."""
        value = Value(element if isinstance(element, Pointer) else Scalar(element), name=name)
        self.module.params.append(Param(value))
        return tensor(value)

    def tile(self, element: Element, *shape: int) -> tensor:
        """A tile whose elements nobody knows: a splat of a parameter."""
        scalar = self.param(element, f"p{len(self.module.params)}")
        return tensor(self.builder.emit("splat", scalar.value, type=Tensor(shape, element)))

    @property
    def ops(self) -> list[Op]:
        return list(self.module.walk())

    @property
    def kinds(self) -> list[str]:
        """Kinds of all ops but the splats of `tile`."""
        return [op.kind for op in self.ops]

    @property
    def last(self) -> Op:
        return self.ops[-1]

    def text(self) -> str:
        verify(self.module)
        lines = print_module(self.module).splitlines()
        return "\n".join(line.strip() for line in lines[1:-1])


@pytest.fixture
def k() -> Iterator[Kernel]:
    """A kernel for sm_90 in which the test builds; verified at the end."""
    kernel = Kernel()
    with building(Context(kernel.builder, get_target("sm_90"))):
        yield kernel
    verify(kernel.module)


def built(make: Callable[[Kernel], Any]) -> tuple[Any, Kernel]:
    """The result of `make` in a kernel of its own."""
    kernel = Kernel()
    with building(Context(kernel.builder, get_target("sm_90"))):
        result = make(kernel)
    verify(kernel.module)
    return result, kernel


# --------------------------------------------------------------------------------------------------------- promotion
def published_table() -> dict[tuple[str, str], str]:
    """The promotion table of docs/numerics.md by short names."""
    text = (DOCS / "numerics.md").read_text(encoding="utf-8").split("<!-- promotion table")[1]
    rows = [[c.strip(" *") for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    header, body = rows[0][1:], rows[2 : 2 + len(rows[0]) - 1]
    return {(row[0], name): cell for row in body for name, cell in zip(header, row[1:])}


@pytest.mark.parametrize("b", ALL, ids=str)
@pytest.mark.parametrize("a", ALL, ids=str)
def test_promotion_is_the_published_table(a: DType, b: DType) -> None:
    want = DTYPES[published_table()[a.short, b.short]]
    assert promotion.promote(a, b) == want == promotion.promote(b, a)
    for shapes in (((), ()), ((), (8,)), ((8,), ()), ((8,), (8,))):
        x, k = built(lambda k: operand(k, a, shapes[0]) + operand(k, b, shapes[1]))  # noqa: B023
        assert x.dtype == (tl.int32 if want == tl.int1 else want)
        assert x.shape == max(shapes)
        compared, k = built(lambda k: operand(k, a, shapes[0]) < operand(k, b, shapes[1]))  # noqa: B023
        assert compared.dtype == tl.int1 and element_of(k.last.inputs[0].type) == want


def operand(k: Kernel, dtype: DType, shape: tuple[int, ...]) -> tensor:
    return k.tile(dtype, *shape) if shape else k.param(dtype, f"s{len(k.module.params)}")


def test_published_table_is_complete() -> None:
    names = [d.short for d in ALL]
    assert list(published_table()) == [(a, b) for a in names for b in names]


def test_case_20_no_integer_becomes_a_16_bit_float_silently(k: Kernel) -> None:
    for half in (tl.float16, tl.bfloat16):
        for integer in INTS:
            assert (k.tile(integer, 8) + k.tile(half, 8)).dtype == tl.float32
    assert {op.result.type.element for op in k.ops if op.kind == "cast"} == {tl.float32}


LITERALS = [
    (True, {"bool": tl.int1}),
    (3, {"bool": tl.int32}),
    (0.5, {"bool": tl.float32, "int": tl.float32, "uint": tl.float32}),
]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("value, exceptions", LITERALS, ids=lambda v: str(v) if not isinstance(v, dict) else "")
def test_literal_takes_the_dtype_it_meets(value: Any, exceptions: dict[str, DType], dtype: DType) -> None:
    want = exceptions.get(dtype.kind, dtype)
    assert promotion.literal_dtype(value, dtype) == want
    for make in (lambda k: k.tile(dtype, 4) * value, lambda k: value * k.tile(dtype, 4)):
        x, k = built(make)
        assert x.dtype == (tl.int32 if want == tl.int1 else want)
        assert next(op for op in k.ops if op.kind == "constant").attrs["value"] == value


@pytest.mark.parametrize(
    "value, dtype",
    [(0, tl.int32), (-1, tl.int32), (2**31, tl.uint32), (2**32, tl.int64), (-(2**31) - 1, tl.int64), (2**63, tl.uint64),
     (True, tl.int1), (1.0, tl.float32), (float("inf"), tl.float32)],
)  # fmt: skip
def test_natural_dtype(value: Any, dtype: DType, k: Kernel) -> None:
    assert core.as_tensor(value).dtype == dtype


@given(st.floats(width=64), st.sampled_from(FLOATS))
def test_rounding_of_literals(value: float, dtype: DType) -> None:
    """Nearest, ties to even, against the neighbours that ml_dtypes and NumPy name; without double rounding."""
    import ml_dtypes
    import numpy as np

    scalar: Any = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}[dtype.name]
    got = promotion.round_to(value, dtype)
    with np.errstate(over="ignore"):
        assert got != got or float(scalar(got)) == got  # representable
    if value != value or abs(got) == float("inf"):
        limit = promotion._FORMATS[dtype.name][2]
        assert value != value or abs(value) > limit
        return
    bits = np.array(got, scalar).view(f"u{dtype.bytes}")
    for step in (1, -1):
        neighbour = float(np.array(int(bits) + step & (1 << dtype.bits) - 1, bits.dtype).view(scalar))
        if neighbour == neighbour and abs(neighbour) != float("inf"):
            near, far = abs(Fraction(got) - Fraction(value)), abs(Fraction(neighbour) - Fraction(value))
            assert near < far or near == far and int(bits) % 2 == 0


def test_case_17_constants_are_folded_in_the_target_dtype(k: Kernel) -> None:
    assert core.as_tensor(8388608.5).value.op.attrs["value"] == 8388608.0  # type: ignore[union-attr]
    k.tile(tl.float16, 8) * 0.1
    assert [op.attrs["value"] for op in k.ops if op.kind == "constant"][-1] == 0.0999755859375


# --------------------------------------------------------------------------------------------------------- operators
BINARY = [
    (operator.add, "add"), (operator.sub, "sub"), (operator.mul, "mul"), (operator.floordiv, "idiv"),
    (operator.mod, "rem"), (operator.and_, "and"), (operator.or_, "or"), (operator.xor, "xor"),
    (operator.lshift, "shl"), (operator.rshift, "shr"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("python, kind", BINARY, ids=lambda v: v if isinstance(v, str) else "")
def test_integer_operators_and_their_reflections(python: Any, kind: str, dtype: DType) -> None:
    for make, order in (
        (lambda x: python(x, x), "xx"),
        (lambda x: python(x, 3), "x3"),
        (lambda x: python(3, x), "3x"),
    ):
        x, k = built(lambda k: make(k.tile(dtype, 4)))  # noqa: B023
        assert k.last.kind == kind and x.type == Tensor((4,), dtype)
        names = "".join("x" if v.op.operands[0].op is None else "3" for v in k.last.inputs)  # type: ignore[union-attr]
        assert names == order


@pytest.mark.parametrize(
    "symbol, pred", [("==", "eq"), ("!=", "ne"), ("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge")]
)
def test_comparisons(symbol: str, pred: str, k: Kernel) -> None:
    x = k.tile(tl.float16, 4)
    python = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
              ">=": operator.ge}[symbol]  # fmt: skip
    assert python(x, 0.5).type == Tensor((4,), tl.int1) and k.last.attrs == {"pred": pred}
    mirrored = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(pred, pred)  # Python swaps the operands
    assert python(0.5, x).type == Tensor((4,), tl.int1) and k.last.attrs == {"pred": mirrored}


def test_a_scalar_is_cast_before_it_is_splat(k: Kernel) -> None:
    k.param(tl.int32, "n") + k.tile(tl.int64, 4)
    assert k.text() == (
        "%0 = splat %p1 : tensor<4xi64>\n"
        "%1 = cast %n : i64\n"
        "%2 = splat %1 : tensor<4xi64>\n"
        "%3 = add %2, %0 : tensor<4xi64>"
    )


def test_scalar_results_are_as_uniform_as_their_operands(k: Kernel) -> None:
    lane = tensor(Value(Scalar(tl.int32, "thread"), name="lane"))
    warp = tensor(Value(Scalar(tl.int32, "warp"), name="warp"))
    k.module.params += [Param(lane.value), Param(warp.value)]
    assert (lane + 1).type == Scalar(tl.int32, "thread") == (warp * lane).type
    assert (warp < 3).type == Scalar(tl.int1, "warp")


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_division_computes_in_float32(dtype: DType) -> None:
    x, k = built(lambda k: k.tile(dtype, 4) / k.tile(dtype, 4))
    (div,) = (op for op in k.ops if op.kind == "div")
    assert x.dtype == (dtype if dtype.is_float else tl.float32)
    assert element_of(div.result.type) == tl.float32


def test_division_by_a_literal_rounds_it_in_the_dtype_of_the_tile(k: Kernel) -> None:
    (k.tile(tl.float16, 4) / 0.1).to(tl.float32)
    assert [op.attrs["value"] for op in k.ops if op.kind == "constant"] == [0.0999755859375]
    assert k.kinds == ["splat", "constant", "cast", "splat", "div", "cast", "cast"]


def test_unary_operators(k: Kernel) -> None:
    assert (-k.tile(tl.int1, 4)).dtype == tl.int32 and k.last.kind == "neg"
    assert (-k.tile(tl.bfloat16, 4)).dtype == tl.bfloat16
    x = k.tile(tl.float32, 4)
    assert +x is x
    for dtype, ones in ((tl.int1, True), (tl.int8, -1), (tl.uint16, 65535), (tl.int64, -1)):
        assert (~k.tile(dtype, 4)).dtype == dtype and k.last.kind == "xor"
        assert [op.attrs["value"] for op in k.ops if op.kind == "constant"][-1] == ones
    assert abs(x).dtype == tl.float32 and k.last.kind == "abs"
    u = k.tile(tl.uint32, 4)
    assert tl.abs(u) is u and tl.abs(-3) == 3 and tl.abs(-0.5) == 0.5


def test_a_shift_has_the_dtype_of_its_left_operand(k: Kernel) -> None:
    assert (k.tile(tl.int32, 4) >> k.tile(tl.uint32, 4)).dtype == tl.int32
    assert (k.tile(tl.uint8, 4) << k.tile(tl.int64, 4)).dtype == tl.uint8
    assert (1 << k.tile(tl.int64, 4)).dtype == tl.int64
    assert (k.tile(tl.int1, 4) << 3).dtype == tl.int32


def test_bools_stay_bools_under_bit_operators(k: Kernel) -> None:
    a, b = k.tile(tl.int1, 4), k.tile(tl.int1, 4)
    assert {(a & b).dtype, (a | True).dtype, (False ^ b).dtype} == {tl.int1}
    assert (a & 1).dtype == tl.int32


def test_logic_compares_with_zero(k: Kernel) -> None:
    x = core.logical_and(k.tile(tl.float32, 4), k.param(tl.int32, "n"))
    assert x.type == Tensor((4,), tl.int1)
    assert k.kinds == ["splat", "constant", "splat", "cmp", "constant", "cmp", "splat", "and"]
    assert core.logical_not(x).dtype == core.logical_or(x, True).dtype == tl.int1
    assert k.last.kind == "or"


def test_case_3_cdiv_is_exact_for_all_signs() -> None:
    for a in range(-9, 10):
        for b in (-5, -3, -1, 1, 2, 7):
            want = -(-a // b)
            assert tl.cdiv(a, b) == want
            for literal in (True, False):
                assert cdiv_at_run_time(a, b, literal) == want
    assert tl.cdiv(-36, 5) == -7 and tl.cdiv(7, -3) == -2


def cdiv_at_run_time(a: int, b: int, literal: bool) -> int:
    """Evaluates the ops that cdiv builds."""
    k = Kernel()
    with building(Context(k.builder, get_target("sm_90"))):
        x = k.param(tl.int32, "a")
        y = b if literal else k.param(tl.int32, "b")
        result = tl.cdiv(x, y)
    verify(k.module)
    values = {p.value: v for p, v in zip(k.module.params, (a, b))}
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    semantics: dict[str, Callable[..., Any]] = {
        "idiv": lambda x, y: quotient, "rem": lambda x, y: a - quotient * b, "xor": operator.xor, "and": operator.and_,
        "add": operator.add, "cast": int,
    }  # fmt: skip
    for op in k.ops:
        args = [values[v] for v in op.inputs]
        if op.kind == "constant":
            values[op.result] = op.attrs["value"]
        elif op.kind == "cmp":
            values[op.result] = getattr(operator, op.attrs["pred"])(*args)
        else:
            values[op.result] = semantics[op.kind](*args)
    return values[result.value]


def test_cases_1_and_2_folded_division_is_that_of_the_gpu() -> None:
    for a in (0, 1, 7, 12):
        for b in (1, 3, 7):
            q, r = core.constant_floordiv(a, b), core.constant_mod(a, b)
            assert a == q * b + r and 0 <= r < b


# ------------------------------------------------------------------------------------------------------------- maths
@pytest.mark.parametrize("name", ["exp2", "log2", "sqrt", "rsqrt"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_elementary_functions_compute_in_float32(name: str, dtype: DType) -> None:
    x, k = built(lambda k: getattr(tl, name)(k.tile(dtype, 4)))
    assert x.type == Tensor((4,), dtype)
    assert k.kinds == (["splat", name] if dtype == tl.float32 else ["splat", "cast", name, "cast"])


def test_exp_and_log_are_expansions(k: Kernel) -> None:
    tl.log(tl.exp(k.param(tl.float32, "x")))
    assert k.text() == (
        "%0 = constant {value = 0x1.7154760000000p+0} : f32\n"
        "%1 = mul %x, %0 : f32\n"
        "%2 = exp2 %1 : f32\n"
        "%3 = log2 %2 : f32\n"
        "%4 = constant {value = 0x1.62e4300000000p-1} : f32\n"
        "%5 = mul %3, %4 : f32"
    )


def test_exp2_may_flush_denormals(k: Kernel) -> None:
    tl.exp2(k.param(tl.float32, "x"), ftz=True)
    assert k.text() == "%0 = exp2 %x {ftz = true} : f32"


def test_elementary_function_of_a_literal_is_a_float32_scalar(k: Kernel) -> None:
    assert tl.sqrt(2.0).type == Scalar(tl.float32)


@pytest.mark.parametrize("a", ALL, ids=str)
@pytest.mark.parametrize("b", ALL, ids=str)
def test_cast(a: DType, b: DType) -> None:
    x, k = built(lambda k: k.tile(a, 4).to(b))
    assert x.type == Tensor((4,), b) and k.kinds == ["splat"] + ["cast"] * (a != b)


def test_bitcast(k: Kernel) -> None:
    x = k.tile(tl.float32, 4).to(tl.int32, bitcast=True)
    assert x.type == Tensor((4,), tl.int32) and k.last.kind == "bitcast"
    assert tl.cast(x, tl.int32, bitcast=True) is x


def test_where_promotes_and_broadcasts(k: Kernel) -> None:
    x = tl.where(k.tile(tl.int1, 4, 1), k.tile(tl.float16, 8), 0)
    assert x.type == Tensor((4, 8), tl.float16) and k.last.kind == "select"
    assert tl.where(k.param(tl.int32, "n"), 1, 2.0).type == Scalar(tl.float32)
    assert tl.where(k.tile(tl.int1, 4), float("-inf"), k.tile(tl.bfloat16, 4)).dtype == tl.bfloat16


def test_minimum_and_maximum(k: Kernel) -> None:
    assert tl.minimum(k.tile(tl.int32, 4), 7).dtype == tl.int32 and k.last.kind == "min"
    assert tl.maximum(0, k.tile(tl.float16, 4)).dtype == tl.float16 and k.last.kind == "max"
    assert tl.maximum(k.tile(tl.int1, 4), k.tile(tl.int1, 4)).dtype == tl.int32
    nan = float("nan")
    assert (tl.minimum(3, 4), tl.maximum(3, 4.5), tl.minimum(nan, 1), tl.maximum(2, nan)) == (3, 4.5, 1, 2)
    assert tl.minimum(nan, nan) != tl.minimum(nan, nan)


def test_python_min_and_max(k: Kernel) -> None:
    assert core.builtin_min(3, 1, 2) == 1 and core.builtin_max((3, 1, 2)) == 3
    x = core.builtin_max(1, k.param(tl.int32, "n"), 5)
    assert x.type == Scalar(tl.int32) and k.kinds.count("max") == 2


# ------------------------------------------------------------------------------------------------------------ shapes
def test_shapes_broadcast_in_explicit_ops(k: Kernel) -> None:
    k.tile(tl.int32, 4)[:, None] + k.tile(tl.int32, 8)
    assert k.text() == (
        "%0 = splat %p0 : tensor<4xi32>\n"
        "%1 = expand_dims %0 {axis = 1} : tensor<4x1xi32>\n"
        "%2 = splat %p1 : tensor<8xi32>\n"
        "%3 = broadcast %1 : tensor<4x8xi32>\n"
        "%4 = expand_dims %2 {axis = 0} : tensor<1x8xi32>\n"
        "%5 = broadcast %4 : tensor<4x8xi32>\n"
        "%6 = add %3, %5 : tensor<4x8xi32>"
    )


def test_subscripts_change_the_rank(k: Kernel) -> None:
    x, full = k.tile(tl.int32, 4, 8), slice(None)
    assert x[:].shape == (4, 8) and x[:] is x
    assert x[None].shape == (1, 4, 8) and x[:, None].shape == (4, 1, 8) and x[:, :, None].shape == (4, 8, 1)
    assert x[None, full, None, full, None].shape == (1, 4, 1, 8, 1)
    assert k.param(tl.int32, "n")[None].shape == (1,) and k.last.kind == "splat"


def test_making_tiles(k: Kernel) -> None:
    assert tl.arange(2, 82).type == Tensor((80,), tl.int32) and k.last.attrs == {"start": 2, "end": 82}
    assert tl.zeros((4, 8), tl.float16).type == Tensor((4, 8), tl.float16)
    assert tl.full(16, -1, tl.int8).type == Tensor((16,), tl.int8)
    assert tl.full((), 2.0, tl.int32).type == Scalar(tl.int32)
    assert tl.full([4], k.param(tl.int64, "n"), tl.float32).type == Tensor((4,), tl.float32)
    assert tl.zeros_like(k.tile(tl.bfloat16, 2, 2)).type == Tensor((2, 2), tl.bfloat16)
    assert tl.zeros((64, 80), tl.int1).type == Tensor((64, 80), tl.int1)


def test_changing_shapes(k: Kernel) -> None:
    x = k.tile(tl.float16, 4, 8)
    assert x.reshape(2, 16).shape == tl.reshape(x, (2, 16)).shape == (2, 16)
    assert x.reshape(4, 8) is x and k.param(tl.int32, "n").reshape(1, 1).shape == (1, 1)
    assert x.T.shape == tl.trans(x).shape == x.permute(1, 0).shape == x.permute((-1, 0)).shape == (8, 4)
    assert k.last.attrs == {"order": (1, 0)} and x.permute(0, 1) is x
    assert x.reshape(2, 2, 8).trans(0, 2, 1).shape == (2, 8, 2)
    assert x.expand_dims(-1).shape == tl.expand_dims(x, 2).shape == (4, 8, 1)
    assert x.broadcast_to(3, 4, 8).shape == tl.broadcast_to(x, (3, 4, 8)).shape == (3, 4, 8)
    assert [v.shape for v in tl.broadcast(x, k.tile(tl.int32, 8))] == [(4, 8), (4, 8)]
    joined = tl.join(x, k.tile(tl.float16, 8))
    assert joined.shape == (4, 8, 2)
    low, high = joined.split()
    assert low.type == high.type == Tensor((4, 8), tl.float16) and low.value.index + 1 == high.value.index


def test_pointers_change_shape_too(k: Kernel) -> None:
    p = k.tile(Pointer(tl.float32), 4)
    assert p[:, None].broadcast_to(4, 8).T.reshape(32).type == Tensor((32,), Pointer(tl.float32))


# -------------------------------------------------------------------------------------------------------- reductions
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_case_18_sums_accumulate_in_a_stated_dtype(dtype: DType) -> None:
    x, k = built(lambda k: tl.sum(k.tile(dtype, 1024)))
    result = {"i1": tl.int32, "i8": tl.int32, "i16": tl.int32, "u8": tl.uint32, "u16": tl.uint32}.get(
        dtype.short, dtype
    )
    (reduce,) = (op for op in k.ops if op.kind == "reduce")
    assert x.type == Scalar(result)
    assert element_of(reduce.result.type) == (tl.float32 if dtype.is_float else result)
    assert reduce.attrs == {"axis": 0, "combine": "sum"}


def test_sum_in_a_named_dtype(k: Kernel) -> None:
    x = tl.sum(k.tile(tl.float16, 4, 8), 1, dtype=tl.float32)
    assert x.type == Tensor((4,), tl.float32) and k.kinds == ["splat", "cast", "reduce"]
    assert tl.sum(k.tile(tl.int32, 8), dtype=tl.int64).type == Scalar(tl.int64)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_extrema_keep_the_dtype(name: str, dtype: DType) -> None:
    x, k = built(lambda k: getattr(tl, name)(k.tile(dtype, 4, 8), -1))
    assert x.type == Tensor((4,), dtype)
    assert next(op for op in k.ops if op.kind == "reduce").attrs == {"axis": 1, "combine": name}


def test_reductions_keep_dims_and_reduce_all(k: Kernel) -> None:
    x = k.tile(tl.float32, 4, 8)
    assert [x.sum(0).shape, x.max(1, keep_dims=True).shape, x.min(0, True).shape] == [(8,), (4, 1), (1, 8)]
    assert x.sum().shape == () and [op.attrs["axis"] for op in k.ops[-2:]] == [1, 0]
    assert x.max(keep_dims=True).shape == (1, 1)
    assert k.tile(tl.float32, 8).sum(0, keep_dims=True).shape == (1,)


# ------------------------------------------------------------------------------------------------------------ memory
def test_a_masked_load_of_a_tile(k: Kernel) -> None:
    p, n = k.param(Pointer(tl.float16), "x"), k.param(tl.int32, "n")
    offs = tl.arange(0, 64)
    tl.load(p + offs, mask=offs < n, other=0, cache_modifier=".cg", eviction_policy="evict_first")
    assert k.text() == (
        "%0 = arange {start = 0, end = 64} : tensor<64xi32>\n"
        "%1 = splat %x : tensor<64xptr<f16>>\n"
        "%2 = addptr %1, %0 : tensor<64xptr<f16>>\n"
        "%3 = splat %n : tensor<64xi32>\n"
        '%4 = cmp %0, %3 {pred = "lt"} : tensor<64xi1>\n'
        "%5 = constant {value = 0x0.0p+0} : f16\n"
        "%6 = splat %5 : tensor<64xf16>\n"
        '%7 = load %2, %4, %6 {cache = ".cg", eviction = "evict_first"} : tensor<64xf16>'
    )


@pytest.mark.parametrize("other", [0, 0.0, float("-inf"), float("nan"), False])
def test_case_35_other_is_never_taken_for_absent(other: Any, k: Kernel) -> None:
    tl.load(k.tile(Pointer(tl.float32), 4), mask=k.tile(tl.int1, 4), other=other)
    value = k.last.operands[2].op.operands[0].op.attrs["value"]  # type: ignore[union-attr]
    assert isinstance(value, float) and (value == other or other != other)


def test_case_34_a_masked_load_without_other_has_no_operand_for_it(k: Kernel) -> None:
    tl.load(k.tile(Pointer(tl.float32), 4), mask=k.param(tl.int1, "m"))
    assert k.last.operands[1] is not None and k.last.operands[2] is None  # the row of `load`: 0 without it


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_scalar_accesses(dtype: DType) -> None:
    _, k = built(lambda k: tl.store(k.param(Pointer(dtype), "q"), tl.load(k.param(Pointer(dtype), "p"))))
    assert k.kinds == ["load", "store"] and k.ops[0].result.type == Scalar(dtype)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_pointer_arithmetic(dtype: DType) -> None:
    for make in (lambda p, n: p + n, lambda p, n: n + p, lambda p, n: p - n):
        x, k = built(lambda k: make(k.param(Pointer(tl.int8), "p"), k.tile(dtype, 4)))  # noqa: B023
        assert x.type == Tensor((4,), Pointer(tl.int8)) and k.last.kind == "addptr"
        wide = dtype.bits == 64 or dtype == tl.uint32
        assert element_of(k.last.inputs[1].type) == (tl.int64 if wide else tl.int32)


def test_pointer_plus_literal(k: Kernel) -> None:
    p = k.param(Pointer(tl.float32))
    for literal, dtype in ((7, tl.int32), (2**31, tl.int64), (-(2**31), tl.int32)):
        assert (p + literal).type == Pointer(tl.float32)
        assert k.last.inputs[1].type == Scalar(dtype)
    assert (p - 7).value.op.operands[1].op.attrs["value"] == -7  # type: ignore[union-attr]


def test_case_5_a_64_bit_scalar_offset_is_not_cut_by_a_32_bit_tile(k: Kernel) -> None:
    row = k.param(tl.int32, "row").to(tl.int64) * 4096
    p = k.param(Pointer(tl.float32)) + (row + tl.arange(0, 64))
    assert p.shape == (64,) and element_of(k.last.inputs[1].type) == tl.int64


def test_store_converts_within_a_kind(k: Kernel) -> None:
    for element, value in (
        (tl.float16, tl.float32), (tl.float32, tl.bfloat16), (tl.int8, tl.int64), (tl.uint32, tl.int32),
        (tl.float16, tl.int1), (tl.int32, tl.int1),
    ):  # fmt: skip
        tl.store(k.tile(Pointer(element), 4), k.tile(value, 4), mask=True)
        assert element_of(k.last.inputs[1].type) == element
    tl.store(k.tile(Pointer(tl.int8), 4, 4), 1, cache_modifier=".wb")
    assert k.last.inputs[1].type == Tensor((4, 4), tl.int8) and k.last.attrs == {"cache": ".wb"}


def test_atomic_add(k: Kernel) -> None:
    old = tl.atomic_add(k.tile(Pointer(tl.float32), 4), 1, mask=k.tile(tl.int1, 4))
    assert old.type == Tensor((4,), tl.float32)
    assert k.last.attrs == {"op": "add", "sem": "acq_rel", "scope": "gpu"}
    assert tl.atomic_add(k.param(Pointer(tl.int32)), 1, sem="relaxed", scope="cta").type == Scalar(tl.int32)
    assert k.last.attrs == {"op": "add", "sem": "relaxed", "scope": "cta"} and k.last.operands[2] is None


# ----------------------------------------------------------------------------------------------------------- the rest
def test_dot(k: Kernel) -> None:
    a, b = k.tile(tl.float16, 64, 32), k.tile(tl.float16, 32, 80)
    acc = tl.dot(a, b)
    assert acc.type == Tensor((64, 80), tl.float32) and [op.kind for op in k.ops[-3:]] == ["constant", "splat", "dot"]
    assert tl.dot(a, b, acc).type == acc.type and k.last.inputs[2] is acc.value


def test_programs(k: Kernel) -> None:
    assert tl.program_id(0).type == tl.num_programs(2).type == Scalar(tl.int32)
    assert k.text() == "%0 = program_id {axis = 0} : i32\n%1 = num_programs {axis = 2} : i32"


def test_layouts(k: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = tlx.layout(shape=((32, 4), (16,)), stride=((1, 512), (32,)))
    assert wanted == tlx.layout(shape=[[32, 4], [16]], stride=[[1, 512], [32]]) and len({wanted, wanted}) == 1
    x = tlx.require_layout(k.tile(tl.float32, 64, 32), wanted)
    assert cute(k.last.attrs["layout"]) == "((_32,_4),_16):((_1,_512),_32)" and x.type == Tensor((64, 32), tl.float32)
    tlx.dump_layout(x)
    assert k.last.kind == "dump_layout" and capsys.readouterr().err == ""


def test_compile_time_facts(k: Kernel) -> None:
    p = k.tile(Pointer(tl.bfloat16), 4)
    assert tlx.dtype_of(p) == tl.bfloat16 == tlx.dtype_of(tl.load(p)) and tlx.dtype_of(1.5) == tl.float32
    assert [tlx.size_of(d) for d in (tl.int1, tl.float16, tl.float32, tl.uint64, tl.ptr(tl.int8))] == [1, 2, 4, 8, 8]
    assert tl.ptr(tl.float16) == tl.pointer_type(tl.float16) == Pointer(tl.float16)


def test_constexpr() -> None:
    c = tl.constexpr(tl.constexpr(4))
    assert c.value == 4 and c == 4 and c == tl.constexpr(4) and hash(c) == hash(4) and repr(c) == "constexpr(4)"


def test_ranges() -> None:
    r = tl.range(2, 10, 3, num_stages=2)
    assert (r.start, r.stop, r.step, r.num_stages, r.loop_unroll_factor) == (2, 10, 3, 2, None)
    assert (tl.range(5).start, tl.range(5).stop, tl.range(5).step) == (0, 5, 1)
    s = tl.static_range(4, 0, -1)
    assert (s.start, s.stop, s.step) == (4, 0, -1)
    assert (tl.range.__tlxc_range__, tl.static_range.__tlxc_range__) == ("range", "static")


def test_static_assert_and_print(k: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    tl.static_assert(True, "never")
    tl.static_print("tile", k.tile(tl.int8, 4), 3)
    assert capsys.readouterr().err == "tile a tile (4,) of tl.int8 3\n"


@pytest.mark.parametrize("namespace", [tl, tlx], ids=["tl", "tlx"])
def test_every_public_name_is_documented(namespace: Any) -> None:
    for name in namespace.__all__:
        value = getattr(namespace, name)
        if isinstance(value, DType):
            continue
        assert value.__doc__, name
        if not isinstance(value, type):
            assert value.__tlxc_builtin__, name
            assert "Targets: all" in value.__doc__ or "Targets: sm_90" in value.__doc__, name
