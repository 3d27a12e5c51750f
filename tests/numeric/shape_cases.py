"""Changes of shape, and the conversions of layouts that they bring about: transposes, joins, pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int8, int64

from .indexing import count, row_major
from .support import WARPS, Array, Case, Cell, In, Launch, Out, cells, exact, plain, values

ALL = list(DTYPES.values())


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def chain_kernel(x, out, FN: tl.constexpr, SHAPE: tl.constexpr, OUT: tl.constexpr):
    """A tile of SHAPE through FN; both in row-major order in memory."""
    pid = tl.program_id(0)
    result = FN(tl.load(x + pid * count(SHAPE) + row_major(SHAPE)))
    tl.static_assert(result.shape == OUT, "the shape of the result")
    tl.store(out + pid * count(OUT) + row_major(OUT), result)


@tlxc.kernel
def flat_kernel(x, out, FN: tl.constexpr, SHAPE: tl.constexpr):
    """The same with both sides as tiles of rank 1."""
    n: tl.constexpr = count(SHAPE)
    tile = FN(tl.load(x + tl.arange(0, n)).reshape(SHAPE))
    m: tl.constexpr = count(tile.shape)
    tl.store(out + tl.arange(0, m), tile.reshape(m))


@tlxc.kernel
def transpose_kernel(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    tile = tl.load(x + r[:, None] * columns + c[None, :], mask=(r[:, None] < rows) & (c[None, :] < columns))
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(tile), mask=(c[:, None] < columns) & (r[None, :] < rows))


@tlxc.kernel
def pointer_kernel(x, out, FN: tl.constexpr, SHAPE: tl.constexpr):
    """A tile of addresses through FN; what is read there is written in row-major order."""
    n: tl.constexpr = count(SHAPE)
    pointers = FN((x + tl.arange(0, n)).reshape(SHAPE))
    tl.store(out + row_major(pointers.shape), tl.load(pointers))


@tlxc.kernel
def pins_kernel(x, out, LAYOUTS: tl.constexpr, N: tl.constexpr):
    """A square tile from pin to pin: each conversion is what the two layouts ask for."""
    place = row_major((N, N))
    tile = tl.load(x + place)
    for i in tl.static_range(len(LAYOUTS)):
        tile = tlx.require_layout(tile, LAYOUTS[i])
    tl.store(out + place, tile)


@tlxc.kernel
def dump_kernel(x, out, BLOCK: tl.constexpr):
    pointers = x + tl.arange(0, BLOCK)
    tlx.dump_layout(pointers)
    tile = tl.load(pointers)
    tlx.dump_layout(tile)
    tl.store(out + tl.arange(0, BLOCK), tile)


def same(t):
    return t


def transposed(t):
    return tl.trans(t)


def twice_transposed(t):
    return t.reshape((t.shape[1], t.shape[0])).T


def outer(t):
    return tl.expand_dims(t, 1).broadcast_to((t.shape[0], 3, t.shape[1]))


def new_last(t):
    return tl.broadcast_to(t[:, :, None], (t.shape[0], t.shape[1], 4))


def rotated(t):
    return tl.permute(t.reshape((t.shape[0], t.shape[1] // 4, 4)), (2, 0, 1))


def reversed_axes(t):
    return t.reshape((t.shape[0] // 2, 2, t.shape[1] // 2, 2)).permute(3, 2, 1, 0)


def joined(t):
    return tl.join(t, t)


def interleaved(t):
    even, odd = tl.split(t.reshape((t.shape[0], t.shape[1] // 2, 2)))
    return tl.join(odd, even)


def halves_joined(t):
    low, high = t.reshape((t.shape[0], 2, t.shape[1] // 2)).permute(0, 2, 1).split()
    return tl.join(low, high)


def rows_split(t):
    first, second = t.reshape((2, t.shape[0] // 2, t.shape[1])).permute(1, 2, 0).split()
    return tl.join(second, first).permute(2, 0, 1).reshape(t.shape)


def rotary(t):
    low, high = t.reshape((t.shape[0], 2, t.shape[1] // 2)).permute(0, 2, 1).split()
    return tl.join(high, low).permute(0, 2, 1).reshape(t.shape)


def thirds(t):
    first, second, third = t.reshape((t.shape[0], 3, t.shape[1] // 3)).permute(0, 2, 1).split()
    return tl.join(tl.join(third, first), tl.join(second, third))


def fifths_of_rows(t):
    parts = t.reshape((5, t.shape[0] // 5, t.shape[1])).permute(1, 2, 0).split()
    return tl.join(parts[4], parts[1])


def flat_and_back(t):
    return t.reshape((t.shape[0] * t.shape[1],)).reshape((t.shape[1], t.shape[0])).T.reshape(t.shape)


# ----------------------------------------------------------------------------------------------------------- references
def _rotary(t: Array) -> Array:
    low, high = np.split(t, 2, 1)
    return np.concatenate([high, low], 1)


# function -> (op kinds, the same in NumPy)
CHAINS: dict[Any, tuple[str, Callable[[Array], Array]]] = {
    same: ("", lambda t: t),
    transposed: ("permute", lambda t: t.T),
    twice_transposed: ("reshape permute", lambda t: t.reshape(t.shape[::-1]).T),
    outer: ("expand_dims broadcast", lambda t: np.repeat(t[:, None], 3, 1)),
    new_last: ("expand_dims broadcast", lambda t: np.repeat(t[:, :, None], 4, 2)),
    rotated: ("reshape permute", lambda t: t.reshape(t.shape[0], -1, 4).transpose(2, 0, 1)),
    reversed_axes: ("reshape permute", lambda t: t.reshape(t.shape[0] // 2, 2, -1, 2).transpose(3, 2, 1, 0)),
    joined: ("join", lambda t: np.stack([t, t], 2)),
    interleaved: ("join split", lambda t: t.reshape(t.shape[0], -1, 2)[:, :, ::-1]),
    halves_joined: ("join split permute", lambda t: t.reshape(t.shape[0], 2, -1).transpose(0, 2, 1)),
    rows_split: ("join split permute", lambda t: np.concatenate(np.split(t, 2, 0)[::-1], 0)),
    rotary: ("join split permute", _rotary),
    flat_and_back: ("reshape permute", lambda t: t.reshape(t.shape[::-1]).T.reshape(t.shape)),
}


def _thirds(t: Array) -> Array:
    first, second, third = np.split(t, 3, 1)
    return np.stack([np.stack([third, first], 2), np.stack([second, third], 2)], 3)


# Of shapes with an odd factor.
ODD_CHAINS: dict[Any, tuple[str, Callable[[Array], Array]]] = {
    thirds: ("join split permute reshape", _thirds),
    fifths_of_rows: ("join split permute reshape", lambda t: np.stack(np.split(t, 5, 0)[4:0:-3], 2)),
}
ALL_CHAINS = CHAINS | ODD_CHAINS


def _shape(fn: Any, shape: tuple[int, int]) -> tuple[int, ...]:
    return ALL_CHAINS[fn][1](np.empty(shape, np.int8)).shape


def _chain_case(fn: Any, dtype: DType, shape: tuple[int, int], warps: int) -> Case:
    ops, reference = ALL_CHAINS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 6 if big else 1
        x = values(rng, dtype, programs * shape[0] * shape[1]).reshape(programs, *shape)
        expect = np.stack([reference(t) for t in x])
        args = {"x": In(x), "out": Out(expect.shape, dtype), "FN": fn, "SHAPE": shape, "OUT": _shape(fn, shape)}
        return Launch((programs,), args, {"out": exact(plain(expect))})

    return Case(
        f"{fn.__name__}-{dtype}-{shape[0]}x{shape[1]}-w{warps}", chain_kernel, make, warps, cells(ops, dtype.short)
    )


def _flat_case(fn: Any, dtype: DType, shape: tuple[int, int], warps: int) -> Case:
    ops, reference = CHAINS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, shape[0] * shape[1]).reshape(shape)
        expect = reference(x)
        args = {"x": In(x), "out": Out(expect.shape, dtype), "FN": fn, "SHAPE": shape}
        return Launch((1,), args, {"out": exact(plain(expect))})

    return Case(f"flat-{fn.__name__}-{dtype}-w{warps}", flat_kernel, make, warps, cells("reshape " + ops, dtype.short))


def _pointer_case(fn: Any, shape: tuple[int, int], warps: int, more: frozenset[Cell] = frozenset()) -> Case:
    ops, reference = CHAINS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, float32, shape[0] * shape[1])
        expect = reference(x.reshape(shape))
        args = {"x": In(x), "out": Out(expect.shape, float32), "FN": fn, "SHAPE": shape}
        return Launch((1,), args, {"out": exact(plain(expect))})

    listed = cells(ops + " splat", "ptr") | more
    return Case(f"pointers-{fn.__name__}-{shape[0]}x{shape[1]}-w{warps}", pointer_kernel, make, warps, listed)


def _transpose_case(dtype: DType, tile: tuple[int, int], warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows, columns = (5 * tile[0] - 1, 3 * tile[1] - 1) if big else (tile[0], tile[1] + tile[1] // 2)
        x = values(rng, dtype, rows * columns).reshape(rows, columns)
        args = {
            "x": In(x),
            "out": Out((columns, rows), dtype),
            "rows": rows,
            "columns": columns,
            "ROWS": tile[0],
            "COLUMNS": tile[1],
        }
        return Launch((-(-rows // tile[0]), -(-columns // tile[1])), args, {"out": exact(plain(x.T))})

    return Case(f"transpose-{dtype}-{tile[0]}x{tile[1]}-w{warps}", transpose_kernel, make, warps)


SQUARE = 32


def _lanes_along_columns(warps: int) -> Any:
    """Each warp has a block of rows, each lane a column of it."""
    rows = SQUARE // warps
    return tlx.layout(shape=((32, warps), (rows,)), stride=((1, SQUARE * rows), (SQUARE,)))


def _lanes_along_rows(warps: int) -> Any:
    """The same block of rows, each lane a run within a row."""
    rows, run = SQUARE // warps, SQUARE // warps
    return tlx.layout(shape=((rows, warps, warps), (run,)), stride=((SQUARE, run, SQUARE * rows), (1,)))


def _warps_along_columns(warps: int) -> Any:
    """Each warp has a block of columns, each lane a row of it."""
    columns = SQUARE // warps
    return tlx.layout(shape=((32, warps), (columns,)), stride=((SQUARE, columns), (1,)))


def _copies(warps: int) -> Any:
    """Every warp has the whole tile, each lane a row."""
    return tlx.layout(shape=((32, warps), (SQUARE,)), stride=((SQUARE, 0), (1,)))


_PINS = {
    "in-warp": (_lanes_along_columns, _lanes_along_rows),
    "across-warps": (_lanes_along_columns, _warps_along_columns),
    "through-copies": (_lanes_along_rows, _copies, _warps_along_columns),
}


def _pins_case(path: str, dtype: DType, warps: int) -> Case:
    layouts = tuple(make(warps) for make in _PINS[path])

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, SQUARE * SQUARE).reshape(SQUARE, SQUARE)
        args = {"x": In(x), "out": Out(x.shape, dtype), "LAYOUTS": layouts, "N": SQUARE}
        return Launch((1,), args, {"out": exact(plain(x))})

    shared = path == "across-warps" and warps > 1
    kinds = "require_layout local_alloc local_store local_load" if shared else "require_layout convert_layout"
    listed = cells(kinds, dtype.short) | (cells("barrier", "-") if shared else frozenset())
    return Case(f"pins-{path}-{dtype}-w{warps}", pins_kernel, make, warps, listed, amd=False)


def _dump_case(dtype: DType, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, 256)
        return Launch((1,), {"x": In(x), "out": Out(256, dtype), "BLOCK": 256}, {"out": exact(plain(x))})

    return Case(f"dump-{dtype}-w{warps}", dump_kernel, make, warps, cells("dump_layout", dtype.short, "ptr"))


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for warps in WARPS:
        for dtype in ALL:
            for fn in (outer, rotated, interleaved):
                yield _chain_case(fn, dtype, (16, 32), warps)
            yield _transpose_case(dtype, (32, 32), warps)
            yield _dump_case(dtype, warps)
            yield from (_pins_case(path, dtype, warps) for path in ("in-warp", "across-warps"))
        for fn in (outer, rotated, interleaved):
            yield _pointer_case(fn, (16, 16), warps)
            yield _flat_case(fn if fn is not outer else new_last, float32, (16, 16), warps)
        yield _pointer_case(interleaved, (4, 8), warps, cells("convert_layout", "ptr"))
        yield from (_pins_case("through-copies", dtype, warps) for dtype in (int8, float32, int64))
    for fn in CHAINS:
        for dtype, shape, warps in (
            (bfloat16, (16, 64), 4),
            (float32, (64, 8), 1),
            (int8, (8, 64), 8),
            (int64, (16, 32), 2),
        ):
            if dtype is bfloat16 or fn not in (outer, rotated, interleaved):
                yield _chain_case(fn, dtype, shape, warps)
    for fn in (same, transposed, new_last, joined, rotary):
        yield _chain_case(fn, float16, (24, 16), 4)
    for fn in (same, transposed, new_last, joined, rows_split):
        yield _chain_case(fn, float32, (16, 80), 2)
    thirds_of = ((float16, (16, 48), 4), (float32, (8, 192), 2), (int64, (4, 6), 1), (int8, (64, 96), 8))
    for dtype, shape, warps in thirds_of:
        yield _chain_case(thirds, dtype, shape, warps)
    for dtype, shape, warps in ((bfloat16, (80, 16), 4), (int8, (10, 8), 1), (float32, (320, 8), 8)):
        yield _chain_case(fifths_of_rows, dtype, shape, warps)
    yield from (_pointer_case(fn, (8, 32), 4) for fn in (transposed, halves_joined, flat_and_back))
    for tile in ((64, 16), (16, 128), (64, 64), (8, 8), (128, 4), (16, 48), (80, 32), (96, 16)):
        yield _transpose_case(float16, tile, 4)
    yield from (_transpose_case(float32, (64, 32), warps) for warps in WARPS)
