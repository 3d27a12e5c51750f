"""Tensor descriptors that a kernel makes: run-time shapes and strides, slots that tasks share and that are refilled.

Tensors have gaps between their rows, which keep what they hold; blocks lie over the ends of every dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DType, bfloat16, float16, float32, int8, int16, int32, int64, uint8

from .indexing import count, row_major
from .support import WARPS, Array, Case, In, InOut, Launch, Out, cells, exact, plain, small_integers, storage, values
from .tma_cases import ALL, Shape

_OPS = "descriptor_slots descriptor_slot descriptor_view encode_descriptor acquire_descriptor"


# ------------------------------------------------------------------------------------------------------------- kernels
def described(slot, base, EXTENTS, STRIDES, BLOCK: tl.constexpr, PADDING: tl.constexpr):
    """A descriptor of the rank of its block, which takes the last of three extents and of two strides."""
    rank: tl.constexpr = len(BLOCK)
    shape = ()
    strides = ()
    for d in tl.static_range(3 - rank, 3):
        shape = shape + (EXTENTS[d],)
        strides = strides + (STRIDES[d] if d < 2 else 1,)
    return tlx.make_tensor_descriptor(slot, base, shape, strides, BLOCK, PADDING)


def place(BLOCK: tl.constexpr):
    """Where the block of this program starts: along x for the last dimension, y and z for those before."""
    at = ()
    for d in tl.static_range(len(BLOCK)):
        at = at + (tl.program_id(len(BLOCK) - 1 - d) * BLOCK[d],)
    return at


@tlxc.kernel
def copy_kernel(x, out, n0, n1, n2, s0, s1, BLOCK: tl.constexpr):
    """One block per program, by two descriptors: one in a slot of an array, one in a slot of its own."""
    slots = tlx.allocate_tensor_descriptor(3)
    source = described(slots[tl.program_id(0) % 3], x, (n0, n1, n2), (s0, s1), BLOCK, "zero")
    target = described(None, out, (n0, n1, n2), (s0, s1), BLOCK, "zero")
    tlx.prefetch_descriptor(source)
    target.store(place(BLOCK), source.load(place(BLOCK)))


@tlxc.kernel
def padding_kernel(x, out, n0, n1, n2, s0, s1, BLOCK: tl.constexpr, PADDING: tl.constexpr):
    """What a load finds, elements outside included, goes to memory without a descriptor."""
    source = described(None, x, (n0, n1, n2), (s0, s1), BLOCK, PADDING)
    serial = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + serial * count(BLOCK) + row_major(BLOCK), source.load(place(BLOCK)))


@tlxc.kernel
def constant_kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Everything but the addresses is known at compile time, read back from the descriptor too."""
    source = tlx.make_tensor_descriptor(None, x, [ROWS, COLUMNS], [COLUMNS, 1], BLOCK)
    target = tlx.make_tensor_descriptor(None, out, source.shape, source.strides, source.block_shape)
    for i in tl.static_range(0, ROWS, BLOCK[0]):
        target.store([i, 0], source.load([i, 0]))


@tlxc.kernel
def groups_kernel(x, out, rows, groups, columns, BLOCK: tl.constexpr):
    """Tensors of `rows[g]` rows one after the other; each CTA takes every so many of them, and fills its slots anew."""
    slots = tlx.allocate_tensor_descriptor(2)
    first = 0
    for g in range(groups):
        height = tl.load(rows + g)
        if g % tl.num_programs(0) == tl.program_id(0):
            source = tlx.make_tensor_descriptor(slots[0], x + first * columns, [height, columns], [columns, 1], BLOCK)
            target = tlx.make_tensor_descriptor(slots[1], out + first * columns, [height, columns], [columns, 1], BLOCK)
            for i in range(0, height, BLOCK[0]):
                for j in range(0, columns, BLOCK[1]):
                    target.store([i, j], source.load([i, j]))
        first += height


