"""Tiles in shared memory: arrays of buffers, views of every kind, gathers, scatters and fills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int1, int8, int16, int32, int64, uint8, uint32

from .indexing import count, row_major
from .support import WARPS, Array, Case, Cell, In, Launch, Out, cells, exact, plain, small_integers, storage, values

ALL = list(DTYPES.values())
Shape = tuple[int, ...]


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def tour_kernel(x, turned, part, raw, FROM: tl.constexpr, SHAPE: tl.constexpr):
    """A tile through every kind of view: transposed, its lower half, and as bytes."""
    dtype = tlx.dtype_of(x)
    size: tl.constexpr = tlx.size_of(dtype)
    rows, columns = SHAPE
    base = tl.program_id(0) * rows * columns
    buf = tlx.local_alloc(SHAPE, dtype, 2)[FROM]
    tlx.local_store(buf, tl.load(x + base + row_major(SHAPE)))
    tl.store(turned + base + row_major((columns, rows)), tlx.local_load(tlx.local_trans(buf)))
    half = tlx.local_load(tlx.local_slice(buf, [rows // 2, 0], [rows // 2, columns]))
    tl.store(part + base // 2 + row_major((rows // 2, columns)), half)
    bytes = tlx.local_load(tlx.local_reinterpret(buf, tl.uint8))
    tl.store(raw + base * size + row_major((rows, columns * size)), bytes)


@tlxc.kernel
def array_kernel(x, out, n, SHAPE: tl.constexpr, COUNT: tl.constexpr):
    """n tiles through an array of buffers in turn: one is stored, the one COUNT - 1 trips before is loaded."""
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), COUNT)
    base = tl.program_id(0) * n
    for i in range(n):
        tlx.local_store(buf[i % COUNT], tl.load(x + (base + i) * count(SHAPE) + row_major(SHAPE)))
        j = i - (COUNT - 1)
        if j >= 0:
            tl.store(out + (base + j) * count(SHAPE) + row_major(SHAPE), tlx.local_load(buf[j % COUNT]))


@tlxc.kernel
def permuted_kernel(x, out, back, DIMS: tl.constexpr, SHAPE: tl.constexpr, OUT: tl.constexpr):
    """A tile read through a permuted view, and written through it: `back` is the tile in the original order again."""
    base = tl.program_id(0) * count(SHAPE)
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2)
    tlx.local_store(buf[0], tl.load(x + base + row_major(SHAPE)))
    tile = tlx.local_load(tlx.local_trans(buf[0], DIMS))
    tl.store(out + base + row_major(OUT), tile)
    tlx.local_store(tlx.local_trans(buf[1], DIMS), tile)
    tl.store(back + base + row_major(SHAPE), tlx.local_load(buf[1]))


@tlxc.kernel
def pinned_kernel(x, out, turned, SHAPE: tl.constexpr, LAYOUT: tl.constexpr):
    """A buffer whose layout is the author's."""
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2, layout=LAYOUT)[1]
    tlx.local_store(buf, tl.load(x + row_major(SHAPE)))
    tl.store(out + row_major(SHAPE), tlx.local_load(buf))
    tl.store(turned + row_major((SHAPE[1], SHAPE[0])), tlx.local_load(tlx.local_trans(buf)))


@tlxc.kernel
def turning_kernel(x, out, n, N: tl.constexpr):
    """A square tile transposed in its buffer n times, each time by other threads."""
    base = tl.program_id(0) * N * N
    buf = tlx.local_alloc((N, N), tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + base + row_major((N, N))))
    for _ in range(n):
        tile = tlx.local_load(buf)
        tlx.local_store(tlx.local_trans(buf), tile)
    tl.store(out + base + row_major((N, N)), tlx.local_load(buf))


