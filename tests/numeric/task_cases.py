"""Tasks of a CTA: copies, warps, registers, captured values, and pipelines between them.

A pipeline is a producer and consumers with a ring of buffers; every number of stages meets every number of trips from 0
to twice the stages and one more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DType, bfloat16, float16, float32, int32, int64, uint8

from .support import WARPS, Array, Case, In, InOut, Launch, Out, cells, exact, plain, small_integers, values

Extents = tuple[int, int, int]  # M, N, K


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def copies_kernel(
    x, out, n, BLOCK: tl.constexpr, WARPS: tl.constexpr, COPIES: tl.constexpr, REGISTERS: tl.constexpr,
    OWN: tl.constexpr,
):  # fmt: skip
    """Every copy of a task has n blocks of its own; what it computes depends on its number.  OWN: registers of the
    default task."""
    pid = tl.program_id(0)
    scale = n * 2 + 1
    place = tl.arange(0, BLOCK)
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=OWN):
            for i in range(n):
                at = (pid * (COPIES + 1) * n + i) * BLOCK + place
                tl.store(out + at, tl.load(x + at) * scale)
        with tlx.async_task(num_warps=WARPS, replicate=COPIES, num_regs=REGISTERS):
            copy: tl.constexpr = tlx.async_task_replica_id()
            for i in range(n):
                at = ((pid * (COPIES + 1) + 1 + copy) * n + i) * BLOCK + place
                tl.store(out + at, tl.load(x + at) * scale + copy)


@tlxc.kernel
def captured_kernel(x, ticket, out, spread, n, BLOCK: tl.constexpr, WARPS: tl.constexpr):
    """Scalars from arguments, memory, a reduction and an atomic, and a tile of indices, in two tasks."""
    place = tl.arange(0, BLOCK)
    first = tl.load(x)
    total = tl.sum(tl.load(x + place))
    mine = tl.atomic_add(ticket, 5)
    if total > n:
        first += 1000
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(out + place, place + first)
            tl.store(spread + place, tl.zeros((BLOCK,), tl.int32) + mine)
        with tlx.async_task(num_warps=WARPS, replicate=2):
            copy: tl.constexpr = tlx.async_task_replica_id()
            tl.store(out + (1 + copy) * BLOCK + place, place * total + first)
            tl.store(spread + (1 + copy) * BLOCK + place, tl.zeros((BLOCK,), tl.int32) + mine + n)


@tlxc.kernel
def around_kernel(x, out, n, BLOCK: tl.constexpr, WARPS: tl.constexpr):
    """Regions in a loop, with buffers that are written before and read after them, and a second region."""
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x), 3)
    place = tl.arange(0, BLOCK)
    for i in range(n):
        tlx.local_store(buf[0], tl.load(x + i * BLOCK + place))
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tlx.local_store(buf[1], tlx.local_load(buf[0]) * 2)
            with tlx.async_task(num_warps=WARPS):
                tlx.local_store(buf[2], tlx.local_load(buf[0]) * 3)
        tl.store(out + 2 * i * BLOCK + place, tlx.local_load(buf[1]) + tlx.local_load(buf[2]))
        with tlx.async_tasks():
            with tlx.async_task(num_warps=1):
                tlx.local_store(buf[0], tlx.local_load(buf[2]) - 1)
            with tlx.async_task("default"):
                tlx.local_store(buf[1], tlx.local_load(buf[1]) + 7)
        tl.store(out + (2 * i + 1) * BLOCK + place, tlx.local_load(buf[0]) + tlx.local_load(buf[1]))


@tlxc.kernel
def collective_kernel(
    x, rows, columns, turned, R: tl.constexpr, C: tl.constexpr, WARPS: tl.constexpr, COPIES: tl.constexpr
):
    """Reductions and transposes of all tasks at once: each has scratch memory and barriers of its own."""
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tile = tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
            for i in range(3):
                tl.store(rows + tl.arange(0, R), tl.sum(tile + i, 1))
                tl.store(columns + tl.arange(0, C), tl.max(tile + i, 0))
            tl.store(turned + tl.arange(0, C)[:, None] * R + tl.arange(0, R)[None, :], tl.trans(tile))
        with tlx.async_task(num_warps=WARPS, replicate=COPIES):
            which: tl.constexpr = 1 + tlx.async_task_replica_id()
            other = tl.load(x + which * R * C + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
            for i in range(3):
                tl.store(rows + which * R + tl.arange(0, R), tl.sum(other + i, 1))
                tl.store(columns + which * C + tl.arange(0, C), tl.max(other + i, 0))
            at = which * R * C + tl.arange(0, C)[:, None] * R + tl.arange(0, R)[None, :]
            tl.store(turned + at, tl.trans(other))


@tlxc.kernel
def products_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WARPS: tl.constexpr):
    """tl.dot in both tasks: the instruction follows from the warps of each."""
    x = a + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
    y = b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :]
    z = out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(z, tl.dot(tl.load(x), tl.load(y)))
        with tlx.async_task(num_warps=WARPS):
            tl.store(z + M * N, tl.dot(tl.load(x + M * K), tl.load(y)))


@tlxc.kernel
def branches_kernel(x, out, n, BLOCK: tl.constexpr, WARPS: tl.constexpr, EXTRA: tl.constexpr):
    """Branches and nested loops that differ between tasks; a task that is there or not by a constant."""
    place = tl.arange(0, BLOCK)
    with tlx.async_tasks():
        if EXTRA:
            with tlx.async_task(num_warps=2):
                tl.store(out + 2 * BLOCK + place, tl.load(x + place) + 2)
        with tlx.async_task("default"):
            acc = tl.zeros((BLOCK,), tl.int32)
            for i in range(n):
                if i % 2 == 0:
                    for j in range(i):
                        acc += tl.load(x + j * BLOCK + place)
                else:
                    acc -= i
            tl.store(out + place, acc)
        with tlx.async_task(num_warps=WARPS):
            total = 0
            i = n
            while i > 0:
                total += i
                i = i // 2
            if total > 3:
                tl.store(out + BLOCK + place, tl.load(x + place) + total)


def extremes(out, value, WARPS: tl.constexpr):
    """The largest and smallest of what the threads of a task hold: the tile has elements for each of them."""
    tile = tl.zeros((1024 * WARPS,), tl.int32) + value
    tl.store(out, tl.max(tile))
    tl.store(out + 1, tl.min(tile))


@tlxc.kernel
def thread_kernel(out, OWN: tl.constexpr, WARPS: tl.constexpr):
    """Threads are counted in the CTA, in every task; the clock goes on; nothing ran before."""
    tlx.gdc_wait()
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.gdc_launch_dependents()
            extremes(out, tlx.thread_id(0) + 1000 * tlx.thread_id(1), OWN)
        with tlx.async_task(num_warps=WARPS):
            tlx.gdc_wait()
            start = tlx.clock64()
            extremes(out + 2, tlx.thread_id(0), WARPS)
            extremes(out + 4, (tlx.clock64() - start > 0).to(tl.int32), WARPS)


@tlxc.kernel
def lanes_kernel(x, out, n, WARPS: tl.constexpr, MASK: tl.constexpr):
    """What threads know of themselves without tasks: votes of lanes, of a scalar, of a tile; lines asked for early."""
    place = tl.arange(0, 32 * WARPS)
    tlx.prefetch(x + place, mask=place < n)
    tlx.prefetch(x, level="L1")
    start = tlx.clock64()
    extremes(out, tlx.vote_ballot_sync(MASK, tlx.thread_id(0) % 3 == 0), WARPS)
    extremes(out + 2, tlx.vote_ballot_sync(MASK, tl.load(x) > n), WARPS)
    votes = tlx.vote_ballot_sync(MASK, tl.load(x + place) > n - 14)
    tl.store(out + 4, tl.max(votes))
    tl.store(out + 5, tl.min(votes))
    extremes(out + 6, (tlx.clock64() - start > 0).to(tl.int32), WARPS)


@tlxc.kernel
def pipeline_kernel(
    x, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr, CONSUMERS: tl.constexpr, WARPS: tl.constexpr,
    PRODUCER: tl.constexpr,
):  # fmt: skip
    """A producer task of WARPS warps and the default task as consumer; a copy of every block for each of CONSUMERS.

    PRODUCER: how blocks come: "bulk", "threads", or "copies" (cp.async)."""
    pid = tl.program_id(0)
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc((BLOCK,), dtype, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    with tlx.async_tasks():
        with tlx.async_task("default", replicate=1):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[s], p)
                tile = tlx.local_load(buf[s])
                tlx.barrier_arrive(empty[s])
                tl.store(out + (pid * CONSUMERS * n + i) * BLOCK + tl.arange(0, BLOCK), tile)
        if CONSUMERS > 1:
            with tlx.async_task(num_warps=4, replicate=CONSUMERS - 1):
                copy: tl.constexpr = 1 + tlx.async_task_replica_id()
                for i in range(n):
                    s, p = tlx.get_bufidx_phase(i, STAGES)
                    tlx.barrier_wait(full[s], p)
                    tile = tlx.local_load(buf[s])
                    tlx.barrier_arrive(empty[s])
                    tl.store(out + ((pid * CONSUMERS + copy) * n + i) * BLOCK + tl.arange(0, BLOCK), tile)
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[s], p ^ 1)
                source = x + (pid * n + i) * BLOCK
                if PRODUCER == "bulk":
                    tlx.barrier_expect_bytes(full[s], BLOCK * tlx.size_of(dtype))
                    tlx.async_load(source, buf[s], bulk=True, barrier=full[s])
                elif PRODUCER == "threads":
                    tlx.local_store(buf[s], tl.load(source + tl.arange(0, BLOCK)))
                    tlx.barrier_arrive(full[s])
                else:
                    tlx.async_load(source + tl.arange(0, BLOCK), buf[s])
                    tlx.async_load_commit_group()
                    tlx.async_load_wait_group(0)
                    tlx.barrier_arrive(full[s])


@tlxc.kernel
def gemm_kernel(
    a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr, COPIES: tl.constexpr,
    PRODUCER_FIRST: tl.constexpr,
):  # fmt: skip
    """Persistent GEMM: one task loads by TMA, COPIES tasks multiply rows of their own and store by TMA.

    PRODUCER_FIRST: the default task loads; else it is one of the consumers' kind, and one warp loads."""
    dtype = tlx.dtype_of(a)
    x = tlx.local_alloc((M, K), dtype, STAGES * COPIES)
    y = tlx.local_alloc((K, N), dtype, STAGES)
    z = tlx.local_alloc((M, N), dtype, COPIES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=COPIES)
    columns, steps = tl.cdiv(n, N), tl.cdiv(k, K)
    tiles = tl.cdiv(m, M * COPIES) * columns
    with tlx.async_tasks():
        if PRODUCER_FIRST:
            with tlx.async_task("default", num_regs=40):
                produce(a, b, x, y, full, empty, tiles, columns, steps, COPIES, STAGES)
            with tlx.async_task(num_warps=4, num_regs=152, replicate=COPIES):
                which: tl.constexpr = tlx.async_task_replica_id()
                consume(c, x, y, z, full, empty, tiles, columns, steps, which, COPIES, STAGES)
        else:
            with tlx.async_task("default"):
                consume(c, x, y, z, full, empty, tiles, columns, steps, 0, COPIES, STAGES)
            if COPIES > 1:
                with tlx.async_task(num_warps=4, replicate=COPIES - 1):
                    which: tl.constexpr = 1 + tlx.async_task_replica_id()
                    consume(c, x, y, z, full, empty, tiles, columns, steps, which, COPIES, STAGES)
            with tlx.async_task(num_warps=1, num_regs=40):
                produce(a, b, x, y, full, empty, tiles, columns, steps, COPIES, STAGES)


