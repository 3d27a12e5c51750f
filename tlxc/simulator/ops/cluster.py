"""Clusters of CTAs and stores into each other's shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..agents import AsyncOp
from ..barriers import Arrival, BarrierPlace
from ..clocks import CLUSTER, MEMORY
from ..memory import Array, Place
from ..program import Step
from ..reports import at
from .barrier import begin, peer
from .buffer import must_be_known
from .tma import Target, copy_into

if TYPE_CHECKING:
    from ..machine import Strand


def cluster_rank(strand: Strand, step: Step) -> Any:
    return np.int32(strand.cta.rank)


def cluster_size(strand: Strand, step: Step) -> Any:
    return np.int32(len(strand.cta.cluster))


def fence_mbarrier_init(strand: Strand, step: Step) -> None:
    """The initialisation of barriers, what the strand itself did so far, is released to the cluster."""
    strand.clock.g[CLUSTER, strand.number] = strand.clock.g[MEMORY, strand.number]


def cluster_barrier(strand: Strand, step: Step) -> Iterator[Any]:
    """All strands of all CTAs of the cluster come.  A relaxed one orders execution, not memory."""
    if len(strand.machine.ready) > 1:
        yield None
    begin(strand)
    op, cta = step.op, strand.cta
    found = strand.machine.cluster_barriers[id(cta.cluster)]
    if not op.attrs.get("relaxed"):
        strand.clock.cover(CLUSTER)
    turn = found.round
    strand.released.append((strand.epoch, at(op)))
    found.arrived.append(Arrival(strand, op, 1))
    found.collected.merge(strand.clock)
    found.got = len(found.arrived)
    found.count = sum(c.active for c in cta.cluster)
    if found.got == found.count:
        found.complete()
        strand.machine.wake(found)
    if found.round == turn:
        strand.block("cluster", op, found, turn)
        while found.round == turn:
            yield found
        strand.blocked = None
    strand.clock.merge(found.completed[turn])
    strand.acquired.append(at(op))


def remote_store(strand: Strand, step: Step, buf: Place, value: Array, rank: Any) -> None:
    cta = peer(strand, rank, step.op)
    checks.reach(strand, cta, step.op, strand.clock)
    checks.shared_access(strand, cta, buf.start, buf.foot, buf.name, step.op, strand.clock, write=True)
    cta.memory.write(buf, value)


def async_remote_store(strand: Strand, step: Step, buf: Place, value: Array, rank: Any, bar: BarrierPlace) -> None:
    """st.async writes by the generic proxy."""
    work = AsyncOp(step.op, strand)
    size = value.size * buf.foot.itemsize
    cta = peer(strand, rank, step.op)
    to = Target(buf, bar, [cta], buf.foot, lambda there: there.memory.write(buf, value), size, proxy=False)
    copy_into(strand, step.op, to, strand.clock.copy(), work, ())
    strand.machine.submit(work)


def async_remote_copy(strand: Strand, step: Step, dst: Place, src: Place, rank: Any, bar: BarrierPlace) -> None:
    op, machine, own = step.op, strand.machine, strand.cta
    clock, read = strand.clock.copy(), machine.number()
    checks.shared_access(strand, own, src.start, src.foot, src.name, op, clock, False, True, read)
    held: list[Array] = []

    def fetch() -> None:
        must_be_known(strand, own, src.start, src.foot, src.name, op)
        held.append(own.memory.read(src))

    work = AsyncOp(op, strand, fetch)
    work.reads = [read]
    size = src.type.nbytes
    there = [peer(strand, rank, op)]
    to = Target(dst, bar, there, dst.foot, lambda cta: cta.memory.write(dst, held[0]), size)
    copy_into(strand, op, to, clock, work, (read,))
    machine.live[read] = (own, op)
    machine.submit(work)


EFFECTS = {
    "cluster_rank": cluster_rank,
    "cluster_size": cluster_size,
    "fence_mbarrier_init": fence_mbarrier_init,
    "remote_store": remote_store,
    "async_remote_store": async_remote_store,
    "async_remote_copy": async_remote_copy,
}
FLOWS = {"cluster_barrier": cluster_barrier}
