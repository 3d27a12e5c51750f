"""GEMM on Hopper for few tiles, C = A @ B in 16-bit floats: the CTAs of a cluster share the sum over K of each tile.

A problem with fewer tiles than SMs, or with few more, leaves SMs idle.  Here SPLIT CTAs compute one tile: each
multiplies its part of K.  Then each finishes its part of the columns: the others write their sums of those columns into
its shared memory, and it adds them up, its own first and then by rank.  So results are the same in every run.

python examples/hopper_gemm_splitk.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support
import hopper_gemm_ws
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


@tlxc.kernel(num_warps=4, ctas_per_cga=(2, 1, 1))
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 128)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 128,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 5,
    GROUP: tl.constexpr = 8,
    SPLIT: tl.constexpr = 2,
    CONSUMERS: tl.constexpr = 2,
):
    """C (M, N) = A (M, K) @ B (K, N) by clusters of SPLIT CTAs; blocks of the descriptors: (ROWS, BK), (BK, BN) and
    (ROWS, BN // SPLIT), where ROWS = BM // CONSUMERS."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    ROWS: tl.constexpr = BM // CONSUMERS
    WIDTH: tl.constexpr = BN // SPLIT  # columns of a tile that one CTA finishes
    OTHERS: tl.constexpr = SPLIT - 1
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((ROWS, BK), dtype, STAGES * CONSUMERS)
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((ROWS, WIDTH), dtype, CONSUMERS)
    sums = tlx.local_alloc((ROWS, WIDTH), tl.float32, OTHERS * CONSUMERS)  # those of the other CTAs, by rank
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    arrived = tlx.alloc_barriers(CONSUMERS)
    rank = tlx.cluster_cta_rank()
    row, column = tile_origin(tl.program_id(0) // SPLIT, M, N, BM, BN, GROUP)
    steps = tl.cdiv(K, BK)
    start, end = steps * rank // SPLIT, steps * (rank + 1) // SPLIT
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    tlx.gdc_wait()  # the grid is launched while the one before it still ends
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            for k in range(start, end):
                stage, phase = tlx.get_bufidx_phase(k - start, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], BYTES)
                for i in tl.static_range(CONSUMERS):
                    part = a[CONSUMERS * stage + i]
                    tlx.async_descriptor_load(a_desc, part, [row + i * ROWS, k * BK], full[stage])
                tlx.async_descriptor_load(b_desc, b[stage], [k * BK, column], full[stage])

        with tlx.async_task(num_warps=4, num_regs=232, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            tlx.barrier_expect_bytes(arrived[me], OTHERS * ROWS * WIDTH * 4)
            acc, last = tl.zeros((ROWS, BN), tl.float32), 0
            for k in range(end - start):
                stage, phase = tlx.get_bufidx_phase(k, STAGES)
                tlx.barrier_wait(full[stage], phase)
                acc = tlx.async_dot(a[CONSUMERS * stage + me], b[stage], acc)
                acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                if k > 0:
                    tlx.barrier_arrive(empty[last])
                last = stage
            parts = column_parts(tlx.async_dot_wait(0, acc), WIDTH)
            total = parts[0]
            for cta in tl.static_range(SPLIT):
                total = tl.where(rank == cta, parts[cta], total)
                if rank != cta:
                    place = OTHERS * me + (rank if rank < cta else rank - 1)
                    tlx.async_remote_shmem_store(sums[place], parts[cta], cta, arrived[me])
            tlx.barrier_wait(arrived[me], 0)
            for i in tl.static_range(OTHERS):
                total += tlx.local_load(sums[OTHERS * me + i])
            tlx.local_store(c[me], total.to(dtype))
            tlx.async_descriptor_store(c_desc, c[me], [row + me * ROWS, column + rank * WIDTH])
            tlx.async_descriptor_store_wait(0)


@gemm.example
def example():
    """Two clusters of two CTAs, which have three and four blocks of K."""
    return _gemm.example(4, (64, 64), (64, 256), (64, 128), k=440, BN=256, STAGES=2)


@gemm.example
def four():
    """The same product by four clusters of four CTAs with half of the rows of such tiles."""
    return _gemm.example(16, (64, 64), (64, 128), (64, 32), k=440, SPLIT=4, ctas_per_cga=(4, 1, 1))


# Tiles (BM, BN, CONSUMERS), and the cycles of an H200 for 64 of K, as in hopper_gemm_ws.
TILES = {(128, 256, 2): 1024, (128, 128, 2): 560, (64, 256, 1): 620, (64, 128, 1): 330}
SPLITS = (1, 2, 4, 8)
TILE_CYCLES = 1500  # to fill the pipeline, and to store
_MEET_CYCLES = 6000  # of a cluster: to begin and to end together, and until the last sums have arrived; measured
_BYTES_A_CYCLE = 16  # from one SM to others
_ROOM = 216 * 1024  # bytes of shared memory for buffers; conversions of sums that are added by rows take the rest


def stages_for(BM: int, BN: int, SPLIT: int) -> int:
    """Stages that fit beside the sums of the other CTAs and the part of the tile to store."""
    columns = BN // SPLIT
    return min(8, (_ROOM - BM * columns * (4 * (SPLIT - 1) + 2)) // (128 * (BM + BN)))


def forms() -> list[dict[str, int]]:
    """All that `choose` chooses among: constants of the kernel, and with SPLIT = 1 those of hopper_gemm_ws."""
    named = [dict(zip(("BM", "BN", "CONSUMERS"), tile), SPLIT=split) for tile in TILES for split in SPLITS]
    found = [form | dict(STAGES=stages_for(form["BM"], form["BN"], form["SPLIT"])) for form in named]
    return [form for form in found if form["STAGES"] >= 3]


def cycles(form: dict[str, int], m: int, n: int, k: int, sms: int) -> float:
    """What the slowest SM takes."""
    BM, BN, split = form["BM"], form["BN"], form["SPLIT"]
    turns = tlxc.cdiv(tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN), sms // split)
    products = tlxc.cdiv(tlxc.cdiv(k, 64), split) * TILES[BM, BN, form["CONSUMERS"]]
    sent = BM * BN * 4 * (split - 1) / split / _BYTES_A_CYCLE
    return turns * (products + TILE_CYCLES + (split > 1) * _MEET_CYCLES + sent)


def choose(m: int, n: int, k: int, sms: int) -> dict[str, int]:
    """The form whose slowest SM is done first."""
    return min((form for form in forms() if form["SPLIT"] <= sms), key=lambda form: cycles(form, m, n, k, sms))


def prepare(a, b, c, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts
    multiples of 16 bytes.  The tensor maps are made once.  Where no sum is worth splitting, hopper_gemm_ws does it."""
    (m, k), n = a.shape, b.shape[1]
    constants = choose(m, n, k, _support.sm_count(c.device)) | constants
    BM, BN, split = constants["BM"], constants["BN"], constants["SPLIT"]
    if split == 1:
        return hopper_gemm_ws.prepare(a, b, c)
    rows = BM // constants["CONSUMERS"]
    blocks = _gemm.descriptors(a, b, c, [rows, 64], [64, BN], [rows, BN // split])
    grid = (tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN) * split,)
    return partial(gemm[grid], *blocks, m, n, k, **constants, ctas_per_cga=(split, 1, 1), launch_pdl=True)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


def check(torch) -> None:
    _gemm.check(torch, launch)
    for form in forms():
        if form["SPLIT"] > 1:
            _gemm.check(torch, launch, **form)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((500, 16384), (16384, 520)))
    c, again = (torch.empty(500, 520, device="cuda", dtype=torch.float16) for _ in range(2))
    launch(a, b, c)
    _support.expect_close(c, a.double() @ b.double(), a.dtype)
    for _ in range(20):
        launch(a, b, again)
        if not torch.equal(c, again):
            raise SystemExit("two runs differ")


if __name__ == "__main__":
    _support.main(gemm, check)
