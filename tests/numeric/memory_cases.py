"""Global memory: masks, alignments, strides, gathers, scalars, atomics, grids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int1, int8, int32, int64, uint8, uint32, uint64

from .support import (
    WARPS,
    Array,
    Case,
    Expect,
    In,
    InOut,
    Launch,
    Out,
    cells,
    exact,
    plain,
    small_integers,
    storage,
    to_storage,
    values,
    wide,
)

ALL = list(DTYPES.values())
BLOCK = 256


# ------------------------------------------------------------------------------------------------------------- kernels
def no_mask(offsets, n, flag):
    return None


def in_bounds(offsets, n, flag):
    return offsets < n


def every_third(offsets, n, flag):
    return (offsets % 3 == 1) & (offsets < n)


def nothing(offsets, n, flag):
    return offsets < 0


def scalar_mask(offsets, n, flag):
    return flag != 0


@tlxc.kernel
def masked_load_kernel(x, out, n, flag, MASK: tl.constexpr, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=MASK(offsets, n, flag), other=OTHER))


@tlxc.kernel
def masked_store_kernel(x, out, n, flag, MASK: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets), mask=MASK(offsets, n, flag))


@tlxc.kernel
def other_tile_kernel(x, fill, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    fallback = tl.load(fill + offsets)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n, other=fallback))


@tlxc.kernel
def hinted_copy_kernel(x, out, n, LOAD: tl.constexpr, STORE: tl.constexpr, EVICTION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + offsets, cache_modifier=LOAD, eviction_policy=EVICTION)
    tl.store(out + offsets, a, mask=offsets < n, cache_modifier=STORE, eviction_policy=EVICTION)


@tlxc.kernel
def rows_kernel(x, out, rows, columns, x_stride, out_stride, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    tile = tl.load(x + r[:, None] * x_stride + c[None, :] * step, mask=inside)
    tl.store(out + r[:, None] * out_stride + c[None, :], tile, mask=inside)


@tlxc.kernel
def gather_kernel(x, source, target, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + tl.load(source + offsets, mask=inside), mask=inside)
    tl.store(out + tl.load(target + offsets, mask=inside), a, mask=inside)


@tlxc.kernel
def backwards_kernel(x, out, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    last = x + n - 1
    back = offsets.to(WIDE)
    tl.store(out + offsets, tl.load(last - back, mask=inside), mask=inside)


@tlxc.kernel
def scalar_access_kernel(x, out, spread, flag, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    a = tl.load(x + pid)
    b = tl.load(x + pid + 1, mask=flag != 0, other=a)
    tl.store(out + 2 * pid, a)
    tl.store(out + 2 * pid + 1, b, mask=pid != 1)
    tl.store(spread + pid * BLOCK + tl.arange(0, BLOCK), a)


@tlxc.kernel
def grid_kernel(out, BLOCK: tl.constexpr):
    i, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    place = (k * ny + j) * nx + i
    tl.store(out + place * BLOCK + tl.arange(0, BLOCK), i + 10 * j + 100 * k + 1000 * nx + 10000 * ny + 100000 * nz)


@tlxc.kernel
def atomic_kernel(x, index, counters, old, n, SEM: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    where = counters + tl.load(index + offsets, mask=inside)
    before = tl.atomic_add(where, tl.load(x + offsets, mask=inside), mask=inside, sem=SEM, scope=SCOPE)
    tl.store(old + offsets, before)


@tlxc.kernel
def unused_atomic_kernel(x, index, counters, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    where = counters + tl.load(index + offsets, mask=inside)
    tl.atomic_add(where, tl.load(x + offsets, mask=inside), mask=inside, sem="relaxed")


@tlxc.kernel
def ticket_kernel(counter, owner, spread, late, limit, BLOCK: tl.constexpr):
    ticket = tl.atomic_add(counter, 1)
    pid = tl.program_id(0)
    tl.store(owner + ticket, pid)
    tl.store(spread + ticket * BLOCK + tl.arange(0, BLOCK), pid)
    tl.store(late + ticket, tl.atomic_add(counter + 1, 5, mask=ticket < limit))


@tlxc.kernel
def histogram_kernel(x, counters, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    offsets = r[:, None] * COLUMNS + c[None, :]
    value = tl.load(x + offsets, mask=offsets < n)
    tl.atomic_add(counters + value, 1, mask=offsets < n)
    total = tl.sum((offsets < n).to(tl.int32), 1)
    tl.atomic_add(counters + 16 + r % 4, total)


# ----------------------------------------------------------------------------------------------------------- references
def _mask_of(mask: Any, n: int, total: int, flag: int) -> Array:
    i = np.arange(total)
    return {
        no_mask: i >= 0, in_bounds: i < n, every_third: (i % 3 == 1) & (i < n), nothing: i < 0,
        scalar_mask: np.full(total, flag != 0),
    }[mask]  # fmt: skip


MASKS = {no_mask: 1, in_bounds: 1, every_third: 1, nothing: 1, scalar_mask: 1}


def _extent(big: bool) -> tuple[int, int, int]:
    """(programs, n, elements that the programs cover)"""
    programs = 20 if big else 2
    return programs, programs * BLOCK - 37, programs * BLOCK


def _load_case(dtype: DType, mask: Any, other: Any, warps: int, flag: int = 1, offset: int = 0) -> Case:
    """Without a mask the input covers all; else it ends at n, so that an element read beyond is seen."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, total = _extent(big)
        readable = {no_mask: total, nothing: 1, scalar_mask: total if flag else 1}.get(mask, n)
        x = values(rng, dtype, readable)
        masked = _mask_of(mask, n, total, flag)
        whole = np.concatenate([x, np.zeros(total - readable, x.dtype)])
        fill = to_storage(np.array(0 if other is None else other), dtype)
        args = {
            "x": In(x, offset),
            "out": Out(total, dtype),
            "n": n,
            "flag": flag,
            "MASK": mask,
            "OTHER": other,
            "BLOCK": BLOCK,
        }
        return Launch((programs,), args, {"out": exact(plain(np.where(masked, whole, fill)))})

    name = f"load-{dtype}-{mask.__name__}{'' if flag else '-off'}{'' if other is None else f'-{other!r}'}-w{warps}"
    return Case(
        name if not offset else f"{name}-at{offset}", masked_load_kernel, make, warps, cells("load store", dtype.short)
    )


