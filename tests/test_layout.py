"""The layout algebra against brute-force enumeration of every register of every thread."""

from __future__ import annotations

import copy
import pickle
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations, product
from math import prod
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlxc.ir import conversion as C
from tlxc.ir import f2
from tlxc.ir import layout as L
from tlxc.ir import memory as M
from tlxc.targets import fragments as F

Coords = tuple[int, ...]
Thread = tuple[int, int]


RNG = st.integers(0, 1 << 32).map(Random)
EXTENTS = (1, 2, 4, 8, 16, 32, 3, 6, 12, 5, 80, 24)


# ------------------------------------------------------------------------------------------------ random layouts
def random_shape(rng: Random, most: int = 1024) -> Coords:
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rng.randint(1, 3)))
        if 2 <= sum(L.odd_split(n)[1] for n in shape) <= 10 and prod(shape) <= most:
            return shape


def random_layout(rng: Random, shape: Coords, lanes: int = 5, warps: int = 2, mix: float = 0.3) -> L.Layout:
    """Any surjective layout: mixed bases, lanes and warps with copies, dependent registers."""
    reps, bits = zip(*(L.odd_split(n) for n in shape))
    n = sum(bits)
    units = [1 << i for i in range(n)]
    rng.shuffle(units)
    for _ in range(2 * n if rng.random() < mix else 0):
        i, j = rng.randrange(n), rng.randrange(n)
        if i != j:
            units[i] ^= units[j]
    threads: dict[str, list[int]] = {"lane": [], "warp": []}
    for count, out in ((lanes, threads["lane"]), (warps, threads["warp"])):
        for _ in range(count):
            if units and rng.random() < 0.85:
                out.append(units.pop())
            else:
                out.append(0 if rng.random() < 0.8 or not out else rng.choice(out))
    registers = units + ([rng.choice(units) ^ rng.choice(units)] if units and rng.random() < 0.2 else [])
    rng.shuffle(registers)
    return L.make([("register", registers), *threads.items()], bits, reps)


def neighbour(rng: Random, a: L.Layout) -> L.Layout:
    """A layout close to `a`, so that every class of conversion occurs."""
    reg, lane = list(a.reg), list(a.lane)
    rng.shuffle(reg)
    if rng.random() < 0.6:
        pool = reg + lane
        rng.shuffle(pool)
        reg, lane = pool[len(lane) :], pool[: len(lane)]
    if rng.random() < 0.3 and reg:
        reg[0] ^= rng.choice(reg[1:] or [0])
    if rng.random() < 0.3 and reg:
        lane[rng.randrange(len(lane))] ^= rng.choice(reg)
    return L.make([("register", reg), ("lane", lane), ("warp", a.others)], a.bits, a.reps)


def threads(a: L.Layout) -> list[Thread]:
    return list(product(range(1 << len(a.lane)), range(1 << len(a.bases("warp")))))


def held(a: L.Layout, lane: int, warp: int) -> list[Coords]:
    return [a.apply(r, lane, warp) for r in range(a.registers)]


def element_index(coords: Coords, shape: Coords) -> int:
    out = 0
    for c, n in zip(coords, shape):
        out = out * n + c
    return out


def coords_of(index: int, shape: Coords) -> Coords:
    out = []
    for n in reversed(shape):
        out.append(index % n)
        index //= n
    return tuple(reversed(out))


def every(shape: Coords) -> set[Coords]:
    return set(product(*map(range, shape)))


# ------------------------------------------------------------------------------------------------ F2
@settings(max_examples=100)
@given(st.lists(st.integers(0, 63), max_size=5), st.lists(st.integers(0, 63), max_size=5))
def test_f2_against_enumerated_spans(a: list[int], b: list[int]) -> None:
    def span(vectors: Any) -> set[int]:
        return {f2.span_map(vectors, i) for i in range(1 << len(vectors))}

    solver = f2.Solver(a)
    assert span(f2.rref(a)) == span(a) and 1 << len(f2.rref(a)) == len(span(a)) == 1 << solver.rank
    assert (f2.rref(a) == f2.rref(b)) == (span(a) == span(b))
    assert span(f2.intersect(a, b)) == span(a) & span(b)
    for v in range(64):
        code = solver.solve(v)
        assert (v in solver) == (code is not None) == (v in span(a))
        if code is not None:
            assert f2.span_map(a, code) == v and not code & solver.redundant
    if f2.disjoint_bits(a):
        assert all(f2.span_map(a, i) == sum(g for k, g in enumerate(a) if i >> k & 1) for i in range(1 << len(a)))


