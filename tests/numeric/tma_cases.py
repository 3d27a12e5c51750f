"""Asynchronous copies: TMA by descriptors, bulk copies, groups of `cp.async`.

Blocks lie over the edges of their tensors on every side; what is outside reads as padding and is never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import (
    DTYPES,
    DType,
    bfloat16,
    float16,
    float32,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)

from .indexing import count, row_major
from .support import (
    WARPS,
    Array,
    Case,
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
)

ALL = [d for d in DTYPES.values() if d != int1]
Shape = tuple[int, ...]


# ------------------------------------------------------------------------------------------------------------- kernels
def program(axis: tl.constexpr):
    """The program along an axis of the grid, 0 beyond the third."""
    return tl.program_id(axis) if axis < 3 else 0


def corner(SHAPE: tl.constexpr, START: tl.constexpr):
    """Where the block of this program starts, as a tuple of offsets."""
    places = ()
    for d in tl.static_range(len(SHAPE)):
        places = places + (program(d) * SHAPE[d] + START[d],)
    return places


def serial():
    """Programs in the order of their blocks, the last dimension fastest."""
    return (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)


@tlxc.kernel
def load_kernel(x, out, SHAPE: tl.constexpr, START: tl.constexpr, EVICTION: tl.constexpr, PREFETCH: tl.constexpr):
    """One block per program."""
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc(SHAPE, dtype)[0]
    bar = tlx.alloc_barriers(1)[0]
    if PREFETCH:
        tlx.prefetch_descriptor(x)
        tlx.async_descriptor_prefetch_tensor(x, corner(SHAPE, START), eviction_policy=EVICTION)
    tlx.barrier_expect_bytes(bar, count(SHAPE) * tlx.size_of(dtype))
    tlx.async_descriptor_load(x, buf, corner(SHAPE, START), bar, eviction_policy=EVICTION)
    tlx.barrier_wait(bar, 0)
    tl.store(out + serial() * count(SHAPE) + row_major(SHAPE), tlx.local_load(buf))


@tlxc.kernel
def store_kernel(x, out, SHAPE: tl.constexpr, START: tl.constexpr, EVICTION: tl.constexpr, REDUCE: tl.constexpr):
    """One block per program, written or combined with what is there."""
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + serial() * count(SHAPE) + row_major(SHAPE)))
    tlx.async_descriptor_store(out, buf, corner(SHAPE, START), eviction_policy=EVICTION, store_reduce=REDUCE)
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def sync_kernel(x, out, SHAPE: tl.constexpr, START: tl.constexpr):
    """Descriptors without buffers and barriers, in a loop that comes twice to the same place."""
    for _ in range(2):
        out.store(corner(SHAPE, START), x.load(corner(SHAPE, START)))


@tlxc.kernel
def task_copies_kernel(x, out, n, SHAPE: tl.constexpr, COPIES: tl.constexpr):
    """The same in copies of a task at once: each has a buffer and a barrier of its own, and n blocks of rows."""
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                out.store([i * SHAPE[0], 0], x.load([i * SHAPE[0], 0]))
        with tlx.async_task(num_warps=2, replicate=COPIES):
            first = (1 + tlx.async_task_replica_id()) * n
            for i in range(first, first + n):
                if i % 2 == 0:
                    out.store([i * SHAPE[0], 0], x.load([i * SHAPE[0], 0]))
                else:
                    out.store([i * SHAPE[0], 0], x.load([i * SHAPE[0] - SHAPE[0], 0]))


@tlxc.kernel
def ring_kernel(x, out, n, SHAPE: tl.constexpr, STAGES: tl.constexpr):
    """n blocks of rows through a ring of buffers, loads ahead by STAGES - 1 under a predicate, stores from the ring."""
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc(SHAPE, dtype, STAGES)
    bar = tlx.alloc_barriers(STAGES)
    bytes: tl.constexpr = count(SHAPE) * tlx.size_of(dtype)
    for i in tl.static_range(STAGES - 1):
        tlx.barrier_expect_bytes(bar[i], bytes, pred=i < n)
        tlx.async_descriptor_load(x, buf[i], [i * SHAPE[0], 0], bar[i], pred=i < n)
    for i in range(n):
        ahead = i + STAGES - 1
        tlx.async_descriptor_store_wait(0, read=True)  # the store of the last trip has left the buffer that is next
        tlx.barrier_expect_bytes(bar[ahead % STAGES], bytes, pred=ahead < n)
        tlx.async_descriptor_load(x, buf[ahead % STAGES], [ahead * SHAPE[0], 0], bar[ahead % STAGES], pred=ahead < n)
        s, p = tlx.get_bufidx_phase(i, STAGES)
        tlx.barrier_wait(bar[s], p)
        tlx.async_descriptor_store(out, buf[s], [i * SHAPE[0], 0])
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def wider_kernel(x, out, SHAPE: tl.constexpr):
    """A buffer with more dimensions than the block, all of extent 1."""
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc((1, 1) + SHAPE, dtype)[0]
    bar = tlx.alloc_barriers(1)[0]
    tlx.barrier_expect_bytes(bar, count(SHAPE) * tlx.size_of(dtype))
    tlx.async_descriptor_load(x, buf, [0, 0], bar)
    tlx.barrier_wait(bar, 0)
    tlx.async_descriptor_store(out, buf, [0, 0])
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def bulk_kernel(x, out, size, BLOCK: tl.constexpr, BYTES: tl.constexpr):
    """`BYTES` in and out again, the whole buffer where None; then `size` bytes, known at run time, out once more."""
    dtype = tlx.dtype_of(x)
    base = tl.program_id(0) * BLOCK
    buf = tlx.local_alloc((BLOCK,), dtype)[0]
    bar = tlx.alloc_barriers(1)[0]
    tlx.barrier_expect_bytes(bar, BLOCK * tlx.size_of(dtype) if BYTES is None else BYTES)
    tlx.async_load(x + base, buf, bulk=True, bulk_size=BYTES, barrier=bar)
    tlx.barrier_wait(bar, 0)
    tlx.async_store(out + 2 * base, buf, BYTES)
    tlx.async_store(out + 2 * base + BLOCK, buf, size)
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def copy_kernel(
    x, out, total, stride, SHAPE: tl.constexpr, MASK: tl.constexpr, OTHER: tl.constexpr, CACHE: tl.constexpr
):
    """A tile whose rows are `stride` apart, by the threads; MASK: all, none, or the elements before `total`."""
    rows, columns = SHAPE
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x))[0]
    at = (tl.program_id(0) * rows + tl.arange(0, rows)[:, None]) * stride + tl.arange(0, columns)[None, :]
    if MASK == "none":
        token = tlx.async_load(x + at, buf, cache_modifier=CACHE)
    elif MASK == "some":
        token = tlx.async_load(x + at, buf, mask=at < total, other=OTHER)
    else:
        token = tlx.async_load(x + at, buf, mask=total < 0, other=OTHER)
    token = tlx.async_load_commit_group([token])
    token = tlx.async_load_wait_group(0, [token])
    tl.store(out + tl.program_id(0) * count(SHAPE) + row_major(SHAPE), tlx.local_load(buf, token))


@tlxc.kernel
def groups_kernel(x, out, n, SHAPE: tl.constexpr, STAGES: tl.constexpr):
    """n tiles through a ring of buffers, groups of copies ahead by STAGES - 1."""
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), STAGES)
    size: tl.constexpr = count(SHAPE)
    for i in tl.static_range(STAGES - 1):
        tlx.async_load(x + i * size + row_major(SHAPE), buf[i], mask=i < n)
        tlx.async_load_commit_group()
    for i in range(n):
        ahead = i + STAGES - 1
        tlx.async_load(x + ahead * size + row_major(SHAPE), buf[ahead % STAGES], mask=ahead < n)
        tlx.async_load_commit_group()
        tlx.async_load_wait_group(STAGES - 1)
        tl.store(out + i * size + row_major(SHAPE), tlx.local_load(buf[i % STAGES]))
    tlx.async_load_wait_group(0)


# ---------------------------------------------------------------------------------------------------------- references
def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _values(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return values(rng, dtype, int(np.prod(shape))).reshape(shape)


def _small(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return small_integers(rng, dtype, int(np.prod(shape))).reshape(shape)


def _tensor_shape(block: Shape, dtype: DType, big: bool) -> Shape:
    """Extents that no block divides; the innermost one is a multiple of 16 bytes, as strides must be."""
    blocks = 3 if big else 2
    extents = [max(1, blocks * n - 3) for n in block]
    chunk = 16 // dtype.bytes
    extents[-1] = max(chunk, blocks * block[-1] - chunk)
    return tuple(extents)


def _grid(shape: Shape, block: Shape, start: Shape) -> tuple[int, int, int]:
    """Programs along the first three dimensions, which cover the tensor from `start` on."""
    counts = [max(1, -(-(extent - s) // n)) for extent, n, s in zip(shape, block, start)][:3]
    return (*counts, *(1,) * (3 - len(counts)))  # type: ignore[return-value]


def _boxes(grid: Shape, block: Shape, start: Shape) -> list[tuple[int, ...]]:
    """The corners of all programs in the order of `serial`."""
    places = product(*(range(g) for g in grid))
    full = [(*p, *(0,) * len(block))[: len(block)] for p in places]
    return [tuple(i * n + s for i, n, s in zip(p, block, start)) for p in full]


def _inside(corner_: Shape, block: Shape, shape: Shape) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """(in the block, in the tensor): what of a block lies inside the tensor."""
    inner, outer = [], []
    for at, n, extent in zip(corner_, block, shape):
        low, high = min(max(at, 0), extent), max(min(at + n, extent), 0)
        outer.append(slice(low, max(low, high)))
        inner.append(slice(low - at, max(low, high) - at))
    return tuple(inner), tuple(outer)


def _cut(x: Array, corners: list[Shape], block: Shape, fill: float) -> Array:
    """The blocks of a tensor; `fill` stands outside."""
    out = np.full((len(corners), *block), fill).astype(x.dtype)
    for i, at in enumerate(corners):
        inner, outer = _inside(at, block, x.shape)
        out[(i, *inner)] = x[outer]
    return out


# --------------------------------------------------------------------------------------------------------------- cases
def _start(dtype: DType, block: Shape, sign: int) -> Shape:
    """Where the first block begins: at the origin, before it or inside; whole chunks of 16 bytes from it."""
    chunk = 16 // dtype.bytes
    return (*(sign * (n // 2 + 1) for n in block[:-1]), sign * (block[-1] // 2 // chunk + 1) * chunk)


def _load_case(
    dtype: DType, block: Shape, warps: int, negative: bool = False, eviction: str = "", padding: str = "zero",
    prefetch: bool = False,
) -> Case:  # fmt: skip
    start = _start(dtype, block, -1 if negative else 0)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, *_tensor_shape(block, dtype, big))
        grid = _grid(x.shape, block, start)
        expect = _cut(x, _boxes(grid, block, start), block, np.nan if padding == "nan" else 0)
        args = {
            "x": In(x, block=block, padding=padding), "out": Out(expect.shape, dtype), "SHAPE": block, "START": start,
            "EVICTION": eviction, "PREFETCH": prefetch,
        }  # fmt: skip
        return Launch(grid, args, {"out": exact(plain(expect))})

    more = "".join(f"-{t}" for t in ("before" if negative else "", eviction, padding if padding != "zero" else "") if t)
    others = "tma_prefetch prefetch_descriptor" if prefetch else "barrier_expect"
    listed = cells("tma_load", dtype.short) | cells(others, "-")
    name = f"tma-load-{dtype}-{_text(block)}{more}{'-prefetch' if prefetch else ''}-w{warps}"
    return Case(name, load_kernel, make, warps, listed, amd=False)


# What a reducing store computes, per element; integers wrap.
_REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def _store_case(
    dtype: DType, block: Shape, warps: int, inside: bool = False, eviction: str = "", reduce: str = ""
) -> Case:
    """`inside`: the first block begins inside the tensor; a store may not begin before it."""
    start = _start(dtype, block, 1 if inside else 0)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        shape = _tensor_shape(block, dtype, big)
        grid = _grid(shape, block, start)
        corners = _boxes(grid, block, start)
        draw = _small if reduce else _values
        x = draw(rng, dtype, len(corners), *block)
        target = InOut(draw(rng, dtype, *shape), block=block) if reduce else Out(shape, dtype, block=block)
        expect = np.array(target.data)
        written = np.zeros(shape, bool)
        for i, at in enumerate(corners):
            inner, outer = _inside(at, block, shape)
            new = x[(i, *inner)]
            expect[outer] = _combine(reduce, expect[outer], new, dtype) if reduce else new
            written[outer] = True
        args = {"x": In(x), "out": target, "SHAPE": block, "START": start, "EVICTION": eviction, "REDUCE": reduce}
        return Launch(grid, args, {"out": exact(plain(expect), written, signed_zero=not reduce)})

    more = "".join(f"-{t}" for t in ("inside" if inside else "", eviction, reduce) if t)
    listed = cells("tma_store", dtype.short) | cells("tma_store_wait fence_async_shared", "-")
    return Case(f"tma-store-{dtype}-{_text(block)}{more}-w{warps}", store_kernel, make, warps, listed, amd=False)


def _combine(reduce: str, old: Array, new: Array, dtype: DType) -> Array:
    fn = _REDUCTIONS[reduce]
    if dtype.is_float:
        return to_storage(fn(old.astype(np.float64), new.astype(np.float64)), dtype)
    return fn(old, new)


def _sync_case(dtype: DType, block: Shape, warps: int) -> Case:
    start = _start(dtype, block, 0)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, *_tensor_shape(block, dtype, big))
        grid = _grid(x.shape, block, start)
        args = {"x": In(x, block=block), "out": Out(x.shape, dtype, block=block), "SHAPE": block, "START": start}
        return Launch(grid, args, {"out": exact(plain(x))})

    listed = cells("tma_load tma_store", dtype.short)
    return Case(f"desc-load-store-{dtype}-{_text(block)}-w{warps}", sync_kernel, make, warps, listed, amd=False)


def _task_copies_case(dtype: DType, block: tuple[int, int], trips: int, copies: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, (1 + copies) * trips, *block)
        rows = np.arange(len(x))
        expect = x[rows - ((rows >= trips) & (rows % 2 == 1))].reshape(-1, block[1])
        args = {
            "x": In(x.reshape(expect.shape), block=block), "out": Out(expect.shape, dtype, block=block), "n": trips,
            "SHAPE": block, "COPIES": copies,
        }  # fmt: skip
        return Launch((1,), args, {"out": exact(plain(expect))})

    name = f"desc-in-tasks-{dtype}-{block[0]}x{block[1]}-n{trips}-c{copies}"
    listed = cells("tma_load tma_store", dtype.short) | cells("async_tasks", "-")
    return Case(name, task_copies_kernel, make, 4, listed, amd=False)


def _ring_case(dtype: DType, block: Shape, stages: int, trips: int, warps: int) -> Case:
    """The last block is not whole."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows = max(1, trips * block[0] - 3)
        x = _values(rng, dtype, rows, block[1])
        written = np.broadcast_to(np.arange(rows)[:, None] < trips * block[0], x.shape)
        args = {"x": In(x, block=block), "out": Out(x.shape, dtype, block=block), "n": trips, "SHAPE": block,
                "STAGES": stages}  # fmt: skip
        return Launch((1,), args, {"out": exact(plain(x), written)})

    listed = cells("tma_load tma_store", dtype.short) | cells("barrier_wait barrier_expect tma_store_wait", "-")
    name = f"tma-ring-{dtype}-{_text(block)}-s{stages}-n{trips}-w{warps}"
    return Case(name, ring_kernel, make, warps, listed, amd=False)


