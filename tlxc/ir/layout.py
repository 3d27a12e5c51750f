"""Distributed layouts: which thread holds which element of a tile.

A layout maps (register, lane, warp[, cta]) to logical coordinates.  It is one F2-linear *tile* of power-of-two extents,
repeated a whole number of times along each dimension: extent d is reps[d] << bits[d].  The F2 part maps input bits to a
packed tile coordinate: dimension 0 in the high bits, the last dimension in the low bits, so that a row-major reshape of
the tile leaves every basis as it is.  Repetitions live in registers, above the F2 register bits, row-major:

    register = f2_register + (repetition << register_bits)
    coordinate[d] = repetition[d] << bits[d] | f2_coordinate[d]

Canonical form: every reps[d] is odd (a factor two is one more tile bit) and no register basis depends on other register
bases (a duplicate register is dropped).  Zero lane and warp bases stay: they say who holds copies.  Two layouts of one
shape therefore always have the same tile and the same repetitions, and conversions only ever compare F2 parts.

Two equalities: `is` (register order too) and `key` (equal up to renaming registers).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod

from tlxc.errors import TlxcError

from .f2 import Solver, disjoint_bits, rref, span_map

Bases = tuple[int, ...]
Inputs = tuple[tuple[str, Bases], ...]
Coords = tuple[int, ...]

INPUTS = ("register", "lane", "warp", "cta", "offset")  # in this order wherever they occur; text uses the first letter
DIM_LETTERS = "ijkmnpqstuvxyz"


class LayoutError(TlxcError):
    """A layout does not exist; the message says why."""


def odd_split(n: int) -> tuple[int, int]:
    """(c, k) with n = c << k and c odd."""
    k = (n & -n).bit_length() - 1
    return n >> k, k


def log2_exact(n: int) -> int:
    k = n.bit_length() - 1
    if n < 1 or n != 1 << k:
        raise LayoutError(
            f"{n} is not a power of two; lanes, warps and vector widths of a layout must be powers of two."
        )
    return k


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each dimension of a dense row-major array."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def bit_shifts(bits: Sequence[int]) -> tuple[int, ...]:
    """Position of each dimension in a packed tile coordinate."""
    return tuple(sum(bits[d + 1 :]) for d in range(len(bits)))


def _tile_of(shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(reps, bits) of a shape."""
    if any(n < 1 for n in shape):
        raise LayoutError(f"A tile of shape {tuple(shape)} has an extent below 1; every extent must be positive.")
    parts = [odd_split(n) for n in shape]
    return tuple(c for c, _ in parts), tuple(k for _, k in parts)


