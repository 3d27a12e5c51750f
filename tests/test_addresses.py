"""Wide addresses: bug case 5, what stays 32 bit, pointers carried by loops, and random index expressions."""

from __future__ import annotations

import random

import numpy as np
import pytest
from test_axis import Kernel
from tile_eval import Machine

from tlxc.ir.core import Module, Value
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.types import Pointer, Scalar, Tensor, float16, int32, int64
from tlxc.ir.verifier import verify
from tlxc.passes.addresses import widen_addresses
from tlxc.passes.simplify import simplify
from tlxc.targets import get_target

SM90 = get_target("sm_90")


def widened(text: str) -> Module:
    module = parse_module(text)
    verify(module)
    simplify(module, SM90)
    widen_addresses(module, SM90)
    simplify(module, SM90)
    verify(module)
    once = print_module(module)
    widen_addresses(module, SM90)
    simplify(module, SM90)
    verify(module)
    assert print_module(module) == once, "the pass is idempotent"
    return module


def body(module: Module) -> list[str]:
    return [line.strip() for line in print_module(module).splitlines()[1:-1]]


ROW = """module @k(%x: ptr<f16> align 16, %row: i32, %length: i32) warps 4 {
  %0 = mul %row, %length : i32
  %1 = splat %0 : tensor<128xi32>
  %2 = arange {start = 0, end = 128} : tensor<128xi32>
  %3 = add %1, %2 : tensor<128xi32>
  %4 = splat %x : tensor<128xptr<f16>>
  %5 = addptr %4, %3 : tensor<128xptr<f16>>
  %6 = load %5, _, _ : tensor<128xf16>
  store %5, %6, _
}
"""


def test_row_offsets_past_two_gib() -> None:
    """Bug case 5: row 524288 of length 4096 starts at element 2**31."""
    module = widened(ROW)
    run = Machine(module, {"x": 1 << 40, "row": 524288, "length": 4096})
    want = (1 << 40) + 2 * (524288 * 4096 + np.arange(128))
    assert all(np.array_equal(address, want) for _, address in run.accesses)


def test_uniform_part_is_scalar_and_lane_part_is_narrow() -> None:
    assert body(widened(ROW)) == [
        "%0 = arange {start = 0, end = 128} : tensor<128xi32>",
        "%1 = cast %row : i64",
        "%2 = cast %length : i64",
        "%3 = mul %1, %2 : i64",
        "%4 = addptr %x, %3 : ptr<f16>",
        "%5 = splat %4 : tensor<128xptr<f16>>",
        "%6 = addptr %5, %0 : tensor<128xptr<f16>>",
        "%7 = load %6, _, _ : tensor<128xf16>",
        "store %6, %7, _",
    ]


def test_scalar_addresses() -> None:
    module = widened("""module @k(%x: ptr<i32>, %row: i32, %length: i32) warps 4 {
      %0 = mul %row, %length : i32
      %1 = addptr %x, %0 : ptr<i32>
      store %1, %row, _
    }""")
    run = Machine(module, {"x": 1 << 40, "row": -524288, "length": 8192})
    assert run.accesses[0][1] == (1 << 40) - 4 * 524288 * 8192


def test_lane_part_is_wide_where_the_stride_is_unknown() -> None:
    module = widened("""module @k(%x: ptr<f16>, %stride: i32) warps 4 {
      %0 = arange {start = 0, end = 64} : tensor<64xi32>
      %1 = splat %stride : tensor<64xi32>
      %2 = mul %0, %1 : tensor<64xi32>
      %3 = splat %x : tensor<64xptr<f16>>
      %4 = addptr %3, %2 : tensor<64xptr<f16>>
      %5 = load %4, _, _ : tensor<64xf16>
      store %4, %5, _
    }""")
    run = Machine(module, {"x": 0, "stride": 2**31 - 1})
    assert np.array_equal(run.accesses[0][1], 2 * np.arange(64) * (2**31 - 1))


def test_leaves_keep_their_wrapped_value() -> None:
    """A remainder of a sum that wraps is what 32-bit arithmetic gives."""
    text = """module @k(%x: ptr<f16>, %a: i32, %n: i32) warps 4 {
      %0 = arange {start = 0, end = 64} : tensor<64xi32>
      %1 = splat %a : tensor<64xi32>
      %2 = add %0, %1 : tensor<64xi32>
      %3 = splat %n : tensor<64xi32>
      %4 = rem %2, %3 : tensor<64xi32>
      %5 = splat %x : tensor<64xptr<f16>>
      %6 = addptr %5, %4 : tensor<64xptr<f16>>
      %7 = load %6, _, _ : tensor<64xf16>
      store %6, %7, _
    }"""
    arguments = {"x": 1 << 20, "a": 2**31 - 5, "n": 1000}
    plain, wide = Machine(parse_module(text), arguments), Machine(widened(text), arguments)
    assert np.array_equal(plain.accesses[0][1], wide.accesses[0][1])