def _wider_case(dtype: DType, block: Shape) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, *block)
        args = {"x": In(x, block=block), "out": Out(block, dtype, block=block), "SHAPE": block}
        return Launch((1,), args, {"out": exact(plain(x))})

    listed = cells("tma_load tma_store", dtype.short)
    return Case(f"tma-wider-{dtype}-{_text(block)}", wider_kernel, make, 4, listed, amd=False)


def _bulk_case(dtype: DType, block: int, bytes_: int | None, size: int, warps: int) -> Case:
    """Only what was loaded is stored again, so `size` is at most `bytes_`."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, 9 if big else 2, block)
        both = np.stack([x, x], 1)
        whole = block if bytes_ is None else bytes_ // dtype.bytes
        written = np.arange(block)[None, :] < np.array([whole, size // dtype.bytes])[:, None]
        args = {"x": In(x), "out": Out(both.shape, dtype), "size": size, "BLOCK": block, "BYTES": bytes_}
        return Launch((len(x),), args, {"out": exact(plain(both), np.broadcast_to(written, both.shape))})

    listed = cells("bulk_load bulk_store", dtype.short)
    return Case(f"bulk-{dtype}-{block}-{bytes_}-{size}-w{warps}", bulk_kernel, make, warps, listed, amd=False)


def _copy_case(
    dtype: DType, shape: tuple[int, int], mask: str, other: float | None, warps: int, cache: str = "", pad: int = 0,
    cut: int = 0,
) -> Case:  # fmt: skip
    """`pad` elements between rows; `cut` elements at the end are masked where mask is "some"."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, (rows, columns) = 7 if big else 2, shape
        stride = columns + pad
        x = _values(rng, dtype, programs * rows, stride)
        total = x.size - cut
        tile = x[:, :columns].reshape(programs, rows, columns)
        at = np.arange(programs * rows)[:, None] * stride + np.arange(columns)
        kept = {"none": at >= 0, "some": at < total, "all": at < 0}[mask].reshape(tile.shape)
        expect = np.where(kept, tile, np.asarray(other or 0).astype(storage(dtype)))
        args = {
            "x": In(x), "out": Out(expect.shape, dtype), "total": total, "stride": stride, "SHAPE": shape, "MASK": mask,
            "OTHER": other, "CACHE": cache,
        }  # fmt: skip
        return Launch((programs,), args, {"out": exact(plain(expect))})

    name = f"async-load-{dtype}-{_text(shape)}-{mask}-{other}{cache}-pad{pad}-cut{cut}-w{warps}"
    listed = cells("async_load", dtype.short) | cells("async_load_commit async_load_wait", "-")
    return Case(name, copy_kernel, make, warps, listed, amd=False)