@tlxc.kernel
def slice_kernel(x, y, part, whole, SHAPE: tl.constexpr, OFFSET: tl.constexpr, BOX: tl.constexpr, TURN: tl.constexpr):
    """A box of a buffer is read, then overwritten with y; TURN: through a transposed view of the box."""
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2)[1]
    tlx.local_store(buf, tl.load(x + row_major(SHAPE)))
    box = tlx.local_slice(buf, OFFSET, BOX)
    if TURN:
        box = tlx.local_trans(box)
    tl.store(part + row_major(box.shape), tlx.local_load(box))
    tlx.local_store(box, tl.load(y + row_major(box.shape)))
    tl.store(whole + row_major(SHAPE), tlx.local_load(buf))


@tlxc.kernel
def reinterpret_kernel(x, out, SHAPE: tl.constexpr, INTO: tl.constexpr, NUM: tl.constexpr):
    """The bytes of the last of NUM buffers as elements of another dtype or another shape."""
    array = tlx.local_alloc(SHAPE, tlx.dtype_of(x), NUM)
    tlx.local_store(array[NUM - 1], tl.load(x + row_major(SHAPE)))
    view = tlx.local_reinterpret(array, tlx.dtype_of(out), INTO)
    tl.store(out + row_major(view.shape), tlx.local_load(view[NUM - 1]))


@tlxc.kernel
def reshape_kernel(x, out, SHAPE: tl.constexpr, INTO: tl.constexpr):
    """Written and read through a view of another shape, which may lie otherwise in the same bytes."""
    view = tlx.local_reshape(tlx.local_alloc(SHAPE, tlx.dtype_of(x))[0], INTO)
    tlx.local_store(view, tl.load(x + row_major(INTO)))
    tl.store(out + row_major(INTO), tlx.local_load(view))


@tlxc.kernel
def gather_kernel(x, index, out, SHAPE: tl.constexpr, FROM: tl.constexpr, AXIS: tl.constexpr):
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + row_major(SHAPE)))
    tl.store(out + row_major(FROM), tlx.local_gather(buf, tl.load(index + row_major(FROM)), AXIS))


@tlxc.kernel
def scatter_kernel(x, y, index, out, SHAPE: tl.constexpr, FROM: tl.constexpr, AXIS: tl.constexpr):
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + row_major(SHAPE)))
    tlx.local_scatter(buf, tl.load(y + row_major(FROM)), tl.load(index + row_major(FROM)), AXIS)
    tl.store(out + row_major(SHAPE), tlx.local_load(buf))


@tlxc.kernel
def fill_kernel(out, value, SHAPE: tl.constexpr, LITERAL: tl.constexpr):
    """Buffers filled with a literal and with a scalar."""
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(out), 2)
    tlx.local_store(buf[0], LITERAL)
    tlx.local_store(buf[1], tl.load(value))
    tl.store(out + row_major(SHAPE), tlx.local_load(buf[0]))
    tl.store(out + count(SHAPE) + row_major(SHAPE), tlx.local_load(buf[1]))


@tlxc.kernel
def branch_kernel(x, out, SHAPE: tl.constexpr):
    """Buffers written in the branches of an `if` on the program, then read by all; a nested loop writes again."""
    pid = tl.program_id(0)
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2)
    tile = tl.load(x + pid * count(SHAPE) + row_major(SHAPE))
    tlx.local_store(buf[0], 0)
    if pid % 2 == 0:
        tlx.local_store(buf[1], tile)
    else:
        tlx.local_store(buf[0], tile)
        tlx.local_store(buf[1], 0)
        for _ in range(pid):
            both = tlx.local_load(buf[0]) + tlx.local_load(buf[1])
            tlx.local_store(buf[1], both)
    tl.store(out + pid * count(SHAPE) + row_major(SHAPE), tlx.local_load(buf[0]) + tlx.local_load(buf[1]))


def exchange(pair, i):
    """Loads one of two buffers that a tuple holds and stores it to the other."""
    a, b = pair
    tlx.local_store(b, tlx.local_load(tlx.local_view(a, i)))


