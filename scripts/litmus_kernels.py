"""Kernels for litmus.py.  Each passes tiles through one buffer, `steps` times a CTA, and writes what it saw to `out`.

FENCE: who executes the proxy fence, one of the constants below.
"""

import tlxc
from tlxc import tl, tlx

NOBODY, WRITER, READER = range(3)


@tlxc.kernel(do_not_specialize=("steps",))
def write_then_async_read(x, out, steps, W: tl.constexpr, FENCE: tl.constexpr):
    """Threads of one task write, TMA of the other one reads."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    first = tl.program_id(0) * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tlx.barrier_wait(empty, (i & 1) ^ 1)
                tlx.local_store(buf, tl.load(x + (first + i) * W + tl.arange(0, W)))
                if FENCE == WRITER:
                    tlx.fence_async_shared()
                tlx.barrier_arrive(full)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                tlx.barrier_wait(full, i & 1)
                if FENCE == READER:
                    tlx.fence_async_shared()
                tlx.async_descriptor_store(out, buf, [(first + i) * W])
                tlx.async_descriptor_store_wait(0, read=True)
                tlx.barrier_arrive(empty)
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def write_then_own_async_read(x, out, steps, W: tl.constexpr):
    """The same in one task, where the compiler puts barrier and fence."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    first = tl.program_id(0) * steps
    for i in range(steps):
        tlx.local_store(buf, tl.load(x + (first + i) * W + tl.arange(0, W)))
        tlx.async_descriptor_store(out, buf, [(first + i) * W])
        tlx.async_descriptor_store_wait(0, read=True)
    tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def write_then_async_write(x, out, steps, W: tl.constexpr, FENCE: tl.constexpr):
    """Threads fill the buffer with -1, TMA overwrites it: no -1 may be left."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    filled, full = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    first = tl.program_id(0) * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tlx.local_store(buf, tl.full((W,), -1.0, tl.float32))
                if FENCE == WRITER:
                    tlx.fence_async_shared()
                tlx.barrier_arrive(filled)
                tlx.barrier_wait(full, i & 1)
                tl.store(out + (first + i) * W + tl.arange(0, W), tlx.local_load(buf))
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                tlx.barrier_wait(filled, i & 1)
                if FENCE == READER:
                    tlx.fence_async_shared()
                tlx.barrier_expect_bytes(full, W * 4)
                tlx.async_descriptor_load(x, buf, [(first + i) * W], full)


@tlxc.kernel(do_not_specialize=("steps",))
def read_then_async_write(x, out, steps, W: tl.constexpr):
    """Threads read, TMA overwrites: no thread may see the next tile."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    first = tl.program_id(0) * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tlx.barrier_wait(full, i & 1)
                tile = tlx.local_load(buf)
                tlx.barrier_arrive(empty)
                tl.store(out + (first + i) * W + tl.arange(0, W), tile)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                tlx.barrier_wait(empty, (i & 1) ^ 1)
                tlx.barrier_expect_bytes(full, W * 4)
                tlx.async_descriptor_load(x, buf, [(first + i) * W], full)


@tlxc.kernel(do_not_specialize=("steps",))
def write_then_own_wgmma(x, out, steps, M: tl.constexpr, K: tl.constexpr):
    """Threads write an operand that they multiply, where the compiler puts barrier and fence; B is ones, so that a row
    sums its elements."""
    a = tlx.local_alloc((M, K), tl.float16)[0]
    b = tlx.local_alloc((K, 16), tl.float16)[0]
    first = tl.program_id(0) * steps
    at = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
    rows, columns = tl.arange(0, M), tl.arange(0, 16)
    tlx.local_store(b, tl.full((K, 16), 1.0, tl.float16))
    tlx.fence_async_shared()
    for i in range(steps):
        tlx.local_store(a, tl.load(x + (first + i) * M * K + at))
        acc = tlx.async_dot_wait(0, tlx.async_dot(a, b))
        tl.store(out + ((first + i) * M + rows[:, None]) * 16 + columns[None, :], acc)


