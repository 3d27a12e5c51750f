"""Persistent GEMM on Hopper whose two consumers take turns: while one stores its tile of C, the other multiplies.

Each consumer copy owns every second tile of the CTA.  `turn` hands the tensor cores from one to the other: a consumer
waits for its turn before the first dot of a tile, and passes it on when it has issued the last one.

python examples/hopper_gemm_pingpong.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (128, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 128)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (128, 64)),
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 128,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 6,
    GROUP: tl.constexpr = 8,
    BC: tl.constexpr = 64,
):
    """C (M, N) = A (M, K) @ B (K, N); blocks of the descriptors: (BM, BK), (BK, BN) and (BM, BC)."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((BM, BK), dtype, STAGES)
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((BM, BC), dtype, 2)  # one per consumer
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    turn = tlx.alloc_barriers(2)
    first, stride = tl.program_id(0), tl.num_programs(0)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    tlx.gdc_wait()  # the grid is launched while the one before it still ends
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = 0
            for tile in range(first, tiles, stride):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    tlx.async_descriptor_load(a_desc, a[stage], [row, k * BK], full[stage])
                    tlx.async_descriptor_load(b_desc, b[stage], [k * BK, column], full[stage])
                    count += 1

        with tlx.async_task(num_warps=4, num_regs=232, replicate=2):
            me = tlx.async_task_replica_id()
            count = me * steps
            passed = me ^ 1  # the parity of my turn; the first one of consumer 0 needs no one to pass it
            for tile in range(first + me * stride, tiles, 2 * stride):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                acc, last = tl.zeros((BM, BN), tl.float32), 0
                tlx.barrier_wait(turn[me], passed)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(a[stage], b[stage], acc)
                    acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                    if k > 0:
                        tlx.barrier_arrive(empty[last])
                    last = stage
                    count += 1
                tlx.barrier_arrive(turn[me ^ 1])
                acc = tlx.async_dot_wait(0, acc)
                if steps > 0:
                    tlx.barrier_arrive(empty[last])
                passed ^= 1
                count += steps  # those of the other consumer's tile
                parts = column_parts(acc.to(dtype), BC)
                for i in tl.static_range(BN // BC):
                    tlx.async_descriptor_store_wait(0, read=True)  # the store before has left the buffer
                    tlx.local_store(c[me], parts[i])
                    tlx.async_descriptor_store(c_desc, c[me], [row, column + i * BC])
            tlx.async_descriptor_store_wait(0)


@gemm.example
def example():
    """Two CTAs with four tiles each."""
    return _gemm.example(2, (128, 64), (64, 128), (128, 64))


def prepare(a, b, c, BM=128, BN=128, BK=64, BC=64, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts
    multiples of 16 bytes.  The tensor maps are made once."""
    (m, k), n = a.shape, b.shape[1]
    blocks = _gemm.descriptors(a, b, c, [BM, BK], [BK, BN], [BM, BC])
    grid = (min(tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN), _support.sm_count(c.device)),)
    constants |= dict(BM=BM, BN=BN, BK=BK, BC=BC, launch_pdl=True)
    return partial(gemm[grid], *blocks, m, n, k, **constants)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


def check(torch) -> None:
    _gemm.check(torch, launch)
    _gemm.check(torch, launch, BM=64, BN=256, STAGES=4)


if __name__ == "__main__":
    _support.main(gemm, check)
