"""Notes on accesses to global memory that are narrower than a thread's part of the tile allows, with the reason.

A thread loads or stores at most 16 bytes at once.  It needs so many neighbours in memory, an address that is known to
be a multiple of their size, and one mask for all of them.  A tile whose offsets were loaded from memory has no
neighbours to speak of, and gets no note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tlxc.codegen.simt.lowering import layout_of
from tlxc.codegen.simt.memory import MAX_BYTES, access_limits, access_runs
from tlxc.ir.core import Module, Op, Param, Value
from tlxc.ir.table import traits
from tlxc.ir.types import Pointer, Scalar, Tensor, element_of, shape_of
from tlxc.passes.axis import AxisInfo, analyse, power_of_two

from .note import Note
from .program import by_line, number, per_iteration, with_loops


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


def narrow_accesses(module: Module) -> list[Note]:
    """One note for each source line and loop with accesses that missing facts make narrow."""
    ops = [(op, loop) for op, loop in with_loops(module.body) if _tile(op) is not None]
    if not ops:
        return []
    info, params = analyse(module), {p.value: p for p in module.params}
    found = [(op, loop, cost) for op, loop in ops if (cost := _cost(op, info, params)) is not None]
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


def _cost(op: Op, info: AxisInfo, params: dict[Value, Param]) -> Cost | None:
    v, pointer = _tile(op), op.inputs[0]
    mask = op.operands[1 if op.kind == "load" else 2]
    assert v is not None
    layout, size = layout_of(v), element_of(v.type).bytes
    groups = access_runs(info, pointer, mask, layout)
    dim = info.order(pointer)[0]
    wanted = min(MAX_BYTES // size, _floor(layout.registers), power_of_two(shape_of(v.type)[dim]))
    short = [name for name, limit in access_limits(info, pointer, mask).items() if limit < wanted]
    if "contiguity" in short:
        short = ["contiguity"]  # without neighbours the other facts mean nothing
    limited = {name: mask if name == "mask" else pointer for name in short}
    if not short or len(groups[0]) >= wanted or any(_is_loaded(x) for x in limited.values()):
        return None
    need = Need(wanted, size, dim, info, params)
    found = [_REASONS[name](need, x) for name, x in limited.items()]
    reasons = [reason for reason in found if reason is not None]
    if len(reasons) < len(found):
        return None
    text = ", and ".join(reason.text for reason in reasons)
    cost = Cost(len(groups[0]) * size, wanted * size, len(groups), text, _fix(reasons))
    return cost if cost.accesses - cost.few >= SPARED else None


def _floor(n: int) -> int:
    """The largest power of two that is not more."""
    return 1 << (n.bit_length() - 1)


def _walk(v: Value | None, into: Callable[[Value], bool]) -> Iterator[Value]:
    """A value and what it is computed from, through values that `into` admits."""
    assert v is not None
    pending, seen = [v], {v}
    while pending:
        x = pending.pop()
        yield x
        if x.op is not None and into(x):
            fresh = [y for y in x.op.inputs if y not in seen]
            seen.update(fresh)
            pending += fresh


def _is_loaded(v: Value | None) -> bool:
    """Whether a value depends on what was read from memory."""
    reads = {"reads_global", "reads_shared"}
    return any(x.op is not None and traits(x.op) & reads for x in _walk(v, lambda x: True))


# ------------------------------------------------------------------------------------------------ reasons
class Need(NamedTuple):
    """`elements` of `size` bytes along `dim`, in one access."""

    elements: int
    size: int
    dim: int
    info: AxisInfo
    params: dict[Value, Param]

    def divides(self, x: Value) -> bool:
        """Whether the value is known to be a multiple of what one access covers."""
        dims = self.info.of(x).dims
        unit = self.size if isinstance(element_of(x.type), Pointer) else 1
        return dims[min(self.dim, len(dims) - 1)].divisibility >= self.elements * unit

    def loose(self, v: Value | None) -> list[Param]:
        """Parameters that keep a value from being such a multiple."""
        behind = set(_walk(v, lambda x: not self.divides(x)))
        return [p for x, p in self.params.items() if x in behind and self._can_declare(p) and not self.divides(x)]

    def strides(self, x: Value) -> list[Param]:
        """Integer parameters in the number that a value multiplies coordinates along `dim` with."""
        if x.op is None or x.op.kind != "mul":
            return []
        a, b = x.op.inputs
        for counted, factor in ((a, b), (b, a)):
            dims = self.info.of(counted).dims
            if self.info.constant(factor) is None and dims[min(self.dim, len(dims) - 1)].contiguity > 1:
                behind = set(_walk(factor, lambda x: True))
                return [p for y, p in self.params.items() if y in behind and isinstance(p.type, Scalar)]
        return []

    def _can_declare(self, p: Param) -> bool:
        return isinstance(p.type, Pointer) or isinstance(p.type, Scalar) and p.type.dtype.is_int


class Reason(NamedTuple):
    """Why an access is narrow; what to declare of which parameters, or what else to do."""

    text: str
    loose: list[Param]
    otherwise: str


# A reason is None where the kernel wants it so: no promise would help.


def _of_alignment(need: Need, pointer: Value | None) -> Reason | None:
    loose = need.loose(pointer)
    names = [f"`{p.name}` is" for p in loose if isinstance(p.type, Pointer)]
    text = f"{(names or ['the address is'])[0]} not known to be aligned to {need.elements * need.size} bytes"
    return Reason(text, loose, "compute the offsets from multiples of 16")


def _of_mask(need: Need, mask: Value | None) -> Reason | None:
    return Reason("the mask may end between neighbours", need.loose(mask), "compute the mask from multiples of 16")


def _of_contiguity(need: Need, pointer: Value | None) -> Reason | None:
    """Neighbours are a stride apart that is known at run time only."""
    strides = [p.name for x in _walk(pointer, lambda x: True) for p in need.strides(x)]
    if not strides:
        return None
    name = f"`{strides[0]}`"
    return Reason(
        f"neighbours are {name} elements apart, which are not known to be 1",
        [],
        f"where {name} is always 1, leave it out of the offsets or make it tl.constexpr",
    )


_REASONS: dict[str, Callable[[Need, Value | None], Reason | None]] = {
    "contiguity": _of_contiguity,
    "alignment": _of_alignment,
    "mask": _of_mask,
}


def _fix(reasons: list[Reason]) -> str:
    """Declarations of all loose parameters, those that are declared alike together."""
    alike: dict[str, dict[str, None]] = {}
    for p in (p for reason in reasons for p in reason.loose):
        alike.setdefault(_declaration(p), {})[f"`{p.name}`"] = None
    declared = " and ".join(f"{' and '.join(names)} as {how}" for how, names in alike.items())
    fixes = [f"where that holds, declare {declared}"] if declared else []
    return "; ".join([*fixes, *(reason.otherwise for reason in reasons if not reason.loose)])


def _declaration(p: Param) -> str:
    if isinstance(p.type, Pointer):
        return f"tl.ptr(tl.{p.type.dtype.name}, align=16)"
    assert isinstance(p.type, Scalar)
    return f"tl.divisible(tl.{p.type.dtype.name}, 16)"


def _note(op: Op, repeated: bool, costs: list[Cost]) -> Note:
    cost = costs[0]._replace(accesses=sum(cost.accesses for cost in costs))
    now = f"{number(cost.accesses, op.kind)} of {number(cost.width, 'byte')} of each thread{per_iteration(repeated)}"
    text = f"{now}, where {cost.few} of {cost.wanted} would do: {cost.reason}"
    return Note("narrow", text, op.loc, cost.fix)
