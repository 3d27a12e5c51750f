"""A program whose steps take time: each is wrapped, so that the simulator itself knows nothing of clocks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op
from tlxc.ir.table import OPS

from ..control import refuse_pending
from ..ops.barrier import begin
from ..program import EFFECT, FLOW, PURE, Program, Step

if TYPE_CHECKING:
    from .strand import TimedStrand

Flow = Generator[Any, None, Any]
Slots = Sequence[int]


class TimedProgram(Program):
    """All steps are flows: they wait for loads that they use, let those go first whose clock is behind, run, and move
    the clock of their strand."""

    def _step(self, op: Op) -> Step | None:
        step = super()._step(op)
        if step is None:
            return None
        structured = OPS[op.kind].has("structured")
        step.fn = partial(_structured, step.fn) if structured else partial(_timed, step.fn, step.mode)
        step.mode = FLOW
        receivers = _receivers(step)
        for i, code in enumerate(step.codes):
            tested = code.yields[:1] if op.kind == "while" and i == 0 else []
            code.steps.append(Step(op, FLOW, partial(_region_end, tested, code.yields, receivers), [], []))
        return step


def _receivers(step: Step) -> list[Slots]:
    """Where what regions yield has its next names, each in the order of the yield."""
    if step.op.kind == "for":
        return [step.codes[0].args[1:], step.outs]
    if step.op.kind == "while":
        return [step.codes[0].args, step.codes[1].args, step.outs]
    return [step.outs] if step.op.kind == "if" else []


def _region_end(tested: Slots, yields: Slots, receivers: list[Slots], strand: TimedStrand, step: Step) -> Flow:
    """A loop or branch takes a value that is still being loaded along; the condition of a loop is used."""
    yield from strand.use(step.op, tested)
    if not tested:
        strand.rename_loads(yields, receivers)


def _structured(fn: Callable[..., Flow], strand: TimedStrand, step: Step, *values: Any) -> Flow:
    kind = step.op.kind
    carried = {"for": step.ins[3:], "while": step.ins}.get(kind, [])
    yield from strand.use(step.op, step.ins[: len(step.ins) - len(carried)])
    strand.rename_loads(carried, _receivers(step))
    value = yield from fn(strand, step, *values)
    if kind == "async_tasks":
        strand.join(step.op)
    return value


def _timed(fn: Callable[..., Any], mode: int, strand: TimedStrand, step: Step, *values: Any) -> Flow:
    op, operands = step.op, list(values)
    yield from strand.use(op, step.ins)
    cost = strand.cost(op, operands)
    if mode != PURE or cost.unit:
        yield None
    strand.open(op, operands, mode == PURE)
    if mode == FLOW:
        value = yield from fn(strand, step, *values)
        strand.waited(operands)
    else:
        try:
            if mode == EFFECT:
                begin(strand)
            value = fn(op, operands) if mode == PURE else fn(strand, step, *values)
        except (TypeError, AttributeError, ValueError):
            refuse_pending(strand, step, operands)
            raise
    strand.close(op, operands, cost, step.out)
    return value
