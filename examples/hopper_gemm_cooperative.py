"""Persistent GEMM on Hopper with one producer and one consumer task of 8 warps, whose two warpgroups share a tile of C.

`hopper_gemm_ws.py` has two consumer tasks of 4 warps in its place: there each half of a tile proceeds by itself, here
one task names the whole tile and the compiler splits its rows over the warpgroups.

python examples/hopper_gemm_cooperative.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _gemm
import _support
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (128, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 256)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (128, 64)),
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
    """C (M, N) = A (M, K) @ B (K, N); blocks of the descriptors: (BM, BK), (BK, BN) and (BM, BC)."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((BM, BK), dtype, STAGES)
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((BM, BC), dtype, 2)  # used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
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
                    tlx.async_descriptor_load(a_desc, a[stage], [row, k * BK], full[stage])
                    tlx.async_descriptor_load(b_desc, b[stage], [k * BK, column], full[stage])
                    count += 1

        with tlx.async_task(num_warps=8, num_regs=232):
            count = 0
            for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                acc, last = tl.zeros((BM, BN), tl.float32), 0
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(a[stage], b[stage], acc)
                    acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                    if k > 0:
                        tlx.barrier_arrive(empty[last])
                    last = stage
                    count += 1
                acc = tlx.async_dot_wait(0, acc)
                if steps > 0:
                    tlx.barrier_arrive(empty[last])
                parts = column_parts(acc.to(dtype), BC)
                for i in tl.static_range(BN // BC):
                    tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left its buffer
                    tlx.local_store(c[i % 2], parts[i])
                    tlx.async_descriptor_store(c_desc, c[i % 2], [row, column + i * BC])
            tlx.async_descriptor_store_wait(0)


@gemm.example
def example():
    """Two CTAs with two tiles each."""
    return _gemm.example(2, (128, 64), (64, 256), (128, 64))


def launch(a, b, c, BM=128, BN=256, BK=64, BC=64, **constants) -> None:
    """c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[1]
    blocks = _gemm.descriptors(a, b, c, [BM, BK], [BK, BN], [BM, BC])
    grid = (min(tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN), _support.sm_count(c.device)),)
    gemm[grid](*blocks, m, n, k, BM=BM, BN=BN, BK=BK, BC=BC, **constants)


def check(torch) -> None:
    _gemm.check(torch, launch)


if __name__ == "__main__":
    _support.main(gemm, check)
