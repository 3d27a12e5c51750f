"""Old values of atomics reach every thread that holds a copy of the element."""

from __future__ import annotations

from tlxc.ir.core import Module, Op, Region, uses
from tlxc.ir.memory import row_major
from tlxc.ir.types import Buffer, Tensor
from tlxc.targets import Target


def publish_atomics(module: Module, target: Target) -> None:
    """Only the owner of an element performs its atomic; where others hold copies of a result that is used, it goes
    through shared memory.  Runs after layouts are known."""
    _region(module.body, uses(module.body))


def _region(region: Region, used: dict) -> None:
    out: list[Op] = []
    for op in region.ops:
        for r in op.regions:
            _region(r, used)
        out.append(op)
        if op.kind == "atomic_rmw" and used.get(op.result) and _replicated(op):
            out += _published(op, used[op.result])
    region.ops = out


def _replicated(op: Op) -> bool:
    t = op.result.type
    return isinstance(t, Tensor) and t.layout is not None and any(t.layout.free_masks().values())


def _published(op: Op, consumers: list[tuple[Op, int]]) -> list[Op]:
    t = op.result.type
    assert isinstance(t, Tensor)
    alloc = Op("local_alloc", [], [Buffer(t.shape, t.element, "smem", row_major(t.shape))], loc=op.loc)
    store = Op("local_store", [alloc.result, op.result], loc=op.loc)
    load = Op("local_load", [alloc.result], [t], loc=op.loc)
    for consumer, position in consumers:
        consumer.operands[position] = load.result
    return [alloc, store, load]