# ------------------------------------------------------------------------------------------------ holders
@settings(max_examples=60)
@given(RNG, st.sampled_from((5, 6)))
def test_holders_inverse_and_copies(rng: Random, lanes: int) -> None:
    a = random_layout(rng, random_shape(rng, 512), lanes)
    holders: dict[Coords, set[tuple[int, int, int]]] = {}
    for lane, warp in threads(a):
        mine = held(a, lane, warp)
        assert len(set(mine)) == a.registers, "no register repeats another"
        for r, c in enumerate(mine):
            holders.setdefault(c, set()).add((r, lane, warp))
    assert set(holders) == every(a.shape) and a.surjective()
    masks = a.free_masks()
    assert masks["register"] == 0
    for c, hs in holders.items():
        i = a.invert(c)
        assert (i["register"], i["lane"], i["warp"]) in hs
        assert sum(not lane & masks["lane"] and not warp & masks["warp"] for _, lane, warp in hs) == 1
    live = {warp for _, warp in threads(a) if not warp & masks["warp"]}
    assert len(live) == C.live_warps(a)


def test_a_layout_that_misses_elements() -> None:
    a = L.from_coords((8, 4), register=[(0, 1)], lane=[(1, 0)], warp=[])
    assert not a.surjective()
    with pytest.raises(L.LayoutError, match="No thread holds"):
        a.invert((4, 0))


def test_equal_layouts_are_one_object() -> None:
    a = L.blocked((64, 80), None, 4)
    assert L.make(a.ins, a.bits, a.reps) is a
    assert copy.deepcopy(a) is a and pickle.loads(pickle.dumps(a)) is a
    swapped = L.make([("register", a.reg[::-1]), *a.ins[1:]], a.bits, a.reps)
    assert swapped is not a and swapped.key is a.key
    assert L.make([("register", (1, 2, 3)), ("lane", (0,))], (2,), (6,)) is L.make(
        [("register", (1, 2, 4)), ("lane", (0,))], (3,), (3,)
    )


def test_threads_agree_on_layout_objects() -> None:
    def build(_: int) -> list[L.Layout]:
        return [L.from_coords((64, n), register=[(0, 1)], lane=[(1, 0)], warp=[(2, 0)]) for n in range(2, 400, 2)]

    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(build, range(8))
    assert all(a is b and a.key is b.key for other in others for a, b in zip(first, other))


def test_blocked() -> None:
    a = L.blocked((128, 64), None, 4)
    assert str(a) == "128x64 r[j1,j2,i8,i16,i32,i64] l[j4,j8,j16,j32,i1] w[i2,i4]"
    assert str(L.blocked((64,))) == "64 r[] l[i1,i2,i4,i8,i16] w[i32,0]"
    assert str(L.blocked((8, 256), None, 4, 32, 4, (0,))) == "8x256 r[j1,j2,j128,i1] l[j4,j8,j16,j32,j64] w[i4,i2]"
    assert str(L.blocked((16, 4), (0, 1), 2, 4, 2)) == "16x4 r[i1,j1,j2] l[i2,i4] w[i8]"
    assert str(L.blocked(())) == "() r[] l[0,0,0,0,0] w[0,0]"


