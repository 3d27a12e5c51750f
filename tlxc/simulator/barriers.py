"""mbarriers and rendezvous barriers: state, and the clocks that they hand over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op
from tlxc.ir.types import Barrier

from .clocks import Clock

if TYPE_CHECKING:
    from .machine import Cta, Strand


class BarrierPlace:
    """A barrier value: an array or one, `start` bytes into shared memory."""

    __slots__ = ("start", "type", "name")

    def __init__(self, start: int, type: Barrier, name: str) -> None:
        self.start, self.type, self.name = start, type, name


class Waitable:
    """Something that strands wait for; whoever changes it wakes them."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: list[Strand] = []


class Arrival:
    """Who arrived at a barrier in its open phase."""

    __slots__ = ("strand", "op", "count")

    def __init__(self, strand: Strand, op: Op, count: int) -> None:
        self.strand, self.op, self.count = strand, op, count


class MBarrier(Waitable):
    """`phase`: number of the open one, from 0.  `pending` arrivals and `tx` bytes are left of it.  `collected`: what
    happened before all arrivals so far; `completed`: the same at the completion of a phase.  `waits`: by the phase that
    they saw complete, -1 for those that fell through: (strand, epoch, op).  `announced`: bytes of the open phase;
    `delivered`: the copies that brought some."""

    def __init__(self, cta: Cta, place: BarrierPlace, count: int, strands: int, alloc: Op) -> None:
        super().__init__()
        self.cta, self.place, self.count, self.alloc = cta, place, count, alloc
        self.phase, self.pending, self.tx = 0, count, 0
        self.collected = Clock.zero(strands)
        self.completed: dict[int, Clock] = {}
        self.waits: dict[int, list[tuple[Strand, int, Op]]] = {}
        self.arrived: list[Arrival] = []
        self.announced = 0
        self.delivered: list[Op] = []

    @property
    def label(self) -> str:
        return self.cta.label(self.place.name)


class Rendezvous(Waitable):
    """A named or cluster barrier: rounds in which a number of participants come."""

    __slots__ = ("round", "count", "got", "collected", "completed", "arrived")

    def __init__(self, strands: int) -> None:
        super().__init__()
        self.round, self.got = 0, 0
        self.count: int | None = None
        self.collected = Clock.zero(strands)
        self.completed: dict[int, Clock] = {}
        self.arrived: list[Arrival] = []

    def complete(self) -> None:
        self.completed[self.round] = self.collected.copy()
        self.completed.pop(self.round - 2, None)
        self.round += 1
        self.got, self.count, self.arrived = 0, None, []


def one_of(array: Any, index: int, step: int, count: int) -> tuple[int, str]:
    """(byte offset, name) of an element of an array value."""
    return array.start + step, f"{array.name}[{index}]" if count else array.name
