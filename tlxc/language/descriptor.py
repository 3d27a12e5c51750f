"""Tensor descriptors that a kernel makes: slots for them, filling a slot, and finding again what a slot holds."""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.core import Op, Value
from tlxc.ir.ops.descriptor import MAP_BYTES, PADDINGS
from tlxc.ir.types import Buffer, Descriptor, DType, Pointer, int1, int64, uint8

from .context import Private, current
from .core import builder, builtin, check_dtype, constant, convert, describe, literal_int, name_of, tensor
from .handles import (
    check_uniform,
    descriptor_slot,
    descriptor_slots,
    items_of,
    made_descriptor,
    require_feature,
    scalar_i32,
    tensor_descriptor,
)
from .promotion import is_literal

_ALIGN = 16  # bytes that strides and the rows of a block are multiples of
_MAX_RANK = 5


# ------------------------------------------------------------------------------------------------------------- slots
def _allocate(count: int) -> Value:
    """Slots behind those that the CTA's part of the workspace already holds."""
    attrs = builder().module.attrs
    offset = attrs.get("workspace", 0)
    attrs["workspace"] = offset + MAP_BYTES * count
    return builder().emit("descriptor_slots", type=Pointer(uint8), count=count, offset=offset)


@builtin
def allocate_tensor_descriptor(num: int) -> descriptor_slots:
    """An array of `num` slots, each for one descriptor that the kernel makes; `slots[i]` is one of them.

    A slot is 128 bytes of global memory that belong to the CTA until the kernel ends, in a workspace that every launch
    allocates and frees in the order of its stream.  All descriptors of an array that have one block_shape and dtype
    copy to and from buffers of one layout.  Targets: sm_90 and later.  Errors: no positive number.  No instruction.
    """
    require_feature("tma", "allocate_tensor_descriptor")
    count = literal_int(num, "the number of slots")
    if count < 1:
        raise CompileError("allocate_tensor_descriptor gives one slot at least", found=f"num={count}")
    return descriptor_slots(_allocate(count))


def _slot(desc_ptr: Any, what: str, allowed: str) -> Value:
    if isinstance(desc_ptr, descriptor_slots):
        raise CompileError(f"{what} takes one slot", found=desc_ptr.describe(), fix="index the array: slots[i]")
    if not isinstance(desc_ptr, descriptor_slot):
        raise CompileError(
            f"the desc_ptr of {what} is a slot for a descriptor",
            found=describe(desc_ptr),
            allowed=allowed,
            fix="allocate slots before: slots = tlx.allocate_tensor_descriptor(num=...)",
        )
    return desc_ptr.value


# --------------------------------------------------------------------------------------------------------- arguments
def _block(block_shape: Any, dtype: DType, what: str) -> Descriptor:
    """The type of descriptors of such blocks."""
    extents = items_of(block_shape, f"the block_shape of {what}")
    shape = tuple(literal_int(extent, "an extent of block_shape") for extent in extents)
    if not 1 <= len(shape) <= _MAX_RANK or min(shape) < 1 or shape[-1] * dtype.bytes % _ALIGN or dtype == int1:
        raise CompileError(
            f"the block_shape of {what} is none of a descriptor",
            found=f"block_shape={shape} of {dtype!r}",
            allowed=f"1 to {_MAX_RANK} positive extents, the last of a multiple of {_ALIGN} bytes; dtypes other than "
            "bool",
        )
    return Descriptor(shape, dtype)


def _extent(x: Any) -> Value:
    if is_literal(x) and x < 1:
        raise CompileError(
            "a tensor without elements has no descriptor",
            found=f"the extent {x} in the shape of make_tensor_descriptor",
            allowed="extents of 1 and more",
        )
    return scalar_i32(x, "an extent in the shape of make_tensor_descriptor")


def _stride(x: Any, dtype: DType) -> Value:
    """A stride in bytes."""
    what = "a stride of make_tensor_descriptor"
    if not isinstance(x, tensor):
        count = literal_int(x, what)
        if count < 1 or count * dtype.bytes % _ALIGN:
            raise CompileError(
                f"{what} is no multiple of {_ALIGN} bytes",
                found=f"{count} elements of {dtype!r}",
                allowed=f"positive multiples of {_ALIGN // dtype.bytes} elements, but for the last stride, which is 1",
                fix="pad the rows of the tensor",
            )
        return constant(count * dtype.bytes, int64).value
    if x.shape or not isinstance(x.dtype, DType) or not x.dtype.is_int:
        raise CompileError(f"{what} is an integer scalar", found=describe(x))
    check_uniform(x, what)
    return (convert(x, int64) * dtype.bytes).value


def _base(base: Any) -> tuple[tensor, DType]:
    """A scalar pointer, and the dtype of what it points to."""
    pointer = base.dtype if isinstance(base, tensor) else None
    if not isinstance(pointer, Pointer) or base.shape:
        raise CompileError(
            "the base of make_tensor_descriptor is a scalar pointer",
            found=describe(base),
            allowed="a pointer parameter of the kernel, or such a pointer plus an offset",
        )
    return base, pointer.dtype


