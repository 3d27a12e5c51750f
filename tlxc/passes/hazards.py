"""Checks that conflicting accesses to shared memory are synchronised, without any code of the inserting pass.

Accesses, barriers, fences and waits become the nodes of a control-flow graph; the tasks of a region are branches of
it.  For each pair of accesses of overlapping bytes, one of them a write, a search asks whether the second is reached
from the first without what it needs in between:

    ordinary accesses               a barrier
    a write, then the async proxy   a fence, then a barrier
    an asynchronous access          the wait that ends it, then a barrier; a missing wait is the kernel's own affair

The same search tells whether an arrival that is marked as needing no meeting of its task, or an atomic that releases,
can follow an access of another thread without one.  Two tasks that run at once are ordered by the kernel's own
barriers, which is not checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.table import OPS
from tlxc.ir.types import Barrier, Buffer

_WARPS_THAT_MULTIPLY = 4  # of one wgmma


@dataclass(frozen=True, eq=False)
class Task:
    """The warps that run a piece of code: a task copy, or all of the CTA (`op` None)."""

    op: Op | None
    warps: int


@dataclass(eq=False)
class Node:
    """One op of interest, or a join (`op` None)."""

    task: Task
    op: Op | None = None
    following: list[Node] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.op.kind if self.op is not None else ""

    def orders(self, task: Task) -> bool:
        """Whether all threads of a task meet here."""
        if self.op is None:
            return False
        if self.kind == "cluster_barrier":
            return not self.op.attrs.get("relaxed") and self.task is task
        if self.kind == "barrier" and self.op.attrs.get("cta"):
            return True
        if self.kind in ("barrier", "named_barrier_wait"):
            return self.task is task
        return _arrives(self.op) and not self.op.attrs.get("synced") and self.task is task


@dataclass(frozen=True)
class Touch:
    """Bytes [first, end) that an op accesses.  `proxy`: by the async proxy; `ended_by`: the wait that ends it."""

    node: Node
    first: int
    end: int
    writes: bool
    proxy: bool = False
    ended_by: str = ""

    def conflicts(self, other: Touch) -> bool:
        return (self.writes or other.writes) and self.first < other.end and other.first < self.end


# Kind -> (operand, writes, proxy, wait) of each buffer that an op accesses.  TMA loads end at an mbarrier, which every
# thread waits for: nothing is left to order behind them.
_ROWS: dict[str, tuple[tuple[int, bool, bool, str], ...]] = {
    "local_load": ((0, False, False, ""),),
    "local_gather": ((0, False, False, ""),),
    "local_store": ((0, True, False, ""),),
    "local_scatter": ((0, True, False, ""),),
    "encode_descriptor": ((1, True, False, ""),),
    "async_load": ((1, True, False, "async_load_wait"),),
    "dot": ((0, False, True, ""), (1, False, True, "")),
    "async_dot": ((0, False, True, "async_dot_wait"), (1, False, True, "async_dot_wait")),
    "tma_store": ((1, False, True, "tma_store_wait"),),
    "bulk_store": ((1, False, True, "tma_store_wait"),),
    "tma_load": ((1, True, True, "mbarrier"),),
    "bulk_load": ((1, True, True, "mbarrier"),),
    "async_remote_copy": ((1, False, True, "mbarrier"),),
}
_VIEWS = ("local_view", "local_trans", "local_slice", "local_reinterpret")
_ELSEWHERE = ("remote_store", "async_remote_store")
_WAITS = ("async_load_wait", "async_dot_wait", "tma_store_wait")
_SYNC = ("barrier", "fence_async_shared", "named_barrier_wait", "cluster_barrier", "barrier_wait", *_WAITS)
_GLOBAL = ("load", "store", "atomic_rmw")


def _arrives(op: Op) -> bool:
    if op.kind == "barrier_expect":
        return True
    return op.kind == "barrier_arrive" and isinstance(op.inputs[0].type, Barrier) and not op.inputs[0].type.warp


# ------------------------------------------------------------------------------------------------ the graph
class _Graph:
    def __init__(self, module: Module) -> None:
        self.touches: list[Touch] = []
        self.nodes: list[Node] = []
        whole = Task(None, module.attrs.get("total_warps", module.num_warps))
        self.chain(module.body, [Node(whole)], whole)

    def chain(self, region: Region, tails: list[Node], task: Task) -> list[Node]:
        """Appends the region's events behind `tails`; returns the new tails."""
        for op in region.ops:
            if op.kind == "if":
                tails = self.chain(op.regions[0], tails, task) + self.chain(op.regions[1], tails, task)
            elif op.kind == "async_tasks":
                tails = [tail for part in self.parts(op, tails) for tail in part]
            elif op.regions:
                head = self.link(Node(task), tails)
                tested = self.chain(op.regions[0], [head], task) if op.kind == "while" else [head]
                for tail in self.chain(op.regions[-1], tested, task):
                    tail.following.append(head)
                tails = tested
            elif op.kind in _SYNC or op.kind in _GLOBAL or _arrives(op):
                tails = [self.link(Node(task, op), tails)]
            elif op.kind not in _VIEWS and any(isinstance(v.type, Buffer) for v in op.inputs):
                tails = [self.link(Node(task, op), tails)]
                self.record(tails[0], op)
        return tails

    def parts(self, op: Op, tails: list[Node]) -> Iterator[list[Node]]:
        """The tails of every task, and those of the warps that run none."""
        yield tails
        for r, warps in zip(op.regions, op.attrs["num_warps"]):
            yield self.chain(r, tails, Task(op, warps))

    def link(self, node: Node, tails: list[Node]) -> Node:
        for t in tails:
            t.following.append(node)
        self.nodes.append(node)
        return node

    def record(self, node: Node, op: Op) -> None:
        if op.kind in _ELSEWHERE:
            return
        if op.kind not in _ROWS:
            raise InternalError(f"{op.kind} at {op.loc} touches a buffer, but the hazard verifier does not know how")
        for operand, writes, proxy, wait in _ROWS[op.kind]:
            v = op.operands[operand]
            if v is not None and isinstance(v.type, Buffer):
                first, size = _place(v, op)
                if writes and "writes_shared" not in OPS[op.kind].traits:
                    raise InternalError(f"{op.kind} writes a buffer, but its row names no such effect")
                self.touches.append(Touch(node, first, first + size, writes, proxy, wait))


