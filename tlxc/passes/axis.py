"""Axis analysis: what is known about integers and addresses along each dimension of a tile.

One forward dataflow over the module, from optimistic facts at loop entries down to a fixpoint.  Per value and
dimension:

    contiguity    elements come in aligned groups of this length, each step adding one (one element for pointers)
    divisibility  power of two that divides the first element of each such group (of the byte address for pointers)
    constancy     elements come in aligned groups of this length that are all equal

All three are powers of two; groups never straddle the extent, so an extent of 80 has groups of at most 16.  Scalars
count as tiles of one element.  Steps are modulo the width of the type: a group may wrap unless its divisibility reaches
its length; `aligned` is the part of a group that provably does not.

A range is an interval of exact values.  It is None where arithmetic may have left the type, so a range that is not None
says also that the last operation was exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import DType, Pointer, Scalar, element_of, shape_of

DIVISIBILITY_CAP = 1 << 30  # of zero, and of anything more divisible
GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CTAs along each axis of a grid
MAX_CLUSTER = 16  # CTAs of a cluster, on any card
MAX_COPIES = 16  # of one task: a CTA has at most 32 warps, and copies of one region have 4 or more

Range = tuple[int, int]


def power_of_two(n: int) -> int:
    """Largest power of two that divides n, at most `DIVISIBILITY_CAP`."""
    return min(n & -n, DIVISIBILITY_CAP) if n else DIVISIBILITY_CAP


class Dim(NamedTuple):
    """Facts along one dimension; the default claims nothing."""

    contiguity: int = 1
    divisibility: int = 1
    constancy: int = 1

    def at(self, step: int, unit: int = 1) -> int:
        """Divisor of the elements whose index is a multiple of `step`; `unit` is what one step of a group adds."""
        return self.divisibility if step >= self.contiguity else min(self.divisibility, step * unit)

    @property
    def aligned(self) -> int:
        """Length of the groups of integers that start at a multiple of their length."""
        return min(self.contiguity, self.divisibility)


class Facts(NamedTuple):
    """Everything known of one value; `unit` is what one contiguous step adds (bytes of the element for pointers)."""

    dims: tuple[Dim, ...]
    range: Range | None = None
    unit: int = 1

    def everywhere(self) -> int:
        """Power of two that divides every element."""
        return max(d.at(1, self.unit) for d in self.dims)


class AxisInfo:
    """The result of `analyse`; values it has not seen have the facts of their type alone."""

    def __init__(self) -> None:
        self.facts: dict[Value, Facts] = {}

    def of(self, v: Value) -> Facts:
        found = self.facts.get(v)
        return unknown(v) if found is None else found

    def contiguity(self, v: Value, dim: int = 0) -> int:
        return self.of(v).dims[dim].contiguity

    def divisibility(self, v: Value, dim: int = 0) -> int:
        return self.of(v).dims[dim].divisibility

    def constancy(self, v: Value, dim: int = 0) -> int:
        return self.of(v).dims[dim].constancy

    def order(self, v: Value) -> tuple[int, ...]:
        """Dimensions, fastest first: by contiguity, equal ones the last first."""
        dims = self.of(v).dims
        return tuple(sorted(reversed(range(len(shape_of(v.type)))), key=lambda d: -dims[d].contiguity))

    def range(self, v: Value) -> Range | None:
        """Smallest and largest value, both possible bounds; None for floats, pointers and what may have overflowed."""
        return self.of(v).range

    def constant(self, v: Value) -> int | None:
        """The integer that every element is, where it is known."""
        r = self.of(v).range
        return r[0] if r and r[0] == r[1] else None


def unknown(v: Value) -> Facts:
    """What the type alone says: integers lie in the range of their dtype, addresses are aligned to nothing."""
    e = element_of(v.type)
    rank = max(1, len(shape_of(v.type)))
    if isinstance(e, Pointer):
        return Facts((Dim(),) * rank, None, e.dtype.bytes)
    return Facts((Dim(),) * rank, None if e.is_float else e.limits)


def _interval(f: Facts, v: Value) -> Range:
    """Bounds of an integer value, those of the dtype where nothing better is known."""
    if f.range is not None:
        return f.range
    e = element_of(v.type)
    return e.limits if isinstance(e, DType) and not e.is_float else (0, 0)


def _fit(lo: int, hi: int, e: DType) -> Range | None:
    """The interval, or None where the dtype cannot hold all of it."""
    low, high = e.limits
    return (lo, hi) if low <= lo and hi <= high else None


def _extents(v: Value) -> tuple[int, ...]:
    """Longest groups that the shape admits: the power of two in each extent."""
    return tuple(power_of_two(n) for n in shape_of(v.type)) or (1,)


def _settle(v: Value, f: Facts) -> Facts:
    """An interval of one value says everything there is to say."""
    if f.range is None or f.range[0] != f.range[1] or isinstance(element_of(v.type), Pointer):
        return f
    p = power_of_two(f.range[0])
    return Facts(tuple(Dim(1, p, n) for n in _extents(v)), f.range)


def merge(a: Facts, b: Facts, v: Value) -> Facts:
    """What holds of a value that is either of two."""
    dims = []
    for x, y in zip(a.dims, b.dims):
        c = min(x.contiguity, y.contiguity)
        dims.append(Dim(c, min(x.at(c, a.unit), y.at(c, b.unit)), min(x.constancy, y.constancy)))
    e = element_of(v.type)
    if isinstance(e, Pointer) or e.is_float:
        return Facts(tuple(dims), None, a.unit)
    (alo, ahi), (blo, bhi) = _interval(a, v), _interval(b, v)
    return Facts(tuple(dims), (min(alo, blo), max(ahi, bhi)), a.unit)


# ------------------------------------------------------------------------------------------------ dimensions
class Binary(NamedTuple):
    """One dimension of a binary integer op: facts and intervals of both operands."""

    a: Dim
    b: Dim
    ra: Range
    rb: Range

    @property
    def constant(self) -> int | None:
        """The second operand where it is one known number."""
        return self.rb[0] if self.rb[0] == self.rb[1] else None

    @property
    def equal(self) -> int:
        return min(self.a.constancy, self.b.constancy)

    @property
    def tied(self) -> int:
        """Groups in which a counts up from a multiple of the length and b is one multiple of it."""
        return min(self.a.aligned, self.b.constancy, self.b.at(1))

    def swapped(self) -> Binary:
        return Binary(self.b, self.a, self.rb, self.ra)


def _add(x: Binary) -> Dim:
    c = max(min(x.a.contiguity, x.b.constancy), min(x.a.constancy, x.b.contiguity))
    return Dim(c, min(x.a.at(c), x.b.at(c)), x.equal)


def _sub(x: Binary) -> Dim:
    c = min(x.a.contiguity, x.b.constancy)
    return Dim(c, min(x.a.at(c), x.b.at(c)), max(x.equal, min(x.a.contiguity, x.b.contiguity)))


def _mul(x: Binary) -> Dim:
    for y in (x, x.swapped()):
        if y.constant == 1:
            return y.a
    return Dim(1, min(DIVISIBILITY_CAP, x.a.at(1) * x.b.at(1)), x.equal)


def _idiv(x: Binary) -> Dim:
    if x.constant == 1:
        return x.a
    # Truncation makes the group below zero one shorter than the others, so only natural numbers stay in step.
    same = x.tied if x.ra[0] >= 0 else 1
    exact = x.constant is not None and x.constant == power_of_two(x.constant)
    return Dim(1, max(1, x.a.at(1) // x.constant) if exact and x.constant else 1, max(x.equal, same))


def _rem(x: Binary) -> Dim:
    c = x.tied if x.ra[0] >= 0 else 1
    return Dim(c, min(x.a.at(c), x.b.at(c)), x.equal)


def _and(x: Binary) -> Dim:
    c, same = 1, x.equal
    for y in (x, x.swapped()):
        same = max(same, y.tied)  # the mask drops the bits that count
        if y.constant is not None:  # or keeps just them
            c = max(c, min(y.a.aligned, power_of_two(y.constant + 1)))
    return Dim(c, max(x.a.at(c), x.b.at(c)), same)


def _or(x: Binary) -> Dim:
    c = max(x.tied, x.swapped().tied)
    return Dim(c, min(x.a.at(c), x.b.at(c)), x.equal)


def _shl(x: Binary) -> Dim:
    if x.constant == 0:
        return x.a
    return Dim(1, min(DIVISIBILITY_CAP, x.a.at(1) << max(0, min(64, x.rb[0]))), x.equal)


def _shr(x: Binary) -> Dim:
    if x.constant == 0:
        return x.a
    if x.constant is None or not 0 < x.constant < 64:
        return Dim(1, 1, x.equal)
    step = 1 << x.constant
    return Dim(1, max(1, x.a.at(1) // step), max(x.equal, min(x.a.aligned, step)))


def _extreme(x: Binary) -> Dim:
    """min or max: two operands that count in step keep their order."""
    c = min(x.a.aligned, x.b.aligned)
    return Dim(c, min(x.a.at(c), x.b.at(c)), x.equal)


def _min(x: Binary) -> Dim:
    return x.a if x.ra[1] <= x.rb[0] else x.b if x.rb[1] <= x.ra[0] else _extreme(x)


def _max(x: Binary) -> Dim:
    return x.a if x.ra[0] >= x.rb[1] else x.b if x.rb[0] >= x.ra[1] else _extreme(x)


_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _cmp(pred: str, x: Binary) -> Dim:
    """`a < b` and `a >= b` do not change while a counts between multiples of what b is a multiple of."""
    same = x.equal
    for y, p in ((x, pred), (x.swapped(), _MIRRORED[pred])):
        if p in ("lt", "ge"):
            same = max(same, y.tied)
        elif p in ("le", "gt") and y.constant is not None:  # a <= c is a < c + 1
            same = max(same, min(y.a.aligned, power_of_two(y.constant + 1)))
    both = min(x.a.contiguity, x.b.contiguity) if pred in ("eq", "ne") else min(x.a.aligned, x.b.aligned)
    return Dim(1, 1, max(same, both))


# ------------------------------------------------------------------------------------------------ intervals
def _corners(f: Callable[[int, int], int], a: Range, b: Range) -> Range:
    values = [f(x, y) for x in a for y in b]
    return min(values), max(values)


def truncated(a: int, b: int) -> int:
    """Quotient rounded toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _idiv_range(a: Range, b: Range) -> Range | None:
    """Division by zero is undefined, so a bound of zero moves inward."""
    lo, hi = b[0] or 1, b[1] or -1
    if lo > hi:
        return None
    if lo < 0 < hi:
        most = max(abs(a[0]), abs(a[1]))
        return -most, most
    return _corners(truncated, a, (lo, hi))


