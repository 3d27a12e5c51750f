"""Why an access to global memory is narrow: the fact that is missing, and the parameters to declare for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tlxc.ir.core import Param, Value
from tlxc.ir.table import traits
from tlxc.ir.types import Pointer, Scalar, element_of
from tlxc.passes.axis import AxisInfo, Dim

from .origins import Origins


class Known(NamedTuple):
    """What is known of the values of a module."""

    info: AxisInfo
    origins: Origins
    params: dict[Value, Param]

    def params_behind(self, v: Value, into: Callable[[Value], bool] = lambda x: True) -> list[Param]:
        """Parameters that a value is computed from; none where it also depends on what was read from memory, since
        then no promise about them would help."""
        behind = set(self.origins.walk(v, into))
        if any(x.op is not None and traits(x.op) & _READS for x in behind):
            return []
        return [p for x, p in self.params.items() if x in behind and _can_be_declared(p)]


_READS = {"reads_global", "reads_shared"}


def _can_be_declared(p: Param) -> bool:
    return isinstance(p.type, Pointer) or isinstance(p.type, Scalar) and p.type.dtype.is_int


class Need(NamedTuple):
    """`elements` of `size` bytes along `dim`, in one access."""

    elements: int
    size: int
    dim: int
    known: Known

    def _along(self, x: Value) -> Dim:
        dims = self.known.info.of(x).dims
        return dims[min(self.dim, len(dims) - 1)]

    def divides(self, x: Value) -> bool:
        """Whether the value is known to be a multiple of what one access covers."""
        unit = self.size if isinstance(element_of(x.type), Pointer) else 1
        return self._along(x).divisibility >= self.elements * unit

    def loose(self, v: Value) -> list[Param]:
        """Parameters that keep a value from being such a multiple."""
        found = self.known.params_behind(v, lambda x: not self.divides(x))
        return [p for p in found if not self.divides(p.value)]

    def strides(self, v: Value) -> list[Param]:
        """Parameters in the numbers by which coordinates along `dim` are multiplied on the way to a value."""
        factors = [factor for x in self.known.origins.walk(v) for factor in self._factors(x)]
        return [p for factor in factors for p in self.known.params_behind(factor)]

    def _factors(self, x: Value) -> list[Value]:
        if x.op is None or x.op.kind != "mul":
            return []
        a, b = x.op.inputs
        return [
            factor
            for counted, factor in ((a, b), (b, a))
            if self.known.info.constant(factor) is None and self._along(counted).contiguity > 1
        ]


class Reason(NamedTuple):
    """Why an access is narrow, and the parameters that are to blame: without any the kernel wants it so.  `fix`: what
    to do about them where it is not to declare what they are."""

    text: str
    loose: list[Param]
    fix: str = ""


def _of_alignment(need: Need, pointer: Value) -> Reason:
    loose = need.loose(pointer)
    names = [f"`{p.name}` is" for p in loose if isinstance(p.type, Pointer)]
    text = f"{(names or ['the address is'])[0]} not known to be aligned to {need.elements * need.size} bytes"
    return Reason(text, loose)


def _of_mask(need: Need, mask: Value) -> Reason:
    return Reason("the mask may end between neighbours", need.loose(mask))


def _of_contiguity(need: Need, pointer: Value) -> Reason:
    """Neighbours are a stride apart that is known at run time only."""
    strides = need.strides(pointer)
    name = f"`{strides[0].name}`" if strides else ""
    return Reason(
        f"neighbours are {name} elements apart, which are not known to be 1",
        strides,
        f"where {name} is always 1, leave it out of the offsets or make it tl.constexpr",
    )


REASONS: dict[str, Callable[[Need, Value], Reason]] = {
    "contiguity": _of_contiguity,
    "alignment": _of_alignment,
    "mask": _of_mask,
}


def fix_of(reasons: list[Reason]) -> str:
    """What to declare, parameters that are declared alike together."""
    alike: dict[str, dict[str, None]] = {}
    for p in (p for reason in reasons for p in reason.loose if not reason.fix):
        alike.setdefault(_declaration(p), {})[f"`{p.name}`"] = None
    declared = " and ".join(f"{' and '.join(names)} as {how}" for how, names in alike.items())
    fixes = [f"where that holds, declare {declared}"] if declared else []
    return "; ".join([*fixes, *(reason.fix for reason in reasons if reason.fix)])


def _declaration(p: Param) -> str:
    if isinstance(p.type, Pointer):
        return f"tl.ptr(tl.{p.type.dtype.name}, align=16)"
    assert isinstance(p.type, Scalar)
    return f"tl.divisible(tl.{p.type.dtype.name}, 16)"
