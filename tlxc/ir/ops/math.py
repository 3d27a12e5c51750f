"""Elementwise arithmetic on scalars and tiles."""

from __future__ import annotations

from collections.abc import Callable

from ..core import Op
from ..table import require, row
from ..types import DType, Scalar, element_of, int1, shape_of

PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")


def _same_shape(op: Op) -> None:
    shapes = {shape_of(v.type) for v in (*op.inputs, *op.results)}
    require(len(shapes) == 1, f"{op.kind}: shapes differ: {sorted(shapes)}")
    layouts = {id(getattr(v.type, "layout", None)) for v in (*op.inputs, *op.results)}
    require(len(layouts) == 1, f"{op.kind}: layouts differ")


def _kind_check(op: Op, kinds: str) -> None:
    e = element_of(op.operands[0].type)  # type: ignore[union-attr]
    require(isinstance(e, DType) and e.kind in kinds.split(), f"{op.kind} does not compute on {e}")


def _closed(kinds: str) -> Callable[[Op], None]:
    """All operands and the result have one element type, of one of `kinds`."""

    def verify(op: Op) -> None:
        _same_shape(op)
        elements = {element_of(v.type) for v in (*op.inputs, *op.results)}
        require(len(elements) == 1, f"{op.kind}: element types differ: {sorted(map(str, elements))}")
        _kind_check(op, kinds)

    return verify


def _cmp(op: Op) -> None:
    _same_shape(op)
    a, b = (element_of(v.type) for v in op.inputs)
    require(a == b, f"cmp: element types differ: {a} and {b}")
    require(element_of(op.result.type) == int1, "cmp gives i1")
    require(op.attrs["pred"] in PREDICATES, f"cmp: predicate is one of {', '.join(PREDICATES)}")


def _select(op: Op) -> None:
    _same_shape(op)
    c, a, b = (element_of(v.type) for v in op.inputs)
    require(c == int1, f"select: the condition is i1, found {c}")
    require(a == b == element_of(op.result.type), "select: both sides and the result have one element type")


def _cast(op: Op) -> None:
    _same_shape(op)
    for v in (*op.inputs, *op.results):
        require(isinstance(element_of(v.type), DType), "cast: pointers are not converted")


def _bitcast(op: Op) -> None:
    _same_shape(op)
    a, b = (element_of(v.type) for v in (op.inputs[0], op.result))
    for e in (a, b):
        require(isinstance(e, DType) and e.kind != "bool", f"bitcast does not take the bits of {e}")
    require(a.bits == b.bits, f"bitcast keeps the number of bits: {a} to {b}")


def _constant(op: Op) -> None:
    require(isinstance(op.result.type, Scalar), "constant is a scalar")


NUMBER, INTEGER, BITS = "int uint float", "int uint", "bool int uint"
ELEMENTWISE = "pure elementwise"

row(
    "constant",
    "math",
    "",
    1,
    "value",
    traits="pure cheap",
    verify=_constant,
    kinds="bool int uint float",
    doc="A scalar known at compile time; `value` is a Python bool, int or float that the dtype represents.",
)

_BINARY = (
    ("add", NUMBER, "cheap", "Sum; integers wrap.  `add`/`fadd contract`: a product feeding it may fuse."),
    ("sub", NUMBER, "cheap", "Difference; integers wrap."),
    ("mul", NUMBER, "cheap", "Product; integers wrap."),
    ("div", "float", "", "Quotient of floats, round to nearest (IEEE)."),
    ("idiv", INTEGER, "cheap", "Integer quotient, truncated toward zero; division by zero is undefined."),
    ("rem", INTEGER, "cheap", "Remainder with the sign of the dividend: a == (a idiv b) * b + a rem b."),
    ("and", BITS, "cheap", "Bitwise and."),
    ("or", BITS, "cheap", "Bitwise or."),
    ("xor", BITS, "cheap", "Bitwise exclusive or."),
    ("shl", INTEGER, "cheap", "Shift left; a count of the width or more is undefined."),
    (
        "shr",
        INTEGER,
        "cheap",
        "Shift right, arithmetic for signed integers; a count of the width or more is undefined.",
    ),
    ("min", NUMBER, "cheap", "Smaller value; of a NaN and a number, the number; both NaN: NaN."),
    ("max", NUMBER, "cheap", "Larger value; of a NaN and a number, the number; both NaN: NaN."),
)
for _name, _kinds, _extra, _doc in _BINARY:
    row(_name, "math", "a b", 1, traits=f"{ELEMENTWISE} {_extra}", verify=_closed(_kinds), kinds=_kinds, doc=_doc)

_UNARY = (
    ("neg", NUMBER, "cheap", "Negation; flips the sign bit of a float; of a NaN a NaN."),
    ("abs", "int float", "cheap", "Magnitude; clears the sign bit of a float; the smallest integer wraps to itself."),
    (
        "exp2",
        "float",
        "",
        "2**x in fp32: `ex2.approx.f32` (NVIDIA, max relative error 2**-22), `v_exp_f32` (AMD).  `ftz`: denormals, of "
        "x and of the result, are zero.",
    ),
    ("log2", "float", "", "log2(x) in fp32: `lg2.approx.f32` (NVIDIA), `v_log_f32` (AMD)."),
    ("sqrt", "float", "", "Square root in fp32, round to nearest: `sqrt.rn.f32`."),
    ("rsqrt", "float", "", "1/sqrt(x) in fp32: `rsqrt.approx.f32` (max relative error 2**-22.9), `v_rsq_f32`."),
)
_OPTIONAL = {"exp2": "ftz"}
for _name, _kinds, _extra, _doc in _UNARY:
    row(
        _name,
        "math",
        "x",
        1,
        optional=_OPTIONAL.get(_name, ""),
        traits=f"{ELEMENTWISE} {_extra}",
        verify=_closed(_kinds),
        kinds=_kinds,
        doc=_doc,
    )

row(
    "cmp",
    "math",
    "a b",
    1,
    "pred",
    traits=f"{ELEMENTWISE} cheap",
    verify=_cmp,
    kinds="bool int uint float",
    doc="Comparison; floats compare ordered except `ne`, which is true where a NaN stands.",
)
row(
    "select",
    "math",
    "cond a b",
    1,
    traits=f"{ELEMENTWISE} cheap",
    verify=_select,
    kinds="bool int uint float",
    doc="a where cond, else b.",
)
row(
    "cast",
    "math",
    "x",
    1,
    traits=f"{ELEMENTWISE} cheap",
    verify=_cast,
    kinds="bool int uint float",
    doc="Numeric conversion.  To a narrower float: round to nearest even; float to integer: toward zero, saturating, "
    "NaN gives 0; to bool: x != 0; integer to float: round to nearest even; integers wrap.",
)
row(
    "bitcast",
    "math",
    "x",
    1,
    traits=f"{ELEMENTWISE} cheap",
    verify=_bitcast,
    kinds="int uint float",
    doc="The same bits as a number of another dtype of that width; no instruction.",
)