def produce(a, b, x, y, full, empty, tiles, columns, steps, COPIES: tl.constexpr, STAGES: tl.constexpr):
    M, K = x.shape
    N: tl.constexpr = y.shape[1]
    bytes: tl.constexpr = (COPIES * M * K + K * N) * tlx.size_of(x.dtype)
    trip = 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = tile // columns * (M * COPIES), tile % columns * N
        for i in range(steps):
            s, p = tlx.get_bufidx_phase(trip, STAGES)
            tlx.barrier_wait(empty[s], p ^ 1)
            tlx.barrier_expect_bytes(full[s], bytes)
            for j in tl.static_range(COPIES):
                tlx.async_descriptor_load(a, x[COPIES * s + j], [row + j * M, i * K], full[s])
            tlx.async_descriptor_load(b, y[s], [i * K, column], full[s])
            trip += 1


def consume(
    c, x, y, z, full, empty, tiles, columns, steps, WHICH: tl.constexpr, COPIES: tl.constexpr, STAGES: tl.constexpr
):
    M: tl.constexpr = x.shape[0]
    N: tl.constexpr = y.shape[1]
    LAG: tl.constexpr = 1 if STAGES > 1 else 0  # trips until a stage is given back
    trip = 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = tile // columns * (M * COPIES) + WHICH * M, tile % columns * N
        acc = tl.zeros((M, N), tl.float32)
        for i in range(steps):
            s, p = tlx.get_bufidx_phase(trip, STAGES)
            tlx.barrier_wait(full[s], p)
            acc = tlx.async_dot(x[COPIES * s + WHICH], y[s], acc)
            acc = tlx.async_dot_wait(LAG, acc)
            if i >= LAG:
                tlx.barrier_arrive(empty[(trip - LAG) % STAGES])
            trip += 1
        acc = tlx.async_dot_wait(0, acc)
        if LAG:
            tlx.barrier_arrive(empty[(trip - LAG) % STAGES])
        tlx.async_descriptor_store_wait(0, read=True)
        tlx.local_store(z[WHICH], acc.to(z.dtype))
        tlx.async_descriptor_store(c, z[WHICH], [row, column])
    tlx.async_descriptor_store_wait(0)


