"""Deferred sums: `acc = scale * acc + sum(x, axis)` carried by a loop stays per thread in the loop.

Lanes and warps are then summed once, after the loop.  This reorders additions, so it is off where a module asks for
`ordered_sums`.  It must be known before layouts are chosen: it removes the reason to keep warps off the reduced axis.

In the loop an unfinished value has a last axis more, which counts the threads that hold different parts of one element.
Only additions of such sums, products, results of `if` and the loop itself may read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tlxc.ir import layout as algebra
from tlxc.ir.core import Module, Op, Region, Value, replace_uses
from tlxc.ir.f2 import Solver, intersect
from tlxc.ir.layout import Layout, make
from tlxc.ir.types import Scalar, Tensor, element_of, int1, int32, shape_of

Canon = Callable[[Layout], Layout]


@dataclass(eq=False)
class DeferredSum:
    """Slot `index` of `loop`; `values` are the unfinished values inside it, `reduces` the sums that feed it."""

    loop: Op
    index: int
    values: list[Value]
    reduces: list[Op]


# ------------------------------------------------------------------------------------------------ finding
def find_sums(module: Module) -> list[DeferredSum]:
    """All deferrable slots, in program order."""
    if module.attrs.get("ordered_sums"):
        return []
    out = []
    for op in module.walk():
        if op.kind in ("for", "while"):
            readers = _readers(op)
            found = (_slot(op, i, readers) for i, v in enumerate(op.results) if isinstance(v.type, Tensor))
            out += [s for s in found if s is not None]
    return out


Readers = dict[Value, list[tuple[Op, Op, int]]]


def _readers(loop: Op) -> Readers:
    """Per value, (op, owner of its region, operand position) of the uses inside the loop."""
    out: Readers = {}

    def note(region: Region, owner: Op) -> None:
        for op in region.ops:
            for i, v in enumerate(op.operands):
                if v is not None:
                    out.setdefault(v, []).append((op, owner, i))
            for r in op.regions:
                note(r, op)

    for r in loop.regions:
        note(r, loop)
    return out


def _slot(loop: Op, index: int, readers: Readers) -> DeferredSum | None:
    """A closed walk from the argument over everything that reads the unfinished value."""
    body = loop.regions[-1]
    arg = body.args[index + 1 if loop.kind == "for" else index]
    if loop.kind == "while" and readers.get(loop.regions[0].args[index]):
        return None
    values, reduces, work = {arg: None}, dict[Op, None](), [arg]
    while work:
        for op, owner, position in readers.get(work.pop(), ()):
            if op.kind == "yield" and owner is loop and position == index and op is body.terminator:
                continue
            out = _step(op, owner, position, values, reduces, readers)
            if out is None:
                return None
            if out not in values:
                values[out] = None
                work.append(out)
    if not reduces or body.terminator.inputs[index] not in values or not _branches_agree(values):
        return None
    if loop.kind == "while":
        values[loop.regions[0].args[index]] = None
    return DeferredSum(loop, index, [*values, *(r.result for r in reduces)], list(reduces))


def _step(
    op: Op, owner: Op, position: int, values: dict[Value, None], reduces: dict[Op, None], readers: Readers
) -> Value | None:
    """The unfinished value that an op makes of one; None if the op needs a finished one."""
    if op.kind == "yield":
        return owner.results[position] if owner.kind == "if" else None
    others = [v for v in op.inputs if v not in values]
    if op.kind == "mul":
        return op.result if len(others) == 1 else None
    if op.kind != "add" or len(others) > 1:
        return None
    for v in others:
        made = v.op
        if made is None or made.kind != "reduce" or made.attrs["combine"] != "sum" or len(readers[v]) > 1:
            return None
        if not all(x in readers for x in made.inputs) or not _inside(made, readers):
            return None
        reduces[made] = None
    return op.result


def _inside(op: Op, readers: Readers) -> bool:
    """Whether an op stands in the loop that `readers` describes."""
    return any(reader is op for v in op.inputs for reader, _, _ in readers.get(v, ()))


def _branches_agree(values: dict[Value, None]) -> bool:
    """An `if` hands out an unfinished value from both sides, or from none."""
    return all(
        r.terminator.inputs[v.index] in values
        for v in values
        if v.op is not None and v.op.kind == "if"
        for r in v.op.regions
    )


# ------------------------------------------------------------------------------------------------ layouts
def partial_layout(a: Layout, axis: int) -> Layout:
    """Layout of a sum over `axis` that is complete in each thread only: a last axis counts the partial results.

    Partial results differ by the coordinates along `axis` that registers alone do not span; these become the last axis.
    """
    s, n = a.shifts[axis], a.bits[axis]
    inside = intersect(a.reg, [1 << (s + i) for i in range(n)])  # summed by the thread itself
    solver = Solver([v >> s for v in inside] + [1 << i for i in range(n)])
    units = [i for i in range(n) if not solver.redundant >> (len(inside) + i) & 1]

    def part(v: int) -> int:
        """Coordinate along the last axis."""
        code = solver.solve(v >> s & ((1 << n) - 1))
        assert code is not None, "unit vectors span the axis"
        return sum((code >> (len(inside) + i) & 1) << j for j, i in enumerate(units))

    def move(v: int) -> int:
        high, low = v >> (s + n), v & ((1 << s) - 1)
        return (high << s | low) << len(units) | part(v)

    bits, reps = list(a.bits), list(a.reps)
    del bits[axis], reps[axis]
    return make([(d, [move(b) for b in bs]) for d, bs in a.ins], [*bits, len(units)], [*reps, 1])


# ------------------------------------------------------------------------------------------------ rewriting
def finish_after_loops(module: Module, sums: list[DeferredSum], canon: Canon) -> None:
    """Rewrites typed IR so that the loops carry partial results.  A slot whose values did not end in one layout, or
    whose axes lie inside threads anyway, keeps its complete sums."""
    for s in sums:
        layouts = {partial_layout(_layout(r.inputs[0]), r.attrs["axis"]).key for r in s.reduces}
        kept = {_layout(v).key for v in s.values}
        layout = canon(layouts.pop())
        if not layouts and len(kept) == 1 and layout.shape[-1] > 1 and _no_conversion(s):
            _rewrite(module, s, layout, canon)


def _layout(v: Value) -> Layout:
    assert isinstance(v.type, Tensor) and v.type.layout is not None
    return v.type.layout


def _no_conversion(s: DeferredSum) -> bool:
    values = set(s.values)
    read = [v for r in s.loop.regions for op in r.walk() if op.kind == "convert_layout" for v in op.inputs]
    return not any(v in values for v in read)


def _rewrite(module: Module, s: DeferredSum, layout: Layout, canon: Canon) -> None:
    carried = s.loop.results[s.index]
    element, complete = element_of(carried.type), carried.type
    partial = Tensor(layout.shape, element, layout)
    values = set(s.values)
    position = s.index + (3 if s.loop.kind == "for" else 0)
    start = s.loop.operands[position]
    assert start is not None
    before, after = _Inserter(module, s.loop), list[Op]()
    s.loop.operands[position] = _initial(start, partial, before, canon)
    before.flush()
    for r in s.reduces:
        r.kind, r.attrs = "partial_reduce", {**r.attrs, "level": "thread"}
    products = [v.op for v in s.values if v.op is not None and v.op.kind == "mul"]
    for op in products:
        scale = _Inserter(module, op)
        op.operands = [v if v in values or v is None else _spread(v, partial, scale, canon) for v in op.operands]
        scale.flush()
    for v in (*s.values, carried):
        v.type = partial
    reduce = Op("reduce", (), (complete,), {"axis": len(partial.shape) - 1, "combine": "sum"}, loc=s.reduces[0].loc)
    reduce.result.name = carried.name
    replace_uses(module.body, {carried: reduce.result})
    reduce.operands = [carried]
    after.append(reduce)
    region = before.region
    place = region.ops.index(s.loop) + 1
    region.ops[place:place] = after


class _Inserter:
    """Collects ops that go in front of another op."""

    def __init__(self, module: Module, anchor: Op) -> None:
        self.anchor, self.made = anchor, list[Op]()
        self.region = _region_of(module.body, anchor)

    def op(self, kind: str, *operands: Value, type: Tensor | Scalar, **attrs: object) -> Value:
        made = Op(kind, operands, (type,), attrs, loc=self.anchor.loc)
        self.made.append(made)
        return made.result

    def flush(self) -> None:
        place = self.region.ops.index(self.anchor)
        self.region.ops[place:place] = self.made


def _region_of(region: Region, op: Op) -> Region:
    if op in region.ops:
        return region
    return next(r for o in region.ops for inner in o.regions for r in [_find(inner, op)] if r is not None)


def _find(region: Region, op: Op) -> Region | None:
    if op in region.ops:
        return region
    return next((r for o in region.ops for inner in o.regions if (r := _find(inner, op)) is not None), None)


def _spread(v: Value, partial: Tensor, at: _Inserter, canon: Canon) -> Value:
    """A complete value, repeated along the axis of partial results."""
    assert partial.layout is not None
    thin = (*partial.shape[:-1], 1)
    column = Tensor(thin, element_of(v.type), canon(algebra.collapse(partial.layout, thin)))
    expanded = at.op("expand_dims", v, type=column, axis=len(thin) - 1)
    return at.op("broadcast", expanded, type=Tensor(partial.shape, column.element, partial.layout))


def _initial(start: Value, partial: Tensor, at: _Inserter, canon: Canon) -> Value:
    """Zeros; an initial value that is not zero goes to the first partial result, where scales reach it too."""
    element = partial.element
    dtype = Scalar(element)  # type: ignore[arg-type]
    zeros = at.op("splat", at.op("constant", type=dtype, value=0.0 if element.is_float else 0), type=partial)  # type: ignore[union-attr]
    made = start.op
    if made is not None and made.kind == "splat":
        scalar = made.inputs[0].op
        if scalar is not None and scalar.kind == "constant" and scalar.attrs["value"] == 0:
            return zeros
    assert partial.layout is not None
    count = partial.shape[-1]
    line = partial.layout
    for _ in partial.shape[:-1]:
        line = algebra.slice_(line, 0)
    index = at.op("arange", type=Tensor((count,), int32, canon(line)), start=0, end=count)
    for axis in range(len(partial.shape) - 1):
        shape = (*(1 for _ in range(axis + 1)), count)
        layout = canon(algebra.collapse(partial.layout, (*(1 for _ in partial.shape[:-1]), count)))
        for _ in range(len(partial.shape) - len(shape)):
            layout = algebra.squeeze(layout, 0)
        index = at.op("expand_dims", index, type=Tensor(shape, int32, canon(layout)), axis=0)
    tile = Tensor(partial.shape, int32, partial.layout)
    none = at.op("splat", at.op("constant", type=Scalar(int32), value=0), type=tile)
    first = at.op(
        "cmp", at.op("broadcast", index, type=tile), none, type=Tensor(partial.shape, int1, partial.layout), pred="eq"
    )
    return at.op("select", first, _spread(start, partial, at, canon), zeros, type=partial)


__all__ = ["DeferredSum", "find_sums", "finish_after_loops", "partial_layout", "shape_of"]
