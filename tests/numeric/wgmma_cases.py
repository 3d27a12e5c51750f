"""Asynchronous matrix multiplies: operands in shared memory and registers, every major, waits, chains, whole GEMMs.

Operands are small integers, so that every sum is exact whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DType, bfloat16, float16, float32

from .indexing import row_major
from .support import Array, Case, Cell, In, Launch, Out, cells, exact, plain, small_integers

Extents = tuple[int, int, int]  # M, N, K


# ------------------------------------------------------------------------------------------------------------- kernels
def filled(x, shape: tl.constexpr, turned: tl.constexpr):
    """A buffer of `shape` with the matrix at x; `turned`: the transposed matrix lies there, in memory and buffer."""
    if turned:
        buf = tlx.local_alloc((shape[1], shape[0]), tlx.dtype_of(x))[0]
        tlx.local_store(buf, tl.load(x + row_major((shape[1], shape[0]))))
        return tlx.local_trans(buf)
    buf = tlx.local_alloc(shape, tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + row_major(shape)))
    return buf


@tlxc.kernel
def dot_kernel(
    a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr,
    REGISTERS: tl.constexpr,
):  # fmt: skip
    """One product without an accumulator; REGISTERS: A is a tile."""
    y = filled(b, (K, N), B_T)
    if REGISTERS:
        x = tl.trans(tl.load(a + row_major((K, M)))) if A_T else tl.load(a + row_major((M, K)))
    else:
        x = filled(a, (M, K), A_T)
    acc = tlx.async_dot_wait(0, tlx.async_dot(x, y))
    tl.store(out + row_major((M, N)), acc)


@tlxc.kernel
def chain_kernel(a, b, c, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PENDINGS: tl.constexpr):
    """n products on top of a loaded accumulator, PENDINGS of them under way; `use_acc=False` starts anew after it."""
    x, y = filled(a, (M, K), False), filled(b, (K, N), False)
    acc = tl.load(c + row_major((M, N)))
    for _ in range(n):
        acc = tlx.async_dot(x, y, acc)
        acc = tlx.async_dot_wait(PENDINGS, acc)
    acc = tlx.async_dot_wait(0, acc)
    again = tlx.async_dot_wait(0, tlx.async_dot(x, y, acc, use_acc=False))
    tl.store(out + row_major((M, N)), acc)
    tl.store(out + M * N + row_major((M, N)), again)


@tlxc.kernel
def fresh_kernel(
    a, b, c, flags, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PENDINGS: tl.constexpr,
    REGISTERS: tl.constexpr,
):  # fmt: skip
    """Three rounds of n products that begin anew by `use_acc=i > 0`, without zeros in between, and n products whose
    accumulator memory keeps or drops.  REGISTERS: A is a tile."""
    y = filled(b, (K, N), False)
    x = tl.load(a + row_major((M, K))) if REGISTERS else filled(a, (M, K), False)
    acc = tl.load(c + row_major((M, N)))
    for r in range(3):
        for i in range(n):
            acc = tlx.async_dot_wait(PENDINGS, tlx.async_dot(x, y, acc, use_acc=i > 0))
        acc = tlx.async_dot_wait(0, acc)
        tl.store(out + r * M * N + row_major((M, N)), acc)
    acc = tl.load(c + row_major((M, N)))
    for i in range(n):
        acc = tlx.async_dot_wait(PENDINGS, tlx.async_dot(x, y, acc, use_acc=tl.load(flags + i) != 0))
    tl.store(out + 3 * M * N + row_major((M, N)), tlx.async_dot_wait(0, acc))


@tlxc.kernel
def two_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Two accumulators under way at once, waited for together and one after the other; a product of halves of B."""
    x, y = filled(a, (M, K), False), filled(b, (K, N), False)
    first = tlx.async_dot(x, tlx.local_slice(y, [0, 0], [K, N // 2]))
    second = tlx.async_dot(x, tlx.local_slice(y, [0, N // 2], [K, N // 2]))
    first, second = tlx.async_dot_wait(1, (first, second))
    tl.store(out + row_major((M, N // 2)), first)
    second = tlx.async_dot_wait(0, second)
    tl.store(out + M * N // 2 + row_major((M, N // 2)), second)


@tlxc.kernel
def register_chain_kernel(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """(a @ b) @ c: the first result becomes the register operand of the second product."""
    x, y = filled(a, (M, K), False), filled(b, (K, N), True)
    inner = tlx.async_dot_wait(0, tlx.async_dot(x, y)).to(tlx.dtype_of(a))
    z = filled(c, (N, N), False)
    acc = tlx.async_dot_wait(0, tlx.async_dot(inner, z))
    tl.store(out + row_major((M, N)), acc)


@tlxc.kernel
def sliced_k_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr):
    """K in parts: slices of both operands, all products in one run of groups."""
    x, y = filled(a, (M, K), False), filled(b, (K, N), False)
    acc = tl.zeros((M, N), tl.float32)
    for i in tl.static_range(K // PART):
        acc = tlx.async_dot(
            tlx.local_slice(x, [0, i * PART], [M, PART]), tlx.local_slice(y, [i * PART, 0], [PART, N]), acc
        )
    tl.store(out + row_major((M, N)), tlx.async_dot_wait(0, acc))


@tlxc.kernel
def gemm_kernel(
    a, b, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr, B_T: tl.constexpr
):
    """One task: TMA loads ahead by STAGES - 1, one product under way, TMA stores the result in the type of A."""
    dtype = tlx.dtype_of(a)
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    x = tlx.local_alloc((M, K), dtype, STAGES)
    y = tlx.local_alloc((N, K) if B_T else (K, N), dtype, STAGES)
    z = tlx.local_alloc((M, N), dtype)[0]
    bar = tlx.alloc_barriers(STAGES)
    steps = tl.cdiv(k, K)
    acc = tl.zeros((M, N), tl.float32)
    for i in range(1 - STAGES, steps):
        ahead = i + STAGES - 1
        s = ahead % STAGES
        if i > 0:
            acc = tlx.async_dot_wait(0, acc)
        tlx.barrier_expect_bytes(bar[s], (M + N) * K * tlx.size_of(dtype), pred=ahead < steps)
        tlx.async_descriptor_load(a, x[s], [row, ahead * K], bar[s], pred=ahead < steps)
        if B_T:
            tlx.async_descriptor_load(b, y[s], [column, ahead * K], bar[s], pred=ahead < steps)
        else:
            tlx.async_descriptor_load(b, y[s], [ahead * K, column], bar[s], pred=ahead < steps)
        if i >= 0:
            now, phase = tlx.get_bufidx_phase(i, STAGES)
            tlx.barrier_wait(bar[now], phase)
            acc = tlx.async_dot(x[now], tlx.local_trans(y[now]) if B_T else y[now], acc)
    acc = tlx.async_dot_wait(0, acc)
    tlx.local_store(z, acc.to(dtype))
    tlx.async_descriptor_store(out, z, [row, column])
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def copied_gemm_kernel(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """The same with `cp.async` under masks, and masked stores by the threads."""
    rm, rn, rk = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N), tl.arange(0, K)
    x = tlx.local_alloc((M, K), tlx.dtype_of(a), STAGES)
    y = tlx.local_alloc((K, N), tlx.dtype_of(b), STAGES)
    acc = tl.zeros((M, N), tl.float32)
    for i in tl.static_range(STAGES - 1):
        at = i * K + rk
        tlx.async_load(a + rm[:, None] * k + at[None, :], x[i], mask=(rm[:, None] < m) & (at[None, :] < k))
        tlx.async_load(b + at[:, None] * n + rn[None, :], y[i], mask=(at[:, None] < k) & (rn[None, :] < n))
        tlx.async_load_commit_group()
    for i in range(tl.cdiv(k, K)):
        at = (i + STAGES - 1) * K + rk
        s = (i + STAGES - 1) % STAGES
        tlx.async_load(a + rm[:, None] * k + at[None, :], x[s], mask=(rm[:, None] < m) & (at[None, :] < k))
        tlx.async_load(b + at[:, None] * n + rn[None, :], y[s], mask=(at[:, None] < k) & (rn[None, :] < n))
        tlx.async_load_commit_group()
        tlx.async_load_wait_group(STAGES - 1)
        acc = tlx.async_dot_wait(0, tlx.async_dot(x[i % STAGES], y[i % STAGES], acc))
    inside = (rm[:, None] < m) & (rn[None, :] < n)
    tl.store(out + rm[:, None] * n + rn[None, :], acc.to(tlx.dtype_of(out)), mask=inside)


# --------------------------------------------------------------------------------------------------------------- cases
def _matrix(rng: np.random.Generator, dtype: DType, *shape: int, high: int = 3) -> Array:
    return small_integers(rng, dtype, int(np.prod(shape)), high).reshape(shape)


def _turned(x: Array, turn: bool) -> Array:
    return np.ascontiguousarray(x.T) if turn else x


def _name(family: str, dtype: DType, extents: Extents, warps: int) -> str:
    return f"{family}-{dtype}-{'x'.join(map(str, extents))}-w{warps}"


def _sizes(extents: Extents) -> dict[str, int]:
    return dict(zip("MNK", extents))


def _listed(dtype: DType, more: str = "fence_async_shared") -> frozenset[Cell]:
    return cells("async_dot", dtype.short) | cells("async_dot_wait", "f32") | cells(more, "-")


def _dot_case(
    dtype: DType, extents: Extents, warps: int, a_t: bool = False, b_t: bool = False, registers: bool = False
) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n)
        args = {"a": In(_turned(x, a_t)), "b": In(_turned(y, b_t)), "out": Out((m, n), float32), **_sizes(extents)}
        args |= {"A_T": a_t, "B_T": b_t, "REGISTERS": registers}
        return Launch((1,), args, {"out": exact(plain(x) @ plain(y), signed_zero=False)})

    family = f"async-dot-{'r' if registers else 's'}{'t' if a_t else 'n'}{'t' if b_t else 'n'}"
    return Case(_name(family, dtype, extents, warps), dot_kernel, make, warps, _listed(dtype), amd=False)


def _chain_case(dtype: DType, extents: Extents, trips: int, pendings: int, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y, z = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n), _matrix(rng, float32, m, n)
        product = plain(x) @ plain(y)
        both = np.stack([plain(z) + trips * product, product])
        args = {"a": In(x), "b": In(y), "c": In(z), "out": Out(both.shape, float32), "n": trips, **_sizes(extents),
                "PENDINGS": pendings}  # fmt: skip
        return Launch((1,), args, {"out": exact(both, signed_zero=False)})

    name = _name(f"async-chain-{pendings}-n{trips}", dtype, extents, warps)
    return Case(name, chain_kernel, make, warps, _listed(dtype), amd=False)


def _fresh_case(
    dtype: DType, extents: Extents, trips: int, pendings: int, warps: int, registers: bool = False
) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y, z = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n), _matrix(rng, float32, m, n)
        product = plain(x) @ plain(y)
        flags = np.arange(max(trips, 1), dtype=np.int32) % 3 * (trips != 4)  # kept by two of three, or dropped by all
        last = plain(z)
        for i in range(trips):
            last = (last if flags[i] else 0) + product
        outs = np.stack([trips * product if trips else plain(z)] * 3 + [last])
        args = {"a": In(x), "b": In(y), "c": In(z), "flags": In(flags), "out": Out(outs.shape, float32), "n": trips,
                **_sizes(extents), "PENDINGS": pendings, "REGISTERS": registers}  # fmt: skip
        return Launch((1,), args, {"out": exact(outs, signed_zero=False)})

    name = _name(f"async-fresh-{pendings}{'-registers' if registers else ''}-n{trips}", dtype, extents, warps)
    return Case(name, fresh_kernel, make, warps, _listed(dtype), amd=False)


def _two_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n)
        halves = np.stack([plain(x) @ plain(h) for h in np.split(y, 2, 1)])
        args = {"a": In(x), "b": In(y), "out": Out(halves.shape, float32), **_sizes(extents)}
        return Launch((1,), args, {"out": exact(halves, signed_zero=False)})

    name = _name("async-two", dtype, extents, warps)
    return Case(name, two_kernel, make, warps, _listed(dtype) | cells("local_slice", dtype.short), amd=False)


def _register_chain_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y, z = _matrix(rng, dtype, m, k, high=1), _matrix(rng, dtype, k, n, high=1), _matrix(rng, dtype, n, n)
        args = {"a": In(x), "b": In(_turned(y, True)), "c": In(z), "out": Out((m, n), float32), **_sizes(extents)}
        return Launch((1,), args, {"out": exact(plain(x) @ plain(y) @ plain(z), signed_zero=False)})

    name = _name("async-of-product", dtype, extents, warps)
    return Case(name, register_chain_kernel, make, warps, _listed(dtype), amd=False)


def _sliced_case(dtype: DType, extents: Extents, part: int, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n)
        args = {"a": In(x), "b": In(y), "out": Out((m, n), float32), **_sizes(extents), "PART": part}
        return Launch((1,), args, {"out": exact(plain(x) @ plain(y), signed_zero=False)})

    name = _name(f"async-sliced-{part}", dtype, extents, warps)
    return Case(name, sliced_k_kernel, make, warps, _listed(dtype) | cells("local_slice", dtype.short), amd=False)


def _gemm_case(
    dtype: DType, tile: Extents, extents: Extents, big_extents: Extents, stages: int, warps: int, b_t: bool = False
) -> Case:
    """Extents that the tiles do not divide; rows are multiples of 16 bytes, as TMA demands."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        m, n, k = big_extents if big else extents
        x, y = _matrix(rng, dtype, m, k, high=1), _matrix(rng, dtype, k, n, high=1)
        args = {
            "a": In(x, block=(tile[0], tile[2])),
            "b": In(_turned(y, b_t), block=(tile[1], tile[2]) if b_t else (tile[2], tile[1])),
            "out": Out((m, n), dtype, block=tile[:2]),
            "k": k, **_sizes(tile), "STAGES": stages, "B_T": b_t,
        }  # fmt: skip
        grid = (-(-m // tile[0]), -(-n // tile[1]))
        return Launch(grid, args, {"out": exact(plain(x) @ plain(y), signed_zero=False)})

    listed = _listed(dtype, "barrier_wait barrier_expect") | cells("tma_load tma_store", dtype.short)
    where = "x".join(map(str, extents))
    name = _name(f"async-gemm-{'t' if b_t else 'n'}-s{stages}-{where}", dtype, tile, warps)
    return Case(name, gemm_kernel, make, warps, listed, amd=False)


def _copied_case(dtype: DType, tile: Extents, extents: Extents, big_extents: Extents, stages: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        m, n, k = big_extents if big else extents
        x, y = _matrix(rng, dtype, m, k, high=1), _matrix(rng, dtype, k, n, high=1)
        args = {"a": In(x), "b": In(y), "out": Out((m, n), dtype), "m": m, "n": n, "k": k, **_sizes(tile),
                "STAGES": stages}  # fmt: skip
        grid = (-(-m // tile[0]), -(-n // tile[1]))
        return Launch(grid, args, {"out": exact(plain(x) @ plain(y), signed_zero=False)})

    name = _name(f"async-copied-s{stages}-{'x'.join(map(str, extents))}", dtype, tile, warps)
    return Case(name, copied_gemm_kernel, make, warps, _listed(dtype) | cells("async_load", dtype.short), amd=False)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    yield from _extent_cases()
    yield from _order_cases()
    for trips in (0, 1, 2, 5):
        for pendings in (0, 1):
            yield _chain_case(float16, (64, 64, 32), trips, pendings, 4)
    yield _chain_case(bfloat16, (128, 32, 64), 3, 1, 8)
    for trips in (0, 1, 2, 4, 5):
        yield _fresh_case(float16, (64, 64, 32), trips, trips % 2, 4)
    yield _fresh_case(bfloat16, (128, 32, 64), 3, 1, 8)
    yield _fresh_case(bfloat16, (128, 48, 16), 3, 0, 4)
    yield _fresh_case(float16, (64, 32, 32), 3, 1, 4, registers=True)
    for dtype, warps in ((float16, 4), (bfloat16, 8)):
        yield _two_case(dtype, (16 * warps, 128, 64), warps)
        yield _register_chain_case(dtype, (16 * warps, 64, 32), warps)
        yield _sliced_case(dtype, (16 * warps, 64, 128), 64, warps)
    yield from _gemm_cases()


def _extent_cases() -> Iterator[Case]:
    """Every multiple of 8 columns, contiguous along either dimension; one and more rows of warpgroups."""
    for i, n in enumerate((8, 16, 24, 32, 40, 64, 72, 80, 96, 128, 136, 160, 192, 200, 224, 240, 248, 256)):
        dtype = (float16, bfloat16)[i % 2]
        yield _dot_case(dtype, (64, n, 32), 4, b_t=True)
        yield _dot_case(dtype, (64, n, 32), 4)
    for i, k in enumerate((16, 32, 48, 64, 80, 128)):
        yield _dot_case((bfloat16, float16)[i % 2], (64, 32, k), 4)
        yield _dot_case((float16, bfloat16)[i % 2], (64, 32, k), 4, registers=True)
    for m, warps in ((128, 4), (128, 8), (192, 4), (256, 8), (256, 16)):
        yield _dot_case(float16, (m, 64, 64), warps)
        yield _dot_case(bfloat16, (m, 32, 32), warps, a_t=True, b_t=True)
        yield _dot_case(float16, (m, 32, 32), warps, registers=True)


def _order_cases() -> Iterator[Case]:
    """Both operands in every order, A also from registers, over widths of every swizzle."""
    for dtype in (float16, bfloat16):
        for order in range(8):
            a_t, b_t, registers = (bool(order >> i & 1) for i in range(3))
            yield _dot_case(dtype, (64, 64, 64), 4, a_t, b_t, registers)
            yield _dot_case(dtype, (128, 96, 16), 8, a_t, b_t, registers)
    for n, k, warps in ((8, 8, 4), (64, 32, 4), (40, 48, 8), (256, 16, 4), (96, 128, 8)):  # tf32: both along K
        yield _dot_case(float32, (16 * warps, n, k), warps, b_t=True)
    yield _dot_case(float32, (64, 32, 32), 4, b_t=True, registers=True)
    yield _dot_case(float16, (64, 48, 32), 4, a_t=True)
    yield _dot_case(float16, (64, 160, 48), 4, a_t=True, b_t=True)


def _gemm_cases() -> Iterator[Case]:
    far: Extents = (520, 392, 264)
    for stages in (1, 2, 3, 4):
        for k in (8, 64 * stages - 8, 64 * stages + 72):
            yield _gemm_case(float16, (64, 64, 64), (72, 72, k), (520, 392, k + 128), stages, 4, b_t=stages % 2 == 0)
    yield _gemm_case(bfloat16, (128, 128, 32), (136, 64, 72), far, 2, 8)
    yield _gemm_case(bfloat16, (128, 96, 64), (64, 200, 72), far, 3, 4, b_t=True)
    yield _gemm_case(float16, (64, 256, 32), (8, 264, 40), far, 2, 4)
    for i, n in enumerate((8, 24, 40, 72, 80, 96, 136, 160, 192, 200, 224, 240, 248)):
        for b_t in (False, True):
            yield _gemm_case((float16, bfloat16)[i % 2], (64, n, 16 + 16 * b_t), (72, n + 16, 40), far, 2, 4, b_t=b_t)
    for stages in (1, 2, 3):
        yield _copied_case(float16, (64, 64, 32), (80, 80, 80), (528, 400, 272), stages, 4)
    yield _copied_case(bfloat16, (128, 64, 64), (16, 96, 48), (528, 400, 272), 2, 8)
