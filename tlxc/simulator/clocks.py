"""Happens-before as vector clocks with three frontiers.

A machine numbers its strands; a `Clock` says of each strand up to which of its operations (epochs) everything happens
before the holder, and which asynchronous accesses are known to be complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# Rows of `Clock.g`: all that is ordered before; the part that a proxy fence on the path covers (visible to TMA and
# wgmma); the part that a release at cluster scope on the path covers (visible to other CTAs).
ORDER, ASYNC, CLUSTER = 0, 1, 2


class Clock:
    """`g[frontier, strand]`: last epoch of the strand that happens before.  `d`: bit i is set where asynchronous access
    i is known to be complete."""

    __slots__ = ("g", "d")

    def __init__(self, g: npt.NDArray[np.int64], d: int = 0) -> None:
        self.g, self.d = g, d

    @classmethod
    def zero(cls, strands: int) -> Clock:
        return cls(np.zeros((3, strands), np.int64))

    def copy(self) -> Clock:
        return Clock(self.g.copy(), self.d)

    def merge(self, other: Clock) -> None:
        np.maximum(self.g, other.g, out=self.g)
        self.d |= other.d

    def covers(self, other: Clock) -> bool:
        """Whether every event in the other's past is in this one's."""
        return not (other.d & ~self.d) and bool((other.g[ORDER] <= self.g[ORDER]).all())

    def cover(self, frontier: int) -> None:
        """A fence: all that is ordered before is now also in this frontier."""
        np.maximum(self.g[frontier], self.g[ORDER], out=self.g[frontier])


class Record:
    """One access that later ones are checked against.

    strand, epoch: who did it and when.  cta: number of the CTA that did it; domain: machine that the numbers belong to.
    access: number of the asynchronous access, None where it is complete with its op.  proxy: done by the async proxy.
    place: what was touched, for texts.  instance: how many accesses the strand had made before.
    """

    __slots__ = (
        "strand",
        "name",
        "epoch",
        "cta",
        "domain",
        "access",
        "proxy",
        "write",
        "op",
        "place",
        "instance",
        "lo",
        "hi",
        "foot",
    )

    def __init__(
        self, strand: int, name: str, epoch: int, cta: int, domain: int, access: int | None, proxy: bool, write: bool,
        op: Any, place: str,
    ) -> None:  # fmt: skip
        self.strand, self.name, self.epoch, self.cta, self.domain = strand, name, epoch, cta, domain
        self.access, self.proxy, self.write, self.op, self.place = access, proxy, write, op, place
        self.instance = self.lo = self.hi = 0
        self.foot: Any = None


def missing(old: Record, clock: Clock, new: Record) -> str | None:
    """What lacks for `old` to happen before `new`, whose clock is given; None where nothing does.

    A read only has to come first.  A write must also be visible: to another CTA by a release at cluster scope, to the
    async proxy by a fence.
    """
    if old.domain != new.domain:
        return "order"
    if old.access is not None:
        return None if clock.d >> old.access & 1 else "wait"
    g = clock.g
    if g[ORDER, old.strand] < old.epoch:
        return "order"
    if old.write:
        if old.cta != new.cta and g[CLUSTER, old.strand] < old.epoch:
            return "cluster"
        if new.proxy and not old.proxy and g[ASYNC, old.strand] < old.epoch:
            return "fence"
    return None