def _store_case(dtype: DType, mask: Any, warps: int, flag: int = 1, offset: int = 0) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, total = _extent(big)
        x = values(rng, dtype, total)
        written = _mask_of(mask, n, total, flag)
        args = {"x": In(x), "out": Out(total, dtype, offset), "n": n, "flag": flag, "MASK": mask, "BLOCK": BLOCK}
        return Launch((programs,), args, {"out": exact(plain(x), written)})

    name = f"store-{dtype}-{mask.__name__}{'' if flag else '-off'}-w{warps}"
    return Case(
        name if not offset else f"{name}-at{offset}", masked_store_kernel, make, warps, cells("load store", dtype.short)
    )


def _other_tile_case(dtype: DType) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, total = _extent(big)
        x, fill = values(rng, dtype, n), values(rng, dtype, total)
        expect = np.concatenate([x, fill[n:]])
        args = {"x": In(x), "fill": In(fill), "out": Out(total, dtype), "n": n, "BLOCK": BLOCK}
        return Launch((programs,), args, {"out": exact(plain(expect))})

    return Case(f"load-{dtype}-other-tile", other_tile_kernel, make, 4)


def _hint_case(load: str, store: str, eviction: str) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, total = _extent(big)
        x = values(rng, float16, total)
        args = {
            "x": In(x),
            "out": Out(total, float16),
            "n": n,
            "LOAD": load,
            "STORE": store,
            "EVICTION": eviction,
            "BLOCK": BLOCK,
        }
        return Launch((programs,), args, {"out": exact(plain(x), np.arange(total) < n)})

    return Case(f"hints-{load or 'none'}-{store or 'none'}-{eviction or 'none'}", hinted_copy_kernel, make, 4)


