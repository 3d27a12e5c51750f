"""Loops that wait for memory.

A plain load promises nothing about other threads: the compiler may read once for all turns of a loop, or drop a loop
that only reads.  So a `while` whose condition can change by a plain load alone, of one address in all turns and with
nothing in the loop that writes or synchronises, would never end or never have been.
"""

from __future__ import annotations

from collections.abc import Iterator

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Value
from tlxc.ir.table import OPS
from tlxc.targets import Target

_EFFECTS = frozenset(("writes_global", "writes_shared"))


def refuse_spins(module: Module, target: Target) -> None:
    """Invariant after it: no `while` waits for another thread by plain loads."""
    for loop in module.walk():
        if loop.kind != "while":
            continue
        inside = {op for region in loop.regions for op in region.walk()}
        if any(OPS[op.kind].traits & _EFFECTS for op in inside):
            continue
        carried = {argument for op in (loop, *inside) for region in op.regions for argument in region.args}
        for load in _loads(loop.regions[0].terminator.operands[0], inside):
            if all(_is_fixed(v, inside, carried) for v in load.operands):
                raise CompileError(
                    "a loop waits for memory that a plain load reads",
                    found="a condition that only another thread can change",
                    allowed="atomics, which are performed in every turn",
                    fix='read by an atomic, as in `while tl.atomic_add(flag, 0, sem="acquire") == 0`',
                    loc=load.loc or loop.loc,
                )


def _is_fixed(v: Value | None, inside: set[Op], carried: set[Value]) -> bool:
    """Whether a value is the same in every turn."""
    if v is None or v in carried:
        return v is None
    if v.op is None or v.op not in inside:
        return True
    return "pure" in OPS[v.op.kind].traits and all(_is_fixed(x, inside, carried) for x in v.op.operands)


def _loads(v: Value | None, inside: set[Op]) -> Iterator[Op]:
    """Loads of the loop that a value is made of."""
    pending, seen = [v], set()
    while pending:
        made = pending.pop()
        op = made and made.op
        if op is None or op not in inside or op in seen:
            continue
        seen.add(op)
        if op.kind == "load":
            yield op
        pending += op.operands
