"""What a timed run leaves: spans on lanes, and what released each wait.  Times are cycles from the first launch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tlxc.errors import TlxcError
from tlxc.ir.core import Op
from tlxc.targets import Target
from tlxc.targets.timing import Timing

from ..reports import spelled

WORK, WAIT, LOAD = "work", "wait", "load"  # of tasks; a load is a wait for the value of one
TENSOR, TRANSFER = "tensor core", "transfer"  # of agents


class Cause(NamedTuple):
    """What ended a wait: a span, and when in it."""

    span: Span
    time: int


class Flight(NamedTuple):
    """Of an agent's span.  `issuer`: the op that started it, at `issued`.  Until the span's start it is queued, until
    `moved` it takes the unit's throughput, after that it is latency.  `limit`: the slowest unit on its way."""

    issuer: Span
    issued: int
    moved: int
    limit: str


@dataclass(slots=True, eq=False)
class Span:
    """One op on a lane, or arithmetic of one source line (`ops`).  `released`: when a wait could end, at its
    start or later; it ends a little after that.  `mergeable`: arithmetic."""

    lane: Lane
    kind: str
    start: int
    end: int
    ops: list[Op]
    buffers: tuple[str, ...] = ()
    barrier: str = ""
    phase: int | None = None
    cause: Cause | None = None
    released: int = 0
    flight: Flight | None = None
    mergeable: bool = False

    @property
    def op(self) -> Op:
        return self.ops[0]

    @property
    def line(self) -> int | None:
        return None if self.op.loc is None else self.op.loc.line

    @property
    def label(self) -> str:
        """`barrier_wait full[1] phase 3`."""
        names = list(dict.fromkeys(spelled(op) for op in self.ops))
        text = ", ".join(names[:3]) + ("..." if len(names) > 3 else "")
        phase = "" if self.phase is None else f"phase {self.phase}"
        return " ".join(part for part in (text, *self.buffers, self.barrier, phase) if part)

    @property
    def stage(self) -> int | None:
        """Index of its barrier, else of the first buffer that has one."""
        for name in (self.barrier, *self.buffers):
            if found := re.search(r"\[(\d+)\]", name):
                return int(found[1])
        return None

    @property
    def blocked(self) -> int:
        """Cycles of a wait until it could end."""
        return self.released - self.start if self.kind in (WAIT, LOAD) else 0


@dataclass(slots=True, eq=False)
class Lane:
    """A task of a CTA, or an agent that works for it, in the order of time.  Spans of an agent may overlap."""

    cta: int
    sm: int
    name: str
    agent: bool
    spans: list[Span] = field(default_factory=list)

    def add(self, span: Span) -> None:
        """Appends; arithmetic of the line that the last span is of, into that."""
        last = self.spans[-1] if self.spans else None
        if last is not None and last.mergeable and span.mergeable and last.end == span.start and last.line == span.line:
            last.ops += span.ops
            last.end = span.end
        else:
            self.spans.append(span)


class Launch:
    """One grid, from `start` to `end`."""

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start, self.end = name, start, start
        self.lanes: list[Lane] = []

    @property
    def ctas(self) -> int:
        return len({lane.cta for lane in self.lanes})

    def tasks(self) -> list[Lane]:
        return [lane for lane in self.lanes if not lane.agent]

    def agents(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.agent]


class Timeline:
    """The launches of a `simulate` block, one after the other."""

    def __init__(self, target: Target) -> None:
        if target.timing is None:
            raise TlxcError(
                f"tlxc knows no figures of time for {target.name}, so it draws no timeline for it; take another target."
            )
        self.target = target
        self.timing: Timing = target.timing
        self.launches: list[Launch] = []

    @property
    def end(self) -> int:
        return self.launches[-1].end if self.launches else 0

    def begin(self, name: str) -> Launch:
        self.launches.append(Launch(name, self.end))
        return self.launches[-1]