MATMUL = """module @k(%a: ptr<f16> align 16, %K: i32, %stride: i32 divisible 16) warps 4 {
  %zero = constant {value = 0} : i32
  %bk = constant {value = 32} : i32
  %bm = constant {value = 64} : i32
  %pid = program_id {axis = 0} : i32
  %m = mul %pid, %bm : i32
  %ms = splat %m : tensor<64xi32>
  %r = arange {start = 0, end = 64} : tensor<64xi32>
  %rows = add %ms, %r : tensor<64xi32>
  %rows1 = expand_dims %rows {axis = 1} : tensor<64x1xi32>
  %ss = splat %stride : tensor<64x1xi32>
  %ro = mul %rows1, %ss : tensor<64x1xi32>
  %c = arange {start = 0, end = 32} : tensor<32xi32>
  %c1 = expand_dims %c {axis = 0} : tensor<1x32xi32>
  %rb = broadcast %ro : tensor<64x32xi32>
  %cb = broadcast %c1 : tensor<64x32xi32>
  %offs = add %rb, %cb : tensor<64x32xi32>
  %as = splat %a : tensor<64x32xptr<f16>>
  %p0 = addptr %as, %offs : tensor<64x32xptr<f16>>
  %end = for %zero, %K, %bk, %p0 : tensor<64x32xptr<f16>> {
  ^(%i: i32, %p: tensor<64x32xptr<f16>>):
    %v = load %p, _, _ : tensor<64x32xf16>
    store %p, %v, _
    %by = splat %bk : tensor<64x32xi32>
    %next = addptr %p, %by : tensor<64x32xptr<f16>>
    yield %next
  }
  %w = load %end, _, _ : tensor<64x32xf16>
  store %end, %w, _
}
"""


def test_loops_carry_a_scalar_pointer() -> None:
    module = widened(MATMUL)
    (loop,) = [op for op in module.walk() if op.kind == "for"]
    assert [v.type for v in loop.results] == [Pointer(float16)]
    kinds = [op.kind for op in loop.regions[0].ops]
    assert kinds == ["splat", "addptr", "load", "store", "addptr", "yield"]
    program, stride = 2**24, 2**17
    run = Machine(module, {"a": 1 << 20, "K": 96, "stride": stride}, (program, 0, 0))
    first = (program * 64 + np.arange(64)[:, None]) * stride + np.arange(32)
    want = [(1 << 20) + 2 * (first + 32 * k) for k in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert all(np.array_equal(got, w) for (_, got), w in zip(run.accesses, want)) and len(run.accesses) == len(want)


def test_no_trips_and_while_loops() -> None:
    module = widened(MATMUL)
    run = Machine(module, {"a": 0, "K": 0, "stride": 64})
    assert np.array_equal(run.accesses[0][1], 2 * (np.arange(64)[:, None] * 64 + np.arange(32)))
    loop = """module @k(%x: ptr<i32>, %n: i32) warps 4 {
      %one = constant {value = 1} : i32
      %r = arange {start = 0, end = 32} : tensor<32xi32>
      %xs = splat %x : tensor<32xptr<i32>>
      %p0 = addptr %xs, %r : tensor<32xptr<i32>>
      %e, %m = while %p0, %n : tensor<32xptr<i32>>, i32 {
      ^(%p: tensor<32xptr<i32>>, %j: i32):
        %zero = constant {value = 0} : i32
        %go = cmp %j, %zero {pred = "gt"} : i1
        yield %go
      } {
      ^(%p: tensor<32xptr<i32>>, %j: i32):
        %v = load %p, _, _ : tensor<32xi32>
        store %p, %v, _
        %ns = splat %n : tensor<32xi32>
        %q = addptr %p, %ns : tensor<32xptr<i32>>
        %q2 = addptr %q, %ns : tensor<32xptr<i32>>
        %k = sub %j, %one : i32
        yield %q2, %k
      }
      %v = load %e, _, _ : tensor<32xi32>
      store %e, %v, _
    }"""
    module = widened(loop)
    assert any(op.kind == "while" and op.results[0].type == Pointer(int32) for op in module.walk())
    plain, wide = (Machine(m, {"x": 4096, "n": 3}) for m in (parse_module(loop), module))
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(plain.accesses, wide.accesses))


