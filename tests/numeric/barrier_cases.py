"""mbarriers, warp barriers, named barriers and fences: counts, predicates and phases over many rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DType, bfloat16, float16, float32, int8, int32, int64

from .support import WARPS, Array, Case, In, InOut, Launch, Out, cells, exact, plain, small_integers, values

ROUNDS = (0, 1, 2, 5)
TASKS = ((4, 1), (4, 2), (4, 4), (4, 8), (8, 1), (8, 4))  # warps of the default task and of the other


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def rounds_kernel(x, out, n, BLOCK: tl.constexpr, NUM: tl.constexpr, ARRIVALS: tl.constexpr, AT_ONCE: tl.constexpr):
    """A task meets itself: ARRIVALS arrivals, one by one or at once, at NUM barriers in turn."""
    bar = tlx.alloc_barriers(NUM, arrive_count=ARRIVALS)
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x))[0]
    place = tl.arange(0, BLOCK)
    for i in range(n):
        s, p = tlx.get_bufidx_phase(i, NUM)
        tlx.local_store(buf, tl.load(x + i * BLOCK + place))
        if AT_ONCE:
            tlx.barrier_arrive(bar[s], ARRIVALS)
        else:
            for _ in tl.static_range(ARRIVALS):
                tlx.barrier_arrive(bar[s])
        tlx.barrier_wait(bar[s], p)
        tl.store(out + i * BLOCK + place, tlx.local_load(buf))


@tlxc.kernel
def predicate_kernel(x, out, n, BLOCK: tl.constexpr):
    """One of two arrivals counts; every third round neither copies nor waits, and leaves the phase as it is."""
    bar = tlx.alloc_barriers(1, arrive_count=2)[0]
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x))[0]
    place = tl.arange(0, BLOCK)
    size: tl.constexpr = BLOCK * tlx.size_of(tlx.dtype_of(x))
    phase = 0
    tlx.local_store(buf, 0)
    for i in range(n):
        live = i % 3 != 2
        tlx.barrier_expect_bytes(bar, size, pred=live)
        if live:
            tlx.async_load(x + i * BLOCK, buf, bulk=True, barrier=bar)
        tlx.barrier_arrive(bar, pred=live & (i % 2 == 0))
        tlx.barrier_arrive(bar, pred=live & (i % 2 != 0))
        tlx.barrier_wait(bar, phase, pred=live)
        phase = phase ^ live.to(tl.int32)
        tl.store(out + i * BLOCK + place, tlx.local_load(buf))


@tlxc.kernel
def pingpong_kernel(x, out, n, BLOCK: tl.constexpr, WARPS: tl.constexpr):
    """Two tasks with one buffer between them."""
    ping, pong = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x))[0]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                tlx.local_store(buf, tl.load(x + i * BLOCK + tl.arange(0, BLOCK)))
                tlx.barrier_arrive(ping)
                tlx.barrier_wait(pong, i & 1)
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                tlx.barrier_wait(ping, i & 1)
                tl.store(out + i * BLOCK + tl.arange(0, BLOCK), tlx.local_load(buf))
                tlx.barrier_arrive(pong)


@tlxc.kernel
def warp_barrier_kernel(
    x, out, n, BLOCK: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, ARRIVALS: tl.constexpr
):
    """The same with arrivals of every thread: FIRST and SECOND are the warps of the two tasks."""
    full = tlx.alloc_warp_barrier(2, num_warps=FIRST, num_arrivals=ARRIVALS)
    empty = tlx.alloc_warp_barrier(2, num_warps=SECOND, num_arrivals=ARRIVALS)
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x), 2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(empty[s], p ^ 1)
                tlx.local_store(buf[s], tl.load(x + i * BLOCK + tl.arange(0, BLOCK)))
                for _ in tl.static_range(ARRIVALS):
                    tlx.barrier_arrive(full[s])
        with tlx.async_task(num_warps=SECOND):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(full[s], p)
                tl.store(out + i * BLOCK + tl.arange(0, BLOCK), tlx.local_load(buf[s]))
                for _ in tl.static_range(ARRIVALS):
                    tlx.barrier_arrive(empty[s])


@tlxc.kernel
def named_kernel(x, out, n, BLOCK: tl.constexpr, FULL: tl.constexpr, EMPTY: tl.constexpr, THREADS: tl.constexpr,
                 WARPS: tl.constexpr):  # fmt: skip
    """Two tasks and two hardware barriers; the sum in the second task takes barriers of the compiler besides."""
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x))[0]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                if i > 0:
                    tlx.named_barrier_wait(EMPTY, THREADS)
                tlx.local_store(buf, tl.load(x + i * BLOCK + tl.arange(0, BLOCK)))
                tlx.named_barrier_arrive(FULL, THREADS)
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                tlx.named_barrier_wait(FULL, THREADS)
                total = tl.sum(tlx.local_load(buf))
                if i + 1 < n:
                    tlx.named_barrier_arrive(EMPTY, THREADS)
                tl.store(out + i, total)


@tlxc.kernel
def turns_kernel(x, out, n, first, BLOCK: tl.constexpr, THREADS: tl.constexpr, WARPS: tl.constexpr):
    """Two stages with hardware barriers whose ids follow from the trip: 4, 5 or 8, 9 for full, 10 and 11 for empty."""
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x), 2)
    full = tl.where(first > 0, 4, 8)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                if i > 1:
                    tlx.named_barrier_wait(10 + i % 2, THREADS)
                tlx.local_store(buf[i % 2], tl.load(x + i * BLOCK + tl.arange(0, BLOCK)))
                tlx.named_barrier_arrive(full + (i & 1), THREADS)
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                tlx.named_barrier_wait(full + i % 2, THREADS)
                total = tl.sum(tlx.local_load(buf[i % 2]))
                if i + 2 < n:
                    tlx.named_barrier_arrive(10 + (i & 1), THREADS)
                tl.store(out + i, total)


@tlxc.kernel
def chosen_named_kernel(x, out, which, BLOCK: tl.constexpr, THREADS: tl.constexpr):
    """All threads meet at a barrier that an argument and memory choose."""
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + tl.arange(0, BLOCK)))
    tlx.named_barrier_wait(tl.maximum(which + tl.load(x).to(tl.int32) & 15, 1), THREADS)
    tl.store(out + tl.arange(0, BLOCK), tlx.local_gather(buf, BLOCK - 1 - tl.arange(0, BLOCK), 0))


@tlxc.kernel
def own_named_kernel(x, out, ID: tl.constexpr, BLOCK: tl.constexpr, THREADS: tl.constexpr):
    """All threads of a kernel without tasks meet at a barrier of the author."""
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x))[0]
    tlx.local_store(buf, tl.load(x + tl.arange(0, BLOCK)))
    tlx.named_barrier_wait(ID, THREADS)
    tl.store(out + tl.arange(0, BLOCK), tlx.local_gather(buf, BLOCK - 1 - tl.arange(0, BLOCK), 0))


@tlxc.kernel
def last_kernel(x, parts, counter, out, SCOPE: tl.constexpr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """The program that finishes last adds up what all have written."""
    pid = tl.program_id(0)
    tl.store(parts + pid, tl.sum(tl.load(x + pid * BLOCK + tl.arange(0, BLOCK))))
    tlx.fence(SCOPE)
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tlx.fence(SCOPE)
        every = tl.arange(0, PROGRAMS)
        tl.store(out, tl.sum(tl.load(parts + every, mask=every < tl.num_programs(0), cache_modifier=".cg")))


@tlxc.kernel
def proxy_kernel(x, out, n, BLOCK: tl.constexpr, WARPS: tl.constexpr):
    """One task writes by threads, another one copies out in bulk: the fence stands where only the author sees why."""
    full, empty = tlx.alloc_barriers(2), tlx.alloc_barriers(2)
    buf = tlx.local_alloc((BLOCK,), tlx.dtype_of(x), 2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(empty[s], p ^ 1)
                tlx.local_store(buf[s], tl.load(x + i * BLOCK + tl.arange(0, BLOCK)))
                tlx.fence("async_shared")
                tlx.barrier_arrive(full[s])
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                s, p = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(full[s], p)
                tlx.async_store(out + i * BLOCK, buf[s])
                tlx.async_descriptor_store_wait(0, read=True)
                tlx.barrier_arrive(empty[s])
            tlx.async_descriptor_store_wait(0)


# --------------------------------------------------------------------------------------------------------------- cases
def _tiles(rng: np.random.Generator, dtype: DType, n: int, block: int) -> Array:
    return values(rng, dtype, n * block).reshape(n, block)


def _copy_case(
    name: str, kernel: Any, dtype: DType, n: int, block: int, warps: int, ops: str, **constants: Any
) -> Case:
    """A kernel that copies n blocks."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _tiles(rng, dtype, n * (20 if big else 1), block)
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": len(x), "BLOCK": block, **constants}
        return Launch((1,), args, {"out": exact(plain(x))})

    return Case(f"{name}-{dtype}-{block}-n{n}-w{warps}", kernel, make, warps, cells(ops, "-"), amd=False)


