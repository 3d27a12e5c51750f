"""Tensor maps that a kernel makes: their places in the CTA's part of the workspace, what fills them, what uses them."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Buffer, Descriptor, Pointer, Scalar, int32, int64, uint8

MAP_BYTES = 128  # of a tensor map, and what its address is a multiple of
PADDINGS = ("zero", "nan")
_SLOT = Pointer(uint8)


def _slots(op: Op) -> None:
    require(op.result.type == _SLOT, f"{op.kind} gives an address of bytes")
    count, offset = op.attrs["count"], op.attrs["offset"]
    require(count > 0 and offset >= 0 and offset % MAP_BYTES == 0, f"{op.kind}: a count, and whole maps before it")


def _slot(op: Op) -> None:
    require(op.inputs[0].type == _SLOT and op.result.type == _SLOT, f"{op.kind} goes from slots to one of them")
    require(op.inputs[1].type == Scalar(int32), f"{op.kind}: the index is an i32 scalar")


def _view(op: Op) -> None:
    require(op.inputs[0].type == _SLOT, f"{op.kind} takes a slot")
    require(isinstance(op.result.type, Descriptor), f"{op.kind} gives a descriptor")


def _encode(op: Op) -> None:
    d, buffer, base, *sizes = (v.type for v in op.inputs)
    require(isinstance(d, Descriptor), f"{op.kind} fills a descriptor")
    assert isinstance(d, Descriptor)
    require(
        isinstance(buffer, Buffer) and buffer.count == 0 and buffer.nbytes == MAP_BYTES,
        f"{op.kind} builds the map in a buffer of {MAP_BYTES} bytes",
    )
    require(base == Pointer(d.dtype), f"{op.kind}: the base is the address of an element")
    rank = len(d.shape)
    require(sizes[:rank] == [Scalar(int32)] * rank, f"{op.kind}: one i32 extent per dimension")
    require(sizes[rank:] == [Scalar(int64)] * (rank - 1), f"{op.kind}: one i64 stride per dimension but the last")
    require(op.attrs["padding"] in PADDINGS, f"{op.kind}: unknown padding")


def _acquire(op: Op) -> None:
    require(isinstance(op.inputs[0].type, Descriptor), f"{op.kind} takes a descriptor")
    require(op.result.type == op.inputs[0].type, f"{op.kind} gives the descriptor that it takes")


row(
    "descriptor_slots",
    "tma",
    "",
    1,
    "count offset",
    traits="pure",
    verify=_slots,
    doc=f"The address of `count` places of {MAP_BYTES} bytes for tensor maps, `offset` bytes into the CTA's part of "
    "the workspace.",
)
row(
    "descriptor_slot",
    "tma",
    "slots index",
    1,
    traits="pure",
    verify=_slot,
    doc="The address of one of several slots.",
)
row(
    "descriptor_view",
    "tma",
    "slot",
    1,
    traits="pure",
    verify=_view,
    doc="A slot as the descriptor that it holds or will hold.",
)
row(
    "encode_descriptor",
    "tma",
    "desc buf base sizes*",
    0,
    "padding",
    traits="writes_global writes_shared convergent",
    verify=_encode,
    doc="One warp writes a tensor map in the buffer and publishes it to the slot of the descriptor; `sizes` are "
    "extents in elements, then strides in bytes, slowest dimension first: `tensormap.replace`, "
    "`tensormap.cp_fenceproxy`.",
)
row(
    "acquire_descriptor",
    "tma",
    "desc",
    1,
    traits="reads_global",
    verify=_acquire,
    doc="The descriptor, whose map as it was published last is what copies by it now use: "
    "`fence.proxy.tensormap::generic.acquire.gpu`.",
)
