"""Matrix multiplies: mma.sync and wgmma over shapes, warps, operand orders, loops and what becomes of the result.

Operands are small integers, so that every sum is exact whatever the order; one family draws real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlxc
from tlxc import tl
from tlxc.ir.types import DType, bfloat16, float16, float32

from .support import WARPS, Array, Case, Cell, In, Launch, Out, cells, exact, near, numbers, plain, small_integers

Extents = tuple[int, int, int]  # M, N, K


# ------------------------------------------------------------------------------------------------------------- kernels
def offsets_2d(rows, columns):
    return tl.arange(0, rows)[:, None] * columns + tl.arange(0, columns)[None, :]


@tlxc.kernel
def dot_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A_T: tl.constexpr, B_T: tl.constexpr):
    """One product; an operand that is stored transposed is transposed in registers."""
    x = tl.trans(tl.load(a + offsets_2d(K, M))) if A_T else tl.load(a + offsets_2d(M, K))
    y = tl.trans(tl.load(b + offsets_2d(N, K))) if B_T else tl.load(b + offsets_2d(K, N))
    tl.store(out + offsets_2d(M, N), tl.dot(x, y))


@tlxc.kernel
def strided_dot_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Operands read with the unit stride along M and along K."""
    x = tl.load(a + tl.arange(0, K)[None, :] * M + tl.arange(0, M)[:, None])
    y = tl.load(b + tl.arange(0, N)[None, :] * K + tl.arange(0, K)[:, None])
    tl.store(out + offsets_2d(M, N), tl.dot(x, y))


@tlxc.kernel
def matmul_kernel(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, INTO: tl.constexpr):
    """The K loop of a GEMM over matrices that no tile divides."""
    rm = tl.program_id(0) * M + tl.arange(0, M)
    rn = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        rk = start + tl.arange(0, K)
        x = tl.load(a + rm[:, None] * k + rk[None, :], mask=(rm[:, None] < m) & (rk[None, :] < k), other=0.0)
        y = tl.load(b + rk[:, None] * n + rn[None, :], mask=(rk[:, None] < k) & (rn[None, :] < n), other=0.0)
        acc = tl.dot(x, y, acc)
    inside = (rm[:, None] < m) & (rn[None, :] < n)
    tl.store(out + rm[:, None] * n + rn[None, :], acc.to(INTO), mask=inside)


@tlxc.kernel
def accumulator_kernel(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A loaded accumulator, a second product on top, a scaled and biased result, stored transposed."""
    x, y = tl.load(a + offsets_2d(M, K)), tl.load(b + offsets_2d(K, N))
    acc = tl.dot(x, y, tl.load(c + offsets_2d(M, N)))
    acc = tl.dot(x + x, y, acc)
    tl.store(out + offsets_2d(N, M), tl.trans(acc * 2.0 + 1.0))


@tlxc.kernel
def chained_kernel(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """(a @ b) @ c: the first result becomes an operand."""
    x, y = tl.load(a + offsets_2d(M, K)), tl.load(b + offsets_2d(K, N))
    inner = tl.dot(x, y).to(x.dtype)
    tl.store(out + offsets_2d(M, N), tl.dot(inner, tl.load(c + offsets_2d(N, N))))


@tlxc.kernel
def reduced_kernel(a, b, best, sums, total, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Row maxima, column sums and the sum of all of a product; the maxima meet it again."""
    acc = tl.dot(tl.load(a + offsets_2d(M, K)), tl.load(b + offsets_2d(K, N)))
    highest = tl.max(acc, 1)
    tl.store(best + tl.arange(0, M), highest)
    tl.store(sums + tl.arange(0, N), tl.sum(acc - highest[:, None], 0))
    tl.store(total, tl.sum(acc))


@tlxc.kernel
def attention_kernel(q, k, v, out, steps, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Two products per trip with running row statistics between them."""
    x = tl.load(q + offsets_2d(M, D))
    acc = tl.zeros((M, D), tl.float32)
    best = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    for i in range(steps):
        scores = tl.dot(x, tl.trans(tl.load(k + i * N * D + offsets_2d(N, D))))
        higher = tl.maximum(best, tl.max(scores, 1))
        powers = tl.exp2(scores - higher[:, None])
        scale = tl.exp2(best - higher)
        total = total * scale + tl.sum(powers, 1)
        acc = tl.dot(powers.to(x.dtype), tl.load(v + i * N * D + offsets_2d(N, D)), acc * scale[:, None])
        best = higher
    tl.store(out + offsets_2d(M, D), acc / total[:, None])


@tlxc.kernel
def branched_dot_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A product under a branch on the program."""
    pid = tl.program_id(0)
    acc = tl.full((M, N), 7.0, tl.float32)
    if pid != 1:
        acc = tl.dot(tl.load(a + pid * M * K + offsets_2d(M, K)), tl.load(b + offsets_2d(K, N)), acc)
    tl.store(out + pid * M * N + offsets_2d(M, N), acc)


# ----------------------------------------------------------------------------------------------------------- references
def _matrix(rng: np.random.Generator, dtype: DType, *shape: int, high: int = 3) -> Array:
    return small_integers(rng, dtype, int(np.prod(shape)), high).reshape(shape)


def _name(family: str, dtype: DType, extents: Extents, warps: int) -> str:
    return f"{family}-{dtype}-{'x'.join(map(str, extents))}-w{warps}"


def _sizes(extents: Extents) -> dict[str, int]:
    return dict(zip("MNK", extents))


def _product(*factors: Array) -> Array:
    out = plain(factors[0])
    for f in factors[1:]:
        out = out @ plain(f)
    return out


def _listed(dtype: DType, extents: Extents = (0, 0, 0), warps: int = 1) -> frozenset[Cell]:
    """With the extents: whether wgmma takes them, which reads shared memory behind a fence."""
    wgmma = warps >= 4 and extents[0] % (16 * warps) == 0
    return cells("dot", dtype.short) | (cells("fence_async_shared barrier", "-") if wgmma else frozenset())


def _dot_case(dtype: DType, extents: Extents, warps: int, a_t: bool = False, b_t: bool = False) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n)
        stored = {"a": In(np.ascontiguousarray(x.T) if a_t else x), "b": In(np.ascontiguousarray(y.T) if b_t else y)}
        args = {**stored, "out": Out((m, n), float32), **_sizes(extents), "A_T": a_t, "B_T": b_t}
        return Launch((1,), args, {"out": exact(_product(x, y), signed_zero=False)})

    family = f"dot{'-at' if a_t else ''}{'-bt' if b_t else ''}"
    return Case(
        _name(family, dtype, extents, warps), dot_kernel, make, warps, _listed(dtype, extents, warps), amd=False
    )


def _strided_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, k, m), _matrix(rng, dtype, n, k)
        args = {"a": In(x), "b": In(y), "out": Out((m, n), float32), **_sizes(extents)}
        return Launch((1,), args, {"out": exact(_product(x.T, y.T), signed_zero=False)})

    return Case(_name("dot-strided", dtype, extents, warps), strided_dot_kernel, make, warps, _listed(dtype), amd=False)


