"""Nothing can go on: who waits where, for what, and who owes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tlxc.ir.core import Module, Op
from tlxc.ir.types import Barrier

from .barriers import MBarrier, Rendezvous
from .program import alloc_of
from .reports import Report, at

if TYPE_CHECKING:
    from .machine import Strand, Wait

# What an op does to a barrier that it names.
_ROLES = {
    "barrier_arrive": "arrivals", "barrier_expect": "arrivals", "barrier_wait": "waits",
    "tma_load": "bytes", "bulk_load": "bytes", "async_remote_store": "bytes", "async_remote_copy": "bytes",
}  # fmt: skip


def sites(module: Module, alloc: Op) -> dict[str, list[Op]]:
    """The ops of a module that name barriers of an allocation, by what they do; one for each source line."""
    out: dict[str, dict[object, Op]] = {"arrivals": {}, "bytes": {}, "waits": {}}
    for op in module.walk():
        role = _ROLES.get(op.kind)
        if role and any(isinstance(v.type, Barrier) and alloc_of(v) is alloc for v in op.inputs):
            out[role].setdefault(op.loc or id(op), op)
    return {role: list(ops.values()) for role, ops in out.items()}


def protocol(module: Module, bar: MBarrier) -> list[str]:
    """The static protocol of a barrier, a line."""
    found = sites(module, bar.alloc)
    name = bar.place.name.partition("[")[0]
    parts = [f"{role}: {', '.join(map(at, ops)) or 'none'}" for role, ops in found.items() if ops or role != "bytes"]
    return [f"{name} (arrive_count {bar.count}) has {'; '.join(parts)}"]


def deadlock(strands: Sequence[Strand], module: Module) -> Report:
    """Roots first: those whose barrier no other waiting strand would complete."""
    rows = [(strand, strand.blocked) for strand in strands if strand.blocked is not None]
    notes, ops = [], []
    barriers: dict[Op, MBarrier] = {}
    for strand, wait in sorted(rows, key=lambda row: row[1].kind == "tasks"):
        assert wait is not None
        notes.append(f"{strand.name}: {at(wait.op)} {_state(wait, module)}")
        if wait.kind != "tasks":
            ops.append(wait.op)
        if isinstance(wait.object, MBarrier):
            barriers.setdefault(wait.object.alloc, wait.object)
    for bar in barriers.values():
        notes += protocol(module, bar)
    return Report("deadlock", f"nothing can go on; {len(ops)} waits are not met", ops, notes)


def _state(wait: Wait, module: Module) -> str:
    what = wait.object
    if isinstance(what, MBarrier):
        arrived = [f"{a.strand.name} ({at(a.op)})" for a in what.arrived]
        here = {id(a.op) for a in what.arrived}
        owing = [at(op) for op in sites(module, what.alloc)["arrivals"] if id(op) not in here]
        return (
            f"of {what.label} wants phase {wait.wanted}; completed {what.phase - 1}; {what.pending} of {what.count} "
            f"arrivals and {what.tx} bytes pending; arrived: {', '.join(arrived) or 'nobody'}; owing: "
            f"{', '.join(owing) or 'no other op arrives there'}"
        )
    if isinstance(what, Rendezvous):
        present = ", ".join(a.strand.name for a in what.arrived)
        return f"in round {what.round}: {what.got} of {what.count} present ({present})"
    return "waits for its tasks" if wait.kind == "tasks" else "waits for an engine"
