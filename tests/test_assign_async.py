"""Layout assignment with buffers, async dots and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from assign_kernels import conversions, converted
from buffer_kernels import BufferKernel

from tlxc.errors import CompileError
from tlxc.ir import layout as algebra
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import Layout, blocked
from tlxc.ir.memory import matrix_access, widest_swizzle
from tlxc.ir.types import Pointer, Scalar, Tensor, float16, float32, int32, shape_of
from tlxc.ir.verifier import verify
from tlxc.passes.buffers import assign_buffers, memory_of
from tlxc.passes.dots import select_dots
from tlxc.passes.layouts import assign_layouts
from tlxc.passes.layouts.facts import contiguous_first
from tlxc.passes.layouts.prices import async_load_bytes
from tlxc.targets import get_target
from tlxc.targets.fragments import wgmma_a, wgmma_acc

SM90 = get_target("sm_90")


def layout_of(v: Value) -> Layout:
    assert isinstance(v.type, Tensor) and v.type.layout is not None
    return v.type.layout


def ops(module: Module, kind: str) -> list[Op]:
    return [op for op in module.walk() if op.kind == kind]


def tasks_of(region: Region, warps: int) -> Iterator[tuple[Op, int]]:
    """Each op with the warps of its task."""
    for op in region.ops:
        yield op, warps
        counts = op.attrs["num_warps"] if op.kind == "async_tasks" else [warps] * len(op.regions)
        for r, n in zip(op.regions, counts):
            yield from tasks_of(r, n)


def assign(k: BufferKernel | Module) -> Module:
    module = k if isinstance(k, Module) else k.module
    select_dots(module, SM90)
    assign_buffers(module, SM90)
    assign_layouts(module, SM90)
    verify(module, layouts=True)
    for op, warps in tasks_of(module.body, module.num_warps):
        for v in (*op.inputs, *op.results):
            if isinstance(v.type, Tensor):
                assert 1 << len(layout_of(v).others) == warps, "layouts are over the warps of the task"
    return module


# ------------------------------------------------------------------------------------------------ products
@pytest.mark.parametrize(("m", "n", "warps"), ((64, 256, 4), (128, 128, 8), (64, 80, 4), (192, 64, 4), (128, 24, 8)))
def test_the_accumulator_goes_straight_to_the_buffer(m: int, n: int, warps: int) -> None:
    k = BufferKernel(4)

    def consumer() -> None:
        a, b = k.alloc((m, 64)), k.trans(k.alloc((n, 64)))
        (acc,) = k.loop([k.full((m, n))], lambda acc: [k.wait(1, k.async_dot(a, b, acc))], names="acc")
        k.local_store(k.alloc((m, n)), k.cast(k.wait(0, acc), float16))

    k.tasks((1, lambda: None), (warps, consumer))
    module = assign(k)
    assert not converted(module)
    (dot,), (store,) = ops(module, "async_dot"), ops(module, "local_store")
    want = wgmma_acc(m, n, warps)
    assert layout_of(dot.result) is layout_of(dot.operands[2]) is want  # type: ignore[arg-type]
    assert layout_of(store.inputs[1]) is want
    assert matrix_access(want, memory_of(store.inputs[0]), 2) >= 2


def test_operand_a_in_registers_lies_as_the_accumulator_did() -> None:
    k = BufferKernel()
    a, b = k.operands(64, 80, 64)
    v = k.alloc((80, 64))
    s = k.wait(0, k.async_dot(a, b))
    p = k.cast(k.op("exp2", s), float16)
    k.local_store(k.alloc((64, 64)), k.cast(k.wait(0, k.async_dot(p, v)), float16))
    module = assign(k)
    assert not conversions(module)
    operand = ops(module, "async_dot")[1].inputs[0]
    assert layout_of(operand).key is wgmma_a(64, 80).key


def test_a_loaded_operand_comes_in_its_fragment() -> None:
    k = BufferKernel()
    _, b = k.operands()
    x = k.local_load(k.alloc((64, 64)))
    k.local_store(k.alloc((64, 64), float32), k.wait(0, k.async_dot(x, b)))
    module = assign(k)
    (load,) = ops(module, "local_load")
    assert not converted(module) and layout_of(load.result).key is wgmma_a(64, 64).key


def test_a_ready_start_is_converted_before_the_loop() -> None:
    k = BufferKernel()
    a, b = k.operands()
    start = k.load(k.pointers((64, 64), float32))
    (acc,) = k.loop([start], lambda acc: [k.async_dot(a, b, acc)], names="acc")
    k.store(k.pointers((64, 64), float32), k.wait(0, acc))
    assert not any(place == "in" for _, place in conversions(assign(k)))


def test_a_pin_may_not_move_what_is_under_way() -> None:
    k = BufferKernel()
    a, b = k.operands()
    pinned = k.pin(k.load(k.pointers((64, 64), float32)), blocked((64, 64), (1, 0), 4, 32, 4))
    (acc,) = k.loop([pinned], lambda acc: [k.async_dot(a, b, acc)], names="acc")
    k.store(k.pointers((64, 64), float32), k.wait(0, acc))
    with pytest.raises(CompileError) as caught:
        assign(k)
    assert "would change its layout" in caught.value.summary and "async_dot_wait" in caught.value.fix


def test_waits_share_the_node_of_what_they_hand_through() -> None:
    k = BufferKernel()
    a, b = k.operands()
    x = k.wait(1, k.wait(2, k.async_dot(a, b)))
    k.local_store(k.alloc((64, 64), float32), k.wait(0, x))
    k.wait(0, k.full((64, 64)))
    module = assign(k)
    for op in ops(module, "async_dot_wait"):
        assert layout_of(op.inputs[0]) is layout_of(op.results[0])
    assert not converted(module)


# ------------------------------------------------------------------------------------------------ buffers
def test_shared_accesses_propose_runs_along_the_buffer() -> None:
    k = BufferKernel()
    k.local_store(k.alloc((64, 128)), k.local_load(k.alloc((64, 128))))
    module = assign(k)
    (load,) = ops(module, "local_load")
    assert layout_of(load.result) is blocked((64, 128), (1, 0), 8, 32, 4) and not converted(module)


def test_a_transposed_view_is_read_along_its_own_rows() -> None:
    assert contiguous_first(widest_swizzle((64, 128), 2).transpose((1, 0))) == (0, 1)
    k = BufferKernel()
    x = k.local_load(k.trans(k.alloc((64, 128))))
    k.store(k.pointers((128, 64), order=(0, 1)), x)
    assert not conversions(assign(k))


def test_the_user_places_a_loaded_tile() -> None:
    k, mine = BufferKernel(), blocked((64, 64), (0, 1), 1, 32, 4)
    x = k.emit("local_load", k.alloc((64, 64)), type=Tensor((64, 64), float16, mine), pinned=True)
    k.local_store(k.alloc((64, 64)), x)
    module = assign(k)
    assert layout_of(ops(module, "local_load")[0].result).key is mine.key


def test_gathers_and_scatters_have_one_layout() -> None:
    k = BufferKernel()
    index = k.load(k.pointers((64, 64), int32))
    x = k.emit("local_gather", k.alloc((64, 64)), index, type=Tensor((64, 64), float16), axis=0)
    k.act("local_scatter", k.alloc((64, 64)), x, index, axis=0)
    module = assign(k)
    for op in (*ops(module, "local_gather"), *ops(module, "local_scatter")):
        assert len({layout_of(v).key for v in (*op.inputs, *op.results) if isinstance(v.type, Tensor)}) == 1
    assert not converted(module)


def test_remote_stores_move_words() -> None:
    k = BufferKernel()
    x = k.load(k.pointers((64, 64), order=(0, 1)))
    k.act("async_remote_store", k.alloc((64, 64)), x, k.const(1), k.barrier())
    module = assign(k)
    (store,) = ops(module, "async_remote_store")
    assert layout_of(store.inputs[1]).reg[0] == layout_of(store.inputs[1]).pack((0, 1))


def test_async_loads_are_wide_in_both_memories() -> None:
    k = BufferKernel()
    pointers = k.pointers((64, 64))
    k.async_load(pointers, k.alloc((64, 64)))
    module = assign(k)
    (load,) = ops(module, "async_load")
    a = layout_of(load.inputs[0])
    assert async_load_bytes(a, memory_of(load.inputs[1]), 2, 8) == 16


@pytest.mark.parametrize("order", ((0, 1), (1, 0)))
def test_a_narrow_async_load_is_refused(order: tuple[int, int]) -> None:
    k = BufferKernel()
    pointers = k.pointers((64, 64), order=order)
    mask = k.row(k.less(k.arange(64), k.splat(k.param(Scalar(int32)), (64,))), (64, 64)) if order == (1, 0) else None
    k.async_load(pointers, k.alloc((64, 64)), mask)
    with pytest.raises(CompileError) as caught:
        assign(k)
    assert "async_load needs runs of 4 bytes" in caught.value.summary and caught.value.loc is not None


# ------------------------------------------------------------------------------------------------ tasks
def test_each_task_has_layouts_over_its_own_warps() -> None:
    k = BufferKernel(4)
    buf = k.alloc((64, 64))
    k.tasks(
        (1, lambda: k.local_store(buf, k.full((64, 64), 1.0, float16))),
        (8, lambda: k.store(k.pointers((64, 64)), k.local_load(buf))),
    )
    module = assign(k)
    assert not converted(module)
    (store,) = ops(module, "store")
    assert layout_of(store.inputs[0]) is layout_of(store.inputs[1])


def test_reductions_stay_in_their_task() -> None:
    k = BufferKernel(4)

    def body() -> None:
        k.store(k.pointers((64,), float32), k.reduce(k.load(k.pointers((64, 64), float32)), 1))

    k.tasks((2, body), (8, body))
    module = assign(k)
    for op in ops(module, "reduce"):
        assert layout_of(op.result).key is algebra.slice_(layout_of(op.inputs[0]), 1).key


# ------------------------------------------------------------------------------------------------ the example
def test_hopper_gemm_ws_converts_nothing() -> None:
    """The warp-specialised GEMM of the examples: accumulators stay as wgmma leaves them until they are stored."""
    from tlxc.compiler import build, run_passes
    from tlxc.frontend.signature import Argument, Signature
    from tlxc.frontend.source import Source
    from tlxc.ir.types import Descriptor

    path = Path(__file__).parent.parent / "examples" / "hopper_gemm_ws.py"
    source = Source.of(_loaded(path).gemm)
    types = {
        "a_desc": Descriptor((64, 64), float16), "b_desc": Descriptor((64, 256), float16),
        "c_desc": Descriptor((64, 64), float16), "M": Scalar(int32), "N": Scalar(int32), "K": Scalar(int32),
    }  # fmt: skip
    constants = {"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "GROUP": 8, "BC": 64}
    arguments = tuple((p.name, Argument(types[p.name])) for p in source.parameters if p.name in types)
    module = build(source, Signature(arguments, tuple(constants.items())), SM90)
    run_passes(module, SM90, until="layouts", check=True)
    assert not converted(module)
    assert all(layout_of(op.result) is wgmma_acc(64, 256) for op in ops(module, "async_dot"))
    stores = ops(module, "local_store")
    assert stores and all(shape_of(op.inputs[1].type) == (64, 64) for op in stores)
    assert all(matrix_access(layout_of(op.inputs[1]), memory_of(op.inputs[0]), 2) == 4 for op in stores)


def _loaded(path: Path):
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def test_pointers_are_8_byte_elements_of_an_async_load() -> None:
    """The price is about what is copied, not about the addresses."""
    k = BufferKernel()
    base = k.param(Pointer(float32), align=4)
    k.async_load(k.addptr(k.splat(base, (1024,)), k.arange(1024)), k.alloc((1024,), float32))
    (load,) = ops(assign(k), "async_load")
    assert async_load_bytes(layout_of(load.inputs[0]), memory_of(load.inputs[1]), 4, 1) == 4
