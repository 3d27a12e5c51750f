"""Persistent GEMM on Hopper, C = A @ B in 16-bit floats, whose CTAs share the tiles of the last wave.

Tiles that are no multiple of the SMs leave SMs idle in the last wave.  So the first `streamed` tiles are not dealt out
whole: their blocks of K, one tile after the other, are cut into ranges of one length, one for each CTA.  A CTA that
begins in the middle of a tile leaves its sum in `sums` and raises a flag; the CTA that has the tile's first block adds
those sums to its own, in the order of K, so that results are the same in every run.  It has that block at the end of
its range and others theirs at the start, so that it seldom waits.  All other tiles follow, as in hopper_gemm_ws.

python examples/hopper_gemm_streamk.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support
import hopper_gemm_splitk
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


def range_start(cta, streamed, steps):
    """The first block of the range of a CTA, counted over all streamed tiles."""
    return streamed * steps * cta // tl.num_programs(0)


def blocks_of(at, end, steps):
    """(tile, its first block of K here, and behind its last one), where a range has come to block `at`."""
    tile = at // steps
    first = at - tile * steps
    return tile, first, min(steps, first + end - at)


def follow(at, end, tile, streamed, tiles, steps):
    """(at, end, tile) for what comes next, `tile` being the next whole tile of this CTA."""
    if at == end and tile < tiles:
        at = tile * steps
        end = at + steps
        tile += tl.num_programs(0)
    return at, end, tile


def as_line(tile):
    """The elements of an accumulator in an order in which a warp's are neighbours, and those of a thread by fours."""
    BM: tl.constexpr = tile.shape[0]
    BN: tl.constexpr = tile.shape[1]
    return tile.reshape(BM // 16, 2, 8, BN // 8, 4, 2).permute(3, 0, 2, 4, 1, 5).reshape(BM * BN)


def as_tile(line, BM: tl.constexpr, BN: tl.constexpr):
    """The tile of which `as_line` made a line."""
    return line.reshape(BN // 8, BM // 16, 8, 4, 2, 2).permute(1, 4, 2, 0, 3, 5).reshape(BM, BN)


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 256)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    sums: tl.ptr(tl.float32, align=16),
    flags: tl.ptr(tl.int32, align=16),
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    streamed: tl.int32,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 256,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 4,
    GROUP: tl.constexpr = 8,
    BC: tl.constexpr = 64,
    CONSUMERS: tl.constexpr = 2,
):
    """C (M, N) = A (M, K) @ B (K, N); blocks of the descriptors: (ROWS, BK), (BK, BN) and (ROWS, BC), where ROWS is
    BM // CONSUMERS.  For each CTA `sums` has BM * BN elements and `flags` CONSUMERS zeros, which are zeros again at the
    end; no range is empty."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    tl.static_assert(BN // BC % 2 == 0, "a tile is stored in an even number of parts, since two buffers take turns")
    ROWS: tl.constexpr = BM // CONSUMERS
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((ROWS, BK), dtype, STAGES * CONSUMERS)
    b = tlx.local_alloc((BK, BN), dtype, STAGES)
    c = tlx.local_alloc((ROWS, BC), dtype, 2 * CONSUMERS)  # two per consumer, used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    # The last CTA to start has the first range: whom a CTA waits for has started before it.
    cta = tl.num_programs(0) - 1 - tl.program_id(0)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    loaded = tl.cdiv(K, BK)
    steps = max(loaded, 1)  # without a K, tiles have one block each that nobody loads
    start, stop = range_start(cta, streamed, steps), range_start(cta + 1, streamed, steps)
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    tlx.gdc_wait()  # the grid is launched while the one before it still ends
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = 0
            at, end, whole = follow(start, stop, streamed + cta, streamed, tiles, steps)
            while at < end:
                tile, first, last = blocks_of(at, end, steps)
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                for k in range(first, min(last, loaded)):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    for i in tl.static_range(CONSUMERS):
                        part = a[CONSUMERS * stage + i]
                        tlx.async_descriptor_load(a_desc, part, [row + i * ROWS, k * BK], full[stage])
                    tlx.async_descriptor_load(b_desc, b[stage], [k * BK, column], full[stage])
                    count += 1
                at, end, whole = follow(at + last - first, end, whole, streamed, tiles, steps)

        with tlx.async_task(num_warps=4, num_regs=232, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            places = tl.arange(0, ROWS * BN)
            count = 0
            at, end, whole = follow(start, stop, streamed + cta, streamed, tiles, steps)
            while at < end:
                tile, first, last = blocks_of(at, end, steps)
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                row += me * ROWS
                acc, held = tl.zeros((ROWS, BN), tl.float32), 0
                for k in range(first, min(last, loaded)):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(a[CONSUMERS * stage + me], b[stage], acc)
                    acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                    if k > first:
                        tlx.barrier_arrive(empty[held])
                    held = stage
                    count += 1
                acc = tlx.async_dot_wait(0, acc)
                if first > 0:
                    mine = CONSUMERS * cta + me
                    tl.store(sums + mine * ROWS * BN + places, as_line(acc))
                    tl.atomic_add(flags + mine, 1, sem="release")
                    # The warps of the task meet at this arrival, so that they need not at those of the next loop.
                    tlx.barrier_arrive(empty[held])
                else:
                    if loaded > 0:
                        tlx.barrier_arrive(empty[held])
                    other, missing = cta + 1, steps - last
                    while missing > 0:
                        theirs = CONSUMERS * other + me
                        while tl.atomic_add(flags + theirs, 0, sem="acquire") == 0:
                            pass
                        acc += as_tile(tl.load(sums + theirs * ROWS * BN + places), ROWS, BN)
                        tl.store(flags + theirs, 0)
                        missing -= range_start(other + 1, streamed, steps) - range_start(other, streamed, steps)
                        other += 1
                    parts = column_parts(acc.to(dtype), BC)
                    for i in tl.static_range(BN // BC):
                        out = c[2 * me + i % 2]
                        tlx.async_descriptor_store_wait(1, read=True)  # the store before the last has left its buffer
                        tlx.local_store(out, parts[i])
                        tlx.async_descriptor_store(c_desc, out, [row, column + i * BC])
                at, end, whole = follow(at + last - first, end, whole, streamed, tiles, steps)
            tlx.async_descriptor_store_wait(0)


def arguments(a, b, c, sums, flags, streamed, BM=128, BN=256, BC=64, CONSUMERS=2, **constants):
    """What the kernel takes for matrices (M, K), (K, N), (M, N)."""
    (m, k), n, rows = a.shape, b.shape[1], BM // CONSUMERS
    names = ("a_desc", "b_desc", "c_desc")
    given = dict(zip(names, _gemm.descriptors(a, b, c, [rows, 64], [64, BN], [rows, BC])))
    given |= dict(sums=sums, flags=flags, M=m, N=n, K=k, streamed=streamed)
    return given | dict(BM=BM, BN=BN, BC=BC, CONSUMERS=CONSUMERS) | constants


@gemm.example
def example():
    """Three CTAs with five tiles of 64 x 128: two are streamed, so that each CTA has two thirds of one, and three are
    whole."""
    import numpy as np

    a, b, c = (_support.rows(1, *shape)[0] for shape in ((300, 440), (440, 128), (300, 128)))
    sums, flags = np.empty(3 * 64 * 128, np.float32), np.zeros(3, np.int32)
    return (3,), arguments(a, b, c, sums, flags, 2, BM=64, BN=128, CONSUMERS=1)


_TILE_BYTES = 128 * 256 * 4
_BYTES_A_CYCLE = 50  # of sums, between an SM and the L2 cache
_FLAG_CYCLES = 1500  # until another CTA has seen a flag, and its first loads have arrived
_WORTH = 0.7  # of the time of whole tiles, at most: on an H200 streamed tiles take up to 1.35 times what this says


def cycles(streamed: int, m: int, n: int, k: int, sms: int) -> float:
    """What the slowest SM takes: its blocks, its tiles, sums that it leaves, and those that it collects."""
    steps, tiles = max(1, tlxc.cdiv(k, 64)), tlxc.cdiv(m, 128) * tlxc.cdiv(n, 256)
    length = tlxc.cdiv(streamed * steps, sms)
    whole = tlxc.cdiv(tiles - streamed, sms)
    collected = tlxc.cdiv(steps, length)
    sums = (1 + collected) * _TILE_BYTES / _BYTES_A_CYCLE + _FLAG_CYCLES
    tile = hopper_gemm_splitk.TILES[128, 256, 2]
    return (length + whole * steps) * tile + (2 + whole) * hopper_gemm_splitk.TILE_CYCLES + sums


def choose(m: int, n: int, k: int, sms: int) -> int:
    """Tiles to stream: those of the last wave and, so that each CTA has at least a tile, those of the wave before.  0
    where whole tiles, or clusters that split sums, are done first."""
    tiles = tlxc.cdiv(m, 128) * tlxc.cdiv(n, 256)
    streamed = tiles % sms + (sms if tiles > sms else 0)
    if tiles % sms == 0 or streamed * tlxc.cdiv(k, 64) < sms:
        return 0
    otherwise = hopper_gemm_splitk.cycles(hopper_gemm_splitk.choose(m, n, k, sms), m, n, k, sms)
    return streamed if cycles(streamed, m, n, k, sms) < _WORTH * otherwise else 0


def prepare(a, b, c, streamed=None, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for 2-D torch tensors of float16 or bfloat16; rows are contiguous, starts
    multiples of 16 bytes.  The tensor maps are made once, and so is the space for sums: its calls follow each other.
    Where nothing is worth streaming, hopper_gemm_splitk does it."""
    (m, k), n = a.shape, b.shape[1]
    sms = _support.sm_count(c.device)
    streamed = choose(m, n, k, sms) if streamed is None else streamed
    if not streamed:
        return hopper_gemm_splitk.prepare(a, b, c)
    tiles = tlxc.cdiv(m, 128) * tlxc.cdiv(n, 256)
    assert streamed <= tiles, f"there are {tiles} tiles, so {streamed} cannot be streamed"
    grid = min(sms, streamed * max(1, tlxc.cdiv(k, 64)))
    sums, flags = c.new_empty(grid * _TILE_BYTES // 4).float(), c.new_zeros(grid * 2).int()
    return partial(gemm[(grid,)], **arguments(a, b, c, sums, flags, streamed, **constants), launch_pdl=True)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


def check(torch) -> None:
    _gemm.check(torch, launch)
    for m, n, k in ((2304, 4096, 1000), (384, 8192, 8192), (200, 328, 1032), (1, 8, 8), (129, 264, 0)):
        tiles = tlxc.cdiv(m, 128) * tlxc.cdiv(n, 256)
        for dtype in (torch.float16, torch.bfloat16):
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(k, n, device="cuda", dtype=dtype)
            c, again = (torch.full((m, n), float("nan"), device="cuda", dtype=dtype) for _ in range(2))
            prepared = [prepare(a, b, x, streamed=min(tiles, 200)) for x in (c, again)]
            for run in prepared * 3:  # flags are zeros again after each
                run()
            if k:
                _support.expect_close(c, a.double() @ b.double(), dtype)
            if not torch.equal(c, again):
                raise SystemExit(f"two runs of {(m, n, k)} differ")


if __name__ == "__main__":
    _support.main(gemm, check)
