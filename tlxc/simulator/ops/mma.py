"""Matrix products on tensor cores: in order within a strand, waited for by groups."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from .. import checks
from ..agents import AsyncOp, Pending
from ..memory import Place
from ..program import Step
from ..reports import at, fail
from ..values import matmul
from .barrier import begin
from .buffer import must_be_known

if TYPE_CHECKING:
    from ..machine import Strand


def _read(strand: Strand, step: Step, operand: Any) -> Any:
    """The elements of an operand, now."""
    if isinstance(operand, Place):
        must_be_known(strand, strand.cta, operand.start, operand.foot, operand.name, step.op)
        return strand.cta.memory.read(operand)
    return operand


def _accumulator(acc: Any) -> Any:
    return acc.value if isinstance(acc, Pending) else acc


def async_dot(strand: Strand, step: Step, a: Any, b: Any, acc: Any, use: Any = None) -> Pending:
    op, machine = step.op, strand.machine
    result = Pending(op)
    work = AsyncOp(op, strand)
    for operand in (a, b):
        if isinstance(operand, Place):
            access = machine.number()
            work.reads.append(access)
            checks.shared_access(
                strand, strand.cta, operand.start, operand.foot, operand.name, op, strand.clock, False, True, access
            )
        elif isinstance(operand, Pending):
            raise fail("pending-value", f"an operand of {at(op)} in {strand.name} is not ready", op, operand.op)

    def multiply() -> None:
        sum_ = None if use is not None and not use else _accumulator(acc)
        result.value = matmul(op, _read(strand, step, a), _read(strand, step, b), sum_)

    work.stages = [multiply, _nothing]
    work.result = result
    strand.products.append(work)
    machine.submit(work, in_order=True)
    return result


def _nothing() -> None:
    """Done, but not yet known to be."""


def retire(strand: Strand, step: Step, pendings: int) -> Iterator[Any]:
    """Waits until at most `pendings` products are under way."""
    old = strand.products[: max(len(strand.products) - pendings, 0)]
    strand.block("engine", step.op, None)
    while not all(work.finished for work in old):
        yield strand.engines
    strand.blocked = None
    for work in old:
        for access in work.reads:
            strand.clock.know(access)
        assert work.result is not None
        work.result.ready = True
    del strand.products[: len(old)]


def async_dot_wait(strand: Strand, step: Step, *values: Any) -> Generator[Any, None, Any]:
    if len(strand.machine.ready) > 1:
        yield None
    begin(strand)
    pendings = step.op.attrs["pendings"]
    yield from retire(strand, step, pendings)
    strand.acquired.append(f"{at(step.op)} ({pendings})")
    ready = [v.value if isinstance(v, Pending) and v.ready else v for v in values]
    return ready[0] if len(step.outs) == 1 else ready


def dot(strand: Strand, step: Step, a: Any, b: Any, acc: Any) -> Generator[Any, None, Any]:
    """Complete when the op is; by wgmma it waits for all products before it."""
    if step.op.attrs.get("impl") == "wgmma":
        begin(strand)
        yield from retire(strand, step, 0)
    for operand in (a, b):
        if isinstance(operand, Place):
            checks.shared_access(
                strand, strand.cta, operand.start, operand.foot, operand.name, step.op, strand.clock, False, True
            )
    if isinstance(acc, Pending):
        if not acc.ready:
            raise fail("pending-value", f"the accumulator of {at(step.op)} is not ready", step.op, acc.op)
        acc = acc.value
    return matmul(step.op, _read(strand, step, a), _read(strand, step, b), acc)


EFFECTS = {"async_dot": async_dot}
FLOWS = {"async_dot_wait": async_dot_wait, "dot": dot}
