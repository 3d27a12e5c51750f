"""Notes on layout conversions that are not free, with the instructions that code generation makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tlxc.codegen.nvptx.matrices import load_plan, store_plan
from tlxc.codegen.simt.buffer import buffer_type, shared_runs
from tlxc.codegen.simt.convert import shuffles
from tlxc.codegen.simt.lowering import layout_of
from tlxc.ir.core import Module, Op, Value, uses
from tlxc.ir.types import element_of
from tlxc.targets import Target

from .note import Note, place_name
from .program import by_line, number, per_iteration, tile_text, with_loops


class Cost(NamedTuple):
    """Instructions of each thread; `bytes` of shared memory, of all threads."""

    source: Value
    use: Op | None = None  # who wants the other layout first
    shuffles: int = 0
    bytes: int = 0
    stores: int = 0
    loads: int = 0

    @property
    def shared(self) -> bool:
        return self.bytes > 0


def conversions(module: Module, target: Target) -> list[Note]:
    """One note for each source line and loop with conversions by shuffles, and with ones through shared memory."""
    ops = list(with_loops(module.body))
    stored = {op.inputs[0]: op for op, _ in ops if op.kind == "local_store"}
    users = uses(module.body)
    found = [
        (op, loop, cost._replace(use=users[op.result][0][0] if op.result in users else None))
        for op, loop in ops
        for cost in _costs(op, stored, target)
    ]
    return [
        _note(group[0][0], group[0][1], [cost for _, _, cost in group])
        for group in by_line(found, lambda cost: cost.shared)
    ]


def _costs(op: Op, stored: dict[Value, Op], target: Target) -> Iterator[Cost]:
    if op.kind == "convert_layout":
        source = op.inputs[0]
        count = shuffles(layout_of(source), layout_of(op.result), element_of(source.type).bytes)
        if count:
            yield Cost(source, shuffles=count)
    elif op.attrs.get("converts"):
        yield _trip(stored[op.inputs[0]], op, target)


def _trip(store: Op, load: Op, target: Target) -> Cost:
    source = store.inputs[1]
    t, mem = buffer_type(store.inputs[0])
    size, a, b = t.dtype.bytes, layout_of(source), layout_of(load.result)
    stores, loads = store_plan(target, a, mem, size), load_plan(target, b, mem, size)
    return Cost(
        source,
        bytes=t.tile_bytes,
        stores=len(stores.words if stores else shared_runs(a, mem, size)),
        loads=len(loads.words if loads else shared_runs(b, mem, size)),
    )


def _one(op: Op, cost: Cost) -> str:
    text = f"{tile_text(cost.source)} changes its layout"
    if cost.use is None:
        return text
    here = op.loc is not None and cost.use.loc is not None and op.loc.line == cost.use.loc.line
    return f"{text} for {cost.use.kind}" + ("" if here else f" at {place_name(cost.use.loc)}")


def _note(op: Op, repeated: bool, costs: list[Cost]) -> Note:
    many = len(costs) > 1
    what = f"{len(costs)} tiles change their layouts" if many else _one(op, costs[0])
    shuffled, size, stores, loads = (sum(column) for column in zip(*(cost[2:] for cost in costs)))
    if costs[0].shared:
        how = (
            f"through {size} bytes of shared memory: {number(stores, 'store')} and {number(loads, 'load')} of each "
            f"thread{per_iteration(repeated)}, with {'barriers' if many else 'a barrier'} between"
        )
    else:
        how = f"by {number(shuffled, 'shuffle')} of each thread{per_iteration(repeated)}"
    return Note("convert", f"{what} {how}", op.loc)
