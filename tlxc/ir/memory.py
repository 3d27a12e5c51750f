"""Memory layouts: where the elements of a buffer lie, and what register accesses to them cost.

A memory layout maps coordinates to element offsets: an F2 atom (the swizzle) over the low bits of each dimension and,
above it, a repetition count (any whole number) with an integer stride.  Padding and 80-row TMA boxes are strides, not
special cases.  It is a map coordinate -> offset; the inverse only exists inside the atom.

`elem` is the element size in bytes, `v` the log2 of the elements in one access.  Wavefronts count shared-memory cycles
of 32 banks of 4 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import TypeVar

from .f2 import Solver, disjoint_bits, span_map
from .layout import (
    DIM_LETTERS,
    SHAPE_PATTERN,
    Coords,
    Layout,
    LayoutError,
    log2_exact,
    odd_split,
    parse_shape,
    row_strides,
    shape_text,
)

T = TypeVar("T")

BANKS = 32
BANK_BYTES = 4
ROW_BYTES = BANKS * BANK_BYTES
MAX_ACCESS = 16  # bytes one thread moves with one instruction
CORE = 16  # bytes of a row of the 8x8 matrices that wgmma takes without a swizzle


@dataclass(frozen=True)
class Memory:
    """Element offset of a coordinate: XOR of `bases` over the low `bits` of each dimension + repetition * stride."""

    bits: tuple[int, ...]
    bases: tuple[tuple[int, ...], ...]  # per dimension, per low coordinate bit
    reps: tuple[int, ...]
    strides: tuple[int, ...]  # elements between repetitions

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(r << b for r, b in zip(self.reps, self.bits))

    @cached_property
    def extent(self) -> int:
        """Elements from the first to the end of the last; the room a buffer of this layout takes."""
        atom = 1 << sum(self.bits)
        spread = max((b for bs in self.bases for b in bs), default=0)
        inner = max(atom, 1 << spread.bit_length()) if spread else 1
        return inner + sum((r - 1) * s for r, s in zip(self.reps, self.strides))

    def offset(self, coords: Sequence[int]) -> int:
        f2 = outer = 0
        for c, b, bs, s in zip(coords, self.bits, self.bases, self.strides):
            f2 ^= span_map(bs, c & ((1 << b) - 1))
            outer += (c >> b) * s
        return f2 + outer

    @cached_property
    def _inverse(self) -> tuple[Solver, list[tuple[int, int]]]:
        names = [(d, i) for d, bs in enumerate(self.bases) for i in range(len(bs))]
        return Solver(b for bs in self.bases for b in bs), names

    def coords_of_bit(self, i: int) -> Coords | None:
        """Coordinate step of offset bit i inside the atom, or None."""
        solver, names = self._inverse
        code = solver.solve(1 << i)
        if code is None:
            return None
        out = [0] * len(self.bits)
        for j, (d, b) in enumerate(names):
            out[d] |= (code >> j & 1) << b
        return tuple(out)

    def outer_strides(self) -> list[int]:
        """Strides of the dimensions that have more than one repetition."""
        return [s for s, r in zip(self.strides, self.reps) if r > 1]

    def transpose(self, order: Sequence[int]) -> Memory:
        """The same bytes with dimension i of the result being dimension order[i]."""

        def pick(t: tuple[T, ...]) -> tuple[T, ...]:
            return tuple(t[d] for d in order)

        return Memory(pick(self.bits), pick(self.bases), pick(self.reps), pick(self.strides))

    def __str__(self) -> str:
        parts = zip(DIM_LETTERS, self.bases, self.reps, self.strides)
        groups = (f"{letter}[{','.join(map(str, bs))}]x{r}*{s}" for letter, bs, r, s in parts)
        return " ".join((shape_text(self.shape), *groups))


_MEMORY = re.compile(rf"{SHAPE_PATTERN}((?: [a-z]\[[\d,]*\]x\d+\*\d+)*)")
_GROUP = re.compile(r" ([a-z])\[([\d,]*)\]x(\d+)\*(\d+)")


def parse_memory(text: str) -> Memory:
    """Inverse of `str`: per dimension `i[atom offsets]x<count>*<stride>`, as in `80x64 i[72,144,288]x10*512 ...`."""
    found = _MEMORY.fullmatch(text)
    if not found:
        raise LayoutError(f"'{text}' is not a memory layout; write it as `80x64 i[72,144,288]x10*512 j[1,2,4]x8*8`.")
    groups = _GROUP.findall(found[2])
    bases = tuple(tuple(int(b) for b in body.split(",") if b) for _, body, _, _ in groups)
    out = Memory(tuple(map(len, bases)), bases, tuple(int(r) for *_, r, _ in groups), tuple(int(s) for *_, s in groups))
    if [g[0] for g in groups] != list(DIM_LETTERS[: len(groups)]) or out.shape != parse_shape(found[1]):
        raise LayoutError(f"Memory layout '{text}' must list each dimension of its shape once, in order i, j, k, ...")
    return out


# ------------------------------------------------------------------------------------------------ constructors
@cache
def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> Memory:
    """No swizzle; the contiguous dimension's power-of-two part is the atom."""
    bits = tuple(odd_split(n)[1] if s == 1 else 0 for n, s in zip(shape, strides))
    return Memory(
        bits=bits,
        bases=tuple(tuple(1 << i for i in range(b)) for b in bits),
        reps=tuple(n >> b for n, b in zip(shape, bits)),
        strides=tuple(s << b for s, b in zip(strides, bits)),
    )