def _place(v: Value, user: Op) -> tuple[int, int]:
    """(first byte, bytes) of a buffer.  A tile of an array whose index is not known may be any of them."""
    steps, op = [], v.op
    while op is not None and op.kind in _VIEWS:
        steps.append(op)
        op = op.inputs[0].op
    if op is None or op.attrs.get("offset") is None:
        raise InternalError(f"{user.kind} at {user.loc} touches a buffer that has no place")
    assert isinstance(op.result.type, Buffer)
    first, size = op.attrs["offset"], op.result.type.nbytes
    for step in reversed(steps):
        if step.kind == "local_view" and step.inputs[1].op is not None and step.inputs[1].op.kind == "constant":
            assert isinstance(step.result.type, Buffer)
            size = step.result.type.nbytes
            array = step.inputs[0].type
            assert isinstance(array, Buffer)
            first += array.tile_offset(step.inputs[1].op.attrs["value"])
    return first, size


# ------------------------------------------------------------------------------------------------ searches
# How far a path has come towards what its second access needs.
_UNDER_WAY, _OVER, _FENCED = range(3)


def _unsynchronised(a: Touch, b: Touch) -> bool:
    """Whether a path leads from a to b without the synchronisation that b needs."""
    task = a.node.task
    if _by_one_party(a, b):
        return False
    needs_fence = a.writes and not a.proxy and b.proxy
    start = (a.node, _UNDER_WAY if a.ended_by else _OVER if needs_fence else _FENCED)
    seen, work = {start}, deque([start])
    while work:
        node, stage = work.popleft()
        for after in node.following:
            if after is b.node and stage != _UNDER_WAY:
                return True
            reached = _advance(after, stage, a, needs_fence, task)
            for state in ((after, s) for s in reached):
                if state not in seen:
                    seen.add(state)
                    work.append(state)
    return False


