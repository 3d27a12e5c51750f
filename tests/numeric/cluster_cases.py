"""Clusters of 1, 2 and 4 CTAs: ranks, barriers, stores, copies and arrivals across CTAs, multicast loads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int1, int32, int64

from .indexing import count, row_major
from .support import WARPS, Array, Case, Cluster, In, Launch, Out, cells, exact, plain, small_integers, values

ALL = [d for d in DTYPES.values() if d != int1]
Shape = tuple[int, ...]
CLUSTERS: tuple[Cluster, ...] = ((2, 1, 1), (4, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 4))


# ------------------------------------------------------------------------------------------------------------- kernels
def serial():
    """Programs in the order x, y, z: those of a cluster (n, 1, 1) follow each other."""
    return (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)


@tlxc.constexpr_function
def everyone(size):
    return tuple(range(size))


@tlxc.kernel
def rank_kernel(out, BLOCK: tl.constexpr):
    tile = tl.zeros((BLOCK,), tl.int32) + tlx.cluster_cta_rank() + 100 * tlx.cluster_size_1d()
    tl.store(out + serial() * BLOCK + tl.arange(0, BLOCK), tile)


@tlxc.kernel
def remote_kernel(x, out, n, SHAPE: tl.constexpr, SIZE: tl.constexpr):
    """Everyone writes to its neighbour's buffer and reads its own, n times with another tile and distance."""
    rank = tlx.cluster_cta_rank()
    buf = tlx.local_alloc(SHAPE, tlx.dtype_of(x), 2)[1]
    for i in range(n):
        at = (serial() * n + i) * count(SHAPE) + row_major(SHAPE)
        tlx.remote_shmem_store(buf, tl.load(x + at), (rank + i) % SIZE)
        tlx.cluster_barrier()
        tl.store(out + at, tlx.local_load(buf))
        tlx.cluster_barrier()


@tlxc.kernel
def meeting_kernel(x, out, trips, BLOCK: tl.constexpr, SIZE: tl.constexpr, WARPS: tl.constexpr, AFTER: tl.constexpr):
    """Cluster barriers in loops and branches of tasks and before them, while some warps of the CTA have no task.

    AFTER: code follows the region, so that warps without a task wait for it."""
    to = (tlx.cluster_cta_rank() + 1) % SIZE
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x), 3)
    place = tl.arange(0, BLOCK)
    mine, results = x + serial() * BLOCK + place, out + serial() * 4 * BLOCK + place
    n = tl.load(trips)
    for i in range(2):
        pass_on(buf[0], mine, i, to, results)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                if i % 2 == 0:
                    pass_on(buf[1], mine, 10 * i, to, results + BLOCK)
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                if i % 2 == 0:
                    pass_on(buf[2], x + serial() * BLOCK + tl.arange(0, BLOCK), 20 * i, to,
                            out + (serial() * 4 + 2) * BLOCK + tl.arange(0, BLOCK))  # fmt: skip
    if AFTER:
        tl.store(results + 3 * BLOCK, tlx.local_load(buf[0]) + tlx.local_load(buf[2]))


def pass_on(buf, source, more, to, result):
    tlx.remote_shmem_store(buf, tl.load(source) + more, to)
    tlx.cluster_barrier()
    tl.store(result, tlx.local_load(buf))
    tlx.cluster_barrier()


@tlxc.kernel
def async_remote_kernel(x, out, n, SHAPE: tl.constexpr, SIZE: tl.constexpr, COPY: tl.constexpr):
    """The same with asynchronous stores of tiles or (COPY) copies of buffers, which signal a barrier there."""
    rank = tlx.cluster_cta_rank()
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc(SHAPE, dtype, 2)
    source = tlx.local_alloc(SHAPE, dtype)[0]
    bar = tlx.alloc_barriers(2)
    for i in range(n):
        s, p = tlx.get_bufidx_phase(i, 2)
        at = (serial() * n + i) * count(SHAPE) + row_major(SHAPE)
        to = (rank + 1 + i) % SIZE
        tlx.barrier_expect_bytes(bar[s], count(SHAPE) * tlx.size_of(dtype))
        if COPY:
            tlx.local_store(source, tl.load(x + at))
            tlx.async_remote_shmem_copy(buf[s], source, to, bar[s])
        else:
            tlx.async_remote_shmem_store(buf[s], tl.load(x + at), to, bar[s])
        tlx.barrier_wait(bar[s], p)
        tl.store(out + at, tlx.local_load(buf[s]))
        tlx.cluster_barrier()