# --------------------------------------------------------------------------------------------------------------- cases
def _integers(rng: np.random.Generator, *shape: int) -> Array:
    return small_integers(rng, int32, int(np.prod(shape)), 9).reshape(shape)


def _programs(big: bool) -> int:
    return 9 if big else 2


def _copies_case(
    trips: int, warps: int, second: int, copies: int, registers: int | None = None, own: int | None = None
) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _integers(rng, _programs(big), copies + 1, trips, 96)
        which = np.arange(copies + 1).reshape(1, -1, 1, 1)
        expect = x * (2 * trips + 1) + np.maximum(which - 1, 0)
        args = {
            "x": In(x), "out": Out(x.shape, int32), "n": trips, "BLOCK": 96, "WARPS": second, "COPIES": copies,
            "REGISTERS": registers, "OWN": own,
        }  # fmt: skip
        return Launch((len(x),), args, {"out": exact(expect)})

    budget = f"-r{registers}-{own}" if registers or own else ""
    name = f"copies-{copies}x{second}{budget}-n{trips}-w{warps}"
    shared = copies > 1 and second >= 4  # copies of whole warpgroups have one region
    listed = cells("async_tasks task_copy" if shared else "async_tasks", "-")
    return Case(name, copies_kernel, make, warps, listed, amd=False)