def _rem_range(a: Range, b: Range) -> Range | None:
    most = max(abs(b[0]), abs(b[1])) - 1
    return None if most < 0 else (-min(most, max(0, -a[0])), min(most, max(0, a[1])))


def _and_range(a: Range, b: Range) -> Range | None:
    natural = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(natural)) if natural else None


def _or_range(a: Range, b: Range) -> Range | None:
    return (0, (1 << max(a[1], b[1]).bit_length()) - 1) if a[0] >= 0 and b[0] >= 0 else None


def _shift_range(f: Callable[[int, int], int]) -> Callable[[Range, Range], Range | None]:
    def rule(a: Range, b: Range) -> Range | None:
        return _corners(f, a, b) if b[0] >= 0 and b[1] < 64 else None

    return rule


_CLOSED = ("and", "or", "xor", "rem", "shr")  # never leave the dtype: without an interval, that of the dtype
_BINARY: dict[str, tuple[Callable[[Binary], Dim], Callable[[Range, Range], Range | None]]] = {
    "add": (_add, lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "sub": (_sub, lambda a, b: (a[0] - b[1], a[1] - b[0])),
    "mul": (_mul, lambda a, b: _corners(lambda x, y: x * y, a, b)),
    "idiv": (_idiv, _idiv_range),
    "rem": (_rem, _rem_range),
    "and": (_and, _and_range),
    "or": (_or, _or_range),
    "xor": (_or, _or_range),
    "shl": (_shl, _shift_range(lambda x, y: x << y)),
    "shr": (_shr, _shift_range(lambda x, y: x >> y)),
    "min": (_min, lambda a, b: (min(a[0], b[0]), min(a[1], b[1]))),
    "max": (_max, lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
}


def _cmp_range(pred: str, a: Range, b: Range) -> Range:
    """(1, 1) where the comparison always holds, (0, 0) where it never does."""
    below, above = a[1] < b[0], a[0] > b[1]
    at_most, at_least = a[1] <= b[0], a[0] >= b[1]
    one = a[0] == a[1] == b[0] == b[1]
    apart = below or above
    table = {"lt": (below, at_least), "ge": (at_least, below), "le": (at_most, above), "gt": (above, at_most),
             "eq": (one, apart), "ne": (apart, one)}  # fmt: skip
    always, never = table[pred]
    return (1, 1) if always else (0, 0) if never else (0, 1)


# ------------------------------------------------------------------------------------------------ ops
Rule = Callable[[Op, "list[Facts]"], Facts]


def _equal_only(op: Op, facts: list[Facts]) -> Facts:
    """Any elementwise op: equal operands give equal results."""
    f = unknown(op.result)
    return f._replace(dims=tuple(Dim(1, 1, min(d.constancy for d in ds)) for ds in zip(*(g.dims for g in facts))))


def _binary(op: Op, facts: list[Facts]) -> Facts:
    e = element_of(op.result.type)
    if not isinstance(e, DType) or e.is_float:
        return _equal_only(op, facts)
    dim_rule, range_rule = _BINARY[op.kind]
    (a, b), (ra, rb) = facts, (_interval(f, v) for f, v in zip(facts, op.inputs))
    r = range_rule(ra, rb)
    fitted = _fit(*r, e) if r else None
    if fitted is None and op.kind in _CLOSED:
        fitted = e.limits
    return Facts(tuple(dim_rule(Binary(x, y, ra, rb)) for x, y in zip(a.dims, b.dims)), fitted)


def _compare(op: Op, facts: list[Facts]) -> Facts:
    e = element_of(op.inputs[0].type)
    if not isinstance(e, DType) or e.is_float:
        return _equal_only(op, facts)
    (a, b), (ra, rb) = facts, (_interval(f, v) for f, v in zip(facts, op.inputs))
    dims = tuple(_cmp(op.attrs["pred"], Binary(x, y, ra, rb)) for x, y in zip(a.dims, b.dims))
    return Facts(dims, _cmp_range(op.attrs["pred"], ra, rb))


def _constant(op: Op, facts: list[Facts]) -> Facts:
    value = op.attrs["value"]
    return unknown(op.result) if isinstance(value, float) else Facts((Dim(),), (int(value), int(value)))


def _arange(op: Op, facts: list[Facts]) -> Facts:
    start, end = op.attrs["start"], op.attrs["end"]
    (group,) = _extents(op.result)
    whole = group == end - start
    return Facts((Dim(group, power_of_two(start) if whole else min(group, power_of_two(start)), 1),), (start, end - 1))


def _program_id(op: Op, facts: list[Facts]) -> Facts:
    return Facts((Dim(),), (0, GRID_LIMITS[op.attrs["axis"]] - 1))


def _task_copy(op: Op, facts: list[Facts]) -> Facts:
    return Facts((Dim(),), (0, MAX_COPIES - 1))


def _in_cluster(op: Op, facts: list[Facts]) -> Facts:
    size = op.kind == "cluster_size"
    return Facts((Dim(),), (int(size), MAX_CLUSTER - (not size)))


def _num_programs(op: Op, facts: list[Facts]) -> Facts:
    return Facts((Dim(),), (1, GRID_LIMITS[op.attrs["axis"]]))


def _unary_range(op: Op, facts: list[Facts]) -> tuple[DType, Range] | None:
    e = element_of(op.result.type)
    return (e, _interval(facts[0], op.inputs[0])) if isinstance(e, DType) and not e.is_float else None


def _neg(op: Op, facts: list[Facts]) -> Facts:
    known = _unary_range(op, facts)
    if known is None:
        return _equal_only(op, facts)
    e, (lo, hi) = known
    return Facts(tuple(Dim(1, d.at(1), d.constancy) for d in facts[0].dims), _fit(-hi, -lo, e))


def _abs(op: Op, facts: list[Facts]) -> Facts:
    known = _unary_range(op, facts)
    if known is None:
        return _equal_only(op, facts)
    e, (lo, hi) = known
    if lo >= 0:
        return facts[0]
    return Facts(tuple(Dim(1, d.at(1), d.constancy) for d in facts[0].dims), _fit(max(0, -hi), max(-lo, hi), e))


def _select(op: Op, facts: list[Facts]) -> Facts:
    c, a, b = facts
    if c.range in ((0, 0), (1, 1)):
        return a if c.range == (1, 1) else b
    both = merge(a, b, op.result)
    dims = []
    for cond, x, y, m in zip(c.dims, a.dims, b.dims, both.dims):
        group = min(cond.constancy, m.contiguity)
        dims.append(Dim(group, min(x.at(group, a.unit), y.at(group, b.unit)), min(cond.constancy, m.constancy)))
    return both._replace(dims=tuple(dims))


def _cast(op: Op, facts: list[Facts]) -> Facts:
    src, dst = (element_of(v.type) for v in (op.inputs[0], op.result))
    if not isinstance(src, DType) or not isinstance(dst, DType) or src.is_float or dst.is_float or dst.kind == "bool":
        return _equal_only(op, facts)
    (f,) = facts
    fitted = _fit(*_interval(f, op.inputs[0]), dst)
    return Facts(f.dims if dst.bits <= src.bits else _widened(f, src), fitted)


def _widened(f: Facts, e: DType) -> tuple[Dim, ...]:
    """Dimensions after an integer becomes wider: a group that may wrap is cut where it cannot."""
    if f.range is not None and f.range != e.limits:  # to wrap, a group has to hold both limits
        return f.dims
    return tuple(Dim(d.aligned, d.at(d.aligned), d.constancy) for d in f.dims)


def _addptr(op: Op, facts: list[Facts]) -> Facts:
    p, offset = facts
    e = element_of(op.inputs[1].type)
    assert isinstance(e, DType)
    dims = []
    for x, y in zip(p.dims, _widened(offset, e)):
        c = max(min(x.contiguity, y.constancy), min(x.constancy, y.contiguity))
        dims.append(Dim(c, min(DIVISIBILITY_CAP, x.at(c, p.unit), y.at(c) * p.unit), min(x.constancy, y.constancy)))
    return Facts(tuple(dims), None, p.unit)


def _splat(op: Op, facts: list[Facts]) -> Facts:
    (f,), t = facts, op.inputs[0].type
    if isinstance(t, Scalar) and t.uniform != "task":
        return unknown(op.result)._replace(range=f.range)  # each thread has a number of its own
    return f._replace(dims=tuple(Dim(1, f.dims[0].divisibility, n) for n in _extents(op.result)))


def _expand_dims(op: Op, facts: list[Facts]) -> Facts:
    (f,) = facts
    axis = op.attrs["axis"]
    return f._replace(dims=f.dims[:axis] + (Dim(1, f.everywhere(), 1),) + f.dims[axis:])


def _broadcast(op: Op, facts: list[Facts]) -> Facts:
    (f,) = facts
    shapes = zip(f.dims, shape_of(op.inputs[0].type), _extents(op.result))
    return f._replace(dims=tuple(d._replace(constancy=n) if s == 1 else d for d, s, n in shapes))


def _reshape(op: Op, facts: list[Facts]) -> Facts:
    """A result dimension knows what the operand's dimension of the same row-major stride knew."""
    (f,) = facts
    source, target = shape_of(op.inputs[0].type), shape_of(op.result.type)
    constant = all(d.constancy == n for d, n in zip(f.dims, source))
    by_stride: dict[int, int] = {}
    stride = 1
    for d in reversed(range(len(source))):
        if source[d] > 1:
            by_stride[stride] = d
        stride *= source[d]
    dims, stride = [], 1
    for n in reversed(target):
        same = by_stride.get(stride)
        if constant or same is None:
            dims.append(Dim(1, f.everywhere(), power_of_two(n) if constant else 1))
        else:
            known, c = f.dims[same], min(f.dims[same].contiguity, power_of_two(n))
            dims.append(Dim(c, known.at(c, f.unit), min(known.constancy, power_of_two(n))))
        stride *= n
    return f._replace(dims=tuple(reversed(dims)))


def _permute(op: Op, facts: list[Facts]) -> Facts:
    return facts[0]._replace(dims=tuple(facts[0].dims[d] for d in op.attrs["order"]))


def _join(op: Op, facts: list[Facts]) -> Facts:
    a, b = facts
    both = merge(a, b, op.inputs[0])
    same = 2 if op.inputs[0] is op.inputs[1] else 1
    return both._replace(dims=(*both.dims, Dim(1, min(a.everywhere(), b.everywhere()), same)))


def _same(op: Op, facts: list[Facts]) -> Facts:
    return facts[0]


def _reduce(op: Op, facts: list[Facts]) -> Facts:
    f, known = unknown(op.result), _unary_range(op, facts)
    if known is None:
        return f
    e, (lo, hi) = known
    n = shape_of(op.inputs[0].type)[op.attrs["axis"]] if op.attrs["combine"] == "sum" else 1
    return f._replace(range=_fit(lo * n, hi * n, e))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("div", "exp2", "log2", "sqrt", "rsqrt", "bitcast"), _equal_only),
    **dict.fromkeys(("convert_layout", "require_layout"), _same),
    "constant": _constant,
    "arange": _arange,
    "program_id": _program_id,
    "num_programs": _num_programs,
    "task_copy": _task_copy,
    **dict.fromkeys(("cluster_rank", "cluster_size"), _in_cluster),
    "neg": _neg,
    "abs": _abs,
    "cmp": _compare,
    "select": _select,
    "cast": _cast,
    "addptr": _addptr,
    "splat": _splat,
    "expand_dims": _expand_dims,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "permute": _permute,
    "join": _join,
    "reduce": _reduce,
}


