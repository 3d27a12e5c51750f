"""Annotations of kernel parameters that say more than a type: what the caller promises of the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import DType, Pointer, Scalar

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