@tlxc.kernel
def handed_kernel(x, out, n, BLOCK: tl.constexpr, SLOTS: tl.constexpr):
    """One task fills a ring of slots, each with a tensor of one block; two others load and store by them."""
    dtype = tlx.dtype_of(x)
    size: tl.constexpr = count(BLOCK)
    sources = tlx.allocate_tensor_descriptor(SLOTS)
    targets = tlx.allocate_tensor_descriptor(SLOTS)
    made = tlx.alloc_barriers(SLOTS)
    taken = tlx.alloc_barriers(SLOTS)
    buf = tlx.local_alloc(BLOCK, dtype, SLOTS)
    full = tlx.alloc_barriers(SLOTS)
    base = tl.program_id(0) * n
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, SLOTS)
                tlx.barrier_wait(full[s], p)
                target = tlx.reinterpret_tensor_descriptor(targets[s], BLOCK, dtype)
                tlx.async_descriptor_store(target, buf[s], [0, 0])
                tlx.async_descriptor_store_wait(0)
                tlx.barrier_arrive(taken[s])
        with tlx.async_task(num_warps=4):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, SLOTS)
                tlx.barrier_wait(taken[s], p ^ 1)
                at = (base + i) * size
                shape = [BLOCK[0], BLOCK[1]]
                tlx.make_tensor_descriptor(sources[s], x + at, shape, [BLOCK[1], 1], BLOCK)
                tlx.make_tensor_descriptor(targets[s], out + at, shape, [BLOCK[1], 1], BLOCK)
                tlx.barrier_arrive(made[s])
        with tlx.async_task(num_warps=1):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, SLOTS)
                tlx.barrier_wait(made[s], p)
                source = tlx.reinterpret_tensor_descriptor(sources[s], BLOCK, dtype)
                tlx.barrier_expect_bytes(full[s], size * tlx.size_of(dtype))
                tlx.async_descriptor_load(source, buf[s], [0, 0], full[s])


@tlxc.kernel
def captured_kernel(x, out, rows, columns, BLOCK: tl.constexpr, COPIES: tl.constexpr):
    """Descriptors that are made before a region of tasks and used by all of its tasks."""
    slots = tlx.allocate_tensor_descriptor(2)
    source = tlx.make_tensor_descriptor(slots[0], x, [rows, columns], [columns, 1], BLOCK)
    target = tlx.make_tensor_descriptor(slots[1], out, [rows, columns], [columns, 1], BLOCK)
    tlx.prefetch_descriptor(source)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for j in range(0, columns, BLOCK[1]):
                target.store([0, j], source.load([0, j]))
        with tlx.async_task(num_warps=2, replicate=COPIES):
            i = (1 + tlx.async_task_replica_id()) * BLOCK[0]
            for j in range(0, columns, BLOCK[1]):
                target.store([i, j], source.load([i, j]))


@tlxc.kernel
def own_kernel(x, out, rows, columns, BLOCK: tl.constexpr, COPIES: tl.constexpr):
    """Every task makes descriptors of its own, of rows that no other one has."""
    with tlx.async_tasks():
        with tlx.async_task("default"):
            source = tlx.make_tensor_descriptor(None, x, [rows, columns], [columns, 1], BLOCK)
            target = tlx.make_tensor_descriptor(None, out, [rows, columns], [columns, 1], BLOCK)
            target.store([0, 0], source.load([0, 0]))
        with tlx.async_task(num_warps=2, replicate=COPIES):
            at = (1 + tlx.async_task_replica_id()) * rows * columns
            source = tlx.make_tensor_descriptor(None, x + at, [rows, columns], [columns, 1], BLOCK)
            target = tlx.make_tensor_descriptor(None, out + at, [rows, columns], [columns, 1], BLOCK)
            target.store([0, 0], source.load([0, 0]))


@tlxc.kernel
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    """n blocks are added up in memory by a descriptor that the kernel made."""
    buf = tlx.local_alloc(BLOCK, tlx.dtype_of(x))[0]
    total = tlx.make_tensor_descriptor(None, out, BLOCK, [BLOCK[1], 1], BLOCK)
    for i in range(n):
        tlx.local_store(buf, tl.load(x + i * count(BLOCK) + row_major(BLOCK)))
        tlx.async_descriptor_store(total, buf, [0, 0], store_reduce="add")
        tlx.async_descriptor_store_wait(0)


