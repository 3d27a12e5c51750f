"""Arrivals at another CTA's barrier that hand over tiles written there before.

A remote arrival orders what came before it for the threads of its own CTA only, and costs little.  Where a tile may
have been stored to another CTA (`remote_store`) and no cluster barrier came since, it must order that store for the
whole cluster.  Measured on an H200: without it a CTA of a pair read its neighbour's old bytes.

Invariant after the pass: `release` stands on every remote arrival that a remote store may precede without a cluster
barrier between them, and on no other.  What another task stores may always precede, for tasks meet at barriers of their
own.
"""

from __future__ import annotations

from tlxc.ir.core import Module, Op, Region
from tlxc.targets import Target

from .warps import copies_of


def release_remote_stores(module: Module, target: Target) -> None:
    """See the invariant of this module."""
    _region(module.body, False)


def _region(region: Region, stored: bool) -> bool:
    """Marks the arrivals of a region; `stored`, and the result: whether a remote store is uncovered there."""
    for op in region.ops:
        if op.kind == "remote_store":
            stored = True
        elif op.kind == "cluster_barrier":
            stored = stored and bool(op.attrs.get("relaxed"))
        elif op.kind == "barrier_arrive":
            if stored and op.operands[2] is not None:
                op.attrs["release"] = True
        elif op.kind == "if":
            stored = any([_region(r, stored) for r in op.regions])
        elif op.kind == "async_tasks":
            stored = _tasks(op, stored)
        elif op.regions:
            stored = _loop(op, stored)
    return stored


def _tasks(op: Op, stored: bool) -> bool:
    """Whatever runs beside a task may have stored, its other copies among them."""
    stores = [any(inner.kind == "remote_store" for inner in r.walk()) for r in op.regions]
    after = []
    for i, (region, copies) in enumerate(zip(op.regions, copies_of(op))):
        beside = stores[:i] + stores[i + 1 :] + stores[i : i + 1] * (copies > 1)
        after.append(_region(region, stored or any(beside)))
    return any(after)


def _loop(op: Op, stored: bool) -> bool:
    """A second walk knows what the first turn leaves behind; the loop may also run no turn."""
    before, after = stored, stored
    for _ in range(2):
        before = stored = stored or after
        for r in op.regions:  # the condition of a while loop, then the body
            before = _region(r, before)
        after = before
    return stored or after
