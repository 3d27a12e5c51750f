"""Notes on accesses to global memory that are narrower than a thread's part of the tile allows, with the reason.

A thread loads or stores at most 16 bytes at once.  It needs so many neighbours in memory, an address that is known to
be a multiple of their size, and one mask for all of them.  A tile whose offsets were loaded from memory has no
neighbours to speak of, and gets no note.
"""

from __future__ import annotations

from typing import NamedTuple

from tlxc.codegen.simt.lowering import layout_of
from tlxc.codegen.simt.memory import MAX_BYTES, access_limits, access_runs
from tlxc.ir.core import Module, Op, Value
from tlxc.ir.types import Tensor, element_of, shape_of
from tlxc.passes.axis import AxisInfo, power_of_two

from .note import Note
from .origins import Origins
from .program import by_line, number, per_iteration, with_loops
from .reasons import REASONS, Known, Need, fix_of


class Cost(NamedTuple):
    """Accesses of each thread, in bytes."""

    width: int
    wanted: int
    accesses: int
    reason: str
    fix: str

    @property
    def few(self) -> int:
        """Accesses of the wanted width."""
        return -(-self.accesses * self.width // self.wanted)


SPARED = 2  # accesses of a thread that a note must be worth


def narrow_accesses(module: Module, info: AxisInfo) -> list[Note]:
    """One note for each source line and loop with accesses that missing facts make narrow."""
    ops = [(op, loop) for op, loop in with_loops(module.body) if _tile(op) is not None]
    if not ops:
        return []
    known = Known(info, Origins(module), {p.value: p for p in module.params})
    found = [(op, loop, cost) for op, loop in ops if (cost := _cost(op, known)) is not None]
    return [
        _note(group[0][0], group[0][1], [cost for _, _, cost in group])
        for group in by_line(found, lambda cost: cost._replace(accesses=0))
    ]


def _tile(op: Op) -> Value | None:
    """What a load or store of a tile moves."""
    if op.kind not in ("load", "store"):
        return None
    v = op.result if op.kind == "load" else op.operands[1]
    return v if v is not None and isinstance(v.type, Tensor) else None


def _cost(op: Op, known: Known) -> Cost | None:
    v, pointer = _tile(op), op.inputs[0]
    mask = op.operands[1 if op.kind == "load" else 2]
    assert v is not None
    layout, size, dim = layout_of(v), element_of(v.type).bytes, known.info.order(pointer)[0]
    groups = access_runs(known.info, pointer, mask, layout)
    wanted = min(MAX_BYTES // size, _floor(layout.registers), power_of_two(shape_of(v.type)[dim]))
    short = [name for name, limit in access_limits(known.info, pointer, mask).items() if limit < wanted]
    if not short or len(groups[0]) >= wanted:
        return None
    if "contiguity" in short:
        short = ["contiguity"]  # without neighbours the other facts mean nothing
    need = Need(wanted, size, dim, known)
    reasons = [REASONS[name](need, mask if name == "mask" and mask is not None else pointer) for name in short]
    if not all(reason.loose for reason in reasons):
        return None
    text = ", and ".join(reason.text for reason in reasons)
    cost = Cost(len(groups[0]) * size, wanted * size, len(groups), text, fix_of(reasons))
    return cost if cost.accesses - cost.few >= SPARED else None


def _floor(n: int) -> int:
    """The largest power of two that is not more."""
    return 1 << (n.bit_length() - 1)


def _note(op: Op, repeated: bool, costs: list[Cost]) -> Note:
    cost = costs[0]._replace(accesses=sum(cost.accesses for cost in costs))
    now = f"{number(cost.accesses, op.kind)} of {number(cost.width, 'byte')} of each thread{per_iteration(repeated)}"
    text = f"{now}, where {cost.few} of {cost.wanted} would do: {cost.reason}"
    return Note("narrow", text, op.loc, cost.fix)
