"""Checks that conflicting accesses to shared memory are synchronised, without any code of the inserting pass.

Accesses, barriers and fences become the nodes of a control-flow graph.  For each pair of accesses of overlapping bytes,
one of them a write, a search asks whether the second is reached from the first without the synchronisation it needs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region
from tlxc.ir.table import OPS
from tlxc.ir.types import Buffer


@dataclass(eq=False)
class Node:
    """One op of interest, or a join (`op` None)."""

    op: Op | None = None
    following: list[Node] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.op.kind if self.op is not None else ""


@dataclass(frozen=True)
class Touch:
    node: Node
    first: int
    end: int
    writes: bool
    asynchronous: bool  # a read of the async proxy

    def conflicts(self, other: Touch) -> bool:
        return (self.writes or other.writes) and self.first < other.end and other.first < self.end


class _Graph:
    def __init__(self, module: Module) -> None:
        self.touches: list[Touch] = []
        self.chain(module.body, [Node()])

    def chain(self, region: Region, tails: list[Node]) -> list[Node]:
        """Appends the region's events behind `tails`; returns the new tails."""
        for op in region.ops:
            if op.kind == "if":
                tails = self.chain(op.regions[0], tails) + self.chain(op.regions[1], tails)
            elif op.regions:
                head = self.link(Node(), tails)
                tested = self.chain(op.regions[0], [head]) if op.kind == "while" else [head]
                for tail in self.chain(op.regions[-1], tested):
                    tail.following.append(head)
                tails = tested
            elif op.kind in ("barrier", "fence_async_shared"):
                tails = [self.link(Node(op), tails)]
            elif any(isinstance(v.type, Buffer) for v in op.inputs):
                tails = [self.link(Node(op), tails)]
                self.record(tails[0], op)
        return tails

    @staticmethod
    def link(node: Node, tails: list[Node]) -> Node:
        for t in tails:
            t.following.append(node)
        return node

    def record(self, node: Node, op: Op) -> None:
        traits = OPS[op.kind].traits
        writes = "writes_shared" in traits
        if not writes and "reads_shared" not in traits and op.kind != "dot":
            raise InternalError(f"{op.kind} at {op.loc} touches a buffer, but its row names no effect on shared memory")
        for v in op.inputs:
            if isinstance(v.type, Buffer):
                if v.op is None or v.op.attrs.get("offset") is None:
                    raise InternalError(f"{op.kind} at {op.loc} touches a buffer that has no place")
                first = v.op.attrs["offset"]
                self.touches.append(Touch(node, first, first + v.type.nbytes, writes, op.kind == "dot"))


def _unsynchronised(a: Touch, b: Touch) -> bool:
    """Whether a path leads from a to b without a barrier; from a write to an async read, without a fence and then one.

    The search runs over (node, fenced): a barrier ends a path, once the fence was met where one is needed.
    """
    needs_fence = a.writes and b.asynchronous
    start = (a.node, not needs_fence)
    seen, work = {start}, deque([start])
    while work:
        node, fenced = work.popleft()
        for after in node.following:
            if after is b.node:
                return True
            if after.kind == "barrier" and fenced:
                continue
            state = (after, fenced or after.kind == "fence_async_shared")
            if state not in seen:
                seen.add(state)
                work.append(state)
    return False


def verify_hazards(module: Module) -> None:
    """Raises InternalError that names both accesses of the first pair found."""
    touches = _Graph(module).touches
    for a in touches:
        for b in touches:
            if a.conflicts(b) and _unsynchronised(a, b):
                raise InternalError(_report(a, b, module))


def _report(a: Touch, b: Touch, module: Module) -> str:
    assert a.node.op is not None and b.node.op is not None
    first, end = max(a.first, b.first), min(a.end, b.end)
    missing = "a proxy fence followed by a barrier" if a.writes and b.asynchronous else "a barrier"
    return (
        f"{module.name}: {b.node.kind} at {b.node.op.loc} can follow {a.node.kind} at {a.node.op.loc} without "
        f"{missing}, and both touch shared memory bytes {first} to {end - 1}."
    )
