"""Annotations of kernel parameters that say more than a type: what the caller promises of the value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import Descriptor, DType, Pointer, Scalar, int1

from .core import builtin, check_dtype, describe, literal_int


@dataclass(frozen=True)
class Declared:
    """The type of a parameter with promises: an address is a multiple of `align` bytes (0: of the element's size only),
    an integer a multiple of `divisible`.  Launches check them; ahead of time they become `requires` of the artifact."""

    type: Scalar | Pointer
    align: int = 0
    divisible: int = 1


def aligned(pointer: Pointer, align: Any) -> Declared:
    """A pointer whose address is a multiple of `align` bytes."""
    count = literal_int(align, "align")
    if count < pointer.dtype.bytes or count & (count - 1):
        raise CompileError(
            "the alignment of a pointer is a power of two, and its element's size at least",
            found=f"align={count} for {pointer.dtype!r}",
            fix="write align=16 for the widest accesses, or leave it out",
        )
    return Declared(pointer, align=count)


@builtin
def divisible(dtype: DType, by: int) -> Declared:
    """An integer parameter that is a multiple of `by`, for annotations: `n: tl.divisible(tl.int32, 16)`.

    Any integer dtype.  Rows whose length is a multiple of 16 bytes are read and written in the widest accesses.
    Targets: all.  Errors: no integer dtype; `by` less than 1; at launch, a value that is no multiple.  No instruction.
    """
    if not check_dtype(dtype, "the dtype of tl.divisible").is_int:
        raise CompileError("only integers are divisible", found=describe(dtype), allowed="integer dtypes")
    if literal_int(by, "the divisor") < 1:
        raise CompileError("a divisor is positive", found=f"by={by}", allowed="1, 2, 3, ...")
    return Declared(Scalar(dtype), divisible=by)


@builtin
def tensor_descriptor_type(dtype: DType, block_shape: Sequence[int]) -> Descriptor:
    """The type of a descriptor parameter, for annotations: `a: tlx.tensor_descriptor_type(tl.float16, (128, 64))`.

    dtype: of the elements.  block_shape: elements of a copy, 1 to 5 dimensions, rows of a multiple of 16 bytes.  It
    serves compilation ahead of time; at launch dtype and block shape are those of the `tlxc.TensorDescriptor` given.
    Targets: sm_90 and later.  Errors: another dtype or shape.  No instruction.
    """
    element = check_dtype(dtype, "the dtype of tlx.tensor_descriptor_type")
    shape = tuple(literal_int(extent, "an extent of block_shape") for extent in block_shape)
    if not 1 <= len(shape) <= 5 or min(shape) < 1 or shape[-1] * element.bytes % 16 or element is int1:
        raise CompileError(
            "this is no block of a descriptor",
            found=f"block_shape={shape} of {element!r}",
            allowed="1 to 5 positive extents, the last of a multiple of 16 bytes; dtypes other than bool",
        )
    return Descriptor(shape, element)
