"""Elementwise arithmetic: the operators, conversions, selection and the elementary functions.

All of it works on scalars and tiles of any shape; shapes broadcast as in NumPy.  Errors of the approximations and every
rounding are in `docs/numerics.md`.
"""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import DType, Pointer, float32, int1

from . import promotion
from .core import (
    as_tensor,
    builtin,
    check_dtype,
    constant,
    convert,
    describe,
    elementwise,
    tensor,
)
from .promotion import is_literal, is_symbolic
from .shape import broadcast_all

_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul"}
_DIVISION = {"//": "idiv", "%": "rem"}
_BITWISE = {"&": "and", "|": "or", "^": "xor"}
_SHIFT = {"<<": "shl", ">>": "shr"}
_COMPARISON = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


# --------------------------------------------------------------------------------------------------------- operators
def binary(symbol: str, a: Any, b: Any) -> tensor:
    """The operator `symbol` on two values of which at least one is a run-time value."""
    if any(isinstance(x, tensor) and isinstance(x.dtype, Pointer) for x in (a, b)):
        from .memory import pointer_operator

        return pointer_operator(symbol, a, b)
    if symbol in _ARITHMETIC:
        x, y = typed(a, b, promotion.arithmetic(common_dtype(a, b)))
        return elementwise(_ARITHMETIC[symbol], x, y, element=x.dtype)
    if symbol in _COMPARISON:
        x, y = typed(a, b, common_dtype(a, b))
        return elementwise("cmp", x, y, element=int1, pred=_COMPARISON[symbol])
    if symbol in _BITWISE:
        return _bitwise(symbol, a, b)
    if symbol == "/":
        return _quotient(a, b)
    if symbol in _DIVISION:
        return _integer_division(symbol, a, b)
    if symbol in _SHIFT:
        return _shift(symbol, a, b)
    raise CompileError(
        f"there is no operator `{symbol}` on run-time values",
        found=f"{describe(a)} and {describe(b)}",
        fix="multiply matrices with tl.dot" if symbol == "@" else "write x * x, or tl.exp2(y * tl.log2(x)) for floats",
    )


def common_dtype(a: Any, b: Any) -> DType:
    """The promoted dtype of two values, literals included (`tlxc.language.promotion`)."""
    if is_literal(a) and is_literal(b):
        return promotion.promote(promotion.natural(a), promotion.natural(b))
    if is_literal(a):
        a, b = b, a
    x = as_tensor(a).number
    return promotion.promote(x, promotion.literal_dtype(b, x) if is_literal(b) else as_tensor(b).number)


def typed(a: Any, b: Any, dtype: DType) -> tuple[tensor, tensor]:
    """Both values in `dtype` and in their common shape."""
    x, y = (constant(v, dtype) if is_literal(v) else convert(as_tensor(v), dtype) for v in (a, b))
    x, y = broadcast_all(x, y)
    return x, y


def _bitwise(symbol: str, a: Any, b: Any) -> tensor:
    dtype = common_dtype(a, b)
    if dtype.is_float:
        raise CompileError(
            f"`{symbol}` works on bits, not on floats",
            found=f"{describe(a)} and {describe(b)}",
            allowed="bools and integers",
            fix="compare floats first, or convert them with `.to(tl.int32)`",
        )
    x, y = typed(a, b, dtype)
    return elementwise(_BITWISE[symbol], x, y, element=dtype)


def _quotient(a: Any, b: Any) -> tensor:
    """True division, in f32; 16-bit floats are rounded back, integers give f32."""
    dtype = common_dtype(a, b)
    _check_signs("/", a, b)
    result = dtype if dtype.is_float else float32
    x, y = (constant(promotion.fit(v, result), float32) if is_literal(v) else v for v in (a, b))
    x, y = typed(x, y, float32)
    return convert(elementwise("div", x, y, element=float32), result)


def _integer_division(symbol: str, a: Any, b: Any) -> tensor:
    dtype = promotion.arithmetic(common_dtype(a, b))
    if dtype.is_float:
        raise float_division_error(symbol)
    for v in (a, b):
        if is_literal(v) and v < 0:
            raise CompileError(
                f"`{symbol}` of a negative constant has two meanings",
                found=f"the constant {v}; truncation toward zero, as in C and on the GPU, and rounding down, as in "
                "Python, differ: -7 // 3 is -2 or -3, and -7 % 3 is -1 or 2",
                allowed="constant operands that are not negative",
                fix="negate the other operand or the result; tl.cdiv(a, b) rounds up and is exact for all signs",
            )
    x, y = _divided(symbol, a, b, dtype)
    return elementwise(_DIVISION[symbol], x, y, element=dtype)