@tlxc.kernel
def sum_kernel(x, out, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    """The sum over a cluster: parts go to everyone's slot of the sender, remote arrivals tell that they are there."""
    rank = tlx.cluster_cta_rank()
    slots = tlx.local_alloc((BLOCK,), tlx.dtype_of(x), SIZE)
    there = tlx.alloc_barriers(1, arrive_count=SIZE)[0]
    part = tl.load(x + serial() * BLOCK + tl.arange(0, BLOCK))
    for peer in tl.static_range(SIZE):
        tlx.remote_shmem_store(slots[rank], part, peer)
        tlx.barrier_arrive(there, remote_cta_rank=peer)
    tlx.barrier_wait(there, 0)
    total = tlx.local_load(slots[0])
    for i in tl.static_range(1, SIZE):
        total += tlx.local_load(slots[i])
    tl.store(out + serial() * BLOCK + tl.arange(0, BLOCK), total)


@tlxc.kernel
def token_kernel(out, n, SIZE: tl.constexpr, TASKS: tl.constexpr):
    """A token goes round the cluster n times: a remote arrival lets the next CTA go on, under a predicate.

    TASKS: a task of one warp passes it on."""
    rank = tlx.cluster_cta_rank()
    turn = tlx.alloc_barriers(1)[0]
    if TASKS:
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tl.store(out + serial() * 2, rank)
            with tlx.async_task(num_warps=1):
                rounds(out, turn, n, rank, SIZE)
    else:
        tl.store(out + serial() * 2, rank)
        rounds(out, turn, n, rank, SIZE)


def rounds(out, turn, n, rank, SIZE: tl.constexpr):
    for i in range(n):
        done = i - 1 if rank == 0 else i  # arrivals before this one: the token starts at rank 0
        tlx.barrier_wait(turn, done & 1, pred=done >= 0)
        tl.store(out + serial() * 2 + 1, i)
        last = (rank == SIZE - 1) & (i == n - 1)
        tlx.barrier_arrive(turn, remote_cta_rank=(rank + 1) % SIZE, pred=~last)


@tlxc.kernel
def multicast_kernel(x, out, n, SHAPE: tl.constexpr, SIZE: tl.constexpr, STAGES: tl.constexpr):
    """Every CTA loads one of SIZE parts of a block for all of them; whoever is done says so to all."""
    rank = tlx.cluster_cta_rank()
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc(SHAPE, dtype, STAGES * SIZE)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=SIZE)
    for i in range(n):
        s, p = tlx.get_bufidx_phase(i, STAGES)
        tlx.barrier_wait(empty[s], p ^ 1)
        tlx.barrier_expect_bytes(full[s], SIZE * count(SHAPE) * tlx.size_of(dtype))
        row = (i * SIZE + rank) * SHAPE[0]
        tlx.async_descriptor_load(x, buf[s * SIZE + rank], [row, 0], full[s], multicast_targets=range(SIZE))
        tlx.barrier_wait(full[s], p)
        for j in tl.static_range(SIZE):
            at = ((serial() * n + i) * SIZE + j) * count(SHAPE) + row_major(SHAPE)
            tl.store(out + at, tlx.local_load(buf[s * SIZE + j]))
        for peer in tl.static_range(SIZE):
            tlx.barrier_arrive(empty[s], remote_cta_rank=peer)


@tlxc.kernel
def pair_kernel(x, out, SHAPE: tl.constexpr):
    """Two CTAs, each loads for the other one only, whose rank is known at run time."""
    rank = tlx.cluster_cta_rank()
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc(SHAPE, dtype)[0]
    bar = tlx.alloc_barriers(1)[0]
    tlx.barrier_expect_bytes(bar, count(SHAPE) * tlx.size_of(dtype))
    tlx.cluster_barrier()
    tlx.async_descriptor_load(x, buf, [serial() * SHAPE[0], 0], bar, multicast_targets=[rank ^ 1])
    tlx.barrier_wait(bar, 0)
    tl.store(out + serial() * count(SHAPE) + row_major(SHAPE), tlx.local_load(buf))