def _rounds_case(dtype: DType, n: int, num: int, arrivals: int, at_once: bool, warps: int) -> Case:
    name = f"rounds-{num}x{arrivals}{'-at-once' if at_once else ''}"
    constants = {"NUM": num, "ARRIVALS": arrivals, "AT_ONCE": at_once}
    return _copy_case(name, rounds_kernel, dtype, n, 128, warps, _MBARRIER, **constants)


_MBARRIER = "alloc_barriers barrier_view barrier_arrive barrier_wait"


def _predicate_case(dtype: DType, n: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = _tiles(rng, dtype, n, 64)
        expect = x[[i - (i % 3 == 2) for i in range(n)]]
        args = {"x": In(x), "out": Out(x.shape, dtype), "n": n, "BLOCK": 64}
        return Launch((1,), args, {"out": exact(plain(expect))})

    listed = cells(f"{_MBARRIER} barrier_expect", "-") | cells("bulk_load", dtype.short)
    return Case(f"barrier-predicates-{dtype}-n{n}-w{warps}", predicate_kernel, make, warps, listed, amd=False)


def _named_case(n: int, ids: tuple[int, int], warps: int, second: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, int32, n * 128).reshape(n, 128)
        args = {
            "x": In(x), "out": Out(n, int32), "n": n, "BLOCK": 128, "FULL": ids[0], "EMPTY": ids[1],
            "THREADS": 32 * (warps + second), "WARPS": second,
        }  # fmt: skip
        return Launch((1,), args, {"out": exact(x.sum(1))})

    listed = cells("named_barrier_wait named_barrier_arrive", "-")
    return Case(f"named-{ids[0]}-{ids[1]}-n{n}-w{warps}-{second}", named_kernel, make, warps, listed, amd=False)


def _turns_case(n: int, first: int, warps: int, second: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, int32, n * 128).reshape(n, 128)
        args = {
            "x": In(x), "out": Out(n, int32), "n": n, "first": first, "BLOCK": 128, "THREADS": 32 * (warps + second),
            "WARPS": second,
        }  # fmt: skip
        return Launch((1,), args, {"out": exact(x.sum(1))})

    listed = cells("named_barrier_wait named_barrier_arrive", "-")
    return Case(f"named-turns-{first}-n{n}-w{warps}-{second}", turns_kernel, make, warps, listed, amd=False)


def _chosen_named_case(which: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, float32, 256)
        args = {"x": In(x), "out": Out(256, float32), "which": which, "BLOCK": 256, "THREADS": 32 * warps}
        return Launch((1,), args, {"out": exact(plain(x[::-1]))})

    listed = cells("named_barrier_wait", "-")
    return Case(f"named-chosen-{which}-w{warps}", chosen_named_kernel, make, warps, listed, amd=False)


def _own_named_case(number: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, float32, 256)
        args = {"x": In(x), "out": Out(256, float32), "ID": number, "BLOCK": 256, "THREADS": 32 * warps}
        return Launch((1,), args, {"out": exact(plain(x[::-1]))})

    return Case(f"named-{number}-w{warps}", own_named_kernel, make, warps, cells("named_barrier_wait", "-"), amd=False)


def _last_case(scope: str, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs = 60 if big else 5
        x = small_integers(rng, int32, programs * 128, 9).reshape(programs, 128)
        args = {
            "x": In(x), "parts": Out(programs, int32), "counter": InOut(np.zeros(1, np.int32)), "out": Out(1, int32),
            "SCOPE": scope, "BLOCK": 128, "PROGRAMS": 64,
        }  # fmt: skip
        expect = {"parts": x.sum(1), "counter": np.array([programs]), "out": np.array([x.sum()])}
        return Launch((programs,), args, {name: exact(v) for name, v in expect.items()})

    return Case(f"fence-{scope}-w{warps}", last_kernel, make, warps, cells("fence", "-"), amd=False)


# ----------------------------------------------------------------------------------------------------------------- list
def cases() -> Iterator[Case]:
    for warps, dtype in zip(WARPS, (float32, float16, int64, int8)):
        for n in ROUNDS:
            yield _rounds_case(dtype, n, 1 + n % 3, 1, False, warps)
        yield _rounds_case(dtype, 4, 2, 3, False, warps)
        yield _rounds_case(dtype, 4, 2, 5, True, warps)
        yield _predicate_case(dtype, 7, warps)
        yield _own_named_case(warps, warps)
        yield _chosen_named_case(3 * warps, warps)
        yield from (_last_case(scope, warps) for scope in ("gpu", "sys"))
    for (first, second), dtype in zip(TASKS, (float32, float16, int64, int8, bfloat16, int32)):
        yield from _between_tasks(dtype, first, second)
    for n in (1, 2, 3, 4, 6):
        yield _copy_case("proxy-1", proxy_kernel, float32, n, 512, 4, _MBARRIER, WARPS=1)
    yield from (_named_case(n, (3, 4), 4, 1) for n in (0, 1, 2))
    for warps, second in ((1, 1), (1, 4), (2, 1), (2, 2)):
        yield _named_case(3, (3, 4), warps, second)
        yield _turns_case(5, 1, warps, second)


def _between_tasks(dtype: DType, first: int, second: int) -> Iterator[Case]:
    for n in ROUNDS:
        yield _copy_case(f"pingpong-{second}", pingpong_kernel, dtype, n, 128, first, _MBARRIER, WARPS=second)
    for n, arrivals in ((1, 1), (2, 3), (5, 1), (5, 2)):
        constants = {"FIRST": first, "SECOND": second, "ARRIVALS": arrivals}
        name = f"warp-barrier-{second}x{arrivals}"
        yield _copy_case(name, warp_barrier_kernel, dtype, n, 256, first, _MBARRIER, **constants)
    yield _named_case(4, (1, 2) if second < 4 else (7, 15), first, second)
    for n in ROUNDS:
        yield _turns_case(n, n % 2, first, second)
    ops = f"{_MBARRIER} fence_async_shared tma_store_wait"
    yield _copy_case(f"proxy-{second}", proxy_kernel, dtype, 5, 128, first, ops, WARPS=second)