# ------------------------------------------------------------------------------------------------ shape operations
@settings(max_examples=60)
@given(RNG)
def test_shape_operations(rng: Random) -> None:
    a = random_layout(rng, random_shape(rng, 512))
    rank = len(a.shape)
    order = tuple(rng.sample(range(rank), rank))
    axis = rng.randrange(rank)
    ones = tuple(rng.choice((1, n)) for n in a.shape)
    p, s, j, e, o = L.permute(a, order), L.slice_(a, axis), L.join(a), L.expand(a, axis), L.collapse(a, ones)
    assert L.permute(p, tuple(order.index(d) for d in range(rank))).key is a.key
    assert L.split(j) is a and L.squeeze(e, axis) is a
    assert L.stack(a, 2) is j and all(L.split(L.stack(a, n)) is a for n in (1, 3, 5))
    assert L.collapse(a, a.shape) is a
    for lane, warp in threads(a)[:: rng.choice((1, 3))]:
        mine = held(a, lane, warp)
        assert sorted(held(p, lane, warp)) == sorted(tuple(c[d] for d in order) for c in mine)
        assert sorted(held(j, lane, warp)) == sorted((*c, h) for c in mine for h in (0, 1))
        assert [c[:-1] for c in held(j, lane, warp)[::2]] == mine
        assert held(e, lane, warp) == [(*c[:axis], 0, *c[axis:]) for c in mine]
        for small, want in (
            (s, {c[:axis] + c[axis + 1 :] for c in mine}),
            (o, {tuple(x if n > 1 else 0 for x, n in zip(c, ones)) for c in mine}),
        ):
            assert set(held(small, lane, warp)) == want and len(want) == small.registers


