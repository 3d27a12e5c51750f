"""CTAs of a cluster: multicast, remote arrivals, stores and copies into each other's shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlxc
from tlxc import tl, tlx

from . import Call, Sample, block, integers, nothing

WIDTH, SIZE = 64, 2


@tlxc.kernel(do_not_specialize=("steps",))
def multicast(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr, CTAS: tl.constexpr):
    """Each CTA loads every other block for both; consumers release to both producers."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES * CTAS)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=CTAS)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            rank = tlx.cluster_cta_rank()
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], CTAS * W * 4)
                where = (i * CTAS + rank) * W
                tlx.async_descriptor_load(x, buf[stage * CTAS + rank], [where], full[stage], multicast_targets=[0, 1])
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                for part in tl.static_range(CTAS):
                    at = ((tl.program_id(0) * steps + i) * CTAS + part) * W + tl.arange(0, W)
                    tl.store(out + at, tlx.local_load(buf[stage * CTAS + part]))
                for peer in tl.static_range(CTAS):
                    tlx.barrier_arrive(empty[stage], remote_cta_rank=peer)


@tlxc.kernel(do_not_specialize=("steps",))
def swapped(x, out, steps, W: tl.constexpr):
    """Tiles are stored to the neighbour; an arrival there tells that they have come, one back that they were read."""
    buf = tlx.local_alloc((W,), tl.float32, 1)[0]
    full = tlx.alloc_barriers(1)[0]
    empty = tlx.alloc_barriers(1)[0]
    rank = tlx.cluster_cta_rank()
    for i in range(steps):
        at = (tl.program_id(0) * steps + i) * W + tl.arange(0, W)
        tlx.barrier_wait(empty, (i & 1) ^ 1)
        tlx.remote_shmem_store(buf, tl.load(x + at), rank ^ 1)
        tlx.barrier_arrive(full, remote_cta_rank=rank ^ 1)
        tlx.barrier_wait(full, i & 1)
        tl.store(out + at, tlx.local_load(buf))
        tlx.barrier_arrive(empty, remote_cta_rank=rank ^ 1)


@tlxc.kernel
def all_reduce(x, out, W: tl.constexpr, CTAS: tl.constexpr):
    """Every CTA sends its tile to all by stores that signal bytes."""
    slots = tlx.local_alloc((W,), tl.float32, CTAS)
    there = tlx.alloc_barriers(1)[0]
    rank = tlx.cluster_cta_rank()
    mine = tl.load(x + tl.program_id(0) * W + tl.arange(0, W))
    tlx.barrier_expect_bytes(there, CTAS * W * 4)
    for peer in tl.static_range(CTAS):
        tlx.async_remote_shmem_store(slots[rank], mine, peer, there)
    tlx.barrier_wait(there, 0)
    total = tlx.local_load(slots[0])
    for i in tl.static_range(1, CTAS):
        total += tlx.local_load(slots[i])
    tl.store(out + tl.program_id(0) * W + tl.arange(0, W), total)


@tlxc.kernel(do_not_specialize=("steps",))
def copied(x, out, steps, W: tl.constexpr):
    """Buffers are copied to the neighbour; a cluster barrier before they are used again."""
    source = tlx.local_alloc((W,), tl.float32, 1)[0]
    target = tlx.local_alloc((W,), tl.float32, 1)[0]
    full = tlx.alloc_barriers(1)[0]
    rank = tlx.cluster_cta_rank()
    for i in range(steps):
        at = (tl.program_id(0) * steps + i) * W + tl.arange(0, W)
        tlx.barrier_expect_bytes(full, W * 4)
        tlx.local_store(source, tl.load(x + at))
        tlx.async_remote_shmem_copy(target, source, rank ^ 1, full)
        tlx.barrier_wait(full, i & 1)
        tl.store(out + at, tlx.local_load(target))
        tlx.cluster_barrier()


@tlxc.kernel(do_not_specialize=("steps",))
def in_turns(x, out, steps, W: tl.constexpr):
    """Remote stores between cluster barriers."""
    buf = tlx.local_alloc((W,), tl.float32, 1)[0]
    rank = tlx.cluster_cta_rank()
    for i in range(steps):
        at = (tl.program_id(0) * steps + i) * W + tl.arange(0, W)
        tlx.remote_shmem_store(buf, tl.load(x + at), rank ^ 1)
        tlx.cluster_barrier()
        tl.store(out + at, tlx.local_load(buf))
        tlx.cluster_barrier()


def _swap(kernel: object, trips: int) -> Call:
    x, out = integers(trips, SIZE, max(trips, 1), WIDTH), nothing(SIZE, max(trips, 1), WIDTH)
    wanted = x[::-1] if trips else out.copy()
    return Call(kernel, (SIZE,), {"x": x, "out": out, "steps": trips, "W": WIDTH}, out, wanted, (SIZE, 1, 1))


def _multicast(trips: int) -> Call:
    x, out = integers(trips, max(trips, 1), SIZE, WIDTH), nothing(SIZE, max(trips, 1), SIZE, WIDTH)
    wanted = np.stack([x] * SIZE) if trips else out.copy()
    args = {"x": block(x.reshape(-1), WIDTH), "out": out, "steps": trips, "W": WIDTH, "STAGES": 2, "CTAS": SIZE}
    return Call(multicast, (SIZE,), args, out, wanted, (SIZE, 1, 1))


def _all_reduce(trips: int) -> Call:
    x, out = integers(trips, 2 * SIZE, WIDTH), nothing(2 * SIZE, WIDTH)
    wanted = np.repeat(x.reshape(2, SIZE, WIDTH).sum(1), SIZE, 0)
    args = {"x": x, "out": out, "W": WIDTH, "CTAS": SIZE}
    return Call(all_reduce, (2 * SIZE,), args, out, wanted, (SIZE, 1, 1))


def samples() -> Iterator[Sample]:
    yield Sample("multicast", _multicast)
    yield Sample("swapped", lambda trips: _swap(swapped, trips))
    yield Sample("all_reduce", _all_reduce, (1,))
    yield Sample("copied", lambda trips: _swap(copied, trips))
    yield Sample("in_turns", lambda trips: _swap(in_turns, trips))
