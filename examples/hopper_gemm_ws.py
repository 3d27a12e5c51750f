"""Persistent GEMM on Hopper, C = A @ B in 16-bit floats: one task loads by TMA, others multiply and store.

Each CTA walks over tiles of C.  The producer keeps STAGES pairs of blocks in flight; each of the CONSUMERS copies owns
its part of the rows.  `full` says that a stage has arrived, `empty` that everyone who reads it has done so.  `prepare`
picks the tiles by the problem: large ones multiply faster, small ones leave no SM idle.

With CTAS=2, two CTAs of a cluster compute tiles below each other.  They need the same blocks of B, so each loads half
of every block and multicasts it to both: a stage is free only when the consumers of both CTAs have read it.

Each consumer runs STAGGER blocks ahead of the next one: so they do not store all at once, and the tensor cores have
work meanwhile.  The grid is launched while the one before it still ends, and gets ready until `gdc_wait`.

python examples/hopper_gemm_ws.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


def release(barrier, CTAS: tl.constexpr):
    """Tells the producers of all CTAs that multicast to this one that it has read a stage."""
    if CTAS == 1:
        tlx.barrier_arrive(barrier)
    else:
        for cta in tl.static_range(CTAS):
            tlx.barrier_arrive(barrier, remote_cta_rank=cta)


def load_b(b_desc, block, k, column, barrier, CTAS: tl.constexpr):
    """A block of B, of which each CTA loads its part for all."""
    if CTAS == 1:
        tlx.async_descriptor_load(b_desc, block, [k, column], barrier)
    else:
        WIDTH: tl.constexpr = block.shape[1] // CTAS
        rank = tlx.cluster_cta_rank()
        for i in tl.static_range(CTAS):
            part = tlx.local_slice(block, (0, i * WIDTH), (block.shape[0], WIDTH))
            where = [k, column + i * WIDTH]
            tlx.async_descriptor_load(b_desc, part, where, barrier, pred=rank == i, multicast_targets=[0, 1])


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
    CTAS: tl.constexpr = 1,
    CONSUMERS: tl.constexpr = 2,
):
    """C (M, N) = A (M, K) @ B (K, N); blocks of the descriptors: (ROWS, BK), (BK, BN // CTAS) and (ROWS, BC), where
    ROWS = BM // CONSUMERS."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    ROWS: tl.constexpr = BM // CONSUMERS
    STAGGER: tl.constexpr = min(3, STAGES - 1)
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((ROWS, BK), dtype, STAGES * CONSUMERS)
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((ROWS, BC), dtype, 2 * CONSUMERS)  # two per consumer, used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS * CTAS)
    ahead = tlx.alloc_barriers(CONSUMERS + 1)  # the consumer before; ahead[0] stays in its first phase
    first, stride = tl.program_id(0) // CTAS, tl.num_programs(0) // CTAS
    below = tl.program_id(0) % CTAS * BM  # where in the tiles of its cluster this CTA works
    tiles = tl.cdiv(M, BM * CTAS) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    tlx.gdc_wait()
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = 0
            for tile in range(first, tiles, stride):
                row, column = tile_origin(tile, M, N, BM * CTAS, BN, GROUP)
                row += below
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    for i in tl.static_range(CONSUMERS):
                        part = a[CONSUMERS * stage + i]
                        tlx.async_descriptor_load(a_desc, part, [row + i * ROWS, k * BK], full[stage])
                    load_b(b_desc, b[stage], k * BK, column, full[stage], CTAS)
                    count += 1

        with tlx.async_task(num_warps=4, num_regs=232, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            count = 0
            for tile in range(first, tiles, stride):
                row, column = tile_origin(tile, M, N, BM * CTAS, BN, GROUP)
                row += below + me * ROWS
                acc, last = tl.zeros((ROWS, BN), tl.float32), 0
                if steps >= STAGGER:
                    tlx.barrier_wait(ahead[me], me == 0)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(a[CONSUMERS * stage + me], b[stage], acc)
                    acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                    if k > 0:
                        release(empty[last], CTAS)
                    last = stage
                    count += 1
                    tlx.barrier_arrive(ahead[me + 1], pred=count == STAGGER)
                acc = tlx.async_dot_wait(0, acc)
                if steps > 0:
                    release(empty[last], CTAS)
                parts = column_parts(acc.to(dtype), BC)
                for i in tl.static_range(BN // BC):
                    out = c[2 * me + i % 2]
                    tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left its buffer
                    tlx.local_store(out, parts[i])
                    tlx.async_descriptor_store(c_desc, out, [row, column + i * BC])
            tlx.async_descriptor_store_wait(0)


@gemm.example
def example():
    """Two CTAs with two tiles each."""
    return _gemm.example(2, (64, 64), (64, 256), (64, 64))


@gemm.example
def cluster():
    """The same by a cluster whose CTAs share the blocks of B."""
    blocks = (64, 64), (64, 128), (64, 64)
    return _gemm.example(2, *blocks, CTAS=2, ctas_per_cga=(2, 1, 1))


# Tiles (BM, BN, CONSUMERS, STAGES), and the cycles of an H200 for 64 of K: of the tensor core, or of loads where there
# is little to multiply.
LARGEST = (128, 256, 2, 4)
TILES = {LARGEST: 1024, (128, 128, 2, 6): 560, (128, 64, 2, 8): 330, (64, 256, 1, 5): 620,
         (64, 128, 1, 8): 330, (64, 64, 1, 10): 220}  # fmt: skip
_TILE_CYCLES = 1500  # to fill the pipeline, and to store


def choose(m: int, n: int, k: int, sms: int) -> dict[str, int]:
    """The tiles whose slowest SM is done first."""

    def cycles(tile: tuple[int, int, int, int]) -> float:
        turns = tlxc.cdiv(tlxc.cdiv(m, tile[0]) * tlxc.cdiv(n, tile[1]), sms)
        return turns * (tlxc.cdiv(k, 64) * TILES[tile] + _TILE_CYCLES)

    return _named(min(TILES, key=cycles))


def _named(tile: tuple[int, int, int, int]) -> dict[str, int]:
    return dict(zip(("BM", "BN", "CONSUMERS", "STAGES"), tile))


def clusters_for(m: int, n: int, k: int, sms: int) -> int:
    """CTAs that share blocks of B.  Rows that do not start at multiples of 128 bytes take TMA twice as many lines, and
    then loads are the bottleneck: on an H200, 4000 x 3000 x 1000 takes 42.9 us by pairs of CTAs and 57.4 without."""
    ragged = k * 2 % 128 or n * 2 % 128
    return 2 if ragged and _named(LARGEST) == choose(m, n, k, sms) else 1


def prepare(a, b, c, BK=64, BC=64, CTAS=None, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts
    multiples of 16 bytes.  The tensor maps are made once."""
    (m, k), n = a.shape, b.shape[1]
    sms = _support.sm_count(c.device)
    CTAS = CTAS or (1 if "BM" in constants else clusters_for(m, n, k, sms))
    tile = choose(m, n, k, sms) if CTAS == 1 else _named(LARGEST)
    constants = tile | dict(BK=BK, BC=BC, CTAS=CTAS) | constants
    BM, BN = constants["BM"], constants["BN"]
    rows = BM // constants["CONSUMERS"]
    blocks = _gemm.descriptors(a, b, c, [rows, BK], [BK, BN // CTAS], [rows, BC])
    clusters = min(tlxc.cdiv(m, BM * CTAS) * tlxc.cdiv(n, BN), sms // CTAS)
    return partial(gemm[(clusters * CTAS,)], *blocks, m, n, k, **constants, ctas_per_cga=(CTAS, 1, 1), launch_pdl=True)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


def check(torch) -> None:
    _gemm.check(torch, launch)
    _gemm.check(torch, launch, CTAS=2)
    for tile in TILES:
        _gemm.check(torch, launch, **_named(tile))


if __name__ == "__main__":
    _support.main(gemm, check)
