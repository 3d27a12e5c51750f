"""Shared storage, layouts of the author, votes, prefetches, and async dots of float32 operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DType, bfloat16, float16, float32, int32

from .indexing import count, row_major
from .support import WARPS, Case, Cell, In, InOut, Launch, Out, cells, exact, plain, small_integers, values

Shape = tuple[int, ...]


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def storage_kernel(x, y, z, n, sums, SHAPE: tl.constexpr, SMALL: tl.constexpr, TREE: tl.constexpr):
    """n trips over two buffer groups of one storage: a wide array, and two narrow ones that live after it."""
    spec = tlx.storage_alias_spec()
    wide = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2, reuse=spec)
    left = tlx.local_alloc(SHAPE, tlx.dtype_of(y), 2, reuse=spec)
    right = tlx.local_alloc(SMALL, tlx.dtype_of(z), 2, reuse=spec)
    if TREE == "shared":
        inner = tlx.reuse_group(left, right, group_type=tlx.reuse_group_type.distinct)
        spec.set_buffer_overlap(tlx.reuse_group(wide, inner))
    if TREE == "distinct":
        spec.set_buffer_overlap(tlx.reuse_group(wide, left, right, group_type=tlx.reuse_group_type.distinct))
    base = tl.program_id(0) * n
    for i in range(n):
        at = (base + i) * count(SHAPE) + row_major(SHAPE)
        tlx.local_store(wide[i % 2], tl.load(x + at))
        a = tlx.local_load(wide[i % 2]).to(tl.float32)
        tlx.local_store(left[i % 2], tl.load(y + at))
        if TREE != "none":
            small = (base + i) * count(SMALL) + row_major(SMALL)
            tlx.local_store(right[i % 2], tl.load(z + small))
            tl.store(z + small, tlx.local_load(right[i % 2]) + 1)
        tl.store(sums + at, a + tlx.local_load(left[i % 2]).to(tl.float32))


@tlxc.kernel
def packed_kernel(x, out, parts, SHAPE: tl.constexpr, PART: tl.constexpr, GROUP: tl.constexpr):
    """GROUP parts to each of two buffers: all parts are written, then all are read; the whole ones share the bytes."""
    spec = tlx.storage_alias_spec()
    whole = tlx.local_alloc(SHAPE, tl.float32, 2, reuse=spec)
    part = tlx.local_alloc(PART, tlx.dtype_of(x), 2 * GROUP, reuse=spec)
    spec.set_buffer_overlap(tlx.reuse_group(whole, tlx.reuse_group(part, group_size=GROUP)))
    for i in range(2 * GROUP):
        tlx.local_store(part[i], tl.load(x + i * count(PART) + row_major(PART)))
    for i in range(2 * GROUP):
        tl.store(parts + i * count(PART) + row_major(PART), tlx.local_load(part[i]))
    for i in tl.static_range(2):
        tlx.local_store(whole[i], i + row_major(SHAPE).to(tl.float32))
    for i in tl.static_range(2):
        tl.store(out + i * count(SHAPE) + row_major(SHAPE), tlx.local_load(whole[i]))


@tlxc.kernel
def overlay_kernel(x, out, SHAPE: tl.constexpr):
    """The legacy form: one array in the memory of another one."""
    wide = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 1)
    bytes = tlx.local_alloc(SHAPE, tl.int8, 1, reuse=wide)
    tlx.local_store(bytes[0], 1)
    tlx.local_store(wide[0], tl.load(x + row_major(SHAPE)) + tlx.local_load(bytes[0]).to(tlx.dtype_of(x)))
    tl.store(out + row_major(SHAPE), tlx.local_load(wide[0]))


@tlxc.kernel
def swizzle_kernel(
    x, out, SHAPE: tl.constexpr, BITS: tl.constexpr, BASE: tl.constexpr, SHIFT: tl.constexpr, ORDER: tl.constexpr
):
    """A tile through a buffer in a layout of the author, turned."""
    made = tlx.layout(tlx.swizzled_layout(BITS, BASE, SHIFT, ORDER))
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2, layout=made)
    tlx.local_store(buf[1], tl.load(x + row_major(SHAPE)))
    rows, columns = SHAPE
    tl.store(out + row_major((columns, rows)), tlx.local_load(tlx.local_trans(buf[1])))


@tlxc.kernel
def vote_kernel(x, scalar, tile, MASK: tl.constexpr, N: tl.constexpr):
    """The votes of odd lanes, and of the lanes whose elements of x are not zero: one element to a thread."""
    word = tlx.vote_ballot_sync(MASK, tlx.thread_id(0) % 2 == 1)
    tl.store(scalar, tl.sum(tl.where(tl.arange(0, N) == 0, word, 0), axis=0))
    one = tlx.layout(shape=((N,), (1,)), stride=((1,), (0,)))
    at = tl.arange(0, N)
    tl.store(tile + at, tlx.vote_ballot_sync(MASK, tlx.require_layout(tl.load(x + at), one)))


@tlxc.kernel
def prefetch_kernel(x, out, n, SHAPE: tl.constexpr):
    """A copy whose lines are asked for before."""
    at = row_major(SHAPE)
    tlx.prefetch(x + at, mask=at < n)
    tlx.prefetch(x, "L1")
    tl.store(out + at, tl.load(x + at, mask=at < n))


@tlxc.kernel
def epilogue_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Operands whose memory the result of the same group takes over: a (M, K) @ b (N, K).T + i in trip i."""
    spec = tlx.storage_alias_spec()
    result = tlx.local_alloc((M, N), tl.float32, 2, reuse=spec)
    left = tlx.local_alloc((M, K), tl.float16, 2, reuse=spec)
    right = tlx.local_alloc((N, K), tl.float16, 2, reuse=spec)
    operands = tlx.reuse_group(left, right, group_type=tlx.reuse_group_type.distinct)
    spec.set_buffer_overlap(tlx.reuse_group(result, operands))
    for i in range(3):
        tlx.local_store(left[i % 2], tl.load(a + row_major((M, K))))
        tlx.local_store(right[i % 2], tl.load(b + row_major((N, K))))
        tlx.fence("async_shared")
        acc = tlx.async_dot(left[i % 2], tlx.local_trans(right[i % 2]))
        tlx.local_store(result[i % 2], tlx.async_dot_wait(0, acc) + i)
        tl.store(out + i * M * N + row_major((M, N)), tlx.local_load(result[i % 2]))


