"""Copies of a task that share a region: which do, and what tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

import tlxc
import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc import tl, tlx
from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.verifier import verify
from tlxc.passes.copies import merge_copies
from tlxc.passes.tasks import hardware_barriers, place_tasks
from tlxc.targets import get_target

SM90 = get_target("sm_90")
Ints = tuple[int, ...]


def store(value: int, more: str = "") -> str:
    """Stores a tile that holds `value` plus the index."""
    return f"""
    %r = arange {{start = 0, end = 128}} : tensor<128xi32>
    %p0 = splat %p : tensor<128xptr<i32>>
    %a = addptr %p0, %r : tensor<128xptr<i32>>
    %v = constant {{value = {value}}} : i32
    %w = splat %v : tensor<128xi32>
    %x = add %r, %w : tensor<128xi32>
    store %a, %x, _
    {more}
    """


def merged_module(
    bodies: list[str], warps: Ints = (), starts: Ints = (), replica: Ints = (), regs: Ints = ()
) -> Module:
    """A kernel after the pass; the first body is the default task, the others are copies of one task."""
    n = len(bodies)
    columns = {
        "num_warps": warps or (4,) * n, "start_warp": starts or tuple(4 * i for i in range(n)),
        "num_regs": regs or (0,) * n, "replica": replica or (0, *range(n - 1)),
    }  # fmt: skip
    attrs = ", ".join(f"{k} = ({', '.join(map(str, v))})" for k, v in columns.items())
    regions = " ".join(f"{{\n{body}\n}}" for body in bodies)
    m = parse_module(f"module @k(%p: ptr<i32>, %n: i32) warps 4 {{\nasync_tasks {{{attrs}}} {regions}\n}}\n")
    merge_copies(m, SM90)
    verify(m)
    assert print_module(parse_module(print_module(m))) == print_module(m)
    return m


def region_of(m: Module) -> Op:
    (op,) = [op for op in m.walk() if op.kind == "async_tasks"]
    return op


def merged(*given: Any, **more: Any) -> Op:
    return region_of(merged_module(*given, **more))


def test_copies_that_differ_in_a_number_are_one_region() -> None:
    op = merged([store(0), store(3), store(5), store(7)])
    assert len(op.regions) == 2
    assert op.attrs["copies"] == (1, 3) and op.attrs["start_warp"] == (0, 4) and op.attrs["num_warps"] == (4, 4)
    constants = [inner.attrs["value"] for inner in op.regions[1].ops if inner.kind == "constant"]
    assert constants == [3, 2]  # from 3 on, in steps of 2
    assert op.regions[1].ops[0].kind == "task_copy"


def test_equal_copies_need_no_number() -> None:
    op = merged([store(0), store(3), store(3)])
    assert op.attrs["copies"] == (1, 2)
    assert all(inner.kind != "task_copy" for inner in op.regions[1].ops)


APART: dict[str, list[Any]] = {
    "other ops": [[store(0), store(3), store(3, "store %a, %r, _")]],
    "other operands": [[store(0), store(3, "store %a, %x, _"), store(3, "store %a, %r, _")]],
    "a buffer of its own": [[store(0)] + [store(3, "%b = local_alloc : buffer<128xi32, smem>")] * 2],
    "a hardware barrier": [[store(0)] + [store(3, "named_barrier_wait %v {threads = 128}")] * 2],
    "budgets": [[store(0), store(3), store(3)], (), (), (), (0, 40, 48)],
    "another task": [[store(0), store(3), store(3)], (), (), (0, 0, 0)],
    "warps elsewhere": [[store(0), store(3), store(3)], (), (0, 4, 12)],
    "less than a warpgroup": [[store(0), store(3), store(3)], (4, 2, 2), (0, 4, 6)],
    "a task for one warp": [[store(0)] + ["%v = constant {value = 1} : i32\nstore %p, %v, _"] * 2],
}


@pytest.mark.parametrize("given", APART.values(), ids=APART)
def test_stay_apart(given: list[Any]) -> None:
    op = merged(*given)
    assert "copies" not in op.attrs and len(op.regions) == len(given[0])


def test_steps_that_are_not_equal_end_a_group() -> None:
    op = merged([store(0), store(3), store(5), store(6)])
    assert op.attrs["copies"] == (1, 2, 1) and op.attrs["start_warp"] == (0, 4, 12)


@tlxc.kernel
def exchange(x, out, BLOCK: tl.constexpr):
    """Both copies sum a tile over their warps, through shared memory of their own."""
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(out + tl.arange(0, BLOCK), tl.arange(0, BLOCK))
        with tlx.async_task(num_warps=4, replicate=2):
            copy: tl.constexpr = 1 + tlx.async_task_replica_id()
            tile = tl.load(x + copy * BLOCK + tl.arange(0, BLOCK))
            tl.store(out + copy * BLOCK + tl.arange(0, BLOCK), tile + tl.sum(tile, 0))


def test_scratch_is_of_each_copy() -> None:
    m = parse_module(exchange.warmup(tl.int32, tl.int32, BLOCK=1024, target="sm_90").asm["tlxir"])
    op = region_of(m)
    assert op.attrs["copies"] == (1, 2)
    (scratch,) = [inner for inner in op.regions[1].walk() if inner.kind == "local_alloc"]
    stride = scratch.attrs["copy_stride"]
    assert stride >= scratch.result.type.nbytes
    assert m.attrs["shared"] >= scratch.attrs["offset"] + stride + scratch.result.type.nbytes


def test_budgets_and_barriers_count_copies() -> None:
    m = merged_module([store(0), store(3), store(5), store(7)], regs=(24, 160, 160, 160))
    place_tasks(m, SM90)
    op = region_of(m)
    assert op.attrs["copies"] == (1, 3) and m.attrs["total_warps"] == 16
    assert hardware_barriers(op, frozenset((2,))) == [1, 3]  # of the copies 3, 4 and 5
    assert hardware_barriers(op, frozenset((3, 6, 9, 12, 15))) is None
    too_much = merged_module([store(0), store(3), store(5), store(7)], regs=(24, 168, 168, 168))
    with pytest.raises(CompileError, match="the register budgets of this region cannot be granted"):
        place_tasks(too_much, SM90)
