"""The critical path of a launch: walked back from its end, every cycle belongs to what the end was waiting for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

from .record import LOAD, TENSOR, WAIT, Lane, Launch, Span

# How a cycle was spent
THROUGHPUT, LATENCY, INSTRUCTIONS, BARRIERS = "throughput", "latency", "instructions", "barriers"


class Part(NamedTuple):
    """What cycles went to: a way, an agent or task, and of its throughput the unit that limits it.  `task` is where the
    path was, or who gave the work out."""

    way: str
    name: str
    limit: str
    task: str


class _Walk:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.cycles: Counter[Part] = Counter()
        self._starts = {id(lane): [span.start for span in lane.spans] for lane in launch.tasks()}
        self._ended: dict[int, Lane] = {}
        for lane in launch.tasks():
            if lane.spans:
                self._ended.setdefault(lane.spans[-1].end, lane)

    def spend(self, way: str, name: str, task: str, cycles: int, limit: str = "") -> None:
        if cycles > 0:
            self.cycles[Part(way, name, limit, task)] += cycles

    def run(self) -> Counter[Part]:
        spans = [lane.spans[-1] for lane in self.launch.lanes if lane.spans]
        if not spans:
            return self.cycles
        span: Span | None = max(spans, key=lambda span: span.end)
        time = self.launch.end
        for _ in range(4 * sum(len(lane.spans) for lane in self.launch.lanes)):
            if span is None or time <= self.launch.start:
                break
            span, time = self._back(span, time)
        return self.cycles

    def _back(self, span: Span, time: int) -> tuple[Span | None, int]:
        """What was before: (span, time in it)."""
        task = span.lane.name
        if span.flight is not None:
            flight = span.flight
            issuer = flight.issuer.lane.name
            self.spend(LATENCY, task, issuer, time - max(flight.moved, flight.issued))
            self.spend(THROUGHPUT, task, issuer, min(time, flight.moved) - flight.issued, flight.limit)
            return flight.issuer, flight.issued
        if span.kind in (WAIT, LOAD) and span.blocked > 0 and time >= span.released and span.cause is not None:
            self.spend(BARRIERS, task, task, time - span.cause.time)
            return span.cause.span, span.cause.time
        if span.op.kind == "dot":
            self.spend(THROUGHPUT, TENSOR, task, time - span.start, TENSOR)
        else:
            self.spend(BARRIERS if span.kind == WAIT else INSTRUCTIONS, task, task, time - span.start)
        return self._before(span.lane, min(time, span.start))

    def _before(self, lane: Lane, time: int) -> tuple[Span | None, int]:
        """The span of a task before a time; at its beginning, that of who started the task or left the SM to it."""
        index = bisect_left(self._starts[id(lane)], time) - 1
        if index >= 0:
            found = lane.spans[index]
            self.spend(INSTRUCTIONS, lane.name, lane.name, time - found.end)
            return found, min(time, found.end)
        first = next(other for other in self.launch.tasks() if other.cta == lane.cta)
        if first is not lane:
            return self._before(first, time)
        gone = self._ended.get(time)
        return (None, time) if gone is None or gone is lane else (gone.spans[-1], time)


def critical_path(launch: Launch) -> Counter[Part]:
    """Cycles of the path by what they went to; together the time of the launch."""
    return _Walk(launch).run()
