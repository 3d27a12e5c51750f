"""Tensor maps: blocks of a global tensor, and how they lie in shared memory.

Dimensions are innermost first, as in cuTensorMapEncodeTiled and in the coordinates of PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tlxc.emulator import numerics
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.values import Array

# swizzle width in bytes -> mask of the 16-byte piece's number that is xored with the number of the 128-byte line
_SWIZZLE = {0: 0, 32: 1, 64: 3, 128: 7}
_MAX_BOX, _MAX_RANK = 256, 5

MAP_BYTES = 128
# A map that a kernel makes: fields by the names of tensormap.replace.  Where hardware has them is not documented, so
# their places in the 128 bytes are the emulator's own.
MAP = np.dtype(
    {
        "names": (
            "global_address global_stride box_dim global_dim element_stride rank elemtype interleave_layout "
            "swizzle_mode fill_mode".split()
        ),
        "formats": ["u8", "(4,)u8", "(5,)u4", "(5,)u4", "(5,)u4", "u4", "u4", "u4", "u4", "u4"],
        "itemsize": MAP_BYTES,
    }
)
_ELEMENTS = {
    **{number: np.dtype(name) for number, name in enumerate("u1 u2 u4 i4 u8 i8 f2 f4".split())},
    10: np.dtype(ml_dtypes.bfloat16),
}
_SWIZZLE_MODES = {0: 0, 1: 32, 2: 64, 3: 128}

REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": numerics.min_number,
    "max": numerics.max_number,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


class TensorMap:
    """A kernel argument: `shape` and `box` in elements, `strides_bytes` of all dimensions but the innermost. `array`
    (or `(array, byte_offset)`) holds the tensor; `dtype` is its element type, by default the array's. `fill` is what a
    read finds outside of the tensor."""

    def __init__(
        self,
        array: Any,
        shape: Sequence[int],
        strides_bytes: Sequence[int],
        box: Sequence[int],
        elem_strides: Sequence[int] | None = None,
        swizzle: int = 0,
        dtype: Any = None,
        fill: float = 0.0,
    ) -> None:
        array, offset = array if isinstance(array, tuple) else (array, 0)
        self.dtype = np.dtype(dtype) if dtype is not None else array.dtype
        self.shape, self.box, self.swizzle = tuple(shape), tuple(box), swizzle
        self.strides = (self.dtype.itemsize, *strides_bytes)
        self._validate(array, offset, elem_strides or (1,) * len(self.shape))
        last = offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + self.dtype.itemsize
        data = array.reshape(-1).view(np.uint8)
        if last > len(data):
            raise EmulatorError(f"The tensor map reaches byte {last} of an array of {len(data)} bytes.")
        elements = data[offset:].view(np.uint8)
        words = np.dtype(f"u{self.dtype.itemsize}")
        self.fill = np.asarray(fill).astype(self.dtype).view(words)
        self.tensor = np.ndarray(self.shape[::-1], words, elements, 0, self.strides[::-1])
        self.inner_bytes = self.box[0] * self.dtype.itemsize
        self.bytes = int(np.prod(self.box)) * self.dtype.itemsize
        self.under_way = 0  # copies by it that have been issued and not landed

    def _validate(self, array: Array, offset: int, elem_strides: Sequence[int]) -> None:
        rank, inner = len(self.shape), self.box[0] * self.dtype.itemsize
        rules = (
            (1 <= rank <= _MAX_RANK, f"its rank is {rank}; 1 to {_MAX_RANK} are possible"),
            (len(self.strides) == rank == len(self.box), "shape, box and strides (one less) differ in rank"),
            (all(s == 1 for s in elem_strides), "element strides other than 1 are not supported"),
            (all(1 <= b <= _MAX_BOX for b in self.box), f"the box is {self.box}; 1 to {_MAX_BOX} per dimension"),
            (all(s % 16 == 0 for s in self.strides[1:]), f"strides are multiples of 16 bytes, not {self.strides[1:]}"),
            (offset % 16 == 0, f"its tensor starts at byte {offset}, which is no multiple of 16"),
            (inner % 16 == 0, f"the box has {inner} bytes in the innermost dimension; a multiple of 16 is needed"),
            (self.swizzle in _SWIZZLE, f"the swizzle is {self.swizzle}; 0, 32, 64 and 128 are possible"),
            (not self.swizzle or inner <= self.swizzle, f"the box's {inner} inner bytes exceed the swizzle"),
            (array.flags.c_contiguous, "the array is not contiguous"),
        )
        for holds, message in rules:
            if not holds:
                raise EmulatorError(f"The tensor map is not valid: {message}.")

    def _inside(self, start: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Of the block at `start` (innermost first), the part inside of the tensor: in the tensor and in the block."""
        whole, part = [], []
        for at, box, extent in zip(reversed(start), reversed(self.box), reversed(self.shape)):
            low, high = min(max(at, 0), extent), min(max(at + box, 0), extent)
            whole.append(slice(low, max(low, high)))
            part.append(slice(low - at, max(low, high) - at))
        return tuple(whole), tuple(part)

    def read(self, start: Sequence[int]) -> Array:
        """The block's bytes, `fill` outside of the tensor, rows one after the other."""
        block = np.full(self.box[::-1], self.fill, self.tensor.dtype)
        whole, part = self._inside(start)
        if all(s.stop > s.start for s in whole):
            block[part] = self.tensor[whole]
        return block.reshape(-1).view(np.uint8)

    def write(self, start: Sequence[int], data: Array, reduction: str = "") -> None:
        """Stores the block's part inside of the tensor, or reduces into it."""
        if self.shape[0] * self.dtype.itemsize % 16:  # so does an H200
            size = self.shape[0] * self.dtype.itemsize
            raise EmulatorError(f"A store to rows of {size} bytes writes beyond their end, to a multiple of 16 bytes.")
        if not self.tensor.flags.writeable:
            raise EmulatorError("A bulk copy writes to the array of a tensor map, which is read-only.")
        whole, part = self._inside(start)
        if not all(s.stop > s.start for s in whole):
            return
        new = data.view(self.tensor.dtype).reshape(self.box[::-1])[part]
        if reduction:
            old = np.ascontiguousarray(self.tensor[whole]).view(self.dtype)
            new = reduce(reduction, old, np.ascontiguousarray(new).view(self.dtype)).view(self.tensor.dtype)
        self.tensor[whole] = new

    def places(self, address: int) -> Array:
        """Where each byte of the block lies, from the start of its image at a shared `address`."""
        at = np.arange(0, self.bytes, 16) + address
        at = at ^ (((at >> 7) & _SWIZZLE[self.swizzle]) << 4)
        return (at - address)[:, None] + np.arange(16)

    def image(self, data: Array, address: int) -> Array:
        """The block's bytes as they lie in shared memory."""
        if not self.swizzle:
            return data
        result = np.empty_like(data)
        result[self.places(address)] = data.reshape(-1, 16)
        return result

    def block(self, image: Array, address: int) -> Array:
        """The inverse of `image`."""
        return image[self.places(address)].reshape(-1) if self.swizzle else image