@settings(max_examples=150)
@given(RNG)
def test_reshape(rng: Random) -> None:
    a = random_layout(rng, random_shape(rng, 512))
    left, dims = prod(a.shape), list[int]()
    while left > 1 and len(dims) < 3:
        dims.append(rng.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= dims[-1]
    shape = (*dims, left) if left > 1 or not dims else tuple(dims)
    try:
        b = L.reshape(a, shape)
    except L.LayoutError:
        assert any(r > 1 for r in a.reps)
        return
    for lane, warp in threads(a)[::5]:
        assert held(b, lane, warp) == [coords_of(element_index(c, a.shape), shape) for c in held(a, lane, warp)]


@pytest.mark.parametrize(
    ("shape", "result", "free"),
    (
        ((192, 64), (3, 64, 64), True),
        ((64, 80), (64, 5, 16), True),
        ((64, 192), (64, 3, 64), True),
        ((64, 192), (64, 96, 2), True),
        ((64, 192), (2, 32, 192), True),
        ((192,), (6, 32), True),
        ((15, 8), (3, 5, 8), True),
        ((1, 1), (), True),
        ((192, 64), (2, 96, 64), False),
        ((64, 80), (5120,), False),
        ((64, 192), (64, 2, 96), False),
        ((80,), (16, 5), False),
    ),
)
def test_reshape_of_odd_extents(shape: Coords, result: Coords, free: bool) -> None:
    if free:
        assert L.reshape(L.blocked(shape), result).shape == result
    else:
        with pytest.raises(L.LayoutError, match="cut a repetition"):
            L.reshape(L.blocked(shape), result)


def test_refused_shape_operations() -> None:
    a = L.blocked((16, 2))
    for call, says in (
        (lambda: L.reshape(a, (16, 4)), "32 elements"),
        (lambda: L.squeeze(a, 1), "must be 1"),
        (lambda: L.collapse(a, (8, 2)), "does not broadcast"),
        (lambda: L.permute(a, (0, 0)), "once"),
        (lambda: L.split(L.blocked((2, 16))), "extent 2 or an odd one"),
        (lambda: L.split(a), "spreads the last dimension"),
        (lambda: L.blocked((16, 2), None, 1, 32, 6), "not a power of two"),
        (lambda: L.blocked((0, 2)), "positive"),
        (lambda: L.blocked((1,) * 15), "not supported"),
    ):
        with pytest.raises(L.LayoutError, match=says):
            call()


# ------------------------------------------------------------------------------------------------ code generation
@settings(max_examples=60)
@given(RNG)
def test_components(rng: Random) -> None:
    a = random_layout(rng, random_shape(rng, 512))
    for dim in range(len(a.shape)):
        per_register, lanes, warps = L.components(a, dim)
        assert len(per_register) == a.registers
        parts = {t: f2.span_map(lanes, t[0]) ^ f2.span_map(warps, t[1]) for t in threads(a)}
        shared_bits = any(c & p for c in per_register for p in parts.values())
        assert L.disjoint(a, dim) == (not shared_bits)
        for t in threads(a)[::7]:
            want = [c[dim] for c in held(a, *t)]
            assert [c ^ parts[t] for c in per_register] == want
            if not shared_bits:
                assert [c + parts[t] for c in per_register] == want


# ------------------------------------------------------------------------------------------------ text
@settings(max_examples=100)
@given(RNG)
def test_text_round_trips(rng: Random) -> None:
    a = random_layout(rng, random_shape(rng))
    assert L.parse_layout(str(a)) is a
    b = random_layout(rng, a.shape)
    m = C.scratch(a, b, 2)
    assert L.parse_layout(str(m)) is m
    for mem in (C.scratch_memory(m), random_memory(rng, a.shape, 2)):
        assert M.parse_memory(str(mem)) == mem


def test_text_examples() -> None:
    mixed = "64x80 r[i1+j2,j1] l[i8,0,j4,j8,i2] w[i16,i32] c[i4]"
    assert str(L.parse_layout(mixed)) == mixed
    assert L.parse_layout(str(L.blocked(()))) is L.blocked(())
    assert str(M.swizzled((80, 128), 2, 128)) == "80x128 i[72,144,288]x10*512 j[1,2,4,8,16,32]x2*5120"
    assert str(M.row_major((3, 20), 4)) == "3x20 i[]x3*24 j[1,2]x5*4"


@pytest.mark.parametrize(
    ("text", "says"),
    (
        ("64x64", "is not a layout"),
        ("64x64 r[j1] q[i1]", "in this order"),
        ("64x64 l[j1] r[i1]", "in this order"),
        ("64x64 r[j1] l[i1] l[i2]", "in this order"),
        ("64x64 r[k1]", "not a basis"),
        ("64x64 r[i1+i2]", "not a basis"),
        ("64x64 r[j]", "not a basis"),
        ("64x80 r[j16]", "outside the 64x16 tile"),
    ),
)
def test_refused_layout_text(text: str, says: str) -> None:
    with pytest.raises(L.LayoutError, match=says):
        L.parse_layout(text)


@pytest.mark.parametrize(
    ("text", "says"),
    (("64 j[1]x32*2", "each dimension"), ("64 i[1]x16*2", "each dimension"), ("64 i1", "is not a memory")),
)
def test_refused_memory_text(text: str, says: str) -> None:
    with pytest.raises(L.LayoutError, match=says):
        M.parse_memory(text)


# ------------------------------------------------------------------------------------------------ Shape:Stride
SHAPE_STRIDE = (
    ((128, 64), 4, ((128,), (64,)), ((64,), (1,))),
    ((128, 128), 8, ((32, 4, 2), (32, 2)), ((128, 4096, 32), (1, 64))),
    ((64, 32), 2, ((8, 4, 2), (4, 8)), ((4, 32, 128), (1, 256))),
)


@pytest.mark.parametrize(("tile", "warps", "shape", "stride"), SHAPE_STRIDE)
def test_shape_stride_means_what_it_says(tile: Any, warps: int, shape: Any, stride: Any) -> None:
    a = L.from_shape_stride(tile, shape, stride, 32, warps)

    def offset(index: int, extents: Coords, strides: Coords) -> int:
        return sum(c * s for c, s in zip(reversed(coords_of(index, extents[::-1])), strides))

    for thread, r in product(range(32 * warps), range(a.registers)):
        want = offset(thread, shape[0], stride[0]) + offset(r, shape[1], stride[1])
        assert a.apply(r, thread % 32, thread // 32) == coords_of(want, tile)


def test_shape_stride_examples() -> None:
    row, halves, vectors = (L.from_shape_stride(t, s, d, 32, w) for t, w, s, d in SHAPE_STRIDE)
    assert row is F.tmem_32x32b((128, 64))
    assert row.apply(5, 3, 2) == (67, 5)
    assert L.cute(row) == "((_32,_4),_64):((_64,_2048),_1)"
    assert L.cute(halves) == "((_32,_4,_2),(_32,_2)):((_128,_4096,_32),(_1,_64))"
    assert L.cute(vectors) == "((_32,_2),(_4,_8)):((_4,_128),(_1,_256))", "8:4 and 4:32 are one mode"
    assert L.cute(L.blocked((64,))) == "((_32,_2,_2),_1):((_1,_32,_0),_0)"
    assert L.cute(L.blocked((64,), None, 1, 1, 1)) == "(_1,_64):(_0,_1)"
    assert L.cute(F.wgmma_acc(64, 80)) == "((_4,_8,_4),(_2,_2,_2,_5)):((_2,_80,_1280),(_1,_640,_8,_16))"
    shared = L.make([("register", (1,)), ("lane", (1, 2)), ("warp", ())], (2,), (1,))
    assert L.cute(shared) == str(shared), "sums cannot say that registers and lanes overlap"


def parse_cute(text: str) -> tuple[list[list[int]], list[list[int]]]:
    """([thread extents, value extents], [thread strides, value strides])"""
    halves = re.split(r"(?<=\)):(?=\()", text)
    shape, stride = (
        [[int(x) for x in re.findall(r"\d+", group)] for group in re.findall(r"\([^()]*\)|_\d+", half[1:-1])]
        for half in halves
    )
    return shape, stride


@settings(max_examples=100)
@given(RNG)
def test_cute_round_trips(rng: Random) -> None:
    a = random_layout(rng, random_shape(rng), mix=0)
    text = L.cute(a)
    if text.startswith("("):
        shape, stride = parse_cute(text)
        assert L.from_shape_stride(a.shape, shape, stride, 32, 4) is a
    else:
        assert text == str(a)


@pytest.mark.parametrize(
    ("tile", "shape", "stride", "warps", "says"),
    (
        ((128, 64), ((128,), (64,)), ((64,), (1,)), 8, "32 lanes x 8 warps = 256"),
        ((16, 4), ((16,), (4,)), ((4,), (1,)), None, "a multiple of 32"),
        ((128, 64), ((128,), (32,)), ((64,), (1,)), 4, "only 4096 of the 8192"),
        ((128, 64), (128, (64,)), ((64,), (1,)), 4, "flat tuples"),
        ((128, 64), ((128,), ((8, 8),)), ((64,), (1,)), 4, "flat tuples"),
        ((128, 64), ((128,), (64,)), ((64, 1), (1,)), 4, "equal length"),
        ((128, 64), ((128,),), ((64,),), 4, "a thread group and a value group"),
        ((128, 64), ((256,), (64,)), ((64,), (1,)), 8, "leaves the power-of-two tile"),
        ((128, 64), ((128,), (64,)), ((-64,), (1,)), 4, "not negative"),
        ((128, 64), ((96,), (64,)), ((64,), (1,)), 4, "powers of two"),
        ((128, 80), ((128,), (16,)), ((80,), (1,)), 4, r"\(5, 16\)"),
        ((128, 80), ((128,), (32,)), ((80,), (1,)), 4, "128x16"),
    ),
)
def test_refused_shape_stride(tile: Any, shape: Any, stride: Any, warps: int | None, says: str) -> None:
    with pytest.raises(L.LayoutError, match=says):
        L.from_shape_stride(tile, shape, stride, 32, warps)


def test_memory_shape_stride() -> None:
    assert M.cute_memory(M.row_major((64,))) == "_64:_1"
    assert M.cute_memory(M.xor_swizzled((32, 32), 2, 2, 4)) == "Swizzle<2,1,5> o (_32,_32):(_32,_1)"
    assert M.cute_memory(M.row_major((3, 20), 4)) == "(_3,_20):(_24,_1)"
    assert M.cute_memory(M.swizzled((64, 64), 2, 128)) == "Swizzle<3,3,3> o (_64,_64):(_64,_1)"
    two_blocks = M.swizzled((64, 128), 2, 128)
    assert M.cute_memory(two_blocks) == str(two_blocks)


# ------------------------------------------------------------------------------------------------ memory
def random_memory(rng: Random, shape: Coords, elem: int) -> M.Memory:
    builders: list[Callable[[], M.Memory]] = [partial(M.swizzled, shape, elem, w) for w in (32, 64, 128)]
    if len(shape) == 2:
        rows, cols = shape
        builders.append(partial(M.xor_swizzled, (rows, cols), 2, rng.choice((1, 2)), rng.choice((2, 4, 8))))
    rng.shuffle(builders)
    for build in builders if rng.random() < 0.6 else ():
        try:
            return build()
        except L.LayoutError:
            continue
    return M.row_major(shape, rng.choice((0, 0, 1, 4, 8, 16)))


def accesses(a: L.Layout, mem: M.Memory, v: int, warp: int) -> list[list[int]]:
    """Per access of one warp, the first offset of each lane, from every register's own coordinate."""
    out: list[list[int]] = []
    first = [mem.offset(c) >> v for c in held(a, 0, warp)]
    for leader in dict.fromkeys(first):
        registers = [r for r, x in enumerate(first) if x == leader]
        assert len(registers) == 1 << v
        lanes = []
        for lane in range(1 << len(a.lane)):
            offsets = sorted(mem.offset(a.apply(r, lane, warp)) for r in registers)
            assert offsets == list(range(offsets[0], offsets[0] + (1 << v))) and offsets[0] % (1 << v) == 0
            lanes.append(offsets[0])
        out.append(lanes)
    return out


def bank_cycles(offsets: list[int], elem: int, v: int) -> int:
    """Wavefronts of one access: threads of 128 bytes at a time, the words of each bank one after the other."""
    size = elem << v
    together = 32 if size <= 4 else 128 // size
    cycles = 0
    for p in range(0, len(offsets), together):
        words = {(o * elem + byte) // 4 for o in offsets[p : p + together] for byte in range(size)}
        cycles += max(Counter(w % 32 for w in words).values())
    return cycles


@settings(max_examples=200)
@given(RNG, st.sampled_from((1, 2, 4, 8)))
def test_memory_accesses(rng: Random, elem: int) -> None:
    a = random_layout(rng, random_shape(rng, 512))
    mem = random_memory(rng, a.shape, elem)
    assert len({mem.offset(c) for c in every(a.shape)}) == prod(a.shape)
    v = M.vector_bits(a, mem, elem)

    def fits(v: int) -> bool:
        size = 1 << v
        for t in threads(a):
            mine = {mem.offset(c) for c in held(a, *t)}
            if any(o // size * size + i not in mine for o in mine for i in range(size)):
                return False
        return True

    assert fits(v)
    if (elem << v) < M.MAX_ACCESS and all(r == 1 for r in (*a.reps, *mem.reps)):
        assert not fits(v + 1)
    every_access = accesses(a, mem, v, 0)
    waves = sum(bank_cycles(lanes, elem, v) for lanes in every_access)
    assert M.shared_access(a, mem, elem) == (elem << v, len(every_access), waves)


@pytest.mark.parametrize(
    ("elem", "width", "shape"),
    (
        (2, 128, (80, 128)),
        (2, 64, (64, 96)),
        (2, 32, (64, 80)),
        (4, 128, (16, 64)),
        (1, 128, (24, 128)),
        (2, 128, (3, 16, 128)),
    ),
)
def test_nvidia_swizzle(elem: int, width: int, shape: Coords) -> None:
    mem, per, chunk = M.swizzled(shape, elem, width), width // elem, 16 // elem
    rows = prod(shape[:-1])
    for coords in every(shape):
        row, (block, q) = element_index(coords[:-1], shape[:-1]), divmod(coords[-1], per)
        place = (q // chunk) ^ (row * width // 128 % (width // 16))
        assert mem.offset(coords) == block * rows * per + row * per + place * chunk + q % chunk


@pytest.mark.parametrize(
    ("shape", "vec", "phase", "phases"), (((4, 4), 1, 1, 4), ((4, 4), 1, 2, 4), ((4, 8), 2, 1, 4), ((24, 64), 1, 1, 8))
)
def test_xor_swizzle(shape: tuple[int, int], vec: int, phase: int, phases: int) -> None:
    mem = M.xor_swizzled(shape, vec, phase, phases)
    for r, c in every(shape):
        assert mem.offset((r, c)) == r * shape[1] + ((c // vec) ^ (r // phase % phases)) * vec + c % vec


def test_widest_swizzle_and_refusals() -> None:
    assert M.widest_swizzle((64, 96), 2) == M.swizzled((64, 96), 2, 64)
    assert M.widest_swizzle((64,), 2) == M.row_major((64,))
    for call, says in (
        (lambda: M.swizzled((64, 48), 2, 128), "units of 64"),
        (lambda: M.xor_swizzled((8, 80), 2, 1, 4), "power-of-two contiguous"),
        (lambda: M.xor_swizzled((12, 64), 2, 1, 8), "rows in units of 8"),
        (lambda: M.vector_base(L.blocked((64, 80)), M.row_major((64, 80)), 5), "does not fit"),
    ):
        with pytest.raises(L.LayoutError, match=says):
            call()


def matrix_words(a: L.Layout, mem: M.Memory, elem: int, trans: bool) -> bool:
    """Whether the registers of warp 0 fall into words that ldmatrix delivers: lane t gets word t % 4 of row t // 4
    (transposed: the 16-bit elements t // 4 of rows 2 * (t % 4) and the next)."""
    per, left = 4 // elem, set(range(a.registers))
    offset = [[mem.offset(a.apply(r, t)) for t in range(32)] for r in range(a.registers)]

    def delivered(word: Coords) -> bool:
        for t in range(32):
            leads = [offset[r][t % 4] if trans else offset[word[0]][t // 4 * 4] for r in word]
            steps = [t // 4] * per if trans else [t % 4 * per + i for i in range(per)]
            if any(x * elem % 16 for x in leads) or any(offset[r][t] != x + s for r, x, s in zip(word, leads, steps)):
                return False
        return True

    while left:
        first = min(left)
        words = (w for w in permutations(left, per) if first in w)
        word = next((w for w in words if delivered(w)), None)
        if word is None:
            return False
        left -= set(word)
    return True


@pytest.mark.parametrize("trans", (False, True))
def test_matrix_accesses_of_accumulators(trans: bool) -> None:
    found = set()
    for n in (16, 32, 64, 80):
        a = F.wgmma_acc(64, n)
        for mem in (M.widest_swizzle((64, n), 2), M.swizzled((64, n), 2, 32), M.row_major((64, n))):
            cases = [(a, mem), (L.permute(a, (1, 0)), mem.transpose((1, 0)))]
            cases.append((a, M.widest_swizzle((n, 64), 2).transpose((1, 0))))
            for layout, memory in cases:
                got = M.matrix_access(layout, memory, 2, trans)
                assert (got > 0) == matrix_words(layout, memory, 2, trans)
                found.add(got)
    assert found == {0, 4}


@settings(max_examples=40)
@given(RNG, st.booleans(), st.sampled_from((1, 2, 4)))
def test_matrix_accesses_of_random_layouts(rng: Random, trans: bool, elem: int) -> None:
    a = random_layout(rng, (16, 32), 5, 2, 0.1)
    if rng.random() < 0.5:
        a = neighbour(rng, F.mma16816("acc", (16, 32), (1, 4)))
    mem = M.widest_swizzle((16, 32), elem)
    if a.registers <= 16 and not (trans and elem != 2):
        assert (M.matrix_access(a, mem, elem, trans) > 0) == matrix_words(a, mem, elem, trans)
    assert M.matrix_access(a, mem, 8) == 0


# ------------------------------------------------------------------------------------------------ conversions
def brute_class(a: L.Layout, b: L.Layout) -> str:
    have = {t: set(held(a, *t)) for t in threads(a)}
    want = {t: set(held(b, *t)) for t in threads(b)}
    if all(want[t] <= have[t] for t in want):
        index = [{c: r for r, c in enumerate(held(a, *t))} for t in want]
        columns = zip(*([i[c] for c in held(b, *t)] for i, t in zip(index, want)))
        return C.REGISTERS if all(len(set(column)) == 1 for column in columns) else C.SELECT
    by_warp: dict[int, set[Coords]] = {}
    for (_, warp), cs in have.items():
        by_warp.setdefault(warp, set()).update(cs)
    return C.SHUFFLE if all(want[t] <= by_warp[t[1]] for t in want) else C.SHARED


@settings(max_examples=250)
@given(RNG)
def test_conversion_classes(rng: Random) -> None:
    lanes, warps = rng.choice((2, 3, 5)), rng.choice((0, 1, 2))
    a = random_layout(rng, random_shape(rng, 512), lanes, warps)
    b = neighbour(rng, a) if rng.random() < 0.8 else random_layout(rng, a.shape, lanes, warps)
    kind = C.classify(a, b)[0]
    expected = brute_class(a, b)
    assert kind == (C.NOOP if a is b else expected)
    renamed = expected == C.REGISTERS and brute_class(b, a) == C.REGISTERS
    assert (a.key is b.key) == renamed
    if kind in C.FREE:
        source = C.register_map(a, b)
        assert len(source) == b.registers
        for t in threads(a)[::3]:
            mine = held(a, *t)
            assert [mine[r] for r in source] == held(b, *t)
    else:
        with pytest.raises(L.LayoutError, match="cannot be renamed"):
            C.register_map(a, b)


@settings(max_examples=250)
@given(RNG, st.sampled_from((1, 2, 4, 8)))
def test_scratch_is_a_bijection_without_conflicts(rng: Random, elem: int) -> None:
    shape = random_shape(rng, 512)
    a, b = random_layout(rng, shape), random_layout(rng, shape)
    cost = C.convert(a, b, elem)
    if cost.kind != C.SHARED:
        assert cost.bytes == 0
        return
    mem = C.scratch_memory(C.scratch(a, b, elem))
    assert {mem.offset(c) for c in every(a.shape)} == set(range(prod(a.shape)))
    assert cost.bytes == prod(a.shape) * elem
    storing = [w for w in range(4) if not w & a.free_masks()["warp"]]
    total = 0
    for x, size, warps in ((a, cost.vectors[0], storing), (b, cost.vectors[1], [*range(4)])):
        v = (size // elem).bit_length() - 1
        total += sum(bank_cycles(lanes, elem, v) for warp in warps for lanes in accesses(x, mem, v, warp))
    assert total == cost.wavefronts <= cost.ideal
    assert C.trip_wavefronts(a, b, elem) == cost.wavefronts or a.solver.redundant or b.solver.redundant


def test_known_conversions() -> None:
    acc = F.wgmma_acc(64, 64)
    assert C.convert(acc, acc).kind == C.NOOP
    assert C.convert(acc, F.wgmma_a(64, 64)).kind == C.NOOP
    assert C.convert(acc, F.wgmma_a(64, 64, 4, 1), 1).kind == C.SHUFFLE
    assert C.convert(acc, L.blocked((64, 64), None, 8), 2).kind == C.SHARED
    with pytest.raises(L.LayoutError, match="keeps the shape"):
        C.classify(acc, L.blocked((64, 32)))
    with pytest.raises(L.LayoutError, match="keeps the threads"):
        C.classify(acc, L.blocked((64, 64), None, 1, 32, 8))


@settings(max_examples=60)
@given(RNG)
def test_reduce_steps(rng: Random) -> None:
    a = random_layout(rng, random_shape(rng, 512))
    axis = rng.randrange(len(a.shape))
    inside, lane, warp = C.reduce_steps(a, axis)
    mine = held(a, 0, 0)
    rows = Counter(c[:axis] + c[axis + 1 :] for c in mine)
    assert set(rows.values()) == {inside}
    assert 1 << lane == len({a.apply(0, t, 0)[axis] for t in range(1 << len(a.lane))})
    assert 1 << warp == len({a.apply(0, 0, w)[axis] for w in range(1 << len(a.others))})
