"""Elementwise arithmetic: one LLVM instruction or intrinsic per register."""

from __future__ import annotations

from collections.abc import Callable

from tlxc.codegen.llvm_text import literal, llvm_type
from tlxc.ir.core import Op
from tlxc.ir.types import DType, element_of, float32

from .lowering import Lowering, lowers

# kind -> (float, signed, unsigned) instruction; None where the row does not allow the kind
_INSTRUCTIONS = {
    "add": ("fadd contract", "add", "add"),
    "sub": ("fsub contract", "sub", "sub"),
    "mul": ("fmul contract", "mul", "mul"),
    "div": ("fdiv", None, None),
    "idiv": (None, "sdiv", "udiv"),
    "rem": (None, "srem", "urem"),
    "and": (None, "and", "and"),
    "or": (None, "or", "or"),
    "xor": (None, "xor", "xor"),
    "shl": (None, "shl", "shl"),
    "shr": (None, "ashr", "lshr"),
}
_EXTREMES = {"min": ("minnum", "smin", "umin"), "max": ("maxnum", "smax", "umax")}
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
_FLOAT = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _column(dtype: DType) -> int:
    return 0 if dtype.is_float else 1 if dtype.signed else 2


def suffix(dtype: DType) -> str:
    """Spelling of a type in an intrinsic's name."""
    return dtype.short if dtype.is_float else f"i{dtype.bits}"


def _dtype(op: Op) -> DType:
    e = element_of(op.inputs[0].type)
    assert isinstance(e, DType)
    return e


def _each(low: Lowering, op: Op, fn: Callable[..., str]) -> None:
    """Applies `fn` to the operands of every register; registers known to hold equal values share one result."""
    operands = [low.get(v) for v in op.inputs]
    first = low.representatives(op.result)
    out: list[str] = []
    for r, names in enumerate(zip(*operands)):
        out.append(fn(*names) if first[r] == r else out[first[r]])
    low.set(op.result, out)


@lowers(*_INSTRUCTIONS)
def binary(low: Lowering, op: Op) -> None:
    d = _dtype(op)
    instruction = _INSTRUCTIONS[op.kind][_column(d)]
    _each(low, op, lambda a, b: low.w.assign(f"{instruction} {llvm_type(d)} {a}, {b}"))


def extreme(low: Lowering, kind: str, d: DType, a: str, b: str) -> str:
    """min or max of two values; NaN loses against a number."""
    t = llvm_type(d)
    return low.w.call(t, f"llvm.{_EXTREMES[kind][_column(d)]}.{suffix(d)}", [(t, a), (t, b)])


@lowers("min", "max")
def min_max(low: Lowering, op: Op) -> None:
    _each(low, op, lambda a, b: extreme(low, op.kind, _dtype(op), a, b))


@lowers("neg")
def neg(low: Lowering, op: Op) -> None:
    d = _dtype(op)
    _each(low, op, lambda x: low.w.assign(f"fneg {llvm_type(d)} {x}" if d.is_float else f"sub {llvm_type(d)} 0, {x}"))


@lowers("abs")
def absolute(low: Lowering, op: Op) -> None:
    d, t = _dtype(op), llvm_type(_dtype(op))
    if d.is_float:
        _each(low, op, lambda x: low.w.call(t, f"llvm.fabs.{suffix(d)}", [(t, x)]))
    else:
        _each(low, op, lambda x: low.w.call(t, f"llvm.abs.{suffix(d)}", [(t, x), ("i1", "false")]))


@lowers("exp2", "log2", "sqrt", "rsqrt")
def transcendental(low: Lowering, op: Op) -> None:
    kind = f"{op.kind}.ftz" if op.attrs.get("ftz") else op.kind
    _each(low, op, lambda x: low.emitter.unary(kind, x))


def compare(low: Lowering, pred: str, d: DType, a: str, b: str) -> str:
    """i1: two numbers compared."""
    text = f"fcmp {_FLOAT[pred]}" if d.is_float else f"icmp {(_SIGNED if d.signed else _UNSIGNED)[pred]}"
    return low.w.assign(f"{text} {llvm_type(d)} {a}, {b}")


@lowers("cmp")
def comparison(low: Lowering, op: Op) -> None:
    _each(low, op, lambda a, b: compare(low, op.attrs["pred"], _dtype(op), a, b))


@lowers("select")
def select(low: Lowering, op: Op) -> None:
    t = low.llvm(op.result)
    _each(low, op, lambda c, a, b: low.w.assign(f"select i1 {c}, {t} {a}, {t} {b}"))


@lowers("constant")
def constant(low: Lowering, op: Op) -> None:
    low.set(op.result, [literal(op.attrs["value"], element_of(op.result.type))])


@lowers("bitcast")
def bitcast(low: Lowering, op: Op) -> None:
    a, b = low.llvm(op.inputs[0]), low.llvm(op.result)
    _each(low, op, lambda x: x if a == b else low.w.assign(f"bitcast {a} {x} to {b}"))


@lowers("cast")
def cast(low: Lowering, op: Op) -> None:
    source, to = _dtype(op), element_of(op.result.type)
    assert isinstance(to, DType)
    _each(low, op, lambda x: cast_one(low, x, source, to))


def cast_one(low: Lowering, x: str, source: DType, to: DType) -> str:
    """One element; the rules are those of the `cast` row."""
    a, b = llvm_type(source), llvm_type(to)
    if source == to:
        return x
    if to.kind == "bool":
        test = "fcmp une" if source.is_float else "icmp ne"
        return low.w.assign(f"{test} {a} {x}, {literal(0, source)}")
    if source.is_float and to.is_float:
        return _float_to_float(low, x, source, to)
    if source.is_float:
        wide = _float_to_float(low, x, source, float32) if source.bits < 32 else x
        name = f"llvm.fpto{'s' if to.signed else 'u'}i.sat.{b}.f32"
        return low.w.call(b, name, [("float", wide)])
    if to.is_float:
        return low.w.assign(f"{'sitofp' if source.signed else 'uitofp'} {a} {x} to {b}")
    if to.bits == source.bits:
        return x
    return low.w.assign(f"{'trunc' if to.bits < source.bits else 'sext' if source.signed else 'zext'} {a} {x} to {b}")


def _float_to_float(low: Lowering, x: str, source: DType, to: DType) -> str:
    a, b = llvm_type(source), llvm_type(to)
    if source.bits < to.bits:
        return low.w.assign(f"fpext {a} {x} to {b}")
    if source.bits > to.bits:
        return low.w.assign(f"fptrunc {a} {x} to {b}")
    return low.w.assign(f"fptrunc float {low.w.assign(f'fpext {a} {x} to float')} to {b}")  # f16 <-> bf16
