"""Kernels with one mistake each; `# here` marks the line that a report must name."""

from __future__ import annotations

import tlxc
from tlxc import tl, tlx


@tlxc.kernel
def clean_handover(x, out, n: tl.constexpr, FENCE: tl.constexpr = True, ARRIVE: tl.constexpr = True):
    """One task fills a buffer, the other stores it by TMA."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    full = tlx.alloc_barriers(1)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.local_store(buf[0], tl.load(x + tl.arange(0, 64)))
            if FENCE:
                tlx.fence("async_shared")
            if ARRIVE:
                tlx.barrier_arrive(full[0])
        with tlx.async_task(num_warps=1):
            tlx.barrier_wait(full[0], 0)  # deadlock
            tlx.async_descriptor_store(out, buf[0], [0])  # fence
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def unordered_tasks(x, out):
    """Nothing orders the two tasks."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    at = tl.arange(0, 64)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.local_store(buf[0], tl.load(x + at))  # here
        with tlx.async_task(num_warps=1):
            tl.store(out + at, tlx.local_load(buf[0]))  # here too


@tlxc.kernel
def pipeline(
    x, out, steps, STAGES: tl.constexpr = 2, BYTES: tl.constexpr = 256, COUNT: tl.constexpr = 1,
    EMPTY: tl.constexpr = True, FULL: tl.constexpr = True, RELEASE: tl.constexpr = True, PHASE: tl.constexpr = 0,
    ARRIVALS: tl.constexpr = 1,
):  # fmt: skip
    """TMA loads into a ring that the other task empties."""
    buf = tlx.local_alloc((64,), tl.float32, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=COUNT)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                if EMPTY:
                    tlx.barrier_wait(empty[stage], phase ^ 1)  # empty
                tlx.barrier_expect_bytes(full[stage], BYTES)  # expect
                tlx.async_descriptor_load(x, buf[stage], [i * 64], full[stage])  # load
        with tlx.async_task(num_warps=1):
            at = tl.arange(0, 64)
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                if FULL:
                    tlx.barrier_wait(full[stage], phase ^ PHASE)  # full
                tl.store(out + i * 64 + at, tlx.local_load(buf[stage]))  # read
                if RELEASE:
                    tlx.barrier_arrive(empty[stage], ARRIVALS)  # release


@tlxc.kernel
def beyond(x, out, n):
    """Reads one block too many."""
    at = tl.arange(0, 64)
    for i in range(n):
        tl.store(out + i * 64 + at, tl.load(x + (i + 1) * 64 + at))  # here


@tlxc.kernel
def unwritten(out):
    buf = tlx.local_alloc((64,), tl.float32, 2)
    at = tl.arange(0, 64)
    tlx.local_store(buf[0], at.to(tl.float32))
    tl.store(out + at, tlx.local_load(buf[1]))  # here


@tlxc.kernel
def wrong_slot(out, i):
    buf = tlx.local_alloc((64,), tl.float32, 2)
    at = tl.arange(0, 64)
    tlx.local_store(buf[i], at.to(tl.float32))  # here
    tl.store(out + at, tlx.local_load(buf[0]))


@tlxc.kernel
def unwaited(x, out):
    """The CTA may be gone before TMA has read the buffer."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    tlx.local_store(buf[0], tl.load(x + tl.arange(0, 64)))
    tlx.async_descriptor_store(out, buf[0], [0])  # here


@tlxc.kernel
def odd_offset(x, out, at):
    """TMA takes whole chunks of 16 bytes."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    bar = tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(bar[0], 256)
    tlx.async_descriptor_load(x, buf[0], [at], bar[0])  # here
    tlx.barrier_wait(bar[0], 0)
    tl.store(out + tl.arange(0, 64), tlx.local_load(buf[0]))


@tlxc.kernel
def same_place(out):
    """Every CTA writes the same elements."""
    tl.store(out + tl.arange(0, 64), tl.zeros((64,), tl.float32) + tl.program_id(0).to(tl.float32))  # here


@tlxc.kernel
def halo(x, out, STEP: tl.constexpr):
    """Neighbours both write the elements between their blocks: equal values, unless one adds."""
    at = tl.program_id(0) * 64 + tl.arange(0, 128)
    tl.store(out + at, tl.load(x + at) + tl.program_id(0).to(tl.float32) * STEP)  # here


