"""Who last touched what: the records that each access is checked against.

Shared memory is cut where tiles begin; each cell between two cuts lists its records, and byte ranges and footprints
decide within it.  Global memory has per granule (an element of the array) the last write and sets of readers and of
atomic updates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .cells import NARROW
from .clocks import Record
from .memory import Array, meet

Cell = tuple[list[Record], list[Record]]  # writes, reads


class SharedShadow:
    """The records of one CTA's shared memory."""

    def __init__(self, cuts: Sequence[int]) -> None:
        self.cuts = cuts  # sorted, the first is 0
        self.cells: list[Cell] = [([], []) for _ in cuts]
        self._known: dict[tuple[int, int], list[Cell]] = {}

    def _cells(self, lo: int, hi: int) -> list[Cell]:
        found = self._known.get((lo, hi))
        if found is None:
            first, last = bisect_right(self.cuts, lo) - 1, bisect_left(self.cuts, hi)
            found = self._known[lo, hi] = self.cells[first:last]
        return found

    def conflicts(self, new: Record) -> Iterator[Record]:
        """Earlier accesses to the bytes of `new`, one of the two a write."""
        lo, hi = new.lo, new.hi
        for writes, reads in self._cells(lo, hi):
            for old in writes:
                if old.lo < hi and lo < old.hi and meet(old.foot, old.lo, new.foot, lo):
                    yield old
            if new.write:
                for old in reads:
                    if old.lo < hi and lo < old.hi and meet(old.foot, old.lo, new.foot, lo):
                        yield old

    def add(self, new: Record) -> None:
        """A write makes the records that it covers superfluous: whoever comes after it comes after them.  So does a
        read those of the same strand to the same bytes."""
        for cell in self._cells(new.lo, new.hi):
            writes, reads = cell
            if new.write:
                writes[:] = [old for old in writes if not _covers(new, old)]
                reads[:] = [old for old in reads if not _covers(new, old)]
                writes.append(new)
            else:
                if new.access is None:
                    reads[:] = [old for old in reads if not (old.strand == new.strand and _same(old, new))]
                reads.append(new)


def atomic_to(old: Record, new: Record) -> bool:
    """Whether no other access comes between the halves of two updates: the scope of each holds the other's CTA."""
    return old.cta == new.cta or NARROW not in (old.op.attrs.get("scope"), new.op.attrs.get("scope"))


def _covers(new: Record, old: Record) -> bool:
    if new.foot.dense:
        return bool(new.lo <= old.lo and old.hi <= new.hi)
    return new.foot is old.foot and new.lo == old.lo


def _same(old: Record, new: Record) -> bool:
    return old.access is None and old.foot is new.foot and old.lo == new.lo and old.proxy == new.proxy


class GlobalShadow:
    """The records of one allocation in global memory, by granule.

    Arrays hold numbers of records, or of sets of them; 0 is none.  A set keeps the last record of each strand of the
    present domain, and two of others, of which one at least conflicts with whoever comes.  `written`, `read`,
    `updated`: whether any granule was, so that arrays of zeros need not be looked at.
    """

    def __init__(self, granules: int) -> None:
        self.writer = np.zeros(granules, np.int32)
        self.reader = np.zeros(granules, np.int32)
        self.update = np.zeros(granules, np.int32)
        self.written = self.read = self.updated = False
        self.records: list[Record | None] = [None]
        self.sets: list[tuple[Record, ...]] = [()]
        self._numbers: dict[tuple[Record, ...], int] = {(): 0}

    def conflicts(self, select: Any, write: bool, update: Record | None) -> Iterator[Record]:
        """Earlier accesses to the granules that `select(array)` gives, which conflict: a write with all, a read with
        writes and atomic updates, an `update` with all but updates that are atomic to it."""
        for number in _distinct(select(self.writer)) if self.written else ():
            old = self.records[number]
            if old is not None:
                yield old
        for number in _distinct(select(self.update)) if self.updated else ():
            if update is None:
                yield from self.sets[number]
            else:
                yield from (old for old in self.sets[number] if not atomic_to(old, update))
        if write and self.read:
            for number in _distinct(select(self.reader)):
                yield from self.sets[number]

    def all_of(self, old: Record, select: Any, granules: Array) -> bool:
        """Whether `granules`, given for those that `select` gives, is true for all that `old` wrote last."""
        numbers = select(self.writer)
        return any(
            self.records[number] is old and bool(granules[numbers == number].all()) for number in _distinct(numbers)
        )

    def add(self, select: Any, put: Any, new: Record, atomic: bool) -> None:
        if new.write and not atomic:
            self.records.append(new)
            put(self.writer, len(self.records) - 1)
            self.written = True
            for array, used in ((self.reader, self.read), (self.update, self.updated)):
                if used and select(array).any():
                    put(array, 0)
            return
        array = self.update if atomic else self.reader
        self.updated, self.read = self.updated or atomic, self.read or not atomic
        found = select(array)
        numbers = _distinct(found)
        if len(numbers) == 1:
            put(array, self._joined(numbers[0], new))
            return
        made = np.empty_like(found)
        for number in numbers:
            made[found == number] = self._joined(number, new)
        put(array, made)

    def _joined(self, number: int, new: Record) -> int:
        """The number of a set with one record more."""
        old = self.sets[number]
        own = [r for r in old if r.domain == new.domain and not (r.strand == new.strand and r.access is None)]
        others = [r for r in old if r.domain != new.domain]
        members = (*others[:1], *others[1:][-1:], *own, new)
        known = self._numbers.get(members)
        if known is None:
            known = self._numbers[members] = len(self.sets)
            self.sets.append(members)
        return known


def _distinct(numbers: Array) -> list[int]:
    if not numbers.size:
        return []
    first = numbers.flat[0]
    if (numbers == first).all():
        return [int(first)]
    return [int(n) for n in np.unique(numbers)]
