"""Nothing can go on: who waits where, for what, and who owes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tlxc.ir.core import Op

from .barriers import MBarrier, Rendezvous
from .protocol import Protocol
from .reports import Report, at

if TYPE_CHECKING:
    from .machine import Strand, Wait


def deadlock(strands: Sequence[Strand], protocol: Protocol) -> Report:
    """The table of waits: first those that no other waiting strand would end, last those for tasks.  A barrier that
    lacks nothing but bytes gets a report of its own."""
    rows = [(strand, strand.blocked) for strand in strands if strand.blocked is not None]
    tasks = {strand.task for strand, _ in rows}
    notes, ops = [], []
    barriers: dict[Op, MBarrier] = {}
    short: MBarrier | None = None
    for strand, wait in sorted(rows, key=lambda row: _distance(row[0], row[1], tasks, protocol)):
        notes.append(f"{strand.name}: {at(wait.op)} {state(wait, protocol)}")
        if wait.kind != "tasks":
            ops.append(wait.op)
        if isinstance(wait.object, MBarrier):
            barriers.setdefault(wait.object.alloc, wait.object)
            if not wait.object.pending and wait.object.tx:
                short = wait.object
    notes += [protocol.line(alloc) for alloc in barriers]
    if any(isinstance(wait.object, Rendezvous) for _, wait in rows):
        notes += protocol.named
    if short is not None:
        return _wrong_bytes(short, notes)
    return Report("deadlock", f"nothing can go on; {_waits(len(ops))} not met", ops, notes)


def _waits(count: int) -> str:
    return "1 wait is" if count == 1 else f"{count} waits are"


def _distance(strand: Strand, wait: Wait, tasks: set[int], protocol: Protocol) -> int:
    """0 for the root of a chain of waits: nobody else who waits owes it anything."""
    if wait.kind == "tasks":
        return 2
    if not isinstance(wait.object, MBarrier):
        return 1
    owing = {site.task for role in ("arrivals", "bytes") for site in protocol.of(wait.object.alloc, role)}
    return int(bool(owing & (tasks - {strand.task})))


def _wrong_bytes(bar: MBarrier, notes: list[str]) -> Report:
    announced = [a.op for a in bar.arrived if a.op.kind == "barrier_expect"]
    return Report(
        "tx-bytes",
        f"{bar.label} phase {bar.phase}: {bar.announced} bytes were announced and {bar.announced - bar.tx} delivered; "
        "nothing can go on",
        [*announced, *bar.delivered],
        notes,
    )


def state(wait: Wait, protocol: Protocol) -> str:
    """What a wait lacks."""
    what = wait.object
    if isinstance(what, MBarrier):
        arrived = [f"{a.strand.name} ({at(a.op)})" for a in what.arrived]
        here = {id(a.op) for a in what.arrived}
        owing = [at(site.op) for site in protocol.of(what.alloc, "arrivals") if id(site.op) not in here]
        return (
            f"of {what.label} wants phase {wait.wanted}; completed {what.phase - 1}; {what.pending} of {what.count} "
            f"arrivals and {what.tx} bytes pending; arrived: {', '.join(arrived) or 'nobody'}; owing: "
            f"{', '.join(owing) or 'no other op arrives there'}"
        )
    if isinstance(what, Rendezvous):
        present = ", ".join(a.strand.name for a in what.arrived)
        return f"in round {what.round}: {what.got} of {what.count} present ({present})"
    return "waits for its tasks" if wait.kind == "tasks" else "waits for an engine"