def decode(data: Array, memory: Callable[[int], tuple[Array, int]]) -> TensorMap:
    """The map that a kernel made, from its 128 bytes; `memory` gives the (array, byte offset) of a global address."""
    fields = data.view(MAP)[0]
    rank = int(fields["rank"]) + 1
    shape, box, steps = ([int(n) for n in fields[name][:rank]] for name in ("global_dim", "box_dim", "element_stride"))
    element, swizzle = _ELEMENTS.get(int(fields["elemtype"])), _SWIZZLE_MODES.get(int(fields["swizzle_mode"]))
    rules = (
        (rank <= _MAX_RANK, f"its rank is {rank}; 1 to {_MAX_RANK} are possible"),
        (min(shape) > 0, f"its extents are {shape}; none is 0"),
        (element is not None, f"its element type is number {fields['elemtype']}, which is not supported"),
        (swizzle is not None, f"its swizzle is number {fields['swizzle_mode']}, which is not supported"),
        (fields["interleave_layout"] == 0, "an interleaved layout is not supported"),
        (fields["fill_mode"] <= 1, f"its fill mode is number {fields['fill_mode']}; 0 and 1 are possible"),
    )
    for holds, message in rules:
        if not holds:
            raise EmulatorError(f"The tensor map is not valid: {message}.")
    strides = [int(n) for n in fields["global_stride"][: rank - 1]]
    fill = np.nan if fields["fill_mode"] else 0.0
    place = memory(int(fields["global_address"]))
    return TensorMap(place, shape, strides, box, steps, swizzle or 0, element, fill)


def reduce(name: str, old: Array, new: Array) -> Array:
    if name not in REDUCTIONS:
        raise EmulatorError(f"The reduction .{name} of bulk copies is not supported; {', '.join(REDUCTIONS)} are.")
    if old.dtype.kind in "iu" and name in ("min", "max"):
        return {"min": np.minimum, "max": np.maximum}[name](old, new)
    return REDUCTIONS[name](old, new).astype(old.dtype)