# ------------------------------------------------------------------------------------------------ control flow
def analyse(module: Module) -> AxisInfo:
    """Facts of every integer, bool and pointer value of the module, before or after layouts are chosen."""
    info = AxisInfo()
    for p in module.params:
        e, f = element_of(p.type), unknown(p.value)
        known = max(p.align, e.dtype.bytes) if isinstance(e, Pointer) else p.divisible
        info.facts[p.value] = f._replace(dims=(Dim(1, power_of_two(known), 1),))
    _region(module.body, info)
    return info


def _region(region: Region, info: AxisInfo) -> None:
    for op in region.ops:
        if op.kind in _STRUCTURED:
            _STRUCTURED[op.kind](op, info)
        elif op.kind == "split":
            f = info.of(op.inputs[0])
            for v in op.results:
                info.facts[v] = f._replace(dims=f.dims[:-1] or (Dim(1, f.everywhere(), 1),))
        elif op.kind in _RULES:
            info.facts[op.result] = _settle(op.result, _RULES[op.kind](op, [info.of(v) for v in op.inputs]))


def _widen(old: Facts, new: Facts, v: Value) -> Facts:
    """An interval that still grows in a loop becomes that of the dtype, so that the fixpoint is reached."""
    return new if old.range == new.range else new._replace(range=unknown(v).range)