@tlxc.kernel
def gemm_kernel(
    a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr, SIZE: tl.constexpr
):
    """CTAs of a cluster have the same columns: each loads a part of B for all, and its own rows of A."""
    PART: tl.constexpr = K // SIZE
    rank = tlx.cluster_cta_rank()
    dtype = tlx.dtype_of(a)
    x, y = tlx.local_alloc((M, K), dtype, STAGES), tlx.local_alloc((K, N), dtype, STAGES)
    z = tlx.local_alloc((M, N), dtype)[0]
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=SIZE)
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    steps = tl.cdiv(k, K)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            acc = tl.zeros((M, N), tl.float32)
            for i in range(steps):
                s, p = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[s], p)
                acc = tlx.async_dot_wait(0, tlx.async_dot(x[s], y[s], acc))
                for peer in tl.static_range(SIZE):
                    tlx.barrier_arrive(empty[s], remote_cta_rank=peer)
            tlx.local_store(z, acc.to(dtype))
            tlx.async_descriptor_store(c, z, [row, column])
            tlx.async_descriptor_store_wait(0)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                s, p = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[s], p ^ 1)
                tlx.barrier_expect_bytes(full[s], (M * K + K * N) * tlx.size_of(dtype))
                tlx.async_descriptor_load(a, x[s], [row, i * K], full[s])
                for j in tl.static_range(SIZE):
                    if rank == j:
                        part = tlx.local_slice(y[s], [j * PART, 0], [PART, N])
                        tlx.async_descriptor_load(
                            b, part, [i * K + j * PART, column], full[s], multicast_targets=everyone(SIZE)
                        )


