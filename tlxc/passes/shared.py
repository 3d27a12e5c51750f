"""Trips through shared memory, made explicit.

Invariant after the pass: every conversion left stays inside warps, no reduction crosses warps except as partial
results that a conversion gathers, and wgmma reads its operands from swizzled buffers behind a proxy fence.  Buffers
have layouts but no offsets yet, and no barrier is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tlxc.errors import InternalError, Location
from tlxc.ir.conversion import SHARED, classify, live_warps, scratch, scratch_memory
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.f2 import Solver, intersect
from tlxc.ir.layout import Layout, make
from tlxc.ir.memory import Memory, row_major, shared_access, widest_swizzle
from tlxc.ir.types import Buffer, Tensor, Type
from tlxc.targets import Target

from .layouts.prices import shared_price


def stage_shared(module: Module, target: Target) -> None:
    """Rewrites conversions, reductions and dots; see the invariant of this module."""
    _Staging(target).region(module.body)


def _tile(v: Value) -> tuple[Tensor, Layout]:
    if not isinstance(v.type, Tensor) or v.type.layout is None:
        raise InternalError(f"{v!r} is no tile with a layout")
    return v.type, v.type.layout


def _adopt(op: Op, value: Value) -> Op:
    """Makes `op` the definition of an existing value, so that its uses need no change."""
    op.results = [value]
    value.op, value.index = op, 0
    return op


# ------------------------------------------------------------------------------------------------ choices
def _swizzles(shape: tuple[int, ...], elem: int) -> list[Memory]:
    """The widest NVIDIA swizzle with either dimension contiguous, the last one first; only those that exist."""
    if len(shape) != 2:
        return []
    forms = ((shape, (0, 1)), (shape[::-1], (1, 0)))
    found = ((widest_swizzle(s, elem), s, order) for s, order in forms)
    return [m.transpose(order) for m, s, order in found if m != row_major(s)]


def _store_price(a: Layout, mem: Memory, elem: int) -> float:
    """Copies are masked, which only plain stores can do."""
    if not any(a.free_masks().values()):
        return shared_price(a, mem, elem)
    _, accesses, waves = shared_access(a, mem, elem)
    return float(accesses + waves) * live_warps(a)


def scratch_for(a: Layout, b: Layout, elem: int, target: Target) -> Memory:
    """What a conversion goes through: conflict-free vectors, or rows of 8x8 matrices where that is less."""
    memories = [scratch_memory(scratch(a, b, elem))]
    if elem == 2 and "ldmatrix" in target.features:
        memories += _swizzles(a.shape, elem)
    return min(memories, key=lambda m: _store_price(a, m, elem) + shared_price(b, m, elem))


def operand_memory(a: Layout, elem: int, k_dim: int) -> Memory:
    """Swizzled buffer of a wgmma operand held in `a`: the cheaper to fill of K-major and MN-major, K-major if equal."""
    memories = sorted(_swizzles(a.shape, elem), key=lambda m: 1 not in m.bases[k_dim][:1])
    if not memories:
        raise InternalError(f"wgmma cannot read an operand of shape {a.shape}")
    return min(memories, key=lambda m: _store_price(a, m, elem))


# ------------------------------------------------------------------------------------------------ reductions
def crosses_warps(a: Layout, axis: int) -> bool:
    """Whether warps hold different elements along the axis."""
    mask = ((1 << a.bits[axis]) - 1) << a.shifts[axis]
    copies = a.free_masks().get("warp", 0)
    return any(b & mask and not copies >> i & 1 for i, b in enumerate(a.bases("warp")))


def partial_by_warp(a: Layout, axis: int) -> Layout:
    """Layout of what each warp alone makes of a reduction over `axis`; a last axis counts the warps of one result.

    Registers and lanes of one warp span a part of the axis; what they leave over, warps distinguish.
    """
    s, n = a.shifts[axis], a.bits[axis]
    units = [1 << i for i in range(n)]
    inside = [v >> s for v in intersect(a.reg + a.lane, [u << s for u in units])]
    solver = Solver([*inside, *units])
    left = [i for i in range(n) if not solver.redundant >> (len(inside) + i) & 1]

    def part(v: int) -> int:
        """Coordinate along the last axis of a coordinate along the reduced one."""
        code = solver.solve(v)
        assert code is not None, "unit vectors span the axis"
        return sum((code >> (len(inside) + i) & 1) << j for j, i in enumerate(left))

    def move(b: int) -> int:
        kept = b >> (s + n) << s | b & ((1 << s) - 1)
        return kept << len(left) | part(b >> s & ((1 << n) - 1))

    bits, reps = list(a.bits), list(a.reps)
    del bits[axis], reps[axis]
    return make([(d, [move(b) for b in bs]) for d, bs in a.ins], [*bits, len(left)], [*reps, 1])


def gathered(partial: Layout, kept: Layout | None) -> Layout:
    """Where every thread that holds a result (`kept`; None: a scalar) holds all partial results of it in registers."""
    count = partial.bits[-1]
    units = [1 << i for i in range(count)]
    if kept is None:
        ins = [("register", units), *((d, [0] * len(bs)) for d, bs in partial.ins[1:])]
        return make(ins, [count], [1])
    rest = [(d, [b << count for b in bs]) for d, bs in kept.ins]
    rest[0] = "register", units + rest[0][1]
    return make(rest, [*kept.bits, count], [*kept.reps, 1])


# ------------------------------------------------------------------------------------------------ rewriting
class _Staging:
    """One walk; `frames` holds the ops of each open region, so that staging an outer value stands outside the loop."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.frames: list[list[Op]] = []
        self.level: dict[Value, int] = {}
        self.staged: dict[tuple[Value, Memory], Value] = {}
        self.loc: Location | None = None

    def region(self, region: Region) -> None:
        self.frames.append([])
        self.level.update(dict.fromkeys(region.args, len(self.frames) - 1))
        for op in region.ops:
            for r in op.regions:
                self.region(r)
            self.loc = op.loc
            _HANDLERS.get(op.kind, _Staging.append)(self, op)
        region.ops = self.frames.pop()

    def append(self, op: Op, level: int = -1) -> None:
        self.frames[level].append(op)
        self.level.update(dict.fromkeys(op.results, level % len(self.frames)))

    def op(self, kind: str, operands: list[Value], types: list[Type], at: int = -1, **attrs: Any) -> Op:
        made = Op(kind, list(operands), types, attrs, None, self.loc)
        self.append(made, at)
        return made

    def store(self, v: Value, mem: Memory, level: int = -1) -> Value:
        """A buffer that holds the tile."""
        t, _ = _tile(v)
        buf = self.op("local_alloc", [], [Buffer(t.shape, t.element, "smem", mem)], level).result
        buf.name = v.name
        self.op("local_store", [buf, v], [], level)
        return buf

    def convert(self, op: Op) -> None:
        self.move(op, converts=True)

    def move(self, op: Op, **attrs: Any) -> None:
        """`attrs` are those of the load, where the way leads through shared memory."""
        (source,) = op.inputs
        (t, a), (_, b) = _tile(source), _tile(op.result)
        if classify(a, b)[0] != SHARED:
            self.append(op)
            return
        buf = self.store(source, scratch_for(a, b, t.element.bytes, self.target))
        self.append(_adopt(Op("local_load", [buf], (), attrs, loc=op.loc), op.result))

    def reduce(self, op: Op) -> None:
        (source,), axis = op.inputs, op.attrs["axis"]
        t, a = _tile(source)
        if not crosses_warps(a, axis):
            self.append(op)
            return
        partial = partial_by_warp(a, axis)
        kept = op.result.type.layout if isinstance(op.result.type, Tensor) else None
        combine, element = op.attrs["combine"], t.element
        types: list[Type] = [Tensor(x.shape, element, x) for x in (partial, gathered(partial, kept))]
        parts = self.op("partial_reduce", [source], types[:1], axis=axis, combine=combine, level="warp").result
        moved = Op("convert_layout", [parts], types[1:], loc=op.loc)
        self.move(moved)
        last = {"axis": len(partial.shape) - 1, "combine": combine}
        self.append(_adopt(Op("reduce", [moved.result], (), last, loc=op.loc), op.result))

    def dot(self, op: Op) -> None:
        """wgmma reads both operands from buffers; each is filled in the region of its value, once for all its dots."""
        if op.attrs["impl"] == "wgmma":
            operands = list(zip(op.inputs, (1, 0)))
            fresh = {self.level.get(v, 0) for v, k_dim in operands if self.operand(v, k_dim) not in self.staged}
            bufs = [self.staged.get(self.operand(v, k)) or self.fill(*self.operand(v, k)) for v, k in operands]
            for level in sorted(fresh):
                self.op("fence_async_shared", [], [], level)
            op.operands[:2] = bufs
        self.append(op)

    def operand(self, v: Value, k_dim: int) -> tuple[Value, Memory]:
        t, a = _tile(v)
        return v, operand_memory(a, t.element.bytes, k_dim)

    def fill(self, v: Value, mem: Memory) -> Value:
        """Stages an operand.  One that comes into a region from outside (a tile that a loop carries) is stored at the
        region's start: loads for the next iteration can then reuse its registers."""
        level = self.level.get(v, 0)
        self.staged[v, mem] = self.store(v, mem, level)
        if v.op is None:
            frame = self.frames[level]
            frame[:0] = [frame.pop(-2), frame.pop(-1)]
        return self.staged[v, mem]


_HANDLERS: dict[str, Callable[[_Staging, Op], None]] = {
    "convert_layout": _Staging.convert,
    "reduce": _Staging.reduce,
    "dot": _Staging.dot,
}