def _by_one_party(a: Touch, b: Touch) -> bool:
    """Accesses of one thread come in program order; so do those of one warpgroup's multiplies and its first thread."""
    if a.ended_by == "mbarrier":
        return True
    if not a.proxy or not b.proxy or a.node.task is not b.node.task:
        return False
    multiplies = a.node.kind in ("dot", "async_dot")
    return not multiplies or a.node.task.warps <= _WARPS_THAT_MULTIPLY


def _advance(after: Node, stage: int, a: Touch, needs_fence: bool, task: Task) -> tuple[int, ...]:
    """The stages of a path behind a node; none where it has all that it needs."""
    if stage == _UNDER_WAY:
        if after.kind != a.ended_by:
            return (stage,)
        assert after.op is not None
        over = _OVER if needs_fence else _FENCED
        return (over, _UNDER_WAY) if after.op.attrs["pendings"] else (over,)
    if after.kind == "fence_async_shared":
        return (_FENCED,)
    if stage == _FENCED and after.orders(task):
        return ()
    return (stage,)


def _early_arrivals(graph: _Graph) -> Iterator[tuple[Node, Node]]:
    """(access, arrival): an arrival or release without a meeting of its task that can follow one of other threads."""
    for node in graph.nodes:
        if not _touches_memory(node) and not (node.kind == "barrier_wait" and node.task.warps > 1):
            continue
        seen, work = {node}, deque([node])
        while work:
            for after in work.popleft().following:
                if after.op is not None and _meets_nobody(after.op) and after.task is node.task:
                    yield node, after
                if after not in seen and not after.orders(node.task) and not _gathers(after, node):
                    seen.add(after)
                    work.append(after)


def _meets_nobody(op: Op) -> bool:
    """Whether one thread tells others here what its task has done, and does not wait for the rest of the task."""
    if op.kind == "atomic_rmw":
        return op.attrs["sem"] in ("release", "acq_rel")
    return _arrives(op) and bool(op.attrs.get("synced"))


def _touches_memory(node: Node) -> bool:
    """Whether threads other than the first access memory here."""
    if node.kind in ("dot", "async_dot"):
        return node.task.warps > _WARPS_THAT_MULTIPLY
    rows = _ROWS.get(node.kind, ())
    by_all = any(not proxy for _, _, proxy, _ in rows) or node.kind in _GLOBAL or node.kind in _ELSEWHERE
    return by_all or node.kind == "async_load_wait"


def _gathers(after: Node, node: Node) -> bool:
    """A multiply of the one warpgroup of a task proves that all its warps have passed a wait."""
    multiplies = after.kind in ("dot", "async_dot") and after.task.warps <= _WARPS_THAT_MULTIPLY
    return node.kind == "barrier_wait" and multiplies


# ------------------------------------------------------------------------------------------------ the verdict
def verify_hazards(module: Module) -> None:
    """Raises InternalError that names both accesses of the first pair found."""
    graph = _Graph(module)
    for a in graph.touches:
        for b in graph.touches:
            if a.conflicts(b) and _unsynchronised(a, b):
                raise InternalError(_report(a, b, module))
    for access, arrival in _early_arrivals(graph):
        assert access.op is not None and arrival.op is not None
        raise InternalError(
            f"{module.name}: {arrival.kind} at {arrival.op.loc} can follow {access.kind} at {access.op.loc} without "
            "a barrier of its task."
        )


def _report(a: Touch, b: Touch, module: Module) -> str:
    assert a.node.op is not None and b.node.op is not None
    first, end = max(a.first, b.first), min(a.end, b.end)
    missing = "a proxy fence followed by a barrier" if a.writes and not a.proxy and b.proxy else "a barrier"
    return (
        f"{module.name}: {b.node.kind} at {b.node.op.loc} can follow {a.node.kind} at {a.node.op.loc} without "
        f"{missing}, and both touch shared memory bytes {first} to {end - 1}."
    )