def _padding(padding: Any, dtype: DType) -> str:
    if padding not in PADDINGS:
        raise CompileError(
            "unknown padding_option of make_tensor_descriptor",
            found=describe(padding),
            allowed=", ".join(map(repr, PADDINGS)),
        )
    if padding == "nan" and not dtype.is_float:
        raise CompileError(
            "only floats are padded with NaN",
            found=f"padding_option='nan' for {name_of(dtype)}",
            allowed="padding_option='zero'",
        )
    return str(padding)


# ----------------------------------------------------------------------------------------------------------- making
@builtin
def make_tensor_descriptor(
    desc_ptr: Any, base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> made_descriptor:
    """A descriptor of the tensor at `base`, made by the kernel in the slot `desc_ptr`; None is for a slot of its own.

    `base`: a scalar pointer, a multiple of 16 bytes.  `shape` and `strides`: elements, one to five ints or integer
    scalars each; the last stride is the int 1, the others are multiples of 16 bytes, which at run time nothing checks
    but the emulator.  `block_shape`: compile-time extents.  `padding_option`: what elements outside read as, "zero" or
    (floats only) "nan".

    One warp of the task that calls it writes the tensor map.  The slot may be filled again once all copies by it are
    complete.  Another task finds the descriptor with `reinterpret_tensor_descriptor`, after a barrier that says that it
    is there; what is made before a region of tasks, every task may use.  It has `.load`, `.store`, `.shape`,
    `.strides`, `.block_shape` and `.dtype`.
    Targets: sm_90 and later.  Errors: other shapes or strides; NaN for integers; no slot.
    Instruction: `tensormap.replace`, `tensormap.cp_fenceproxy`, `fence.proxy.tensormap::generic.acquire.gpu`.
    """
    name = "make_tensor_descriptor"
    require_feature("tma", name)
    pointer, dtype = _base(base)
    extents = items_of(shape, f"the shape of {name}")
    steps = items_of(strides, f"the strides of {name}")
    ranks = (len(extents), len(steps), len(items_of(block_shape, f"the block_shape of {name}")))
    if not 1 <= ranks[0] <= _MAX_RANK or len(set(ranks)) > 1:
        raise CompileError(
            "shape, strides and block_shape of make_tensor_descriptor have one length",
            found=f"{ranks[0]} extents, {ranks[1]} strides and a block of {ranks[2]} dimensions",
            allowed=f"1 to {_MAX_RANK} of each",
        )
    kind = _block(block_shape, dtype, name)
    if not is_literal(steps[-1]) or steps[-1] != 1:
        raise CompileError(
            "the last stride of make_tensor_descriptor is the compile-time int 1",
            found=describe(steps[-1]),
            fix="write strides=[..., 1]; a tensor that is contiguous along another dimension is described with its "
            "dimensions in that order",
        )
    padding = _padding(padding_option, dtype)
    slot = _allocate(1) if desc_ptr is None else _slot(desc_ptr, name, "slots[i], or None for a slot of its own")
    sizes = [*map(_extent, extents), *(_stride(step, dtype) for step in steps[:-1])]
    add = builder()
    view = add.emit("descriptor_view", slot, type=kind)
    add.op("encode_descriptor", (view, _scratch(), pointer.value, *sizes), padding=padding)
    return made_descriptor(add.emit("acquire_descriptor", view, type=kind), extents, steps)


def _scratch() -> Value:
    """Where this place in the text builds its maps, allocated before everything else so that no task owns it."""
    context = current()
    build, task = context.builder, context.task
    key = (build.loc, id(task), "descriptor")  # the entry keeps the task, so its id stays its own
    if key not in context.private:
        made = Op("local_alloc", (), (Buffer((MAP_BYTES,), uint8),), loc=build.loc)
        build.module.body.ops[:0] = [made]
        context.private[key] = Private(made.result, None, task)
    return context.private[key].buffer


@builtin
def reinterpret_tensor_descriptor(desc_ptr: Any, block_shape: Any, dtype: Any) -> tensor_descriptor:
    """The descriptor that the slot `desc_ptr` holds since `make_tensor_descriptor` filled it, perhaps in another task.

    `block_shape` and `dtype` are those that it was made with.  What fills the slot comes before: in the task itself, or
    ordered by a barrier that this task waited for.  If the slot is filled again, take the descriptor again.
    Targets: sm_90 and later.  Errors: no slot; blocks that no descriptor of this array has.
    Instruction: `fence.proxy.tensormap::generic.acquire.gpu` (PTX ISA, "membar/fence").
    """
    name = "reinterpret_tensor_descriptor"
    require_feature("tma", name)
    kind = _block(block_shape, check_dtype(dtype, f"the dtype of {name}"), name)
    slot = _slot(desc_ptr, name, "slots[i]")
    view = builder().emit("descriptor_view", slot, type=kind)
    return tensor_descriptor(builder().emit("acquire_descriptor", view, type=kind))
