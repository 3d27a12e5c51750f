"""Kernels for the tests of layout assignment, built by hand, with what a careful person expects of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import tlxc.ir.ops  # noqa: F401  (fills the table)
from tlxc.errors import Location
from tlxc.ir.conversion import FREE, classify
from tlxc.ir.core import Builder, Module, Op, Param, Region, Value
from tlxc.ir.types import (
    DType,
    Pointer,
    Scalar,
    Tensor,
    element_of,
    float16,
    float32,
    int1,
    int32,
    shape_of,
)


class Kernel:
    """A builder with the idioms of a kernel author; each op has its own line number."""

    def __init__(self, warps: int = 4) -> None:
        self.module = Module("kernel", num_warps=warps)
        self.b = Builder(self.module)
        self.line = 0
        self.n = self.param(Scalar(int32), divisible=16)

    def param(self, type: Pointer | Scalar, **facts: int) -> Value:
        v = Value(type, name=f"p{len(self.module.params)}")
        self.module.params.append(Param(v, **facts))
        return v

    def emit(self, kind: str, *operands: Value | None, type, name: str = "", **attrs) -> Value:
        self.line += 1
        self.b.loc = Location("kernel.py", self.line)
        v = self.b.emit(kind, *operands, type=type, **attrs)
        v.name = name
        return v

    # -- scalars and cheap tiles
    def const(self, value: float, dtype: DType = int32) -> Value:
        return self.emit("constant", type=Scalar(dtype), value=value)

    def full(self, shape: tuple[int, ...], value: float = 0.0, dtype: DType = float32) -> Value:
        return self.splat(self.const(value, dtype), shape)

    def splat(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.emit("splat", x, type=Tensor(shape, element_of(x.type)))

    def arange(self, n: int) -> Value:
        return self.emit("arange", type=Tensor((n,), int32), start=0, end=n)

    # -- relabelling
    def expand(self, x: Value, axis: int) -> Value:
        s = shape_of(x.type)
        return self.emit("expand_dims", x, type=Tensor((*s[:axis], 1, *s[axis:]), element_of(x.type)), axis=axis)

    def to(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.emit("broadcast", x, type=Tensor(shape, element_of(x.type)))

    def col(self, x: Value, shape: tuple[int, ...]) -> Value:
        """[m] to [m, n]"""
        return self.to(self.expand(x, 1), shape)

    def row(self, x: Value, shape: tuple[int, ...]) -> Value:
        """[n] to [m, n]"""
        return self.to(self.expand(x, 0), shape)

    def permute(self, x: Value, order: tuple[int, ...] = (1, 0)) -> Value:
        s = shape_of(x.type)
        return self.emit("permute", x, type=Tensor(tuple(s[d] for d in order), element_of(x.type)), order=order)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.emit("reshape", x, type=Tensor(shape, element_of(x.type)))

    def join(self, x: Value, y: Value) -> Value:
        return self.emit("join", x, y, type=Tensor((*shape_of(x.type), 2), element_of(x.type)))

    def split(self, x: Value) -> list[Value]:
        t = Tensor(shape_of(x.type)[:-1], element_of(x.type))
        return self.b.op("split", (x,), (t, t)).results

    def pin(self, x: Value, layout) -> Value:
        return self.emit("require_layout", x, type=x.type, layout=layout)

    # -- arithmetic
    def op(self, kind: str, *operands: Value, dtype: DType | None = None, name: str = "", **attrs) -> Value:
        t = operands[0].type
        element = dtype or element_of(t)
        type = Tensor(t.shape, element) if isinstance(t, Tensor) else Scalar(element)
        return self.emit(kind, *operands, type=type, name=name, **attrs)

    def cast(self, x: Value, dtype: DType, name: str = "") -> Value:
        return self.op("cast", x, dtype=dtype, name=name)

    def less(self, a: Value, b: Value) -> Value:
        return self.op("cmp", a, b, dtype=int1, pred="lt")

    def reduce(self, x: Value, axis: int, combine: str = "sum", name: str = "") -> Value:
        s = shape_of(x.type)
        kept = (*s[:axis], *s[axis + 1 :])
        t = Tensor(kept, element_of(x.type)) if kept else Scalar(element_of(x.type))
        return self.emit("reduce", x, type=t, name=name, axis=axis, combine=combine)

    # -- memory
    def pointers(self, shape: tuple[int, ...], dtype: DType = float16, order: tuple[int, ...] | None = None) -> Value:
        """Addresses of a tile of an aligned array of unknown row length; `order` (1, 0) is row-major."""
        base = self.param(Pointer(dtype), align=16)
        if len(shape) == 1:
            return self.addptr(self.splat(base, shape), self.arange(shape[0]))
        slow, fast = (0, 1) if (order or (1, 0))[0] == 1 else (1, 0)
        stride = self.splat(self.n, (shape[slow],))
        outer = self.op("mul", self.arange(shape[slow]), stride)
        spread = [self.col, self.row]
        offsets = self.op("add", spread[slow](outer, shape), spread[fast](self.arange(shape[fast]), shape))
        return self.addptr(self.splat(base, shape), offsets)

    def addptr(self, pointer: Value, offset: Value) -> Value:
        return self.emit("addptr", pointer, offset, type=pointer.type)

    def advance(self, pointer: Value, by: Value | None = None) -> Value:
        return self.addptr(pointer, self.splat(by or self.n, shape_of(pointer.type)))

    def load(self, pointer: Value, mask: Value | None = None, name: str = "") -> Value:
        e = element_of(pointer.type)
        assert isinstance(e, Pointer)
        return self.emit("load", pointer, mask, None, type=Tensor(shape_of(pointer.type), e.dtype), name=name)

    def store(self, pointer: Value, value: Value, mask: Value | None = None) -> None:
        self.line += 1
        self.b.loc = Location("kernel.py", self.line)
        self.b.op("store", (pointer, value, mask))

    def dot(self, a: Value, b: Value, acc: Value, name: str = "") -> Value:
        return self.emit("dot", a, b, acc, type=acc.type, name=name)

    # -- structure
    @contextmanager
    def inside(self, region: Region):
        self.b.stack.append(region)
        yield
        self.b.stack.pop()

    def loop(self, inits: Sequence[Value], body: Callable, trips: int = 64, names: str = "") -> list[Value]:
        bounds = [self.const(v) for v in (0, trips, 1)]
        labels = names.split() or [""] * len(inits)
        args = [Value(Scalar(int32), name="i")]
        args += [Value(v.type, None, i + 1, n) for i, (v, n) in enumerate(zip(inits, labels))]
        region = Region(args)
        with self.inside(region):
            out = body(*args[1:])
            self.b.op("yield", out)
        return self.b.op("for", (*bounds, *inits), [v.type for v in inits], [region]).results

    def loop_while(self, inits: Sequence[Value], body: Callable) -> list[Value]:
        """Runs while a loaded flag is set."""
        flag = self.param(Pointer(int32))
        cond, region = (Region([Value(v.type, None, i) for i, v in enumerate(inits)]) for _ in range(2))
        with self.inside(cond):
            x = self.emit("load", flag, None, None, type=Scalar(int32))
            self.b.op("yield", (self.less(x, self.const(1)),))
        with self.inside(region):
            self.b.op("yield", body(*region.args))
        return self.b.op("while", inits, [v.type for v in inits], [cond, region]).results

    def branch(self, then: Callable, otherwise: Callable) -> list[Value]:
        cond = self.less(self.emit("program_id", type=Scalar(int32), axis=0), self.n)
        regions = []
        for fn in (then, otherwise):
            region = Region()
            with self.inside(region):
                self.b.op("yield", fn())
            regions.append(region)
        types = [v.type for v in regions[0].terminator.inputs]
        return self.b.op("if", (cond,), types, regions).results


Conversions = Counter[tuple[str, str]]


def conversions(module: Module) -> Conversions:
    """(class, "in" or "out" of loops) of every convert_layout that is not free."""
    out: Conversions = Counter()

    def walk(region: Region, place: str) -> None:
        for op in region.ops:
            if op.kind == "convert_layout":
                kind = classify(op.inputs[0].type.layout, op.result.type.layout)[0]  # type: ignore[union-attr, arg-type]
                if kind not in FREE:
                    out[kind, place] += 1
            for r in op.regions:
                walk(r, "in" if op.kind in ("for", "while") else place)

    walk(module.body, "out")
    return out


def converted(module: Module) -> list[Op]:
    return [op for op in module.walk() if op.kind == "convert_layout"]


@dataclass
class Case:
    build: Callable[[], Kernel]
    expect: dict[tuple[str, str], int]
    why: str


CASES: dict[str, Case] = {}


def case(expect: dict[tuple[str, str], int], why: str):
    def wrap(fn: Callable[[], Kernel]) -> Callable[[], Kernel]:
        CASES[fn.__name__] = Case(fn, expect, why)
        return fn

    return wrap


@case({}, "one 16-byte layout everywhere")
def vector_add() -> Kernel:
    k = Kernel()
    mask = k.less(k.arange(1024), k.splat(k.n, (1024,)))
    x, y = (k.load(k.pointers((1024,)), mask, name=n) for n in "xy")
    k.store(k.pointers((1024,)), k.op("add", x, y), mask)
    return k


@case({}, "load, max, exp, sum, store in one layout, a row per warp; statistics in its slice")
def row_softmax() -> Kernel:
    k, shape = Kernel(), (4, 1024)
    mask = k.row(k.less(k.arange(1024), k.splat(k.n, (1024,))), shape)
    x = k.cast(k.load(k.pointers(shape), mask, name="x"), float32)
    m = k.reduce(x, 1, "max", name="max")
    p = k.op("exp2", k.op("sub", x, k.col(m, shape)), name="p")
    s = k.reduce(p, 1, name="sum")
    k.store(k.pointers(shape), k.cast(k.op("div", p, k.col(s, shape)), float16), mask)
    return k


def _matmul(m: int, n: int, kk: int) -> Kernel:
    k = Kernel()
    pa, pb = k.pointers((m, kk)), k.pointers((kk, n))

    def body(acc: Value, pa: Value, pb: Value) -> list[Value]:
        a, b = k.load(pa, name="a"), k.load(pb, name="b")
        return [k.dot(a, b, acc, "acc"), k.advance(pa), k.advance(pb)]

    acc, _, _ = k.loop([k.full((m, n)), pa, pb], body, 64, "acc pa pb")
    bias = k.cast(k.load(k.pointers((n,)), name="bias"), float32)
    k.store(k.pointers((m, n)), k.cast(k.op("add", acc, k.row(bias, (m, n))), float16, "out"))
    return k


@case({("shared", "out"): 1}, "operands staged to shared; one f16 trip before the store; bias from the result's slice")
def matmul_wgmma() -> Kernel:
    return _matmul(128, 128, 64)


@case({("shared", "in"): 2, ("shared", "out"): 1}, "operands to fragments through shared each step")
def matmul_mma_sync() -> Kernel:
    return _matmul(128, 128, 32)


@case({("shuffle", "out"): 2}, "16-byte loads; sums unfinished in the loop, finished and spread over lanes after it")
def layer_norm_bwd() -> Kernel:
    k, shape = Kernel(), (32, 128)

    def body(dw: Value, db: Value, p: Value, q: Value) -> list[Value]:
        x, dy = k.cast(k.load(p, name="x"), float32), k.cast(k.load(q, name="dy"), float32)
        dw = k.op("add", dw, k.reduce(k.op("mul", x, dy), 0, name="dws"), name="dw_next")
        db = k.op("add", db, k.reduce(dy, 0, name="dbs"), name="db_next")
        return [dw, db, k.advance(p), k.advance(q)]

    start = [k.full((128,)), k.full((128,)), k.pointers(shape), k.pointers(shape)]
    dw, db, _, _ = k.loop(start, body, 64, "dw db p q")
    for v in (dw, db):
        k.store(k.pointers((128,), float32), v)
    return k


@case({("shuffle", "out"): 1}, "row sums inside a warp; column sums unfinished in the loop; one trip after it at most")
def layer_norm_bwd_rows() -> Kernel:
    k, shape = Kernel(), (16, 512)

    def body(dw: Value, p: Value, q: Value) -> list[Value]:
        x, dy = k.cast(k.load(p, name="x"), float32), k.cast(k.load(q, name="dy"), float32)
        c = k.reduce(k.op("mul", x, dy), 1, name="c")
        k.store(p, k.cast(k.op("sub", dy, k.op("mul", x, k.col(c, shape))), float16))
        dw = k.op("add", dw, k.reduce(k.op("mul", x, dy), 0, name="dws"), name="dw_next")
        return [dw, k.advance(p), k.advance(q)]

    dw, _, _ = k.loop([k.full((512,)), k.pointers(shape), k.pointers(shape)], body, 64, "dw p q")
    k.store(k.pointers((512,), float32), dw)
    return k


@case({("shared", "out"): 1}, "both accesses vectors; one trip without conflicts")
def transpose_tile() -> Kernel:
    k, shape = Kernel(), (64, 64)
    k.store(k.pointers(shape), k.permute(k.load(k.pointers(shape), name="x")))
    return k


@case({("shared", "out"): 1}, "the carried value meets row-major loads, then column-major ones: convert once, between")
def two_loops() -> Kernel:
    k, shape = Kernel(), (64, 64)
    p, q = k.pointers(shape, float32), k.pointers(shape, float32, (0, 1))
    (x,) = k.loop([k.full(shape)], lambda c: [k.op("add", c, k.load(p, name="r"))], 100, "c1")
    (y,) = k.loop_while([x], lambda c: [k.op("add", c, k.load(q, name="q"))])
    k.store(k.pointers(shape, float32, (0, 1)), y)
    return k


@case({("shared", "in"): 1}, "a carried f32 tile fed by a row-major f16 load and written column-major every step")
def one_loop_two_accesses() -> Kernel:
    k, shape = Kernel(), (64, 64)
    p, q = k.pointers(shape), k.pointers(shape, float32, (0, 1))

    def body(c: Value) -> list[Value]:
        c = k.op("add", c, k.cast(k.load(p, name="x"), float32, "x32"), name="c_next")
        k.store(q, c)
        return [c]

    k.loop([k.full(shape)], body, 64, "c")
    return k


@case({("shared", "in"): 1, ("shared", "out"): 1}, "the narrow loaded tile moves, never the carried accumulator")
def dot_times_load() -> Kernel:
    k, (m, n, kk) = Kernel(), (64, 128, 64)
    a, b, p = k.load(k.pointers((m, kk))), k.load(k.pointers((kk, n))), k.pointers((m, n))

    def body(acc: Value) -> list[Value]:
        acc = k.dot(a, b, acc, "dot")
        return [k.op("mul", acc, k.cast(k.load(p, name="x"), float32, "x32"), name="scaled")]

    (acc,) = k.loop([k.full((m, n))], body, 64, "acc")
    k.store(k.pointers((m, n)), k.cast(acc, float16))
    return k
