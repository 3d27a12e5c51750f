"""Where tasks run: warps and hardware barriers of each task copy, and the warps of the CTA.

Invariant after the pass: `module.attrs["total_warps"]` counts the warps of the CTA where the kernel has a region, a
multiple of 4; tasks of one region share no warp, and none straddles a warpgroup unless it starts at one; every op that
has an effect stands in a task or is run by all warps (`outside.py`); register budgets can be granted (`registers.py`);
all warps take part in the cluster barriers of tasks (`padding.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Region
from tlxc.ir.table import OPS
from tlxc.ir.types import Barrier, Tensor
from tlxc.targets import Target

from .named_barriers import NAMED_BARRIERS, bound_named_barriers, taken_barriers
from .outside import wrap_outside
from .padding import pad_cluster_barriers
from .registers import grant_registers
from .warps import WARPGROUP, copies_of, task_name, warp_ranges


def place_tasks(module: Module, target: Target) -> None:
    """See the invariant of this module."""
    bound_named_barriers(module)
    _inline_lone_defaults(module)
    regions = [op for op in module.walk() if op.kind == "async_tasks"]
    if not regions:
        return
    for op in regions:
        _check_ranges(op)
    total = max(module.num_warps, *(end for op in regions for _, end in warp_ranges(op)))
    total = -(-total // WARPGROUP) * WARPGROUP
    if total > target.max_warps:
        raise CompileError(
            "the tasks of this kernel need more warps than a CTA can have",
            found=f"{total} warps, counted in whole warpgroups of {WARPGROUP}",
            allowed=f"at most {target.max_warps} warps on {target.name}",
            fix="use fewer tasks, fewer replicas or fewer warps per task",
            loc=regions[0].loc,
        )
    module.attrs["total_warps"] = total
    grant_registers(module, regions, target)
    for op in regions:
        _narrow(op)
    wrap_outside(module)
    pad_cluster_barriers(module)
    _check_named_barriers(module)


def tasks_of(module: Module) -> Iterator[tuple[Region, int]]:
    """(code, number of warps) of every task; without a region, the body of the kernel."""
    regions = [op for op in module.walk() if op.kind == "async_tasks"]
    if not regions:
        yield module.body, module.num_warps
    for op in regions:
        yield from zip(op.regions, op.attrs["num_warps"])


# ------------------------------------------------------------------------------------------------ structure
def _inline_lone_defaults(module: Module) -> None:
    """A kernel whose regions hold the default task alone is not specialised: the bodies stand where the regions did."""
    if all(len(op.regions) == 1 for op in module.walk() if op.kind == "async_tasks"):
        _inline(module.body)


def _inline(region: Region) -> None:
    out: list[Op] = []
    for op in region.ops:
        for r in op.regions:
            _inline(r)
        out += op.regions[0].ops if op.kind == "async_tasks" else [op]
    region.ops = out


# ------------------------------------------------------------------------------------------------ warps
def _check_ranges(op: Op) -> None:
    ranges = warp_ranges(op)
    names = [task_name(op, i) for i in range(len(ranges))]
    for i, ((start, end), size) in enumerate(zip(ranges, op.attrs["num_warps"])):
        if size <= 0 or size & (size - 1):
            raise CompileError(
                "the number of warps of a task is a power of two",
                found=f"{size} warps for {names[i]}",
                fix="use more replicas or more tasks for other sizes",
                loc=op.loc,
            )
        if start < 0:
            raise CompileError("a task starts at a warp of the CTA", found=f"warp {start} for {names[i]}", loc=op.loc)
        if start % WARPGROUP and start % WARPGROUP + size > WARPGROUP:
            raise CompileError(
                "a task straddles two warpgroups",
                found=f"{names[i]} on warps {start} to {end - 1}",
                allowed=f"tasks inside one warpgroup of {WARPGROUP} warps, or starting at a multiple of {WARPGROUP}",
                fix="start it at a multiple of its number of warps with warp_group_start_id",
                loc=op.loc,
            )
        for j, (other, other_end) in enumerate(ranges[:i]):
            if start < other_end and other < end:
                raise CompileError(
                    "two tasks overlap in their warps",
                    found=f"{names[j]} on warps {other} to {other_end - 1}, {names[i]} on warps {start} to {end - 1}",
                    fix=f"start the second at warp {other_end} or later",
                    loc=op.loc,
                )


# ------------------------------------------------------------------------------------------------ one-warp tasks
# Ops that one thread performs for its task, or that every warp does alike without the others.
_ONE_WARP = frozenset(
    "barrier_wait barrier_arrive barrier_expect tma_load tma_store tma_store_wait tma_prefetch prefetch_descriptor "
    "encode_descriptor acquire_descriptor bulk_load bulk_store load store atomic_rmw prefetch reduce fence "
    "fence_async_shared grid_dependency".split()
)


def _narrow(op: Op) -> None:
    """A task without tiles, as a TMA producer, runs on its first warp: its other warps would only repeat the waits, and
    one that fell a whole turn of the ring behind would wait for a phase that is gone."""
    sizes = list(op.attrs["num_warps"])
    for i, region in enumerate(op.regions):
        if sizes[i] > 1 and for_one_warp(region):
            sizes[i] = 1
    op.attrs["num_warps"] = tuple(sizes)


def for_one_warp(region: Region) -> bool:
    """Whether more warps would only do the same again."""
    return all(map(_for_one_warp, region.walk()))


def _for_one_warp(op: Op) -> bool:
    if op.kind == "breakpoint":
        return True
    tiles = [v for v in (*op.inputs, *op.results) if isinstance(v.type, Tensor) and v.type.numel > 1]
    every_thread = [v for v in op.inputs if isinstance(v.type, Barrier) and v.type.warp and op.kind == "barrier_arrive"]
    if tiles or every_thread or op.kind == "thread_id":
        return False
    return op.kind in _ONE_WARP or bool(OPS[op.kind].traits & {"pure", "structured", "terminator"})


# ------------------------------------------------------------------------------------------------ hardware barriers
def hardware_barriers(op: Op, taken: frozenset[int]) -> list[int] | None:
    """The first barrier of each region, those of its copies following; 0 for tasks of one warp, which need none.  None
    where there are too few."""
    out, used = [], {0, *taken}
    for warps, copies in zip(op.attrs["num_warps"], copies_of(op)):
        runs = (range(i, i + copies) for i in range(NAMED_BARRIERS - copies + 1))
        run = next((r for r in runs if used.isdisjoint(r)), None) if warps > 1 else range(1)
        if run is None:
            return None
        out.append(run[0])
        used.update(run)
    return out


def _check_named_barriers(module: Module) -> None:
    """Every task of several warps has a hardware barrier of its own; the author's and the CTA take others."""
    ids = taken_barriers(module)
    for op in (op for op in module.walk() if op.kind == "async_tasks"):
        if hardware_barriers(op, ids) is None:
            wanted = sum(c for n, c in zip(op.attrs["num_warps"], copies_of(op)) if n > 1)
            raise CompileError(
                "the tasks of this region need more hardware barriers than there are",
                found=f"{wanted} tasks of several warps, and {len(ids)} named barriers of the kernel",
                allowed=f"{NAMED_BARRIERS - 1} together; one of {NAMED_BARRIERS} is that of the whole CTA",
                fix="use fewer task copies, or tasks of one warp",
                loc=op.loc,
            )
