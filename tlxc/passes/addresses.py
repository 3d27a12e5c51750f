"""64-bit addresses: splits every offset into a uniform and a lane part and computes each wide enough.

Invariant after the pass: an `addptr` on a tile adds a lane part to a splat scalar pointer wherever its pointer and
offset decompose; the scalar pointer takes the uniform part as i64, widened from its first sum or product on; a lane
part is i32 only where ranges prove every step exact.  Pointer tiles that a loop moves by a uniform step are carried as
one scalar pointer.  Decomposed are sums, differences, products, sign extensions, splats and relabelling of integers;
anything else (quotients, remainders, minima, loads, carried integers, unsigned ones) is a leaf and keeps its value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tlxc.errors import Location
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import Pointer, Scalar, Tensor, Type, element_of, int32, int64, shape_of
from tlxc.targets import Target

from .axis import AxisInfo, Range, analyse, unknown

_ARITHMETIC: dict[str, Callable[[Range, Range], Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: (min(x * y for x in a for y in b), max(x * y for x in a for y in b)),
}
_RELABEL = ("expand_dims", "broadcast", "reshape", "permute")


@dataclass(frozen=True, eq=False)
class Term:
    """An integer expression of exact numbers.

    `origin` is a value of the module that stands for it, `exact` says that it holds the exact number; `narrow` says
    that every step fits i32.  Leaves are always exact.
    """

    kind: str
    args: tuple[Term, ...]
    shape: tuple[int, ...]
    interval: Range
    narrow: bool
    origin: Value | None = None
    exact: bool = False
    attrs: tuple[tuple[str, Any], ...] = ()


def _inside(r: Range) -> bool:
    low, high = int32.limits
    return low <= r[0] and r[1] <= high


@dataclass(frozen=True)
class Split:
    """uniform + lane; an absent part is zero.  Scalars are uniform only."""

    uniform: Term | None = None
    lane: Term | None = None


@dataclass(frozen=True)
class Address:
    """base + uniform + lane elements, over a tile."""

    base: Value
    offset: Split


def _arithmetic(kind: str, a: Term, b: Term, origin: Value | None = None) -> Term:
    interval = _ARITHMETIC[kind](a.interval, b.interval)
    exact = origin is not None and a.exact and b.exact
    if origin is not None and element_of(origin.type) == int32:
        exact = exact and _inside(interval)
    return Term(kind, (a, b), a.shape, interval, a.narrow and b.narrow and _inside(interval), origin, exact)


def _spread(t: Term, shape: tuple[int, ...]) -> Term:
    """A uniform term as a tile."""
    return Term("splat", (t,), shape, t.interval, t.narrow)


def _zero(shape: tuple[int, ...]) -> Term:
    return Term("zero", (), shape, (0, 0), True)


def _sum(kind: str, a: Term | None, b: Term | None, origin: Value | None = None) -> Term | None:
    """add or sub where either side may be zero."""
    if b is None:
        return a
    if a is None:
        return b if kind == "add" else _arithmetic(kind, _zero(b.shape), b)
    return _arithmetic(kind, a, b, origin)


def _whole(s: Split, shape: tuple[int, ...]) -> Term:
    """Both parts as one tile."""
    if s.uniform is None:
        return s.lane or _zero(shape)
    spread = _spread(s.uniform, shape)
    return spread if s.lane is None else _arithmetic("add", s.lane, spread)


def _product(a: Split, b: Split, shape: tuple[int, ...], origin: Value) -> Split:
    if a.lane is not None and b.lane is not None:
        pure = a.uniform is None and b.uniform is None
        return Split(None, _arithmetic("mul", _whole(a, shape), _whole(b, shape), origin if pure else None))
    if a.lane is None:
        a, b = b, a
    if b.uniform is None:
        return Split()
    uniform = None if a.uniform is None else _arithmetic("mul", a.uniform, b.uniform)
    lane = None if a.lane is None else _arithmetic("mul", a.lane, _spread(b.uniform, shape))
    return Split(uniform, lane)


class _Widening:
    def __init__(self, info: AxisInfo) -> None:
        self.info = info
        self.splits: dict[Value, Split] = {}
        self.terms: dict[Value, Term] = {}
        self.addresses: dict[Value, Address | None] = {}
        # One dict of emitted values per open region, innermost last: a value serves its region and those inside.
        self.emitted: list[dict[tuple[Term, bool], Value]] = []
        self.out: list[Op] = []
        self.loc: Location | None = None

    # -- analysis
    def leaf(self, v: Value) -> Term:
        e = element_of(v.type)
        interval = self.info.range(v) or unknown(v).range
        assert interval is not None
        return Term("leaf", (), shape_of(v.type), interval, e == int32, v, True)

    def scalar(self, v: Value) -> Term:
        """The term of a scalar integer."""
        if v not in self.terms:
            op = v.op
            if op is not None and op.kind in _ARITHMETIC and element_of(v.type) in (int32, int64):
                a, b = op.inputs
                self.terms[v] = _arithmetic(op.kind, self.scalar(a), self.scalar(b), v)
            elif _is_sign_extension(v):
                assert op is not None
                self.terms[v] = self.scalar(op.inputs[0])
            else:
                self.terms[v] = self.leaf(v)
        return self.terms[v]

    def split(self, v: Value) -> Split:
        """The two parts of an integer tile or scalar."""
        if v not in self.splits:
            self.splits[v] = self._split(v)
        return self.splits[v]

    def _split(self, v: Value) -> Split:
        op, shape = v.op, shape_of(v.type)
        if not shape:
            return Split(self.scalar(v))
        if op is None or element_of(v.type) not in (int32, int64):
            return Split(None, self.leaf(v))
        if op.kind == "splat" and _task_uniform(op.inputs[0].type):
            return Split(self.scalar(op.inputs[0]))
        if op.kind == "mul":
            return _product(self.split(op.inputs[0]), self.split(op.inputs[1]), shape, v)
        if op.kind in ("add", "sub"):
            a, b = (self.split(x) for x in op.inputs)
            pure = v if a.uniform is None and b.uniform is None else None
            return Split(_sum(op.kind, a.uniform, b.uniform), _sum(op.kind, a.lane, b.lane, pure))
        if op.kind in _RELABEL:
            s = self.split(op.inputs[0])
            return Split(
                s.uniform, None if s.lane is None else _relabelled(s.lane, op, v if s.uniform is None else None)
            )
        if _is_sign_extension(v):
            return self.split(op.inputs[0])
        return Split(None, self.leaf(v))

    def address(self, v: Value) -> Address | None:
        """Base and parts of a pointer tile, None where no scalar base is known."""
        if v not in self.addresses:
            self.addresses[v] = self._address(v)
        return self.addresses[v]

    def _address(self, v: Value) -> Address | None:
        op = v.op
        if op is None:
            return None
        if op.kind == "splat":
            return Address(op.inputs[0], Split())
        if op.kind == "addptr":
            at, by = self.address(op.inputs[0]), self.split(op.inputs[1])
            if at is None:
                return None
            both = Split(_sum("add", at.offset.uniform, by.uniform), _sum("add", at.offset.lane, by.lane))
            return Address(at.base, both)
        if op.kind in _RELABEL:
            at = self.address(op.inputs[0])
            if at is None or at.offset.lane is None:
                return at
            return Address(at.base, Split(at.offset.uniform, _relabelled(at.offset.lane, op, None)))
        return None

    # -- emission
    def op(self, kind: str, operands: list[Value], type: Type, interval: Range | None = None, **attrs: Any) -> Value:
        made = Op(kind, list(operands), (type,), attrs, None, self.loc)
        self.out.append(made)
        if interval is not None and _inside(interval):
            self.info.facts[made.result] = unknown(made.result)._replace(range=interval)
        return made.result

    def emit(self, t: Term, wide: bool) -> Value:
        """A value of the term in i64 or, where the term is narrow, i32; made before the op at hand unless it exists."""
        for scope in self.emitted:
            if (t, wide) in scope:
                return scope[t, wide]
        out = self._emit(t, wide)
        self.emitted[-1][t, wide] = out
        return out

    def _emit(self, t: Term, wide: bool) -> Value:
        e = int64 if wide else int32
        type: Type = Tensor(t.shape, e) if t.shape else Scalar(e)
        if t.origin is not None and t.exact:
            have = element_of(t.origin.type)
            if have == e:
                return t.origin
            if have != int64:
                return self.op("cast", [t.origin], type, t.interval)
        if wide and t.narrow:
            return self.op("cast", [self.emit(t, False)], type, t.interval)
        if t.kind == "zero":
            zero = self.op("constant", [], Scalar(e), (0, 0), value=0)
            return self.op("splat", [zero], type, (0, 0)) if t.shape else zero
        return self.op(t.kind, [self.emit(a, wide) for a in t.args], type, t.interval, **dict(t.attrs))

    def moved(self, base: Value, uniform: Term | None) -> Value:
        """The scalar pointer `uniform` elements further."""
        return base if uniform is None else self.op("addptr", [base, self.emit(uniform, True)], base.type)

    def lane_value(self, lane: Term) -> Value:
        return self.emit(lane, not lane.narrow)

    def tile(self, pointer: Value, lane: Value | None, type: Type) -> Value:
        """splat(pointer) + lane"""
        spread = self.op("splat", [pointer], type)
        return spread if lane is None else self.op("addptr", [spread, lane], type)

    # -- rewriting
    def region(self, region: Region) -> None:
        outer, self.out = self.out, []
        self.emitted.append({})
        for op in region.ops:
            self.loc = op.loc
            after: list[Op] = []
            if op.kind in ("for", "while"):
                after = self.carried(op)
            elif op.kind == "addptr":
                self.addptr(op)
            self.out.append(op)
            self.out += after
            for inner in op.regions:
                self.region(inner)
        self.emitted.pop()
        region.ops, self.out = self.out, outer

    def addptr(self, op: Op) -> None:
        """Rewrites one address in place: its operands become the scalar pointer and the lane part."""
        pointer, offset = op.inputs
        parts = self.split(offset)
        if not shape_of(op.result.type):
            assert parts.uniform is not None
            op.operands = [pointer, self.emit(parts.uniform, True)]
            return
        at = self.address(op.result)
        if at is None:
            whole = _whole(parts, shape_of(op.result.type))
            op.operands = [pointer, self.emit(whole, not whole.narrow)]
            return
        lane = at.offset.lane or _zero(shape_of(op.result.type))
        spread = self.tile(self.moved(at.base, at.offset.uniform), None, op.result.type)
        op.operands = [spread, self.lane_value(lane)]

    def carried(self, op: Op) -> list[Op]:
        """Carries pointer tiles that move uniformly as scalar pointers; returns what stands after the loop."""
        first = 3 if op.kind == "for" else 0
        body, after = op.regions[-1], list[Op]()
        for i, result in enumerate(op.results):
            init, arg = op.inputs[first + i], body.args[i + (1 if op.kind == "for" else 0)]
            yielded = body.terminator.inputs[i]
            if not isinstance(result.type, Tensor) or not isinstance(result.type.element, Pointer):
                continue
            at, step = self.address(init), self.step(yielded, arg)
            if at is None or step is None:
                continue
            lane = None if at.offset.lane is None else self.lane_value(at.offset.lane)
            op.operands[first + i] = self.moved(at.base, at.offset.uniform)
            self.scalar_slot(op, i, lane, step, after)
        return after

    def step(self, v: Value, arg: Value) -> list[Value] | None:
        """The offsets that lead from the argument to the yielded value, all uniform; None where it is otherwise."""
        steps: list[Value] = []
        while v is not arg:
            if v.op is None or v.op.kind != "addptr" or self.split(v.op.inputs[1]).lane is not None:
                return None
            steps.append(v.op.inputs[1])
            v = v.op.inputs[0]
        return steps[::-1]

    def scalar_slot(self, op: Op, i: int, lane: Value | None, steps: list[Value], after: list[Op]) -> None:
        """Turns carried slot i into a scalar pointer, from which the tile is made again inside and after."""
        tile = op.results[i].type
        pointer = element_of(tile)
        assert isinstance(pointer, Pointer)
        outer = self.out
        for region in op.regions:
            position = i + (1 if op.kind == "for" else 0)
            old = region.args[position]
            scalar = Value(pointer, None, old.index, old.name)
            self.out = []
            self.remember(self.remade(old, scalar, lane, tile), scalar, lane)
            region.args[position] = scalar
            moved = scalar
            if region is op.regions[-1]:
                region.ops, self.out = [*self.out, *region.ops[:-1], region.terminator], []
                moved = self.stepped(scalar, steps)
                region.ops[-1:] = [*self.out, region.terminator]
                region.terminator.operands[i] = moved
            else:
                region.ops = self.out + region.ops
        old = op.results[i]
        self.out = []
        scalar = Value(pointer, op, old.index, old.name)
        op.results[i] = scalar
        self.remember(self.remade(old, scalar, lane, tile), scalar, lane)
        after += self.out
        self.out = outer

    def remade(self, old: Value, scalar: Value, lane: Value | None, tile: Type) -> Value:
        """The tile in place of `old`, whose own object becomes the result: no use has to be touched."""
        made = self.tile(scalar, lane, tile)
        last = self.out[-1]
        last.results, old.op, old.index = [old], last, 0
        assert made.op is last
        return old

    def remember(self, tile: Value, scalar: Value, lane: Value | None) -> None:
        self.addresses[tile] = Address(scalar, Split(None, None if lane is None else self.leaf(lane)))

    def stepped(self, scalar: Value, steps: list[Value]) -> Value:
        """The scalar pointer after one iteration, made before the yield."""
        self.emitted.append({})
        for offset in steps:
            scalar = self.moved(scalar, self.split(offset).uniform)
        self.emitted.pop()
        return scalar


def _task_uniform(t: Type) -> bool:
    return isinstance(t, Scalar) and t.uniform == "task"


def _is_sign_extension(v: Value) -> bool:
    op = v.op
    return (
        op is not None
        and op.kind == "cast"
        and element_of(v.type) == int64
        and element_of(op.inputs[0].type)
        in (
            int32,
            int64,
        )
    )


def _relabelled(t: Term, op: Op, origin: Value | None) -> Term:
    shape, attrs = shape_of(op.result.type), tuple(op.attrs.items())
    return Term(op.kind, (t,), shape, t.interval, t.narrow, origin, origin is not None and t.exact, attrs)


def widen_addresses(module: Module, target: Target) -> None:
    """Rewrites every address; see the invariant of this module.  Leaves dead index arithmetic."""
    _Widening(analyse(module)).region(module.body)
