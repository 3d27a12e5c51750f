"""Warp-specialised regions: one code path per task, chosen by the uniform index of the warp.

Register budgets belong to warpgroups, whose four warps must run one `setmaxnreg` together; so the first branch is over
*units*: a task that owns whole warpgroups, or a warpgroup that several small tasks share.  Where more code follows the
region, every warpgroup has its launch count again before it (all meet first: a warpgroup must synchronise between two
`setmaxnreg`, and those that grow wait for those that shrink).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tlxc.ir.core import Op, Region
from tlxc.passes.named_barriers import taken_barriers
from tlxc.passes.tasks import hardware_barriers
from tlxc.passes.warps import copies_of

from .lowering import Lowering, lowers

GROUP = 4  # warps of a warpgroup


@dataclass
class Task:
    region: Region
    start: int
    warps: int  # of each copy
    copies: int
    budget: int
    barrier_id: int

    @property
    def end(self) -> int:
        return self.start + self.warps * self.copies


@dataclass
class Unit:
    """Warps [start, end) with one register budget, and the tasks inside."""

    start: int
    end: int
    tasks: list[Task] = field(default_factory=list)

    @property
    def budget(self) -> int:
        return max((t.budget for t in self.tasks), default=0)


def tasks_of(low: Lowering, op: Op) -> list[Task]:
    barriers = hardware_barriers(op, taken_barriers(low.module))
    assert barriers is not None, "the tasks pass refuses regions without enough barriers"
    columns = (op.attrs["start_warp"], op.attrs["num_warps"], copies_of(op), op.attrs["num_regs"], barriers)
    return [Task(*row) for row in zip(op.regions, *columns)]


def units_of(tasks: list[Task], total_warps: int) -> list[Unit]:
    """Units in warp order, covering every warp of the CTA."""
    units: dict[int, Unit] = {}
    for t in tasks:
        first = t.start // GROUP * GROUP
        last = -(-t.end // GROUP) * GROUP
        units.setdefault(first, Unit(first, last)).tasks.append(t)
    covered = {w for u in units.values() for w in range(u.start, u.end)}
    for start in range(0, total_warps, GROUP):
        if start not in covered:
            units[start] = Unit(start, start + GROUP)
    return [units[start] for start in sorted(units)]


@lowers("async_tasks")
def async_tasks(low: Lowering, op: Op) -> None:
    w = low.w
    tasks = tasks_of(low, op)
    done = w.new_block("joined")
    if low.total_warps == tasks[0].end:
        _run(low, tasks[0])
        return
    units = units_of(tasks, low.total_warps)
    restores = any(u.budget for u in units) and not _ends_kernel(low, op)
    for unit in units[:-1]:
        inside, rest = w.new_block("unit"), w.new_block("rest")
        w.branch(w.assign(f"icmp ult i32 {low.cta_warp}, {unit.end}"), inside, rest)
        w.start(inside)
        _unit(low, unit, restores, done)
        w.start(rest)
    _unit(low, units[-1], restores, done)
    w.start(done)


def _ends_kernel(low: Lowering, op: Op) -> bool:
    """Whether nothing after the region computes a value."""
    ops = low.module.body.ops
    return op in ops and not any(later.results for later in ops[ops.index(op) + 1 :])


def _unit(low: Lowering, unit: Unit, restores: bool, done: str) -> None:
    """The code of one unit, then a jump to `done`."""
    w, launch = low.w, low.module.maxnreg
    if unit.budget:
        assert launch is not None, "the register pass sets maxnreg where a task has a budget"
        low.emitter.set_registers(unit.budget, launch)
    left = w.new_block("left")
    _branch_to_tasks(low, unit, left)
    w.start(left)
    if restores:
        low.emitter.barrier("0", low.total_warps, True)
        if launch is not None and unit.budget not in (0, launch):
            low.emitter.set_registers(launch, unit.budget)
    w.jump(done)


def _branch_to_tasks(low: Lowering, unit: Unit, done: str) -> None:
    """One code path for each task of the unit; all end in a jump to `done`."""
    w = low.w
    for task in unit.tasks:
        if (task.start, task.end) == (unit.start, unit.end):
            _run(low, task)
            break
        inside, rest = w.new_block("task"), w.new_block("rest")
        index = w.assign(f"sub i32 {low.cta_warp}, {task.start}") if task.start else low.cta_warp
        w.branch(w.assign(f"icmp ult i32 {index}, {task.end - task.start}"), inside, rest)
        w.start(inside)
        _run(low, task)
        w.jump(done)
        w.start(rest)
    w.jump(done)


def _run(low: Lowering, task: Task) -> None:
    with low.task(task.start, task.warps, task.copies, task.barrier_id):
        low.region(task.region)