# ------------------------------------------------------------------------------------------------ the layout
@dataclass(frozen=True, eq=False)
class Layout:
    """Built by `make` or `intern` only: equal layouts are one object, so comparing and hashing cost nothing."""

    ins: Inputs
    bits: tuple[int, ...]
    reps: tuple[int, ...]

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles are interned too."""
        return intern, (self.ins, self.bits, self.reps)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(r << b for r, b in zip(self.reps, self.bits))

    def bases(self, dim: str) -> Bases:
        return dict(self.ins).get(dim, ())

    @cached_property
    def reg(self) -> Bases:
        return self.bases("register")

    @cached_property
    def lane(self) -> Bases:
        return self.bases("lane")

    @cached_property
    def others(self) -> Bases:
        """Bases above the lane: warp, then cta."""
        return tuple(b for d, bs in self.ins if d not in ("register", "lane") for b in bs)

    @cached_property
    def registers(self) -> int:
        """Elements each thread holds, repetitions included."""
        return prod(self.reps) << len(self.reg)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        return bit_shifts(self.bits)

    def unpack(self, packed: int) -> Coords:
        """Coordinates inside the tile of a packed tile coordinate."""
        return tuple(packed >> s & ((1 << b) - 1) for s, b in zip(self.shifts, self.bits))

    def pack(self, coords: Sequence[int]) -> int | None:
        """Packed tile coordinate; None outside the tile."""
        if any(c >> b for c, b in zip(coords, self.bits)):
            return None
        return sum(c << s for c, s in zip(coords, self.shifts))

    def repetition(self, index: int) -> Coords:
        """First coordinate of repetition `index` (row-major)."""
        out = []
        for r, b in zip(reversed(self.reps), reversed(self.bits)):
            out.append((index % r) << b)
            index //= r
        return tuple(reversed(out))

    def apply(self, register: int = 0, lane: int = 0, warp: int = 0, **more: int) -> Coords:
        """Coordinates of the element in one register of one thread."""
        f2 = span_map(self.reg, register) ^ span_map(self.lane, lane) ^ span_map(self.bases("warp"), warp)
        for dim, index in more.items():
            f2 ^= span_map(self.bases(dim), index)
        return tuple(r | c for r, c in zip(self.repetition(register >> len(self.reg)), self.unpack(f2)))

    @cached_property
    def solver(self) -> Solver:
        """Over all input bits: register, then lane, then warp, then cta."""
        return Solver(b for _, bs in self.ins for b in bs)

    def _inputs_of_code(self, code: int) -> dict[str, int]:
        out = {}
        for dim, bs in self.ins:
            out[dim] = code & ((1 << len(bs)) - 1)
            code >>= len(bs)
        return out

    def invert(self, coords: Sequence[int]) -> dict[str, int]:
        """One holder of the element (a right inverse): lowest in register, then lane, then warp."""
        rep = f2 = 0
        for c, r, b in zip(coords, self.reps, self.bits):
            rep, f2 = rep * r + (c >> b), f2 << b | c & ((1 << b) - 1)
        code = self.solver.solve(f2)
        if code is None:
            raise LayoutError(f"No thread holds element {tuple(coords)} of layout {self}; it does not cover its shape.")
        out = self._inputs_of_code(code)
        out["register"] |= rep << len(self.reg)
        return out

    def surjective(self) -> bool:
        """Whether every element is held somewhere."""
        return self.solver.rank == sum(self.bits)

    def free_masks(self) -> dict[str, int]:
        """Per input dimension, the index bits that must be zero for a thread to be the one that stores."""
        return self._inputs_of_code(self.solver.redundant)

    @cached_property
    def key(self) -> Layout:
        """One object for all layouts between which a conversion is only a renaming of registers."""
        (first, bases), rest = self.ins[0], self.ins[1:]
        return intern(((first, rref(bases)), *rest), self.bits, self.reps)

    def __str__(self) -> str:
        groups = (f"{dim[0]}[{','.join(_coords_text(self.unpack(b)) for b in bs)}]" for dim, bs in self.ins)
        return " ".join((shape_text(self.shape), *groups))


_interned: dict[tuple[Inputs, tuple[int, ...], tuple[int, ...]], Layout] = {}


def intern(ins: Inputs, bits: tuple[int, ...], reps: tuple[int, ...]) -> Layout:
    """The layout object of an already canonical description."""
    if len(bits) > len(DIM_LETTERS):
        raise LayoutError(f"A layout of {len(bits)} dimensions is not supported; the most is {len(DIM_LETTERS)}.")
    # setdefault is atomic: two threads that build the same layout end with the same object.
    return _interned.setdefault((ins, bits, reps), Layout(ins, bits, reps))


def make(ins: Iterable[tuple[str, Iterable[int]]], bits: Sequence[int], reps: Sequence[int]) -> Layout:
    """Canonical layout: absorbs even repetitions, drops dependent register bases."""
    names, columns = [], []
    for name, bases in ins:
        names.append(name)
        columns.append(list(bases))
    bits, reps = list(bits), list(reps)
    for d in reversed(range(len(bits))):  # last dimension first: repetitions are numbered row-major
        reps[d], k = odd_split(reps[d])
        if k:
            s = sum(bits[d:])
            columns = [[b & ((1 << s) - 1) | (b >> s) << (s + k) for b in column] for column in columns]
            columns[0].extend(1 << (s + i) for i in range(k))
            bits[d] += k
    dead = Solver(columns[0]).redundant
    columns[0] = [b for i, b in enumerate(columns[0]) if not dead >> i & 1]
    return intern(tuple((n, tuple(c)) for n, c in zip(names, columns)), tuple(bits), tuple(reps))


def from_coords(shape: Sequence[int], **ins: Sequence[Coords]) -> Layout:
    """From basis coordinates per input dimension; the tile is the power-of-two part of the shape."""
    reps, bits = _tile_of(shape)
    shifts = bit_shifts(bits)
    present = [d for d in ("register", "lane", "warp", "cta") if d in ins or d != "cta"]
    return make([(d, [sum(x << s for x, s in zip(c, shifts)) for c in ins.get(d, ())]) for d in present], bits, reps)


# ------------------------------------------------------------------------------------------------ construction
class TileBits:
    """Hands out the coordinate bits of a tile, so that constructors read as lists of who gets what."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.top = list(_tile_of(shape)[1])  # bits from here on are handed out
        self.used = [0] * len(self.shape)  # and so are the bits below here

    def unit(self, d: int, value: int) -> Coords:
        return tuple(value if i == d else 0 for i in range(len(self.shape)))

    def free(self, d: int) -> int:
        return self.top[d] - self.used[d]

    def take(self, d: int) -> Coords | None:
        """The lowest free bit of a dimension, None where there is none left."""
        if not self.free(d):
            return None
        self.used[d] += 1
        return self.unit(d, 1 << (self.used[d] - 1))

    def take_top(self, d: int) -> Coords | None:
        """The highest free bit of a dimension, None where there is none left."""
        if not self.free(d):
            return None
        self.top[d] -= 1
        return self.unit(d, 1 << self.top[d])

    def run(self, d: int, count: int) -> list[Coords]:
        """Exactly `count` bits of a dimension, lowest first."""
        out = [b for _ in range(count) if (b := self.take(d)) is not None]
        if len(out) < count:
            raise LayoutError(
                f"The layout needs dimension {d} of a tile of shape {self.shape} to be a multiple of "
                f"{1 << (self.used[d] + count - len(out))}, but it is {self.shape[d]}."
            )
        return out

    def fill(self, count: int, order: Sequence[int]) -> list[Coords]:
        """`count` bits along the dimensions of `order`; zeros (copies) once they are used up."""
        out: list[Coords] = []
        for d in order:
            out += [b for _ in range(min(count - len(out), self.free(d))) if (b := self.take(d)) is not None]
        return out + [self.unit(0, 0)] * (count - len(out))

    def rest(self, order: Sequence[int]) -> list[Coords]:
        """Everything not handed out yet."""
        return [b for d in order for _ in range(self.free(d)) if (b := self.take(d)) is not None]


