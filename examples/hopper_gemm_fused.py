"""GEMM on Hopper whose operands may lie either way round, C = A @ B in 16-bit floats.

A matrix and its transpose are the same bytes.  The kernel copies blocks as they lie in memory and looks at them the
other way round with `tlx.local_trans`; the matrix instruction reads both, so nothing is moved for it.

python examples/hopper_gemm_fused.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


def view(block, TRANSPOSED: tl.constexpr):
    """A block as the product reads it; no data moves."""
    return tlx.local_trans(block) if TRANSPOSED else block


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 256)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    A_TRANSPOSED: tl.constexpr = False,
    B_TRANSPOSED: tl.constexpr = False,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 256,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 4,
    GROUP: tl.constexpr = 8,
    BC: tl.constexpr = 64,
    CONSUMERS: tl.constexpr = 2,
):
    """C (M, N) = A (M, K) @ B (K, N); blocks of the descriptors: (ROWS, BK), (BK, BN) and (ROWS, BC), where ROWS =
    BM // CONSUMERS; of a transposed operand the other way round, as its descriptor is of the matrix that is stored."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    ROWS: tl.constexpr = BM // CONSUMERS
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((BK, ROWS) if A_TRANSPOSED else (ROWS, BK), dtype, STAGES * CONSUMERS)
    b = tlx.local_alloc((BN, BK) if B_TRANSPOSED else (BK, BN), dtype, STAGES)
    c = tlx.local_alloc((ROWS, BC), tlx.dtype_of(c_desc), 2 * CONSUMERS)  # two per consumer, used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    first, stride = tl.program_id(0), tl.num_programs(0)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    BYTES: tl.constexpr = (BM + BN) * BK * tlx.size_of(dtype)

    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = 0
            for tile in range(first, tiles, stride):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    for i in tl.static_range(CONSUMERS):
                        at = row + i * ROWS
                        where = [k * BK, at] if A_TRANSPOSED else [at, k * BK]
                        tlx.async_descriptor_load(a_desc, a[CONSUMERS * stage + i], where, full[stage])
                    where = [column, k * BK] if B_TRANSPOSED else [k * BK, column]
                    tlx.async_descriptor_load(b_desc, b[stage], where, full[stage])
                    count += 1

        with tlx.async_task(num_warps=4, num_regs=232, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            count = 0
            for tile in range(first, tiles, stride):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                row += me * ROWS
                acc = tl.zeros((ROWS, BN), tl.float32)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    left, right = view(a[CONSUMERS * stage + me], A_TRANSPOSED), view(b[stage], B_TRANSPOSED)
                    acc = tlx.async_dot_wait(1, tlx.async_dot(left, right, acc))  # the dot before is done
                    if k > 0:
                        tlx.barrier_arrive(empty[(count - 1) % STAGES])
                    count += 1
                acc = tlx.async_dot_wait(0, acc)
                if steps > 0:
                    tlx.barrier_arrive(empty[(count - 1) % STAGES])
                parts = column_parts(acc.to(dtype), BC)
                for i in tl.static_range(BN // BC):
                    out = c[2 * me + i % 2]
                    tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left its buffer
                    tlx.local_store(out, parts[i])
                    tlx.async_descriptor_store(c_desc, out, [row, column + i * BC])
            tlx.async_descriptor_store_wait(0)


def describe(a, b, c, A_TRANSPOSED=False, B_TRANSPOSED=False, BM=128, BN=256, BK=64, BC=64, CONSUMERS=2, **_):
    """Descriptors of the three matrices as they are stored.  Where K is 0, A and B have no elements to describe and
    nothing reads them: C stands in."""
    rows = BM // CONSUMERS
    a_block = [BK, rows] if A_TRANSPOSED else [rows, BK]
    b_block = [BN, BK] if B_TRANSPOSED else [BK, BN]
    matrices = (a, b, c) if a.shape[0] and a.shape[1] else (c, c, c)
    return [tlxc.TensorDescriptor.from_tensor(*pair) for pair in zip(matrices, (a_block, b_block, [rows, BC]))]


def _example(a_shape, b_shape, **flags):
    """Two CTAs with two tiles each."""
    a, b, c = (_support.rows(1, *shape)[0] for shape in (a_shape, b_shape, (256, 512)))
    described = dict(zip(("a_desc", "b_desc", "c_desc"), describe(a, b, c, **flags)))
    return (2,), described | dict(M=256, N=512, K=512) | flags


@gemm.example
def example():
    return _example((256, 512), (512, 512))


@gemm.example
def transposed():
    """Both operands transposed."""
    return _example((512, 256), (512, 512), A_TRANSPOSED=True, B_TRANSPOSED=True)


# Tiles (BM, BN, CONSUMERS, STAGES), and the cycles of an H200 for 64 of K: of the tensor core, or of loads where there
# is little to multiply.
TILES = {(128, 256, 2, 4): 1024, (128, 128, 2, 6): 560, (128, 64, 2, 8): 330, (64, 64, 1, 10): 220}  # fmt: skip
_TILE_CYCLES = 1500  # to fill the pipeline, and to store


def choose(m: int, n: int, k: int, sms: int) -> dict[str, int]:
    """The tiles whose slowest SM is done first."""

    def cycles(tile: tuple[int, int, int, int]) -> float:
        turns = tlxc.cdiv(tlxc.cdiv(m, tile[0]) * tlxc.cdiv(n, tile[1]), sms)
        return turns * (tlxc.cdiv(k, 64) * TILES[tile] + _TILE_CYCLES)

    return _named(min(TILES, key=cycles))


def _named(tile: tuple[int, int, int, int]) -> dict[str, int]:
    return dict(zip(("BM", "BN", "CONSUMERS", "STAGES"), tile))


def as_stored(name, x):
    """A matrix with contiguous rows that has the bytes of x, and whether it is the transpose of x."""
    if x.stride(1) == 1:
        return x, False
    if x.stride(0) == 1:
        return x.mT, True
    raise ValueError(
        f"The matrix {name} of shape {tuple(x.shape)} has strides {x.stride()}; one of them must be 1, so that rows or "
        "columns are contiguous. Pass a copy, as .contiguous() makes one."
    )


def prepare(a, b, c, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for 2-D torch tensors of float16 or bfloat16, of which rows or columns are
    contiguous; starts and the other stride are multiples of 16 bytes.  The tensor maps are made once."""
    c, swapped = as_stored("c", c)
    if swapped:  # C^T = B^T @ A^T
        a, b = b.mT, a.mT
    (m, k), n = a.shape, b.shape[1]
    (a, A_TRANSPOSED), (b, B_TRANSPOSED) = as_stored("a", a), as_stored("b", b)
    sms = _support.sm_count(c.device)
    constants = choose(m, n, k, sms) | dict(A_TRANSPOSED=A_TRANSPOSED, B_TRANSPOSED=B_TRANSPOSED) | constants
    tiles = tlxc.cdiv(m, constants["BM"]) * tlxc.cdiv(n, constants["BN"])
    return partial(gemm[(min(tiles, sms),)], *describe(a, b, c, **constants), m, n, k, **constants)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


def check(torch) -> None:
    for tile in TILES:
        _gemm.check(torch, launch, **_named(tile))

    whole = [shape for shape in _gemm.SHAPES if shape[0] % 8 == 0]  # columns of A and C are rows of TMA
    for bits in range(1, 8):
        _gemm.check(torch, partial(_launch_stored, [bits >> i & 1 for i in range(3)]), whole)


def _launch_stored(transposed, a, b, c) -> None:
    """`launch` on the same matrices, those stored by columns that `transposed` says."""
    a, b, out = (x.mT.contiguous().mT if t else x for x, t in zip((a, b, c), transposed))
    launch(a, b, out)
    c.copy_(out)


if __name__ == "__main__":
    _support.main(gemm, check)