def _fixpoint(
    inits: list[Value], args: list[list[Value]], run: Callable[[], list[Value]], info: AxisInfo
) -> list[Facts]:
    """Facts of carried values: true of the initial values and kept by the body; `args` has one list per region."""
    state = [info.of(v) for v in inits]
    while True:
        for group in args:
            info.facts.update(zip(group, state))
        yields = run()
        after = [_widen(s, merge(s, info.of(y), v), v) for s, y, v in zip(state, yields, inits)]
        if after == state:
            return state
        state = after


def _induction(op: Op, info: AxisInfo) -> Facts:
    lo, hi, step = op.inputs[:3]
    (first, _), (_, last) = _interval(info.of(lo), lo), _interval(info.of(hi), hi)
    if op.attrs.get("descending"):
        first, last = _interval(info.of(hi), hi)[0] + 1, _interval(info.of(lo), lo)[1] + 1
    divides = min(info.divisibility(lo), info.divisibility(step))
    return Facts((Dim(1, divides, 1),), (first, max(first, last - 1)))


def _for(op: Op, info: AxisInfo) -> None:
    body = op.regions[0]
    info.facts[body.args[0]] = _settle(body.args[0], _induction(op, info))

    def run() -> list[Value]:
        _region(body, info)
        return body.terminator.inputs

    info.facts.update(zip(op.results, _fixpoint(op.inputs[3:], [body.args[1:]], run, info)))


def _while(op: Op, info: AxisInfo) -> None:
    cond, body = op.regions

    def run() -> list[Value]:
        _region(cond, info)
        _region(body, info)
        return body.terminator.inputs

    info.facts.update(zip(op.results, _fixpoint(op.inputs, [cond.args, body.args], run, info)))


def _if(op: Op, info: AxisInfo) -> None:
    then, other = op.regions
    _region(then, info)
    _region(other, info)
    taken = info.range(op.inputs[0])
    for v, a, b in zip(op.results, then.terminator.inputs, other.terminator.inputs):
        if taken in ((0, 0), (1, 1)):
            info.facts[v] = info.of(a if taken == (1, 1) else b)
        else:
            info.facts[v] = merge(info.of(a), info.of(b), v)


def _tasks(op: Op, info: AxisInfo) -> None:
    for region in op.regions:
        _region(region, info)


_STRUCTURED: dict[str, Callable[[Op, AxisInfo], None]] = {
    "for": _for,
    "while": _while,
    "if": _if,
    "async_tasks": _tasks,
}