@tlxc.kernel(do_not_specialize=("steps",))
def cp_async_then_wgmma(x, out, steps, M: tl.constexpr, K: tl.constexpr, FENCE: tl.constexpr):
    """cp.async brings an operand, wgmma of the other task reads it; B is ones."""
    a = tlx.local_alloc((M, K), tl.float16)[0]
    b = tlx.local_alloc((K, 16), tl.float16)[0]
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    first = tl.program_id(0) * steps
    tlx.local_store(b, tl.full((K, 16), 1.0, tl.float16))
    tlx.fence_async_shared()
    with tlx.async_tasks():
        with tlx.async_task("default"):
            rows, columns = tl.arange(0, M), tl.arange(0, 16)
            for i in range(steps):
                tlx.barrier_wait(full, i & 1)
                if FENCE == READER:
                    tlx.fence_async_shared()
                acc = tlx.async_dot_wait(0, tlx.async_dot(a, b))
                tlx.barrier_arrive(empty)
                tl.store(out + ((first + i) * M + rows[:, None]) * 16 + columns[None, :], acc)
        with tlx.async_task(num_warps=4):
            at = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
            for i in range(steps):
                tlx.barrier_wait(empty, (i & 1) ^ 1)
                tlx.async_load(x + (first + i) * M * K + at, a)
                tlx.async_load_commit_group()
                tlx.async_load_wait_group(0)
                if FENCE == WRITER:
                    tlx.fence_async_shared()
                tlx.barrier_arrive(full)


@tlxc.kernel(do_not_specialize=("steps",))
def st_async_then_wgmma(x, out, steps, M: tl.constexpr, K: tl.constexpr, FENCE: tl.constexpr):
    """The neighbour's st.async brings an operand, and its bytes tell; wgmma reads it."""
    a = tlx.local_alloc((M, K), tl.float16)[0]
    b = tlx.local_alloc((K, 16), tl.float16)[0]
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    other = tlx.cluster_cta_rank() ^ 1
    first = tl.program_id(0) * steps
    tlx.local_store(b, tl.full((K, 16), 1.0, tl.float16))
    tlx.fence_async_shared()
    with tlx.async_tasks():
        with tlx.async_task("default"):
            rows, columns = tl.arange(0, M), tl.arange(0, 16)
            for i in range(steps):
                tlx.barrier_expect_bytes(full, M * K * 2)
                tlx.barrier_wait(full, i & 1)
                if FENCE == READER:
                    tlx.fence_async_shared()
                acc = tlx.async_dot_wait(0, tlx.async_dot(a, b))
                tlx.barrier_arrive(empty, remote_cta_rank=other)
                tl.store(out + ((first + i) * M + rows[:, None]) * 16 + columns[None, :], acc)
        with tlx.async_task(num_warps=4):
            at = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
            for i in range(steps):
                tile = tl.load(x + (first + i) * M * K + at)
                tlx.barrier_wait(empty, (i & 1) ^ 1)
                tlx.async_remote_shmem_store(a, tile, other, full)


