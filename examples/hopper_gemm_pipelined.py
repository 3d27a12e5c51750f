"""GEMM on Hopper without specialised tasks: the warps that multiply also start the loads, STAGES - 1 steps ahead.

One CTA per tile of C.  The dot of step k runs while that of step k - 1 is waited for; the buffers of step k - 1 are
then free, and the blocks of step k + STAGES - 1 go there.

python examples/hopper_gemm_pipelined.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _gemm
import _support
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


@tlxc.kernel(num_warps=8)
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
    row, column = tile_origin(tl.program_id(0), M, N, BM, BN, GROUP)
    steps = tl.cdiv(K, BK)
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    for k in tl.static_range(STAGES - 1):
        if k < steps:
            tlx.barrier_expect_bytes(full[k], BYTES)
            tlx.async_descriptor_load(a_desc, a[k], [row, k * BK], full[k])
            tlx.async_descriptor_load(b_desc, b[k], [k * BK, column], full[k])

    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(steps):
        stage, phase = tlx.get_bufidx_phase(k, STAGES)
        tlx.barrier_wait(full[stage], phase)
        acc = tlx.async_dot(a[stage], b[stage], acc)
        acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
        ahead = k + STAGES - 1
        if ahead < steps:
            free = ahead % STAGES
            tlx.barrier_expect_bytes(full[free], BYTES)
            tlx.async_descriptor_load(a_desc, a[free], [row, ahead * BK], full[free])
            tlx.async_descriptor_load(b_desc, b[free], [ahead * BK, column], full[free])
    acc = tlx.async_dot_wait(0, acc)

    parts = column_parts(acc.to(dtype), BC)
    for i in tl.static_range(BN // BC):
        tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left its buffer
        tlx.local_store(c[i % 2], parts[i])
        tlx.async_descriptor_store(c_desc, c[i % 2], [row, column + i * BC])
    tlx.async_descriptor_store_wait(0)


@gemm.example
def example():
    """A CTA for each of four tiles."""
    return _gemm.example(4, (128, 64), (64, 256), (128, 64))


def launch(a, b, c, BM=128, BN=256, BK=64, BC=64, num_warps=8, **constants) -> None:
    """c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[1]
    blocks = _gemm.descriptors(a, b, c, [BM, BK], [BK, BN], [BM, BC])
    grid = (tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN),)
    gemm[grid](*blocks, m, n, k, BM=BM, BN=BN, BK=BK, BC=BC, **constants, num_warps=num_warps)


def check(torch) -> None:
    _gemm.check(torch, launch)
    _gemm.check(torch, launch, BN=128, num_warps=4)


if __name__ == "__main__":
    _support.main(gemm, check)
