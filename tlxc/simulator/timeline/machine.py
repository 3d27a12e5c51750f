"""A machine on the clock: whoever is furthest behind goes next, agents complete when their units have done the work."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from tlxc.ir.core import Op

from ..agents import AsyncOp
from ..barriers import MBarrier, Waitable
from ..machine import Cta, Machine, Strand
from ..memory import SharedMemory
from . import agents, costs
from .record import TENSOR, TRANSFER, WAIT, Cause, Flight, Lane, Span, Timeline
from .strand import TimedStrand
from .units import Chip, Sm

_MAX_CTAS = 32  # of an SM, whatever they need
_STUCK = 100  # cycles that a wait without end is drawn for, at least
_RESERVED = 1024  # bytes of shared memory that the system takes for each CTA


class _Flying:
    """Work of an agent; `times` of its stages."""

    __slots__ = ("work", "times", "span", "priority")

    def __init__(self, work: AsyncOp, times: list[int], span: Span) -> None:
        self.work, self.times, self.span, self.priority = work, times, span, -1.0


class _Queue:
    """What is ready, by time.  The strand that runs counts, though it is taken out."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, float, int, Any]] = []
        self._pushed = 0

    def push(self, time: int, item: Any) -> None:
        self._pushed += 1
        heappush(self.heap, (time, item.priority, self._pushed, item))

    def append(self, strand: TimedStrand) -> None:
        self.push(strand.time, strand)

    def __len__(self) -> int:
        return len(self.heap) + 1