@tlxc.kernel
def helper_kernel(x, out, SHAPE: tl.constexpr):
    """Buffers as arguments, in tuples, and of two allocations."""
    many = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 3)
    one = tlx.local_alloc(SHAPE, tlx.dtype_of(x))[0]
    for i in tl.static_range(3):
        tlx.local_store(many[i], tl.load(x + i * count(SHAPE) + row_major(SHAPE)))
    for i in range(3):
        exchange((many, one), i)
        tl.store(out + i * count(SHAPE) + row_major(SHAPE), tlx.local_load(one))


@tlxc.kernel
def overlap_kernel(x, low, high, N: tl.constexpr, TREE: tl.constexpr):
    """Two arrays of two buffers in one piece of storage: what is written to one stands in the other one's bytes.

    TREE: none, by the array itself, or a shared group, in which buffers with one index start at one place."""
    dtype = tlx.dtype_of(x)
    if TREE == "array":
        wide = tlx.local_alloc((N,), dtype, 2)
        narrow = tlx.local_alloc((N,), tl.int16, 2, reuse=wide)
    else:
        spec = tlx.storage_alias_spec(buffer_size_bytes=32 * N)
        wide = tlx.local_alloc((N,), dtype, 2, reuse=spec)
        narrow = tlx.local_alloc((N,), tl.int16, 2, reuse=spec)
        if TREE == "shared":
            spec.set_buffer_overlap(tlx.reuse_group(wide, narrow))
    for i in tl.static_range(2):
        tlx.local_store(wide[i], tl.load(x + i * N + tl.arange(0, N)))
    tl.store(low + tl.arange(0, N), tlx.local_load(narrow[0]))
    tl.store(high + tl.arange(0, N), tlx.local_load(narrow[1]))


@tlxc.kernel
def phases_kernel(x, out, n, R: tl.constexpr, C: tl.constexpr):
    """One array, then two others in its bytes, which do not touch each other; n times over two buffers each."""
    spec = tlx.storage_alias_spec()
    scores = tlx.local_alloc((R, C), tl.float32, 2, reuse=spec)
    powers = tlx.local_alloc((R, C), tl.float16, 2, reuse=spec)
    scale = tlx.local_alloc((R,), tl.float32, 2, reuse=spec)
    both = tlx.reuse_group(powers, scale, group_type=tlx.reuse_group_type.distinct)
    spec.set_buffer_overlap(tlx.reuse_group(scores, both))
    for i in range(n):
        at = i * R * C + row_major((R, C))
        tlx.local_store(scores[i % 2], tl.load(x + at))
        tile = tlx.local_load(scores[i % 2])
        tlx.local_store(scale[i % 2], tl.sum(tile, 1))
        tlx.local_store(powers[i % 2], (tile * 2).to(tl.float16))
        tl.store(out + at, tlx.local_load(powers[i % 2]).to(tl.float32) + tlx.local_load(scale[i % 2])[:, None])


# --------------------------------------------------------------------------------------------------------------- cases
def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _programs(big: bool) -> int:
    return 7 if big else 1


