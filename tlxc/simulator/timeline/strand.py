"""A strand on the clock: when its ops begin and end, and which loads are on their way to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op
from tlxc.ir.types import Barrier

from ..barriers import BarrierPlace
from ..machine import Cta, Strand
from ..memory import Place
from ..ops.barrier import holds, number
from . import costs
from .record import LOAD, TENSOR, WAIT, WORK, Cause, Flight, Span

if TYPE_CHECKING:
    from .costs import Charge
    from .machine import TimedMachine


class TimedStrand(Strand):
    """`time`: when its next op may begin.  `journal`: its lane of the timeline.  `span`: the op that it is in.
    `release`: what last woke it.  `loading`: slots whose values are on their way, when they come and by which
    flight."""

    machine: TimedMachine

    def __init__(self, machine: TimedMachine, cta: Cta, number: int, name: str, warps: int) -> None:
        super().__init__(machine, cta, number, name, warps)
        self.time = 0
        self.sm = machine.sm_of(cta)
        self.journal = machine.lane(cta, f"strand {number}", agent=False)
        self.journal.name = "main"
        self.span = Span(self.journal, WORK, 0, 0, [])
        self.release: Cause | None = None
        self.loading: dict[int, tuple[int, Span]] = {}

    def rename(self, name: str, warps: int) -> None:
        super().rename(name, warps)
        if self.journal.name == "main":
            self.journal.name = name

    def cost(self, op: Op, values: list[Any]) -> Charge:
        return costs.charge(costs.Launch(self.machine.target, self.machine.timing, self.warps), op, values)

    # -- ops

    def open(self, op: Op, values: list[Any], pure: bool) -> None:
        """An op begins now."""
        self.span = Span(self.journal, WORK, self.time, self.time, [op], mergeable=pure)
        self.release = None
        self.machine.values = values
        if not pure:
            _name(self.span, self.cta, op, values)

    def waited(self, values: list[Any]) -> None:
        """The wait that the open op makes is over.  That of a product is a part of it; one whose predicate is false is
        none."""
        span = self.span
        if span.op.kind == "dot" or (span.op.kind == "barrier_wait" and not holds(values[2])):
            return
        span.kind = WAIT
        span.released = self.time
        span.cause = self.release
        self.time += self.machine.timing.wait
        if span.op.kind == "barrier_wait":
            bar = self.cta.barriers[values[0].start]
            seen = bar.phase - 1
            span.phase = seen if seen >= 0 else None
            span.cause = self.machine.completions.get((bar, seen))

    def close(self, op: Op, values: list[Any], cost: Charge, out: int) -> None:
        """The open op ends when its costs are paid."""
        span, machine = self.span, self.machine
        if cost.unit:
            begin = self.sm.unit(cost.unit).take(self.time, cost.busy)
            if cost.unit == costs.TENSOR:
                self._product(begin, cost)
            self.time = begin + cost.hold
        else:
            self.time += cost.hold
        if op.kind in ("load", "store", "atomic_rmw"):
            done, flight = machine.transfer(self, op, values)
            if out >= 0:
                self.loading[out] = done, flight
        span.end = self.time
        if span.end > span.start:
            self.journal.add(span)

    def _product(self, begin: int, cost: Charge) -> None:
        """A product that the task itself waits for."""
        made = Span(self.machine.lane(self.cta, TENSOR, agent=True), TENSOR, begin, begin + cost.busy, self.span.ops)
        made.flight = Flight(self.span, self.time, begin + cost.busy, TENSOR)
        made.lane.spans.append(made)
        self.span.cause = Cause(made, begin + cost.hold)

    # -- loads that are under way

    def use(self, op: Op, slots: Iterable[int]) -> Any:
        """Waits until the values of these slots are there."""
        coming = [self.loading.pop(i) for i in slots if i in self.loading] if self.loading else []
        if not coming:
            return
        until, flight = max(coming, key=lambda one: one[0])
        if until > self.time:
            span = Span(self.journal, LOAD, self.time, until, list(flight.ops))
            span.cause, span.released = Cause(flight, until), until
            self.journal.spans.append(span)
            self.time = until
            yield None

    def rename_loads(self, slots: Sequence[int], receivers: Sequence[Sequence[int]]) -> None:
        coming = [self.loading.get(i) for i in slots]
        for names in receivers:
            for slot, value in zip(names, coming):
                self.loading.pop(slot, None)
                if value is not None:
                    self.loading[slot] = value

    def join(self, op: Op) -> None:
        """The tasks of a region are over; the wait for them begins where the strand's own work ended."""
        last = self.journal.spans[-1].end if self.journal.spans else self.time
        if self.time > last:
            self.journal.spans.append(
                Span(self.journal, WAIT, last, self.time, [op], cause=self.release, released=self.time)
            )


def _name(span: Span, cta: Cta, op: Op, values: list[Any]) -> None:
    """Which buffers and which barrier an op is about, and the phase that is open there."""
    span.buffers = tuple(v.name for v in values if isinstance(v, Place))
    place = next((v for v in values if isinstance(v, BarrierPlace)), None)
    if place is None or isinstance(op.results[0].type if op.results else None, Barrier):
        return
    span.barrier = place.name
    owner = cta
    if op.kind == "barrier_arrive" and values[2] is not None:
        owner = cta.cluster[number(values[2]) % len(cta.cluster)]
    bar = owner.barriers.get(place.start)
    span.phase = None if bar is None else bar.phase
