"""mbarriers, named barriers and fences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op
from tlxc.ir.types import Barrier

from .. import checks
from ..barriers import Arrival, BarrierPlace, MBarrier, Rendezvous
from ..clocks import CLUSTER, Clock
from ..program import Step
from ..reports import at, fail

if TYPE_CHECKING:
    from ..agents import AsyncOp
    from ..machine import Cta, Strand

THREADS = 32


def begin(strand: Strand) -> None:
    """A flow counts as one op."""
    strand.epoch += 1
    strand.clock.g[:2, strand.number] = strand.epoch  # ORDER and MEMORY


def number(value: Any) -> int:
    """A scalar that the task agrees on."""
    return int(value if value.ndim == 0 else value.flat[0])


def holds(pred: Any) -> bool:
    """Whether the first thread of the task, which acts, has a true predicate."""
    return pred is None or bool(pred if pred.ndim == 0 else pred.flat[0])


# ------------------------------------------------------------------------------------------------ mbarriers
def alloc_barriers(strand: Strand, step: Step) -> BarrierPlace:
    op, cta = step.op, strand.cta
    t = op.results[0].type
    assert isinstance(t, Barrier)
    place = BarrierPlace(op.attrs["offset"], t, strand.machine.program.names[op])
    for i in range(max(1, t.count)):
        one = BarrierPlace(place.start + 8 * i, t, f"{place.name}[{i}]" if t.count else place.name)
        cta.barriers[one.start] = MBarrier(cta, one, op.attrs["arrive_count"], strand.machine.size, op)
    cta.initialised = strand.epoch
    return place


def barrier_view(strand: Strand, step: Step, array: BarrierPlace, index: Any) -> BarrierPlace:
    i, t = number(index), array.type
    if not 0 <= i < t.count:
        raise fail("bad-index", f"{array.name}[{i}] by {strand.name}, but {array.name} has {t.count} barriers", step.op)
    return BarrierPlace(array.start + 8 * i, Barrier(0, t.warp), f"{array.name}[{i}]")


def barrier_at(cta: Cta, place: BarrierPlace) -> MBarrier:
    return cta.barriers[place.start]


def peer(strand: Strand, rank: Any, op: Op) -> Cta:
    """The CTA of the cluster with this rank."""
    r, cluster = number(rank), strand.cta.cluster
    if not 0 <= r < len(cluster):
        raise fail("bad-rank", f"{at(op)} by {strand.name} names CTA {r} of a cluster of {len(cluster)}", op)
    return cluster[r]


def arrive(bar: MBarrier, strand: Strand, op: Op, clock: Clock, count: int) -> None:
    checks.stable(bar, clock, "arrival", op, strand)
    bar.collected.merge(clock)
    bar.pending -= count
    bar.arrived.append(Arrival(strand, op, count))
    checks.arrival_count(bar, strand, op, count)
    complete(bar, strand)


def complete(bar: MBarrier, strand: Strand) -> None:
    """Closes the phase if nothing is left of it."""
    if bar.pending or bar.tx:
        return
    done = bar.collected.copy()
    checks.no_overrun(bar, done)
    bar.completed[bar.phase] = done
    bar.completed.pop(bar.phase - 3, None)
    bar.waits.pop(bar.phase - 2, None)
    bar.phase += 1
    bar.pending, bar.arrived = bar.count, []
    bar.announced, bar.delivered = 0, []
    strand.machine.wake(bar)


def deliver(
    bar: MBarrier, size: int, accesses: tuple[int, ...], work: AsyncOp, clock: Clock, phase: int, proxy: bool
) -> None:
    """`size` bytes have come.  Whoever waits for them comes after the issue in execution.  In memory only after the
    accesses of the copy itself where the async `proxy` made it (PTX ISA, "Asynchronous Operations"); the bytes of
    st.async are a release by the storing threads."""
    checks.right_phase(bar, size, phase, work)
    if proxy:
        bar.collected.follow(clock)
    else:
        bar.collected.merge(clock)
    for access in accesses:
        bar.collected.know(access)
    bar.tx -= size
    bar.delivered.append(work.op)
    complete(bar, work.strand)


def barrier_arrive(strand: Strand, step: Step, place: BarrierPlace, pred: Any, rank: Any) -> None:
    op, cta = step.op, strand.cta
    count = op.attrs["count"]
    if place.type.warp:
        threads = strand.warps * THREADS
        count *= threads if pred is None or (pred.ndim == 0 and pred) else int(pred.sum())
        if not count:
            return
    elif not holds(pred):
        return
    if rank is not None:
        cta = peer(strand, rank, op)
        checks.reach(strand, cta, op, strand.clock)
        if op.attrs.get("release"):
            strand.clock.cover(CLUSTER)
    bar = barrier_at(cta, place)
    strand.released.append((strand.epoch, f"{at(op)} on {bar.label} phase {bar.phase}"))
    arrive(bar, strand, op, strand.clock, count)


def barrier_expect(strand: Strand, step: Step, place: BarrierPlace, pred: Any) -> None:
    if not holds(pred):
        return
    bar = barrier_at(strand.cta, place)
    bar.tx += step.op.attrs["bytes"]
    bar.announced += step.op.attrs["bytes"]
    strand.released.append((strand.epoch, f"{at(step.op)} on {bar.label} phase {bar.phase}"))
    arrive(bar, strand, step.op, strand.clock, 1)


def barrier_wait(strand: Strand, step: Step, place: BarrierPlace, phase: Any, pred: Any) -> Iterator[Any]:
    if not holds(pred):
        return
    if len(strand.machine.ready) > 1:
        yield None
    begin(strand)
    op, bar = step.op, barrier_at(strand.cta, place)
    parity = number(phase)
    if parity not in (0, 1):
        raise fail("bad-phase", f"{at(op)} of {bar.label} by {strand.name} has phase {parity}; a phase is 0 or 1", op)
    if bar.phase & 1 == parity:
        strand.block("mbarrier", op, bar, bar.phase)
        while bar.phase & 1 == parity:
            yield bar
        strand.blocked = None
    seen = bar.phase - 1
    checks.early(bar, seen, strand.clock, op, strand)
    if seen >= 0:
        strand.clock.merge(bar.completed[seen])
    strand.acquired.append(f"{at(op)} of {bar.label} saw phase {seen}")
    bar.waits.setdefault(seen, []).append((strand, strand.epoch, op))


# ------------------------------------------------------------------------------------------------ named barriers
def meet(at_barrier: Rendezvous, strand: Strand, op: Op, weight: int, count: int, label: str) -> None:
    """Comes to a barrier of `count`."""
    named = strand.machine.program.protocol.named
    if at_barrier.count is None:
        at_barrier.count = count
    elif at_barrier.count != count:
        raise fail(
            "named-count",
            f"{label}: {at(op)} by {strand.name} counts {count}, but {at(at_barrier.arrived[-1].op)} counts "
            f"{at_barrier.count}",
            op,
            at_barrier.arrived[-1].op,
            notes=named,
        )
    if at_barrier.round and not strand.clock.covers(at_barrier.completed[at_barrier.round - 1]):
        raise fail(
            "named-race",
            f"{label}: {at(op)} by {strand.name} comes to round {at_barrier.round}, but nothing orders it after round "
            f"{at_barrier.round - 1}",
            op,
            notes=named,
        )
    if any(a.strand is strand for a in at_barrier.arrived):
        raise fail("named-twice", f"{label}: {strand.name} comes twice in one round ({at(op)})", op, notes=named)
    at_barrier.got += weight
    at_barrier.arrived.append(Arrival(strand, op, weight))
    at_barrier.collected.merge(strand.clock)
    if at_barrier.got > count:
        raise fail(
            "named-count",
            f"{label}: {at_barrier.got} have come where {count} are counted, the last by {at(op)} of {strand.name}",
            op,
            notes=named,
        )
    if at_barrier.got == count:
        at_barrier.complete()
        strand.machine.wake(at_barrier)


def _named(strand: Strand, step: Step, which: Any) -> tuple[Rendezvous, int]:
    """Comes to a named barrier: it and the round."""
    i, op = number(which), step.op
    found = strand.cta.named.setdefault(i, Rendezvous(strand.machine.size))
    label = strand.cta.label(f"named barrier {i}")
    strand.released.append((strand.epoch, f"{at(op)} at named barrier {i}"))
    turn = found.round
    meet(found, strand, op, strand.warps * THREADS, op.attrs["threads"], label)
    return found, turn


def named_barrier_arrive(strand: Strand, step: Step, which: Any) -> None:
    _named(strand, step, which)


def named_barrier_wait(strand: Strand, step: Step, which: Any) -> Iterator[Any]:
    if len(strand.machine.ready) > 1:
        yield None
    begin(strand)
    found, turn = _named(strand, step, which)
    if found.round == turn:
        strand.block("named", step.op, found, turn)
        while found.round == turn:
            yield found
        strand.blocked = None
    strand.clock.merge(found.completed[turn])
    strand.acquired.append(f"{at(step.op)} round {turn}")


# ------------------------------------------------------------------------------------------------ fences
def fence_async_shared(strand: Strand, step: Step) -> None:
    first = strand.cta.first_number
    strand.clock.cover_shared(slice(first, first + strand.machine.program.regions), strand.cta.stored)
    strand.released.append((strand.epoch, at(step.op)))


def fence(strand: Strand, step: Step) -> None:
    """At device or system scope: orders what relaxed atomics read before, and covers what they write after."""
    clock = strand.clock
    clock.cover(CLUSTER)
    if strand.seen is not None:
        clock.merge(strand.seen)
    strand.fenced = clock.copy()


def grid_dependency(strand: Strand, step: Step) -> None:
    """Nothing: grids are simulated one after the other, so the one before has ended."""


EFFECTS = {
    "alloc_barriers": alloc_barriers,
    "barrier_view": barrier_view,
    "barrier_arrive": barrier_arrive,
    "barrier_expect": barrier_expect,
    "named_barrier_arrive": named_barrier_arrive,
    "fence_async_shared": fence_async_shared,
    "fence": fence,
    "grid_dependency": grid_dependency,
}
FLOWS = {"barrier_wait": barrier_wait, "named_barrier_wait": named_barrier_wait}