def _captured_case(warps: int, second: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _integers(rng, 64)
        n = 17
        total, place = x.sum(), np.arange(64)
        first = x[0] + 1000 * (total > n)
        out = np.stack([place + first, *[place * total + first] * 2])
        spread = np.repeat([[30], [30 + n], [30 + n]], 64, 1)
        args = {
            "x": In(x), "ticket": InOut(np.array([30], np.int32)), "out": Out(out.shape, int32),
            "spread": Out(out.shape, int32), "n": n, "BLOCK": 64, "WARPS": second,
        }  # fmt: skip
        return Launch((1,), args, {"ticket": exact(np.array([35])), "out": exact(out), "spread": exact(spread)})

    listed = cells("async_tasks", "-") | cells("atomic_rmw", "i32")
    return Case(f"captured-{second}-w{warps}", captured_kernel, make, warps, listed, amd=False)


def _around_case(trips: int, warps: int, second: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _integers(rng, trips, 128)
        expect = np.stack([5 * x, 3 * x - 1 + 2 * x + 7], 1)
        args = {"x": In(x), "out": Out(expect.shape, int32), "n": trips, "BLOCK": 128, "WARPS": second}
        return Launch((1,), args, {"out": exact(expect)})

    name = f"around-{second}-n{trips}-w{warps}"
    return Case(name, around_kernel, make, warps, cells("async_tasks barrier", "-"), amd=False)


def _collective_case(tile: tuple[int, int], warps: int, second: int, copies: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _integers(rng, 1 + copies, *tile)
        turned = x.transpose(0, 2, 1)
        outs = {"rows": x.sum(2) + 2 * tile[1], "columns": x.max(1) + 2, "turned": turned}
        args = {"x": In(x), **{name: Out(v.shape, int32) for name, v in outs.items()}}
        args |= {"R": tile[0], "C": tile[1], "WARPS": second, "COPIES": copies}
        return Launch((1,), args, {name: exact(v) for name, v in outs.items()})

    name = f"collectives-{tile[0]}x{tile[1]}-{copies}x{second}-w{warps}"
    listed = cells("async_tasks barrier" if warps > 1 or second > 1 else "async_tasks", "-")
    return Case(name, collective_kernel, make, warps, listed, amd=False)


def _products_case(dtype: DType, extents: Extents, warps: int, second: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, 2 * m * k, 3).reshape(2, m, k)
        y = small_integers(rng, dtype, k * n, 3).reshape(k, n)
        args = {"a": In(x), "b": In(y), "out": Out((2, m, n), float32), "M": m, "N": n, "K": k, "WARPS": second}
        return Launch((1,), args, {"out": exact(plain(x) @ plain(y), signed_zero=False)})

    name = f"products-{dtype}-{'x'.join(map(str, extents))}-{second}-w{warps}"
    return Case(name, products_kernel, make, warps, cells("dot", dtype.short) | cells("async_tasks", "-"), amd=False)


def _branches_case(trips: int, warps: int, second: int, extra: bool) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _integers(rng, max(trips, 1), 64)
        out = np.zeros((3, 64), np.int64)
        for i in range(trips):
            out[0] += x[:i].sum(0) if i % 2 == 0 else -i
        total = sum(trips >> i for i in range(8))
        out[1], out[2] = x[0] + total, x[0] + 2
        written = np.array([[True], [total > 3], [extra]])
        args = {"x": In(x), "out": Out((3, 64), int32), "n": trips, "BLOCK": 64, "WARPS": second, "EXTRA": extra}
        return Launch((1,), args, {"out": exact(out, np.broadcast_to(written, out.shape))})

    name = f"task-branches-{second}{'-extra' if extra else ''}-n{trips}-w{warps}"
    return Case(name, branches_kernel, make, warps, cells("async_tasks if for while", "-"), amd=False)


def _thread_case(warps: int, second: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        last = 32 * warps - 1
        step = min(second, 4)  # a task begins a warpgroup, or lies inside one
        start = 32 * (-(-warps // step) * step)
        expect = np.array([last, 0, start + 32 * second - 1, start, 1, 1])
        args = {"out": Out(6, int32), "OWN": warps, "WARPS": second}
        return Launch((1,), args, {"out": exact(expect)})

    listed = cells("thread_id clock64 grid_dependency", "-")
    return Case(f"threads-{second}-w{warps}", thread_kernel, make, warps, listed, amd=False)


def _lanes_case(first: int, mask: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        lanes = np.arange(32 * warps).reshape(-1, 32) % 3 == 0
        words = [sum(1 << i for i in np.flatnonzero(row)) & mask for row in lanes]
        signed = np.array([*words, mask if first > 20 else 0, mask], np.uint32).view(np.int32)
        pairs = [signed[:-2].max(), signed[:-2].min(), *[signed[-2]] * 2, *[signed[-1]] * 2, 1, 1]
        x = np.full(32 * warps, 7, np.int32)
        x[0] = first + 2
        args = {"x": In(x), "out": Out(8, int32), "n": 20, "WARPS": warps, "MASK": mask}
        return Launch((1,), args, {"out": exact(np.array(pairs))})

    listed = cells("thread_id clock64 vote prefetch", "-")
    return Case(f"lanes-{first}-{mask:x}-w{warps}", lanes_kernel, make, warps, listed, amd=False)


_WAYS = {"bulk": "bulk_load", "threads": "local_store", "copies": "async_load"}


def _pipeline_case(dtype: DType, way: str, stages: int, trips: int, consumers: int, warps: int, second: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        block = 128 * second
        x = values(rng, dtype, _programs(big) * trips * block).reshape(_programs(big), trips, block)
        expect = np.repeat(x[:, None], consumers, 1)
        args: dict[str, Any] = {
            "x": In(x), "out": Out(expect.shape, dtype), "n": trips, "BLOCK": block,
            "STAGES": stages, "CONSUMERS": consumers, "WARPS": second, "PRODUCER": way,
        }  # fmt: skip
        return Launch((len(x),), args, {"out": exact(plain(expect))})

    name = f"pipeline-{way}-{dtype}-s{stages}-n{trips}-c{consumers}-{second}-w{warps}"
    listed = cells(_WAYS[way], dtype.short) | cells("async_tasks barrier_wait barrier_arrive", "-")
    return Case(name, pipeline_kernel, make, warps, listed, amd=False)


def _gemm_case(
    dtype: DType, tile: Extents, extents: Extents, stages: int, copies: int, producer_first: bool, warps: int = 4
) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        m, n, k = (e * 5 + 8 for e in extents) if big else extents
        x, y = small_integers(rng, dtype, m * k, 1).reshape(m, k), small_integers(rng, dtype, k * n, 1).reshape(k, n)
        args = {
            "a": In(x, block=(tile[0], tile[2])), "b": In(y, block=(tile[2], tile[1])),
            "c": Out((m, n), dtype, block=tile[:2]), "m": m, "n": n, "k": k, "M": tile[0], "N": tile[1], "K": tile[2],
            "STAGES": stages, "COPIES": copies, "PRODUCER_FIRST": producer_first,
        }  # fmt: skip
        return Launch((7 if big else 2,), args, {"c": exact(plain(x) @ plain(y), signed_zero=False)})

    text = "-".join("x".join(map(str, e)) for e in (tile, extents))
    name = f"task-gemm-{dtype}-{text}-s{stages}-c{copies}{'-first' if producer_first else ''}-w{warps}"
    listed = cells("async_dot tma_load tma_store", dtype.short) | cells("async_tasks barrier_expect", "-")
    return Case(name, gemm_kernel, make, warps, listed, amd=False)


# ----------------------------------------------------------------------------------------------------------------- list
SECOND = (1, 2, 4, 8)  # warps of the second task


def cases() -> Iterator[Case]:
    for i, second in enumerate(SECOND):
        for copies in (1, 2, 3) if second < 8 else (1,):
            yield _copies_case(copies % 3, 4, second, copies)
        yield _copies_case(3, 8, second, 1 + i % 2)
        for warps in (4, 8):
            yield _captured_case(warps, second)
            yield _around_case(3 - i % 2, warps, second)
            yield _thread_case(warps, second)
        yield _around_case(0, 4, second)
        yield _collective_case((32, 64), 4, second, 1 + i % 3)
        yield _collective_case((16, 48), 8, second, 1)
        yield _products_case((float16, bfloat16)[i % 2], (128, 64, 32), 4, second)
        yield _products_case(float16, (64, 32, 32), 4, second)
        for trips in (0, 1, 5):
            yield _branches_case(trips, 4 if trips else 8, second, trips != 1)
    for registers, own in ((24, None), (40, 232), (64, None), (None, 80), (152, 240), (232, 40)):
        yield _copies_case(2, 4, 4, 1, registers, own)
    yield _copies_case(2, 4, 4, 2, 232, 40)
    for warps in WARPS:
        yield from (_lanes_case(first, mask, warps) for first, mask in ((5, 0xFFFFFFFF), (30, 0x0F0F0F0F)))
    yield from _few_warp_cases()
    yield from _pipeline_cases()
    for stages in (1, 2, 3, 4):
        for first in (False, True):
            yield _gemm_case(float16, (64, 64, 32), (136, 72, 32 * stages + 40), stages, 1 + stages % 2, first)
    yield _gemm_case(bfloat16, (64, 128, 64), (72, 136, 72), 2, 3, False)
    yield _gemm_case(bfloat16, (64, 32, 64), (200, 40, 8), 3, 3, True)


def _few_warp_cases() -> Iterator[Case]:
    """A default task of 1 or 2 warps, with and without others in its warpgroup."""
    for i, second in enumerate(SECOND):
        for warps in (1, 2):
            copies = 1 + (i + warps) % 3 if second < 8 else 1
            yield _copies_case(2, warps, second, copies)
            yield _captured_case(warps, second)
            yield _around_case(3 - i % 2, warps, second)
            yield _thread_case(warps, second)
            yield _collective_case((32, 64) if warps == 1 else (16, 48), warps, second, copies)
            yield _products_case((float16, bfloat16)[i % 2], (64, 32, 32), warps, second)
            yield _branches_case(5 - i % 2, warps, second, i % 2 == 0)
            yield _pipeline_case(float32, list(_WAYS)[i % 3], 2, 5, 1 + (i + warps) % 2, warps, second)
        yield _copies_case(2, 1 + i % 2, second, 2 if second < 8 else 1, (40, 232)[i % 2], (232, 40)[i % 2])


def _pipeline_cases() -> Iterator[Case]:
    """All stages and trips; consumers, warps and dtypes in turn."""
    dtypes = (float32, float16, uint8, int64)
    for stages in (1, 2, 3, 4):
        for trips in range(2 * stages + 2):
            turn = stages + trips
            for j, way in enumerate(_WAYS):
                second = SECOND[(turn + j) % 4]
                consumers = 1 + (turn + j) % 3
                if way == "copies" or trips % 2 == j:
                    yield _pipeline_case(dtypes[(turn + j) % 4], way, stages, trips, consumers, 4, second)
