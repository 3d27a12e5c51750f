"""Execution barriers, mbarriers and fences."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Barrier, Scalar, element_of, int1, int32

SCOPES = ("gpu", "sys")


def _one(op: Op) -> Barrier:
    b = op.inputs[0].type
    require(isinstance(b, Barrier) and b.count == 0, f"{op.kind} takes one barrier; take a view of the array first")
    assert isinstance(b, Barrier)
    return b


def _alloc(op: Op) -> None:
    require(isinstance(op.result.type, Barrier), "alloc_barriers gives barriers")
    require(op.attrs["arrive_count"] >= 1, "alloc_barriers: at least one arrival completes a phase")


def _view(op: Op) -> None:
    b, r = op.inputs[0].type, op.result.type
    require(isinstance(b, Barrier) and b.count > 0 and r == Barrier(0, b.warp), "barrier_view takes one of an array")
    require(op.inputs[1].type == Scalar(int32), "barrier_view: the index is an i32 scalar")


def _pred(op: Op, position: int) -> None:
    p = op.operands[position]
    require(p is None or p.type == Scalar(int1), f"{op.kind}: pred is an i1 scalar")


def _wait(op: Op) -> None:
    _one(op)
    require(op.inputs[1].type == Scalar(int32), "barrier_wait: the phase is an i32 scalar")
    _pred(op, 2)


def _arrive(op: Op) -> None:
    _one(op)
    _pred(op, 1)
    rank = op.operands[2]
    require(rank is None or rank.type == Scalar(int32), "barrier_arrive: the rank is an i32 scalar")
    require(op.attrs["count"] >= 1, "barrier_arrive: count is positive")


def _expect(op: Op) -> None:
    _one(op)
    _pred(op, 1)
    require(op.attrs["bytes"] > 0, "barrier_expect: bytes is positive")


def _named(op: Op) -> None:
    require(element_of(op.inputs[0].type) == int32, f"{op.kind}: the id is an i32 scalar")
    require(op.attrs["threads"] % 32 == 0, f"{op.kind}: threads is a multiple of 32")
    first, last = op.attrs.get("ids", (1, 15))
    require(1 <= first <= last <= 15, f"{op.kind}: ids are 1 to 15")


def _fence(op: Op) -> None:
    require(op.attrs["scope"] in SCOPES, f"fence: scope is one of {', '.join(SCOPES)}")


def _grid_dependency(op: Op) -> None:
    allowed = ("wait", "launch_dependents")
    require(op.attrs["action"] in allowed, f"grid_dependency: action is one of {', '.join(allowed)}")


SYNC = "convergent reads_shared writes_shared"

row(
    "barrier",
    "barrier",
    "",
    0,
    "",
    "cta",
    traits=SYNC,
    doc="All threads of the task arrive before any goes on, and see each other's memory: `bar.sync`, `s_barrier`; "
    "`bar.warp.sync` where the task is one warp.  `cta`: all threads of the CTA.",
)
row(
    "fence_async_shared",
    "barrier",
    "",
    0,
    traits=SYNC,
    doc="Makes generic writes to shared memory visible to wgmma and TMA: `fence.proxy.async.shared::cta`.",
)
row(
    "fence",
    "barrier",
    "",
    0,
    "scope",
    traits=SYNC + " reads_global writes_global",
    verify=_fence,
    doc="Orders memory accesses at device or system scope: `fence.acq_rel.gpu`, `fence.acq_rel.sys`.",
)
row(
    "grid_dependency",
    "barrier",
    "",
    0,
    "action",
    traits=SYNC + " reads_global writes_global",
    verify=_grid_dependency,
    doc="Between a grid and the one before it in its stream, where it is launched with `launch_pdl`: `wait` until that "
    "has ended and its memory is visible, or `launch_dependents`: `griddepcontrol.wait`, "
    "`griddepcontrol.launch_dependents`.",
)
row(
    "alloc_barriers",
    "barrier",
    "",
    1,
    "arrive_count",
    "offset",
    verify=_alloc,
    doc="mbarriers in shared memory, initialised by one thread of the CTA: `mbarrier.init.shared::cta.b64`.",
)
row(
    "barrier_view",
    "barrier",
    "array index",
    1,
    traits="pure",
    verify=_view,
    doc="One barrier of an array; the index is not checked.  Address arithmetic only.",
)
row(
    "barrier_wait",
    "barrier",
    "bar phase pred?",
    0,
    "",
    "site",
    traits=SYNC,
    verify=_wait,
    doc="Every thread spins until the phase with this parity has completed: "
    "`mbarrier.try_wait.parity.shared::cta.b64`.  "
    "`site`: the number of a wait that gives up after a limit.",
)
row(
    "barrier_arrive",
    "barrier",
    "bar pred? rank?",
    0,
    "count",
    "synced release",
    traits=SYNC,
    verify=_arrive,
    doc="One thread of the task arrives `count` times after all its threads (a warp barrier: every thread by "
    "itself); with "
    "`rank` at the barrier in the same place of that CTA: `mbarrier.arrive.shared::cta.b64`, `.shared::cluster`.  "
    "`synced`: the task need not meet before, for nothing that its other threads did is ordered by it.  "
    "`release`: orders stores to other CTAs before it for all of the cluster: `.release.cluster`.",
)
row(
    "barrier_expect",
    "barrier",
    "bar pred?",
    0,
    "bytes",
    "synced",
    traits=SYNC,
    verify=_expect,
    doc="The same, one arrival that announces `bytes` of transactions: `mbarrier.arrive.expect_tx.shared::cta.b64`.",
)
row(
    "named_barrier_wait",
    "barrier",
    "id",
    0,
    "threads",
    "ids",
    traits=SYNC,
    verify=_named,
    doc="`bar.sync id, threads`: waits until `threads` threads have come to the hardware barrier.  "
    "`ids`: the smallest and largest that a run-time id can be.",
)
row(
    "named_barrier_arrive",
    "barrier",
    "id",
    0,
    "threads",
    "ids",
    traits=SYNC,
    verify=_named,
    doc="`bar.arrive id, threads`: comes to the hardware barrier without waiting.  `ids` as above.",
)
