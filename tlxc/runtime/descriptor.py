"""TMA descriptors on the host: what a kernel may copy blocks of, and the tensor maps that the hardware reads.

A `TensorDescriptor` says which array and which blocks; box and swizzle are the compiled kernel's.  So the tensor map is
encoded at launch, and kept until a field changes.

Source: CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tlxc.errors import TlxcError
from tlxc.frontend.signature import Argument
from tlxc.ir import types as ir
from tlxc.runtime import cuda
from tlxc.runtime.arrays import dtype_of, interface_dtype, is_array, is_numpy, stand_in
from tlxc.runtime.fake import holds_no_data, is_fake

MAP_BYTES = 128
MAX_RANK = 5
_ALIGN = 16  # bytes of the base, of strides and of the rows of a block
_MAX_SHAPE, _MAX_STRIDE = 1 << 32, 1 << 40  # elements, bytes
PADDINGS = ("zero", "nan")


# What decides whether a descriptor of a tensor is right, of those that were.
_right: set[tuple[Any, ...]] = set()
_MOST_RIGHT = 4096


class DescriptorError(TlxcError, ValueError):
    """A `TensorDescriptor` that TMA cannot follow."""


class TensorDescriptor:
    """An array in global memory that kernels copy in blocks: the host's side of a descriptor parameter.

    base: a tensor on the GPU, aligned to 16 bytes; for the simulator one on the CPU or a NumPy array; where nothing is
    launched, any of these or a dtype.  shape: elements, 1 to 5 dimensions.  strides: elements; the last is 1, the
    others are multiples of 16 bytes.  block_shape: elements of a copy; it is part of the specialisation and may be
    changed between launches.  padding: what elements outside read as, "zero" or (floats only) "nan".

    All fields may be changed; each launch takes what stands there.
    """

    __slots__ = ("base", "shape", "strides", "block_shape", "padding", "_maps")

    def __init__(
        self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str = "zero"
    ) -> None:
        self.base, self.shape, self.strides, self.block_shape, self.padding = base, shape, strides, block_shape, padding
        self._maps: dict[Any, tuple[Any, TensorMap]] | None = None
        if not holds_no_data(base):
            self.check()

    def __repr__(self) -> str:
        return (
            f"TensorDescriptor(shape={tuple(self.shape)}, strides={tuple(self.strides)}, "
            f"block_shape={tuple(self.block_shape)}, padding={self.padding!r})"
        )

    @classmethod
    def from_tensor(cls, tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """A descriptor of a whole tensor, with the strides that it has."""
        if is_fake(tensor):
            return cls(tensor, tensor.shape, tensor.stride(), block_shape, padding)
        try:
            # Descriptors like one that was right are right; a sum tells 64 from 64.0.
            shape, strides = tensor.shape, tensor.stride()
            like = (tensor.dtype, tensor.data_ptr() % _ALIGN, shape, strides, *block_shape, padding)
            if like in _right and sum(block_shape).__class__ is int:
                made = cls.__new__(cls)
                made.base, made.shape, made.strides, made.block_shape = tensor, shape, strides, block_shape
                made.padding, made._maps = padding, None
                return made
        except (AttributeError, TypeError):  # no tensor, or no extents
            return cls(tensor, tensor.shape, _strides(tensor), block_shape, padding)
        made = cls(tensor, shape, strides, block_shape, padding)
        if holds_no_data(tensor):  # and was not checked
            return made
        if len(_right) >= _MOST_RIGHT:
            _right.clear()
        _right.add(like)
        return made

    @property
    def dtype(self) -> ir.DType:
        """The element type; a `DescriptorError` where kernels have none such."""
        found = dtype_of(_array_dtype(self.base))
        if found is None or found is ir.int1:
            allowed = ", ".join(t.name for t in ir.DTYPES.values() if t is not ir.int1)
            raise DescriptorError(
                f"The base of a TensorDescriptor is an array of {_array_dtype(self.base)}; it may be one of {allowed}."
            )
        return found

    @property
    def device(self) -> int | None:
        """Ordinal of the GPU that the base is on; negative for the CPU, None for a dtype or unknown memory."""
        if hasattr(self.base, "get_device"):
            return int(self.base.get_device())
        interface = getattr(self.base, "__cuda_array_interface__", None)
        return None if interface is None else cuda.pointer_device(interface["data"][0])

    @property
    def address(self) -> int:
        """Of the base in bytes; 0 for a dtype."""
        if hasattr(self.base, "data_ptr"):
            return int(self.base.data_ptr())
        if is_numpy(self.base):
            return int(self.base.ctypes.data)
        interface = getattr(self.base, "__cuda_array_interface__", None)
        return 0 if interface is None else int(interface["data"][0])

    def token(self) -> tuple[Any, ...]:
        """What decides the code; see `tokens`."""
        try:
            return (TensorDescriptor, _array_dtype(self.base), *self.block_shape)
        except TypeError:  # not a sequence: `check` says so
            return (TensorDescriptor,)

    def type(self) -> ir.Descriptor:
        """The type that a kernel's parameter gets.  Raises `DescriptorError` as the constructor does."""
        self.check()
        return ir.Descriptor(tuple(map(operator.index, self.block_shape)), self.dtype)

    def check(self) -> None:
        """Raises `DescriptorError` for what no tensor map can say."""
        if not is_array(self.base) and not is_numpy(self.base) and stand_in(self.base) is None:
            raise DescriptorError(
                f"The base of a TensorDescriptor is a {type(self.base).__name__}; give a tensor on the GPU, or a dtype "
                "where nothing is launched."
            )
        dtype = self.dtype
        shape, strides, block = (_integers(name, getattr(self, name)) for name in ("shape", "strides", "block_shape"))
        _check_ranks(shape, strides, block)
        _check_extents(shape, strides, block, dtype)
        if self.address % _ALIGN:
            raise DescriptorError(
                f"The base of a TensorDescriptor is at address {self.address:#x}; TMA needs a multiple of {_ALIGN} "
                "bytes, so pass a copy (.clone())."
            )
        if self.padding not in PADDINGS or (self.padding == "nan" and not dtype.is_float):
            allowed = '"zero" or "nan"' if dtype.is_float else f'"zero" for {dtype!r}'
            raise DescriptorError(f"The padding of a TensorDescriptor is {self.padding!r}; it may be {allowed}.")

    def map_for(self, box: tuple[int, ...], swizzle: int, stored: bool, gpu: cuda.Device) -> TensorMap:
        """The tensor map of this array in boxes of so many elements, with a swizzle of 0, 32, 64 or 128 bytes, for a
        kernel that stores by it or does not."""
        facts = (self.address, _array_dtype(self.base), tuple(self.shape), tuple(self.strides), self.padding)
        if self._maps is None:
            self._maps = {}
        known = self._maps.get((box, swizzle, stored))
        if known is not None and known[0] == facts:
            return known[1]
        self.check()
        if stored:
            self._check_rows()
        with cuda.in_context(gpu):
            made = encode(self.dtype, facts[0], facts[2], facts[3], box, swizzle, self.padding)
        self._maps[box, swizzle, stored] = facts, made
        return made

    def _check_rows(self) -> None:
        """Measured on an H200: a store writes the last 16 bytes of a row whole, beyond the extent where that is
        smaller."""
        size, extent = self.dtype.bytes, self.shape[-1]
        if extent * size % _ALIGN:
            raise DescriptorError(
                f"A kernel stores by a TensorDescriptor of shape {tuple(self.shape)} of {self.dtype!r}, whose rows are "
                f"{extent * size} bytes; TMA would write beyond their end, to a multiple of {_ALIGN} bytes. Make the "
                f"last extent a multiple of {_ALIGN // size}, or store with tl.store."
            )