def _groups_case(dtype: DType, shape: Shape, stages: int, trips: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, trips, *shape)
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": trips, "SHAPE": shape, "STAGES": stages}
        return Launch((1,), args, {"out": exact(plain(x))})

    listed = cells("async_load", dtype.short) | cells("async_load_commit async_load_wait", "-")
    name = f"groups-{dtype}-{_text(shape)}-s{stages}-n{trips}-w{warps}"
    return Case(name, groups_kernel, make, warps, listed, amd=False)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for warps in WARPS:
        for i, dtype in enumerate(ALL):
            block = (8 * (1 + i % 3), 64 // dtype.bytes)
            yield _load_case(dtype, block, warps, negative=i % 2 == 0, prefetch=True)
            yield _store_case(dtype, block, warps, inside=i % 2 == 1)
            yield _bulk_case(dtype, 128, None, 64, warps)
            yield _copy_case(dtype, (8 * max(1, warps // 2), 32), "some", None, warps, cut=16)
    yield from _block_cases()
    yield from _reduce_cases()
    yield from _ring_cases()
    yield from _bulk_cases()
    yield from _copy_cases()


def _block_cases() -> Iterator[Case]:
    """Widths of 16 to 256 columns, every swizzle, one to five dimensions, blocks of many boxes."""
    for i, columns in enumerate((16, 24, 32, 48, 64, 96, 128, 256)):
        for dtype in (float16, float32, int8):
            if columns * dtype.bytes % 16 == 0:
                yield _load_case(dtype, (16, columns), WARPS[i % 4], negative=i % 2 == 1)
        yield _store_case(float16, (24, columns), WARPS[i % 4], inside=i % 2 == 0)
    others: tuple[tuple[DType, Shape], ...] = (
        (float32, (64,)), (float16, (512,)), (int64, (16,)), (bfloat16, (1, 64)), (float16, (12, 32)),
        (uint8, (320, 16)), (float32, (4, 8, 32)), (int16, (4, 6, 24)), (float16, (2, 1, 8, 64)),
        (int32, (2, 1, 2, 4, 8)), (float16, (288, 8)),
    )  # fmt: skip
    for i, (dtype, block) in enumerate(others):
        yield _load_case(dtype, block, 4, negative=i % 2 == 0)
        yield _store_case(dtype, block, 4, inside=i % 2 == 1)
    for dtype, block in ((int64, (2,)), (int16, (3, 4, 24)), (uint8, (1, 16))):  # whole, yet not multiples of 128 bytes
        yield _load_case(dtype, block, 4, negative=True)
        yield _store_case(dtype, block, 2)
    for eviction in ("evict_first", "evict_last"):
        yield _load_case(float16, (16, 64), 4, eviction=eviction)
        yield _load_case(float16, (16, 64), 4, eviction=eviction, prefetch=True)
        yield _store_case(float16, (16, 64), 4, eviction=eviction)
    yield from (_load_case(dtype, (16, 32), 4, True, padding="nan") for dtype in (float16, bfloat16, float32))
    yield _sync_case(float16, (16, 64), 4)
    yield _sync_case(int8, (8, 8, 16), 1)
    yield _sync_case(float32, (128,), 2)
    yield _sync_case(bfloat16, (64, 96), 8)
    yield from (_task_copies_case(float32, (8, 32), trips, copies) for trips, copies in ((1, 1), (2, 2), (3, 3)))
    yield from (_wider_case(dtype, (16, 32)) for dtype in (float16, float32))


def _reduce_cases() -> Iterator[Case]:
    kinds = {
        "add": (int32, uint32, uint64, float32, float16, bfloat16),
        "min": (int32, uint32, int64, uint64, float16, bfloat16),
        "max": (int32, uint32, int64, uint64, float16, bfloat16),
        "and": (int32, uint32, uint64),
        "or": (int32, uint32, uint64),
        "xor": (int32, uint32, uint64),
    }
    for reduce, dtypes in kinds.items():
        for i, dtype in enumerate(dtypes):
            yield _store_case(dtype, (16, 32), WARPS[(i + 2) % 4], inside=i % 2 == 1, reduce=reduce)
    yield _store_case(float32, (8, 32), 4, eviction="evict_first", reduce="add")


def _ring_cases() -> Iterator[Case]:
    """Every number of stages with every number of trips around it."""
    for stages in (1, 2, 3, 4):
        for trips in range(2 * stages + 2):
            yield _ring_case(float16, (16, 64), stages, trips, WARPS[trips % 4])
            yield _groups_case(float32, (8, 32), stages, trips, WARPS[(trips + 2) % 4])


def _bulk_cases() -> Iterator[Case]:
    for dtype, block, bytes_, size in (
        (float32, 1024, 16, 16), (uint8, 4096, 272, 32), (float16, 8, None, 16), (int64, 512, 4080, 4064),
        (bfloat16, 64, 112, 112),
    ):  # fmt: skip
        yield _bulk_case(dtype, block, bytes_, size, 4)


def _copy_cases() -> Iterator[Case]:
    """Runs of 4, 8 and 16 bytes: what the mask, the distance of rows and the width of the tile leave together."""
    for dtype in (float32, float16, int8, int64):
        yield _copy_case(dtype, (16, 64), "none", None, 4)
        yield _copy_case(dtype, (16, 64), "some", 3.0, 4, cut=64)
        yield _copy_case(dtype, (16, 64), "all", -2.0 if dtype.signed else 2.0, 2)
    for pad, warps in ((1, 4), (2, 8), (4, 1), (16, 4)):
        yield _copy_case(float32, (8, 32), "none", None, warps, pad=pad)
    for cut, warps in ((1, 4), (2, 1), (3, 8), (37, 2)):
        yield _copy_case(float32, (8, 32), "some", -np.inf, warps, cut=cut)
        yield _copy_case(int64, (8, 16), "some", None, warps, cut=cut)
    for cache in (".ca", ".cg"):
        yield _copy_case(float32, (16, 32), "none", None, 4, cache)
    shapes = (((3, 128), 0), ((24, 40), 8), ((64, 8), 8), ((128, 16), 0))  # and what lies between rows
    yield from (_copy_case(float16, shape, "none", None, 4, pad=pad) for shape, pad in shapes)
    yield _copy_case(float32, (16, 48), "some", 7.0, 2, pad=16, cut=96)
    for shape, warps in (((3, 32), 4), ((8, 32), 8), ((1, 16), 2)):  # less than 4 bytes for each thread
        yield _copy_case(float16, shape, "none", None, warps)
        yield _copy_case(int8, shape, "some", 5, warps, cut=16)
