"""Happens-before as vector clocks with frontiers.

A machine numbers its strands; a `Clock` says of each strand up to which of its operations (epochs) everything happens
before the holder, and which asynchronous accesses are known to be complete.  docs/memory_model.md has the rules and
where they come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# Rows of `Clock.g`: all that was executed before; the part whose memory accesses are ordered before, which the bytes of
# a copy do not say of what its issuer did; of that the part that a proxy fence on the path covers (visible to TMA and
# wgmma), that a release at cluster scope covers (visible to other CTAs), and that a proxy fence of another CTA covers
# (visible to TMA and wgmma in the shared memory of that CTA).
ORDER, MEMORY, ASYNC, CLUSTER, AWAY = range(5)


class Clock:
    """`g[frontier, strand]`: last epoch of the strand that happens before.  `d`: bit i is set where asynchronous access
    i is known to be complete; `m`: where it is ordered before in memory too; `f`: where a proxy fence covers it."""

    __slots__ = ("g", "d", "m", "f")

    def __init__(self, g: npt.NDArray[np.int64], d: int = 0, m: int = 0, f: int = 0) -> None:
        self.g, self.d, self.m, self.f = g, d, m, f

    @classmethod
    def zero(cls, strands: int) -> Clock:
        return cls(np.zeros((5, strands), np.int64))

    def copy(self) -> Clock:
        return Clock(self.g.copy(), self.d, self.m, self.f)

    def merge(self, other: Clock) -> None:
        np.maximum(self.g, other.g, out=self.g)
        self.d |= other.d
        self.m |= other.m
        self.f |= other.f

    def follow(self, other: Clock) -> None:
        """Comes after the other in execution, which orders no memory accesses."""
        np.maximum(self.g[ORDER], other.g[ORDER], out=self.g[ORDER])
        self.d |= other.d

    def know(self, access: int) -> None:
        """An asynchronous access is complete."""
        self.d |= 1 << access
        self.m |= 1 << access

    def covers(self, other: Clock) -> bool:
        """Whether every event in the other's past is in this one's."""
        return not (other.d & ~self.d) and bool((other.g[ORDER] <= self.g[ORDER]).all())

    def cover(self, frontier: int) -> None:
        """A fence: all accesses that are ordered before are now also in this frontier."""
        np.maximum(self.g[frontier], self.g[MEMORY], out=self.g[frontier])

    def cover_shared(self, home: slice, stored: int) -> None:
        """A proxy fence in the CTA whose strands are `home`: it covers the memory of the CTA, whoever wrote there.
        `stored`: the accesses of st.async that did."""
        self.f |= self.m & stored
        self.cover(ASYNC)
        own = self.g[AWAY, home].copy()
        self.cover(AWAY)
        self.g[AWAY, home] = own


class Record:
    """One access that later ones are checked against.

    strand, epoch: who did it and when.  cta: number of the CTA that did it; domain: machine that the numbers belong to.
    access: number of the asynchronous access, None where it is complete with its op.  proxy: done by the async proxy.
    away: in the shared memory of another CTA.  foot: the bytes, None in global memory.  place: what was touched, for
    texts.  instance: how many accesses the strand had made before.
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
        "away",
    )

    def __init__(
        self, strand: int, name: str, epoch: int, cta: int, domain: int, access: int | None, proxy: bool, write: bool,
        op: Any, place: str,
    ) -> None:  # fmt: skip
        self.strand, self.name, self.epoch, self.cta, self.domain = strand, name, epoch, cta, domain
        self.access, self.proxy, self.write, self.op, self.place = access, proxy, write, op, place
        self.instance = self.lo = self.hi = 0
        self.foot: Any = None
        self.away = False


def missing(old: Record, clock: Clock, new: Record) -> str | None:
    """What lacks for `old` to happen before `new`, whose clock is given; None where nothing does.

    A read only has to come first.  A write must also be visible: to another CTA by a release at cluster scope, to the
    async proxy by a fence.
    """
    if old.domain != new.domain:
        return "order"
    if old.access is not None:
        if not clock.m >> old.access & 1:
            return "issuer" if clock.d >> old.access & 1 else "wait"
        return "away" if new.proxy and not old.proxy and old.write and not clock.f >> old.access & 1 else None
    g, strand, epoch = clock.g, old.strand, old.epoch
    if g[MEMORY, strand] < epoch:
        return "order" if g[ORDER, strand] < epoch else "issuer"
    if old.write:
        if old.cta != new.cta and g[CLUSTER, strand] < epoch:
            return "cluster"
        if new.proxy and not old.proxy:
            if old.foot is None:
                return "global"
            if g[AWAY if old.away else ASYNC, strand] < epoch:
                return "away" if old.away else "fence"
    return None