def _matmul_case(
    dtype: DType, extents: Extents, warps: int, size: Extents, into: DType = float32, real: bool = False
) -> Case:
    """`size`: of the matrices; the GPU takes three times as many rows and columns."""

    def make(rng: np.random.Generator, big: bool) -> Launch:
        m, n, k = (3 * size[0] + 1, 3 * size[1] + 5, size[2]) if big else size
        if real:
            x, y = (numbers(rng, dtype, p * q).reshape(p, q) for p, q in ((m, k), (k, n)))
        else:
            x, y = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n)
        # Products are exact; every addition may be rounded, or cut, to 24 bits.
        error = (np.abs(plain(x)) @ np.abs(plain(y))) * (k + 16) * 2.0**-23 if real else 0.0
        args = {
            "a": In(x),
            "b": In(y),
            "out": Out((m, n), into),
            "m": m,
            "n": n,
            "k": k,
            **_sizes(extents),
            "INTO": into,
        }
        grid = (-(-m // extents[0]), -(-n // extents[1]))
        expect = near(_product(x, y), error) if real else exact(_product(x, y), signed_zero=False)
        return Launch(grid, args, {"out": expect})

    family = f"matmul{'-real' if real else ''}-{'x'.join(map(str, size))}-{into}"
    return Case(_name(family, dtype, extents, warps), matmul_kernel, make, warps, _listed(dtype), amd=False)


def _accumulator_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y, z = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n), _matrix(rng, float32, m, n)
        args = {"a": In(x), "b": In(y), "c": In(z), "out": Out((n, m), float32), **_sizes(extents)}
        expect = (plain(z) + 3 * _product(x, y)).T * 2 + 1
        return Launch((1,), args, {"out": exact(expect, signed_zero=False)})

    return Case(_name("accumulator", dtype, extents, warps), accumulator_kernel, make, warps, _listed(dtype), amd=False)


def _chained_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        # Sparse operands keep the inner result exact in bf16.
        x = _matrix(rng, dtype, m, k, high=1) * (rng.random((m, k)) < 0.3)
        y, z = _matrix(rng, dtype, k, n, high=1), _matrix(rng, dtype, n, n)
        x = x.astype(y.dtype)
        args = {"a": In(x), "b": In(y), "c": In(z), "out": Out((m, n), float32), **_sizes(extents)}
        return Launch((1,), args, {"out": exact(_product(x, y, z), signed_zero=False)})

    return Case(_name("chained", dtype, extents, warps), chained_kernel, make, warps, _listed(dtype), amd=False)


def _reduced_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, m, k), _matrix(rng, dtype, k, n)
        product = _product(x, y)
        best = product.max(1)
        args = {
            "a": In(x),
            "b": In(y),
            "best": Out(m, float32),
            "sums": Out(n, float32),
            "total": Out((), float32),
            **_sizes(extents),
        }
        expect = {"best": best, "sums": (product - best[:, None]).sum(0), "total": product.sum()}
        return Launch((1,), args, {name: exact(v, signed_zero=False) for name, v in expect.items()})

    return Case(_name("reduced", dtype, extents, warps), reduced_kernel, make, warps, _listed(dtype), amd=False)


