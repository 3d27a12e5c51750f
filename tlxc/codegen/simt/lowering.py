"""Tile IR to per-thread LLVM IR: the state of one lowering and the dispatch over op kinds.

A tile value is a list of LLVM names, one per register of its layout; a scalar is a list of one.  Families register
their functions in `LOWER`; a vendor adds those ops that only it has (dot) through its own table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tlxc.codegen.llvm_text import Writer, llvm_type
from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import Layout, components, disjoint
from tlxc.ir.types import Element, Tensor, element_of
from tlxc.passes.axis import AxisInfo, analyse
from tlxc.targets import Target

from .emitter import Emitter

Lower = Callable[["Lowering", Op], None]
LOWER: dict[str, Lower] = {}


def lowers(*kinds: str) -> Callable[[Lower], Lower]:
    """Registers the lowering of op kinds."""

    def register(fn: Lower) -> Lower:
        for kind in kinds:
            LOWER[kind] = fn
        return fn

    return register


def layout_of(v: Value) -> Layout:
    if not isinstance(v.type, Tensor) or v.type.layout is None:
        raise InternalError(f"{v!r} has no layout")
    return v.type.layout


@cache
def register_of(layout: Layout) -> dict[tuple[int, ...], int]:
    """Coordinates held by lane 0 of warp 0 -> register.  Ops that move no data look registers up by coordinate."""
    return {layout.apply(r): r for r in range(layout.registers)}


class Lowering:
    """One kernel being lowered."""

    def __init__(self, module: Module, target: Target, emitter: Emitter, vendor_ops: dict[str, Lower]) -> None:
        self.module, self.target, self.emitter = module, target, emitter
        self.w: Writer = emitter.w
        self.vendor_ops = vendor_ops
        self.values: dict[Value, list[str]] = {}
        self.info: AxisInfo = analyse(module)
        self.coordinates: dict[tuple[Layout, int], str] = {}
        tid = emitter.thread_id()
        lanes = target.warp_size
        self.thread = tid
        self.lane = self.w.assign(f"and i32 {tid}, {lanes - 1}")
        shifted = self.w.assign(f"lshr i32 {tid}, {lanes.bit_length() - 1}")
        self.warp = emitter.uniform(shifted) if module.num_warps > 1 else "0"

    # -- values
    def get(self, v: Value) -> list[str]:
        return self.values[v]

    def scalar(self, v: Value) -> str:
        (name,) = self.values[v]
        return name

    def set(self, v: Value, names: list[str]) -> None:
        self.values[v] = names

    def registers(self, v: Value) -> int:
        return layout_of(v).registers if isinstance(v.type, Tensor) else 1

    def llvm(self, v: Value) -> str:
        return llvm_type(element_of(v.type))

    # -- thread-dependent parts
    def thread_linear(self, lane_bases: tuple[int, ...], warp_bases: tuple[int, ...]) -> str:
        """The i32 that is F2-linear in lane and warp with these bases."""
        lane, warp = self.w.linear(self.lane, lane_bases), self.w.linear(self.warp, warp_bases)
        overlap = _union(lane_bases) & _union(warp_bases)
        return self.w.xor(lane, warp) if overlap else self.w.or_disjoint(lane, warp)

    def coordinate(self, layout: Layout, dim: int) -> list[str]:
        """Coordinate along `dim` of each register, as i32."""
        constants, lane, warp = components(layout, dim)
        base = self.thread_linear(lane, warp)
        combine = self.w.or_disjoint if disjoint(layout, dim) else self.w.xor
        made: dict[int, str] = {}
        for c in constants:
            if c not in made:
                made[c] = combine(base, str(c)) if base != "0" else str(c)
        return [made[c] for c in constants]

    def owner(self, layout: Layout) -> str | None:
        """i1: this thread is the one that stores its elements; None where every thread is."""
        masks = layout.free_masks()
        zero = "0"
        for name, mask in ((self.lane, masks.get("lane", 0)), (self.warp, masks.get("warp", 0))):
            if mask:
                part = self.w.assign(f"and i32 {name}, {mask}")
                zero = part if zero == "0" else self.w.assign(f"or i32 {zero}, {part}")
        return None if zero == "0" else self.w.assign(f"icmp eq i32 {zero}, 0")

    def both(self, a: str | None, b: str | None) -> str | None:
        """Conjunction of two predicates, None being true."""
        if a is None or b is None:
            return b if a is None else a
        return self.w.assign(f"and i1 {a}, {b}")

    # -- words
    def to_word(self, name: str, element: Element) -> tuple[str, int]:
        """An element as an integer of its memory width."""
        kind = llvm_type(element)
        if kind.startswith("ptr"):
            return self.w.assign(f"ptrtoint {kind} {name} to i64"), 64
        if kind == "i1":
            return self.w.assign(f"zext i1 {name} to i8"), 8
        if kind.startswith("i"):
            return name, element.bits
        return self.w.assign(f"bitcast {kind} {name} to i{element.bits}"), element.bits

    def from_word(self, word: str, element: Element) -> str:
        kind = llvm_type(element)
        if kind.startswith("ptr"):
            return self.w.assign(f"inttoptr i64 {word} to {kind}")
        if kind == "i1":
            return self.w.assign(f"icmp ne i8 {word}, 0")
        if kind.startswith("i"):
            return word
        return self.w.assign(f"bitcast i{element.bits} {word} to {kind}")

    # -- running
    def region(self, region: Region) -> None:
        for op in region.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        fn = self.vendor_ops.get(op.kind) or LOWER.get(op.kind)
        if fn is None:
            raise InternalError(f"no lowering of {op.kind} for {self.target.name}")
        fn(self, op)


def _union(bases: tuple[int, ...]) -> int:
    out = 0
    for b in bases:
        out |= b
    return out