def _divided(symbol: str, a: Any, b: Any, dtype: DType) -> tuple[tensor, tensor]:
    if is_literal(b) and b == 0:
        raise zero_division_error(symbol)
    _check_signs(symbol, a, b)
    return typed(a, b, dtype)


def _check_signs(symbol: str, a: Any, b: Any) -> None:
    """Division of a signed by an unsigned value has no common dtype that holds both."""
    if all(isinstance(v, tensor) and v.number.is_int for v in (a, b)) and a.number.signed != b.number.signed:
        raise CompileError(
            f"`{symbol}` of a signed and an unsigned integer is ambiguous",
            found=f"{describe(a)} and {describe(b)}",
            allowed="two signed or two unsigned integers",
            fix="cast one of them with `.to(...)`",
        )


def _shift(symbol: str, a: Any, b: Any) -> tensor:
    """The left operand gives the dtype; a literal on the left takes that of the count."""
    dtype = promotion.arithmetic(a.number if isinstance(a, tensor) else common_dtype(a, b))
    count = b.number if isinstance(b, tensor) else promotion.natural(b) if is_literal(b) else as_tensor(b).number
    if dtype.is_float or count.is_float:
        raise CompileError(
            f"`{symbol}` works on bits, not on floats",
            found=f"{describe(a)} and {describe(b)}",
            allowed="integers",
            fix="multiply by a power of two, or convert with `.to(tl.int32)`",
        )
    if is_literal(b) and not 0 <= b < dtype.bits:
        raise CompileError(
            f"`{symbol}` by {b} is undefined for {dtype!r}",
            allowed=f"counts from 0 to {dtype.bits - 1}",
            fix="cast the value to a wider integer with `.to(...)` first",
        )
    x, y = typed(a, b, dtype)
    return elementwise(_SHIFT[symbol], x, y, element=dtype)


_FLOAT_DIVISION = {
    "//": "write a / b, and `.to(tl.int32)` to truncate the quotient",
    "%": "write a - b * (a / b).to(tl.int32), or convert the operands with `.to(tl.int32)`",
    "cdiv": "convert the operands with `.to(tl.int32)`",
}


def float_division_error(symbol: str) -> CompileError:
    """`//`, `%` and cdiv are defined on integers only."""
    return CompileError(
        f"`{symbol}` works on integers only", found="a float operand", allowed="integers", fix=_FLOAT_DIVISION[symbol]
    )


def zero_division_error(symbol: str) -> CompileError:
    """The divisor is the constant 0."""
    return CompileError(f"`{symbol}` by the constant 0", allowed="divisors other than 0")


def negate(x: tensor) -> tensor:
    """`-x`; bools become int32, unsigned integers wrap."""
    x = convert(x, promotion.arithmetic(x.number))
    return elementwise("neg", x, element=x.dtype)


def invert(x: tensor) -> tensor:
    """`~x`: all bits of an integer; the negation of a bool."""
    dtype = x.number
    if dtype.is_float:
        raise CompileError(
            "`~` works on bits, not on floats",
            found=describe(x),
            allowed="bools and integers",
            fix="compare x with 0 first",
        )
    return binary("^", x, True if dtype.kind == "bool" else -1 if dtype.signed else dtype.limits[1])


def truth(x: Any) -> tensor:
    """x != 0 as a bool."""
    if is_literal(x):
        return constant(bool(x), int1)
    value = as_tensor(x)
    return value if value.dtype == int1 else binary("!=", value, 0)


# -------------------------------------------------------------------------------------------- conversion, selection
@builtin
def cast(x: Any, dtype: DType, bitcast: bool = False) -> tensor:
    """Converts a scalar or tile to `dtype`; `x.to(dtype)` is the same.

    dtypes: any of bool, integers, f16, bf16, f32 to any other.  To a narrower float and from integers to floats: round
    to nearest even.  Float to integer: toward zero, saturating, NaN gives 0.  To bool: x != 0.  Between integers:
    wraps.  A literal must be exact in an integer dtype and in range of a float one.  `bitcast=True` reads the bits of
    an integer or float as a dtype of the same width: the bits of floats that are not negative order as they do.
    Targets: all.  Errors: pointers; a literal out of range; a bitcast of bools, of literals, or to another width.
    Instruction: `cvt` (PTX ISA, "cvt"); LLVM `fptrunc fpext sitofp uitofp trunc sext zext llvm.fptosi.sat` (LangRef).
    """
    check_dtype(dtype)
    if is_literal(x) and not bitcast:
        return constant(x, dtype)
    value = as_tensor(x)
    if isinstance(value.dtype, Pointer):
        raise CompileError(
            "a pointer cannot be converted",
            found=describe(value),
            allowed="numbers",
            fix="convert what tl.load reads through it",
        )
    return _bitcast(x, value, dtype) if bitcast else convert(value, dtype)