def _rows_case(dtype: DType, tile: tuple[int, int], pad: int, step: int, warps: int, offset: int = 0) -> Case:
    """A matrix of odd extents, rows `pad` elements apart beyond their end, columns `step` apart."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows, columns = (max(1, 2 * e - 3) for e in tile) if not big else (4 * tile[0] + 1, 3 * tile[1] - 1)
        stride = columns * step + pad
        x = values(rng, dtype, rows * stride)
        matrix = x.reshape(rows, stride)[:, : columns * step : step]
        out = Out((rows, columns + 3), dtype, offset)
        whole = np.concatenate([matrix, np.zeros((rows, 3), x.dtype)], 1)
        written = np.arange(columns + 3)[None, :] < columns
        args = {
            "x": In(x, offset), "out": out, "rows": rows, "columns": columns, "x_stride": stride,
            "out_stride": columns + 3, "step": step, "ROWS": tile[0], "COLUMNS": tile[1],
        }  # fmt: skip
        grid = (-(-rows // tile[0]), -(-columns // tile[1]))
        return Launch(grid, args, {"out": exact(plain(whole), np.broadcast_to(written, whole.shape))})

    return Case(f"rows-{dtype}-{tile[0]}x{tile[1]}-pad{pad}-step{step}-at{offset}-w{warps}", rows_kernel, make, warps)


def _gather_case(dtype: DType, index: DType, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, _ = _extent(big)
        x = values(rng, dtype, 100)
        source, target = rng.integers(0, 100, n), rng.permutation(n + 50)[:n]
        expect, written = np.zeros(n + 50, x.dtype), np.zeros(n + 50, bool)
        expect[target], written[target] = x[source], True
        indices = {"source": In(to_storage(source, index)), "target": In(to_storage(target, index))}
        args = {"x": In(x), **indices, "out": Out(n + 50, dtype), "n": n, "BLOCK": BLOCK}
        return Launch((programs,), args, {"out": exact(plain(expect), written)})

    offset = "i32" if index == int32 else "i64"
    return Case(f"gather-{dtype}-{index}-w{warps}", gather_kernel, make, warps, cells("addptr", "ptr", offset))


def _backwards_case(dtype: DType, index: DType) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, _ = _extent(big)
        x = values(rng, dtype, n)
        args = {"x": In(x), "out": Out(n, dtype), "n": n, "WIDE": index, "BLOCK": BLOCK}
        return Launch((programs,), args, {"out": exact(plain(x[::-1]))})

    return Case(f"backwards-{dtype}-{index}", backwards_kernel, make, 4)


def _scalar_case(dtype: DType, flag: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 5
        x = values(rng, dtype, programs + (1 if flag else 0))
        second = x[1:] if flag else x
        pairs = np.stack([x[:programs], second[:programs]], 1)
        written = np.array([[True, p != 1] for p in range(programs)])
        spread = np.repeat(x[:programs, None], 64, 1)
        args = {
            "x": In(x),
            "out": Out((programs, 2), dtype),
            "spread": Out((programs, 64), dtype),
            "flag": flag,
            "BLOCK": 64,
        }
        return Launch((programs,), args, {"out": exact(plain(pairs), written), "spread": exact(plain(spread))})

    return Case(
        f"scalar-access-{dtype}-{flag}-w{warps}",
        scalar_access_kernel,
        make,
        warps,
        cells("load store splat", dtype.short),
    )


def _bool_bytes_case(warps: int) -> Case:
    """A bool in memory is true where the byte is not 0, and stored as 0 or 1."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n, total = _extent(big)
        raw = rng.choice(np.array([0, 1, 2, 128, 255], np.uint8), total)
        args = {"x": In(raw.view(bool)), "out": Out(total, int1), "n": n, "flag": 1, "MASK": in_bounds, "BLOCK": BLOCK}
        return Launch((programs,), args, {"out": exact(raw != 0, np.arange(total) < n)})

    return Case(f"bool-bytes-w{warps}", masked_store_kernel, make, warps)


