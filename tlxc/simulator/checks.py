"""The rules: what must be ordered, and the reports where it is not.

Accesses are checked where they are issued, with the clock of the issue, so what is found does not depend on when an
engine happens to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tlxc.ir.core import Op

from .barriers import MBarrier
from .cells import NARROW
from .clocks import CLUSTER, ORDER, Clock, Record, missing
from .memory import Array, Footprint, Scattered
from .reports import Report, SimulationError, at, fail, spelled

if TYPE_CHECKING:
    from .agents import AsyncOp
    from .global_memory import Allocation, Block, Elements
    from .machine import Cta, Strand

KINDS = {
    "wait": "missing-wait",
    "order": "race",
    "fence": "missing-proxy-fence",
    "away": "missing-proxy-fence",
    "global": "missing-proxy-fence",
    "cluster": "missing-cluster-fence",
    "issuer": "race",
}
_FIXES = {
    "fence": "a generic write is seen by TMA and wgmma only after fence_async_shared by the writer",
    "away": "a store to the shared memory of another CTA is seen by TMA and wgmma there only after fence_async_shared "
    "by a task of that CTA: the fence covers the memory of the CTA that executes it",
    "global": "a generic write to global memory is seen by TMA in the same launch only after a proxy fence of global "
    "memory, which the language does not have: store it by TMA, or load it with tl.load",
    "issuer": "the second side waited for the bytes of a copy that was issued after the first access: they tell of the "
    "copy, not of what its issuer did before; an arrival does",
    "cluster": "a store to another CTA is seen there only after a release at cluster scope: an arrival that the "
    "compiler marks so, or cluster_barrier",
}


def shared_access(
    strand: Strand,
    cta: Cta,
    start: int,
    foot: Footprint | Scattered,
    name: str,
    op: Op,
    clock: Clock,
    write: bool,
    proxy: bool = False,
    access: int | None = None,
    agrees: Callable[[], bool] | None = None,
) -> Record:
    """Checks an access to the shared memory of `cta` and records it.  `agrees`: if a store changes nothing."""
    place = cta.label(name)
    new = Record(
        strand.number,
        strand.name,
        strand.epoch,
        strand.cta.number,
        strand.machine.domain,
        access,
        proxy,
        write,
        op,
        place,
    )
    strand.accesses += 1
    new.instance = strand.accesses
    new.lo, new.hi, new.foot = start, start + foot.size, foot
    new.away = cta is not strand.cta
    if start < 0 or new.hi > len(cta.memory.bytes):
        raise fail("bad-index", f"{place}: {at(op)} by {strand.name} reaches outside of shared memory", op)
    shadow = cta.shadow
    for old in shadow.conflicts(new):
        lacks = missing(old, clock, new)
        strand.machine.note_conflict(old, new)
        if lacks == "order" and agrees is not None and old.op.kind == op.kind and agrees():
            _equal_values(old, new, strand)
        elif lacks:
            raise race(lacks, old, new, strand)
    shadow.add(new)
    return new


def global_access(
    strand: Strand,
    allocation: Allocation,
    where: Elements | Block,
    op: Op,
    clock: Clock,
    write: bool,
    proxy: bool = False,
    access: int | None = None,
    atomic: bool = False,
    agrees: Callable[[], Array] | None = None,
) -> Record:
    """Checks an access to global memory and records it; `atomic` updates do not conflict with each other where their
    scopes hold both.  `agrees`: of a store, which granules hold already what it writes."""
    machine = strand.machine
    new = Record(
        strand.number, strand.name, strand.epoch, strand.cta.number, machine.domain, access, proxy, write, op,
        allocation.name,
    )  # fmt: skip
    strand.accesses += 1
    new.instance = strand.accesses
    shadow = allocation.shadow
    for old in shadow.conflicts(where.select, write, new if atomic else None):
        lacks = missing(old, clock, new)
        machine.note_conflict(old, new)
        if (
            lacks == "order"
            and agrees is not None
            and old.op.kind == op.kind
            and shadow.all_of(old, where.select, agrees())
        ):
            _equal_values(old, new, strand)
        elif lacks:
            raise race(lacks, old, new, strand)
    shadow.add(where.select, where.put, new, atomic)
    return new


def slot_access(strand: Strand, slot: int, name: str, op: Op, write: bool, access: int | None = None) -> None:
    """Checks an access to a tensor map in the CTA's part of the workspace and records it."""
    cta, machine = strand.cta, strand.machine
    place = cta.label(name)
    new = Record(strand.number, strand.name, strand.epoch, cta.number, machine.domain, access, False, write, op, place)
    before = cta.map_records.setdefault(slot, [])
    for old in before:
        lacks = missing(old, strand.clock, new) if old.write or write else None
        if lacks:
            raise race(lacks, old, new, strand)
    if write:
        before.clear()
    before.append(new)


