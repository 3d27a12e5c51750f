"""Warps without a task take part in the cluster barriers of the tasks.

The hardware counts every thread of the CTA.  Invariant after the pass: where a task executes `cluster_barrier`, all
tasks of its region do, and so do the warps that had none: they run a copy of the code of a task, of which nothing is
left but its cluster barriers and what decides how often they are executed.
"""

from __future__ import annotations

from collections.abc import Iterator

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Region, Value, clone_op
from tlxc.ir.table import OPS
from tlxc.ir.types import Tensor

from .dead_code import keep_only
from .warps import WARPGROUP, task_name, warp_ranges


def pad_cluster_barriers(module: Module) -> None:
    """See the invariant of this module.  Runs when all effects stand in tasks."""
    for op in list(module.walk()):
        if op.kind == "async_tasks" and any(map(_barriers, op.regions)):
            _check_all_meet(op)
            _pad(op, module.attrs["total_warps"])


def _barriers(region: Region) -> list[Op]:
    return [op for op in region.walk() if op.kind == "cluster_barrier"]


def _check_all_meet(op: Op) -> None:
    met = [_barriers(r) for r in op.regions]
    missing = [i for i, found in enumerate(met) if not found]
    if missing:
        one = next(i for i, found in enumerate(met) if found)
        raise CompileError(
            "cluster_barrier is executed by some tasks of a region and not by others",
            found=f"{task_name(op, one)} executes it, {task_name(op, missing[0])} does not",
            allowed="regions in which every task executes it the same number of times: the hardware counts all warps",
            fix="call tlx.cluster_barrier() in the other tasks too, or outside of the region; an mbarrier with "
            "remote_cta_rank tells single tasks",
            loc=met[one][0].loc,
        )


def _pad(op: Op, total: int) -> None:
    """Gives the idle warps of a region tasks."""
    runs = list(_idle(op, total))
    for start, warps in runs:
        added = {"num_warps": warps, "start_warp": start, "num_regs": 0, "replica": 0}
        if "copies" in op.attrs:
            added["copies"] = 1
        op.regions.append(_skeleton(op, sum(n for _, n in runs)))
        for name, value in added.items():
            op.attrs[name] = (*op.attrs[name], value)


def _idle(op: Op, total: int) -> Iterator[tuple[int, int]]:
    """(start, warps) of runs without a task, each as long as a task there may be."""
    busy = {w for start, end in warp_ranges(op) for w in range(start, end)}
    at = 0
    while at < total:
        size = next((n for n in (16, 8, 4, 2, 1) if _fits(at, n, total, busy)), 0)
        if size:
            yield at, size
        at += size or 1


def _fits(at: int, size: int, total: int, busy: set[int]) -> bool:
    """A task begins a warpgroup or stays inside one, at a multiple of its size."""
    return at % min(size, WARPGROUP) == 0 and at + size <= total and busy.isdisjoint(range(at, at + size))


def _skeleton(op: Op, idle: int) -> Region:
    """The cluster barriers of the first task of which the other warps can tell how often they come."""
    culprits = []
    for region in op.regions:
        copies: dict[Value, Value] = {}
        out = Region()
        out.ops = [clone_op(inner, copies) for inner in region.ops]
        keep_only(out, "cluster_barrier")
        culprit = next((inner for inner in out.walk() if not _for_any_warp(inner)), None)
        if culprit is None:
            return out
        culprits.append(culprit)
    outside = len(op.regions) == 1  # code that stands in no region of the author's
    raise CompileError(
        "only the default task knows how often it executes this cluster_barrier"
        if outside
        else "only the task itself knows how often it executes this cluster_barrier",
        found=f"a loop or branch around it that depends on {culprits[0].kind}, and {idle} warps of the CTA without a "
        "task, which the barrier waits for too",
        allowed="loops and branches that follow from arguments, program ids and what was computed before the region",
        fix="take it out of the loop or branch"
        if outside
        else "compute the condition before the region, or use tasks that fill whole groups of 4 warps",
        loc=_barriers(op.regions[0])[0].loc,
        related=[("it depends on", culprits[0].loc)],
    )


def _for_any_warp(op: Op) -> bool:
    traits = OPS[op.kind].traits
    if op.kind == "cluster_barrier" or traits & {"structured", "terminator"}:
        return True
    if op.kind == "task_copy":  # they are no copy of that task
        return False
    tiles = any(isinstance(v.type, Tensor) for v in (*op.inputs, *op.results))
    return "pure" in traits and "convergent" not in traits and not tiles
