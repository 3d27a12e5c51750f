"""GEMM on Hopper that does what follows a product: C = act(alpha * A @ B + bias) + residual, in 16-bit floats.

A matrix and its transpose are the same bytes.  The kernel copies blocks as they lie in memory and looks at them the
other way round with `tlx.local_trans`; the matrix instruction reads both, so nothing is moved for it.

While consumers multiply, the producer loads what they need at the end of a tile: the bias, and the residual, into the
buffers that C leaves from.  With TURNS, each consumer has tiles of its own, and one works on what follows its product
while the other multiplies.  What is not asked for costs nothing: it is decided while compiling.

python examples/hopper_gemm_fused.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _gemm
import _support
from _activations import activate
from _gemm import column_parts, tile_origin

import tlxc
from tlxc import tl, tlx


def view(block, TRANSPOSED: tl.constexpr):
    """A block as the product reads it; no data moves."""
    return tlx.local_trans(block) if TRANSPOSED else block


def hand_over(barrier):
    """Tells the producer that bias and residual of the tile before have been read, and its C as well."""
    tlx.async_descriptor_store_wait(0, read=True)
    tlx.barrier_arrive(barrier)


@tlxc.kernel(num_warps=4)
def gemm(
    a_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    b_desc: tlx.tensor_descriptor_type(tl.float16, (64, 256)),
    c_desc: tlx.tensor_descriptor_type(tl.float16, (64, 64)),
    M: tl.int32,
    N: tl.int32,
    K: tl.int32,
    bias_desc=None,
    residual_desc=None,
    alpha=None,
    ACTIVATION: tl.constexpr = "",
    A_TRANSPOSED: tl.constexpr = False,
    B_TRANSPOSED: tl.constexpr = False,
    BM: tl.constexpr = 128,
    BN: tl.constexpr = 256,
    BK: tl.constexpr = 64,
    STAGES: tl.constexpr = 4,
    GROUP: tl.constexpr = 8,
    BC: tl.constexpr = 64,
    CONSUMERS: tl.constexpr = 2,
    TURNS: tl.constexpr = False,
):
    """C (M, N) = act(alpha * A (M, K) @ B (K, N) + bias (N,)) + residual (M, N); blocks of the descriptors: (ROWS, BK),
    (BK, BN), (ROWS, BC), (BN,) and (ROWS, BC), where ROWS = BM // SHARES; of a transposed operand the other way round,
    as its descriptor is of the matrix that is stored."""
    tl.static_assert(STAGES >= 2, "a stage is free only when the next dot runs, so STAGES is at least 2")
    tl.static_assert(CONSUMERS == 2 or not TURNS, "two consumers take turns")
    SHARES: tl.constexpr = 1 if TURNS else CONSUMERS  # consumers that share a tile
    OWNERS: tl.constexpr = CONSUMERS // SHARES  # tiles that are under way
    ROWS: tl.constexpr = BM // SHARES
    PARTS: tl.constexpr = BN // BC
    BUFFERS: tl.constexpr = 2 if residual_desc is None else PARTS
    dtype, out_dtype = tlx.dtype_of(a_desc), tlx.dtype_of(c_desc)
    a = tlx.local_alloc((BK, ROWS) if A_TRANSPOSED else (ROWS, BK), dtype, STAGES * SHARES)
    b = tlx.local_alloc((BN, BK) if B_TRANSPOSED else (BK, BN), dtype, STAGES)
    c = tlx.local_alloc((ROWS, BC), out_dtype, BUFFERS * CONSUMERS)  # those of a consumer are used in turn
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=SHARES)
    turns = tlx.alloc_barriers(2) if TURNS else None
    BYTES: tl.constexpr = (BM + BN) * BK * tlx.size_of(dtype)
    EXTRAS: tl.constexpr = bias_desc is not None or residual_desc is not None
    extra_bytes = 0
    if EXTRAS:
        ready = tlx.alloc_barriers(OWNERS)  # bias and residual have come
        read = tlx.alloc_barriers(OWNERS, arrive_count=SHARES)  # and have been read
    if bias_desc is not None:
        bias = tlx.local_alloc((BN,), tlx.dtype_of(bias_desc), OWNERS)
        extra_bytes += BN * tlx.size_of(tlx.dtype_of(bias_desc))
    if residual_desc is not None:
        extra_bytes += BM * BN * tlx.size_of(out_dtype)
    first, stride = tl.program_id(0), tl.num_programs(0)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)

    tlx.gdc_wait()  # the grid is launched while the one before it still ends
    tlx.gdc_launch_dependents()
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=40):
            count = taken = 0
            for tile in range(first, tiles, stride):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                who, parity = tlx.get_bufidx_phase(taken, OWNERS)
                ahead = min(steps, STAGES)  # what the stages hold; then there is time for the rest
                pieces = ((0, ahead), (ahead, steps)) if EXTRAS else ((0, steps),)
                for piece in tl.static_range(len(pieces)):
                    for k in range(pieces[piece][0], pieces[piece][1]):
                        stage, phase = tlx.get_bufidx_phase(count, STAGES)
                        tlx.barrier_wait(empty[stage], phase ^ 1)
                        tlx.barrier_expect_bytes(full[stage], BYTES)
                        for i in tl.static_range(SHARES):
                            at = row + i * ROWS
                            where = [k * BK, at] if A_TRANSPOSED else [at, k * BK]
                            tlx.async_descriptor_load(a_desc, a[SHARES * stage + i], where, full[stage])
                        where = [column, k * BK] if B_TRANSPOSED else [k * BK, column]
                        tlx.async_descriptor_load(b_desc, b[stage], where, full[stage])
                        count += 1
                    if EXTRAS and piece == 0:
                        tlx.barrier_wait(read[who], parity)
                        tlx.barrier_expect_bytes(ready[who], extra_bytes)
                        if bias_desc is not None:
                            tlx.async_descriptor_load(bias_desc, bias[who], [column], ready[who])
                        if residual_desc is not None:
                            for i in tl.static_range(SHARES * PARTS):
                                where = [row + i // PARTS * ROWS, column + i % PARTS * BC]
                                tlx.async_descriptor_load(residual_desc, c[PARTS * who + i], where, ready[who])
                taken = taken + 1

        with tlx.async_task(num_warps=4, num_regs=232, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            who, share = (me, 0) if TURNS else (0, me)
            count, parity = who * steps, 0
            passed = who ^ 1  # the parity of my turn; the first one of consumer 0 needs no one to pass it
            for tile in range(first + who * stride, tiles, OWNERS * stride):
                row, column = tile_origin(tile, M, N, BM, BN, GROUP)
                row += share * ROWS
                acc, last = tl.zeros((ROWS, BN), tl.float32), 0
                if TURNS:
                    tlx.barrier_wait(turns[me], passed)
                for k in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    left, right = view(a[SHARES * stage + share], A_TRANSPOSED), view(b[stage], B_TRANSPOSED)
                    acc = tlx.async_dot_wait(1, tlx.async_dot(left, right, acc))  # the dot before is done
                    if k > 0:
                        tlx.barrier_arrive(empty[last])
                    elif EXTRAS:
                        hand_over(read[who])
                    last = stage
                    count += 1
                if TURNS:
                    tlx.barrier_arrive(turns[me ^ 1])
                    passed ^= 1
                acc = tlx.async_dot_wait(0, acc)
                if steps > 0:
                    tlx.barrier_arrive(empty[last])
                elif EXTRAS:
                    hand_over(read[who])
                count += (OWNERS - 1) * steps  # those of the other consumer's tile
                if EXTRAS:
                    tlx.barrier_wait(ready[who], parity)
                    parity ^= 1
                parts = column_parts(acc, BC)
                for i in tl.static_range(PARTS):
                    x, out = parts[i], c[BUFFERS * me + i % BUFFERS]
                    if alpha is not None:
                        x *= alpha
                    if bias_desc is not None:
                        x += tlx.local_load(tlx.local_slice(bias[who], (i * BC,), (BC,)))[None, :]
                    x = activate(x, ACTIVATION)
                    if residual_desc is not None:
                        x += tlx.local_load(out)
                    else:
                        tlx.async_descriptor_store_wait(1, read=True)  # the store before the last one has left
                    tlx.local_store(out, x.to(out_dtype))
                    tlx.async_descriptor_store(c_desc, out, [row, column + i * BC])
            tlx.async_descriptor_store_wait(0)


def describe(a, b, c, bias=None, residual=None, A_TRANSPOSED=False, B_TRANSPOSED=False, BM=128, BN=256, BK=64, BC=64,
             CONSUMERS=2, TURNS=False, **_):  # fmt: skip
    """The descriptors that the kernel takes, by name, of matrices as they are stored."""
    rows = BM if TURNS else BM // CONSUMERS
    blocks = {
        "a_desc": (a, [BK, rows] if A_TRANSPOSED else [rows, BK]),
        "b_desc": (b, [BN, BK] if B_TRANSPOSED else [BK, BN]),
        "c_desc": (c, [rows, BC]),
        "bias_desc": (bias, [BN]),
        "residual_desc": (residual, [rows, BC]),
    }
    return {name: tlxc.TensorDescriptor.from_tensor(*pair) for name, pair in blocks.items() if pair[0] is not None}


def _example(a_shape, b_shape, extras=(), **constants):
    """Two CTAs with two tiles each."""
    a, b, c, *more = (_support.rows(1, *shape)[0] for shape in (a_shape, b_shape, (256, 512), *extras))
    return (2,), describe(a, b, c, *more, **constants) | dict(M=256, N=512, K=512) | constants


@gemm.example
def example():
    return _example((256, 512), (512, 512))


@gemm.example
def transposed():
    """Both operands transposed."""
    return _example((512, 256), (512, 512), A_TRANSPOSED=True, B_TRANSPOSED=True)


@gemm.example
def fused():
    """All that may follow a product."""
    return _example((256, 512), (512, 512), ((512,), (256, 512)), alpha=0.5, ACTIVATION="silu", STAGES=3)


@gemm.example
def turns():
    """The same, of consumers that take turns."""
    options = dict(alpha=0.5, ACTIVATION="silu", BN=128, TURNS=True)
    return _example((256, 512), (512, 512), ((512,), (256, 512)), **options)


# Tiles (BM, BN, CONSUMERS, TURNS), and the cycles of an H200 for 64 of K: of the tensor core, or of loads where there
# is little to multiply.  Those of 192 columns and of TURNS, and the constants below but the first, are estimates.
TILES = {(128, 256, 2, False): 1024, (128, 192, 2, False): 800, (128, 128, 2, False): 560, (128, 128, 2, True): 560,
         (128, 64, 2, False): 330, (64, 64, 1, False): 220}  # fmt: skip
_TILE_CYCLES = 1500  # to fill the pipeline, and to store
_ACTIVATION_CYCLES = 3000  # of 128 x 256 elements: 12 instructions for each, of two warps on a scheduler
_TURN_CYCLES = 300  # what is left of both where the other consumer multiplies
_SHARED = 226 * 1024  # bytes of a CTA, without barriers
_STORED = 128  # bytes of C that are stored at once of a row: a swizzle's


def stages(BM, BN, TURNS, c, bias, residual, BK=64) -> int:
    """How many there is room for, beside the bias and the buffers of C, which hold a whole tile of a residual."""
    used = BM * (2 * _STORED if residual is None else BN * c.element_size())
    used += 0 if bias is None else BN * bias.element_size()
    return (_SHARED - (1 + TURNS) * used) // (2 * (BM + BN) * BK)


def choose(m: int, n: int, k: int, sms: int, activation: str, *extras) -> dict[str, int]:
    """The tiles whose slowest SM is done first, of those that have three stages at least."""

    def cycles(tile: tuple[int, int, int, bool]) -> float:
        BM, BN, _, turns = tile
        per_sm = tlxc.cdiv(tlxc.cdiv(m, BM) * tlxc.cdiv(n, BN), sms)
        rest = _TILE_CYCLES + (_ACTIVATION_CYCLES * BM * BN / (128 * 256) if activation else 0)
        if not turns:
            return per_sm * (tlxc.cdiv(k, 64) * TILES[tile] + rest)
        return per_sm * max(tlxc.cdiv(k, 64) * TILES[tile] + _TURN_CYCLES, rest) + rest  # nothing hides the last one

    return _named(min((tile for tile in TILES if stages(*tile[:2], tile[3], *extras) >= 3), key=cycles))


def _named(tile: tuple[int, int, int, bool]) -> dict[str, int]:
    return dict(zip(("BM", "BN", "CONSUMERS", "TURNS"), tile))


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


def _check(a, b, c, bias, residual) -> None:
    shapes = tuple(map(tuple, (a.shape, b.shape, c.shape)))
    if c.dim() != 2 or shapes[0][1:] != shapes[1][:1] or shapes[2] != shapes[0][:1] + shapes[1][1:]:
        raise ValueError(
            f"Tensors of shapes {shapes[0]}, {shapes[1]} and {shapes[2]} are no a, b and c of a product, which are "
            "(M, K), (K, N) and (M, N)."
        )
    layout = f"c of shape {shapes[2]}, strides {c.stride()} and {c.dtype}"
    if bias is not None and (bias.shape != c.shape[1:] or bias.stride(0) != 1 or c.stride(1) != 1):
        raise ValueError(
            f"A bias of shape {tuple(bias.shape)} and strides {bias.stride()} does not go with {layout}; it has one "
            "element for each column, one after the other, and the rows of c are contiguous."
        )
    contiguous = 1 if c.stride(1) == 1 else 0
    if residual is not None and (residual.shape, residual.dtype, residual.stride(contiguous)) != (c.shape, c.dtype, 1):
        raise ValueError(
            f"A residual of shape {tuple(residual.shape)}, strides {residual.stride()} and {residual.dtype} does not "
            f"go with {layout}; shape and dtype must be the same, and dimension {contiguous} contiguous."
        )


def prepare(a, b, c, bias=None, residual=None, alpha=None, activation="", **constants) -> Callable[[], None]:
    """A function that computes c = activation(alpha * a @ b + bias) + residual for torch tensors.  a, b: float16 or
    bfloat16; c and the residual: these or float32.  Of matrices rows or columns are contiguous; starts and the other
    stride are multiples of 16 bytes.  activation: "", "relu", "silu", "gelu" or "gelu_tanh".  The tensor maps are made
    once."""
    _check(a, b, c, bias, residual)
    stored, by_columns = as_stored("c", c)
    if by_columns:  # C^T = B^T @ A^T
        a, b, residual = b.mT, a.mT, None if residual is None else residual.mT
    (m, k), n = a.shape, b.shape[1]
    (a, A_TRANSPOSED), (b, B_TRANSPOSED) = as_stored("a", a), as_stored("b", b)
    if k == 0:  # there are no elements to describe, and nothing reads these
        a = b = a.new_empty(8, 8)
    sms, extras = _support.sm_count(c.device), (stored, bias, residual)
    options = dict(TURNS=False) if "BM" in constants else choose(m, n, k, sms, activation, *extras)
    options |= dict(A_TRANSPOSED=A_TRANSPOSED, B_TRANSPOSED=B_TRANSPOSED, ACTIVATION=activation)
    options |= dict(BC=_STORED // c.element_size()) | constants
    options.setdefault("STAGES", stages(options["BM"], options["BN"], options["TURNS"], *extras))
    tiles = tlxc.cdiv(m, options["BM"]) * tlxc.cdiv(n, options["BN"])
    described = describe(a, b, *extras, **options)
    return partial(gemm[(min(tiles, sms),)], **described, M=m, N=n, K=k, alpha=alpha, **options, launch_pdl=True)


def launch(a, b, c, **options) -> None:
    prepare(a, b, c, **options)()


def check(torch) -> None:
    for tile in TILES:
        _gemm.check(torch, launch, **_named(tile))
    whole = [shape for shape in _gemm.SHAPES if shape[0] % 8 == 0]  # columns of A and C are rows of TMA
    for bits in range(1, 8):
        _gemm.check(torch, partial(_launch_stored, [bits >> i & 1 for i in range(3)]), whole)
    for activation, dtype in zip(
        ("", "relu", "silu", "gelu", "gelu_tanh"),
        (torch.float32, torch.bfloat16, torch.float16, torch.bfloat16, torch.float16),
    ):
        _check_fused(torch, activation, dtype)
        _check_fused(torch, activation, dtype, BM=128, BN=128, TURNS=True)


def _launch_stored(by_columns, a, b, c) -> None:
    """`launch` on the same matrices, those stored by columns that `by_columns` says."""
    a, b, out = (x.mT.contiguous().mT if t else x for x, t in zip((a, b, c), by_columns))
    launch(a, b, out)
    c.copy_(out)


def reference(torch, a, b, bias=None, residual=None, alpha=1.0, activation=""):
    """In float64."""
    functional = torch.nn.functional
    named = {"": lambda x: x, "gelu_tanh": partial(functional.gelu, approximate="tanh")}
    x = alpha * (a.double() @ b.double()) + (0 if bias is None else bias.double())
    x = named.get(activation, getattr(functional, activation, None))(x)
    return x if residual is None else x + residual.double()


def _check_fused(torch, activation, dtype, **constants) -> None:
    operands = torch.float16 if dtype is torch.float32 else dtype
    for m, n, k in ((1024, 1024, 512), (200, 328, 136), (1, 8, 8), (64, 8, 0)):
        a, b, c, bias, residual = (
            torch.randn(shape, device="cuda", dtype=t)
            for shape, t in (((m, k), operands), ((k, n), operands), ((m, n), dtype), ((n,), dtype), ((m, n), dtype))
        )
        for extras in ({"bias": bias}, {"residual": residual}, {"bias": bias.float(), "residual": residual}):
            options = dict(alpha=max(k, 1) ** -0.5, activation=activation, **extras)
            launch(a, b, c, **options, **constants)
            _support.expect_close(c, reference(torch, a, b, **options), operands)


if __name__ == "__main__":
    _support.main(gemm, check)