def as_descriptor(value: Any, declared: Argument | None, where: str = "") -> Any:
    """A descriptor of the whole array where an array is given for a parameter that is declared one; else the value.
    `where`: kernel and parameter, for errors."""
    if value.__class__ is TensorDescriptor or declared is None or not (is_array(value) or is_numpy(value)):
        return value
    assert isinstance(declared.type, ir.Descriptor)
    try:
        return TensorDescriptor.from_tensor(value, declared.type.shape)
    except DescriptorError as error:
        raise DescriptorError(f"{where}: {error}") from None


def _array_dtype(base: Any) -> Any:
    """The dtype of an array, as torch or NumPy spells it; a dtype itself where one stands for an array."""
    interface = getattr(base, "__cuda_array_interface__", None) if not hasattr(base, "dtype") else None
    if interface is not None:
        return interface_dtype(interface["typestr"])
    return getattr(base, "dtype", base)


def _strides(tensor: Any) -> Sequence[int]:
    """Elements from one index to the next, per dimension."""
    if callable(getattr(tensor, "stride", None)):
        return tuple(tensor.stride())
    if is_numpy(tensor):
        return tuple(stride // tensor.itemsize for stride in tensor.strides)
    size = int(str(tensor.__cuda_array_interface__["typestr"])[2:])
    strides = tensor.__cuda_array_interface__.get("strides")
    if strides is not None:
        return tuple(s // size for s in strides)
    out = [1]
    for extent in reversed(tensor.shape[1:]):
        out.append(out[-1] * extent)
    return tuple(reversed(out))


def _integers(name: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise DescriptorError(f"The {name} of a TensorDescriptor is {values!r}; give a sequence of integers.") from None


def _check_ranks(shape: Sequence[int], strides: Sequence[int], block: Sequence[int]) -> None:
    if not 1 <= len(shape) <= MAX_RANK:
        raise DescriptorError(f"A TensorDescriptor has {len(shape)} dimensions; TMA has 1 to {MAX_RANK}.")
    if not len(shape) == len(strides) == len(block):
        raise DescriptorError(
            f"A TensorDescriptor has {len(shape)} dimensions, {len(strides)} strides and {len(block)} extents of a "
            "block; give as many of each."
        )


def _check_extents(shape: Sequence[int], strides: Sequence[int], block: Sequence[int], dtype: ir.DType) -> None:
    for d, (extent, stride, part) in enumerate(zip(shape, strides, block)):
        if not 1 <= extent <= _MAX_SHAPE:
            raise DescriptorError(f"Dimension {d} of a TensorDescriptor has {extent} elements; TMA takes 1 to 2**32.")
        if part < 1:
            raise DescriptorError(f"Dimension {d} of a TensorDescriptor's block has {part} elements; give 1 or more.")
        size = stride * dtype.bytes
        if d < len(shape) - 1 and not (size % _ALIGN == 0 and 0 < size < _MAX_STRIDE):
            raise DescriptorError(
                f"Dimension {d} of a TensorDescriptor has a stride of {stride} elements of {dtype!r}, {size} bytes; "
                f"TMA takes multiples of {_ALIGN} bytes, so pad the rows of the array or pass a copy."
            )
    if strides[-1] != 1:
        raise DescriptorError(
            f"The last stride of a TensorDescriptor is {strides[-1]}; TMA needs contiguous rows, so it must be 1: pass "
            "the array transposed, or a contiguous copy (.contiguous())."
        )
    row = block[-1] * dtype.bytes
    if row % _ALIGN:
        raise DescriptorError(
            f"The rows of a TensorDescriptor's block have {block[-1]} elements of {dtype!r}, {row} bytes; TMA copies "
            f"multiples of {_ALIGN} bytes."
        )


# -- encoding --------------------------------------------------------------------------------------------------------


class TensorMap:
    """128 bytes that the hardware reads, at `address`, a multiple of 64; never written again."""

    __slots__ = ("_memory", "address")

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + 64)
        self.address = (ctypes.addressof(self._memory) + 63) & ~63


# CUtensorMapDataType; 8 and 16-bit integers go as unsigned, which makes a difference to no copy.
TYPES = {
    "i8": 0, "u8": 0, "i16": 1, "u16": 1, "u32": 2, "i32": 3, "u64": 4, "i64": 5, "f16": 6, "f32": 7, "bf16": 9,
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
L2_256B = 3  # CUtensorMapL2promotion
FILLS = {"zero": 0, "nan": 1}  # CUtensorMapFloatOOBfill


@functools.cache
def _encoder() -> Callable[..., int]:
    """cuTensorMapEncodeTiled; called with the interpreter's lock held, as it takes less than giving it up."""
    p, i = ctypes.c_void_p, ctypes.c_int
    kind = ctypes.PYFUNCTYPE(i, p, i, ctypes.c_uint32, p, p, p, p, p, i, i, i, i)
    return kind(cuda.address_of("cuTensorMapEncodeTiled"))


def encode(
    dtype: ir.DType,
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    padding: str = "zero",
) -> TensorMap:
    """Asks the driver for a tensor map.  Sequences are in the order of the array; the driver wants the reverse."""
    rank, made = len(shape), TensorMap()
    wide, narrow = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    status = _encoder()(
        made.address,
        TYPES[dtype.short],
        rank,
        address,
        wide(*reversed(shape)),
        wide(*(s * dtype.bytes for s in reversed(strides[:-1]))),
        narrow(*reversed(box)),
        narrow(*[1] * rank),
        0,
        SWIZZLES[swizzle],
        L2_256B,
        FILLS[padding],
    )
    if status:
        what = (
            f"Encoding a tensor map of shape {tuple(shape)}, strides {tuple(strides)}, {dtype!r} in boxes of "
            f"{tuple(box)} with a swizzle of {swizzle} bytes"
        )
        raise cuda.failure(cuda.driver(), status, what, cuda.LaunchError)
    return made
