"""Phases of the waits that `desc.load` makes.

Every such wait completes one phase of a barrier that nobody else uses, so the parities alternate along the path of
execution.  The parity is a value of its own: it starts at 0, flips after each wait, and is carried by the loops and
merged by the branches around the waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import Scalar, int32
from tlxc.language.context import Private

PARITY = Scalar(int32)


def fill_phases(module: Module, sites: Sequence[Private]) -> None:
    """Gives every wait of each site its phase."""
    if not sites:
        return
    zero, one = (Op("constant", (), (PARITY,), {"value": n}) for n in (0, 1))
    for site in sites:
        _Parity(set(site.waits), zero.result, one.result).through(module.body, zero.result, looped=False)
    module.body.ops[:0] = [zero, one]


class _Parity:
    """The parity of one barrier on its way through the regions of a kernel."""

    def __init__(self, waits: set[Op], zero: Value, one: Value) -> None:
        self.waits, self.zero, self.one = waits, zero, one

    def concerns(self, region: Region) -> bool:
        return any(op in self.waits for op in region.walk())

    def through(self, region: Region, parity: Value, looped: bool) -> Value:
        """Sets the phases of the waits in a region that is entered with `parity`; what it is at the end.  `looped`: the
        region may be entered again."""
        done: list[Op] = []
        for op in region.ops:
            done.append(op)
            if op in self.waits:
                op.operands[1] = parity
                flip = Op("xor", (parity, self.one), (PARITY,), loc=op.loc)
                done.append(flip)
                parity = flip.result
            elif any(map(self.concerns, op.regions)):
                parity = self._structured(op, parity, looped)
        region.ops = done
        return parity

    def _structured(self, op: Op, parity: Value, looped: bool) -> Value:
        if op.kind == "async_tasks":
            if looped:
                raise _repeated(op)
            for region in op.regions:
                self.through(region, self.zero, looped)
            return self.zero
        loop = op.kind != "if"
        if loop:
            op.operands.append(parity)
        for region in op.regions:
            start = parity
            if loop:
                start = Value(PARITY, None, len(region.args))
                region.args.append(start)
            if op.kind == "while" and region is op.regions[0]:
                if self.concerns(region):
                    raise _in_condition(op)
            else:
                end = self.through(region, start, looped or loop)
                region.terminator.operands.append(end)
        op.results.append(Value(PARITY, op, len(op.results)))
        return op.results[-1]


def _repeated(op: Op) -> CompileError:
    return CompileError(
        "desc.load stands in a region of tasks that a loop repeats",
        found="a wait whose phase would be lost between two runs of the region",
        fix="move the loop into the tasks, or write tlx.async_descriptor_load with a barrier and a phase of your own",
        loc=op.loc,
    )


def _in_condition(op: Op) -> CompileError:
    return CompileError(
        "desc.load stands in the condition of a loop",
        fix="load before the loop and at the end of its body",
        loc=op.loc,
    )
