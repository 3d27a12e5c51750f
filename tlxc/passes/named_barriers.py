"""Which hardware barriers the author's named barriers may take.

Invariant after the pass: a named barrier whose id is no constant carries `ids`, the smallest and largest id that it can
have at run time, both among 1 to 15.  The compiler gives the tasks of a region none of those (`taken_barriers`).
"""

from __future__ import annotations

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op

from .axis import analyse

NAMED_BARRIERS = 16  # of the hardware, per CTA; the CTA-wide barrier is one of them
KINDS = ("named_barrier_wait", "named_barrier_arrive")


def bound_named_barriers(module: Module) -> None:
    """See the invariant of this module."""
    named = [op for op in module.walk() if op.kind in KINDS]
    info = analyse(module) if named else None
    for op in named:
        assert info is not None
        ids = info.range(op.inputs[0])
        if ids is None or ids[0] < 1 or ids[1] >= NAMED_BARRIERS:
            raise _unbounded(op, ids)
        if _constant(op) is None:
            op.attrs["ids"] = ids


def taken_barriers(module: Module) -> frozenset[int]:
    """Ids that the author's named barriers may have."""
    taken: set[int] = set()
    for op in module.walk():
        if op.kind in KINDS:
            known = _constant(op)
            first, last = op.attrs.get("ids", (1, NAMED_BARRIERS - 1)) if known is None else (known, known)
            taken.update(range(first, last + 1))
    return frozenset(taken)


def _constant(op: Op) -> int | None:
    made = op.inputs[0].op
    return made.attrs["value"] if made is not None and made.kind == "constant" else None


def _unbounded(op: Op, ids: tuple[int, int] | None) -> CompileError:
    near = range(-NAMED_BARRIERS, 1 << 16)  # bounds that come from arithmetic, not from the dtype alone
    known = ids is not None and ids[0] in near and ids[1] in near
    return CompileError(
        f"the id of {op.kind} may be other than 1 to {NAMED_BARRIERS - 1}",
        found=f"an id from {ids[0]} to {ids[1]}" if ids and known else "an id that nothing bounds",
        allowed="ids that are 1 to 15 whatever they are computed from: the compiler keeps its own barriers off them",
        fix="bound it by arithmetic, as in 8 + (i & 7) or tl.where(first, 9, 10)",
        loc=op.loc,
    )
