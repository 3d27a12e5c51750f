"""RMS norm of rows that are too long for one CTA: a cluster shares each row and exchanges sums of squares.

Every CTA keeps its part of ROWS rows in registers.  It writes its sums into a buffer of every CTA of the cluster, where
the bytes are counted at a barrier: when those of all have arrived, each CTA adds them up and scales its part.

python examples/cluster_reduce.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _support

import tlxc
from tlxc import tl, tlx

EPS = 1e-6


@tlxc.kernel(num_warps=8, ctas_per_cga=(4, 1, 1))
def rms_norm(
    x: tl.ptr(tl.float16, align=16),
    y: tl.ptr(tl.float16, align=16),
    M: tl.int32,
    N: tl.divisible(tl.int32, 8),
    ROWS: tl.constexpr = 4,
    BLOCK: tl.constexpr = 4096,
    CTAS: tl.constexpr = 4,
):
    """y = x / sqrt(mean(x**2) + EPS) for each of M rows of N elements, at most BLOCK * CTAS."""
    sums = tlx.local_alloc((ROWS,), tl.float32, CTAS)
    arrived = tlx.alloc_barriers(1)
    rank = tlx.cluster_cta_rank()
    rows = tl.program_id(0) // CTAS * ROWS + tl.arange(0, ROWS)
    columns = rank * BLOCK + tl.arange(0, BLOCK)
    places = rows[:, None].to(tl.int64) * N + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tile = tl.load(x + places, mask=inside).to(tl.float32)
    mine = tl.sum(tile * tile, axis=1)

    tlx.barrier_expect_bytes(arrived[0], ROWS * CTAS * 4)
    for other in tl.static_range(CTAS):
        tlx.async_remote_shmem_store(sums[rank], mine, other, arrived[0])
    tlx.barrier_wait(arrived[0], 0)
    total = tlx.local_load(sums[0])
    for other in tl.static_range(1, CTAS):
        total += tlx.local_load(sums[other])
    scale = tl.rsqrt(total / N + EPS)
    tl.store(y + places, (tile * scale[:, None]).to(y.dtype.dtype), mask=inside)


@rms_norm.example
def example():
    """Two clusters of four CTAs; the last rows and columns are not whole."""
    x, y = _support.rows(2, 7, 3000)
    return (8,), dict(x=x, y=y, M=7, N=3000, BLOCK=1024)


def launch(x, y, ROWS=4, BLOCK=4096, CTAS=4) -> None:
    """y = rms_norm(x) for contiguous 2-D torch tensors of float16 or bfloat16; rows are multiples of 8 elements."""
    m, n = x.shape
    assert n <= BLOCK * CTAS, f"rows of {n} elements do not fit {CTAS} CTAs of {BLOCK}"
    grid = (tlxc.cdiv(m, ROWS) * CTAS,)
    rms_norm[grid](x, y, m, n, ROWS=ROWS, BLOCK=BLOCK, CTAS=CTAS, ctas_per_cga=(CTAS, 1, 1))


def check(torch) -> None:
    for m, n, block, ctas in ((1, 8, 1024, 2), (513, 8192, 4096, 2), (37, 16384, 4096, 4), (100, 12000, 2048, 8)):
        for dtype in (torch.float16, torch.bfloat16):
            x = torch.randn(m, n, device="cuda", dtype=dtype)
            y = torch.full_like(x, float("nan"))
            launch(x, y, BLOCK=block, CTAS=ctas)
            wide = x.double()
            _support.expect_close(y, wide * (wide.square().mean(1, keepdim=True) + EPS).rsqrt(), dtype)


if __name__ == "__main__":
    _support.main(rms_norm, check)