def _equal_values(old: Record, new: Record, strand: Strand) -> None:
    """Two stores in no order that write the same: odd, but the values are right whoever is last."""
    strand.machine.findings.note(
        Report(
            "equal-values",
            f"{new.place}: {strand.name} ({at(new.op)}) and {old.name} ({at(old.op)}) store equal values in no order",
            [new.op, old.op],
        )
    )


def _words(record: Record) -> str:
    how = "async " if record.proxy or record.access is not None else ""
    return how + ("write" if record.write else "read")


def race(lacks: str, old: Record, new: Record, strand: Strand) -> SimulationError:
    kind = KINDS[lacks]
    if lacks == "wait" and new.write:
        kind = "overwrite-in-flight" if old.write else "overwrite-while-read"
    text = (
        f"{new.place}: {_words(new)} by {strand.name} ({at(new.op)}) is not ordered after {_words(old)} by {old.name} "
        f"({at(old.op)})"
    )
    notes = [_FIXES[lacks]] if lacks in _FIXES else []
    if old.cta != new.cta and NARROW in (old.op.attrs.get("scope"), new.op.attrs.get("scope")):
        notes.append("atomics at scope cta are atomic, and hand over what was written, among the tasks of one CTA only")
    if old.domain == new.domain:
        notes.append(_path(old, strand))
        protocol = strand.machine.program.protocol
        notes += protocol.between(strand.machine.strands[old.strand].task, strand.task)
        if old.cta != new.cta:
            notes += protocol.atomics()
    return fail(kind, text, new.op, old.op, notes=notes)


def _path(old: Record, strand: Strand) -> str:
    """What the first side did after its access, and what the second saw before its own."""
    machine = strand.machine
    first = machine.strands[old.strand]
    done = [text for epoch, text in first.released if epoch >= old.epoch][:3]
    seen = list(strand.acquired)[-3:]
    if old.access is not None:
        done.insert(0, f"completion by {machine.vehicles.get(old.access, 'a group that is waited for')}")
    return (
        f"after the first access: {', '.join(done) or 'no release'}; before the second: "
        f"{', '.join(seen) or 'no acquire'}"
    )


# ------------------------------------------------------------------------------------------------ phase stability
def stable(bar: MBarrier, clock: Clock, what: str, op: Op, strand: Strand) -> None:
    """An arrival or transaction must come after the completion of the phase before, else it could land in that."""
    if not bar.phase or clock.covers(bar.completed[bar.phase - 1]):
        return
    saw = [w for w in bar.waits.get(bar.phase - 1, ())]
    then = [text for s, epoch, _ in saw for text in [t for e, t in s.released if e >= epoch][:2]]
    raise fail(
        "phase-race",
        f"{what} on {bar.label} by {strand.name} ({at(op)}) lands in phase {bar.phase}, but nothing orders it after "
        f"the completion of phase {bar.phase - 1}: it may count for either",
        op,
        *[w[2] for w in saw],
        notes=[
            f"who saw that phase complete then did: {', '.join(then) or 'nothing'}; {strand.name} last acquired: "
            f"{', '.join(list(strand.acquired)[-2:]) or 'nothing'}",
            *strand.machine.protocol(bar, strand),
        ],
    )


def early(bar: MBarrier, seen: int, clock: Clock, op: Op, strand: Strand) -> None:
    """A wait that sees phase `seen` complete must come after the one before, else it may pass a round early."""
    if seen >= 1 and not clock.covers(bar.completed[seen - 1]):
        raise fail(
            "phase-race",
            f"{spelled(op)} of {bar.label} by {strand.name} ({at(op)}) saw phase {seen}, but nothing orders it after "
            f"the completion of phase {seen - 1}: it may pass one round early",
            op,
            notes=strand.machine.protocol(bar),
        )