def _values(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return values(rng, dtype, int(np.prod(shape))).reshape(shape)


def _access(dtype: DType, more: str = "") -> frozenset[Cell]:
    return cells(f"local_alloc local_store local_load {more}", dtype.short)


def _tour_case(dtype: DType, warps: int, which: int, shape: tuple[int, int] = (16, 32)) -> Case:
    rows, columns = shape

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, _programs(big), rows, columns)
        raw = x.view(np.uint8).reshape(len(x), rows, -1)
        outs = {
            "turned": Out((len(x), columns, rows), dtype),
            "part": Out((len(x), rows // 2, columns), dtype),
            "raw": Out(raw.shape, uint8),
        }
        expect = {
            "turned": exact(plain(x.transpose(0, 2, 1))),
            "part": exact(plain(x[:, rows // 2 :])),
            "raw": exact(raw),
        }
        return Launch((len(x),), {"x": In(x), **outs, "FROM": which, "SHAPE": shape}, expect)

    listed = _access(dtype, "local_view local_trans local_slice local_reinterpret")
    return Case(f"views-{dtype}-{_text(shape)}-w{warps}", tour_kernel, make, warps, listed, amd=warps == 4)


def _array_case(dtype: DType, shape: Shape, num: int, trips: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, _programs(big), trips, *shape)
        written = np.broadcast_to((np.arange(trips) <= trips - num).reshape(1, -1, *[1] * len(shape)), x.shape)
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": trips, "SHAPE": shape, "COUNT": num}
        return Launch((len(x),), args, {"out": exact(plain(x), written)})

    name = f"array-{dtype}-{num}x{_text(shape)}-n{trips}-w{warps}"
    return Case(name, array_kernel, make, warps, _access(dtype, "local_view"), amd=False)


def _permuted_case(dtype: DType, shape: Shape, dims: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, _programs(big), *shape)
        turned = x.transpose(0, *(1 + d for d in dims))
        outs = {"out": Out(turned.shape, dtype), "back": Out(x.shape, dtype)}
        args = {"x": In(x), **outs, "DIMS": dims, "SHAPE": shape, "OUT": turned.shape[1:]}
        return Launch((len(x),), args, {"out": exact(plain(turned)), "back": exact(plain(x))})

    name = f"permuted-{dtype}-{_text(shape)}-{''.join(map(str, dims))}-w{warps}"
    return Case(name, permuted_kernel, make, warps, _access(dtype, "local_trans"), amd=False)


def _pinned_case(dtype: DType, shape: tuple[int, int], layout: tlx.swizzled_layout, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, *shape)
        outs = {"out": Out(shape, dtype), "turned": Out(shape[::-1], dtype)}
        args = {"x": In(x), **outs, "SHAPE": shape, "LAYOUT": layout}
        return Launch((1,), args, {"out": exact(plain(x)), "turned": exact(plain(x.T))})

    name = f"pinned-{dtype}-{_text(shape)}-{layout.bits}-{layout.base}-{layout.shift}-w{warps}"
    return Case(name, pinned_kernel, make, warps, _access(dtype, "local_trans"), amd=False)


def _turning_case(dtype: DType, n: int, trips: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, _programs(big), n, n)
        expect = x.transpose(0, 2, 1) if trips % 2 else x
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": trips, "N": n}
        return Launch((len(x),), args, {"out": exact(plain(expect))})

    name = f"turning-{dtype}-{n}-n{trips}-w{warps}"
    return Case(name, turning_kernel, make, warps, _access(dtype, "local_trans") | cells("barrier", "-"))


def _slice_case(dtype: DType, shape: Shape, offset: Shape, box: Shape, warps: int, turn: bool = False) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _values(rng, dtype, *shape), _values(rng, dtype, *box)
        at = tuple(slice(o, o + n) for o, n in zip(offset, box))
        part, whole = x[at], x.copy()
        whole[at] = y
        view = (lambda t: t.T) if turn else (lambda t: t)
        outs = {"part": Out(view(part).shape, dtype), "whole": Out(shape, dtype)}
        args = {
            "x": In(x), "y": In(np.ascontiguousarray(view(y))), **outs, "SHAPE": shape, "OFFSET": offset, "BOX": box,
            "TURN": turn,
        }  # fmt: skip
        return Launch((1,), args, {"part": exact(plain(view(part))), "whole": exact(plain(whole))})

    name = f"slice-{dtype}-{_text(shape)}-at{_text(offset)}-{_text(box)}{'-turned' if turn else ''}-w{warps}"
    return Case(name, slice_kernel, make, warps, _access(dtype, "local_slice"), amd=False)


def _reinterpret_case(source: DType, shape: Shape, target: DType, into: Shape | None, num: int, warps: int) -> Case:
    """Rows keep their bytes, or there is one row: then a view shows the bytes in order."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, source, *shape)
        view = x.view(storage(target))
        result = view.reshape(into or view.shape)
        args = {"x": In(x), "out": Out(result.shape, target), "SHAPE": shape, "INTO": into, "NUM": num}
        return Launch((1,), args, {"out": exact(plain(result))})

    name = f"reinterpret-{source}-{_text(shape)}-{target}-{_text(into or ())}-{num}-w{warps}"
    listed = cells("local_alloc local_store local_reinterpret", source.short) | cells("local_load", target.short)
    return Case(name, reinterpret_kernel, make, warps, listed, amd=False)


def _reshape_case(dtype: DType, shape: Shape, into: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, *into)
        args = {"x": In(x), "out": Out(into, dtype), "SHAPE": shape, "INTO": into}
        return Launch((1,), args, {"out": exact(plain(x))})

    name = f"reshape-{dtype}-{_text(shape)}-{_text(into)}-w{warps}"
    return Case(name, reshape_kernel, make, warps, _access(dtype, "local_reinterpret"), amd=False)


def _gather_case(dtype: DType, shape: Shape, extent: int, axis: int, warps: int, index: DType = int32) -> Case:
    """`extent`: of the indices along the axis."""
    tile = (*shape[:axis], extent, *shape[axis + 1 :])

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, *shape)
        places = rng.integers(0, shape[axis], tile).astype(storage(index))
        args = {"x": In(x), "index": In(places), "out": Out(tile, dtype), "SHAPE": shape, "FROM": tile, "AXIS": axis}
        found = np.take_along_axis(x, places.astype(np.int64), axis)
        return Launch((1,), args, {"out": exact(plain(found))})

    name = f"gather-buffer-{dtype}-{index}-{_text(shape)}-{extent}-axis{axis}-w{warps}"
    listed = cells("local_alloc local_store local_gather", dtype.short)
    return Case(name, gather_kernel, make, warps, listed, amd=False)


def _scatter_case(dtype: DType, shape: Shape, extent: int, axis: int, warps: int) -> Case:
    """Targets differ from each other, so the result is certain."""
    tile = (*shape[:axis], extent, *shape[axis + 1 :])

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _values(rng, dtype, *shape), _values(rng, dtype, *tile)
        order = np.argsort(rng.random(shape), axis)
        places = np.take(order, np.arange(extent), axis).astype(np.int32)
        expect = x.copy()
        np.put_along_axis(expect, places.astype(np.int64), y, axis)
        args = {
            "x": In(x), "y": In(y), "index": In(places), "out": Out(shape, dtype), "SHAPE": shape, "FROM": tile,
            "AXIS": axis,
        }  # fmt: skip
        return Launch((1,), args, {"out": exact(plain(expect))})

    name = f"scatter-buffer-{dtype}-{_text(shape)}-{extent}-axis{axis}-w{warps}"
    return Case(name, scatter_kernel, make, warps, _access(dtype, "local_scatter"), amd=False)


def _fill_case(dtype: DType, literal: Any, shape: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        value = values(rng, dtype, 1)
        first = np.full(shape, literal).astype(storage(dtype))
        both = np.stack([first, np.broadcast_to(value[0], shape)])
        args = {"out": Out(both.shape, dtype), "value": In(value), "SHAPE": shape, "LITERAL": literal}
        return Launch((1,), args, {"out": exact(plain(both))})

    return Case(f"fill-{dtype}-{literal}-{_text(shape)}-w{warps}", fill_kernel, make, warps, _access(dtype), amd=False)


def _branch_case(dtype: DType, shape: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 8 if big else 4
        x = rng.integers(-3, 4, (programs, *shape)).astype(storage(dtype))
        pid = np.arange(programs).reshape(-1, *[1] * len(shape))
        scale = np.where(pid % 2 == 0, 1, 1 + pid)
        expect = (x.astype(np.int64) * scale).astype(storage(dtype))
        return Launch((programs,), {"x": In(x), "out": Out(x.shape, dtype), "SHAPE": shape}, {"out": exact(expect)})

    return Case(f"buffers-in-branches-{dtype}-{_text(shape)}-w{warps}", branch_kernel, make, warps, _access(dtype))


def _helper_case(dtype: DType, shape: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, 3, *shape)
        return Launch((1,), {"x": In(x), "out": Out(x.shape, dtype), "SHAPE": shape}, {"out": exact(plain(x))})

    return Case(f"buffers-in-helpers-{dtype}-{_text(shape)}-w{warps}", helper_kernel, make, warps, _access(dtype))


def _overlap_case(dtype: DType, tree: str, n: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, 2, n)
        halves = x.view(np.int16)
        high = halves[1, :n] if tree == "shared" else halves.ravel()[n : 2 * n]
        args = {"x": In(x), "low": Out(n, int16), "high": Out(n, int16), "N": n, "TREE": tree}
        return Launch((1,), args, {"low": exact(halves[0, :n]), "high": exact(high)})

    listed = cells("buffer_overlap", "-") if tree == "shared" else _access(int16) & cells("local_load", "i16")
    return Case(f"overlap-{dtype}-{tree}-{n}-w{warps}", overlap_kernel, make, warps, listed, amd=False)


def _phases_case(shape: tuple[int, int], trips: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, float32, trips * shape[0] * shape[1]).reshape(trips, *shape)
        expect = 2 * plain(x) + plain(x).sum(2, keepdims=True)
        args = {"x": In(x), "out": Out(x.shape, float32), "n": trips, "R": shape[0], "C": shape[1]}
        return Launch((1,), args, {"out": exact(expect, signed_zero=False)})

    name = f"overlap-phases-{_text(shape)}-n{trips}-w{warps}"
    return Case(name, phases_kernel, make, warps, cells("buffer_overlap", "-"), amd=False)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for warps in WARPS:
        for i, dtype in enumerate(ALL):
            yield _tour_case(dtype, warps, i % 2)
            if dtype != int1:
                yield _gather_case(dtype, (16, 32), 8, i % 2, warps)
                yield _scatter_case(dtype, (32, 16), 16, i % 2, warps)
    yield from _shape_cases()
    yield from _view_cases()
    yield from _index_cases()
    for i, warps in enumerate(WARPS):
        for tree in ("none", "array", "shared"):
            yield _overlap_case((float32, int64, uint32, int32)[i], tree, 128, warps)
        yield from (_phases_case((16, 64), trips, warps) for trips in (1, 4))
    fills = ((float32, -0.5), (int8, 7), (int1, True), (int64, 0))
    yield from (_fill_case(dtype, value, (16, 16), 4) for dtype, value in fills)
    yield from (_branch_case(dtype, shape, w) for dtype, shape, w in ((int32, (16, 32), 4), (int16, (64,), 2)))
    yield from (_helper_case(dtype, shape, w) for dtype, shape, w in ((float16, (32, 32), 4), (int8, (128,), 1)))


def _shape_cases() -> Iterator[Case]:
    """Arrays of 1 to 4 buffers, trips around their number; extents with odd factors; one to three dimensions."""
    for num in (1, 2, 3, 4):
        for trips in sorted({0, 1, num, 2 * num + 1}):
            yield _array_case(float16, (16, 64), num, trips, 4)
    shapes: tuple[Shape, ...] = (
        (1,), (96,), (1024,), (8, 8), (24, 40), (80, 64), (3, 32), (64, 3), (128, 16), (4, 8, 32), (2, 3, 16),
        (1, 1, 64),
    )  # fmt: skip
    for i, shape in enumerate(shapes):
        yield _array_case((float32, int8, bfloat16, int64)[i % 4], shape, 2, 3, WARPS[i % 4])
    for warps in WARPS:
        yield _turning_case(float32, 32, 3, warps)
        yield _turning_case(float16, 64 if warps > 2 else 32, 4, warps)
    yield _turning_case(int8, 32, 5, 4)


def _view_cases() -> Iterator[Case]:
    for i, pin in enumerate(((0, 3, 3), (1, 3, 3), (2, 3, 3), (3, 3, 3), (2, 2, 4))):
        yield _pinned_case(float16, (16, 64), tlx.swizzled_layout(*pin), WARPS[i % 4])
    for i, pin in enumerate(((0, 2, 3), (1, 2, 4), (2, 2, 3), (3, 2, 3), (2, 3, 4))):
        yield _pinned_case(float32, (32, 32), tlx.swizzled_layout(*pin), WARPS[3 - i % 4])
    for warps in (1, 4, 8):
        yield _permuted_case(float16, (32, 64), (1, 0), warps)
        yield _permuted_case(int8, (16 * warps, 32), (1, 0), warps)
    yield from (_permuted_case(float32, (4, 8, 32), dims, 4) for dims in ((2, 1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1)))
    yield _permuted_case(bfloat16, (24, 48), (1, 0), 2)
    boxes: tuple[tuple[DType, Shape, Shape, Shape], ...] = (
        (float16, (64, 128), (8, 64), (16, 64)),  # a column block of the 128-byte swizzle
        (float16, (64, 128), (0, 0), (64, 64)),
        (float32, (32, 96), (16, 32), (8, 64)),
        (int8, (16, 64), (8, 0), (8, 64)),
        (bfloat16, (32, 24), (8, 8), (16, 16)),  # rows without a swizzle
        (float32, (256,), (64,), (128,)),
        (int64, (4, 8, 16), (2, 0, 0), (2, 8, 16)),
    )
    for i, (dtype, shape, offset, box) in enumerate(boxes):
        yield _slice_case(dtype, shape, offset, box, WARPS[(i + 2) % 4])
    yield _slice_case(float16, (64, 128), (8, 64), (16, 64), 4, turn=True)
    yield _slice_case(float32, (32, 64), (8, 32), (8, 32), 2, turn=True)
    views: tuple[tuple[DType, Shape, DType, Shape | None, int], ...] = (
        (float32, (16, 32), int32, None, 1),
        (int32, (16, 32), float32, None, 2),
        (uint32, (16, 32), int16, None, 3),
        (int16, (16, 64), int64, None, 2),
        (uint8, (512,), int32, None, 1),
        (float32, (256,), int16, (512,), 2),
        (int64, (2, 8, 16), int64, (16, 16), 1),
        (int8, (8, 8, 128), int32, (64, 32), 2),
    )
    for i, (source, shape, target, into, num) in enumerate(views):
        yield _reinterpret_case(source, shape, target, into, num, WARPS[(i + 1) % 4])
    yield _reshape_case(float16, (64, 32), (2048,), 4)
    yield _reshape_case(float32, (512,), (16, 32), 4)
    yield _reshape_case(int8, (16, 96), (4, 12, 32), 4)


def _index_cases() -> Iterator[Case]:
    """Along every axis of one to three dimensions; more and fewer indices than elements."""
    for axis in range(3):
        yield _gather_case(float32, (4, 8, 16), 8, axis, 4)
        yield _scatter_case(float32, (4, 8, 16), 4, axis, 4)
    for dtype, extent in ((float16, 512), (int8, 64), (float32, 256)):
        yield _gather_case(dtype, (256,), extent, 0, 4)
    yield from (_scatter_case(float16, (256,), extent, 0, warps) for extent, warps in ((256, 8), (32, 1)))
    yield from (_gather_case(float16, (64, 64), 96, axis, 4, index) for axis, index in ((0, int64), (1, uint8)))