def _grid_case(grid: tuple[int, ...], warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        nx, ny, nz = (*grid, 1, 1)[:3]
        k, j, i = np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij")
        value = i + 10 * j + 100 * k + 1000 * nx + 10000 * ny + 100000 * nz
        expect = np.repeat(value.reshape(-1, 1), 32, 1)
        return Launch(grid, {"out": Out(expect.shape, int32), "BLOCK": 32}, {"out": exact(expect)})

    return Case(
        f"grid-{'x'.join(map(str, grid))}-w{warps}", grid_kernel, make, warps, cells("program_id num_programs", "i32")
    )


def _empty_grid_case(grid: tuple[int, ...]) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        return Launch(grid, {"out": Out(64, int32), "BLOCK": 32}, {})

    return Case(f"empty-grid-{'x'.join(map(str, grid))}", grid_kernel, make, 4)


# -------------------------------------------------------------------------------------------------------------- atomics
ATOMIC = [int32, uint32, int64, uint64, float16, bfloat16, float32]


def _atomic_case(
    dtype: DType, warps: int, crowded: bool, block: int = BLOCK, sem: Any = None, scope: Any = None
) -> Case:
    """Crowded: many ones at few addresses, where the old values of a counter are 0, 1, 2 ... in some order.
    Otherwise each element has its own counter, and its old value is the one that stood there."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 12 if big else 2
        n, total = programs * block - 13, programs * block
        counters = max(3, n // 100) if crowded else n + 20
        index = rng.integers(0, counters, n) if crowded else rng.permutation(counters)[:n]
        x = to_storage(np.ones(n, np.int64), dtype) if crowded else small_integers(rng, dtype, n)
        start = small_integers(rng, dtype, counters, 3)
        after = wide(start)
        np.add.at(after, index, wide(x))
        first = wide(start)[index]

        def check(found: Array) -> None:
            got = wide(found)
            assert (got[n:] == 0).all(), "a masked atomic gives 0"
            for c in range(counters):
                mine = np.sort(got[:n][index == c]) - wide(start)[c]
                assert (mine == np.arange(len(mine))).all(), f"old values of counter {c}: {mine[:10]}"

        old = Expect(check=check) if crowded else exact(np.concatenate([first, np.zeros(total - n, first.dtype)]))
        args = {
            "x": In(x), "index": In(index.astype(np.int32)), "counters": InOut(start), "old": Out(total, dtype), "n": n,
            "SEM": sem, "SCOPE": scope, "BLOCK": block,
        }  # fmt: skip
        return Launch((programs,), args, {"counters": exact(after), "old": old})

    kind = "crowded" if crowded else "apart"
    hints = "".join(f"-{h}" for h in (sem, scope) if h)
    listed = cells("atomic_rmw", dtype.short)
    if block < 32 and warps == 1:  # lanes that hold copies get the result through shared memory
        listed |= cells("local_alloc local_store local_load", dtype.short) | cells("barrier", "-")
    return Case(f"atomic-{dtype}-{kind}-{block}{hints}-w{warps}", atomic_kernel, make, warps, listed)


def _unused_atomic_case(dtype: DType, warps: int, block: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        n, counters = 2 * block - 5, 9
        x, index = small_integers(rng, dtype, n), rng.integers(0, counters, n)
        start = small_integers(rng, dtype, counters)
        after = wide(start)
        np.add.at(after, index, wide(x))
        args = {"x": In(x), "index": In(index.astype(np.int32)), "counters": InOut(start), "n": n, "BLOCK": block}
        return Launch((2,), args, {"counters": exact(after)})

    return Case(f"atomic-unused-{dtype}-{block}-w{warps}", unused_atomic_kernel, make, warps)


def _ticket_case(dtype: DType, warps: int) -> Case:
    """A scalar atomic happens once per program, and its result reaches every thread."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, limit = (40, 30) if big else (7, 5)

        def owners(found: Array) -> None:
            assert sorted(found) == list(range(programs)), f"owners {found}"

        def late(found: Array) -> None:
            assert sorted(found) == [0] * (programs - limit) + [5 * i for i in range(limit)], f"old values {found}"

        def tiles(found: Array) -> None:
            assert (found == found[:, :1]).all(), "a program's tile holds one number"
            owners(found[:, 0])

        outs = {"owner": Out(programs, int32), "spread": Out((programs, 128), int32), "late": Out(programs, int32)}
        args = {"counter": InOut(np.zeros(2, storage(dtype))), **outs, "limit": limit, "BLOCK": 128}
        checks = {name: Expect(check=fn) for name, fn in (("owner", owners), ("spread", tiles), ("late", late))}
        return Launch((programs,), args, {"counter": exact(np.array([programs, 5 * limit])), **checks})

    return Case(f"ticket-{dtype}-w{warps}", ticket_kernel, make, warps)


def _histogram_case(tile: tuple[int, int], warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        n = tile[0] * tile[1] - 7
        x = rng.integers(0, 16, n).astype(np.int32)
        inside = (np.arange(tile[0] * tile[1]) < n).reshape(tile)
        rows = np.bincount(np.arange(tile[0]) % 4, inside.sum(1), 4)
        expect = np.concatenate([np.bincount(x, minlength=16), rows]).astype(np.int32)
        args = {"x": In(x), "counters": InOut(np.zeros(20, np.int32)), "n": n, "ROWS": tile[0], "COLUMNS": tile[1]}
        return Launch((1,), args, {"counters": exact(expect)})

    return Case(f"histogram-{tile[0]}x{tile[1]}-w{warps}", histogram_kernel, make, warps)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for warps in WARPS:
        for dtype in ALL:
            yield _load_case(dtype, every_third, None, warps)
            yield _store_case(dtype, in_bounds, warps)
            yield _scalar_case(dtype, 1, warps)
        for index in (int32, int64):
            yield _gather_case(float32, index, warps)
        for dtype in ATOMIC:
            yield _atomic_case(dtype, warps, crowded=True)
        yield _grid_case((3, 2, 2), warps)
        yield _bool_bytes_case(warps)
    yield from _mask_cases()
    yield from _place_cases()
    yield from _atomic_cases()
    yield from (_grid_case(grid, 4) for grid in ((5,), (1,), (1, 3), (2, 1, 3)))
    yield from (_empty_grid_case(grid) for grid in ((0,), (3, 0), (0, 2, 2), (2, 2, 0)))


def _mask_cases() -> Iterator[Case]:
    for dtype in (int8, float16, float32, int64):
        for mask in (no_mask, in_bounds, nothing):
            yield _load_case(dtype, mask, None, 4)
        for flag in (0, 1):
            yield _load_case(dtype, scalar_mask, None, 4, flag)
            yield _store_case(dtype, scalar_mask, 4, flag)
        for mask in (no_mask, every_third, nothing):
            yield _store_case(dtype, mask, 4)
    others: tuple[tuple[DType, tuple[Any, ...]], ...] = (
        (float32, (0, 0.0, -0.0, -np.inf, np.nan, 1.5, True)),
        (float16, (0, -np.inf, np.nan, 7)),
        (bfloat16, (0.0, np.inf, 3)),
        (int8, (0, -7, True)),
        (int64, (0, -(2**40))),
        (uint8, (255,)),
        (int1, (True,)),
    )
    for dtype, fills in others:
        for fill in fills:
            yield _load_case(dtype, in_bounds, fill, 4)
    yield from (_load_case(float32, scalar_mask, np.nan, warps, 0) for warps in (1, 8))
    yield from (_other_tile_case(dtype) for dtype in (int8, bfloat16, float32))
    hints = (
        (".ca", ".wb", "evict_first"),
        (".cg", ".cg", "evict_last"),
        (".cs", ".cs", ""),
        ("", ".wt", "no_allocate"),
    )
    yield from (_hint_case(*h) for h in hints)


def _place_cases() -> Iterator[Case]:
    """Views that start 1 or 8 elements late, rows of odd strides, steps, indices backwards."""
    for dtype in (uint8, bfloat16, float32, int64):
        for offset in (1, 8):
            yield _load_case(dtype, no_mask, None, 4, offset=offset)
            yield _store_case(dtype, in_bounds, 4, offset=offset)
        yield _rows_case(dtype, (16, 64), 0, 1, 4)
        yield _rows_case(dtype, (16, 64), 5, 1, 2, offset=1)
        yield _rows_case(dtype, (8, 32), 16, 2, 4)
        yield _backwards_case(dtype, int32)
    for tile in ((8, 96), (32, 80), (1, 128), (128, 1), (3, 32), (24, 40), (64, 16)):
        yield _rows_case(float16, tile, 3, 1, 4)
    yield from (_rows_case(float32, (16, 48), 7, 3, warps) for warps in WARPS)
    yield from (_backwards_case(float32, index) for index in (int64, uint32))
    yield from (_gather_case(dtype, int64, 4) for dtype in (int8, float16, int64))
    yield from (_scalar_case(dtype, 0, 4) for dtype in (int1, float16, int32, int64))


def _atomic_cases() -> Iterator[Case]:
    for dtype in ATOMIC:
        yield _atomic_case(dtype, 4, crowded=False)
        yield from (_atomic_case(dtype, warps, crowded=True, block=16) for warps in (1, 8))
    for warps in (1, 8):
        yield _atomic_case(float32, warps, crowded=False, block=32)
        yield _unused_atomic_case(int64, warps, 32)
        yield _ticket_case(int64, warps)
    for sem, scope in (("relaxed", "cta"), ("release", "sys"), ("acquire", "gpu")):
        yield _atomic_case(int32, 4, crowded=False, sem=sem, scope=scope)
    yield from (_unused_atomic_case(dtype, 4, 96) for dtype in (int32, float32, float16))
    yield from (_ticket_case(int32, warps) for warps in WARPS)
    yield from (_histogram_case(tile, warps) for tile, warps in (((16, 16), 4), ((8, 24), 2), ((4, 8), 8)))
