"""Barriers: where they stand, that they suffice (an independent verifier), and that each is needed (mutations)."""

from __future__ import annotations

import pytest
from test_memory_plan import SharedKernel, random_program

from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.memory import swizzled
from tlxc.ir.types import Scalar, Tensor, float32
from tlxc.passes.hazards import verify_hazards
from tlxc.passes.memory_plan import plan_memory
from tlxc.passes.sync import insert_barriers
from tlxc.targets import get_target

SM90 = get_target("sm_90")
SYNC = ("barrier", "fence_async_shared")


def shape(region: Region) -> list:
    """Accesses and synchronisation, with the contents of loops and branches as lists."""
    out: list = []
    for op in region.ops:
        if op.regions:
            out.append([shape(r) for r in op.regions] if op.kind == "if" else shape(op.regions[-1]))
        elif op.kind.startswith("local_") and op.kind != "local_alloc":
            out.append(op.kind[6:])
        elif op.kind in (*SYNC, "dot"):
            out.append(op.kind.partition("_")[0])
    return out


def synchronised(k: SharedKernel) -> list:
    plan_memory(k.module, SM90)
    given = {op for op in k.module.walk() if op.kind in SYNC}
    insert_barriers(k.module, SM90)
    verify_hazards(k.module)
    assert_each_is_needed(k.module, k.module.body, given)
    return shape(k.module.body)


def assert_each_is_needed(module: Module, region: Region, given: set[Op]) -> None:
    """The mutation test: without any one inserted barrier or fence the verifier finds a hazard."""
    for op in list(region.ops):
        if op.kind in SYNC and op not in given:
            at = region.ops.index(op)
            del region.ops[at]
            with pytest.raises(InternalError, match="without"):
                verify_hazards(module)
            region.ops.insert(at, op)
        for r in op.regions:
            assert_each_is_needed(module, r, given)


def test_write_then_read() -> None:
    k = SharedKernel()
    a = k.alloc()
    k.store(a)
    k.load(a)
    k.load(a)
    assert synchronised(k) == ["store", "barrier", "load", "load"]


def test_disjoint_buffers_do_not_meet() -> None:
    k = SharedKernel()
    a, b = k.alloc(), k.alloc()
    k.store(a)
    k.store(b)
    k.load(a)
    k.load(b)
    assert synchronised(k) == ["store", "store", "barrier", "load", "load"]


def test_bytes_that_two_buffers_share_meet() -> None:
    k = SharedKernel()
    for _ in range(2):
        a = k.alloc((128, 128))
        k.store(a)
        k.load(a)
    assert synchronised(k) == ["store", "barrier", "load", "barrier", "store", "barrier", "load"]


def test_back_edge() -> None:
    k = SharedKernel()
    k.loop()
    a = k.alloc()
    k.store(a)
    k.load(a)
    k.leave()
    assert synchronised(k) == [["barrier", "store", "barrier", "load"]]


def test_barriers_move_out_of_loops_where_that_is_enough() -> None:
    k = SharedKernel()
    q = k.alloc()
    k.store(q)
    k.loop()
    k.loop()
    k.load(q)
    k.leave()
    k.leave()
    assert synchronised(k) == ["store", "barrier", [["load"]]]


def test_a_barrier_in_both_branches_or_after_them() -> None:
    k = SharedKernel()
    a = k.alloc()
    k.store(a)
    then, other = k.branch()
    k.enter(then)
    k.load(a)
    k.leave()
    k.enter(other)
    k.leave()
    k.load(a)
    assert synchronised(k) == ["store", [["barrier", "load"], []], "barrier", "load"]


def test_a_loop_that_may_not_run_protects_nothing() -> None:
    k = SharedKernel()
    a, b = k.alloc(), k.alloc()
    k.store(a)
    k.loop()
    k.load(b)
    k.store(b)
    k.leave()
    k.load(a)
    got = synchronised(k)
    assert got[-2:] == ["barrier", "load"]


# ------------------------------------------------------------------------------------------------ wgmma
def dot(k: SharedKernel, a: Value, b: Value) -> None:
    acc = k.op("constant", (), [Scalar(float32)], value=0.0).result
    tile = k.op("splat", [acc], [Tensor((64, 64), float32)]).result
    k.op("dot", [a, b, tile], [tile.type], impl="wgmma")


def operands(k: SharedKernel) -> tuple[Value, Value]:
    mem = swizzled((64, 64), 2, 128)
    return k.alloc(mem=mem), k.alloc(mem=mem)


def test_stores_fence_barrier_dot() -> None:
    k = SharedKernel()
    k.loop()
    a, b = operands(k)
    k.store(a)
    k.store(b)
    k.op("fence_async_shared")
    dot(k, a, b)
    k.leave()
    assert synchronised(k) == [["barrier", "store", "store", "fence", "barrier", "dot"]]


def test_a_missing_fence_is_inserted_with_its_barrier() -> None:
    k = SharedKernel()
    a, b = operands(k)
    k.store(a)
    k.store(b)
    k.op("barrier")
    dot(k, a, b)
    assert synchronised(k) == ["store", "store", "barrier", "fence", "barrier", "dot"]


def test_a_fence_in_front_of_the_barrier_serves_the_loop() -> None:
    """An operand staged before the loop costs nothing in it."""
    k = SharedKernel()
    q, a = operands(k)
    k.store(q)
    k.op("fence_async_shared")
    k.loop()
    k.store(a)
    k.op("fence_async_shared")
    dot(k, q, a)
    k.leave()
    assert synchronised(k) == ["store", "fence", ["barrier", "store", "fence", "barrier", "dot"]]


def test_fence_after_the_barrier_is_not_enough() -> None:
    k = SharedKernel()
    a, b = operands(k)
    k.store(a)
    k.store(b)
    k.op("barrier")
    k.op("fence_async_shared")
    dot(k, a, b)
    plan_memory(k.module, SM90)
    with pytest.raises(InternalError, match="dot at k.py:.* can follow local_store at k.py:.* without a proxy fence"):
        verify_hazards(k.module)
    insert_barriers(k.module, SM90)
    verify_hazards(k.module)


# ------------------------------------------------------------------------------------------------ random programs
@pytest.mark.parametrize("seed", range(100, 200))
def test_random_programs(seed: int) -> None:
    k = random_program(seed)
    synchronised(k)


def test_the_report_names_both_ops() -> None:
    k = SharedKernel()
    a = k.alloc()
    store, load = k.store(a), k.load(a)
    plan_memory(k.module, SM90)
    with pytest.raises(InternalError) as error:
        verify_hazards(k.module)
    assert str(error.value) == (
        f"k: local_load at {load.loc} can follow local_store at {store.loc} without a barrier, and both touch shared "
        "memory bytes 0 to 8191."
    )