@tlxc.kernel
def told_twice(out):
    """Both tasks write the same tile."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    at = tl.arange(0, 64)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.local_store(buf[0], at.to(tl.float32))  # one
            tl.store(out + at, tlx.local_load(buf[0]))
        with tlx.async_task(num_warps=4):
            tlx.local_store(buf[0], at.to(tl.float32))  # other


@tlxc.kernel
def named(x, out, A: tl.constexpr, B: tl.constexpr):
    """The tasks count each other's threads."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    at = tl.arange(0, 64)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.local_store(buf[0], tl.load(x + at))
            tlx.named_barrier_arrive(9, A)  # one
        with tlx.async_task(num_warps=4):
            tlx.named_barrier_wait(9, B)  # other
            tl.store(out + at, tlx.local_load(buf[0]))


@tlxc.kernel
def exchange(x, out):
    """The CTAs of a pair swap a tile by remote stores."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    full = tlx.alloc_barriers(1)
    at = tl.arange(0, 64)
    rank = tlx.cluster_cta_rank()
    tlx.remote_shmem_store(buf[0], tl.load(x + tl.program_id(0) * 64 + at), rank ^ 1)  # store
    tlx.barrier_arrive(full[0], remote_cta_rank=rank ^ 1)  # arrive
    tlx.barrier_wait(full[0], 0)
    tl.store(out + tl.program_id(0) * 64 + at, tlx.local_load(buf[0]))  # load


@tlxc.kernel
def product(a, b, out, PENDINGS: tl.constexpr = 0):
    """One wgmma on tiles that TMA brought."""
    x = tlx.local_alloc((64, 64), tl.float16, 1)
    y = tlx.local_alloc((64, 64), tl.float16, 1)
    bar = tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(bar[0], 2 * 64 * 64 * 2)
    tlx.async_descriptor_load(a, x[0], [0, 0], bar[0])
    tlx.async_descriptor_load(b, y[0], [0, 0], bar[0])
    tlx.barrier_wait(bar[0], 0)
    acc = tlx.async_dot(x[0], y[0])  # dot
    acc = tlx.async_dot_wait(0, acc)
    tlx.local_store(x[0], acc.to(tl.float16))  # overwrite
    tlx.async_descriptor_store(out, x[0], [0, 0])
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def one_sided(out):
    """Arrives at the other CTA's barrier, for which nobody waits."""
    bar = tlx.alloc_barriers(1)
    rank = tlx.cluster_cta_rank()
    tlx.barrier_arrive(bar[0], remote_cta_rank=rank ^ 1)  # here
    tl.store(out + tl.program_id(0), 1.0)


@tlxc.kernel
def overrun(out):
    """The default task goes on to the second phase although the other one may not have seen the first."""
    bar = tlx.alloc_barriers(1)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.barrier_arrive(bar[0])
            tlx.barrier_wait(bar[0], 0)
            tlx.barrier_arrive(bar[0])  # again
        with tlx.async_task(num_warps=1):
            tlx.barrier_wait(bar[0], 0)  # here
            tl.store(out, 1.0)


@tlxc.kernel
def any_phase(phase):
    bar = tlx.alloc_barriers(1)
    tlx.barrier_arrive(bar[0])
    tlx.barrier_wait(bar[0], phase)  # here


@tlxc.kernel
def any_rank(rank):
    bar = tlx.alloc_barriers(1)
    tlx.barrier_arrive(bar[0], remote_cta_rank=rank)  # here


@tlxc.kernel
def spins(flag, out):
    """Nobody sets the flag."""
    while tl.load(flag) == 0:
        tl.store(out, 1.0)
    tl.store(out, 2.0)


@tlxc.kernel
def bulk(x, out, size):
    buf = tlx.local_alloc((64,), tl.float32, 1)
    tlx.local_store(buf[0], tl.load(x + tl.arange(0, 64)))
    tlx.async_store(out, buf[0], size)  # here
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def two_rounds(out):
    """The second arrival does not wait for the first round."""
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.named_barrier_arrive(9, 256)
            tlx.named_barrier_arrive(9, 256)  # here
        with tlx.async_task(num_warps=4):
            tlx.named_barrier_wait(9, 256)
            tlx.named_barrier_wait(9, 256)
            tl.store(out, 1.0)


@tlxc.kernel
def twice(x):
    """Two copies to one buffer at once."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    bar = tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(bar[0], 512)
    tlx.async_descriptor_load(x, buf[0], [0], bar[0])  # first
    tlx.async_descriptor_load(x, buf[0], [64], bar[0])  # second


@tlxc.kernel
def stored_at(out, at):
    buf = tlx.local_alloc((64,), tl.float32, 1)
    tlx.local_store(buf[0], tl.zeros((64,), tl.float32))
    tlx.async_descriptor_store(out, buf[0], [at])  # here
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def never_read(x):
    """TMA writes to a CTA that may be gone."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    bar = tlx.alloc_barriers(1)
    tlx.barrier_expect_bytes(bar[0], 256)
    tlx.async_descriptor_load(x, buf[0], [0], bar[0])  # here


