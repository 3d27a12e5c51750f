"""Trips through shared memory: conversions, reductions across warps, operands of dots."""

from __future__ import annotations

import itertools

import pytest

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.ir.conversion import scratch, scratch_memory
from tlxc.ir.core import Builder, Module, Op, Region, Value
from tlxc.ir.layout import Layout, blocked, make, slice_
from tlxc.ir.memory import swizzled
from tlxc.ir.types import Buffer, Pointer, Scalar, Tensor, float16, float32, int1, int32
from tlxc.ir.verifier import verify
from tlxc.passes.shared import crosses_warps, gathered, operand_memory, partial_by_warp, scratch_for, stage_shared
from tlxc.targets import get_target
from tlxc.targets.fragments import mma16816, wgmma_acc

SM90, GFX942 = get_target("sm_90"), get_target("gfx942")


class Tiles:
    def __init__(self, warps: int = 4) -> None:
        self.module = Module("k", num_warps=warps)
        self.b = Builder(self.module)

    def tile(self, layout: Layout, dtype=float32) -> Value:
        """A tile that no pass can see through."""
        value = 0.0 if dtype.is_float else 0
        zero = self.b.emit("constant", type=Scalar(dtype), value=value)
        return self.b.emit("splat", zero, type=Tensor(layout.shape, dtype, layout))

    def run(self, target=SM90) -> list[Op]:
        stage_shared(self.module, target)
        verify(self.module, layouts=True)
        return self.module.body.ops

    def kinds(self, target=SM90) -> list[str]:
        return [op.kind for op in self.run(target) if op.kind not in ("constant", "splat")]


ROWS = blocked((64, 64), (1, 0), 4)
COLUMNS = blocked((64, 64), (0, 1), 4)


def test_a_conversion_across_warps_goes_through_conflict_free_scratch() -> None:
    k = Tiles()
    v = k.b.emit("convert_layout", k.tile(ROWS), type=Tensor((64, 64), float32, COLUMNS))
    alloc, store, load = [op for op in k.run() if op.kind.startswith("local")]
    assert alloc.result.type == Buffer((64, 64), float32, "smem", scratch_memory(scratch(ROWS, COLUMNS, 4)))
    assert load.result is v and v.op is load and v.type == Tensor((64, 64), float32, COLUMNS)
    assert store.inputs[0] is load.inputs[0] is alloc.result


def test_conversions_inside_warps_stay() -> None:
    k = Tiles()
    (registers, lanes, warps), bits, reps = ROWS.ins, ROWS.bits, ROWS.reps
    turned = make([registers, ("lane", lanes[1][::-1]), warps], bits, reps)
    k.b.emit("convert_layout", k.tile(ROWS), type=Tensor((64, 64), float32, turned))
    assert k.kinds() == ["convert_layout"]


def test_bools_travel_as_bytes() -> None:
    k = Tiles()
    k.b.emit("convert_layout", k.tile(ROWS, int1), type=Tensor((64, 64), int1, COLUMNS))
    (alloc,) = [op for op in k.run() if op.kind == "local_alloc"]
    assert isinstance(alloc.result.type, Buffer) and alloc.result.type.nbytes == 64 * 64


def test_addresses_go_through_shared_memory_too() -> None:
    k = Tiles()
    pointer = Value(Tensor((64, 64), Pointer(float32), ROWS))
    k.b.emit("convert_layout", pointer, type=Tensor((64, 64), Pointer(float32), COLUMNS))
    stage_shared(k.module, SM90)
    alloc, _, load = k.module.body.ops
    assert alloc.result.type.dtype == Pointer(float32) and alloc.result.type.nbytes == 64 * 64 * 8
    assert load.result.type == Tensor((64, 64), Pointer(float32), COLUMNS)


# ------------------------------------------------------------------------------------------------ reductions
LAYOUTS = [
    blocked((4, 1024), (1, 0), 4),
    blocked((128,), (0,), 1),
    blocked((16,), (0,), 1),
    blocked((64, 64), (1, 0), 4),
    blocked((64, 64), (0, 1), 1),
    blocked((8, 3, 64), (2, 1, 0), 2),
    wgmma_acc(64, 64, 4),
    mma16816("acc", (64, 64), (2, 2)),
]


def simulate(a: Layout, axis: int) -> None:
    """Sums distinct numbers per thread, warp and gathered tile, and compares with the sum along the axis."""
    value = {c: 1 << i for i, c in enumerate(itertools.product(*map(range, a.shape)))}
    threads = list(itertools.product(range(1 << len(a.lane)), range(1 << len(a.bases("warp")))))
    partial = partial_by_warp(a, axis)
    held: dict[tuple[int, ...], int] = {}
    for w in range(1 << len(a.bases("warp"))):
        sums: dict[tuple[int, ...], set] = {}
        for lane in range(1 << len(a.lane)):
            for r in range(a.registers):
                c = a.apply(r, lane, w)
                sums.setdefault(c[:axis] + c[axis + 1 :], set()).add(c)
        for lane in range(1 << len(a.lane)):
            for r in range(partial.registers):
                c = partial.apply(r, lane, w)
                mine = sum(value[x] for x in sums[c[:-1]])
                assert held.setdefault(c, mine) == mine, "copies agree"
    kept = slice_(a, axis)
    out = gathered(partial, kept)
    assert slice_(out, len(out.shape) - 1).key is kept.key and not crosses_warps(out, len(out.shape) - 1)
    for lane, w in threads:
        total: dict[tuple[int, ...], int] = {}
        for r in range(out.registers):
            c = out.apply(r, lane, w)
            total[c[:-1]] = total.get(c[:-1], 0) + held[c]
        for c, t in total.items():
            assert t == sum(value[c[:axis] + (i,) + c[axis:]] for i in range(a.shape[axis]))