# --------------------------------------------------------------------------------------------------------------- cases
def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _values(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return values(rng, dtype, prod(shape)).reshape(shape)


def _strided(block: Shape, dtype: DType, big: bool, less: int = 1) -> tuple[Shape, int]:
    """(three extents that no block divides, the last `less` than whole blocks; the pitch of rows in elements)"""
    blocks = 3 if big else 2
    n2 = blocks * block[-1] - less
    chunk = 16 // dtype.bytes
    outer = [max(1, blocks * n - 1) for n in (1, 1, *block)[-3:-1]]
    extents = tuple(1 if d < 3 - len(block) else outer[d] for d in (0, 1))
    return (*extents, n2), -(-n2 // chunk) * chunk + 2 * chunk


def _grid(extents: Shape, block: Shape) -> Shape:
    """Programs along x for the last dimension."""
    padded = (*(1,) * (3 - len(block)), *block)
    return tuple(-(-n // b) for n, b in zip(extents, padded))[::-1]


def _sizes(extents: Shape, pitch: int) -> dict[str, int]:
    return {"n0": extents[0], "n1": extents[1], "n2": extents[2], "s0": extents[1] * pitch, "s1": pitch}


def _copy_case(dtype: DType, block: Shape, warps: int) -> Case:
    """What is stored has rows of whole chunks of 16 bytes."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        extents, pitch = _strided(block, dtype, big, less=16 // dtype.bytes)
        x = _values(rng, dtype, *extents[:2], pitch)
        written = np.broadcast_to(np.arange(pitch) < extents[2], x.shape)
        args = {"x": In(x), "out": Out(x.shape, dtype), **_sizes(extents, pitch), "BLOCK": block}
        return Launch(_grid(extents, block), args, {"out": exact(plain(x), written)})

    listed = cells(f"{_OPS} prefetch_descriptor", "-") | cells("tma_load tma_store", dtype.short)
    return Case(f"made-copy-{dtype}-{_text(block)}-w{warps}", copy_kernel, make, warps, listed, amd=False)


def _padding_case(dtype: DType, block: Shape, padding: str, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        extents, pitch = _strided(block, dtype, big)
        x = _values(rng, dtype, *extents[:2], pitch)
        grid = _grid(extents, block)
        whole = (*(1,) * (3 - len(block)), *block)
        covered = tuple(g * b for g, b in zip(grid[::-1], whole))
        found = np.full(covered, np.nan if padding == "nan" else 0).astype(storage(dtype))
        found[tuple(map(slice, extents))] = x[:, :, : extents[2]]
        (z, y, n), (a, b, c) = grid[::-1], whole
        tiles = found.reshape(z, a, y, b, n, c).transpose(0, 2, 4, 1, 3, 5).reshape(-1, *block)
        args = {"x": In(x), "out": Out(tiles.shape, dtype), **_sizes(extents, pitch), "BLOCK": block,
                "PADDING": padding}  # fmt: skip
        return Launch(grid, args, {"out": exact(plain(tiles))})

    listed = cells("encode_descriptor acquire_descriptor", "-") | cells("tma_load", dtype.short)
    name = f"made-{padding}-{dtype}-{_text(block)}-w{warps}"
    return Case(name, padding_kernel, make, warps, listed, amd=False)


def _constant_case(dtype: DType, block: Shape, blocks: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, blocks * block[0], block[1])
        args = {"x": In(x), "out": Out(x.shape, dtype), "ROWS": len(x), "COLUMNS": block[1], "BLOCK": block}
        return Launch((1,), args, {"out": exact(plain(x))})

    listed = cells("encode_descriptor acquire_descriptor", "-")
    return Case(f"made-constant-{dtype}-{_text(block)}-w{warps}", constant_kernel, make, warps, listed, amd=False)


def _groups_case(dtype: DType, block: Shape, ctas: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        rows = rng.integers(1, 3 * block[0], 23 if big else 5).astype(np.int32)
        columns = 2 * block[1] - 16 // dtype.bytes
        x = _values(rng, dtype, int(rows.sum()), columns)
        args = {"x": In(x), "out": Out(x.shape, dtype), "rows": In(rows), "groups": len(rows), "columns": columns,
                "BLOCK": block}  # fmt: skip
        return Launch((ctas,), args, {"out": exact(plain(x))})

    listed = cells("encode_descriptor acquire_descriptor", "-")
    return Case(f"made-groups-{dtype}-{_text(block)}-c{ctas}-w{warps}", groups_kernel, make, warps, listed, amd=False)


def _handed_case(dtype: DType, block: Shape, n: int, slots: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        ctas = 140 if big else 2
        x = _values(rng, dtype, ctas * n, *block)
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": n, "BLOCK": block, "SLOTS": slots}
        return Launch((ctas,), args, {"out": exact(plain(x))})

    listed = cells(f"{_OPS} async_tasks", "-")
    return Case(f"made-handed-{dtype}-{_text(block)}-n{n}-s{slots}", handed_kernel, make, 4, listed, amd=False)


def _captured_case(dtype: DType, block: Shape, copies: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, (1 + copies) * block[0], 3 * block[1])
        args = {"x": In(x), "out": Out(x.shape, dtype), "rows": len(x), "columns": x.shape[1], "BLOCK": block,
                "COPIES": copies}  # fmt: skip
        return Launch((1,), args, {"out": exact(plain(x))})

    listed = cells(f"{_OPS} async_tasks prefetch_descriptor", "-")
    name = f"made-captured-{dtype}-{_text(block)}-c{copies}"
    return Case(name, captured_kernel, make, 4, listed, amd=False)


def _own_case(dtype: DType, block: Shape, copies: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _values(rng, dtype, 1 + copies, *block)
        args = {"x": In(x), "out": Out(x.shape, dtype), "rows": block[0], "columns": block[1], "BLOCK": block,
                "COPIES": copies}  # fmt: skip
        return Launch((1,), args, {"out": exact(plain(x))})

    listed = cells("encode_descriptor acquire_descriptor async_tasks", "-")
    return Case(f"made-own-{dtype}-{_text(block)}-c{copies}", own_kernel, make, 4, listed, amd=False)


def _sum_case(dtype: DType, block: Shape, n: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, start = (small_integers(rng, dtype, k * prod(block)).reshape(k, *block) for k in (n, 1))
        total = start[0].astype(np.float64) + x.astype(np.float64).sum(axis=0)
        args = {"x": In(x), "out": InOut(start[0]), "n": n, "BLOCK": block}
        return Launch((1,), args, {"out": exact(total, signed_zero=False)})

    listed = cells("encode_descriptor", "-") | cells("tma_store", dtype.short)
    return Case(f"made-sum-{dtype}-{_text(block)}-n{n}-w{warps}", sum_kernel, make, warps, listed, amd=False)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for i, dtype in enumerate(ALL):
        yield _copy_case(dtype, (8 * (1 + i % 3), 64 // dtype.bytes), WARPS[i % 4])
    others: tuple[tuple[DType, Shape], ...] = (
        (float32, (64,)), (float16, (512,)), (int64, (2,)), (uint8, (16, 256)), (float16, (24, 8)), (float32, (8, 8)),
        (bfloat16, (16, 96)), (float16, (288, 16)), (int16, (3, 4, 24)), (float32, (2, 8, 32)), (int8, (4, 8, 128)),
    )  # fmt: skip
    for i, (dtype, block) in enumerate(others):
        yield _copy_case(dtype, block, WARPS[i % 4])
    for i, (dtype, block, padding) in enumerate((
        (float16, (16, 64), "nan"), (bfloat16, (8, 32), "nan"), (float32, (2, 4, 16), "nan"), (float32, (128,), "nan"),
        (float16, (16, 64), "zero"), (int32, (8, 16), "zero"), (uint8, (4, 8, 64), "zero"),
    )):  # fmt: skip
        yield _padding_case(dtype, block, padding, WARPS[i % 4])
    yield _constant_case(float16, (16, 64), 3, 4)
    yield _constant_case(int32, (8, 8), 2, 1)
    for ctas, warps in ((1, 1), (2, 4), (3, 8)):
        yield _groups_case(float32, (8, 32), ctas, warps)
    yield _groups_case(float16, (16, 64), 2, 2)
    for slots, n in ((1, 1), (1, 3), (2, 5), (3, 7)):
        yield _handed_case(float16, (16, 64), n, slots)
    yield _handed_case(float32, (8, 4), 4, 2)
    yield from (_captured_case(float16, (16, 32), copies) for copies in (1, 2))
    yield from (_own_case(float32, (8, 32), copies) for copies in (1, 3))
    yield _sum_case(float32, (8, 32), 3, 4)
    yield _sum_case(float16, (16, 64), 2, 8)