def _attention_case(dtype: DType, rows: int, columns: int, width: int, steps: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        q = (_matrix(rng, dtype, rows, width, high=1)).astype(np.float32) / 4
        q = q.astype(_matrix(rng, dtype, 1, 1).dtype)
        k, v = (_matrix(rng, dtype, steps, columns, width, high=2) for _ in range(2))
        scores = plain(q) @ plain(k).reshape(-1, width).T
        weights = np.exp2(scores - scores.max(1, keepdims=True))
        y = (weights @ plain(v).reshape(-1, width)) / weights.sum(1, keepdims=True)
        bits = 2.0**-11 if dtype is float16 else 2.0**-8  # of the powers, rounded to the operand dtype
        args = {
            "q": In(q),
            "k": In(k),
            "v": In(v),
            "out": Out((rows, width), float32),
            "steps": steps,
            "M": rows,
            "N": columns,
            "D": width,
        }
        return Launch((1,), args, {"out": near(y, 4 * bits)})

    return Case(
        f"attention-{dtype}-{rows}x{columns}x{width}-{steps}-w{warps}",
        attention_kernel,
        make,
        warps,
        _listed(dtype),
        amd=False,
    )


def _branched_case(dtype: DType, extents: Extents, warps: int) -> Case:
    m, n, k = extents

    def make(rng: np.random.Generator, big: bool) -> Launch:
        x, y = _matrix(rng, dtype, 3, m, k), _matrix(rng, dtype, k, n)
        expect = plain(x) @ plain(y) + 7
        expect[1] = 7
        args = {"a": In(x), "b": In(y), "out": Out((3, m, n), float32), **_sizes(extents)}
        return Launch((3,), args, {"out": exact(expect)})

    return Case(
        _name("dot-under-if", dtype, extents, warps), branched_dot_kernel, make, warps, _listed(dtype), amd=False
    )


# ----------------------------------------------------------------------------------------------------------------- list
# (M, N, K), warps: mma.sync where warps are few or M is small, wgmma else
_SHAPES: tuple[tuple[Extents, tuple[int, ...]], ...] = (
    ((16, 8, 16), (1, 2, 4, 8)), ((16, 16, 32), (1, 4)), ((32, 24, 16), (1, 2)), ((16, 80, 32), (1, 2, 4)),
    ((48, 16, 16), (1, 4)), ((64, 64, 32), (1, 2, 4, 8)), ((32, 96, 64), (2, 4, 8)), ((128, 64, 32), (2, 4, 8)),
    ((64, 8, 16), (4,)), ((64, 80, 32), (4,)), ((64, 96, 16), (4,)), ((128, 80, 16), (4, 8)), ((128, 128, 64), (4, 8)),
    ((192, 64, 16), (4,)), ((128, 256, 64), (4, 8)), ((256, 128, 32), (8,)), ((64, 256, 128), (4,)),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for extents, all_warps in _SHAPES:
        for warps in all_warps:
            yield from (_dot_case(dtype, extents, warps) for dtype in (float16, bfloat16))
    for dtype in (float16, bfloat16):
        for extents, warps in (((32, 16, 32), 1), ((64, 32, 32), 2), ((64, 64, 64), 4), ((128, 32, 16), 8)):
            for a_t, b_t in ((True, False), (False, True), (True, True)):
                yield _dot_case(dtype, extents, warps, a_t, b_t)
            yield _strided_case(dtype, extents, warps)
            yield _accumulator_case(dtype, extents, warps)
            yield _chained_case(dtype, extents, warps)
            yield _reduced_case(dtype, extents, warps)
            yield _branched_case(dtype, extents, warps)
    yield from _loop_cases()


def _loop_cases() -> Iterator[Case]:
    for warps in WARPS:
        yield _matmul_case(float16, (64, 32, 32), warps, (70, 40, 100))
        yield _matmul_case(bfloat16, (32, 64, 16), warps, (40, 70, 33), bfloat16)
    for k in (0, 1, 16, 64):
        yield _matmul_case(float16, (64, 64, 32), 4, (50, 60, k))
    yield _matmul_case(float16, (64, 80, 32), 4, (64, 100, 64))
    yield _matmul_case(bfloat16, (128, 96, 64), 8, (130, 90, 130))
    yield _matmul_case(float16, (128, 128, 64), 4, (130, 120, 200), float16)
    for dtype in (float16, bfloat16):
        yield _matmul_case(dtype, (64, 64, 32), 4, (64, 64, 128), real=True)
        yield _matmul_case(dtype, (32, 32, 32), 1, (32, 32, 128), real=True)
        yield _attention_case(dtype, 64, 32, 64, 3, 4)
        yield _attention_case(dtype, 32, 16, 32, 2, 2)
    yield _reduced_case(float16, (64, 80, 16), 4)
    yield _reduced_case(float16, (16, 80, 16), 1)
    yield _attention_case(float16, 128, 64, 32, 2, 8)
