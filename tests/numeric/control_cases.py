"""Loops, branches and early returns with carried tiles, scalars and pointers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tlxc
from tlxc import tl, tlx
from tlxc.ir.types import DTYPES, DType, bfloat16, float16, float32, int8, int32, int64, uint8

from .support import (
    WARPS,
    Case,
    In,
    Launch,
    Out,
    cells,
    exact,
    plain,
    small_integers,
    storage,
    to_storage,
    values,
)

BLOCK = 128


# ------------------------------------------------------------------------------------------------------------- kernels
@tlxc.kernel
def accumulate_kernel(x, out, steps, BLOCK: tl.constexpr):
    """A tile and a pointer carried; zero trips leave the initial values."""
    offsets = tl.arange(0, BLOCK)
    pointers = x + offsets
    total = tl.load(pointers)
    for _ in range(steps):
        pointers += BLOCK
        total = total + tl.load(pointers)
    tl.store(out + offsets, total)


@tlxc.kernel
def last_kernel(x, out, steps, BLOCK: tl.constexpr):
    """The tile of the last trip, of any dtype."""
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + offsets)
    for i in range(1, steps):
        tile = tl.load(x + i * BLOCK + offsets)
    tl.store(out + offsets, tile)


@tlxc.kernel
def bounds_kernel(out, start, stop, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """Trips, sum of the induction value modulo 2**32, and its last value."""
    trips = 0
    total = 0
    last = start - start - 77
    for i in range(start, stop, STEP):
        trips += 1
        total += i.to(tl.int32)
        last = i
    tl.store(out, trips)
    tl.store(out + 1, total)
    tl.store(out + 2, last)


@tlxc.kernel
def nested_kernel(x, out, rows, BLOCK: tl.constexpr):
    """A triangular nest: the inner bound is the outer index."""
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    count = 0
    for i in range(rows):
        row = tl.zeros((BLOCK,), tl.float32)
        for j in range(i):
            row += tl.load(x + j * BLOCK + offsets)
            count += 1
        total += row * (i + 1)
    tl.store(out + offsets, total + count)


@tlxc.kernel
def swap_kernel(x, out, steps, BLOCK: tl.constexpr):
    """Two carried tiles that change places: neither may be written before the other is read."""
    offsets = tl.arange(0, BLOCK)
    a, b = tl.load(x + offsets), tl.load(x + BLOCK + offsets)
    m, n = 1, 2
    for _ in range(steps):
        a, b = b, a + b
        m, n = n, m
    tl.store(out + offsets, a)
    tl.store(out + BLOCK + offsets, b)
    tl.store(out + 2 * BLOCK + offsets, a - a + m * 10 + n)


@tlxc.kernel
def transpose_loop_kernel(x, out, steps, N: tl.constexpr):
    """A carried tile that is transposed in every trip, which takes conversions and barriers in the loop."""
    place = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + place)
    for _ in range(steps):
        tile = tl.trans(tile) * 2 + tl.load(x + place)
    tl.store(out + place, tile)


@tlxc.kernel
def collatz_kernel(x, out, limit, BLOCK: tl.constexpr):
    """A scalar `while`, one program per element."""
    n = tl.load(x + tl.program_id(0))
    steps = 0
    while n != 1 and steps < limit:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), steps)


@tlxc.kernel
def until_kernel(x, out, BLOCK: tl.constexpr):
    """A `while` whose condition reduces a carried tile."""
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + tl.program_id(0) * BLOCK + offsets)
    trips = 0
    while tl.max(tile) > 3:
        tile = tl.where(tile > 0, tile - 1, tile)
        trips += 1
    tl.store(out + tl.program_id(0) * BLOCK + offsets, tile * 100 + trips)


@tlxc.kernel
def guard_kernel(x, limits, out, M: tl.constexpr, N: tl.constexpr, ALL: tl.constexpr):
    """x less the greatest of its row and a limit, which is looked for only by warps that hold something above it."""
    rows = tl.arange(0, M)
    at = rows[:, None] * N + tl.arange(0, N)[None, :]
    y, top = tl.load(x + at), tl.load(limits + rows)
    below = tlx.warp_all(y <= top[:, None]) if ALL else not tlx.warp_any(y > top[:, None])
    if not below:
        top = tl.maximum(top, tl.max(y, 1))
    tl.store(out + at, y - top[:, None])


@tlxc.kernel
def branches_kernel(x, out, mode, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + offsets)
    scale = 1
    if mode == 0:
        tile = tile + 1
    elif 1 < mode <= 3:
        tile = tile * 2
        scale = 3
    elif mode < 0 or mode == 7:
        if tl.program_id(0) == 0:
            tile = tl.zeros_like(tile)
        else:
            scale = -1
    else:
        tile = -tile
    tl.store(out + offsets, tile * scale)


@tlxc.kernel
def stores_kernel(x, out, limit, BLOCK: tl.constexpr):
    """Stores under a branch on the program, with a conversion that all threads take part in inside."""
    pid = tl.program_id(0)
    place = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tile = tl.load(x + pid * BLOCK * BLOCK + place)
    if pid < limit:
        tl.store(out + pid * BLOCK * BLOCK + place, tl.trans(tile))
    elif pid == limit:
        tl.store(out + pid * BLOCK * BLOCK + place, tl.zeros_like(tile) + tl.sum(tile))


@tlxc.kernel
def return_kernel(x, out, n, skip, BLOCK: tl.constexpr):
    """Early returns: the rest of the kernel is the other branch."""
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    if pid == skip:
        return
    tile = tl.load(x + offsets, mask=offsets < n)
    if pid > skip:
        tl.store(out + offsets, tile + 1, mask=offsets < n)
        return
    tl.store(out + offsets, tile - 1, mask=offsets < n)


@tlxc.kernel
def expression_kernel(x, out, a, b, BLOCK: tl.constexpr):
    """Conditional expressions, and/or/not, chained comparisons, Python's min and max on scalars."""
    offsets = tl.arange(0, BLOCK)
    larger = a if a > b else b
    tile = tl.load(x + offsets) if larger > 5 else tl.zeros((BLOCK,), tl.int32)
    flag = (a < b < 10) and not (a == 3 or b == 4)
    tile = tile + (100 if flag else 200) + min(a, b) * 1000 + max(a, b, 3) * 10000
    tl.store(out + offsets, tile)


