"""Persistent GEMM on Hopper, C = A @ B in 16-bit floats: one task loads by TMA, two tasks multiply and store.

Each CTA walks over tiles of C.  The producer keeps STAGES pairs of blocks in flight; each of the two consumer copies
owns one half of the rows.  `full` says that a stage has arrived, `empty` that both consumers have read it.

python examples/hopper_gemm_ws.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _support

import tlxc
from tlxc import tl, tlx


def tile_origin(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile of C.  GROUP tile rows are walked together, so that blocks are found in the L2 cache."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = tile // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    within = tile % (GROUP * columns)
    return (group * GROUP + within % height) * BM, (within // height) * BN


def column_parts(x, width: tl.constexpr):
    """A tile as a tuple of tiles of `width` columns; no data moves."""
    if x.shape[1] == width:
        return (x,)
    left, right = x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()
    return column_parts(left, width) + column_parts(right, width)


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 256)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 256,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 4,
    GROUP: tl.constexpr = 8,
    BC: tl.constexpr = 64,
):
    """C (M, N) = A (M, K) @ B (K, N); blocks of the descriptors: (BM // 2, BK), (BK, BN) and (BM // 2, BC)."""
    HALF: tl.constexpr = BM // 2
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((HALF, BK), dtype, STAGES * 2)  # one half of the rows per consumer
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((HALF, BC), dtype, 4)  # two per consumer, used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=2)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = 0
            for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    tlx.async_descriptor_load(a_desc, a[2 * stage], [row, k * BK], full[stage])
                    tlx.async_descriptor_load(a_desc, a[2 * stage + 1], [row + HALF, k * BK], full[stage])
                    tlx.async_descriptor_load(b_desc, b[stage], [k * BK, column], full[stage])
                    count += 1

        with tlx.async_task(num_warps=4, num_regs=232, replicate=2):
            half = tlx.async_task_replica_id()
            count = 0
            for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                acc = tl.zeros((HALF, BN), tl.float32)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(a[2 * stage + half], b[stage], acc)
                    acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                    if k > 0:
                        tlx.barrier_arrive(empty[(count - 1) % STAGES])
                    count += 1
                acc = tlx.async_dot_wait(0, acc)
                tlx.barrier_arrive(empty[(count - 1) % STAGES])
                parts = column_parts(acc.to(dtype), BC)
                for i in tl.static_range(BN // BC):
                    out = c[2 * half + i % 2]
                    tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left its buffer
                    tlx.local_store(out, parts[i])
                    tlx.async_descriptor_store(c_desc, out, [row + half * HALF, column + i * BC])
            tlx.async_descriptor_store_wait(0)


def launch(a, b, c, BM=128, BN=256, BK=64, BC=64, **constants) -> None:
    """c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[1]
    a_desc = tlxc.TensorDescriptor.from_tensor(a, [BM // 2, BK])
    b_desc = tlxc.TensorDescriptor.from_tensor(b, [BK, BN])
    c_desc = tlxc.TensorDescriptor.from_tensor(c, [BM // 2, BC])
    grid = (min(tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN), _support.sm_count(c.device)),)
    gemm[grid](a_desc, b_desc, c_desc, m, n, k, BM=BM, BN=BN, BK=BK, BC=BC, **constants)


def check(torch) -> None:
    for m, n, k in ((128, 256, 64), (1024, 1024, 512), (4096, 4096, 256), (200, 328, 136), (1, 8, 8), (129, 264, 1032)):
        for dtype in (torch.float16, torch.bfloat16):
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(k, n, device="cuda", dtype=dtype)
            c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
            launch(a, b, c)
            _support.expect_close(c, a.double() @ b.double(), dtype)


if __name__ == "__main__":
    _support.main(gemm, check)
