"""GEMM on Hopper for few rows of A, C = A @ B in 16-bit floats, at the speed that B can be read.

The matrix instruction takes 64 rows and as many columns as one likes, by eights.  So the product is computed the other
way round, C^T = B^T @ A^T: the columns of B are the rows, and no work or traffic is spent on rows that A does not have.
Each CTA owns BN columns; one task loads by TMA, another multiplies.  B is read once, A by every CTA: so B leaves the L2
cache first.  With up to 32 rows two CTAs fit into an SM: those of the next product get ready while this one ends.

python examples/hopper_gemm_skinny.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support

import tlxc
from tlxc import tl, tlx

MOST_ROWS = 128


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (16, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (16, 64)),
    K: tl.int32,
    BM: tl.constexpr = 16,
    BN: tl.constexpr = 64,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 8,
):
    """C (M, N) = A (M, K) @ B (K, N) for M <= BM; blocks of the descriptors: (BM, BK), (BK, BN) and (BM, BN)."""
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((BM, BK), dtype, STAGES)
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((BM, BN), dtype, 1)[0]
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    column = tl.program_id(0) * BN
    steps = tl.cdiv(K, BK)

    tlx.gdc_wait()  # the grid is launched while the one before it still ends
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for k in range(steps):
                stage, phase = tlx.get_bufidx_phase(k, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], (BM + BN) * BK * tlx.size_of(dtype))
                where = [k * BK, column]
                tlx.async_descriptor_load(b_desc, b[stage], where, full[stage], eviction_policy="evict_first")
                tlx.async_descriptor_load(a_desc, a[stage], [0, k * BK], full[stage])

        with tlx.async_task(num_warps=4):
            acc, last = tl.zeros((BN, BM), tl.float32), 0
            for k in range(steps):
                stage, phase = tlx.get_bufidx_phase(k, STAGES)
                tlx.barrier_wait(full[stage], phase)
                acc = tlx.async_dot(tlx.local_trans(b[stage]), tlx.local_trans(a[stage]), acc)
                acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                if k > 0:
                    tlx.barrier_arrive(empty[last])
                last = stage
            acc = tlx.async_dot_wait(0, acc)
            tlx.local_store(c, tl.trans(acc.to(dtype)))
            tlx.async_descriptor_store(c_desc, c, [0, column])
            tlx.async_descriptor_store_wait(0)


@gemm.example
def example():
    """Four CTAs, 10 rows of 16."""
    a, b, c = (_support.rows(1, *shape)[0] for shape in ((10, 1096), (1096, 200), (10, 200)))
    return (4,), (*_gemm.descriptors(a, b, c, (16, 64), (64, 64), (16, 64)), 1096)


def prepare(a, b, c, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for 2-D torch tensors of float16 or bfloat16 with at most 128 rows in a; rows
    are contiguous, starts multiples of 16 bytes.  The tensor maps are made once."""
    (m, k), n = a.shape, b.shape[1]
    assert m <= MOST_ROWS, f"{m} rows are more than {MOST_ROWS}; use hopper_gemm_ws"
    options = dict(BM=tlxc.cdiv(m, 16) * 16, BN=64, BK=64)
    options["STAGES"] = min(8, 200 * 1024 // (128 * (options["BM"] + options["BN"])))
    options |= constants
    bm, bn, bk = options["BM"], options["BN"], options["BK"]
    blocks = _gemm.descriptors(a, b, c, [bm, bk], [bk, bn], [bm, bn])
    return partial(gemm[(tlxc.cdiv(n, bn),)], *blocks, k, **options, launch_pdl=True)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


def check(torch) -> None:
    for m, n, k in ((16, 8192, 8192), (64, 8192, 8192), (1, 8, 8), (33, 264, 1032), (128, 1000, 512), (7, 64, 0)):
        for dtype in (torch.float16, torch.bfloat16):
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(k, n, device="cuda", dtype=dtype)
            c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
            launch(a, b, c)
            if k:
                _support.expect_close(c, a.double() @ b.double(), dtype)
            elif c.any():
                raise SystemExit(f"wrong result for K = 0: C (M, N) = ({m}, {n}) is not zero")


if __name__ == "__main__":
    _support.main(gemm, check)