@tlxc.kernel(do_not_specialize=("steps",))
def exchange(x, out, steps, W: tl.constexpr):
    """Stores to the neighbour and arrivals there: one tells of the store, one that the tile was read."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    other = tlx.cluster_cta_rank() ^ 1
    first = tl.program_id(0) * steps
    for i in range(steps):
        tile = tl.load(x + (first + i) * W + tl.arange(0, W))
        tlx.barrier_wait(empty, (i & 1) ^ 1)
        tlx.remote_shmem_store(buf, tile, other)
        tlx.barrier_arrive(full, remote_cta_rank=other)
        tlx.barrier_wait(full, i & 1)
        seen = tlx.local_load(buf)
        tlx.barrier_arrive(empty, remote_cta_rank=other)
        tl.store(out + (first + i) * W + tl.arange(0, W), seen)


@tlxc.kernel(do_not_specialize=("steps",))
def multicast(x, out, steps, W: tl.constexpr):
    """Each CTA of a pair loads one half of a tile for both; whoever has read it tells both."""
    buf = tlx.local_alloc((W,), tl.float32, 2)
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1, arrive_count=2)[0]
    rank = tlx.cluster_cta_rank()
    pair = tl.program_id(0) // 2 * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tlx.barrier_wait(full, i & 1)
                one, two = tlx.local_load(buf[0]), tlx.local_load(buf[1])
                for peer in tl.static_range(2):
                    tlx.barrier_arrive(empty, remote_cta_rank=peer)
                at = (tl.program_id(0) * steps + i) * 2 * W + tl.arange(0, W)
                tl.store(out + at, one)
                tl.store(out + at + W, two)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                tlx.barrier_wait(empty, (i & 1) ^ 1)
                tlx.barrier_expect_bytes(full, 2 * W * 4)
                at = ((pair + i) * 2 + rank) * W
                tlx.async_descriptor_load(x, buf[rank], [at], full, multicast_targets=[0, 1])


@tlxc.kernel(do_not_specialize=("steps",))
def write_there_then_async_read(x, out, steps, W: tl.constexpr, FENCE: tl.constexpr):
    """Threads write the buffer of the neighbour, whose TMA reads it."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    full, empty = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    other = tlx.cluster_cta_rank() ^ 1
    first = tl.program_id(0) * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tile = tl.load(x + (first + i) * W + tl.arange(0, W))
                tlx.barrier_wait(empty, (i & 1) ^ 1)
                tlx.remote_shmem_store(buf, tile, other)
                if FENCE == WRITER:
                    tlx.fence_async_shared()
                tlx.barrier_arrive(full, remote_cta_rank=other)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                tlx.barrier_wait(full, i & 1)
                if FENCE == READER:
                    tlx.fence_async_shared()
                tlx.async_descriptor_store(out, buf, [(first + i) * W])
                tlx.async_descriptor_store_wait(0, read=True)
                tlx.barrier_arrive(empty, remote_cta_rank=other)
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def told_by_bytes(x, block, out, steps, W: tl.constexpr):
    """A task writes a note and issues a copy; the other one waits for the copy's bytes and reads the note."""
    note = tlx.local_alloc((W,), tl.float32)[0]
    data = tlx.local_alloc((64,), tl.float32)[0]
    expected, full = tlx.alloc_barriers(1)[0], tlx.alloc_barriers(1)[0]
    first = tl.program_id(0) * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tile = tl.load(x + (first + i) * W + tl.arange(0, W))
                tlx.barrier_wait(expected, i & 1)
                tlx.local_store(note, tile)
                tlx.async_descriptor_load(block, data, [0], full)
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                tlx.barrier_expect_bytes(full, 256)
                tlx.barrier_arrive(expected)
                tlx.barrier_wait(full, i & 1)
                tl.store(out + (first + i) * W + tl.arange(0, W), tlx.local_load(note))


@tlxc.kernel(do_not_specialize=("steps",))
def named_arrival(x, out, steps, W: tl.constexpr):
    """One side only arrives at a named barrier, the other one waits there and reads."""
    buf = tlx.local_alloc((W,), tl.float32)[0]
    done = tlx.alloc_barriers(1)[0]
    first = tl.program_id(0) * steps
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                tile = tl.load(x + (first + i) * W + tl.arange(0, W))
                tlx.barrier_wait(done, (i & 1) ^ 1)
                tlx.local_store(buf, tile)
                tlx.named_barrier_arrive(9, 256)
        with tlx.async_task(num_warps=4):
            for i in range(steps):
                tlx.named_barrier_wait(9, 256)
                seen = tlx.local_load(buf)
                tlx.barrier_arrive(done)
                tl.store(out + (first + i) * W + tl.arange(0, W), seen)
