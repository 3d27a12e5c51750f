"""Changes of shape, and the conversions of layouts that they bring about: transposes, joins, pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int8, int32, int64

from .indexing import count, row_major
from .support import WARPS, Array, Case, In, Launch, Out, cells, exact, plain, values

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
def pin_kernel(x, out, LAYOUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    offsets = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tlx.require_layout(tl.load(x + offsets), LAYOUT)
    tl.store(out + offsets, tile)


@tlxc.kernel
def twice_pinned_kernel(x, out, FIRST: tl.constexpr, SECOND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    offsets = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tlx.require_layout(tl.load(x + offsets), FIRST)
    tl.store(out + offsets, tlx.require_layout(a, SECOND))


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


def _shape(fn: Any, shape: tuple[int, int]) -> tuple[int, ...]:
    return CHAINS[fn][1](np.empty(shape, np.int8)).shape


def _chain_case(fn: Any, dtype: DType, shape: tuple[int, int], warps: int) -> Case:
    ops, reference = CHAINS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 6 if big else 1
        x = values(rng, dtype, programs * shape[0] * shape[1]).reshape(programs, *shape)
        expect = np.stack([reference(t) for t in x])
        args = {"x": In(x), "out": Out(expect.shape, dtype), "FN": fn, "SHAPE": shape, "OUT": _shape(fn, shape)}
        return Launch((programs,), args, {"out": exact(plain(expect))})

    return Case(f"{fn.__name__}-{dtype}-{shape[0]}x{shape[1]}-w{warps}", chain_kernel, make, warps, cells(ops, dtype.short))


def _flat_case(fn: Any, dtype: DType, shape: tuple[int, int], warps: int) -> Case:
    ops, reference = CHAINS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, shape[0] * shape[1]).reshape(shape)
        expect = reference(x)
        args = {"x": In(x), "out": Out(expect.shape, dtype), "FN": fn, "SHAPE": shape}
        return Launch((1,), args, {"out": exact(plain(expect))})

    return Case(f"flat-{fn.__name__}-{dtype}-w{warps}", flat_kernel, make, warps, cells("reshape " + ops, dtype.short))


def _pointer_case(fn: Any, shape: tuple[int, int], warps: int) -> Case:
    ops, reference = CHAINS[fn]

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, float32, shape[0] * shape[1])
        expect = reference(x.reshape(shape))
        args = {"x": In(x), "out": Out(expect.shape, float32), "FN": fn, "SHAPE": shape}
        return Launch((1,), args, {"out": exact(plain(expect))})

    return Case(f"pointers-{fn.__name__}-w{warps}", pointer_kernel, make, warps, cells(ops + " splat", "ptr"))


def _transpose_case(dtype: DType, tile: tuple[int, int], warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows, columns = (5 * tile[0] - 1, 3 * tile[1] - 1) if big else (tile[0], tile[1] + tile[1] // 2)
        x = values(rng, dtype, rows * columns).reshape(rows, columns)
        args = {"x": In(x), "out": Out((columns, rows), dtype), "rows": rows, "columns": columns, "ROWS": tile[0], "COLUMNS": tile[1]}
        return Launch((-(-rows // tile[0]), -(-columns // tile[1])), args, {"out": exact(plain(x.T))})

    return Case(f"transpose-{dtype}-{tile[0]}x{tile[1]}-w{warps}", transpose_kernel, make, warps)


def _rows_per_thread(rows: int, columns: int, threads: int) -> Any:
    """Threads down the rows, each with a whole row; more threads than rows hold copies."""
    return tlx.layout(shape=((rows, threads // rows), (columns,)), stride=((columns, 0), (1,)))


def _columns_per_thread(rows: int, columns: int, threads: int) -> Any:
    """Threads along the columns, then in blocks down the rows."""
    down = threads // columns
    return tlx.layout(shape=((columns, down), (rows // down,)), stride=((1, columns * (rows // down)), (columns,)))


def _pin_case(dtype: DType, warps: int, twice: bool) -> Case:
    rows, columns, threads = 32, 16, 32 * warps
    first, second = (make(rows, columns, threads) for make in (_rows_per_thread, _columns_per_thread))

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, rows * columns).reshape(rows, columns)
        layouts = {"FIRST": first, "SECOND": second} if twice else {"LAYOUT": first}
        args = {"x": In(x), "out": Out((rows, columns), dtype), **layouts, "ROWS": rows, "COLUMNS": columns}
        return Launch((1,), args, {"out": exact(plain(x))})

    kernel = twice_pinned_kernel if twice else pin_kernel
    return Case(
        f"{'pin-to-pin' if twice else 'pin'}-{dtype}-w{warps}", kernel, make, warps, cells("require_layout", dtype.short),
        amd=False,
    )  # fmt: skip


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
            yield _pin_case(dtype, warps, twice=False)
        for fn in (outer, rotated, interleaved):
            yield _pointer_case(fn, (16, 16), warps)
            yield _flat_case(fn if fn is not outer else new_last, float32, (16, 16), warps)
        for dtype in (int8, float32, int64):
            yield _pin_case(dtype, warps, twice=True)
    for fn in CHAINS:
        for dtype, shape, warps in ((bfloat16, (16, 64), 4), (float32, (64, 8), 1), (int8, (8, 64), 8), (int64, (16, 32), 2)):
            if dtype is bfloat16 or fn not in (outer, rotated, interleaved):
                yield _chain_case(fn, dtype, shape, warps)
    for fn in (same, transposed, new_last, joined, rotary):
        yield _chain_case(fn, float16, (24, 16), 4)
    for fn in (same, transposed, new_last, joined, rows_split):
        yield _chain_case(fn, float32, (16, 80), 2)
    yield from (_pointer_case(fn, (8, 32), 4) for fn in (transposed, halves_joined, flat_and_back))
    for tile in ((64, 16), (16, 128), (64, 64), (8, 8), (128, 4), (16, 48), (80, 32), (96, 16)):
        yield _transpose_case(float16, tile, 4)
    yield from (_transpose_case(float32, (64, 32), warps) for warps in WARPS)