def _spread_warps(tile: TileBits, count: int, warp_order: Sequence[int], contiguous: int) -> list[Coords]:
    """Warp bits from the top of the named dimensions; the contiguous one keeps eight elements for the lanes."""
    out: list[Coords] = []
    for d in warp_order:
        floor = 3 if d == contiguous else 0
        while len(out) < count and tile.free(d) > floor and (b := tile.take_top(d)) is not None:
            out.append(b)
    return out


@cache
def blocked(
    shape: tuple[int, ...],
    order: tuple[int, ...] | None = None,
    vec: int = 1,
    lanes: int = 32,
    warps: int = 4,
    warp_order: tuple[int, ...] | None = None,
) -> Layout:
    """Coalesced: `vec` elements along order[0] per thread, lanes then warps along `order`; surplus threads replicate.

    With `warp_order`, warps come first, along the dimensions it names, and lanes lie inside them.
    """
    order = tuple(order or reversed(range(len(shape))))
    tile = TileBits(shape)
    regs = [b for _ in range(log2_exact(vec)) if order and (b := tile.take(order[0])) is not None]
    warp = _spread_warps(tile, log2_exact(warps), warp_order, order[0]) if warp_order else []
    lane = tile.fill(log2_exact(lanes), order)
    warp += tile.fill(log2_exact(warps) - len(warp), order)
    return from_coords(shape, register=regs + tile.rest(order), lane=lane, warp=warp)