def no_overrun(bar: MBarrier, done: Clock) -> None:
    """Before a phase completes, every wait for the one before it must have passed, else it can miss its phase."""
    for strand, epoch, op in bar.waits.get(bar.phase - 1, ()):
        if done.g[ORDER, strand.number] < epoch:
            raise fail(
                "phase-overrun",
                f"{bar.label} completes phase {bar.phase} with nothing ordering it after the wait for phase "
                f"{bar.phase - 1} by {strand.name} ({at(op)}): that wait can miss its phase",
                op,
                *[a.op for a in bar.arrived[-1:]],
                notes=strand.machine.protocol(bar),
            )
    for strand in bar.waiters:
        wait = strand.blocked
        if wait is not None and wait.object is bar and wait.wanted == bar.phase - 1:
            raise fail(
                "phase-overrun",
                f"{bar.label} completes phase {bar.phase} while {strand.name} still waits for phase {bar.phase - 1} "
                f"({at(wait.op)})",
                wait.op,
                notes=strand.machine.protocol(bar),
            )


def arrival_count(bar: MBarrier, strand: Strand, op: Op, count: int) -> None:
    if bar.pending < 0:
        raise fail(
            "arrive-count",
            f"{bar.label} phase {bar.phase}: {count} arrivals by {strand.name} ({at(op)}), but only "
            f"{bar.pending + count} of {bar.count} were pending",
            op,
            *[a.op for a in bar.arrived[:-1]],
            notes=strand.machine.protocol(bar),
        )


def right_phase(bar: MBarrier, size: int, phase: int, work: AsyncOp) -> None:
    """Bytes land in the phase that was open when their copy was issued; else more were copied than announced."""
    if bar.phase != phase:
        raise fail(
            "tx-bytes",
            f"{size} bytes of {at(work.op)} by {work.strand.name} arrive at {bar.label} in phase {bar.phase}, but were "
            f"issued for phase {phase}: the bytes expected there are not those that are copied",
            work.op,
            *[a.op for a in bar.arrived],
            notes=work.strand.machine.protocol(bar),
        )


# ------------------------------------------------------------------------------------------------ clusters and exit
def reach(strand: Strand, cta: Cta, op: Op, clock: Clock, access: int | None = None) -> None:
    """Another CTA is touched: its barriers must be known to be initialised, and it must be alive."""
    if cta is strand.cta:
        return
    known = max(clock.g[CLUSTER, cta.first_number], 0)
    if known < cta.initialised:
        raise fail(
            "init-not-visible",
            f"{at(op)} by {strand.name} reaches CTA {cta.number} before the initialisation of its barriers is known "
            "to the cluster",
            op,
        )
    if cta.exited:
        raise fail("peer-exited", f"{at(op)} by {strand.name} reaches CTA {cta.number} after it exited", op)
    cta.reached.append((strand, strand.epoch, access, op))


def unwaited(strand: Strand) -> None:
    """At the end of a strand nothing of its own is under way that could still read or write shared memory."""
    for work in strand.products:
        raise fail("unwaited-async", f"{at(work.op)} is never waited for by {strand.name}", work.op)
    for work in strand.bulk:
        if not all(strand.clock.d >> a & 1 for a in work.reads):
            raise fail(
                "unwaited-async",
                f"{at(work.op)} may still read shared memory when {strand.name} exits",
                work.op,
                notes=["async_descriptor_store_wait(0, read=True) before the end waits for it"],
            )
    for work in [w for group in strand.copies for w in group] + strand.open_copies:
        if not work.reads:  # all of it is masked, as in the tail of a pipeline
            continue
        raise fail("unwaited-async", f"{at(work.op)} is never waited for by {strand.name}", work.op)


def cta_exit(cta: Cta, end: Clock) -> None:
    """All that reaches a CTA from outside, or is copied into it, must be known to be over when it exits."""
    for access, (target, op) in cta.machine.live.items():
        if target is cta and not end.d >> access & 1:
            raise fail("unwaited-async", f"{at(op)} into CTA {cta.number} is not waited for before that exits", op)
    for strand, epoch, number, op in cta.reached:
        if number is None and end.g[ORDER, strand.number] < epoch:
            raise fail(
                "peer-exited",
                f"{at(op)} by {strand.name} reaches CTA {cta.number}, which may have exited by then",
                op,
            )