def first_positive(a, b, c):
    """A helper with returns under run-time conditions."""
    if a > 0:
        return a
    if b > 0:
        return b * 10
    return c * 100


@tlxc.kernel
def helper_kernel(x, out):
    pid = tl.program_id(0)
    a, b, c = tl.load(x + 3 * pid), tl.load(x + 3 * pid + 1), tl.load(x + 3 * pid + 2)
    tl.store(out + pid, first_positive(a, b, c))


@tlxc.kernel
def unrolled_kernel(x, out, COEFFICIENTS: tl.constexpr, BLOCK: tl.constexpr):
    """Compile-time loops over a tuple, with a list of tiles."""
    offsets = tl.arange(0, BLOCK)
    tiles = []
    for i in tl.static_range(len(COEFFICIENTS)):
        tiles = tiles + [tl.load(x + i * BLOCK + offsets)]
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(len(COEFFICIENTS)):
        if COEFFICIENTS[i] != 0:
            total += tiles[i] * COEFFICIENTS[i]
    tl.store(out + offsets, total)


@tlxc.kernel
def found_kernel(x, out, n, BLOCK: tl.constexpr):
    """A branch inside a loop, on a reduction of a loaded tile; a bool and an index are carried."""
    offsets = tl.arange(0, BLOCK)
    found = False
    where = -1
    for i in range(n):
        tile = tl.load(x + i * BLOCK + offsets)
        if not found and tl.max(tile) > 90:
            found = True
            where = i
            tl.store(out + 1 + offsets, tile)
    tl.store(out, where + (1000 if found else 0))


