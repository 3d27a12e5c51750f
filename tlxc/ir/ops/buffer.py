"""Tiles in shared memory."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Buffer, element_of, shape_of


def _alloc(op: Op) -> None:
    require(isinstance(op.result.type, Buffer), "local_alloc gives a buffer")


def _access(op: Op) -> None:
    b = op.inputs[0].type
    require(isinstance(b, Buffer), f"{op.kind} accesses a buffer")
    tile = op.inputs[1].type if op.kind == "local_store" else op.result.type
    require(shape_of(tile) == shape_of(b) and element_of(tile) == element_of(b), f"{op.kind}: tile and buffer differ")


row(
    "local_alloc",
    "buffer",
    "",
    1,
    "",
    "offset",
    verify=_alloc,
    kinds="bool int uint float",
    doc="Shared memory for one tile; `offset` in bytes is set by the memory planner.",
)
row(
    "local_store",
    "buffer",
    "buf value",
    0,
    traits="writes_shared convergent",
    verify=_access,
    kinds="bool int uint float",
    doc="Registers to shared memory: `st.shared` as wide as both layouts allow, or `stmatrix`.",
)
row(
    "local_load",
    "buffer",
    "buf",
    1,
    traits="reads_shared convergent",
    verify=_access,
    kinds="bool int uint float",
    doc="Shared memory to registers: `ld.shared` as wide as both layouts allow, or `ldmatrix`.",
)
