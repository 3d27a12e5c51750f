"""Shared memory of one CTA: bytes, which of them were ever written, and where the elements of a buffer lie.

Buffers are not kept as arrays of their own: they are read and written through the byte offset and memory layout that
the compiler gave them, so aliasing, slices and reinterpretation are what they are on the card.  Whole chunks of 16
bytes are moved where the layout allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tlxc.errors import InternalError
from tlxc.ir.memory import Memory
from tlxc.ir.types import Buffer

from .values import storage

Array = npt.NDArray[Any]
CHUNK = 16  # bytes that are moved as one element where a layout keeps them together
POISON = 0xFF  # NaN in every float format, -1 in integers


@cache
def element_offsets(memory: Memory) -> npt.NDArray[np.int64]:
    """Element offset of every coordinate, in the shape of the tile."""
    rank = len(memory.shape)
    inner: Array = np.zeros((1,) * rank, np.int64)
    outer: Array = np.zeros((1,) * rank, np.int64)
    for d, (bits, bases, stride) in enumerate(zip(memory.bits, memory.bases, memory.strides)):
        c = np.arange(memory.shape[d], dtype=np.int64).reshape([-1 if i == d else 1 for i in range(rank)])
        part = np.zeros_like(c)
        for i, basis in enumerate(bases):
            part ^= np.where(c >> i & 1, basis, 0)
        inner, outer = inner ^ part, outer + (c >> bits) * stride
    return np.ascontiguousarray(np.broadcast_to(inner + outer, memory.shape))


@dataclass(frozen=True)
class Footprint:
    """The bytes that a tile takes, from its start: `size` up to the last; `dense` where all of them are its own."""

    memory: Memory
    itemsize: int

    @cached_property
    def size(self) -> int:
        return (int(element_offsets(self.memory).max()) + 1) * self.itemsize

    @cached_property
    def dense(self) -> bool:
        return element_offsets(self.memory).size * self.itemsize == self.size

    @cached_property
    def elements(self) -> Array:
        """Element offsets in the order of the tile."""
        return element_offsets(self.memory).reshape(-1)

    @cached_property
    def row_major(self) -> bool:
        return self.dense and bool((self.elements == np.arange(self.elements.size)).all())

    @cached_property
    def chunks(self) -> Array | None:
        """Numbers of the 16-byte chunks in the order of the tile; None where the layout splits chunks."""
        per = CHUNK // self.itemsize
        offsets = element_offsets(self.memory)
        if not per or offsets.shape[-1] % per:
            return None
        rows = offsets.reshape(-1, per)
        first = rows[:, :1]
        if (first % per).any() or (rows != first + np.arange(per)).any():
            return None
        return first[:, 0] // per

    @cached_property
    def bytes(self) -> Array:
        """Sorted offsets of its bytes."""
        return np.sort((self.elements[:, None] * self.itemsize + np.arange(self.itemsize)).reshape(-1))


@dataclass(frozen=True, eq=False)
class Scattered:
    """The footprint of bytes chosen at run time, sorted offsets."""

    bytes: Array
    size: int
    dense: bool = False


@cache
def footprint(memory: Memory, itemsize: int) -> Footprint:
    return Footprint(memory, itemsize)


def foot_of(type_: Buffer) -> Footprint:
    if type_.layout is None:
        raise InternalError(f"{type_} has no layout")
    return footprint(type_.layout, type_.dtype.bytes)


def meet(a: Footprint | Scattered, a_start: int, b: Footprint | Scattered, b_start: int) -> bool:
    """Whether two footprints, whose byte ranges overlap, share a byte."""
    if a.dense and b.dense or (a is b and a_start == b_start):
        return True
    if isinstance(a, Footprint) and isinstance(b, Footprint):
        return _layouts_meet(a, b, b_start - a_start)
    return bool(np.intersect1d(a.bytes + a_start, b.bytes + b_start).size)


@cache
def _layouts_meet(a: Footprint, b: Footprint, distance: int) -> bool:
    return bool(np.intersect1d(a.bytes, b.bytes + distance).size)


class Place:
    """A buffer value: an array of tiles or one tile, `start` bytes into the shared memory of a CTA, named as the user
    calls it: `name`, `name[2]`."""

    __slots__ = ("start", "type", "foot", "name")

    def __init__(self, start: int, type: Buffer, foot: Footprint, name: str) -> None:
        self.start, self.type, self.foot, self.name = start, type, foot, name


class SharedMemory:
    """The bytes of a CTA; `known` marks those that were written."""

    def __init__(self, size: int) -> None:
        room = -(-max(size, CHUNK) // CHUNK) * CHUNK
        self.bytes = np.full(room, POISON, np.uint8)
        self.known = np.zeros(room, np.bool_)
        self.chunks = self.bytes.view(np.complex128)

    def read(self, place: Place) -> Array:
        """The tile, a copy."""
        t, foot, start = place.type, place.foot, place.start
        dtype = storage(t.dtype)
        if foot.row_major:
            return self.bytes[start : start + foot.size].view(dtype).reshape(t.shape).copy()
        if foot.chunks is not None and start % CHUNK == 0:
            return self.chunks[foot.chunks + start // CHUNK].view(dtype).reshape(t.shape)
        return self.bytes[start : start + foot.size].view(dtype)[foot.elements].reshape(t.shape)

    def write(self, place: Place, value: Array) -> None:
        foot, start = place.foot, place.start
        dtype = storage(place.type.dtype)
        value = np.ascontiguousarray(value, dtype)
        if foot.row_major:
            self.bytes[start : start + foot.size] = value.reshape(-1).view(np.uint8)
        elif foot.chunks is not None and start % CHUNK == 0:
            self.chunks[foot.chunks + start // CHUNK] = value.reshape(-1).view(np.complex128)
        else:
            self.bytes[start : start + foot.size].view(dtype)[foot.elements] = value.reshape(-1)
        self.mark(start, foot)

    def holds(self, place: Place, value: Array) -> bool:
        """Whether the tile has this value already, bit for bit."""
        given = np.ascontiguousarray(value, storage(place.type.dtype))
        return self.is_known(place.start, place.foot) and self.read(place).tobytes() == given.tobytes()

    def write_bytes(self, start: int, value: Array, foot: Scattered) -> None:
        """Contiguous bytes, whatever buffer they belong to."""
        self.bytes[start : start + foot.size] = value.view(np.uint8)
        self.mark(start, foot)

    def elements(self, place: Place) -> Array:
        """All elements of the byte range of a tile, to be indexed by `Footprint.elements`; a view."""
        return self.bytes[place.start : place.start + place.foot.size].view(storage(place.type.dtype))

    def mark(self, start: int, foot: Footprint | Scattered) -> None:
        """The bytes of a footprint are written now."""
        if foot.dense:
            self.known[start : start + foot.size] = True
        else:
            self.known[foot.bytes + start] = True

    def is_known(self, start: int, foot: Footprint | Scattered) -> bool:
        if foot.dense:
            return bool(self.known[start : start + foot.size].all())
        return bool(self.known[foot.bytes + start].all())