# ----------------------------------------------------------------------------------------------------------- references
def _accumulate_case(dtype: DType, steps: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, (steps + 1) * BLOCK).reshape(-1, BLOCK)
        expect = plain(x).sum(0).astype(np.float64 if dtype.is_float else storage(dtype))
        return Launch(
            (1,),
            {"x": In(x), "out": Out(BLOCK, dtype), "steps": steps, "BLOCK": BLOCK},
            {"out": exact(expect, signed_zero=False)},
        )

    return Case(f"accumulate-{dtype}-{steps}-w{warps}", accumulate_kernel, make, warps, cells("for yield", "-"))


def _last_case(dtype: DType, steps: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = values(rng, dtype, max(1, steps) * BLOCK).reshape(-1, BLOCK)
        return Launch(
            (1,), {"x": In(x), "out": Out(BLOCK, dtype), "steps": steps, "BLOCK": BLOCK}, {"out": exact(plain(x[-1]))}
        )

    return Case(f"last-{dtype}-{steps}-w{warps}", last_kernel, make, warps)


def _bounds_case(start: int, stop: int, step: int, dtype: DType = int32) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        trips = range(start, stop, step)
        total = (sum(trips) + 2**31) % 2**32 - 2**31
        expect = np.array([len(trips), total, trips[-1] if trips else -77], np.dtype(dtype.name))
        return Launch(
            (1,),
            {"out": Out(3, dtype), "start": start, "stop": stop, "STEP": step, "BLOCK": BLOCK},
            {"out": exact(expect)},
        )

    return Case(f"range-{start}-{stop}-{step}", bounds_kernel, make, 1)


def _nested_case(rows: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, float32, max(rows, 1) * BLOCK).reshape(-1, BLOCK)
        v, count = x.astype(np.float64), rows * (rows - 1) // 2
        expect = sum(((i + 1) * v[:i].sum(0) for i in range(rows)), np.zeros(BLOCK)) + count
        return Launch(
            (1,),
            {"x": In(x), "out": Out(BLOCK, float32), "rows": rows, "BLOCK": BLOCK},
            {"out": exact(expect, signed_zero=False)},
        )

    return Case(f"nested-{rows}-w{warps}", nested_kernel, make, warps)


def _swap_case(dtype: DType, steps: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, 2 * BLOCK).reshape(2, BLOCK)
        a, b = plain(x)
        for _ in range(steps):
            a, b = b, a + b
        marks = np.full(BLOCK, 12 if steps % 2 == 0 else 21, a.dtype)
        return Launch(
            (1,),
            {"x": In(x), "out": Out((3, BLOCK), dtype), "steps": steps, "BLOCK": BLOCK},
            {"out": exact(np.stack([a, b, marks]), signed_zero=False)},
        )

    return Case(f"swap-{dtype}-{steps}-w{warps}", swap_kernel, make, warps)


def _transpose_loop_case(dtype: DType, steps: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, 1024).reshape(32, 32)
        tile = plain(x)
        for _ in range(steps):
            tile = tile.T * 2 + plain(x)
        return Launch(
            (1,),
            {"x": In(x), "out": Out((32, 32), dtype), "steps": steps, "N": 32},
            {"out": exact(tile, signed_zero=False)},
        )

    return Case(f"transpose-loop-{dtype}-{steps}-w{warps}", transpose_loop_kernel, make, warps)


def _collatz(n: int, limit: int) -> int:
    steps = 0
    while n != 1 and steps < limit:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def _collatz_case(warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = np.array([1, 7, 9, 27, 64], np.int32) if big else np.array([1, 6, 11], np.int32)
        expect = np.repeat(np.array([[_collatz(int(n), 15)] for n in x]), 32, 1)
        return Launch(
            (len(x),), {"x": In(x), "out": Out(expect.shape, int32), "limit": 15, "BLOCK": 32}, {"out": exact(expect)}
        )

    return Case(f"collatz-w{warps}", collatz_kernel, make, warps, cells("while if yield", "-"))


def _until_case(dtype: DType, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = np.stack([rng.integers(-5, high, BLOCK) for high in (3, 7, 9)])
        trips = np.maximum(x.max(1, keepdims=True) - 3, 0)
        expect = np.where(x > 0, np.maximum(x - trips, 0), x) * 100 + trips
        args = {"x": In(to_storage(x, dtype)), "out": Out(x.shape, dtype), "BLOCK": BLOCK}
        return Launch(
            (3,), args, {"out": exact(expect.astype(np.float64) if dtype.is_float else expect, signed_zero=False)}
        )

    return Case(f"until-{dtype}-w{warps}", until_kernel, make, warps)


def _branches_case(mode: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, float32, 2 * BLOCK).reshape(2, BLOCK)
        v = x.astype(np.float64)
        if mode == 0:
            v = v + 1
        elif mode in (2, 3):
            v = v * 6
        elif mode < 0 or mode == 7:
            v = np.stack([v[0] * 0, -v[1]])
        else:
            v = -v
        return Launch(
            (2,),
            {"x": In(x), "out": Out(x.shape, float32), "mode": mode, "BLOCK": BLOCK},
            {"out": exact(v, signed_zero=False)},
        )

    listed = cells("if yield", "-") if mode != 1 else frozenset()  # an argument of 1 is a constant
    return Case(f"branches-{mode}-w{warps}", branches_kernel, make, warps, listed)


def _guard_case(dtype: DType, mode: str, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, dtype, 64 * 32).reshape(64, 32)
        limits = np.full(64, plain(x).max() - 1).astype(x.dtype)
        expect = exact(plain(x) - np.maximum(plain(x).max(1), plain(limits))[:, None], signed_zero=False)
        args = {"x": In(x), "limits": In(limits), "out": Out(x.shape, dtype), "M": 64, "N": 32, "ALL": mode == "all"}
        return Launch((1,), args, {"out": expect})

    return Case(f"guard-{dtype}-{mode}-w{warps}", guard_kernel, make, warps, cells("warp_vote", "-"), amd=False)


def _stores_case(limit: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, float32, 4 * 256).reshape(4, 16, 16)
        v = x.astype(np.float64)
        expect = np.concatenate([v[:limit].transpose(0, 2, 1), np.full((1, 16, 16), v[limit].sum()), v[limit + 1 :]])
        written = np.broadcast_to((np.arange(4) <= limit)[:, None, None], x.shape)
        args = {"x": In(x), "out": Out(x.shape, float32), "limit": limit, "BLOCK": 16}
        return Launch((4,), args, {"out": exact(expect, written, signed_zero=False)})

    return Case(f"stores-under-if-{limit}-w{warps}", stores_kernel, make, warps)


def _return_case(skip: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        programs, n = 4, 4 * BLOCK - 9
        x = small_integers(rng, int32, n)
        pid = np.arange(n) // BLOCK
        expect = np.where(pid > skip, x + 1, x - 1)
        args = {"x": In(x), "out": Out(n, int32), "n": n, "skip": skip, "BLOCK": BLOCK}
        return Launch((programs,), args, {"out": exact(expect, pid != skip)})

    return Case(f"return-{skip}-w{warps}", return_kernel, make, warps)


def _expression_case(a: int, b: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, int32, BLOCK)
        tile = x if max(a, b) > 5 else np.zeros_like(x)
        flag = (a < b < 10) and not (a == 3 or b == 4)
        expect = tile + (100 if flag else 200) + min(a, b) * 1000 + max(a, b, 3) * 10000
        return Launch(
            (1,), {"x": In(x), "out": Out(BLOCK, int32), "a": a, "b": b, "BLOCK": BLOCK}, {"out": exact(expect)}
        )

    return Case(f"expressions-{a}-{b}-w{warps}", expression_kernel, make, warps)


def _helper_case(dtype: DType) -> Case:
    rows = ((1, 2, 3), (-1, 2, 3), (0, 0, 1), (5, -1, -1), (-1, -1, -1))

    def make(rng: np.random.Generator, big: bool) -> Launch:
        expect = np.array([a if a > 0 else b * 10 if b > 0 else c * 100 for a, b, c in rows])
        x = to_storage(np.array(rows).ravel(), dtype)
        return Launch((len(rows),), {"x": In(x), "out": Out(len(rows), dtype)}, {"out": exact(expect)})

    return Case(f"helper-returns-{dtype}", helper_kernel, make, 2)


def _unrolled_case(coefficients: tuple[float, ...], warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = small_integers(rng, float32, len(coefficients) * BLOCK).reshape(-1, BLOCK)
        expect = (x.astype(np.float64) * np.array(coefficients)[:, None]).sum(0)
        return Launch(
            (1,),
            {"x": In(x), "out": Out(BLOCK, float32), "COEFFICIENTS": coefficients, "BLOCK": BLOCK},
            {"out": exact(expect, signed_zero=False)},
        )

    return Case(f"unrolled-{len(coefficients)}-w{warps}", unrolled_kernel, make, warps)


def _found_case(place: int, warps: int) -> Case:
    def make(rng: np.random.Generator, big: bool) -> Launch:
        x = rng.integers(0, 90, (4, BLOCK)).astype(np.int32)
        if place >= 0:
            x[place:, 17] = 95
        expect = np.concatenate([[1000 + place if place >= 0 else -1], x[place]])
        written = np.arange(BLOCK + 1) < (BLOCK + 1 if place >= 0 else 1)
        return Launch(
            (1,), {"x": In(x), "out": Out(BLOCK + 1, int32), "n": 4, "BLOCK": BLOCK}, {"out": exact(expect, written)}
        )

    return Case(f"found-{place}-w{warps}", found_kernel, make, warps)


# ----------------------------------------------------------------------------------------------------------------- list
_RANGES = ((0, 5, 1), (0, 0, 1), (5, 0, 1), (3, 20, 4), (10, 0, -1), (10, -1, -3), (0, 10, -2), (-7, 8, 5),
           (2**31 - 4, 2**31 - 1, 2), (-(2**31), -(2**31) + 5, 3), (2**31 - 2, 2**31 - 5, -1), (0, 7, 100))  # fmt: skip


def cases() -> Iterator[Case]:
    for warps in WARPS:
        yield _accumulate_case(float32, 3, warps)
        yield _collatz_case(warps)
        yield _until_case(int32, warps)
        yield _nested_case(4, warps)
        yield _swap_case(float32, 3, warps)
        yield _transpose_loop_case(float32, 3, warps)
        yield _stores_case(1, warps)
        yield _found_case(2, warps)
        yield from (_branches_case(mode, warps) for mode in (0, 3, -5))
        yield from (_guard_case(dtype, mode, warps) for dtype in (float32, int32) for mode in ("any", "all"))
    for dtype in DTYPES.values():
        yield _last_case(dtype, 4, 4)
    for steps in (0, 1, 5):
        yield _accumulate_case(float16, steps, 4)
        yield _swap_case(int32, steps, 4)
        yield _transpose_loop_case(int64, steps, 8)
        yield _last_case(float32, steps, 2)
        yield _nested_case(steps, 4)
    yield from (_accumulate_case(dtype, 3, 4) for dtype in (int8, uint8, bfloat16, int64))
    yield from (_bounds_case(*r) for r in _RANGES)
    yield from (_bounds_case(2**40, 2**40 + 9, 4, int64), _bounds_case(2**63 - 5, 2**63 - 1, 3, int64))
    yield from (_branches_case(mode, 4) for mode in (1, 2, 4, 7))
    yield from (_stores_case(limit, 4) for limit in (0, 3))
    yield from (_return_case(skip, 4) for skip in (-1, 0, 2, 9))
    yield from (_expression_case(a, b, w) for a, b, w in ((1, 2, 1), (7, 8, 4), (3, 9, 4), (12, 5, 2), (2, 4, 4)))
    yield from (_helper_case(dtype) for dtype in (int32, float32))
    yield from (_unrolled_case(c, 4) for c in ((1.0,), (1.0, 0.0, -2.0), (0.5, 1.0, 2.0, 4.0)))
    yield from (_found_case(place, 4) for place in (-1, 0))
    yield from (_until_case(dtype, 4) for dtype in (float32, int64))
