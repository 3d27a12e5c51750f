"""Conversions between two distributed layouts of one shape: what kind, at what cost, through which scratch.

Classes, cheapest first: `noop` (one object), `registers` (a renaming of registers), `select` (registers chosen by lane
or warp, no communication), `shuffle` (inside each warp), `shared` (a trip through shared memory).  `elem` is the
element size in bytes; costs are counts of instructions or of shared-memory wavefronts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from .f2 import Solver, intersect, span_map
from .layout import Layout, LayoutError, intern, log2_exact, slice_
from .memory import BANK_BYTES, MAX_ACCESS, ROW_BYTES, Memory, shared_access

NOOP, REGISTERS, SELECT, SHUFFLE, SHARED = "noop", "registers", "select", "shuffle", "shared"
FREE = (NOOP, REGISTERS)


@dataclass(frozen=True)
class Conversion:
    kind: str
    registers: int = 0  # destination registers per thread
    moves: int = 0  # shuffles per thread
    selects: int = 0
    bytes: int = 0  # scratch
    wavefronts: int = 0  # of all warps, stores and loads
    ideal: int = 0  # wavefronts with no bank conflict
    vectors: tuple[int, int] = (0, 0)  # bytes of one store and of one load


# ------------------------------------------------------------------------------------------------ classes
@cache
def classify(a: Layout, b: Layout) -> tuple[str, int, int]:
    """(class, mixed bits, selecting bits) of the way from a to b; the cheapest class that works."""
    if a.shape != b.shape:
        raise LayoutError(f"A conversion keeps the shape, but the layouts have shapes {a.shape} and {b.shape}.")
    if len(a.lane) != len(b.lane) or len(a.others) != len(b.others):
        raise LayoutError(
            f"A conversion keeps the threads, but layouts {a} and {b} have different lane or warp counts."
        )
    if a is b:
        return NOOP, 0, 0
    regs = Solver(a.reg)
    same_registers = all(v in regs for v in b.reg)
    delta = [x ^ y for x, y in zip(a.lane + a.others, b.lane + b.others)]
    if same_registers and not any(delta):
        return REGISTERS, 0, 0
    if same_registers and all(d in regs for d in delta):
        return SELECT, 0, sum(d != 0 for d in delta)
    warp = Solver(a.reg + a.lane)
    if all(v in warp for v in b.reg + b.lane) and all(x ^ y in warp for x, y in zip(a.others, b.others)):
        return SHUFFLE, sum(v in regs for v in b.lane) + sum(v not in regs for v in b.reg), 0
    return SHARED, 0, 0


@cache
def register_map(src: Layout, dst: Layout) -> tuple[int, ...]:
    """Per register of `dst`, the register of `src` that holds the same element in the same thread."""
    kind = classify(src, dst)[0]
    if kind not in FREE:
        raise LayoutError(
            f"Registers cannot be renamed from layout {src} to {dst}: the conversion is of class '{kind}'; it must be "
            f"'{NOOP}' or '{REGISTERS}'."
        )
    solver, tile = Solver(src.reg), []
    for r in range(1 << len(dst.reg)):
        code = solver.solve(span_map(dst.reg, r))
        assert code is not None, "the class says that every register basis is in the span"
        tile.append(code)
    return tuple(q << len(src.reg) | code for q in range(prod(src.reps)) for code in tile)


def live_warps(a: Layout) -> int:
    """Warps that store when copies do not."""
    redundant = a.solver.redundant >> (len(a.reg) + len(a.lane))
    return (1 << len(a.others)) >> redundant.bit_count()


# ------------------------------------------------------------------------------------------------ shared memory trips
def _word_bits(elem: int) -> int:
    """log2 of the elements in one bank word."""
    return log2_exact(BANK_BYTES // elem) if elem < BANK_BYTES else 0


@cache
def scratch(a: Layout, b: Layout, elem: int) -> Layout:
    """offset -> coordinate map for one tile such that a stores and b loads vectors without bank conflicts.

    Low bits: vectors held in registers by both, then, tried in turn, nothing more, or what b or a alone holds (the
    other side then uses shorter vectors).  High bits ('which 128-byte row') lie outside both (vector + lanes of one
    phase) spaces: two proper subspaces never cover an F2 space, so a choice exists until one side has used its whole
    row.
    """
    best: tuple[tuple[int, int], Layout] | None = None
    for extra in ((), b.reg, a.reg):
        vector = _shared_vector(a, b, elem, extra)
        trial = intern((("offset", _scratch_order(a, b, elem, vector)),), a.bits, a.reps)
        mem = scratch_memory(trial)
        (_, stores, store_waves), (_, loads, load_waves) = shared_access(a, mem, elem), shared_access(b, mem, elem)
        cost = store_waves + load_waves, stores + loads
        if best is None or cost < best[0]:
            best = cost, trial
    assert best is not None
    return best[1]


def _shared_vector(a: Layout, b: Layout, elem: int, extra: Sequence[int]) -> list[int]:
    """Coordinates of the lowest offset bits: register bases common to both first, then those of `extra`."""
    common = intersect(a.reg, b.reg)
    inside, vector = Solver(common), list[int]()
    for g in (*[r for r in (*b.reg, *a.reg) if r in inside], *common, *extra):
        if (elem << len(vector)) < MAX_ACCESS and g not in Solver(vector):
            vector.append(g)
    return vector


def _phase_space(x: Layout, elem: int, vector: Sequence[int]) -> list[int]:
    """Generators of what the lanes of one phase touch; two of them in different rows of banks would conflict."""
    regs, v = Solver(x.reg), 0
    while v < len(vector) and vector[v] in regs:
        v += 1
    lanes = x.lane[: log2_exact(ROW_BYTES // max(BANK_BYTES, elem << v))]
    return [*vector[: max(v, _word_bits(elem))], *lanes]  # lanes that share a word must also share its row


def _scratch_order(a: Layout, b: Layout, elem: int, vector: Sequence[int]) -> tuple[int, ...]:
    n = sum(a.bits)
    own = [_phase_space(a, elem, vector), _phase_space(b, elem, vector), list(vector)]
    high: list[int] = []
    units = [1 << i for i in range(n)]
    sides = [Solver(o) for o in own]
    while all(s.rank < n for s in sides[:2]):
        x, y = (next(u for u in units if u not in s) for s in sides[:2])
        pick = next((u for u in (x, y, x ^ y) if all(u not in s for s in sides)), None)
        if pick is None:
            break
        high.append(pick)
        sides = [Solver([*o, *high]) for o in own]
    low = list(vector)
    for u in units:
        if u not in Solver([*low, *high]):
            low.append(u)
    return tuple(low + high)


@cache
def scratch_memory(m: Layout) -> Memory:
    """The scratch as coordinate -> offset; repetitions follow each other, the last dimension fastest."""
    solver = Solver(m.bases("offset"))
    codes = [[solver.solve(1 << (s + i)) for i in range(b)] for b, s in zip(m.bits, m.shifts)]
    bases = tuple(tuple(c for c in dim if c is not None) for dim in codes)
    strides, run = [], 1 << sum(m.bits)
    for r in reversed(m.reps):
        strides.append(run)
        run *= r
    return Memory(m.bits, bases, m.reps, tuple(reversed(strides)))


def _side_wavefronts(x: Layout, elem: int, v: int, warps: int) -> int:
    """Wavefronts of storing or loading a whole tile with vectors of 2^v elements and no conflict."""
    per_access = max(BANK_BYTES, elem << v) * (1 << len(x.lane)) // ROW_BYTES
    return (x.registers >> v) * max(1, per_access) * warps


@cache
def trip_wavefronts(a: Layout, b: Layout, elem: int) -> int:
    """Wavefronts of a trip through the best scratch, without building it (the scratch has no conflicts to speak of).

    Equal to the count of `convert`, except for a few layouts of 8-bit elements with copies, where it is a little low.
    """
    most = max(0, log2_exact(MAX_ACCESS) - log2_exact(elem))
    common = min(most, len(intersect(a.reg, b.reg)))
    pairs = ((common, common), (common, min(most, len(b.reg))), (min(most, len(a.reg)), common))
    store_warps, load_warps = live_warps(a), 1 << len(b.others)
    return min(_side_wavefronts(a, elem, x, store_warps) + _side_wavefronts(b, elem, y, load_warps) for x, y in pairs)


# ------------------------------------------------------------------------------------------------ costs
def _ideal_wavefronts(x: Layout, access: tuple[int, int, int], warps: int) -> int:
    vector_bytes, accesses, _ = access
    return -(-(1 << len(x.lane)) * max(BANK_BYTES, vector_bytes) // ROW_BYTES) * accesses * warps


@cache
def convert(a: Layout, b: Layout, elem: int = 4) -> Conversion:
    """Class and cost of the way from a to b for elements of `elem` bytes."""
    kind, mixed, selects = classify(a, b)
    n = b.registers
    if kind != SHARED:
        return Conversion(kind, n, max(1, n * elem // 4) if kind == SHUFFLE else 0, n * (mixed + selects))
    mem = scratch_memory(scratch(a, b, elem))
    warps, live = 1 << len(a.others), live_warps(a)
    store, load = shared_access(a, mem, elem), shared_access(b, mem, elem)
    return Conversion(
        SHARED,
        n,
        bytes=prod(b.shape) * elem,
        wavefronts=store[2] * live + load[2] * warps,
        ideal=_ideal_wavefronts(a, store, live) + _ideal_wavefronts(b, load, warps),
        vectors=(store[0], load[0]),
    )


@cache
def reduce_steps(a: Layout, axis: int) -> tuple[int, int, int]:
    """(in-thread factor, lane steps, warp steps) of a reduction over axis."""
    mask = ((1 << a.bits[axis]) - 1) << a.shifts[axis]
    lane, warp = (Solver(b & mask for b in bases).rank for bases in (a.lane, a.others))
    return a.registers // max(1, slice_(a, axis).registers), lane, warp