# ------------------------------------------------------------------------------------------------ shape operations
def _map_bases(a: Layout, move: dict[int, int] | None = None, shift: int = 0) -> list[tuple[str, list[int]]]:
    """Inputs of `a` with every basis looked up in `move`, then shifted left (right where negative)."""
    out = []
    for dim, bs in a.ins:
        moved = [move[b] if move is not None else b for b in bs]
        out.append((dim, [b << shift if shift >= 0 else b >> -shift for b in moved]))
    return out


def _all_bases(a: Layout) -> set[int]:
    return {b for _, bs in a.ins for b in bs}


@cache
def permute(a: Layout, order: tuple[int, ...]) -> Layout:
    """Result dimension i is input dimension order[i]."""
    if sorted(order) != list(range(len(a.shape))):
        raise LayoutError(f"Permutation {order} does not name each of the {len(a.shape)} dimensions once.")
    bits = tuple(a.bits[d] for d in order)
    shifts = bit_shifts(bits)
    move = {b: sum(a.unpack(b)[d] << s for d, s in zip(order, shifts)) for b in _all_bases(a)}
    return make(_map_bases(a, move), bits, [a.reps[d] for d in order])


@cache
def collapse(a: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout of a value of extents `shape` (each equal or 1) that broadcasts to `a` without data movement."""
    if len(shape) != len(a.shape) or any(n not in (1, full) for n, full in zip(shape, a.shape)):
        raise LayoutError(
            f"A value of shape {shape} does not broadcast to {a.shape}; each extent must be equal to the target's or 1."
        )
    keep = [n == full for n, full in zip(shape, a.shape)]
    bits = [b if k else 0 for b, k in zip(a.bits, keep)]
    shifts = bit_shifts(bits)
    move = {b: sum(c << s for c, s, k in zip(a.unpack(b), shifts, keep) if k) for b in _all_bases(a)}
    return make(_map_bases(a, move), bits, [r if k else 1 for r, k in zip(a.reps, keep)])


@cache
def squeeze(a: Layout, axis: int) -> Layout:
    """Drops a dimension of extent 1."""
    if a.shape[axis] != 1:
        raise LayoutError(f"Dimension {axis} of shape {a.shape} cannot be dropped: its extent must be 1.")
    return make(a.ins, a.bits[:axis] + a.bits[axis + 1 :], a.reps[:axis] + a.reps[axis + 1 :])


@cache
def expand(a: Layout, axis: int) -> Layout:
    """New dimension of extent 1 before `axis`."""
    return make(a.ins, a.bits[:axis] + (0,) + a.bits[axis:], a.reps[:axis] + (1,) + a.reps[axis:])


@cache
def slice_(a: Layout, axis: int) -> Layout:
    """Layout of a reduction over `axis`."""
    return squeeze(collapse(a, tuple(1 if d == axis else n for d, n in enumerate(a.shape))), axis)


def _digits(shape: Sequence[int]) -> list[int]:
    """Mixed-radix digits of an element index, most significant first; neighbouring odd digits merge."""
    out: list[int] = []
    for n in shape:
        odd, k = odd_split(n)
        if odd > 1 and out and out[-1] != 2:
            out[-1] *= odd
        elif odd > 1:
            out.append(odd)
        out += [2] * k
    return out


@cache
def reshape(a: Layout, shape: tuple[int, ...]) -> Layout:
    """Row-major order kept: bases stay as they are; refused where it would cut a repetition."""
    if prod(shape) != prod(a.shape):
        raise LayoutError(
            f"Shape {a.shape} has {prod(a.shape)} elements and {shape} has {prod(shape)}; they must agree."
        )
    if _digits(shape) != _digits(a.shape):
        raise LayoutError(
            f"Reshape of {a.shape} to {shape} would cut a repetition: an extent c * 2^k (c odd) is held as c copies of "
            f"a power-of-two tile, and the odd factors must keep their places, as in (64, 192) and (64, 3, 64)."
        )
    reps, bits = _tile_of(shape)
    return intern(a.ins, bits, reps)


@cache
def join(a: Layout) -> Layout:
    """New last dimension of 2 in the lowest register bit."""
    ins = _map_bases(a, shift=1)
    ins[0][1].insert(0, 1)
    return make(ins, a.bits + (1,), a.reps + (1,))


@cache
def stack(a: Layout, count: int) -> Layout:
    """New last dimension of 2, or of an odd extent: a repetition."""
    return join(a) if count == 2 else make(a.ins, a.bits + (0,), a.reps + (count,))


@cache
def split(a: Layout) -> Layout:
    """Any part along a last dimension of 2 or an odd extent.  Repetitions are free; a half is only if a register bit,
    and nothing else, selects it."""
    if a.shape and a.bits[-1] == 0:
        return make(a.ins, a.bits[:-1], a.reps[:-1])
    if not a.shape or a.shape[-1] != 2:
        raise LayoutError(f"A split needs a last dimension of extent 2 or an odd one; the shape is {a.shape}.")
    if any(b & 1 for b in a.lane + a.others) or 1 not in Solver(a.reg):
        raise LayoutError(f"Layout {a} spreads the last dimension over threads; a split needs it in registers.")
    return make(_map_bases(a, shift=-1), a.bits[:-1], a.reps[:-1])


# ------------------------------------------------------------------------------------------------ for code generation
@cache
def components(a: Layout, dim: int) -> tuple[tuple[int, ...], Bases, Bases]:
    """Coordinate along `dim` as integers to XOR: (one constant per register, one per lane bit, one per warp bit).

    coordinate = per_register[r] ^ XOR of lane_bases over the set bits of the lane ^ the same for the warp.
    """
    s, mask = a.shifts[dim], (1 << a.bits[dim]) - 1
    f2 = [span_map(a.reg, r) >> s & mask for r in range(1 << len(a.reg))]
    per_register = tuple(a.repetition(q)[dim] | c for q in range(prod(a.reps)) for c in f2)
    return per_register, tuple(b >> s & mask for b in a.lane), tuple(b >> s & mask for b in a.bases("warp"))


@cache
def disjoint(a: Layout, dim: int) -> bool:
    """Whether no register constant of `components` shares a bit with a thread's part: XOR is then ADD and OR too."""
    s, mask = a.shifts[dim], (1 << a.bits[dim]) - 1
    registers = threads = 0
    for b in a.reg:
        registers |= b
    for b in a.lane + a.others:
        threads |= b
    return not (registers & threads) >> s & mask


# ------------------------------------------------------------------------------------------------ text
def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "()"


def parse_shape(text: str) -> tuple[int, ...]:
    return () if text == "()" else tuple(map(int, text.split("x")))


SHAPE_PATTERN = r"(\(\)|\d+(?:x\d+)*)"
_LAYOUT = re.compile(rf"{SHAPE_PATTERN}((?: [a-z]\[[^\]]*\])+)")
_GROUP = re.compile(r" ([a-z])\[([^\]]*)\]")
_TERM = re.compile(r"([a-z])([1-9]\d*)")


def _coords_text(coords: Coords) -> str:
    return "+".join(f"{DIM_LETTERS[d]}{c}" for d, c in enumerate(coords) if c) or "0"


def _parse_coords(text: str, a: Layout) -> int:
    """Packed coordinate of a basis such as `i1+j2`; `a` is any layout of the shape."""
    coords = [0] * len(a.shape)
    for term in text.split("+") if text != "0" else ():
        found = _TERM.fullmatch(term)
        d = DIM_LETTERS.find(found[1]) if found else -1
        if found is None or not 0 <= d < len(coords) or coords[d]:
            raise LayoutError(f"'{text}' is not a basis of a {shape_text(a.shape)} layout; write `0`, `i4` or `i1+j2`.")
        coords[d] = int(found[2])
    packed = a.pack(coords)
    if packed is None:
        tile = shape_text([1 << b for b in a.bits])
        raise LayoutError(f"Basis '{text}' lies outside the {tile} tile that a {shape_text(a.shape)} layout repeats.")
    return packed


def parse_layout(text: str) -> Layout:
    """Inverse of `str`: `128x64 r[j1,j2,i8] l[j4,0,...] w[i16+j2,i32]`; input dimensions by their first letter."""
    found = _LAYOUT.fullmatch(text)
    if not found:
        raise LayoutError(f"'{text}' is not a layout; write it as `128x64 r[j1,j2,...] l[j4,...] w[i16,i32]`.")
    reps, bits = _tile_of(parse_shape(found[1]))
    empty = intern((("register", ()),), bits, reps)
    names = {dim[0]: dim for dim in INPUTS}
    groups = _GROUP.findall(found[2])
    order = [INPUTS.index(names[letter]) for letter, _ in groups if letter in names]
    if len(order) != len(groups) or order != sorted(set(order)) or order[0] not in (0, INPUTS.index("offset")):
        raise LayoutError(f"Layout '{text}' must list r, l, w and c in this order, each at most once, or o alone.")
    ins = [(names[letter], [_parse_coords(t, empty) for t in body.split(",") if t]) for letter, body in groups]
    return make(ins, bits, reps)


# ------------------------------------------------------------------------------------------------ Shape:Stride
Modes = list[tuple[int, int]]  # (extent, stride); the first is the fastest


def _element_index(a: Layout, basis: int) -> int:
    """Offset of a basis in the dense row-major tensor, in elements."""
    return sum(c * s for c, s in zip(a.unpack(basis), row_strides(a.shape)))


def _modes(offsets: Iterable[int]) -> Modes:
    """Bits as modes: a bit joins the mode before it where it doubles its last step (zero after zero too)."""
    out: Modes = []
    for offset in offsets:
        if out and offset == out[-1][0] * out[-1][1]:
            out[-1] = (out[-1][0] * 2, out[-1][1])
        else:
            out.append((2, offset))
    return out


def _repetition_modes(reps: Sequence[int], bits: Sequence[int], shape: Sequence[int]) -> Modes:
    strides = row_strides(shape)
    return [(reps[d], strides[d] << bits[d]) for d in reversed(range(len(reps))) if reps[d] > 1]


def _tuple_text(values: Sequence[int]) -> str:
    text = ",".join(f"_{v}" for v in values)
    return text if len(values) == 1 else f"({text})"


def cute(a: Layout) -> str:
    """`((thread modes),(value modes)):((strides),(strides))`, strides in elements of the row-major tensor.

    Bits collapse inside lane, warp, cta and register, never across; an empty group prints `_1:_0`.  Shape:Stride adds
    where a layout XORs, so a layout whose bases share bits has no such form and prints as `str`.
    """
    if not disjoint_bits(b for _, bs in a.ins for b in bs):
        return str(a)
    thread: Modes = []
    for _, bs in a.ins[1:]:
        thread += _modes(_element_index(a, b) for b in bs)
    value = _modes(_element_index(a, b) for b in a.ins[0][1]) + _repetition_modes(a.reps, a.bits, a.shape)
    groups = [group or [(1, 0)] for group in (thread, value)]
    shape, stride = (",".join(_tuple_text([mode[i] for mode in group]) for group in groups) for i in (0, 1))
    return f"({shape}):({stride})"


def from_shape_stride(
    tile_shape: Sequence[int],
    shape: Sequence[Sequence[int]],
    stride: Sequence[Sequence[int]],
    lanes: int,
    warps: int | None = None,
) -> Layout:
    """The layout of `shape=((thread modes),(value modes)), stride=((thread strides),(value strides))`.

    A mode of extent 2^k and stride s gives the bits s, 2s, ... in elements of the row-major tensor; the first thread
    bits are the lane's.  An odd extent is a repetition: a tile of extents c * 2^k wants all of them among the value
    modes.
    With `warps` given, the thread modes must count exactly lanes * warps.
    """
    reps, bits = _tile_of(tile_shape)
    empty = intern((("register", ()),), bits, reps)
    (thread, extra), (value, repeated) = (_mode_bits(empty, *group) for group in _checked_groups(shape, stride))
    if extra or sorted(repeated) != sorted(_repetition_modes(reps, bits, tile_shape)):
        wanted = _repetition_modes(reps, bits, tile_shape)
        raise LayoutError(
            f"Thread extents must be powers of two, and the odd factors of the value extents must be those of a tile "
            f"{tuple(tile_shape)}: (extent, stride) {wanted}, found {repeated} among values and {extra} among threads."
        )
    found, lane_bits = 1 << len(thread), log2_exact(lanes)
    if found % lanes or warps is not None and found != lanes * warps:
        wanted_text = (
            f"{lanes} lanes x {warps} warps = {lanes * warps}" if warps is not None else f"a multiple of {lanes}"
        )
        raise LayoutError(
            f"The thread extents of a register layout multiply to {found} threads, but the task that executes it wants "
            f"{wanted_text}; change the thread shape or the number of warps."
        )
    out = make([("register", value), ("lane", thread[:lane_bits]), ("warp", thread[lane_bits:])], bits, reps)
    if not out.surjective():
        raise LayoutError(
            f"The register layout shape={tuple(map(tuple, shape))}, stride={tuple(map(tuple, stride))} reaches only "
            f"{prod(reps) << out.solver.rank} of the {prod(tile_shape)} elements of a tile {tuple(tile_shape)}; "
            f"add thread or value modes until every element is covered."
        )
    return out


def _checked_groups(shape: Sequence[Sequence[int]], stride: Sequence[Sequence[int]]) -> list[tuple[Modes, str]]:
    if len(shape) != 2 or len(stride) != 2:
        raise LayoutError("A register layout needs exactly a thread group and a value group in both shape and stride.")
    out: list[tuple[Modes, str]] = []
    for name, extents, strides in zip(("thread", "value"), shape, stride):
        flat = all(isinstance(g, (tuple, list)) and all(isinstance(x, int) for x in g) for g in (extents, strides))
        if not flat or not extents or len(extents) != len(strides):
            raise LayoutError(
                f"The {name} shape {extents} and stride {strides} must be non-empty flat tuples of ints of equal "
                f"length; write (128,), not 128."
            )
        if any(n < 1 for n in extents) or any(s < 0 for s in strides):
            raise LayoutError(f"The {name} extents {extents} must be positive and the strides {strides} not negative.")
        out.append((list(zip(extents, strides)), name))
    return out


def _mode_bits(a: Layout, modes: Modes, name: str) -> tuple[list[int], Modes]:
    """(packed bases of the power-of-two parts, repetitions that the odd parts ask for)."""
    bases: list[int] = []
    repeated: Modes = []
    for extent, stride in modes:
        odd, k = odd_split(extent)
        for i in range(k):
            step = stride << i
            packed = a.pack([step // s % n for s, n in zip(row_strides(a.shape), a.shape)])
            if step >= prod(a.shape) or packed is None:
                raise LayoutError(
                    f"The {name} mode {extent}:{stride} steps by {step} elements, which leaves the power-of-two tile "
                    f"{shape_text([1 << b for b in a.bits])} that shape {a.shape} repeats; use a smaller extent or "
                    f"stride."
                )
            bases.append(packed)
        if odd > 1:
            repeated.append((odd, stride << k))
    return bases, repeated
