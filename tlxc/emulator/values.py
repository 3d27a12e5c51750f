"""LLVM types and how their values look in NumPy.

A value of a scalar type over all lanes of a CTA is an array of shape (lanes,), a vector value is (lanes, count), a
struct value is a tuple of such arrays. Integers are stored unsigned (`i1` as bool) in the next container of 8, 16, 32
or 64 bits, with the unused high bits zero; pointers are uint64 whatever their address space.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Union, cast

import ml_dtypes
import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.pending import Pending, merge_pending

Array = np.ndarray[Any, Any]
LaneValue = Union[Array, "tuple[LaneValue, ...]"]

BF16 = np.dtype(ml_dtypes.bfloat16)
_UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
_SIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}
FLOATS: dict[str, np.dtype[Any]] = {
    "half": np.dtype(np.float16),
    "bfloat": BF16,
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}


@dataclass(frozen=True)
class IntType:
    bits: int

    @cached_property
    def size(self) -> int:
        return next(size for size in (1, 2, 4, 8) if 8 * size >= self.bits)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(bool) if self.bits == 1 else _UNSIGNED[self.size]

    @cached_property
    def mask(self) -> int | None:
        """Bits that belong to the value, or None when the container is exact."""
        return None if self.bits == 1 or self.bits == 8 * self.size else (1 << self.bits) - 1

    def __str__(self) -> str:
        return f"i{self.bits}"


@dataclass(frozen=True)
class FloatType:
    name: str

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return FLOATS[self.name]

    @cached_property
    def size(self) -> int:
        return self.dtype.itemsize

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class PointerType:
    """`size` is what a pointer occupies in memory: 8 bytes, also for shared pointers (the NVPTX default)."""

    space: int
    size = 8
    dtype = np.dtype(np.uint64)

    def __str__(self) -> str:
        return f"ptr addrspace({self.space})" if self.space else "ptr"


ScalarType = Union[IntType, FloatType, PointerType]


@dataclass(frozen=True)
class VectorType:
    count: int
    element: ScalarType

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return self.element.dtype

    @cached_property
    def size(self) -> int:
        if self.element == IntType(1):
            return -(-self.count // 8)
        return self.count * self.element.size

    def __str__(self) -> str:
        return f"<{self.count} x {self.element}>"


@dataclass(frozen=True)
class ArrayType:
    count: int
    element: Type

    @cached_property
    def size(self) -> int:
        return self.count * size_of(self.element)

    def __str__(self) -> str:
        return f"[{self.count} x {self.element}]"


@dataclass(frozen=True)
class StructType:
    fields: tuple[Type, ...]
    packed: bool = False

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        return self._layout[0]

    @cached_property
    def size(self) -> int:
        return self._layout[1]

    @cached_property
    def _layout(self) -> tuple[tuple[int, ...], int]:
        offset, offsets, widest = 0, [], 1
        for field in self.fields:
            align = 1 if self.packed else align_of(field)
            offset = -(-offset // align) * align
            offsets.append(offset)
            offset += size_of(field)
            widest = max(widest, align)
        return tuple(offsets), -(-offset // widest) * widest

    def __str__(self) -> str:
        return "{ " + ", ".join(map(str, self.fields)) + " }"


@dataclass(frozen=True)
class VoidType:
    def __str__(self) -> str:
        return "void"


@dataclass(frozen=True)
class MetadataType:
    def __str__(self) -> str:
        return "metadata"


Type = Union[IntType, FloatType, PointerType, VectorType, ArrayType, StructType, VoidType, MetadataType]


def size_of(type_: Type) -> int:
    """Bytes a value occupies in memory."""
    if isinstance(type_, (VoidType, MetadataType)):
        raise EmulatorError(f"The type {type_} has no size in memory.")
    return type_.size


def align_of(type_: Type) -> int:
    """Natural alignment in bytes (vectors: their size rounded up to a power of two)."""
    if isinstance(type_, ArrayType):
        return align_of(type_.element)
    if isinstance(type_, StructType):
        return max((1 if type_.packed else align_of(field) for field in type_.fields), default=1)
    return 1 << max(0, size_of(type_) - 1).bit_length()


def lane_type(type_: Type) -> IntType | FloatType | PointerType | VectorType:
    """`type_` itself, refused when it is not a scalar or a vector."""
    if isinstance(type_, (IntType, FloatType, PointerType, VectorType)):
        return type_
    raise EmulatorError(f"A value of type {type_} stands where a scalar or a vector is needed.")


def vector_count(type_: Type) -> int:
    """Elements of a vector type, 0 for a scalar."""
    return type_.count if isinstance(type_, VectorType) else 0


def element_type(type_: Type) -> ScalarType:
    type_ = lane_type(type_)
    return type_.element if isinstance(type_, VectorType) else type_


def int_type(type_: Type) -> IntType:
    """The integer element type of `type_`."""
    element = element_type(type_)
    if not isinstance(element, IntType):
        raise EmulatorError(f"An integer type is needed here, found {type_}.")
    return element


def signed(value: Array, type_: IntType) -> Array:
    """The value of an integer as a signed NumPy integer of the container's width."""
    if type_.bits == 1:
        return -value.astype(np.int8)
    view = value.view(_SIGNED[type_.size])
    if type_.mask is None:
        return view
    shift = 8 * type_.size - type_.bits
    return (view << shift) >> shift


def unsigned(value: Array, type_: IntType) -> Array:
    """Back from a signed (or wider) integer to the stored form, wrapping."""
    if type_.bits == 1:
        return (value & 1).astype(bool)
    value = value.astype(type_.dtype, copy=False)
    return value if type_.mask is None else value & type_.dtype.type(type_.mask)


def raw_bytes(value: Array) -> Array:
    """(lanes, ...) of any element type as (lanes, bytes) of uint8."""
    flat = np.ascontiguousarray(value).reshape(len(value), -1)
    return flat.view(np.uint8)


def from_bytes(data: Array, type_: Type) -> Array:
    """(lanes, bytes) of uint8 as a value of a scalar or vector type."""
    type_ = lane_type(type_)
    element = element_type(type_)
    if element == IntType(1):
        value = np.unpackbits(data, axis=1, bitorder="little")[:, : max(1, vector_count(type_))].astype(bool)
    else:
        value = np.ascontiguousarray(data).view(type_.dtype)
        if isinstance(element, IntType) and element.mask is not None:
            value = value & element.dtype.type(element.mask)
    return value if vector_count(type_) else value[:, 0]


def to_bytes(value: Array, type_: Type) -> Array:
    """A value of a scalar or vector type as (lanes, bytes) of uint8; `<n x i1>` is packed, little end first."""
    if element_type(type_) == IntType(1):
        return np.packbits(value.reshape(len(value), -1), axis=1, bitorder="little")
    return raw_bytes(value)


def merge(mask: Array, new: Any, old: Any) -> LaneValue:
    """`new` on the lanes of `mask`, `old` elsewhere."""
    if old is None:
        return new
    if isinstance(new, tuple):
        return tuple(merge(mask, n, o) for n, o in zip(new, old))
    if type(new) is Pending or type(old) is Pending:
        return cast(Array, merge_pending(mask, new, old))
    return cast(Array, np.where(mask if new.ndim == 1 else mask[:, None], new, old))
