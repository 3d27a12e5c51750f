"""Tensor maps that a kernel makes.  Source: PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy", "membar/fence".

A kernel with slots takes one more parameter behind its own: the address of a workspace, of which each CTA has
`workspace_of` bytes, in the order of their numbers in the grid.  The first warp of a task writes all fields of a map
over zeros in shared memory, and copies it to its slot, which releases it to the tensor map proxy.  Whoever copies by
the map acquires it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tlxc.codegen.simt.buffer import shared_pointer
from tlxc.codegen.simt.lowering import Lower, Lowering
from tlxc.ir.core import Module, Op
from tlxc.ir.ops.descriptor import MAP_BYTES
from tlxc.ir.types import Descriptor

from .barrier import predicated
from .boxes import box_of

PARAMETER = "%workspace"
PARAMETER_TYPE = "ptr addrspace(1)"
_SHARED = "ptr addrspace(3)"
# Values of the fields that are immediates: PTX ISA, table "Tensormap new_val validity".  Signed bytes and halves are
# copied as unsigned ones.
_ELEMENTS = {
    "i8": 0, "u8": 0, "i16": 1, "u16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5, "f16": 6, "f32": 7, "bf16": 10
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_FILLS = {"zero": 0, "nan": 1}


def workspace_of(module: Module) -> int:
    """Bytes of workspace that every CTA needs; 0 where the kernel takes none."""
    return int(module.attrs.get("workspace", 0))


def descriptor_slots(low: Lowering, op: Op) -> None:
    w, e = low.w, low.emitter
    row = w.add(w.assign(f"mul i32 {e.program_id(2)}, {e.num_programs(1)}"), e.program_id(1))
    cta = w.add(w.assign(f"mul i32 {row}, {e.num_programs(0)}"), e.program_id(0))
    start = w.assign(f"mul i64 {w.assign(f'zext i32 {cta} to i64')}, {workspace_of(low.module)}")
    own = w.assign(f"getelementptr i8, {PARAMETER_TYPE} {PARAMETER}, i64 {start}")
    low.set(op.result, [w.assign(f"getelementptr i8, {PARAMETER_TYPE} {own}, i64 {op.attrs['offset']}")])


def descriptor_slot(low: Lowering, op: Op) -> None:
    slots, index = map(low.scalar, op.inputs)
    offset = low.w.assign(f"mul i32 {index}, {MAP_BYTES}")
    low.set(op.result, [low.w.assign(f"getelementptr i8, {PARAMETER_TYPE} {slots}, i32 {offset}")])


def descriptor_view(low: Lowering, op: Op) -> None:
    """A descriptor is a generic address, as that of a parameter."""
    low.set(op.result, [low.w.assign(f"addrspacecast {PARAMETER_TYPE} {low.scalar(op.inputs[0])} to ptr")])


def encode_descriptor(low: Lowering, op: Op) -> None:
    desc, buf, *_ = op.inputs
    warp = None if low.num_warps == 1 else low.w.assign(f"icmp eq i32 {low.warp}, 0")
    made = shared_pointer(low, buf)
    word = low.w.assign(f"getelementptr i32, {_SHARED} {made}, i32 {low.lane}")
    predicated(low, "st.shared.b32 [$0], 0;", ["r"], [(_SHARED, word)], warp)
    _meet(low)
    one = low.elected()
    for field in _fields(low, op):
        bits = 64 if field.name in ("global_address", "global_stride") else 32
        text = f"tensormap.replace.tile.{field.name}.shared::cta.b1024.b{bits} [$0], {field.place}"
        args = [(_SHARED, made)]
        if isinstance(field.value, int):
            predicated(low, f"{text}{field.value};", ["r"], args, one)
        else:
            predicated(low, f"{text}$1;", ["r", "l" if bits == 64 else "r"], [*args, field.value], one)
    _meet(low)
    publish = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    slot = low.w.assign(f"addrspacecast ptr {low.scalar(desc)} to {PARAMETER_TYPE}")
    args = [(PARAMETER_TYPE, slot), (_SHARED, made)]
    predicated(low, f"{publish} [$0], [$1], {MAP_BYTES};", ["l", "r"], args, warp)


def _meet(low: Lowering) -> None:
    """The lanes of every warp see what one of them wrote."""
    low.emitter.barrier("0", 1, False)


class _Field(NamedTuple):
    """A field of a map: an immediate, or a register as (type, name).  `place` is the dimension, with a comma behind."""

    name: str
    value: int | tuple[str, str]
    place: str = ""


def _fields(low: Lowering, op: Op) -> Iterator[_Field]:
    """All fields; dimensions count from the innermost, and the rank from 0."""
    desc, _, base, *sizes = op.inputs
    assert isinstance(desc.type, Descriptor)
    box, rank = box_of(desc.type), len(desc.type.shape)
    extents, strides = sizes[:rank][::-1], sizes[rank:][::-1]
    yield _Field("global_address", (PARAMETER_TYPE, low.scalar(base)))
    yield _Field("rank", rank - 1)
    for d, (extent, part) in enumerate(zip(extents, reversed(box.box))):
        yield _Field("box_dim", ("i32", str(part)), f"{d}, ")
        yield _Field("global_dim", ("i32", low.scalar(extent)), f"{d}, ")
        yield _Field("element_stride", ("i32", "1"), f"{d}, ")
    for d, stride in enumerate(strides):
        yield _Field("global_stride", ("i64", low.scalar(stride)), f"{d}, ")
    yield _Field("elemtype", _ELEMENTS[desc.type.dtype.short])
    yield _Field("interleave_layout", 0)
    yield _Field("swizzle_mode", _SWIZZLES[box.swizzle])
    yield _Field("fill_mode", _FILLS[op.attrs["padding"]])


def acquire_descriptor(low: Lowering, op: Op) -> None:
    """By every thread: each of them may be one that copies."""
    name = low.scalar(op.inputs[0])
    fence = f"fence.proxy.tensormap::generic.acquire.gpu [$0], {MAP_BYTES};"
    low.w.asm("void", fence, "l,~{memory}", [("ptr", name)])
    low.set(op.result, [name])


LOWERINGS: dict[str, Lower] = {
    "descriptor_slots": descriptor_slots,
    "descriptor_slot": descriptor_slot,
    "descriptor_view": descriptor_view,
    "encode_descriptor": encode_descriptor,
    "acquire_descriptor": acquire_descriptor,
}
