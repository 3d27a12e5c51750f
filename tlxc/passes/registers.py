"""Register budgets of warpgroups.

`setmaxnreg` moves registers between the warpgroups of a CTA, never beyond those that it was launched with.  So the sum
over all warpgroups of their registers per thread is at most the number of warpgroups times the launch count.
"""

from __future__ import annotations

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op
from tlxc.targets import Target

from .warps import WARPGROUP, warp_ranges

UNIT = 8  # budgets are multiples of it
SMALLEST, LARGEST = 24, 240  # registers per thread that a budget may give


def launch_registers(module: Module, target: Target) -> int:
    """Registers per thread at launch: `maxnreg`, or an equal share for every thread, in whole units."""
    threads = module.attrs.get("total_warps", module.num_warps) * target.warp_size
    fair = min(target.registers_per_sm // threads, target.max_registers)
    return min(module.maxnreg or fair, fair) // UNIT * UNIT


def grant_registers(module: Module, regions: list[Op], target: Target) -> None:
    """Fills `num_regs` of every task copy with the budget of its warpgroup, and sets `maxnreg` to the launch count.
    Where no task asks for a budget, nothing changes: every thread keeps what it was launched with."""
    if not any(n for op in regions for n in op.attrs["num_regs"]):
        return
    launch = launch_registers(module, target)
    for op in regions:
        if any(op.attrs["num_regs"]):
            _grant(op, module.attrs["total_warps"] // WARPGROUP, launch)
    module.maxnreg = launch


def _groups_of(op: Op) -> list[range]:
    """Warpgroups that the copies of each region touch."""
    return [range(start // WARPGROUP, -(-end // WARPGROUP)) for start, end in warp_ranges(op)]


def _grant(op: Op, groups: int, launch: int) -> None:
    wanted: dict[int, int] = {}  # warpgroup -> budget, 0 for none asked
    for copy, n in zip(_groups_of(op), op.attrs["num_regs"]):
        if n and not SMALLEST <= n <= LARGEST:
            raise CompileError(
                "a register budget is out of range",
                found=f"num_regs={n}",
                allowed=f"{SMALLEST} to {LARGEST} registers per thread",
                loc=op.loc,
            )
        for g in copy:
            wanted[g] = max(wanted.get(g, 0), -(-n // UNIT) * UNIT)
    asked = sum(wanted.values())
    unused = groups - len(wanted)  # warpgroups without a task keep what they have
    sharing = [g for g, n in wanted.items() if not n]
    left = launch * (groups - unused) - asked
    share = min(left // max(1, len(sharing)) // UNIT * UNIT, LARGEST)
    if left < 0 or sharing and share < SMALLEST:
        raise _infeasible(op, wanted, launch)
    granted = {g: n or share for g, n in wanted.items()}
    op.attrs["num_regs"] = tuple(max(granted[g] for g in copy) for copy in _groups_of(op))


def _infeasible(op: Op, wanted: dict[int, int], launch: int) -> CompileError:
    threads = WARPGROUP * 32
    parts = [f"{n or f'at least {SMALLEST}'} for warpgroup {g}" for g, n in sorted(wanted.items())]
    total = sum(n or SMALLEST for n in wanted.values())
    return CompileError(
        "the register budgets of this region cannot be granted",
        found=f"{', '.join(parts)}: {threads} threads x {total} = {threads * total} registers",
        allowed=f"{len(wanted)} warpgroups launched with {launch} registers per thread: "
        f"{threads} x {launch * len(wanted)} = {threads * launch * len(wanted)}",
        fix="lower num_regs of some tasks, or use fewer task copies",
        loc=op.loc,
    )