def test_pointers_that_a_loop_moves_by_lanes_stay_tiles() -> None:
    text = MATMUL.replace("%by = splat %bk : tensor<64x32xi32>", "%by = add %offs, %cb : tensor<64x32xi32>")
    module = widened(text)
    (loop,) = [op for op in module.walk() if op.kind == "for"]
    assert isinstance(loop.results[0].type, Tensor)
    arguments = {"a": 1 << 20, "K": 96, "stride": 64}
    plain, wide = (Machine(m, arguments, (3, 0, 0)) for m in (parse_module(text), module))
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(plain.accesses, wide.accesses))


# ------------------------------------------------------------------------------------------------ random expressions
class Offsets:
    """Random sums and products of scalars and tiles with their exact values beside them (as Python ints)."""

    SHAPE = (8, 4)

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.k = Kernel()
        self.arguments: dict[str, int] = {"x": 1 << 50}
        self.program = (self.r.randrange(2**28), 7, 2)
        self.scalars: list[tuple[Value, object]] = [(self.k.pid(0), self.program[0])]
        for i in range(2):
            value = self.r.choice((3, -5, 64, self.r.randrange(-(2**31), 2**31)))
            self.scalars.append((self.k.param(f"n{i}", Scalar(int32)), value))
            self.arguments[f"n{i}"] = value
        self.scalars.append((self.k.const(48), 48))
        for _ in range(2):
            self.scalars.append(self.combine(self.r.choice(self.scalars), self.r.choice(self.scalars)))
        self.tiles = [self.line(0), self.line(1)]

    def line(self, d: int) -> tuple[Value, object]:
        k, n = self.k, self.SHAPE[d]
        v, x = k.expand(k.arange(n), 1 - d), np.expand_dims(np.arange(n).astype(object), 1 - d)
        if self.r.random() < 0.7:
            s, c = self.r.choice(self.scalars)
            v, x = self.combine((v, x), (k.splat(s, *x.shape), np.full(x.shape, c, object)))
        return k.broadcast(v, *self.SHAPE), np.broadcast_to(x, self.SHAPE)

    def combine(self, a, b):
        kind = self.r.choice(("add", "sub", "mul"))
        f = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}[kind]
        exact = f(a[1], b[1])
        if np.max(np.abs(np.asarray(exact, object))) >= 2**45:  # stay in 64 bits
            kind, exact = "add", a[1] + b[1]
        return self.k.op(kind, a[0], b[0]), exact

    def tile(self):
        if self.r.random() < 0.4:
            s, x = self.r.choice(self.scalars)
            return self.k.splat(s, *self.SHAPE), np.full(self.SHAPE, x, object)
        return self.r.choice(self.tiles)


@pytest.mark.parametrize("seed", range(100))
def test_addresses_are_exact(seed: int) -> None:
    """Sums and products give the exact address although 32-bit arithmetic wraps on the way."""
    o = Offsets(seed)
    for _ in range(3):
        o.tiles.append(o.combine(o.tile(), o.tile()))
    k = o.k
    x = k.param("x", Pointer(float16))
    p, want = k.splat(x, *o.SHAPE), np.full(o.SHAPE, o.arguments["x"], object)
    for v, exact in o.tiles[-2:]:
        p = k.b.emit("addptr", p, v, type=p.type)
        want = want + 2 * exact
    loaded = k.b.emit("load", p, None, None, type=Tensor(o.SHAPE, float16))
    k.b.op("store", [p, loaded, None])
    if o.r.random() < 0.5:
        simplify(k.module, SM90)
    widen_addresses(k.module, SM90)
    simplify(k.module, SM90)
    verify(k.module)
    run = Machine(k.module, o.arguments, o.program)
    assert np.array_equal(run.accesses[-1][1].astype(object), want)


def test_explicit_64_bit_offsets_are_kept() -> None:
    k = Kernel()
    row = k.cast(k.param("row", Scalar(int32)), int64)
    n = k.cast(k.param("n", Scalar(int32)), int64)
    x = k.param("x", Pointer(float16))
    offs = k.op("add", k.splat(k.op("mul", row, n), 32), k.cast(k.arange(32), int64))
    p = k.b.emit("addptr", k.splat(x, 32), offs, type=Tensor((32,), Pointer(float16)))
    k.b.op("store", [p, k.b.emit("load", p, None, None, type=Tensor((32,), float16)), None])
    widen_addresses(k.module, SM90)
    simplify(k.module, SM90)
    verify(k.module)
    run = Machine(k.module, {"row": 2**30, "n": 2**12, "x": 0})
    assert np.array_equal(run.accesses[0][1], 2 * (2**42 + np.arange(32)))
    lanes = [op.operands[1] for op in k.module.walk() if op.kind == "addptr" and isinstance(op.result.type, Tensor)]
    assert [v.type for v in lanes if v is not None] == [Tensor((32,), int32)]
