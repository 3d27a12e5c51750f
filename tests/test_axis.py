"""Axis analysis: exact claims on the usual index expressions, and soundness on random integer programs."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tile_eval import Machine

from tlxc.ir.core import Builder, Module, Param, Region, Value
from tlxc.ir.types import (
    Pointer,
    Scalar,
    Tensor,
    element_of,
    float16,
    int1,
    int8,
    int32,
    int64,
    like,
    shape_of,
    uint8,
    uint32,
)
from tlxc.passes.axis import DIVISIBILITY_CAP, AxisInfo, analyse

I32 = Scalar(int32)


class Kernel:
    """Shorthand for building modules."""

    def __init__(self) -> None:
        self.module = Module("k")
        self.b = Builder(self.module)

    def param(self, name: str, type, align: int = 0, divisible: int = 1) -> Value:
        v = Value(type, None, 0, name)
        self.module.params.append(Param(v, align, divisible))
        return v

    def const(self, value: int, dtype=int32) -> Value:
        return self.b.emit("constant", type=Scalar(dtype), value=value)

    def pid(self, axis: int = 0) -> Value:
        return self.b.emit("program_id", type=I32, axis=axis)

    def arange(self, n: int, start: int = 0) -> Value:
        return self.b.emit("arange", type=Tensor((n,), int32), start=start, end=start + n)

    def splat(self, v: Value, *shape: int) -> Value:
        return self.b.emit("splat", v, type=Tensor(shape, element_of(v.type)))

    def op(self, kind: str, *operands: Value, **attrs) -> Value:
        return self.b.emit(kind, *operands, type=operands[0].type, **attrs)

    def cmp(self, pred: str, a: Value, b: Value) -> Value:
        return self.b.emit("cmp", a, b, type=like(a.type, int1), pred=pred)

    def cast(self, v: Value, dtype) -> Value:
        return self.b.emit("cast", v, type=like(v.type, dtype))

    def expand(self, v: Value, axis: int) -> Value:
        s = shape_of(v.type)
        return self.b.emit("expand_dims", v, type=Tensor((*s[:axis], 1, *s[axis:]), element_of(v.type)), axis=axis)

    def broadcast(self, v: Value, *shape: int) -> Value:
        return self.b.emit("broadcast", v, type=Tensor(shape, element_of(v.type)))

    def reshape(self, v: Value, *shape: int) -> Value:
        return self.b.emit("reshape", v, type=Tensor(shape, element_of(v.type)))

    def offsets(self, n: int) -> Value:
        """pid * n + arange(n)"""
        start = self.op("mul", self.pid(), self.const(n))
        return self.op("add", self.splat(start, n), self.arange(n))


def facts(info: AxisInfo, v: Value, dim: int = 0) -> tuple[int, int, int]:
    return info.contiguity(v, dim), info.divisibility(v, dim), info.constancy(v, dim)


def test_vector_add_offsets_mask_and_pointer() -> None:
    k = Kernel()
    n = k.param("n", I32, divisible=16)
    x = k.param("x", Pointer(float16), align=16)
    offs = k.offsets(1024)
    mask = k.cmp("lt", offs, k.splat(n, 1024))
    p = k.b.emit("addptr", k.splat(x, 1024), offs, type=Tensor((1024,), Pointer(float16)))
    info = analyse(k.module)
    assert facts(info, offs) == (1024, 1024, 1)
    assert facts(info, mask) == (1, 1, 16)
    assert facts(info, p) == (1024, 16, 1)


def test_undeclared_alignment_is_never_assumed() -> None:
    k = Kernel()
    n, x = k.param("n", I32), k.param("x", Pointer(float16))
    offs = k.offsets(1024)
    mask = k.cmp("lt", offs, k.splat(n, 1024))
    p = k.b.emit("addptr", k.splat(x, 1024), offs, type=Tensor((1024,), Pointer(float16)))
    info = analyse(k.module)
    assert facts(info, mask) == (1, 1, 1)
    assert facts(info, p) == (1024, 2, 1)


def matrix_pointers(k: Kernel, rows: int, cols: int, stride: Value, base: Value, wide: bool = True) -> Value:
    r, c = k.expand(k.arange(rows), 1), k.expand(k.arange(cols), 0)
    if wide:
        r, c, stride = (k.cast(v, int64) for v in (r, c, stride))
    r = k.op("mul", r, k.splat(stride, rows, 1))
    offs = k.op("add", k.broadcast(r, rows, cols), k.broadcast(c, rows, cols))
    return k.b.emit("addptr", k.splat(base, rows, cols), offs, type=Tensor((rows, cols), Pointer(float16)))


def test_matrix_rows_are_contiguous_and_aligned_by_the_stride() -> None:
    k = Kernel()
    p = matrix_pointers(k, 64, 32, k.param("s", I32, divisible=16), k.param("x", Pointer(float16), align=16))
    t = k.b.emit("permute", p, type=Tensor((32, 64), Pointer(float16)), order=(1, 0))
    s, x = k.param("t", I32, divisible=16), k.param("y", Pointer(float16), align=16)
    narrow = matrix_pointers(k, 64, 32, s, x, wide=False)
    info = analyse(k.module)
    assert facts(info, narrow, 1) == (16, 16, 1)  # the 32-bit offset may wrap between two groups
    assert facts(info, p, 1) == (32, 16, 1)
    assert info.contiguity(p, 0) == 1
    assert info.order(p) == (1, 0)
    assert info.order(t) == (0, 1)


def test_carried_pointer_keeps_alignment_of_its_step() -> None:
    k = Kernel()
    x, n = k.param("x", Pointer(float16), align=16), k.param("n", I32)
    p = matrix_pointers(k, 16, 64, k.param("s", I32, divisible=16), x)
    body = Region([Value(I32), Value(p.type)])
    lo, step, by = k.const(0), k.const(64), k.const(64)
    loop = k.b.op("for", [lo, n, step, p], [p.type], [body])
    k.b.stack.append(body)
    after = k.b.emit("addptr", body.args[1], k.splat(by, 16, 64), type=p.type)
    k.b.op("yield", [after])
    info = analyse(k.module)
    assert facts(info, body.args[1], 1) == facts(info, loop.results[0], 1) == (64, 16, 1)
    assert info.divisibility(body.args[0]) == 64
    assert info.range(body.args[0]) == (0, 2**31 - 2)


def test_carried_integer_falls_to_what_the_body_keeps() -> None:
    k = Kernel()
    body = Region([Value(I32), Value(I32)])
    loop = k.b.op("for", [k.const(0), k.param("n", I32), k.const(1), k.const(64)], [I32], [body])
    k.b.stack.append(body)
    k.b.op("yield", [k.op("add", body.args[1], k.const(24))])
    info = analyse(k.module)
    assert info.divisibility(loop.results[0]) == 8
    assert info.range(loop.results[0]) == int32.limits


def test_extents_that_are_not_powers_of_two() -> None:
    k = Kernel()
    a = k.arange(80)
    s = k.splat(k.const(3), 80)
    info = analyse(k.module)
    assert facts(info, a) == (16, 16, 1)
    assert info.constancy(s) == 16


@pytest.mark.parametrize("pred, want", [("lt", 32), ("ge", 32), ("le", 1), ("gt", 1), ("eq", 1)])
def test_comparison_with_a_constant(pred: str, want: int) -> None:
    k = Kernel()
    mask = k.cmp(pred, k.offsets(128), k.splat(k.const(96), 128))
    assert analyse(k.module).constancy(mask) == want


def test_ranges() -> None:
    k = Kernel()
    pid, n = k.pid(0), k.param("n", I32)
    small = k.op("mul", k.pid(1), k.const(128))
    big = k.op("mul", pid, k.const(128))
    inside = k.op("rem", pid, k.const(8))
    natural = k.op("max", n, k.const(0))
    wide = k.op("mul", k.cast(pid, int64), k.const(128, int64))
    info = analyse(k.module)
    assert info.range(pid) == (0, 2**31 - 2)
    assert info.range(n) == int32.limits
    assert info.range(small) == (0, 65534 * 128)
    assert info.range(big) is None
    assert info.range(inside) == (0, 7)
    assert info.range(natural) == (0, 2**31 - 1)
    assert info.range(wide) == (0, (2**31 - 2) * 128)


def test_zero_is_divisible_by_everything() -> None:
    k = Kernel()
    z = k.splat(k.const(0), 8)
    assert analyse(k.module).divisibility(z) == DIVISIBILITY_CAP


def test_reshape_join_split() -> None:
    k = Kernel()
    a = k.arange(64)
    r = k.reshape(a, 8, 8)
    j = k.b.emit("join", r, r, type=Tensor((8, 8, 2), int32))
    s = k.b.op("split", [j], [Tensor((8, 8), int32)] * 2).results[1]
    info = analyse(k.module)
    assert facts(info, r, 1) == (8, 8, 1)
    assert info.constancy(j, 2) == 2
    assert facts(info, s, 1) == (8, 8, 1)


# ------------------------------------------------------------------------------------------------ soundness
def check_claims(info: AxisInfo, v: Value, x: np.ndarray) -> None:
    """Every claim about `v` against the number it has in one run."""
    e = element_of(v.type)
    pointer = isinstance(e, Pointer)
    if not pointer and e.is_float:
        return
    bits, unit = (64, e.dtype.bytes) if pointer else (e.bits, 1)
    wide = np.asarray(x).astype(object)
    r = info.range(v)
    if r is not None:
        assert all(r[0] <= int(n) <= r[1] for n in np.ravel(wide)), (v, r, x)
    for d in range(max(1, wide.ndim)):
        columns = np.moveaxis(wide, d, -1).reshape(-1, wide.shape[d]) if wide.ndim else wide.reshape(1, 1)
        c, q, s = facts(info, v, d)
        claim = f"{v.op} {v}, dimension {d}: {c, q, s}\n{x}"
        for row in columns:
            for i in range(0, len(row), c):
                assert int(row[i]) % min(q, 1 << bits) == 0, claim
                steps = [int(n) - int(row[i]) - j * unit for j, n in enumerate(row[i : i + c])]
                assert all(n % (1 << bits) == 0 for n in steps), claim
            for i in range(0, len(row), s):
                assert all(n == row[i] for n in row[i : i + s]), claim


class Program:
    """A random program over tiles of one shape and scalars, with its argument values."""

    SHAPES = ((16,), (8, 4), (12,), (4, 8))
    DTYPES = (int32, int32, int32, int64, uint32, int8, uint8)

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.k = Kernel()
        self.shape = self.r.choice(self.SHAPES)
        self.arguments: dict[str, int] = {}
        self.scalars: list[Value] = [self.k.pid(1)]
        for i in range(2):
            divisible = self.r.choice((1, 4, 16))
            self.scalars.append(self.k.param(f"n{i}", I32, divisible=divisible))
            self.arguments[f"n{i}"] = divisible * self.r.choice((0, 1, -1, 3, 7, self.r.randrange(-(2**27), 2**27 - 1)))
        self.scalars += [self.constant(int32) for _ in range(2)]
        self.tiles = [self.line(), self.line()]
        self.tiles.append(self.k.splat(self.r.choice(self.scalars), *self.shape))

    def constant(self, dtype) -> Value:
        lo, hi = dtype.limits
        value = self.r.choice((0, 1, 2, 3, 4, 8, 12, 16, 24, 31, 64, -1, -8, -3, lo, hi, self.r.randrange(lo, hi)))
        return self.k.const(min(max(value, lo), hi), dtype)

    def line(self) -> Value:
        """arange along one dimension, broadcast to the shape."""
        k, d = self.k, self.r.randrange(len(self.shape))
        v = k.arange(self.shape[d], self.r.choice((0, 0, 4, 3, 16)))
        for other in range(len(self.shape)):
            if other != d:
                v = k.expand(v, other)
        return k.broadcast(v, *self.shape) if len(self.shape) > 1 else v

    def pick(self, dtype) -> Value:
        """A tile of a dtype: an existing one, a constant, or a cast."""
        same = [v for v in self.tiles if element_of(v.type) == dtype]
        if same and self.r.random() < 0.6:
            return self.r.choice(same)
        if self.r.random() < 0.6:
            return self.k.splat(self.constant(dtype), *self.shape)
        return self.k.cast(self.r.choice(self.tiles), dtype)

    def step(self) -> None:
        r, k = self.r, self.k
        a = r.choice(self.tiles)
        dtype = element_of(a.type)
        kind = r.choice("add sub mul idiv rem and or xor shl shr min max cmp select cast neg abs twist".split())
        if dtype == int1:
            kind = r.choice("and or xor select cast".split())
        if kind in ("idiv", "rem"):
            n = r.choice((1, 2, 3, 4, 8, 16, 5, -2, -4))
            by = k.const(abs(n) if dtype.kind == "uint" else n, dtype)
            self.tiles.append(k.op(kind, a, k.splat(by, *self.shape)))
        elif kind in ("shl", "shr"):
            count = k.const(r.randrange(0, min(6, dtype.bits)), dtype)
            self.tiles.append(k.op(kind, a, k.splat(count, *self.shape)))
        elif kind == "cmp":
            self.tiles.append(k.cmp(r.choice(("eq", "ne", "lt", "le", "gt", "ge")), a, self.pick(dtype)))
        elif kind == "select":
            self.tiles.append(k.b.emit("select", self.pick(int1), a, self.pick(dtype), type=a.type))
        elif kind == "cast":
            self.tiles.append(k.cast(a, r.choice(self.DTYPES)))
        elif kind in ("neg", "abs"):
            if dtype.kind == "int":
                self.tiles.append(k.op(kind, a))
        elif kind == "twist":
            self.twist(a)
        else:
            b = self.pick(dtype)
            self.tiles.append(k.op(kind, *((a, b) if r.random() < 0.5 else (b, a))))

    def twist(self, a: Value) -> None:
        """Shape operations that come back to the shape."""
        k, flat = self.k, int(np.prod(self.shape))
        e, way = element_of(a.type), self.r.randrange(3)
        if way == 0:
            mid = k.reshape(a, *self.r.choice(((flat,), (flat // 4, 4), (2, flat // 2), (1, flat, 1))))
            self.tiles.append(k.reshape(mid, *self.shape))
        elif way == 1:
            j = k.b.emit("join", a, self.pick(e), type=Tensor((*self.shape, 2), e))
            k.reshape(j, flat * 2)
            self.tiles += k.b.op("split", [j], [a.type, a.type]).results
        elif len(self.shape) == 2:
            t = k.b.emit("permute", a, type=Tensor(self.shape[::-1], e), order=(1, 0))
            self.tiles.append(k.reshape(t, *self.shape))

    def loop(self) -> None:
        """A loop that carries two tiles and steps on what it has."""
        a, b = self.r.choice(self.tiles), self.r.choice(self.tiles)
        lo, hi, step = (self.k.const(n) for n in (self.r.choice((0, 4)), self.r.choice((8, 17)), self.r.choice((1, 4))))
        body = Region([Value(I32), Value(a.type), Value(b.type)])
        loop = self.k.b.op("for", [lo, hi, step, a, b], [a.type, b.type], [body])
        self.k.b.stack.append(body)
        outer, self.tiles = self.tiles, [*self.tiles, *body.args[1:], self.k.splat(body.args[0], *self.shape)]
        for _ in range(4):
            self.step()
        last = {v.type: v for v in self.tiles}
        self.k.b.op("yield", [last[a.type], last[b.type]])
        self.k.b.stack.pop()
        self.tiles = [*outer, *loop.results]

    def pointers(self) -> None:
        x = self.k.param("x", Pointer(float16), align=16)
        self.arguments["x"] = 1 << 20
        p = self.k.splat(x, *self.shape)
        for v in [v for v in self.tiles if element_of(v.type) in (int32, int64)][-4:]:
            p = self.k.b.emit("addptr", p, v, type=p.type)


@pytest.mark.parametrize("seed", range(150))
def test_every_claim_holds_on_random_programs(seed: int) -> None:
    program = Program(seed)
    for _ in range(6):
        program.step()
    program.loop()
    for _ in range(4):
        program.step()
    program.pointers()
    info = analyse(program.k.module)
    run = Machine(program.k.module, program.arguments, (5, 3, 9))
    for v, x in run.seen:
        check_claims(info, v, x)


# ------------------------------------------------------------------------------------------------ tasks
def test_tasks_are_walked_and_threads_have_numbers_of_their_own() -> None:
    k = Kernel()
    inner = Region()
    k.b.stack.append(inner)
    rank = k.b.emit("cluster_rank", type=I32)
    size = k.b.emit("cluster_size", type=I32)
    line = k.b.emit("arange", type=Tensor((64,), int32), start=0, end=64)
    thread = k.b.emit("thread_id", type=Scalar(int32, "thread"), axis=0)
    spread = k.b.emit("splat", thread, type=Tensor((64,), int32))
    k.b.stack.pop()
    k.b.op("async_tasks", regions=[inner], num_warps=(4,), start_warp=(0,), num_regs=(0,), replica=(0,))
    info = analyse(k.module)
    assert info.range(rank) == (0, 15) and info.range(size) == (1, 16)
    assert info.contiguity(line) == 64 and info.constancy(spread) == 1
