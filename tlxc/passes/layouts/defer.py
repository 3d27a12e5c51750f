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
from tlxc.ir.types import DType, Scalar, Tensor, Type, element_of, int1, int32

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
        if not _inside(made, readers):
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
    if not sums:
        return
    blocks = _blocks(module.body, {})
    for s in sums:
        layouts = {partial_layout(_layout(r.inputs[0]), r.attrs["axis"]).key: None for r in s.reduces}
        kept = {_layout(v).key for v in s.values}
        layout = canon(next(iter(layouts)))
        if len(layouts) == len(kept) == 1 and layout.shape[-1] > 1:
            _Rewrite(module, s, layout, canon, blocks).run()


def _blocks(region: Region, out: dict[Op, Region]) -> dict[Op, Region]:
    for op in region.ops:
        out[op] = region
        for r in op.regions:
            _blocks(r, out)
    return out


def _layout(v: Value) -> Layout:
    assert isinstance(v.type, Tensor) and v.type.layout is not None
    return v.type.layout


class _Rewrite:
    """One slot.  `partial` is the type of its unfinished values; new ops are made at the loop or inside it."""

    def __init__(self, module: Module, s: DeferredSum, layout: Layout, canon: Canon, blocks: dict[Op, Region]) -> None:
        self.module, self.sum, self.layout, self.canon, self.blocks = module, s, layout, canon, blocks
        self.carried = s.loop.results[s.index]
        element = element_of(self.carried.type)
        assert isinstance(element, DType)
        self.element, self.partial = element, Tensor(layout.shape, element, layout)
        self.made: list[Op] = []

    def run(self) -> None:
        loop, values = self.sum.loop, set(self.sum.values)
        position = self.sum.index + (3 if loop.kind == "for" else 0)
        start = loop.operands[position]
        assert start is not None
        loop.operands[position] = self._initial(start)
        self._place(loop)
        for op in self.sum.reduces:
            op.kind, op.attrs = "partial_reduce", {**op.attrs, "level": "thread"}
        for op in [v.op for v in self.sum.values if v.op is not None and v.op.kind == "mul"]:
            op.operands = [v if v in values or v is None else self._spread(v) for v in op.operands]
            self._place(op)
        complete = self.carried.type
        for v in (*self.sum.values, self.carried):
            v.type = self.partial
        self._finish(complete)

    def _finish(self, complete: Type) -> None:
        """The sum over lanes and warps, after the loop."""
        loop, last = self.sum.loop, len(self.layout.shape) - 1
        finished = Op("reduce", (), (complete,), {"axis": last, "combine": "sum"}, loc=self.sum.reduces[0].loc)
        finished.result.name = self.carried.name
        replace_uses(self.module.body, {self.carried: finished.result})
        finished.operands = [self.carried]
        region = self.blocks[loop]
        self.blocks[finished] = region
        region.ops.insert(region.ops.index(loop) + 1, finished)

    def _op(self, kind: str, *operands: Value, type: Type, **attrs: object) -> Value:
        self.made.append(Op(kind, operands, (type,), attrs, loc=self.sum.loop.loc))
        return self.made[-1].result

    def _place(self, anchor: Op) -> None:
        """Puts what was made in front of `anchor`."""
        region = self.blocks[anchor]
        at = region.ops.index(anchor)
        region.ops[at:at] = self.made
        self.made = []

    def _tile(self, element: DType) -> Tensor:
        return Tensor(self.layout.shape, element, self.layout)

    def _spread(self, v: Value) -> Value:
        """A complete value, repeated along the axis of partial results."""
        shape = (*self.layout.shape[:-1], 1)
        thin = Tensor(shape, self.element, self.canon(algebra.collapse(self.layout, shape)))
        return self._op("broadcast", self._op("expand_dims", v, type=thin, axis=len(shape) - 1), type=self.partial)

    def _initial(self, start: Value) -> Value:
        """Zeros; an initial value that is not zero goes to the first partial result, where scales reach it too."""
        zero = self._op("constant", type=Scalar(self.element), value=0.0 if self.element.is_float else 0)
        zeros = self._op("splat", zero, type=self.partial)
        return (
            zeros
            if _is_zero(start)
            else self._op("select", self._first(), self._spread(start), zeros, type=self.partial)
        )

    def _first(self) -> Value:
        """True in the first partial result of each element."""
        rank, count = len(self.layout.shape), self.layout.shape[-1]
        layouts = [algebra.collapse(self.layout, (*(1 for _ in range(rank - 1)), count))]
        for _ in range(rank - 1):
            layouts.append(algebra.squeeze(layouts[-1], 0))
        line = self.canon(layouts.pop())
        index = self._op("arange", type=Tensor((count,), int32, line), start=0, end=count)
        for a in reversed(layouts):
            index = self._op("expand_dims", index, type=Tensor(a.shape, int32, self.canon(a)), axis=0)
        zero = self._op("splat", self._op("constant", type=Scalar(int32), value=0), type=self._tile(int32))
        number = self._op("broadcast", index, type=self._tile(int32))
        return self._op("cmp", number, zero, type=self._tile(int1), pred="eq")


def _is_zero(v: Value) -> bool:
    """Whether a tile is a splat of the constant 0."""
    scalar = v.op.inputs[0].op if v.op is not None and v.op.kind == "splat" else None
    return scalar is not None and scalar.kind == "constant" and scalar.attrs["value"] == 0
