"""Rings of buffers between a producer and consumers of one CTA."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx

from . import Call, Sample, block, integers, nothing

WIDTH = 64


@tlxc.kernel(do_not_specialize=("steps",))
def tma_ring(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """TMA in one task, stores by threads in the other."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], W * 4)
                tlx.async_descriptor_load(x, buf[stage], [i * W], full[stage])
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tl.store(out + i * W + tl.arange(0, W), tlx.local_load(buf[stage]) + 1)
                tlx.barrier_arrive(empty[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def two_readers(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """Every buffer is read by two copies of the consumer."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], W * 4)
                tlx.async_descriptor_load(x, buf[stage], [i * W], full[stage])
        with tlx.async_task(num_warps=4, replicate=2):
            me = tlx.async_task_replica_id()
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tl.store(out + (2 * i + me) * W + tl.arange(0, W), tlx.local_load(buf[stage]) + me)
                tlx.barrier_arrive(empty[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def stored_ring(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """Threads fill the ring, TMA of the other task stores it: a fence by the writer, a wait for reads by the storer."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.local_store(buf[stage], tl.load(x + i * W + tl.arange(0, W)) * 2)
                tlx.fence_async_shared()
                tlx.barrier_arrive(full[stage])
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tlx.async_descriptor_store(out, buf[stage], [i * W])
                tlx.async_descriptor_store_wait(0, read=True)
                tlx.barrier_arrive(empty[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def three_tasks(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """TMA in, threads change the tile in place, TMA out."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    ready = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tlx.local_store(buf[stage], tlx.local_load(buf[stage]) * 2 + 1)
                tlx.fence_async_shared()
                tlx.barrier_arrive(ready[stage])
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], W * 4)
                tlx.async_descriptor_load(x, buf[stage], [i * W], full[stage])
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(ready[stage], phase)
                tlx.async_descriptor_store(out, buf[stage], [i * W])
                tlx.async_descriptor_store_wait(0)
                tlx.barrier_arrive(empty[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def bulk_ring(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """Bulk copies without a descriptor, in and out, by one task: STAGES in flight each way."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    for i in range(steps):
        stage, phase = tlx.get_bufidx_phase(i, STAGES)
        tlx.async_descriptor_store_wait(STAGES - 1, read=True)
        tlx.barrier_expect_bytes(full[stage], W * 4)
        tlx.async_load(x + i * W, buf[stage], bulk=True, barrier=full[stage])
        tlx.barrier_wait(full[stage], phase)
        tlx.async_store(out + i * W, buf[stage])
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def copy_groups(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """cp.async groups ahead of their use."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    at = tl.arange(0, W)
    for i in tl.static_range(STAGES - 1):
        tlx.async_load(x + i * W + at, buf[i], mask=at < (steps - i) * W)
        tlx.async_load_commit_group()
    for i in range(steps):
        ahead = i + STAGES - 1
        tlx.async_load(x + ahead * W + at, buf[ahead % STAGES], mask=at < (steps - ahead) * W)
        tlx.async_load_commit_group()
        tlx.async_load_wait_group(STAGES - 1)
        tl.store(out + i * W + at, tlx.local_load(buf[i % STAGES]) + 1)
    tlx.async_load_wait_group(0)


@tlxc.kernel(do_not_specialize=("steps",))
def copied_ring(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """cp.async in one task, which hands over when its group is there."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.async_load(x + i * W + tl.arange(0, W), buf[stage])
                tlx.async_load_commit_group()
                tlx.async_load_wait_group(0)
                tlx.barrier_arrive(full[stage])
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tl.store(out + i * W + tl.arange(0, W), tlx.local_load(buf[stage]) + 1)
                tlx.barrier_arrive(empty[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def warp_ring(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """The consumer releases by a warp barrier, each thread by itself."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_warp_barrier(STAGES, num_warps=4)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], W * 4)
                tlx.async_descriptor_load(x, buf[stage], [i * W], full[stage])
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tl.store(out + i * W + tl.arange(0, W), tlx.local_load(buf[stage]) + 1)
                tlx.barrier_arrive(empty[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def rotating_stores(x, out, steps, W: tl.constexpr, STAGES: tl.constexpr):
    """One task, buffers in turn: a store may still read what lies STAGES - 1 tiles back."""
    buf = tlx.local_alloc((W,), tl.float32, STAGES)
    for i in range(steps):
        tlx.async_descriptor_store_wait(STAGES - 1, read=True)
        tlx.local_store(buf[i % STAGES], tl.load(x + i * W + tl.arange(0, W)) - 1)
        tlx.async_descriptor_store(out, buf[i % STAGES], [i * W])
    tlx.async_descriptor_store_wait(0)


# (kernel, x and out as blocks, what it computes)
_PLAIN: list[tuple[Any, bool, bool, Any]] = [
    (tma_ring, True, False, lambda x: x + 1),
    (stored_ring, False, True, lambda x: x * 2),
    (three_tasks, True, True, lambda x: x * 2 + 1),
    (bulk_ring, False, False, lambda x: x),
    (copied_ring, False, False, lambda x: x + 1),
    (warp_ring, True, False, lambda x: x + 1),
    (rotating_stores, False, True, lambda x: x - 1),
]


def _plain(kernel: Any, x_block: bool, out_block: bool, rule: Any, stages: int, trips: int) -> Call:
    x, out = integers(trips, max(trips, 1) * WIDTH), nothing(max(trips, 1) * WIDTH)
    wanted = rule(x) if trips else out.copy()
    args = {
        "x": block(x, WIDTH) if x_block else x,
        "out": block(out, WIDTH) if out_block else out,
        "steps": trips,
        "W": WIDTH,
        "STAGES": stages,
    }
    return Call(kernel, (1,), args, out, wanted)


def _two_readers(stages: int, trips: int) -> Call:
    x, out = integers(trips, max(trips, 1), WIDTH), nothing(max(trips, 1), 2, WIDTH)
    wanted = np.stack([x, x + 1], 1) if trips else out.copy()
    args = {"x": block(x.reshape(-1), WIDTH), "out": out, "steps": trips, "W": WIDTH, "STAGES": stages}
    return Call(two_readers, (1,), args, out, wanted)


def _groups(stages: int, trips: int) -> Call:
    return _plain(copy_groups, False, False, lambda x: x + 1, stages, trips)


def samples() -> Iterator[Sample]:
    for stages in (1, 2, 3, 4):
        trips = tuple(range(2 * stages + 2))
        yield Sample(f"tma_ring-{stages}", partial(_plain, *_PLAIN[0], stages), trips)
    for plain in _PLAIN[1:]:
        yield Sample(f"{plain[0].name}-2", partial(_plain, *plain, 2))
    yield Sample("two_readers-2", partial(_two_readers, 2))
    yield Sample("copy_groups-3", partial(_groups, 3))
