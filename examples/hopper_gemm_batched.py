"""Batched GEMM on Hopper, C[i] = A[i] @ B[i] in 16-bit floats, by CTAs that walk over the tiles of all products.

With a short K storing a tile takes as long as some of its products, so that the tensor cores must not wait for it.  Two
consumers start their tiles one after the other: `turn` passes from one to the other, and while one stores, the other
multiplies.  There are two forms:

- Each has half of the rows of every tile and starts it LEAD blocks of K after the other.  Both read the same blocks of
  B, which is the least traffic.
- PINGPONG: each owns every second tile, and has the tensor cores for itself until it has issued its last dot.

python examples/hopper_gemm_batched.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _support
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


def as_matrix(buffer):
    """A buffer (1, rows, columns) as (rows, columns)."""
    return tlx.local_reshape(buffer, buffer.shape[1:])


def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Which product a tile is of, its row and its column.  The tiles of one product follow each other."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    product = tile // tiles
    row, column = tile_origin(tile - product * tiles, M, N, BM, BN, GROUP)
    return product, row, column


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 256)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 64)),
    BATCH: tl.int32,
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 256,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 4,
    GROUP: tl.constexpr = 8,
    BC: tl.constexpr = 64,
    LEAD: tl.constexpr = 3,
    PINGPONG: tl.constexpr = False,
    SHARED_B: tl.constexpr = False,
):
    """C (BATCH, M, N) = A (BATCH, M, K) @ B (BATCH, K, N), with SHARED_B B (1, K, N); blocks of the descriptors:
    (1, ROWS, BK), (1, BK, BN) and (1, ROWS, BC), where ROWS is BM with PINGPONG and else BM // 2."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    tl.static_assert(PINGPONG or 0 < LEAD < STAGES, "a consumer leads by at least a block, which is in a stage")
    tl.static_assert(BN // BC % 2 == 0, "a tile is stored in an even number of parts, since two buffers take turns")
    SHARES: tl.constexpr = 1 if PINGPONG else 2  # consumers of a tile
    ROWS: tl.constexpr = BM // SHARES
    dtype = tlx.dtype_of(a_desc)
    a = tlx.local_alloc((1, ROWS, BK), dtype, STAGES * SHARES)
    b = tlx.local_alloc((1, BK, BN), dtype, STAGES)
    c = tlx.local_alloc((1, ROWS, BC), dtype, 4)  # two per consumer, used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=SHARES)
    turn = tlx.alloc_barriers(2)
    first, stride = tl.program_id(0), tl.num_programs(0)
    tiles = BATCH * tl.cdiv(M, BM) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    BYTES: tl.constexpr = (BM * BK + BK * BN) * tlx.size_of(dtype)

    tlx.gdc_wait()  # the grid is launched while the one before it still ends
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = 0
            for tile in range(first, tiles, stride):
                product, row, column = place(tile, M, N, BM, BN, GROUP)
                of_b = 0 if SHARED_B else product
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    for i in tl.static_range(SHARES):
                        where = [product, row + i * ROWS, k * BK]
                        tlx.async_descriptor_load(a_desc, a[SHARES * stage + i], where, full[stage])
                    tlx.async_descriptor_load(b_desc, b[stage], [of_b, k * BK, column], full[stage])
                    count += 1

        with tlx.async_task(num_warps=4, num_regs=232, replicate=2):
            me = tlx.async_task_replica_id()
            part = 0 if PINGPONG else me  # of the rows of a tile
            own = me if PINGPONG else 0  # the first tile of this consumer among those of the CTA
            passing = steps - 1 if PINGPONG else min(LEAD, steps) - 1  # the trip that passes the turn
            passed = me ^ 1  # the parity of my turn; the first one of consumer 0 needs no one to pass it
            count = own * steps
            for tile in range(first + own * stride, tiles, (2 // SHARES) * stride):
                product, row, column = place(tile, M, N, BM, BN, GROUP)
                row += part * ROWS
                acc, last = tl.zeros((ROWS, BN), tl.float32), 0
                tlx.barrier_wait(turn[me], passed)
                passed ^= 1
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(as_matrix(a[SHARES * stage + part]), as_matrix(b[stage]), acc)
                    acc = tlx.async_dot_wait(1, acc)  # the dot before this one is done, so its stage is free
                    if k > 0:
                        tlx.barrier_arrive(empty[last])
                    tlx.barrier_arrive(turn[me ^ 1], pred=k == passing)
                    last = stage
                    count += 1
                tlx.barrier_arrive(turn[me ^ 1], pred=steps == 0)
                acc = tlx.async_dot_wait(0, acc)
                if steps > 0:
                    tlx.barrier_arrive(empty[last])
                if PINGPONG:
                    count += steps  # those of the other consumer's tile
                parts = column_parts(acc.to(dtype), BC)
                for i in tl.static_range(BN // BC):
                    out = c[2 * me + i % 2]
                    tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left its buffer
                    tlx.local_store(as_matrix(out), parts[i])
                    tlx.async_descriptor_store(c_desc, out, [product, row, column + i * BC])
            tlx.async_descriptor_store_wait(0)


def _example(**constants):
    batch, m, n, k = 3, 200, 512, 200
    (a,), (b,), (c,) = (_support.rows(1, batch, *shape) for shape in ((m, k), (k, n), (m, n)))
    tile = FORMS["halves"] | constants
    described = dict(zip(("a_desc", "b_desc", "c_desc"), descriptors(a, b, c, **tile)))
    return (2,), described | dict(BATCH=batch, M=m, N=n, K=k) | tile


@gemm.example
def example():
    """Two CTAs with six tiles each, of three products."""
    return _example()


@gemm.example
def pingpong():
    """The same by consumers that own whole tiles."""
    return _example(**FORMS["pingpong"])


# Constants of a form, its cycles on an H200 for 64 of K, and those of a tile that no products hide.
FORMS = {
    "halves": dict(BM=128, BN=256, STAGES=4, BC=64, PINGPONG=False),
    "pingpong": dict(BM=128, BN=128, STAGES=6, BC=32, PINGPONG=True),
    "small": dict(BM=64, BN=64, STAGES=10, BC=32, PINGPONG=True),
}
CYCLES = {"halves": (1024, 1900), "pingpong": (540, 300), "small": (250, 300)}


def choose(batch: int, m: int, n: int, k: int, sms: int) -> dict[str, int | bool]:
    """The form whose slowest SM is done first."""

    def cycles(form: str) -> int:
        per_block, exposed = CYCLES[form]
        tiles = batch * tlxc.cdiv(m, FORMS[form]["BM"]) * tlxc.cdiv(n, FORMS[form]["BN"])
        return tlxc.cdiv(tiles, sms) * (tlxc.cdiv(k, 64) * per_block + exposed)

    return FORMS[min(FORMS, key=cycles)]


def descriptors(a, b, c, BM, BN, BC, PINGPONG, BK=64, **_) -> list[tlxc.TensorDescriptor]:
    """Descriptors of (batch, rows, columns) in blocks of one product each.  Without a K, A and B have no elements to
    describe and nothing reads them: C stands in."""
    rows = BM if PINGPONG else BM // 2
    arrays = (a, b, c) if a.shape[2] else (c, c, c)
    blocks = ([1, rows, BK], [1, BK, BN], [1, rows, BC])
    return [tlxc.TensorDescriptor.from_tensor(x, block) for x, block in zip(arrays, blocks)]


def _folded(a, b, c):
    """The operands in three dimensions.  If all products share B, it has a batch of one, and so have A and C where
    their products lie one behind the other: then that is one product of more rows."""
    a, c = (x if x.ndim == 3 else x[None] for x in (a, c))
    if b.ndim == 3 and b.shape[0] > 1 and b.stride(0):
        return a, b, c
    b = b if b.ndim == 2 else b[0]
    if all(x.stride(0) == x.shape[1] * x.stride(1) for x in (a, c)):
        a, c = (x.as_strided((1, x.shape[0] * x.shape[1], x.shape[2]), (x.stride(0), x.stride(1), 1)) for x in (a, c))
    return a, b[None], c


def prepare(a, b, c, **constants) -> Callable[[], None]:
    """A function that computes c = a @ b for torch tensors of float16 or bfloat16: a (batch, M, K), c (batch, M, N), b
    (batch, K, N), or (K, N) or expanded from that where all products share it; a and c of one product may have two
    dimensions.  Rows are contiguous, their starts multiples of 16 bytes.  The tensor maps are made once."""
    a, b, c = _folded(a, b, c)
    (batch, m, k), n = a.shape, b.shape[2]
    sms = _support.sm_count(c.device)
    constants = choose(batch, m, n, k, sms) | constants
    blocks = descriptors(a, b, c, **constants)
    grid = (min(batch * tlxc.cdiv(m, constants["BM"]) * tlxc.cdiv(n, constants["BN"]), sms),)
    constants |= dict(SHARED_B=b.shape[0] < batch, launch_pdl=True)
    return partial(gemm[grid], *blocks, batch, m, n, k, **constants)


def launch(a, b, c, **constants) -> None:
    prepare(a, b, c, **constants)()


SHAPES = ((64, 1024, 1024, 1024), (3, 200, 328, 136), (5, 1, 8, 8), (2, 129, 264, 1032), (7, 64, 64, 64), (4, 64, 8, 0))


def _check_products(torch, a, b, **constants) -> None:
    c = torch.full((*a.shape[:-1], b.shape[-1]), float("nan"), device="cuda", dtype=a.dtype)
    launch(a, b, c, **constants)
    if a.shape[-1]:
        _support.expect_close(c, a.double() @ b.double(), a.dtype)
    elif c.any():
        raise SystemExit(f"wrong result for K = 0: C {tuple(c.shape)} is not zero")


def check(torch) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        random = partial(torch.randn, device="cuda", dtype=dtype)
        for batch, m, n, k in SHAPES:
            for form in FORMS.values():
                _check_products(torch, random(batch, m, k), random(batch, k, n), **form)
        many, one = random(6, 200, 136), random(136, 328)
        _check_products(torch, many, one)  # one product of 1200 rows
        _check_products(torch, many, one.expand(6, -1, -1))
        _check_products(torch, random(6, 256, 136)[:, :200], one)  # with rows between the products of A
        _check_products(torch, many.transpose(0, 1).contiguous().transpose(0, 1), random(6, 136, 328))
        _check_products(torch, many[0], one)


if __name__ == "__main__":
    _support.main(gemm, check)
