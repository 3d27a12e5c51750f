"""Reductions of a tile along one axis."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import DType, element_of, shape_of

COMBINE = ("sum", "max", "min")


def _common(op: Op) -> tuple[int, ...]:
    s, axis = shape_of(op.inputs[0].type), op.attrs["axis"]
    e = element_of(op.inputs[0].type)
    require(0 <= axis < len(s), f"{op.kind}: axis {axis} of a tile of rank {len(s)}")
    require(op.attrs["combine"] in COMBINE, f"{op.kind}: combine is one of {', '.join(COMBINE)}")
    require(isinstance(e, DType) and e.kind != "bool", f"{op.kind} does not compute on {e}")
    require(element_of(op.result.type) == e, f"{op.kind} keeps the element type")
    return s[:axis] + s[axis + 1 :]


def _reduce(op: Op) -> None:
    require(shape_of(op.result.type) == _common(op), "reduce drops its axis")


def _partial(op: Op) -> None:
    kept = _common(op)
    require(shape_of(op.result.type)[:-1] == kept, "partial_reduce replaces its axis by a last axis of partial results")
    require(op.attrs["level"] in ("thread", "warp"), "partial_reduce: level is thread or warp")


row(
    "reduce",
    "reduce",
    "x",
    1,
    "axis combine",
    traits="pure convergent",
    verify=_reduce,
    kinds="int uint float",
    doc="Combines along `axis`: in the thread, then by warp shuffles.  A rank-1 tile gives a scalar that the whole "
    "task agrees on.  max and min ignore NaN.  Where warps share the axis it is rewritten to partial_reduce, a "
    "conversion and a reduce in the thread.",
)
row(
    "partial_reduce",
    "reduce",
    "x",
    1,
    "axis combine level",
    traits="pure convergent",
    verify=_partial,
    kinds="int uint float",
    doc="Combines along `axis` inside each thread (level thread) or warp (level warp); the result gets a last axis "
    "that counts the threads or warps which hold partial results.",
)
