"""Copies of a task that differ only in numbers share one region.

The frontend compiles every copy by itself, with its own `async_task_replica_id()`.  Two consumers of a GEMM then differ
in a few constants, and everything after would be done twice, the assembler's work above all.  Here neighbouring copies
become one region with `copies`, in which `task_copy` tells them apart at run time.

Invariant after the pass: copies of a task are still apart where their code differs, where one of them allocates, where
what differs must be known at compile time, or where the task will run on fewer warps than it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import Scalar, int32
from tlxc.targets import Target

from .tasks import for_one_warp
from .warps import WARPGROUP

_PER_REGION = ("num_warps", "start_warp", "num_regs", "replica")
_APART = frozenset({"local_alloc", "alloc_barriers", "named_barrier_wait", "named_barrier_arrive", "vote", "thread_id"})

Difference = tuple[Op, list[int]]  # a constant of the first copy, and its value in every copy
Found = tuple[Op, tuple[int, int]]  # such a constant, the number of another copy, and its value there


def merge_copies(module: Module, target: Target) -> None:
    """See the invariant of this module."""
    for op in [op for op in module.walk() if op.kind == "async_tasks"]:
        groups = _groups(op)
        if len(groups) == len(op.regions):
            continue
        for group in groups:
            _share([op.regions[i] for i in group])
        firsts = [group[0] for group in groups]
        op.regions = [op.regions[i] for i in firsts]
        for name in _PER_REGION:
            op.attrs[name] = tuple(op.attrs[name][i] for i in firsts)
        op.attrs["copies"] = tuple(map(len, groups))


def _groups(op: Op) -> list[list[int]]:
    """Numbers of the regions, those together that can be one."""
    groups: list[list[int]] = []
    for i in range(len(op.regions)):
        before = groups[-1] if groups else []
        if before and _follows(op, before, i) and _differences([op.regions[j] for j in (*before, i)]) is not None:
            before.append(i)
        else:
            groups.append([i])
    return groups


def _follows(op: Op, group: list[int], i: int) -> bool:
    """Whether region i is the next copy of the task that a group holds, on the next warps."""
    warps, starts, regs, replica = (op.attrs[name] for name in _PER_REGION)
    first = group[0]
    return (
        first > 0
        and replica[i] == len(group)
        and warps[i] == warps[first]
        and warps[i] % WARPGROUP == 0
        and regs[i] == regs[first]
        and starts[i] == starts[first] + len(group) * warps[i]
        and not for_one_warp(op.regions[i])
    )


# ------------------------------------------------------------------------------------------------ comparison
def _differences(regions: Sequence[Region]) -> list[Difference] | None:
    """The constants in which regions differ; None where they differ in more, or not by equal steps."""
    found: list[Found] = []
    first = regions[0]
    maps: list[dict[Value, Value]] = [{} for _ in regions[1:]]
    if not all(_alike(first, other, m, found, i + 1) for i, (other, m) in enumerate(zip(regions[1:], maps))):
        return None
    values = {constant: [constant.attrs["value"]] * len(regions) for constant, _ in found}
    for constant, (copy, value) in found:
        values[constant][copy] = value
    steps = [(constant, v, v[1] - v[0]) for constant, v in values.items()]
    if any(v != [v[0] + i * step for i in range(len(v))] for _, v, step in steps):
        return None
    return [(constant, v) for constant, v, _ in steps]


def _alike(a: Region, b: Region, same: dict[Value, Value], found: list[Found], copy: int) -> bool:
    """Whether b is a, values of b taken through `same`; constants that differ are `found`."""
    if len(a.ops) != len(b.ops) or [x.type for x in a.args] != [x.type for x in b.args]:
        return False
    same.update(zip(b.args, a.args))
    for x, y in zip(a.ops, b.ops):
        if x.kind in _APART or x.kind != y.kind or [r.type for r in x.results] != [r.type for r in y.results]:
            return False
        if [v and same.get(v, v) for v in y.operands] != x.operands or len(x.regions) != len(y.regions):
            return False
        if x.attrs != y.attrs:
            if x.kind != "constant" or x.result.type != Scalar(int32):
                return False
            found.append((x, (copy, y.attrs["value"])))
        if not all(_alike(r, s, same, found, copy) for r, s in zip(x.regions, y.regions)):
            return False
        same.update(zip(y.results, x.results))
    return True


# ------------------------------------------------------------------------------------------------ one region
def _share(regions: Sequence[Region]) -> None:
    """Makes the first region that of all: what differs is computed from the number of the copy."""
    differences = _differences(regions) if len(regions) > 1 else None
    if not differences:
        return
    number = Op("task_copy", (), (Scalar(int32),))
    steps = dict(differences)
    _rewrite(regions[0], steps, number.result)
    regions[0].ops.insert(0, number)


def _rewrite(region: Region, steps: dict[Op, list[int]], number: Value) -> None:
    out: list[Op] = []
    for op in region.ops:
        for r in op.regions:
            _rewrite(r, steps, number)
        if op in steps:
            low, high = steps[op][:2]
            base = Op("constant", (), (Scalar(int32),), {"value": low}, None, op.loc)
            step = Op("constant", (), (Scalar(int32),), {"value": high - low}, None, op.loc)
            scaled = Op("mul", (number, step.result), (Scalar(int32),), None, None, op.loc)
            out += [base, step, scaled]
            op.kind, op.operands, op.attrs = "add", [base.result, scaled.result], {}
        out.append(op)
    region.ops = out
