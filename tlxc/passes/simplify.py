"""Local clean-up of tile IR: folding, common subexpressions, loop-invariant code, dead code.

Invariant after the pass: no op computes a constant from constants, no pure op repeats one that dominates it in its
task, no pure op that could stand before its loop stands inside, and nothing is computed that no effect needs.  Nothing
leaves its task, and a task computes again what stands outside.  Running it again changes nothing.  Integers fold with
the width and sign of their dtype, floats only in their own dtype and only where the hardware rounds alike; no rule
assumes that integers do not wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from tlxc.errors import Location
from tlxc.ir.core import Module, Op, Region, Value, replace_uses
from tlxc.ir.table import OPS
from tlxc.ir.types import UNIFORMITY, DType, Pointer, Scalar, Tensor, Type, element_of, shape_of
from tlxc.targets import Target

from .dead_code import remove_dead

Number = Union[bool, int, float]


# ------------------------------------------------------------------------------------------------ constants
def constant_of(v: Value | None) -> Number | None:
    """The number that a scalar, or every element of a tile, is known to be."""
    op = v.op if v is not None else None
    if op is not None and op.kind == "splat":
        op = op.operands[0].op  # type: ignore[union-attr]
    return op.attrs["value"] if op is not None and op.kind == "constant" else None


def wrap(n: int, e: DType) -> Number:
    """The integer modulo the width of the dtype."""
    if e.kind == "bool":
        return bool(n & 1)
    n &= (1 << e.bits) - 1
    return n - (1 << e.bits) if e.signed and n >> (e.bits - 1) else n


def _quotient(a: int, b: int, e: DType) -> int | None:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int, e: DType) -> int | None:
    return None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


_INTEGER: dict[str, Callable[[Any, Any, DType], int | None]] = {
    "add": lambda a, b, e: a + b,
    "sub": lambda a, b, e: a - b,
    "mul": lambda a, b, e: a * b,
    "idiv": _quotient,
    "rem": _remainder,
    "and": lambda a, b, e: a & b,
    "or": lambda a, b, e: a | b,
    "xor": lambda a, b, e: a ^ b,
    "shl": lambda a, b, e: a << b if 0 <= b < e.bits else None,
    "shr": lambda a, b, e: a >> b if 0 <= b < e.bits else None,
    "min": lambda a, b, e: min(a, b),
    "max": lambda a, b, e: max(a, b),
    "neg": lambda a, _, e: -a,
    "abs": lambda a, _, e: abs(a),
}
_PREDICATES: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _numpy_type(e: DType) -> Any:
    if e.name == "bfloat16":
        from ml_dtypes import bfloat16

        return bfloat16
    import numpy as np

    return getattr(np, e.name)


def _float(kind: str, values: list[Any], e: DType) -> float | None:
    """A float op in the dtype itself; those whose hardware form is approximate are left to the hardware."""
    import numpy as np

    rules: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "neg": lambda a: -a, "abs": abs, "min": np.fmin, "max": np.fmax,
    }  # fmt: skip
    if kind not in rules:
        return None
    with np.errstate(all="ignore"):
        return float(rules[kind](*(_numpy_type(e)(v) for v in values)))


def _cast(value: Number, src: DType, dst: DType) -> Number:
    if dst.kind == "bool":
        return bool(value != 0)
    if dst.is_float:
        return _round(value, dst)
    if not src.is_float:
        return wrap(int(value), dst)
    low, high = dst.limits
    if value != value:
        return 0
    return low if value <= low else high if value >= high else int(value)


def _round(value: Number, dst: DType) -> float:
    """The nearest float of the dtype, ties to even, rounded once."""
    import numpy as np

    if isinstance(value, float):
        with np.errstate(all="ignore"):
            return float(_numpy_type(dst)(value))
    # A wide integer is rounded from its exact value: to odd in 53 bits first, which keeps the second rounding exact.
    n, sign = abs(int(value)), -1 if value < 0 else 1
    drop = max(0, n.bit_length() - 50)
    sticky = 1 if n & ((1 << drop) - 1) else 0
    with np.errstate(all="ignore"):
        return float(_numpy_type(dst)(float(sign * ((n >> drop | sticky) << drop))))


def fold(op: Op, values: list[Any]) -> Number | None:
    """The constant that an elementwise op on constants gives; None where it must stay."""
    e, src = element_of(op.result.type), element_of(op.operands[0].type)  # type: ignore[union-attr]
    if not isinstance(e, DType) or not isinstance(src, DType):
        return None
    if op.kind == "cmp":
        return bool(_PREDICATES[op.attrs["pred"]](*values))
    if op.kind == "select":
        return values[1] if values[0] else values[2]
    if op.kind == "cast":
        return _cast(values[0], src, e)
    if e.is_float:
        return _float(op.kind, values, e)
    rule = _INTEGER.get(op.kind)
    n = rule(values[0], values[-1], e) if rule is not None else None
    return None if n is None else wrap(int(n), e)


# ------------------------------------------------------------------------------------------------ identities
Rule = Callable[["_Forward", Op, "list[Number | None]"], Union[Value, None]]
_COMMUTATIVE = frozenset(("add", "mul", "and", "or", "xor", "min", "max"))


def _ones(e: DType) -> int:
    """The number whose bits are all set."""
    return -1 if e.signed else e.limits[1]


def _neutral(kind: str, e: DType) -> Number | None:
    """c with x op c == x for every x, the sign of zero included."""
    table: dict[str, Number] = (
        {"sub": 0.0, "mul": 1.0, "div": 1.0}
        if e.is_float
        else {"add": 0, "sub": 0, "mul": 1, "idiv": 1, "or": 0, "xor": 0, "shl": 0, "shr": 0, "and": _ones(e)}
    )
    return table.get(kind)


def _absorbing(kind: str, e: DType) -> Number | None:
    """c with x op c == c for every x."""
    return None if e.is_float else {"mul": 0, "and": 0, "or": _ones(e)}.get(kind)


# x op x, where it needs no x: itself, or the constant 0.
_IDEMPOTENT, _SELF_INVERSE = ("and", "or", "min", "max"), ("sub", "xor")
_REFLEXIVE = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}


def _same_number(a: Number | None, b: Number | None) -> bool:
    """Equal with the sign of zero."""
    return a is not None and b is not None and a == b and str(float(a)) == str(float(b))


def _binary(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    a, b = op.inputs
    ca, cb = values
    e = element_of(op.result.type)
    assert isinstance(e, DType)
    if ca is not None and op.kind in _COMMUTATIVE:
        a, b, ca, cb = b, a, cb, ca
    if _same_number(cb, _neutral(op.kind, e)):
        return a
    if cb is not None and not e.is_float and cb == _absorbing(op.kind, e):
        return b
    if op.kind == "rem" and cb == 1:
        return f.number(0, op.result.type)
    if a is b and op.kind in _IDEMPOTENT:
        return a
    if a is b and op.kind in _SELF_INVERSE and not e.is_float:
        return f.number(wrap(0, e), op.result.type)
    return None


def _cmp(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    a, b = op.inputs
    e = element_of(a.type)
    if a is b and isinstance(e, DType) and not e.is_float:
        return f.number(_REFLEXIVE[op.attrs["pred"]], op.result.type)
    return None


def _select(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    cond, a, b = op.inputs
    if values[0] is not None:
        return a if values[0] else b
    if a is b:
        return a
    return cond if values[1] is True and values[2] is False else None


def _cast_rule(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    return op.inputs[0] if op.inputs[0].type == op.result.type else None


def _addptr(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    return op.inputs[0] if values[1] == 0 else None


def _relabel(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    """Relabelling a splat gives a splat; relabelling to the same type nothing; of two in a row the first may go."""
    (x,) = op.inputs
    if x.type == op.result.type and op.attrs.get("order", ()) in ((), tuple(range(len(shape_of(x.type))))):
        return x
    if x.op is not None and x.op.kind == "splat":
        return f.new("splat", x.op.inputs, op.result.type)
    if x.op is not None and x.op.kind == op.kind and op.kind in ("reshape", "broadcast"):
        return f.new(op.kind, x.op.inputs, op.result.type)
    return None


def _convert(f: _Forward, op: Op, values: list[Number | None]) -> Value | None:
    return op.inputs[0] if op.inputs[0].type == op.result.type else None


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "idiv", "rem", "and", "or", "xor", "shl", "shr", "min", "max"), _binary
    ),
    **dict.fromkeys(("expand_dims", "broadcast", "reshape", "permute"), _relabel),
    "cmp": _cmp,
    "select": _select,
    "cast": _cast_rule,
    "addptr": _addptr,
    "convert_layout": _convert,
}


# ------------------------------------------------------------------------------------------------ the walk
class _Frame:
    """A region being rebuilt: its ops so far and the pure ones by what they compute.  `base`: the outermost frame that
    its ops may be moved to and share values with; a task does neither beyond its own region."""

    def __init__(self, loop: bool, base: int) -> None:
        self.ops: list[Op] = []
        self.table: dict[tuple, Op] = {}
        self.loop, self.base = loop, base


class _Forward:
    """One walk in program order.  `late` maps carried arguments that turned out to be constant after their body was
    walked; only then another walk can find more."""

    def __init__(self) -> None:
        self.frames: list[_Frame] = []
        self.mapping: dict[Value, Value] = {}
        self.level: dict[Value, int] = {}  # frame that defines a value; parameters are in frame 0
        self.late: dict[Value, Value] = {}
        self.loc: Location | None = None  # of the op at hand

    def region(self, region: Region, loop: bool = False, task: bool = False) -> None:
        base = 0 if not self.frames else len(self.frames) if task else self.frames[-1].base
        frame = _Frame(loop, base)
        self.frames.append(frame)
        for a in region.args:
            self.level[a] = len(self.frames) - 1
        for op in region.ops:
            self.visit(op)
        self.frames.pop()
        region.ops = frame.ops

    def visit(self, op: Op) -> None:
        mapping, self.loc = self.mapping, op.loc
        op.operands = [mapping.get(v, v) if v is not None else None for v in op.operands]
        if op.kind in _STRUCTURED:
            _STRUCTURED[op.kind](self, op)
            return
        traits = OPS[op.kind].traits
        if "pure" not in traits:
            self.append(op, len(self.frames) - 1)
            return
        if len(op.results) == 1 and (v := self.simpler(op, traits)) is not None:
            mapping[op.result] = v
            return
        self.place(op, traits)

    def simpler(self, op: Op, traits: frozenset[str]) -> Value | None:
        """An existing or new value that equals the result."""
        if not op.operands:
            return None
        rule = _RULES.get(op.kind)
        elementwise = "elementwise" in traits
        if rule is None and not elementwise:
            return None
        values = [constant_of(v) for v in op.operands]
        if elementwise and None not in values and (n := fold(op, values)) is not None:
            return self.number(n, op.result.type)
        if rule is not None and (v := rule(self, op, values)) is not None:
            return v
        if elementwise and all(v.op is not None and v.op.kind == "splat" for v in op.inputs):
            return self.on_scalars(op)
        return None

    def on_scalars(self, op: Op) -> Value:
        """An op on splats is a splat of the op on scalars."""
        scalars: list[Value] = [v.op.operands[0] for v in op.inputs]  # type: ignore[union-attr,misc]
        e = element_of(op.result.type)
        ranks = [UNIFORMITY.index(v.type.uniform) for v in scalars if isinstance(v.type, Scalar)]
        type: Type = e if isinstance(e, Pointer) else Scalar(e, UNIFORMITY[min(ranks)])
        scalar = self.new(op.kind, scalars, type, **op.attrs)
        return self.new("splat", [scalar], op.result.type)

    def new(self, kind: str, operands: list[Value], type: Type, **attrs: Any) -> Value:
        """The result of an op, made where it is not there yet and does not simplify."""
        op = Op(kind, list(operands), (type,), attrs, None, self.loc)
        self.visit(op)
        return self.mapping.get(op.result, op.result)

    def number(self, value: Number, type: Type) -> Value:
        e = element_of(type)
        assert isinstance(e, DType)
        scalar = self.new("constant", [], type if isinstance(type, Scalar) else Scalar(e), value=value)
        return self.new("splat", [scalar], type) if isinstance(type, Tensor) else scalar

    def place(self, op: Op, traits: frozenset[str]) -> None:
        """Uses the equal op that dominates, or puts this one as far out of its loops as its operands allow."""
        key = _key(op, traits)
        for frame in self.frames[self.frames[-1].base :]:
            if (same := frame.table.get(key)) is not None:
                self.mapping.update(zip(op.results, same.results))
                return
        at = self.outermost(op, traits)
        self.frames[at].table[key] = op
        self.append(op, at)

    def outermost(self, op: Op, traits: frozenset[str]) -> int:
        here = len(self.frames) - 1
        if "convergent" in traits or op.kind in ("idiv", "rem") and not constant_of(op.operands[1]):
            return here  # a division may be guarded against zero by its branch or loop
        defined = max((self.level.get(v, 0) for v in op.inputs), default=0)
        defined = max(defined, self.frames[-1].base)
        return next((i - 1 for i in range(defined + 1, here + 1) if self.frames[i].loop), here)

    def append(self, op: Op, at: int) -> None:
        self.frames[at].ops.append(op)
        for v in op.results:
            self.level[v] = at

    # -- control flow
    def get(self, v: Value) -> Value:
        return self.mapping.get(v, v)

    def loop(self, op: Op) -> None:
        first = 3 if op.kind == "for" else 0
        if op.kind == "for" and self.no_trip(op):
            self.mapping.update(zip(op.results, op.inputs[first:]))
            return
        inits, body = op.inputs[first:], op.regions[-1]
        slots = [[r.args[i - len(inits)] for r in op.regions] for i in range(len(inits))]
        known = set()
        for i, (init, args, y) in enumerate(zip(inits, slots, body.terminator.inputs)):
            if y is args[-1] or self.get(y) is init:
                known.add(i)
                self.mapping.update((v, init) for v in (*args, op.results[i]))
        for region in op.regions:
            self.region(region, loop=True)
        for i, (init, args, y) in enumerate(zip(inits, slots, body.terminator.inputs)):
            if i not in known and (y is args[-1] or y is init):
                self.late.update((v, init) for v in args)
                self.mapping[op.results[i]] = init
        self.append(op, len(self.frames) - 1)

    def no_trip(self, op: Op) -> bool:
        lo, hi = constant_of(op.operands[0]), constant_of(op.operands[1])
        return lo is not None and hi is not None and (lo <= hi if op.attrs.get("descending") else lo >= hi)

    def branch(self, op: Op) -> None:
        cond = constant_of(op.operands[0])
        if cond is not None:
            taken = op.regions[0 if cond else 1]
            for inner in taken.ops[:-1]:
                self.visit(inner)
            self.mapping.update((r, self.get(y)) for r, y in zip(op.results, taken.terminator.inputs))
            return
        for region in op.regions:
            self.region(region)
        for r, a, b in zip(op.results, *(region.terminator.inputs for region in op.regions)):
            if a is b:
                self.mapping[r] = a
        self.append(op, len(self.frames) - 1)

    def tasks(self, op: Op) -> None:
        for region in op.regions:
            self.region(region, task=True)
        self.append(op, len(self.frames) - 1)


_STRUCTURED: dict[str, Callable[[_Forward, Op], None]] = {
    "for": _Forward.loop,
    "while": _Forward.loop,
    "if": _Forward.branch,
    "async_tasks": _Forward.tasks,
}


def _key(op: Op, traits: frozenset[str]) -> tuple:
    """What a pure op computes; equal keys mean equal results."""
    ids = [0 if v is None else id(v) for v in op.operands]
    if op.kind in _COMMUTATIVE:
        ids.sort()
    attrs = op.attrs
    if op.kind == "constant":  # True, 1, 1.0 and the two zeros differ
        return "constant", op.result.type, repr(attrs["value"])
    types = () if "elementwise" in traits and op.kind != "cast" else tuple(v.type for v in op.results)
    return op.kind, tuple(ids), tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in attrs.items()), types


def simplify(module: Module, target: Target) -> None:
    """Folds, shares, hoists and deletes; see the invariant of this module."""
    while True:
        walk = _Forward()
        walk.region(module.body)
        remove_dead(module)
        if not walk.late:
            return
        replace_uses(module.body, walk.late)
