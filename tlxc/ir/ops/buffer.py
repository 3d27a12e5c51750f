"""Tiles in shared memory: allocation, views, accesses."""

from __future__ import annotations

from math import prod

from ..core import Op
from ..table import require, row
from ..types import Buffer, Scalar, element_of, int32, shape_of


def _buffer(op: Op, position: int = 0) -> Buffer:
    b = op.inputs[position].type
    require(isinstance(b, Buffer), f"{op.kind} takes a buffer")
    assert isinstance(b, Buffer)
    return b


def _alloc(op: Op) -> None:
    b = op.result.type
    require(isinstance(b, Buffer), "local_alloc gives a buffer")
    assert isinstance(b, Buffer)
    require(not b.pitch or "alias" in op.attrs, "local_alloc: only tiles in shared storage have a pitch")
    require(b.group >= 1, "local_alloc: group is positive")


def _overlap(op: Op) -> None:
    allocs = [v.op for v in op.inputs]
    require(
        bool(allocs) and all(a is not None and a.attrs.get("alias", (0,))[0] == op.attrs["alias"] for a in allocs),
        "buffer_overlap takes allocations of its own storage",
    )


def _access(op: Op) -> None:
    b = _buffer(op)
    tile = op.inputs[1].type if op.kind == "local_store" else op.result.type
    require(b.count == 0, f"{op.kind} accesses one buffer; take a view of the array first")
    require(shape_of(tile) == shape_of(b) and element_of(tile) == element_of(b), f"{op.kind}: tile and buffer differ")


def _view(op: Op) -> None:
    b, r = _buffer(op), op.result.type
    require(b.count > 0 and isinstance(r, Buffer) and r.count == 0, "local_view takes one buffer of an array")
    require(op.inputs[1].type == Scalar(int32), "local_view: the index is an i32 scalar")
    require(shape_of(r) == b.shape and element_of(r) == b.dtype, "local_view keeps shape and dtype")


def _trans(op: Op) -> None:
    b, order = _buffer(op), op.attrs["order"]
    require(sorted(order) == list(range(len(b.shape))), f"local_trans: {order} is no permutation")
    require(shape_of(op.result.type) == tuple(b.shape[d] for d in order), "local_trans: extent i is extent order[i]")


def _slice(op: Op) -> None:
    b, r = _buffer(op), shape_of(op.result.type)
    offsets = op.attrs["offsets"]
    require(len(offsets) == len(b.shape) == len(r), "local_slice: one offset and extent per dimension")
    require(all(o + n <= m for o, n, m in zip(offsets, r, b.shape)), "local_slice stays inside the buffer")


def _reinterpret(op: Op) -> None:
    b, r = _buffer(op), op.result.type
    require(isinstance(r, Buffer), "local_reinterpret gives a buffer")
    assert isinstance(r, Buffer)
    require(
        prod(b.shape) * b.dtype.bytes * max(1, b.count) >= prod(r.shape) * r.dtype.bytes * max(1, r.count),
        "local_reinterpret: the view is no larger than the buffer",
    )


def _gather(op: Op) -> None:
    b = _buffer(op)
    tile = op.result.type if op.kind == "local_gather" else op.inputs[1].type
    indices = op.inputs[-1].type
    require(shape_of(indices) == shape_of(tile), f"{op.kind}: indices and tile have one shape")
    require(element_of(tile) == b.dtype and element_of(indices) == int32, f"{op.kind}: element types differ")
    require(0 <= op.attrs["axis"] < len(b.shape) == len(shape_of(tile)), f"{op.kind}: axis out of range")


row(
    "local_alloc",
    "buffer",
    "",
    1,
    "",
    "offset pinned alias copy_stride",
    verify=_alloc,
    kinds="bool int uint float",
    doc="Shared memory for one tile or an array of tiles; `offset` in bytes is set by the memory planner.  "
    "`pinned`: the "
    "layout is the user's.  `copy_stride`: bytes from the buffer of one copy of a task to that of the next.  "
    "`alias`: (number of the storage that several allocations share, bytes that the user gives "
    "it or 0); after the pass `alias` (number, offset in the storage, bytes of all of it).",
)
row(
    "buffer_overlap",
    "buffer",
    "buffers*",
    0,
    "alias tree",
    verify=_overlap,
    doc='How allocations share a storage: `tree` is the number of an operand, or ("shared" or "distinct", group size, '
    "children).  The pass `alias` reads and removes it.",
)
row(
    "local_view",
    "buffer",
    "array index",
    1,
    traits="pure",
    verify=_view,
    kinds="bool int uint float",
    doc="One buffer of an array; the index is not checked.  Address arithmetic only.",
)
row(
    "local_trans",
    "buffer",
    "buf",
    1,
    "order",
    traits="pure",
    verify=_trans,
    kinds="bool int uint float",
    doc="The same bytes with dimensions permuted; no instruction.",
)
row(
    "local_slice",
    "buffer",
    "buf",
    1,
    "offsets",
    traits="pure",
    verify=_slice,
    kinds="bool int uint float",
    doc="A box inside a buffer, aligned to the swizzle atom; address arithmetic only.",
)
row(
    "local_reinterpret",
    "buffer",
    "buf",
    1,
    traits="pure",
    verify=_reinterpret,
    kinds="bool int uint float",
    doc="The same bytes as another shape or dtype; no instruction.",
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
    "",
    "pinned converts",
    traits="reads_shared convergent",
    verify=_access,
    kinds="bool int uint float",
    doc="Shared memory to registers: `ld.shared` as wide as both layouts allow, or `ldmatrix`.  `pinned`: the result's "
    "layout is the user's.  `converts`: the second half of a layout conversion.",
)
row(
    "local_gather",
    "buffer",
    "buf indices",
    1,
    "axis",
    traits="reads_shared convergent",
    verify=_gather,
    kinds="int uint float",
    doc="result[i, j] = buf[indices[i, j], j] along `axis`: `ld.shared` per element.",
)
row(
    "local_scatter",
    "buffer",
    "buf value indices",
    0,
    "axis",
    traits="writes_shared convergent",
    verify=_gather,
    kinds="int uint float",
    doc="buf[indices[i, j], j] = value[i, j] along `axis`; of equal targets one wins: `st.shared` per element.",
)