def _bitcast(x: Any, value: tensor, dtype: DType) -> tensor:
    source = value.number
    if is_literal(x) or "bool" in (source.kind, dtype.kind) or source.bits != dtype.bits:
        raise CompileError(
            "a bitcast keeps the bits of a run-time value",
            found=f"{describe(x)} to {dtype!r}",
            allowed="integers and floats, to a dtype with as many bits",
            fix="leave bitcast=True out to convert the number",
        )
    return value if source == dtype else elementwise("bitcast", value, element=dtype)


@builtin
def where(cond: Any, x: Any, y: Any) -> tensor:
    """x where cond, else y; the three broadcast to one shape.  Both sides are evaluated.

    dtypes: cond bool (a number counts as cond != 0); x and y promote to a common dtype, literals take the other's.
    Targets: all.  Errors: pointers; shapes that do not broadcast.
    Instruction: `selp` (PTX ISA, "selp"), `v_cndmask_b32`; LLVM `select`.
    """
    dtype = common_dtype(x, y)
    a, b = typed(x, y, dtype)
    c, a, b = broadcast_all(truth(cond), a, b)
    return elementwise("select", c, a, b, element=dtype)


@builtin
def minimum(x: Any, y: Any) -> Any:
    """The smaller of two values per element; of a NaN and a number the number, of two NaNs NaN.

    dtypes: integers and floats after promotion; bools become int32.  Two Python numbers give a Python number.
    Targets: all.  Errors: pointers; shapes that do not broadcast.
    Instruction: `min` (PTX ISA, "min"); LLVM `llvm.minnum smin umin` (LangRef).
    """
    return _extremum("min", x, y)


@builtin
def maximum(x: Any, y: Any) -> Any:
    """The larger of two values per element; of a NaN and a number the number, of two NaNs NaN.

    dtypes: integers and floats after promotion; bools become int32.  Two Python numbers give a Python number.
    Targets: all.  Errors: pointers; shapes that do not broadcast.
    Instruction: `max` (PTX ISA, "max"); LLVM `llvm.maxnum smax umax` (LangRef).
    """
    return _extremum("max", x, y)


def _extremum(kind: str, x: Any, y: Any) -> Any:
    if is_literal(x) and is_literal(y):
        if x != x or y != y:
            return y if x != x else x
        return min(x, y) if kind == "min" else max(x, y)
    a, b = typed(x, y, promotion.arithmetic(common_dtype(x, y)))
    return elementwise(kind, a, b, element=a.dtype)


@builtin
def abs(x: Any) -> Any:
    """The magnitude of x.

    dtypes: signed integers (the smallest wraps to itself) and floats (clears the sign bit; of a NaN a NaN); unsigned
    integers and bools are returned as they are.  A Python number gives a Python number.
    Targets: all.  Errors: pointers.
    Instruction: `abs` (PTX ISA, "abs"), or an operand modifier; LLVM `llvm.fabs`, `llvm.abs`.
    """
    if is_literal(x):
        return -x if x < 0 else x
    value = as_tensor(x)
    if value.number.kind in ("bool", "uint"):
        return value
    return elementwise("abs", value, element=value.dtype)


# ------------------------------------------------------------------------------------------------ elementary functions
def _in_float32(name: str, x: Any) -> tuple[tensor, DType]:
    """(x in f32, the dtype to round the result to)."""
    if is_literal(x) and not isinstance(x, float) or isinstance(x, tensor) and not x.number.is_float:
        raise CompileError(
            f"tl.{name} takes floats",
            found=describe(x),
            allowed="tl.float16, tl.bfloat16, tl.float32",
            fix=f"write {x}.0" if is_literal(x) else "convert it with `.to(tl.float32)`",
        )
    value = as_tensor(x)
    return convert(value, float32), value.number


def _unary(kind: str, name: str, x: Any) -> tensor:
    value, dtype = _in_float32(name, x)
    return convert(elementwise(kind, value, element=float32), dtype)


@builtin
def exp2(x: Any, ftz: bool = False) -> tensor:
    """2**x per element.

    dtypes: f32; f16 and bf16 are computed in f32 and rounded back.  Relative error at most 2**-22 in f32 (PTX ISA,
    "ex2"), 1 ulp on AMD; exp2(-inf) = 0, exp2(inf) = inf, NaN stays NaN.  `ftz=True` takes denormals of f32, operands
    and results, for zero: one instruction, where keeping them takes four.
    Targets: all.  Errors: integers (fix: `.to(tl.float32)`); an ftz that is no compile-time bool.
    Instruction: `ex2.approx.ftz.f32`, with a scaling around it where denormals are kept; `v_exp_f32`.
    """
    if not isinstance(ftz, bool):
        raise CompileError("ftz of tl.exp2 is a compile-time bool", found=describe(ftz), allowed="True or False")
    value, dtype = _in_float32("exp2", x)
    flush: dict[str, Any] = {"ftz": True} if ftz else {}
    return convert(elementwise("exp2", value, element=float32, **flush), dtype)


