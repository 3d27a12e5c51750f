"""Named barriers, storage that is used twice, and CTAs that talk through global memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import tlxc
from tlxc import tl, tlx

from . import Call, Sample, block, integers, nothing

WIDTH = 64


@tlxc.kernel(do_not_specialize=("steps",))
def named_pair(x, out, steps, W: tl.constexpr):
    """One buffer, filled and read in turn under two named barriers."""
    buf = tlx.local_alloc((W,), tl.float32, 1)[0]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tlx.named_barrier_wait(9, 256)  # it is free
                tlx.local_store(buf, tl.load(x + i * W + tl.arange(0, W)))
                tlx.named_barrier_arrive(10, 256)  # it is full
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                tlx.named_barrier_arrive(9, 256)
                tlx.named_barrier_wait(10, 256)
                tl.store(out + i * W + tl.arange(0, W), tlx.local_load(buf) + 1)


@tlxc.kernel(do_not_specialize=("steps",))
def named_turns(x, out, steps, W: tl.constexpr):
    """Two copies use one buffer and go in turn."""
    buf = tlx.local_alloc((W,), tl.float32, 1)[0]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.named_barrier_arrive(10, 256)  # the first copy may start
            for i in range(steps):
                tlx.named_barrier_wait(9 + 0, 256)
                tlx.local_store(buf, tl.load(x + 2 * i * W + tl.arange(0, W)))
                tl.store(out + 2 * i * W + tl.arange(0, W), tlx.local_load(buf) + 1)
                tlx.named_barrier_arrive(10, 256)
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                tlx.named_barrier_wait(10, 256)
                tlx.local_store(buf, tl.load(x + (2 * i + 1) * W + tl.arange(0, W)))
                tl.store(out + (2 * i + 1) * W + tl.arange(0, W), tlx.local_load(buf) + 2)
                tlx.named_barrier_arrive(9, 256)


@tlxc.kernel(do_not_specialize=("steps",))
def reused_storage(x, out, steps, W: tl.constexpr):
    """The tile that comes in by TMA and the one that goes out share their bytes."""
    spec = tlx.storage_alias_spec()
    a = tlx.local_alloc((W,), tl.float32, 1, reuse=spec)
    b = tlx.local_alloc((W,), tl.float32, 1, reuse=spec)
    spec.set_buffer_overlap(tlx.reuse_group(a, b))
    full = tlx.alloc_barriers(1)
    empty = tlx.alloc_barriers(1)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tlx.barrier_wait(empty[0], (i & 1) ^ 1)
                tlx.barrier_expect_bytes(full[0], W * 4)
                tlx.async_descriptor_load(x, a[0], [i * W], full[0])
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                tlx.barrier_wait(full[0], i & 1)
                tile = tlx.local_load(a[0])
                tlx.local_store(b[0], tile * 3)
                tlx.async_descriptor_store(out, b[0], [i * W])
                tlx.async_descriptor_store_wait(0, read=True)
                tlx.barrier_arrive(empty[0])
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def halves(x, out, steps, W: tl.constexpr):
    """Two producers fill one half of a buffer each, by slices; TMA stores the whole."""
    buf = tlx.local_alloc((2, W), tl.float32, 2)
    full = tlx.alloc_barriers(2, arrive_count=2)
    empty = tlx.alloc_barriers(2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(full[stage], phase)
                tlx.async_descriptor_store(out, buf[stage], [2 * i, 0])
                tlx.async_descriptor_store_wait(0)
                tlx.barrier_arrive(empty[stage])
        with tlx.async_task(num_warps=4, replicate=2):
            me = tlx.async_task_replica_id()
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, 2)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                at = (2 * i + me) * W + tl.arange(0, W)
                tlx.local_store(tlx.local_slice(buf[stage], (me, 0), (1, W)), tl.load(x + at[None, :]) + 1)
                tlx.fence_async_shared()
                tlx.barrier_arrive(full[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def added_by_tma(x, out, steps, W: tl.constexpr):
    """Every CTA adds its tiles to the same block: reductions commute."""
    buf = tlx.local_alloc((W,), tl.float32, 2)
    for i in range(steps):
        tlx.async_descriptor_store_wait(1, read=True)
        tlx.local_store(buf[i % 2], tl.load(x + (tl.program_id(0) * steps + i) * W + tl.arange(0, W)))
        tlx.async_descriptor_store(out, buf[i % 2], [0], store_reduce="add")
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def tickets(x, ticket, out, steps, W: tl.constexpr):
    """CTAs take tiles by an atomic counter."""
    at = tl.arange(0, W)
    tile = tl.atomic_add(ticket, 1)
    while tile < steps:
        tl.store(out + tile * W + at, tl.load(x + tile * W + at) + 1)
        tile = tl.atomic_add(ticket, 1)


@tlxc.kernel
def chain(x, flag, out, W: tl.constexpr):
    """Each CTA waits for the one before it, adds its tile to a running sum, and lets the next one go."""
    at = tl.arange(0, W)
    me = tl.program_id(0)
    turn = tl.atomic_add(flag, 0, sem="acquire")
    while turn < me:
        turn = tl.atomic_add(flag, 0, sem="acquire")
    tl.store(out + at, tl.load(out + at) + tl.load(x + me * W + at))
    tl.atomic_add(flag, 1, sem="release")


def _named(kernel: object, trips: int) -> Call:
    x, out = integers(trips, max(trips, 1) * WIDTH), nothing(max(trips, 1) * WIDTH)
    wanted = x + 1 if trips else out.copy()
    return Call(kernel, (1,), {"x": x, "out": out, "steps": trips, "W": WIDTH}, out, wanted)


def _turns(trips: int) -> Call:
    x, out = integers(trips, max(trips, 1), 2, WIDTH), nothing(max(trips, 1), 2, WIDTH)
    wanted = x + np.array([[1], [2]], np.float32) if trips else out.copy()
    return Call(named_turns, (1,), {"x": x, "out": out, "steps": trips, "W": WIDTH}, out, wanted)


def _reused(trips: int) -> Call:
    x, out = integers(trips, max(trips, 1) * WIDTH), nothing(max(trips, 1) * WIDTH)
    args = {"x": block(x, WIDTH), "out": block(out, WIDTH), "steps": trips, "W": WIDTH}
    return Call(reused_storage, (1,), args, out, x * 3 if trips else out.copy())


def _halves(trips: int) -> Call:
    x, out = integers(trips, 2 * max(trips, 1), WIDTH), nothing(2 * max(trips, 1), WIDTH)
    args = {"x": x, "out": block(out, 2, WIDTH), "steps": trips, "W": WIDTH}
    return Call(halves, (1,), args, out, x + 1 if trips else out.copy())


def _added(trips: int) -> Call:
    x, out = integers(trips, 3 * max(trips, 1), WIDTH), nothing(WIDTH)
    wanted = out + x.sum(0) if trips else out.copy()
    return Call(added_by_tma, (3,), {"x": x, "out": block(out, WIDTH), "steps": trips, "W": WIDTH}, out, wanted)


def _tickets(trips: int) -> Call:
    x, out = integers(trips, max(trips, 1) * WIDTH), nothing(max(trips, 1) * WIDTH)
    ticket = np.zeros(1, np.int32)
    args = {"x": x, "ticket": ticket, "out": out, "steps": trips, "W": WIDTH}
    return Call(tickets, (2,), args, out, x + 1 if trips else out.copy())


def _chain(trips: int) -> Call:
    x, out = integers(trips, max(trips, 1), WIDTH), nothing(WIDTH)
    args = {"x": x, "flag": np.zeros(1, np.int32), "out": out, "W": WIDTH}
    return Call(chain, (trips,), args, out, out + x[:trips].sum(0))


def samples() -> Iterator[Sample]:
    yield Sample("named_pair", partial(_named, named_pair))
    yield Sample("named_turns", _turns)
    yield Sample("reused_storage", _reused)
    yield Sample("halves", _halves)
    yield Sample("added_by_tma", _added)
    yield Sample("tickets", _tickets)
    yield Sample("chain", _chain, (1, 2, 3))
