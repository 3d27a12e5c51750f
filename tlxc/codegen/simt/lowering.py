"""Tile IR to per-thread LLVM IR: the state of one lowering and the dispatch over op kinds.

A tile value is a list of LLVM names, one per register of its layout; a scalar is a list of one.  Families register
their functions in `LOWER`; a vendor adds those ops that only it has (dot) through its own table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tlxc.codegen.llvm_text import Writer, llvm_type
from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import Layout, components, disjoint
from tlxc.ir.types import Tensor, element_of
from tlxc.passes.axis import AxisInfo
from tlxc.targets import Target

from .emitter import Emitter
from .words import pack, unpack, word_shape

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
def coordinates_of(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Coordinates that each register holds in lane 0 of warp 0."""
    return tuple(layout.apply(r) for r in range(layout.registers))


@cache
def register_of(layout: Layout) -> dict[tuple[int, ...], int]:
    """Coordinates held by lane 0 of warp 0 -> register.  Ops that move no data look registers up by coordinate."""
    return {coords: r for r, coords in enumerate(coordinates_of(layout))}


@cache
def equal_registers(layout: Layout, constancy: tuple[int, ...]) -> tuple[int, ...]:
    """Per register, the first one in its run: values are equal over aligned runs of `constancy` along each dimension.
    Registers of a thread differ by XOR constants, so being in one run at lane 0 means being in one everywhere."""
    if all(c == 1 for c in constancy):
        return tuple(range(layout.registers))
    seen: dict[tuple[int, ...], int] = {}
    runs = (tuple(x // c for x, c in zip(coords, constancy)) for coords in coordinates_of(layout))
    return tuple(seen.setdefault(run, r) for r, run in enumerate(runs))


class Lowering:
    """One kernel being lowered."""

    def __init__(
        self, module: Module, target: Target, emitter: Emitter, vendor_ops: dict[str, Lower], info: AxisInfo
    ) -> None:
        self.module, self.target, self.emitter, self.info = module, target, emitter, info
        self.w: Writer = emitter.w
        self.vendor_ops = vendor_ops
        self.values: dict[Value, list[str]] = {}
        self.packed: dict[Value, Sequence[tuple[Sequence[int], list[str]]]] = {}
        self.unpacked_in: dict[Value, str] = {}
        self.in_flight: list[tuple[str, list[str]]] = []  # (block, register operands) of dots under way, oldest first
        self.fenced = ""  # the block in which a dot has started, where no register of a tile was touched since
        self.total_warps: int = module.attrs.get("total_warps", module.num_warps)
        tid = emitter.thread_id()
        lanes = target.warp_size
        self.lane = self.w.assign(f"and i32 {tid}, {lanes - 1}")
        shifted = self.w.assign(f"lshr i32 {tid}, {lanes.bit_length() - 1}")
        self.cta_warp = emitter.uniform(shifted) if self.total_warps > 1 else "0"
        self.cta_thread = tid
        # The task being lowered: its warps, counted from its first, the hardware barrier that is its own, and its
        # number among the copies that share its region.
        self.num_warps = module.num_warps
        self.warp, self.thread = self.cta_warp, tid
        self.barrier_id = self.copy = "0"

    # -- values
    def get(self, v: Value) -> list[str]:
        """Names of the registers.  Words of small elements are unpacked where they are used: across blocks, each one
        would take a register of its own."""
        packed = self.packed.get(v)
        if packed is None or self.unpacked_in.get(v) == self.w.block:
            return self.values[v]
        names = [""] * self.registers(v)
        for registers, words in packed:
            for r, x in zip(registers, unpack(self.w, words, element_of(v.type), len(registers))):
                names[r] = x
        self.unpacked_in[v] = self.w.block
        self.values[v] = names
        return names

    def scalar(self, v: Value) -> str:
        (name,) = self.get(v)
        return name

    def set(self, v: Value, names: list[str]) -> None:
        self.values[v] = names

    def set_words(self, v: Value, runs: Sequence[tuple[Sequence[int], list[str]]]) -> None:
        """A value as the words of its accesses: (registers in memory order, words)."""
        self.packed[v] = runs

    def words(self, v: Value, group: Sequence[int]) -> list[str]:
        """These registers of a value as the words of one access.  Words that it came in are handed on as they are,
        but for bools: their bytes in memory may be other than 0 and 1."""
        element = element_of(v.type)
        bits, _ = word_shape(len(group), element.bytes)
        per = bits // (8 * element.bytes)
        if v in self.packed and self.llvm(v) != "i1":
            known = self._known_words(v, per)
            chunks = [tuple(group[i : i + per]) for i in range(0, len(group), per)]
            if all(chunk in known for chunk in chunks):
                return [known[chunk] for chunk in chunks]
        names = self.get(v)
        return pack(self.w, [names[r] for r in group], element)

    def _known_words(self, v: Value, per: int) -> dict[tuple[int, ...], str]:
        """Words of `per` elements that the value came in, by the registers that they hold."""
        size = element_of(v.type).bytes
        out: dict[tuple[int, ...], str] = {}
        for registers, words in self.packed[v]:
            if word_shape(len(registers), size)[0] == 8 * size * per:
                chunks = (tuple(registers[i : i + per]) for i in range(0, len(registers), per))
                out.update(zip(chunks, words))
        return out

    def registers(self, v: Value) -> int:
        return layout_of(v).registers if isinstance(v.type, Tensor) else 1

    def llvm(self, v: Value) -> str:
        return llvm_type(element_of(v.type))

    def representatives(self, v: Value) -> tuple[int, ...]:
        """Per register, the first one that holds the same value in every thread, as far as axis analysis knows."""
        if not isinstance(v.type, Tensor):
            return (0,)
        return equal_registers(layout_of(v), tuple(self.info.constancy(v, d) for d in range(len(v.type.shape))))

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

    def first_thread(self) -> str:
        """i1: the first thread of the task."""
        return self.w.assign(f"icmp eq i32 {self.thread}, 0")

    def elected(self) -> str:
        """i1: one thread of the task's first warp, always the same, in a form that the assembler knows to be one: TMA
        then takes its operands from uniform registers."""
        one = self.emitter.elect()
        if self.num_warps == 1:
            return one
        return self.w.assign(f"and i1 {self.w.assign(f'icmp eq i32 {self.warp}, 0')}, {one}")

    def task_barrier(self) -> None:
        """All threads of the task arrive before any goes on."""
        whole = self.num_warps == self.total_warps
        self.emitter.barrier(self.barrier_id, self.num_warps, whole)

    @contextmanager
    def task(self, start_warp: int, num_warps: int, copies: int, barrier_id: int) -> Iterator[None]:
        """Lowers for the warps of one task; everything thread-dependent is relative to the first warp of its copy."""
        saved = self.num_warps, self.warp, self.thread, self.barrier_id, self.copy
        self.num_warps, self.barrier_id = num_warps, str(barrier_id)
        if start_warp:
            self.warp = self.w.assign(f"sub i32 {self.cta_warp}, {start_warp}")
            self.thread = self.w.assign(f"sub i32 {self.cta_thread}, {start_warp * self.target.warp_size}")
        if copies > 1:
            self.copy = self.w.assign(f"lshr i32 {self.warp}, {num_warps.bit_length() - 1}")
            self.warp = self.w.assign(f"and i32 {self.warp}, {num_warps - 1}")
            self.thread = self.w.assign(f"and i32 {self.thread}, {num_warps * self.target.warp_size - 1}")
            self.barrier_id = self.w.add(self.copy, self.barrier_id)
        if num_warps == 1:
            self.warp, self.thread = "0", self.lane
        yield
        self.num_warps, self.warp, self.thread, self.barrier_id, self.copy = saved

    # -- running
    def region(self, region: Region) -> None:
        for op in region.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        fn = self.vendor_ops.get(op.kind) or LOWER.get(op.kind)
        if fn is None:
            raise InternalError(f"no lowering of {op.kind} for {self.target.name}")
        fn(self, op)
        if op.kind != "async_dot" and any(isinstance(v.type, Tensor) for v in (*op.inputs, *op.results)):
            self.fenced = ""


def _union(bases: tuple[int, ...]) -> int:
    out = 0
    for b in bases:
        out |= b
    return out