@builtin
def exp(x: Any) -> tensor:
    """e**x per element, as exp2(x * log2(e)) in f32.

    dtypes: f32; f16 and bf16 are computed in f32 and rounded back.  Relative error at most 2**-22 + |x| * 2**-23 in
    f32: the rounded product is the exponent.  exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
    Targets: all.  Errors: integers (fix: `.to(tl.float32)`).
    Instruction: `mul.f32` and `ex2.approx.f32`; `v_mul_f32` and `v_exp_f32`.
    """
    value, dtype = _in_float32("exp", x)
    return convert(elementwise("exp2", value * LOG2_E, element=float32), dtype)


@builtin
def log2(x: Any) -> tensor:
    """The logarithm of x to base 2, per element.

    dtypes: f32; f16 and bf16 are computed in f32 and rounded back.  Absolute error at most 2**-22 for x in (0.5, 2),
    else relative error at most 2**-22 (PTX ISA, "lg2"); 1 ulp on AMD.  log2(0) = -inf, log2(inf) = inf, NaN below 0.
    Targets: all.  Errors: integers (fix: `.to(tl.float32)`).
    Instruction: `lg2.approx.f32`, `v_log_f32`.
    """
    return _unary("log2", "log2", x)


@builtin
def log(x: Any) -> tensor:
    """The natural logarithm of x, as log2(x) * ln(2) in f32.

    dtypes: f32; f16 and bf16 are computed in f32 and rounded back.  Absolute error at most 2**-22 for x in (0.5, 2),
    else relative error at most 2**-21.  log(0) = -inf, log(inf) = inf, NaN below 0.
    Targets: all.  Errors: integers (fix: `.to(tl.float32)`).
    Instruction: `lg2.approx.f32` and `mul.f32`; `v_log_f32` and `v_mul_f32`.
    """
    value, dtype = _in_float32("log", x)
    return convert(elementwise("log2", value, element=float32) * LN_2, dtype)


@builtin
def sqrt(x: Any) -> tensor:
    """The square root of x, per element.

    dtypes: f32, rounded to nearest even (IEEE); f16 and bf16 are computed in f32 and rounded back.  NaN below 0.
    Targets: all.  Errors: integers (fix: `.to(tl.float32)`).
    Instruction: `sqrt.rn.f32` (PTX ISA, "sqrt"); LLVM `llvm.sqrt` (LangRef).
    """
    return _unary("sqrt", "sqrt", x)


@builtin
def rsqrt(x: Any) -> tensor:
    """1 / sqrt(x) per element.

    dtypes: f32; f16 and bf16 are computed in f32 and rounded back.  Relative error at most 2**-22.9 in f32 (PTX ISA,
    "rsqrt"), 1 ulp on AMD.  rsqrt(0) = inf, rsqrt(inf) = 0, NaN below 0.
    A subnormal x counts as 0 on AMD.
    Targets: all.  Errors: integers (fix: `.to(tl.float32)`).
    Instruction: `rsqrt.approx.f32`, `v_rsq_f32`.
    """
    return _unary("rsqrt", "rsqrt", x)


@builtin
def cdiv(a: Any, b: Any) -> Any:
    """The integer quotient a / b rounded up; exact for all signs, with no overflow on the way.

    dtypes: integers after promotion.  Two Python ints give a Python int, or a torch.SymInt where one of them is one;
    run-time values give a scalar or tile.
    Targets: all.  Errors: floats; a signed with an unsigned run-time value; the constant divisor 0.
    Instruction: `div` and `rem`, a comparison and an addition; a shift where b is a constant power of two.
    """
    if isinstance(a, float) or isinstance(b, float):
        raise float_division_error("cdiv")
    if (is_literal(a) and is_literal(b)) or is_symbolic(a) or is_symbolic(b):
        if is_literal(b) and b == 0:
            raise zero_division_error("cdiv")
        return -(-a // b)
    dtype = promotion.arithmetic(common_dtype(a, b))
    if dtype.is_float:
        raise float_division_error("cdiv")
    x, y = _divided("cdiv", a, b, dtype)
    quotient, rest = (elementwise(kind, x, y, element=dtype) for kind in ("idiv", "rem"))
    if not dtype.signed or is_literal(b) and b > 0:
        up = rest > 0
    elif is_literal(b):
        up = rest < 0
    else:  # the remainder has the sign of a: truncation rounded down exactly where a and b agree in sign
        up = (rest != 0) & ((rest ^ y) >= 0)
    return quotient + convert(up, dtype)