@tlxc.kernel
def tf32_kernel(
    a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, REGISTERS: tl.constexpr, TRIPS: tl.constexpr
):
    """a (M, K) @ b (N, K).T, TRIPS times."""
    left = tlx.local_alloc((M, K), tl.float32, 1)
    right = tlx.local_alloc((N, K), tl.float32, 1)
    tlx.local_store(left[0], tl.load(a + row_major((M, K))))
    tlx.local_store(right[0], tl.load(b + row_major((N, K))))
    tlx.fence("async_shared")
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(TRIPS):
        if REGISTERS:
            acc = tlx.async_dot(tlx.local_load(left[0]), tlx.local_trans(right[0]), acc, input_precision="tf32")
        else:
            acc = tlx.async_dot(left[0], tlx.local_trans(right[0]), acc)
        acc = tlx.async_dot_wait(0, acc)
    tl.store(out + row_major((M, N)), acc)


# --------------------------------------------------------------------------------------------------------------- cases
def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _storage_case(tree: str, x: DType, y: DType, z: DType, shape: Shape, small: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, trips = (64 if big else 1), 3
        a, b = (small_integers(rng, d, programs * trips * int(np.prod(shape))) for d in (x, y))
        sums = plain(a) + plain(b)
        c = small_integers(rng, z, programs * trips * int(np.prod(small)))
        after = plain(c) + (tree != "none")
        args = {"x": In(a), "y": In(b), "z": InOut(c), "n": trips, "sums": Out(len(a), float32)}
        expect = {"sums": exact(sums, signed_zero=False), "z": exact(after, signed_zero=False)}
        return Launch((programs,), {**args, "SHAPE": shape, "SMALL": small, "TREE": tree}, expect)

    listed = cells("local_alloc local_view local_store local_load", x.short, y.short)
    if tree != "none":
        listed |= cells("buffer_overlap", "-")
    name = f"storage-{tree}-{x}-{y}-{z}-{_text(shape)}-{_text(small)}-w{warps}"
    return Case(name, storage_kernel, make, warps, listed, amd=warps == 4)


def _packed_case(dtype: DType, shape: Shape, part: Shape, group: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, 2 * group * int(np.prod(part)))
        size = int(np.prod(shape))
        out = np.concatenate([np.arange(size) + i for i in range(2)]).astype(np.float64)
        args = {"x": In(x), "out": Out(2 * size, float32), "parts": Out(x.shape, dtype)}
        expect = {"out": exact(out), "parts": exact(plain(x))}
        return Launch((1,), {**args, "SHAPE": shape, "PART": part, "GROUP": group}, expect)

    listed = cells("local_view local_load", dtype.short, "f32") | cells("buffer_overlap", "-")
    return Case(f"packed-{dtype}-{_text(shape)}-{_text(part)}x{group}-w{warps}", packed_kernel, make, warps, listed)


def _overlay_case(dtype: DType, shape: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, int(np.prod(shape)))
        args = {"x": In(x), "out": Out(len(x), dtype), "SHAPE": shape}
        return Launch((1,), args, {"out": exact(plain(x) + 1, signed_zero=False)})

    listed = cells("local_alloc local_load", dtype.short, "i8") | cells("barrier", "-")
    return Case(f"overlay-{dtype}-{_text(shape)}-w{warps}", overlay_kernel, make, warps, listed)


def _swizzle_case(dtype: DType, shape: Shape, form: Shape, order: Shape | None, warps: int) -> Case:
    bits, base, shift = form

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, int(np.prod(shape)))
        expect = exact(plain(x).reshape(shape).T.reshape(-1))
        args = {"x": In(x), "out": Out(len(x), dtype), "SHAPE": shape}
        return Launch((1,), {**args, "BITS": bits, "BASE": base, "SHIFT": shift, "ORDER": order}, {"out": expect})

    name = f"swizzle-{dtype}-{_text(shape)}-{bits}.{base}.{shift}{'-turned' if order else ''}-w{warps}"
    return Case(name, swizzle_kernel, make, warps, cells("local_alloc local_trans", dtype.short))