@pytest.mark.parametrize("a", LAYOUTS, ids=str)
def test_partial_sums_add_up(a: Layout) -> None:
    for axis in range(len(a.shape)):
        if crosses_warps(a, axis):
            simulate(a, axis)


def test_a_reduction_across_warps() -> None:
    k = Tiles()
    a = blocked((4, 1024), (1, 0), 4)
    v = k.b.emit("reduce", k.tile(a), type=Tensor((4,), float32, slice_(a, 1)), axis=1, combine="sum")
    assert k.kinds() == ["partial_reduce", "local_alloc", "local_store", "local_load", "reduce"]
    assert v.op is not None and v.op.attrs == {"axis": 1, "combine": "sum"}


def test_a_scalar_reduction_reaches_every_thread() -> None:
    k = Tiles()
    k.b.emit("reduce", k.tile(blocked((1024,), (0,), 4)), type=Scalar(float32), axis=0, combine="max")
    ops = k.run()
    tile = ops[-1].inputs[0].type
    assert isinstance(tile, Tensor) and tile.layout is not None
    assert tile.shape == (4,) and tile.layout.registers == 4 and not any(tile.layout.lane + tile.layout.bases("warp"))


def test_a_reduction_inside_warps_stays() -> None:
    k = Tiles()
    k.b.emit("reduce", k.tile(ROWS), type=Tensor((64,), float32, slice_(ROWS, 1)), axis=1, combine="sum")
    assert k.kinds() == ["reduce"]


# ------------------------------------------------------------------------------------------------ dots
def wgmma(k: Tiles, a: Value, b: Value, acc: Value) -> Value:
    return k.b.emit("dot", a, b, acc, type=acc.type, impl="wgmma")


def test_wgmma_operands_go_to_swizzled_buffers_behind_a_fence() -> None:
    k = Tiles()
    a, b = (k.tile(blocked((64, 64), (1, 0), 8), float16) for _ in range(2))
    wgmma(k, a, b, k.tile(wgmma_acc(64, 64)))
    ops = k.run()
    kinds = [op.kind for op in ops if op.kind not in ("constant", "splat")]
    assert kinds == ["local_alloc", "local_store", "local_alloc", "local_store", "fence_async_shared", "dot"]
    assert all(v.type == Buffer((64, 64), float16, "smem", swizzled((64, 64), 2, 128)) for v in ops[-1].inputs[:2])


def test_an_operand_from_outside_is_staged_once_before_the_loop() -> None:
    k = Tiles()
    q = k.tile(blocked((64, 64), (1, 0), 8), float16)
    acc = k.tile(wgmma_acc(64, 64))
    n = k.b.emit("constant", type=Scalar(int32), value=4)
    body = Region([Value(Scalar(int32)), Value(acc.type)])
    k.b.op("for", [n, n, n, acc], [acc.type], [body])
    k.b.stack.append(body)
    a = k.tile(blocked((64, 64), (1, 0), 8), float16)
    first = wgmma(k, q, a, body.args[1])
    k.b.op("yield", [wgmma(k, q, a, first)])
    k.b.stack.pop()
    outside = [op.kind for op in k.run() if op.kind not in ("constant", "splat")]
    assert outside == ["local_alloc", "local_store", "fence_async_shared", "for"]
    inside = [op.kind for op in body.ops if op.kind not in ("constant", "splat")]
    assert inside == ["local_alloc", "local_store", "fence_async_shared", "dot", "dot", "yield"]


def test_the_major_of_an_operand_follows_its_registers() -> None:
    assert operand_memory(blocked((64, 64), (1, 0), 8), 2, 0) == swizzled((64, 64), 2, 128)
    along_k = swizzled((64, 64), 2, 128).transpose((1, 0))
    assert operand_memory(blocked((64, 64), (0, 1), 8), 2, 0) == along_k
    # 24 columns have no swizzle along n, so B is K-major whatever its registers are
    assert operand_memory(blocked((64, 24), (1, 0), 8), 2, 0) == swizzled((24, 64), 2, 128).transpose((1, 0))


@pytest.mark.parametrize(("role", "shape"), [("a", (64, 64)), ("b", (64, 64))])
def test_fragments_come_through_matrices(role: str, shape: tuple[int, int]) -> None:
    """A [m, k] by ldmatrix, B [k, n] by its transposed form, both from row-major swizzled scratch."""
    fragment = mma16816(role, shape, (2, 2))
    assert scratch_for(blocked(shape, (1, 0), 8), fragment, 2, SM90) == swizzled(shape, 2, 128)
    k = Tiles()
    source = k.tile(blocked(shape, (1, 0), 8), float16)
    k.b.emit("convert_layout", source, type=Tensor(shape, float16, fragment))
    assert k.kinds() == ["local_alloc", "local_store", "local_load"]


def test_targets_without_matrix_loads_keep_the_scratch() -> None:
    a, b = blocked((64, 64), (1, 0), 8, 64), blocked((64, 64), (0, 1), 8, 64)
    assert scratch_for(a, b, 2, GFX942) == scratch_memory(scratch(a, b, 2))
