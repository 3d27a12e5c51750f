"""The units of a GPU that work is queued for: first come, first served, each with a throughput."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import ceil
from typing import NamedTuple

from tlxc.targets.timing import Timing

LINE = 128  # bytes of a line of the L2 cache


class Unit:
    """`free`: when it can begin what comes next."""

    __slots__ = ("name", "free")

    def __init__(self, name: str) -> None:
        self.name, self.free = name, 0

    def take(self, time: int, busy: int) -> int:
        """Queues `busy` cycles of work that comes at `time`; when it begins."""
        begin = max(time, self.free)
        self.free = begin + busy
        return begin


class Sm:
    """One SM; `residents`: CTAs on it."""

    def __init__(self, number: int) -> None:
        self.number, self.residents = number, 0
        self._units: dict[str, Unit] = {}

    def unit(self, name: str) -> Unit:
        found = self._units.get(name)
        if found is None:
            found = self._units[name] = Unit(name)
        return found


class Move(NamedTuple):
    """Bytes on their way between L2 and an SM: see `Flight`."""

    begin: int
    moved: int
    latency: int
    limit: str


class Chip:
    """What SMs share: the L2 cache, which never forgets, and DRAM behind it."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.l2, self.dram = Unit("L2"), Unit("DRAM")
        self._cached: set[Hashable] = set()

    def missing(self, blocks: Iterable[Hashable]) -> int:
        """How many of the blocks of memory are touched for the first time."""
        new = set(blocks) - self._cached
        self._cached |= new
        return len(new)

    def move(self, unit: Unit, rate: int, time: int, size: int, cold: int, reads: bool) -> Move:
        """Moves `size` bytes through a unit of an SM, `cold` of them from or to DRAM.  What holds them up on the way
        holds the unit up as well.  Reads wait for DRAM, writes for L2 only."""
        begin = unit.take(time, cycles(size, rate))
        ends = {unit.name: unit.free}
        for shared, part, per in ((self.l2, size, self.timing.l2_bytes), (self.dram, cold, self.timing.dram_bytes)):
            if part:
                shared.take(time, cycles(part, per))  # in the order of requests
                ends[shared.name] = shared.free
        limit = max(ends, key=lambda name: ends[name])
        unit.free = ends[limit]
        return Move(begin, ends[limit], self.timing.dram_latency if cold and reads else self.timing.l2_latency, limit)


def cycles(amount: float, rate: float) -> int:
    return ceil(amount / rate)
