"""Dead code: what no effect needs.

A value is live if an op with an effect needs it, through operands, carried slots and yields.  A carried slot that only
feeds itself is dead, and so are a load that nobody reads and a buffer that nobody touches.
"""

from __future__ import annotations

from collections.abc import Callable

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.table import OPS
from tlxc.targets import Target

_READS = frozenset(("reads_global", "reads_shared"))
_WRITES = frozenset(("writes_global", "writes_shared"))
# Ops that only read, yet count: a wait names how many groups of async_dot are under way, whoever uses their results.
_COUNTED = frozenset(("async_dot", "async_dot_wait"))
_CARRIED_FROM = {"for": 3, "while": 0}  # first operand that initialises a carried slot


def removable(op: Op) -> bool:
    """Whether an op without regions may go once nothing uses its results."""
    traits = OPS[op.kind].traits
    if "pure" in traits or op.kind in ("local_alloc", "alloc_barriers"):
        return True
    reads = bool(traits & _READS) and not traits & _WRITES
    return reads and bool(op.results) and op.kind not in _COUNTED


def _has_effect(op: Op) -> bool:
    return not removable(op)


class _Liveness:
    """`root` tells what counts by itself among the ops without regions."""

    def __init__(self, body: Region, root: Callable[[Op], bool] = _has_effect) -> None:
        self.root = root
        self.live: set[Op] = set()
        self.needed: set[Value] = set()
        self.todo: list[Value] = []
        self.parent: dict[Op, Op | None] = {}
        self.owner: dict[Value, tuple[Op, int]] = {}  # region argument -> its op and position
        roots: list[Op] = []
        self.collect(body, None, roots)
        for op in roots:
            self.mark(op)
        while self.todo:
            self.trace(self.todo.pop())

    def collect(self, region: Region, parent: Op | None, roots: list[Op]) -> None:
        for i, a in enumerate(region.args):
            assert parent is not None
            self.owner[a] = parent, i
        for op in region.ops:
            self.parent[op] = parent
            if op.regions:
                for r in op.regions:
                    self.collect(r, op, roots)
            elif op.kind != "yield" and self.root(op):
                roots.append(op)

    def need(self, v: Value | None) -> None:
        if v is not None and v not in self.needed:
            self.needed.add(v)
            self.todo.append(v)

    def mark(self, op: Op) -> None:
        """The op is executed: so are the ops around it, and what decides whether and how often it is."""
        if op in self.live:
            return
        self.live.add(op)
        if op.kind == "while":
            self.need(op.regions[0].terminator.operands[0])
        for v in op.operands[:3] if op.kind == "for" else () if op.kind == "while" else op.operands:
            self.need(v)
        outer = self.parent.get(op)  # None too for what stands outside
        if outer is not None:
            self.mark(outer)

    def trace(self, v: Value) -> None:
        if v.op is None:
            if v in self.owner:
                op, position = self.owner[v]
                self.mark(op)
                self.slot(op, position - (1 if op.kind == "for" else 0))
            return
        self.mark(v.op)
        if v.op.regions:
            self.slot(v.op, v.index)

    def slot(self, op: Op, i: int) -> None:
        """Result i of a structured op, or its carried slot, is needed; i is -1 for the induction value."""
        if i < 0:
            return
        for r in op.regions[-1:] if op.kind == "while" else op.regions:
            self.need(r.terminator.operands[i])
        self.need(op.results[i])
        if op.kind in _CARRIED_FROM:
            self.need(op.operands[_CARRIED_FROM[op.kind] + i])
            for r in op.regions:
                self.need(r.args[i - len(op.results)])


def _prune(op: Op, needed: set[Value]) -> None:
    """Drops the dead slots of a structured op."""
    keep = [i for i, v in enumerate(op.results) if v in needed]
    if len(keep) == len(op.results):
        return
    slots = len(op.results)
    for r in op.regions[-1:] if op.kind == "while" else op.regions:
        r.terminator.operands = [r.terminator.operands[i] for i in keep]
    if op.kind in _CARRIED_FROM:
        first = _CARRIED_FROM[op.kind]
        op.operands = op.operands[:first] + [op.operands[first + i] for i in keep]
        for r in op.regions:
            r.args = r.args[: len(r.args) - slots] + [r.args[i - slots] for i in keep]
    op.results = [op.results[i] for i in keep]
    for i, v in enumerate(op.results):
        v.index = i


def _sweep(region: Region, liveness: _Liveness) -> None:
    region.ops = [op for op in region.ops if op.kind == "yield" or op in liveness.live]
    for op in region.ops:
        if op.regions:
            _prune(op, liveness.needed)
            for r in op.regions:
                _sweep(r, liveness)


def keep_only(region: Region, kind: str) -> None:
    """Deletes what no op of this kind needs, whatever its effect; the region has no arguments."""
    _sweep(region, _Liveness(region, lambda op: op.kind == kind))


def drop_breakpoints(module: Module, target: Target) -> None:
    """Compiled code does not stop: what a breakpoint alone needs is dead."""
    for region in [module.body, *(r for op in module.walk() for r in op.regions)]:
        region.ops = [op for op in region.ops if op.kind != "breakpoint"]


def remove_dead(module: Module) -> None:
    """Deletes every op and carried slot that no effect needs."""
    _sweep(module.body, _Liveness(module.body))