def _vote_case(mask: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = rng.integers(0, 2, 32 * warps).astype(np.int32) * 5
        words = [sum(int(bool(v)) << i for i, v in enumerate(w)) & mask for w in x.reshape(-1, 32)]
        tile = np.repeat(np.array(words, np.uint32).view(np.int32), 32)
        scalar = np.array([0xAAAAAAAA & mask], np.uint32).view(np.int32)
        args = {"x": In(x), "scalar": Out(1, int32), "tile": Out(len(x), int32), "MASK": mask, "N": len(x)}
        return Launch((1,), args, {"scalar": exact(scalar), "tile": exact(tile)})

    return Case(f"vote-{mask:x}-w{warps}", vote_kernel, make, warps, cells("vote", "-"), amd=False)


def _prefetch_case(shape: Shape, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        size = int(np.prod(shape))
        x = values(rng, float32, size - 5)
        whole = np.concatenate([plain(x), np.zeros(5)])
        args = {"x": In(x), "out": Out(size, float32), "n": len(x), "SHAPE": shape}
        return Launch((1,), args, {"out": exact(whole)})

    return Case(f"prefetch-{_text(shape)}-w{warps}", prefetch_kernel, make, warps, cells("prefetch", "-"), amd=False)


def _epilogue_case(m: int, n: int, k: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        a, b = (small_integers(rng, float16, rows * k).reshape(rows, k) for rows in (m, n))
        expect = np.stack([plain(a) @ plain(b).T + i for i in range(3)])
        args = {"a": In(a), "b": In(b), "out": Out((3, m, n), float32), "M": m, "N": n, "K": k}
        return Launch((1,), args, {"out": exact(expect, signed_zero=False)})

    listed = cells("async_dot", "f16") | cells("buffer_overlap barrier", "-")
    return Case(f"epilogue-{m}x{n}x{k}-w{warps}", epilogue_kernel, make, warps, listed, amd=False)


def _tf32_case(m: int, n: int, k: int, registers: bool, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        a, b = (small_integers(rng, float32, rows * k).reshape(rows, k) for rows in (m, n))
        expect = 2 * plain(a) @ plain(b).T
        args = {"a": In(a), "b": In(b), "out": Out((m, n), float32), "M": m, "N": n, "K": k}
        options = {"REGISTERS": registers, "TRIPS": 2}
        return Launch((1,), {**args, **options}, {"out": exact(expect, signed_zero=False)})

    listed: frozenset[Cell] = cells("async_dot async_dot_wait", "f32")
    name = f"tf32-{m}x{n}x{k}{'-registers' if registers else ''}-w{warps}"
    return Case(name, tf32_kernel, make, warps, listed, amd=False)


def cases() -> Iterator[Case]:
    for warps in WARPS:
        yield _storage_case("shared", float32, float16, float32, (32, 64), (32,), warps)
        yield _storage_case("distinct", float32, float32, float32, (16, 32), (16, 32), warps)
        yield _storage_case("none", float32, bfloat16, float32, (16, 32), (16,), warps)
        yield _vote_case(0xFFFFFFFF, warps)
        yield _prefetch_case((16, 64), warps)
    for warps in (1, 4):
        yield _packed_case(float16, (64, 32), (16, 32), 2, warps)
        yield _packed_case(float32, (64, 32), (16, 32), 4, warps)
        yield _overlay_case(float32, (16, 32), warps)
        yield _vote_case(0x0F0F00FF, warps)
        for form in ((0, 0, 0), (3, 3, 3), (2, 2, 4), (3, 0, 6)):
            yield _swizzle_case(float16, (32, 64), form, None, warps)
        yield _swizzle_case(float32, (64, 32), (2, 2, 4), (0, 1), warps)
    yield _epilogue_case(64, 64, 64, 4)
    yield _epilogue_case(128, 64, 32, 8)
    for registers in (False, True):
        yield _tf32_case(64, 16, 32, registers, 4)
        yield _tf32_case(64, 24, 8, registers, 4)
        yield _tf32_case(128, 64, 64, registers, 8)