class TimedMachine(Machine):
    """Runs all clusters of a grid: as many at once as fit on the SMs of the card, the others when one of them is done.
    `completions`: what completed which phase of a barrier."""

    strand_type = TimedStrand

    def __init__(self, timeline: Timeline, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.launch, self.timing = timeline.begin(self.program.module.name), timeline.timing
        self.now = self.launch.start
        self.queue = _Queue()
        self.ready = self.queue  # type: ignore[assignment]
        self.chip = Chip(self.timing)
        self.current: TimedStrand | _Flying | None = None
        self.values: list[Any] = []
        self.completions: dict[tuple[MBarrier, int], Cause] = {}
        self._lanes: dict[tuple[int, str], Lane] = {}
        self._homes: dict[int, Sm] = {}
        self._waiting: list[tuple[int, int, int]] = []
        self._sms = [Sm(i) for i in range(self.target.sm_count or 1)]
        self._slots = max(1, len(self._sms) * self._residents() // self.per_cluster)
        self._alive: dict[int, int] = {}  # CTAs of a cluster that have not exited

    # -- CTAs on SMs

    def _residents(self) -> int:
        """CTAs that an SM holds, by shared memory and warps; registers are not known here."""
        module, target = self.program.module, self.target
        regions = [op.attrs for op in module.walk() if op.kind == "async_tasks"]
        warps = max([module.num_warps, *(s + n for a in regions for s, n in zip(a["start_warp"], a["num_warps"]))])
        by_memory = target.shared_per_sm // (self.program.shared + _RESERVED)
        return max(1, min(by_memory, self.timing.warps_per_sm // warps, _MAX_CTAS))

    def add_cluster(self, first: tuple[int, int, int]) -> None:
        if len(self._alive) == self._slots:
            self._waiting.append(first)
        else:
            super().add_cluster(first)

    def sm_of(self, cta: Cta) -> Sm:
        """The SM of a CTA; a new one goes to the SM that has the fewest."""
        found = self._homes.get(cta.number)
        if found is None:
            found = self._homes[cta.number] = min(self._sms, key=lambda sm: sm.residents)
            found.residents += 1
            self._alive[id(cta.cluster)] = self._alive.get(id(cta.cluster), 0) + 1
        return found

    def lane(self, cta: Cta, name: str, agent: bool) -> Lane:
        key = (cta.number, name)
        if key not in self._lanes:
            sm = self.sm_of(cta).number
            self._lanes[key] = Lane(cta.number, sm, name, agent)
            self.launch.lanes.append(self._lanes[key])
        return self._lanes[key]

    # -- time

    def _moment(self) -> int:
        """When what happens now happens."""
        return self.current.time if isinstance(self.current, TimedStrand) else self.now

    def _actor(self) -> Cause | None:
        return None if self.current is None else Cause(self.current.span, self._moment())

    def enter(self, item: Any) -> None:
        item.time = self._moment()
        if isinstance(self.current, TimedStrand):
            item.loading = dict(self.current.loading)
        super().enter(item)

    def wake(self, what: Waitable) -> None:
        time, actor = self._moment(), self._actor()
        if isinstance(what, MBarrier) and actor is not None:
            self.completions[what, what.phase - 1] = actor
        for strand in what.waiters:
            assert isinstance(strand, TimedStrand)
            strand.time = max(strand.time, time)
            strand.release = actor
            self.queue.append(strand)
        what.waiters.clear()

    def run(self) -> None:
        try:
            while self.queue.heap:
                self.now, _, _, item = heappop(self.queue.heap)
                self.current = item
                if isinstance(item, TimedStrand):
                    self._go_on(item)
                else:
                    self._fly_on(item)
            self.settle()
        finally:
            self._close()

    def _go_on(self, strand: TimedStrand) -> None:
        try:
            what = next(strand.flow)
        except StopIteration:
            self._finish(strand)
            return
        if what is None:
            self.queue.append(strand)
        else:
            what.waiters.append(strand)

    def _fly_on(self, flying: _Flying) -> None:
        work = flying.work
        while not work.finished and flying.times[work.done] <= self.now:
            work.advance()
        if not work.finished:
            self.queue.push(flying.times[work.done], flying)
        self.wake(work.strand.engines)

    def _finish(self, strand: Strand) -> None:
        super()._finish(strand)
        cta = strand.cta
        if not cta.exited:
            return
        self.sm_of(cta).residents -= 1
        self._alive[id(cta.cluster)] -= 1
        if not self._alive[id(cta.cluster)]:
            del self._alive[id(cta.cluster)]
            for gone in cta.cluster:
                gone.memory = SharedMemory(0)  # nothing may touch it any more; grids are large
            if self._waiting:
                self.now, self.current = self._moment(), None
                super().add_cluster(self._waiting.pop(0))

    def _close(self) -> None:
        """The end of a launch.  Where it failed, waits that nothing ended last until then, and so long that one sees
        them."""
        ends = [span.end for lane in self.launch.lanes for span in lane.spans]
        end = max([self.now, *ends])
        blocked = [strand for strand in self.strands.values() if strand.blocked is not None]
        if blocked:
            end += _STUCK + (end - self.launch.start) // 10
        for strand in blocked:
            assert isinstance(strand, TimedStrand) and strand.blocked is not None
            span = strand.span
            if strand.blocked.op not in span.ops:  # the wait for tasks
                span = Span(strand.journal, WAIT, strand.time, end, [strand.blocked.op])
            span.kind, span.end, span.released = WAIT, end, end
            strand.journal.spans.append(span)
        self.launch.end = end

    # -- agents

    def submit(self, work: AsyncOp, in_order: bool = False) -> None:
        """Completes when its unit has come to it and done it; products stay in order, as their unit works so."""
        strand = work.strand
        assert isinstance(strand, TimedStrand)
        if work.op.kind == "async_dot":
            done, span = self._multiply(strand, work.op)
        else:
            done, span = self.transfer(strand, work.op, self.values)
        times = [done] * len(work.stages)
        if work.op.kind in ("tma_store", "bulk_store"):
            assert span.flight is not None
            times[0] = span.flight.moved  # shared memory has been read
        self.queue.push(times[0], _Flying(work, times, span))

    def _multiply(self, strand: TimedStrand, op: Op) -> tuple[int, Span]:
        cost = costs.product(costs.Launch(self.target, self.timing, strand.warps), op)
        begin = strand.sm.unit(costs.TENSOR).take(strand.time, cost.busy)
        lane = self.lane(strand.cta, TENSOR, agent=True)
        span = Span(lane, TENSOR, begin, begin + cost.busy, [op], strand.span.buffers)
        span.flight = Flight(strand.span, strand.time, begin + cost.busy, TENSOR)
        lane.spans.append(span)
        return begin + cost.hold, span

    def transfer(self, strand: TimedStrand, op: Op, values: list[Any]) -> tuple[int, Span]:
        """Sends a copy on its way: when it is done."""
        agent = agents.AGENTS[op.kind]
        rate, size = agents.rate_of(agent, self.timing), agents.amount(op, values, self.memory)
        unit = strand.sm.unit(agent.name)
        if agent.name == agents.REMOTE:
            begin = unit.take(strand.time, -(-size.size // rate))
            moved, latency, limit = unit.free, self.timing.remote_latency, unit.name
        else:
            cold = min(size.size, self.chip.missing(size.blocks) * size.block)
            reads = not agent.writes
            begin, moved, latency, limit = self.chip.move(unit, rate, strand.time, size.size, cold, reads)
            latency += getattr(self.timing, agent.extra) if agent.extra else 0
        lane = self.lane(strand.cta, agent.name, agent=True)
        about = strand.span
        span = Span(lane, TRANSFER, begin, moved + latency, [op], about.buffers, about.barrier, about.phase)
        span.flight = Flight(about, strand.time, moved, limit)
        lane.spans.append(span)
        return span.end, span