# --------------------------------------------------------------------------------------------------------------- cases
def _values(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    return values(rng, dtype, int(np.prod(shape))).reshape(shape)


def _grid(cluster: Cluster, big: bool) -> tuple[int, int, int]:
    """Several clusters along every dimension."""
    x, y, z = cluster
    return (3 * x, 2 * y, 2 * z) if big else (2 * x, y, z)


def _members(grid: Shape, cluster: Cluster) -> tuple[Array, Array]:
    """(cluster, rank) of every program in the order of `serial`."""
    z, y, x = np.meshgrid(*(np.arange(n) for n in reversed(grid)), indexing="ij")
    (cx, cy, cz), (nx, ny, _) = cluster, (g // c for g, c in zip(grid, cluster))
    rank = (z % cz * cy + y % cy) * cx + x % cx
    which = (z // cz * ny + y // cy) * nx + x // cx
    return which.ravel(), rank.ravel()


def _from_peer(x: Array, grid: Shape, cluster: Cluster, distance: int) -> Array:
    """For every program what the one `distance` ranks before it in its cluster has."""
    which, rank = _members(grid, cluster)
    place = np.empty((which.max() + 1, prod(cluster)), int)
    place[which, rank] = np.arange(len(which))
    return x[place[which, (rank - distance) % prod(cluster)]]


def _text(cluster: Cluster) -> str:
    return "x".join(map(str, cluster))


def _rank_case(cluster: Cluster, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        expect = np.repeat(_members(grid, cluster)[1][:, None] + 100 * prod(cluster), 32, 1)
        return Launch(grid, {"out": Out(expect.shape, int32), "BLOCK": 32}, {"out": exact(expect)})

    listed = cells("cluster_rank cluster_size", "-")
    return Case(f"cluster-rank-{_text(cluster)}-w{warps}", rank_kernel, make, warps, listed, False, cluster)


def _remote_case(dtype: DType, shape: Shape, cluster: Cluster, trips: int, warps: int, way: str = "store") -> Case:
    """`way`: store, or the asynchronous store and copy."""
    ops = {"store": "remote_store", "async": "async_remote_store", "copy": "async_remote_copy"}
    first = 0 if way == "store" else 1

    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        x = _values(rng, dtype, prod(grid), trips, *shape)
        moved = [_from_peer(x[:, i], grid, cluster, first + i) for i in range(trips)]
        expect = np.stack(moved, 1) if trips else x
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": trips, "SHAPE": shape, "SIZE": prod(cluster)}
        if way != "store":
            args["COPY"] = way == "copy"
        return Launch(grid, args, {"out": exact(plain(expect))})

    name = f"remote-{way}-{dtype}-{'x'.join(map(str, shape))}-{_text(cluster)}-n{trips}-w{warps}"
    kernel = remote_kernel if way == "store" else async_remote_kernel
    listed = cells(ops[way], dtype.short) | cells("cluster_barrier", "-")
    if way != "store":
        listed |= cells("fence_mbarrier_init", "-")
    return Case(name, kernel, make, warps, listed, False, cluster)


def _meeting_case(cluster: Cluster, trips: int, second: int, after: bool, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        x = small_integers(rng, int32, prod(grid) * 128, 9).reshape(-1, 128)
        peer = _from_peer(x, grid, cluster, 1)
        last = (trips - 1) // 2 * 2
        first, other = peer + 1, peer + 20 * last
        expect = np.stack([first, peer + 10 * last, other, first + other], 1)
        written = np.broadcast_to(np.array([True, True, True, after])[:, None], expect.shape)
        args = {"x": In(x), "out": Out(expect.shape, int32), "trips": In(np.array([trips], np.int32)), "BLOCK": 128,
                "SIZE": prod(cluster), "WARPS": second, "AFTER": after}  # fmt: skip
        return Launch(grid, args, {"out": exact(expect, written)})

    name = f"meeting-{_text(cluster)}-n{trips}-{second}{'-after' if after else ''}-w{warps}"
    listed = cells("remote_store", "i32") | cells("cluster_barrier async_tasks", "-")
    return Case(name, meeting_kernel, make, warps, listed, False, cluster)


def _sum_case(dtype: DType, cluster: Cluster, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        x = small_integers(rng, dtype, prod(grid) * 128, 9).reshape(-1, 128)
        wide = plain(x).astype(np.float64)
        expect = sum(_from_peer(wide, grid, cluster, d) for d in range(prod(cluster)))
        args = {"x": In(x), "out": Out(x.shape, dtype), "BLOCK": 128, "SIZE": prod(cluster)}
        return Launch(grid, args, {"out": exact(expect, signed_zero=False)})

    listed = cells("remote_store", dtype.short) | cells("barrier_arrive", "-")
    return Case(f"cluster-sum-{dtype}-{_text(cluster)}-w{warps}", sum_kernel, make, warps, listed, False, cluster)


def _token_case(cluster: Cluster, trips: int, tasks: bool, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        expect = np.stack([_members(grid, cluster)[1], np.full(prod(grid), trips - 1)], 1)
        written = np.broadcast_to(np.array([True, trips > 0]), expect.shape)
        args = {"out": Out(expect.shape, int32), "n": trips, "SIZE": prod(cluster), "TASKS": tasks}
        return Launch(grid, args, {"out": exact(expect, written)})

    name = f"token-{_text(cluster)}{'-tasks' if tasks else ''}-n{trips}-w{warps}"
    return Case(name, token_kernel, make, warps, cells("barrier_arrive cluster_rank", "-"), False, cluster)


def _multicast_case(
    dtype: DType, block: tuple[int, int], cluster: Cluster, trips: int, stages: int, warps: int
) -> Case:
    size = prod(cluster)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        rows = max(1, trips * size * block[0] - 3)
        x = _values(rng, dtype, rows, block[1])
        whole = np.zeros((trips * size * block[0], block[1]), x.dtype)
        whole[:rows] = x[: len(whole)]
        expect = np.broadcast_to(whole, (prod(grid), *whole.shape))
        args = {
            "x": In(x, block=block), "out": Out(expect.shape, dtype), "n": trips, "SHAPE": block, "SIZE": size,
            "STAGES": stages,
        }  # fmt: skip
        return Launch(grid, args, {"out": exact(plain(expect))})

    name = f"multicast-{dtype}-{block[0]}x{block[1]}-{_text(cluster)}-s{stages}-n{trips}-w{warps}"
    listed = cells("tma_load", dtype.short) | cells("barrier_expect barrier_arrive", "-")
    return Case(name, multicast_kernel, make, warps, listed, False, cluster)


def _pair_case(dtype: DType, block: tuple[int, int], warps: int) -> Case:
    cluster: Cluster = (2, 1, 1)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        grid = _grid(cluster, big)
        x = _values(rng, dtype, prod(grid), *block)
        source = In(x.reshape(-1, block[1]), block=block)
        args = {"x": source, "out": Out(x.shape, dtype), "SHAPE": block}
        return Launch(grid, args, {"out": exact(plain(_from_peer(x, grid, cluster, 1)))})

    name = f"multicast-pair-{dtype}-{block[0]}x{block[1]}-w{warps}"
    return Case(name, pair_kernel, make, warps, cells("tma_load", dtype.short), False, cluster)


def _gemm_case(dtype: DType, tile: Shape, extents: Shape, cluster: Cluster, stages: int) -> Case:
    """Rows of tiles fill whole clusters, so that the grid does."""
    size = prod(cluster)

    def make(rng: np.random.Generator, big: bool) -> Launch:
        m, n, k = (3 * e + 16 for e in extents) if big else extents
        x, y = small_integers(rng, dtype, m * k, 1).reshape(m, k), small_integers(rng, dtype, k * n, 1).reshape(k, n)
        args = {
            "a": In(x, block=(tile[0], tile[2])), "b": In(y, block=(tile[2] // size, tile[1])),
            "c": Out((m, n), dtype, block=tile[:2]), "k": k, "M": tile[0], "N": tile[1], "K": tile[2],
            "STAGES": stages, "SIZE": size,
        }  # fmt: skip
        rows = -(-m // (tile[0] * size)) * size
        return Launch((rows, -(-n // tile[1])), args, {"c": exact(plain(x) @ plain(y), signed_zero=False)})

    name = f"multicast-gemm-{dtype}-{'x'.join(map(str, tile))}-{'x'.join(map(str, extents))}-{_text(cluster)}-s{stages}"
    listed = cells("async_dot tma_load", dtype.short) | cells("async_tasks cluster_rank", "-")
    return Case(name, gemm_kernel, make, 4, listed, False, cluster)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for i, cluster in enumerate(((1, 1, 1), *CLUSTERS)):
        yield _rank_case(cluster, WARPS[i % 4])
    for warps in WARPS:
        for i, dtype in enumerate(ALL):
            cluster = ((2, 1, 1), (4, 1, 1))[i % 2]
            shape = (16 * max(1, warps // 4), 32)
            for way in ("store", "async", "copy"):
                yield _remote_case(dtype, shape, cluster, 1, warps, way)
    for i, cluster in enumerate(CLUSTERS):
        for way in ("store", "async", "copy"):
            yield _remote_case(float32, (128,), cluster, 3, 4, way)
            yield _remote_case(float16, (32, 64), cluster, 4, WARPS[i % 4], way)
        yield _sum_case((int32, float32, int64, float16, bfloat16)[i], cluster, WARPS[(i + 2) % 4])
        for trips in (1, 2, 5):
            yield _token_case(cluster, trips, False, WARPS[(i + trips) % 4])
            yield _token_case(cluster, trips, True, 4)
        yield _multicast_case(float16, (8, 64), cluster, 5, 2, WARPS[i % 4])
    for i, (warps, second) in enumerate(((4, 1), (4, 2), (4, 4), (8, 1), (1, 1), (2, 4))):
        yield _meeting_case(((2, 1, 1), (4, 1, 1))[i % 2], 1 + i, second, i != 1, warps)
    for stages in (1, 2, 3, 4):
        for trips in sorted({0, 1, stages, 2 * stages + 1}):
            yield _multicast_case(float32, (8, 32), (2, 1, 1), trips, stages, WARPS[trips % 4])
    yield _multicast_case(bfloat16, (16, 128), (4, 1, 1), 3, 2, 4)
    yield from (_pair_case(dtype, (16, 32), warps) for dtype, warps in ((float16, 4), (float32, 1), (int64, 8)))
    for stages, cluster in ((1, (2, 1, 1)), (2, (2, 1, 1)), (3, (4, 1, 1)), (4, (2, 1, 1))):
        yield _gemm_case(float16, (64, 64, 64), (136, 72, 72), cluster, stages)
    yield _gemm_case(bfloat16, (64, 128, 32), (64, 136, 136), (2, 1, 1), 3)