def row_major(shape: Sequence[int], pad: int = 0) -> Memory:
    """Dense rows, `pad` unused elements after each innermost row."""
    strides, run = [], 1
    for d in reversed(range(len(shape))):
        strides.append(run)
        run = run * shape[d] + (pad if d == len(shape) - 1 else 0)
    return strided(tuple(shape), tuple(reversed(strides)))


@cache
def swizzled(shape: tuple[int, ...], elem: int, width: int) -> Memory:
    """NVIDIA 32/64/128-byte swizzle: column blocks of `width` bytes, 16-byte chunks XORed inside 8-row atoms.  With a
    width of 16 (CORE) nothing is XORed.

    Dimensions before the last two are further rows: each column block holds all of them.
    """
    per = width // elem
    if len(shape) < 2 or shape[-1] % per or shape[-2] % 8:
        raise LayoutError(
            f"A {width}-byte swizzle of {elem}-byte elements needs two dimensions or more, columns in units of {per} "
            f"and rows in units of 8; the shape is {tuple(shape)}."
        )
    *outer, rows, cols = shape
    chunk, chunks = 16 // elem, width // 16
    row_bases = tuple((1 << i) * per ^ ((1 << i) * width // ROW_BYTES % chunks) * chunk for i in range(3))
    col_bases = tuple(1 << i for i in range(log2_exact(per)))
    outer_strides = tuple(s * per for s in row_strides((*outer, rows))[:-1])
    return Memory(
        bits=(*(0 for _ in outer), 3, len(col_bases)),
        bases=(*(() for _ in outer), row_bases, col_bases),
        reps=(*outer, rows // 8, cols // per),
        strides=(*outer_strides, 8 * per, prod(outer) * rows * per),
    )


def widest_swizzle(shape: Sequence[int], elem: int) -> Memory:
    """The widest NVIDIA swizzle that the shape admits, else row-major."""
    for width in (128, 64, 32):
        try:
            return swizzled(tuple(shape), elem, width)
        except LayoutError:
            continue
    return row_major(shape)


@cache
def xor_swizzled(shape: tuple[int, int], vec: int, per_phase: int, max_phase: int) -> Memory:
    """Row-major with vectors of `vec` elements XORed by the row: column vector q of row r moves to
    q ^ (r // per_phase % max_phase)."""
    rows, cols = shape
    phase_bits = log2_exact(per_phase) + log2_exact(max_phase)
    row_bits = min(phase_bits, odd_split(rows)[1]) if max_phase > 1 else 0
    if max_phase > 1 and (cols & (cols - 1) or log2_exact(vec) + log2_exact(max_phase) > log2_exact(cols)):
        raise LayoutError(
            f"An XOR swizzle over {max_phase} phases of {vec} elements needs a power-of-two contiguous extent of at "
            f"least {max_phase * vec}; it is {cols}."
        )
    if row_bits < phase_bits and rows >> row_bits > 1:
        raise LayoutError(
            f"An XOR swizzle needs rows in units of {1 << phase_bits}, or a power of two below; {rows} is not."
        )
    row_bases = tuple((1 << i) * cols ^ ((1 << i) // per_phase % max_phase) * vec for i in range(row_bits))
    col_bits = odd_split(cols)[1]
    return Memory(
        bits=(row_bits, col_bits),
        bases=(row_bases, tuple(1 << i for i in range(col_bits))),
        reps=(rows >> row_bits, cols >> col_bits),
        strides=(cols << row_bits, 1 << col_bits),
    )


# ------------------------------------------------------------------------------------------------ vectors
@cache
def vector_bits(a: Layout, mem: Memory, elem: int, max_bytes: int = MAX_ACCESS) -> int:
    """log2 of the elements one access can take: the memory's lowest offset bits must lie in the span of registers.

    A vector never straddles repetitions of the layout.  The buffer itself is taken to be aligned.
    """
    regs, v = Solver(a.reg), 0
    while (elem << (v + 1)) <= max_bytes:
        coords = mem.coords_of_bit(v)
        packed = a.pack(coords) if coords is not None else None
        if packed is None or packed not in regs or any(s % (2 << v) for s in mem.outer_strides()):
            break
        v += 1
    return v


def _vector_steps(a: Layout, mem: Memory, v: int) -> list[int]:
    """Packed tile coordinate of each of the lowest v offset bits; `v` is at most `vector_bits`."""
    out = []
    for i in range(v):
        coords = mem.coords_of_bit(i)
        packed = None if coords is None else a.pack(coords)
        if packed is None:
            raise LayoutError(f"An access of {1 << v} elements does not fit layout {a} in memory {mem}.")
        out.append(packed)
    return out


def vector_base(a: Layout, mem: Memory, v: int) -> list[int]:
    """Register bases that step from one vector to the next (a complement of the vector inside the register span)."""
    out: list[int] = []
    vector = _vector_steps(a, mem, v)
    for b in a.reg:
        if b not in Solver([*vector, *out]):
            out.append(b)
    return out


def lane_offsets(a: Layout, mem: Memory, v: int, vector: int = 0, rep: int = 0) -> list[int]:
    """First element offset of each lane for one access of warp 0; a vector starts at its aligned base."""
    base = span_map(vector_base(a, mem, v), vector)
    start, out = a.repetition(rep), []
    for lane in range(1 << len(a.lane)):
        f2 = a.unpack(base ^ span_map(a.lane, lane))
        out.append(mem.offset([c | r for c, r in zip(f2, start)]) >> v << v)
    return out


# ------------------------------------------------------------------------------------------------ shared memory
def wavefronts_of(offsets: Sequence[int], elem: int, v: int) -> int:
    """Shared-memory wavefronts of one warp access: phases of 128 bytes, then the worst bank of each."""
    size = elem << v
    per_phase = max(1, min(len(offsets), ROW_BYTES // max(BANK_BYTES, size)))
    total = 0
    for p in range(0, len(offsets), per_phase):
        words: dict[int, set[int]] = {}
        for offset in offsets[p : p + per_phase]:
            first = offset * elem
            for w in range(first // BANK_BYTES, (first + size + BANK_BYTES - 1) // BANK_BYTES):
                words.setdefault(w % BANKS, set()).add(w)
        total += max(len(s) for s in words.values())
    return total


def _one_stands_for_all(a: Layout, mem: Memory, elem: int, v: int) -> bool:
    """Whether all accesses of a warp have equal bank conflicts.

    They have if registers only XOR (or add) a constant to the offsets of all lanes: steps above the atom by whole rows
    of banks, or coordinate bits that lanes do not touch and whole words.
    """
    if all(s * elem % ROW_BYTES == 0 for s in mem.outer_strides()):
        return True
    return (elem << v) >= BANK_BYTES and disjoint_bits(b for _, bs in a.ins for b in bs)


@cache
def shared_access(a: Layout, mem: Memory, elem: int) -> tuple[int, int, int]:
    """(vector bytes, accesses per thread, wavefronts per warp) of a plain shared-memory access of the whole tile."""
    v = vector_bits(a, mem, elem)
    vectors, reps = 1 << len(vector_base(a, mem, v)), prod(a.reps)
    if _one_stands_for_all(a, mem, elem, v):
        waves = wavefronts_of(lane_offsets(a, mem, v), elem, v) * vectors * reps
    else:
        accesses = ((r, q) for q in range(reps) for r in range(vectors))
        waves = sum(wavefronts_of(lane_offsets(a, mem, v, r, q), elem, v) for r, q in accesses)
    return elem << v, vectors * reps, waves


@cache
def matrix_access(a: Layout, mem: Memory, elem: int, trans: bool = False) -> int:
    """ldmatrix/stmatrix: number of 8x8 matrices per instruction (4, 2, 1), 0 where not applicable.

    A lane holds `pack` neighbours in a register, four lanes a 16-byte row (transposed: eight lanes a row, a register
    two rows).  Rows may repeat: lanes hand in addresses, and copies store what is already there.
    """
    if elem not in ((2,) if trans else (1, 2, 4)) or len(a.lane) != 5:
        return 0
    pack = log2_exact(4 // elem)
    row = _row_steps(a, mem, elem)
    if row is None or any(s % (16 // elem) for s in mem.outer_strides()):
        return 0
    if trans:
        held = a.lane[2:] == row and bool(a.reg)
        rows, in_word, loose = a.lane[:2] + a.others + a.reg, 1, 0
    else:
        regs, lanes = Solver(a.reg), len(row) - pack
        held = all(r in regs for r in row[:pack]) and a.lane[:lanes] == row[pack:]
        rows, in_word, loose = a.lane[lanes:] + a.others, pack, (1 << pack) - 1

    def inside_row(basis: int) -> int:
        return mem.offset(a.unpack(basis)) & (16 // elem - 1)

    # Everything else selects rows, whose addresses are free but start at 16 bytes.
    if not held or any(inside_row(b) for b in rows) or any(inside_row(b) & ~loose for b in a.reg):
        return 0
    words = prod(a.reps) << max(0, len(a.reg) - in_word)
    return min(4, words & -words)


def _row_steps(a: Layout, mem: Memory, elem: int) -> tuple[int, ...] | None:
    """Packed tile coordinates of the offset bits inside 16 bytes; None if the tile does not hold them."""
    out = []
    for i in range(log2_exact(16 // elem)):
        coords = mem.coords_of_bit(i)
        packed = None if coords is None else a.pack(coords)
        if packed is None:
            return None
        out.append(packed)
    return tuple(out)


# ------------------------------------------------------------------------------------------------ Shape:Stride
def _strides_without_swizzle(mem: Memory) -> list[int] | None:
    """Stride per dimension where offsets are a plain sum of coordinate * stride."""
    out = []
    for bs, r, s in zip(mem.bases, mem.reps, mem.strides):
        first = bs[0] if bs else s
        steps = [*bs, *([s] if r > 1 else [])]
        if any(step != first << i for i, step in enumerate(steps)):
            return None
        out.append(first if steps else 0)
    if not disjoint_bits(b for bs in mem.bases for b in bs):
        return None
    return out


def cute_memory(mem: Memory) -> str:
    """`(extents):(strides)` in elements, `Swizzle<B,M,S> o ...` before it where rows are XORed in, else `str`.

    The strides are those of the swizzled offset: offset = Swizzle(sum of coordinate * stride).
    """
    strides = _strides_without_swizzle(mem)
    if strides is not None:
        return _strided_text(mem.shape, strides)
    swizzle = _row_swizzle(mem)
    return (
        str(mem)
        if swizzle is None
        else f"Swizzle<{','.join(map(str, swizzle))}> o " + _strided_text(mem.shape, row_strides(mem.shape))
    )


def _strided_text(shape: Sequence[int], strides: Sequence[int]) -> str:
    texts = [",".join(f"_{n}" for n in group) for group in (shape, strides)]
    return ":".join(texts) if len(shape) == 1 else ":".join(f"({t})" for t in texts)


def _row_swizzle(mem: Memory) -> tuple[int, int, int] | None:
    """(B, M, S) with offset = x ^ (x >> S & mask of B bits at M) over the row-major index x, or None."""
    if len(mem.shape) != 2:
        return None
    cols = mem.shape[1]
    flips = [b ^ (cols << i) for i, b in enumerate(mem.bases[0])]
    active = [i for i, f in enumerate(flips) if f]
    dense = row_major(mem.shape)
    if (
        not active
        or max(flips) >= cols
        or cols & (cols - 1)
        or mem.bases[1] != dense.bases[1]
        or mem.strides[0] != cols << mem.bits[0]
    ):
        return None
    first, base = active[0], log2_exact(flips[active[0]] & -flips[active[0]])
    if flips[first:] != [1 << (base + i) for i in range(len(flips) - first)] or mem.reps[1] != 1:
        return None
    return len(active), base, log2_exact(cols) + first - base