@tlxc.kernel
def plain(x, out):
    tl.store(out + tl.arange(0, 64), tl.load(x + tl.arange(0, 64)))  # here


@tlxc.kernel
def reused_too_early(x, out):
    """TMA may still read the first tile."""
    buf = tlx.local_alloc((64,), tl.float32, 1)
    for i in range(2):
        tlx.local_store(buf[0], tl.load(x + i * 64 + tl.arange(0, 64)))  # write
        tlx.async_descriptor_store(out, buf[0], [i * 64])  # store
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def short_rows(x, out, n):
    """TMA stores write the last 16 bytes of a row whole."""
    target = tlx.make_tensor_descriptor(None, out, [1, n], [32, 1], [1, 32])
    target.store([0, 0], tl.load(x + tl.arange(0, 32))[None, :])  # here


@tlxc.kernel
def slot_to_fill(x, out, n):
    """The descriptor is made in a branch."""
    slots = tlx.allocate_tensor_descriptor(1)
    if n > 0:
        tlx.make_tensor_descriptor(slots[0], x, [64], [1], [64])
    source = tlx.reinterpret_tensor_descriptor(slots[0], [64], tl.float32)  # here
    tl.store(out + tl.arange(0, 64), source.load([0]))


@tlxc.kernel
def refilled(x, out, WAIT: tl.constexpr):
    """The slot is filled again while the copy may still read it."""
    slots = tlx.allocate_tensor_descriptor(1)
    buf = tlx.local_alloc((64,), tl.float32, 1)
    tlx.local_store(buf[0], tl.load(x + tl.arange(0, 64)))
    for i in range(2):
        target = tlx.make_tensor_descriptor(slots[0], out + i * 64, [64], [1], [64])  # fill
        tlx.async_descriptor_store(target, buf[0], [0])  # store
        if WAIT:
            tlx.async_descriptor_store_wait(0, read=True)
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def refilled_source(x, out, WAIT: tl.constexpr):
    """The same with loads."""
    slots = tlx.allocate_tensor_descriptor(1)
    buf = tlx.local_alloc((64,), tl.float32, 2)
    full = tlx.alloc_barriers(2)
    for i in tl.static_range(2):
        source = tlx.make_tensor_descriptor(slots[0], x + i * 64, [64], [1], [64])  # fill
        tlx.barrier_expect_bytes(full[i], 256)
        tlx.async_descriptor_load(source, buf[i], [0], full[i])  # load
        if WAIT:
            tlx.barrier_wait(full[i], 0)
    for i in tl.static_range(2):
        tlx.barrier_wait(full[i], 0)
        tl.store(out + i * 64 + tl.arange(0, 64), tlx.local_load(buf[i]))


@tlxc.kernel
def handed_too_early(x, out, WAIT: tl.constexpr):
    """The second task takes a descriptor out of a slot that the first one may still fill."""
    slots = tlx.allocate_tensor_descriptor(1)
    made = tlx.alloc_barriers(1)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.make_tensor_descriptor(slots[0], x, [64], [1], [64])  # fill
            tlx.barrier_arrive(made[0])
        with tlx.async_task(num_warps=4):
            if WAIT:
                tlx.barrier_wait(made[0], 0)
            source = tlx.reinterpret_tensor_descriptor(slots[0], [64], tl.float32)  # take
            tl.store(out + tl.arange(0, 64), source.load([0]))


@tlxc.kernel
def flagged(x, flag, out, SCOPE: tl.constexpr):
    """The first CTA hands a tile to the second."""
    at = tl.arange(0, 64)
    if tl.program_id(0) == 0:
        tl.store(out + at, tl.load(x + at))
        tl.atomic_add(flag, 1, sem="release", scope=SCOPE)  # release
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope=SCOPE) == 0:  # acquire
            pass
        tl.store(out + at, tl.load(out + at) + 1)


@tlxc.kernel
def flagged_tasks(x, flag, out, SCOPE: tl.constexpr):
    """The first task hands a tile to the second."""
    at = tl.arange(0, 64)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(out + at, tl.load(x + at))
            tl.atomic_add(flag, 1, sem="release", scope=SCOPE)
        with tlx.async_task(num_warps=4):
            while tl.atomic_add(flag, 0, sem="acquire", scope=SCOPE) == 0:
                pass
            tl.store(out + at, tl.load(out + at) + 1)
