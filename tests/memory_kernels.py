"""Kernels for test_memory_model.py: what orders memory accesses and what only orders execution."""

import tlxc
from tlxc import tl, tlx


@tlxc.kernel
def told_by_a_copy(x, block, out, ARRIVE: tl.constexpr):
    """The reader of `note` waits for bytes that were issued after the note was written; with ARRIVE for an arrival."""
    note = tlx.local_alloc((64,), tl.float32)[0]
    data = tlx.local_alloc((64,), tl.float32)[0]
    expected, full = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1, arrive_count=1 + ARRIVE)[0]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.local_store(note, tl.load(x + tl.arange(0, 64)))  # write
            tlx.barrier_wait(expected, 0)
            tlx.async_descriptor_load(block, data, [0], full)
            if ARRIVE:
                tlx.barrier_arrive(full)
        with tlx.async_task(num_warps=4):
            tlx.barrier_expect_bytes(full, 256)
            tlx.barrier_arrive(expected)
            tlx.barrier_wait(full, 0)
            tl.store(out + tl.arange(0, 64), tlx.local_load(data) + tlx.local_load(note))  # read


@tlxc.kernel
def two_rounds_of_async_stores(x, out, W: tl.constexpr):
    """Each CTA sends two tiles to each slot of the other one: a tile that comes tells that the one before was read."""
    slots = tlx.local_alloc((W,), tl.float32, 2)
    full = tlx.alloc_barriers(2)
    rank = tlx.cluster_cta_rank()
    for i in range(4):
        tlx.barrier_expect_bytes(full[i % 2], W * 4)
        at = (tl.program_id(0) * 4 + i) * W + tl.arange(0, W)
        tlx.async_remote_shmem_store(slots[i % 2], tl.load(x + at), rank ^ 1, full[i % 2])
        tlx.barrier_wait(full[i % 2], i // 2)
        tl.store(out + at, tlx.local_load(slots[i % 2]))


@tlxc.kernel
def stored_for_the_neighbour(x, out, HERE: tl.constexpr, THERE: tl.constexpr):
    """A tile is stored to the neighbour, which stores it by TMA; the fence is executed by the one or the other."""
    buf = tlx.local_alloc((64,), tl.float32)[0]
    full = tlx.alloc_barriers(1)[0]
    rank = tlx.cluster_cta_rank()
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.remote_shmem_store(buf, tl.load(x + rank * 64 + tl.arange(0, 64)), rank ^ 1)  # send
            if HERE:
                tlx.fence_async_shared()
            tlx.barrier_arrive(full, remote_cta_rank=rank ^ 1)
        with tlx.async_task(num_warps=4):
            tlx.barrier_wait(full, 0)
            if THERE:
                tlx.fence_async_shared()
            tlx.async_descriptor_store(out, buf, [rank * 64])  # copy
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel
def multiplied_there(x, out, FENCE: tl.constexpr):
    """The neighbour's st.async brings an operand of wgmma."""
    a = tlx.local_alloc((64, 16), tl.float16)[0]
    b = tlx.local_alloc((16, 16), tl.float16)[0]
    full = tlx.alloc_barriers(1)[0]
    rows, columns = tl.arange(0, 64)[:, None], tl.arange(0, 16)[None, :]
    mine = tl.program_id(0) * 1024 + rows * 16 + columns
    tlx.local_store(b, tl.full((16, 16), 1.0, tl.float16))
    tlx.fence_async_shared()
    tlx.barrier_expect_bytes(full, 2048)
    tlx.async_remote_shmem_store(a, tl.load(x + mine), tlx.cluster_cta_rank() ^ 1, full)  # send
    tlx.barrier_wait(full, 0)
    if FENCE:
        tlx.fence_async_shared()
    acc = tlx.async_dot(a, b)  # multiply
    tl.store(out + mine, tlx.async_dot_wait(0, acc))


@tlxc.kernel
def through_global_memory(x, room, block, out):
    """Threads write an array that TMA reads in the same launch."""
    buf = tlx.local_alloc((64,), tl.float32)[0]
    full = tlx.alloc_barriers(1)[0]
    tl.store(room + tl.arange(0, 64), tl.load(x + tl.arange(0, 64)))  # write
    tlx.fence_async_shared()
    tlx.barrier_expect_bytes(full, 256)
    tlx.async_descriptor_load(block, buf, [0], full)  # copy
    tlx.barrier_wait(full, 0)
    tl.store(out + tl.arange(0, 64), tlx.local_load(buf))
