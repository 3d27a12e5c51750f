"""Relabelling ops as functions on layouts: they move no data, so one side's layout gives the other's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlxc.ir import layout as algebra
from tlxc.ir.core import Op
from tlxc.ir.layout import Layout, LayoutError
from tlxc.ir.types import shape_of

_BACKWARD: dict[str, Callable[[Op, Layout], Layout]] = {
    "expand_dims": lambda op, a: algebra.squeeze(a, op.attrs["axis"]),
    "broadcast": lambda op, a: algebra.collapse(a, shape_of(op.inputs[0].type)),
    "permute": lambda op, a: algebra.permute(a, _inverse(op.attrs["order"])),
    "reshape": lambda op, a: algebra.reshape(a, shape_of(op.inputs[0].type)),
    "split": lambda op, a: algebra.stack(a, len(op.results)),
    "join": lambda op, a: algebra.split(a),
}
_FORWARD: dict[str, Callable[[Op, Layout], Layout | None]] = {
    "expand_dims": lambda op, a: algebra.expand(a, op.attrs["axis"]),
    "broadcast": lambda op, a: a if shape_of(op.inputs[0].type) == shape_of(op.result.type) else None,
    "permute": lambda op, a: algebra.permute(a, tuple(op.attrs["order"])),
    "reshape": lambda op, a: algebra.reshape(a, shape_of(op.result.type)),
    "split": lambda op, a: algebra.split(a),
    "join": lambda op, a: algebra.join(a),
}
RELABEL = frozenset(_BACKWARD)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def backward(op: Op, a: Layout) -> Layout | None:
    """Layout of the operand of a relabelling op whose result has layout `a`; None where no operand layout gives it."""
    try:
        return _BACKWARD[op.kind](op, a)
    except LayoutError:
        return None


def forward(op: Op, a: Layout) -> Layout | None:
    """Layout of the result where the operand has `a`; None where it is not determined (broadcast) or impossible."""
    try:
        return _FORWARD[op.kind](op, a)
    except LayoutError:
        return None
