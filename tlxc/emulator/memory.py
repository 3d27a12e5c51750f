"""Global memory of one launch, and byte arrays.

Addresses: buffer number k occupies the 2**37 bytes from k << 37, its first byte in the middle of them, so that
offsets on both sides of the buffer are recognised. Shared memory is its own space that starts at `SHARED_BASE` on
NVIDIA (so that a null pointer is out of bounds) and at 0 on AMD; the number of the CTA in its cluster stands in the
bits from `RANK_SHIFT` on. A generic pointer to shared memory has `SHARED_WINDOW` added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.tensormap import MAP_BYTES, TensorMap, decode
from tlxc.emulator.values import Array

_SHIFT = 37
_MIDDLE = 1 << (_SHIFT - 1)
_CONSTANTS, _IMPLICIT = 1 << 12, 1 << 16
SHARED_BASE = 1024
RANK_SHIFT = 24
SHARED_WINDOW = 1 << 56


def first(mask: Array) -> int:
    return int(np.argmax(mask))


def indices(offsets: Array, size: int) -> Array:
    return offsets[:, None] + np.arange(size)


class Bytes:
    """A byte array with row access: `size` bytes at each of many offsets."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self._views: dict[int, Array] = {}

    def view(self, size: int) -> Array:
        """(len // size, size, ...) view for accesses aligned to their size."""
        view = self._views.get(size)
        if view is None:
            rows = len(self.data) // size
            view = self._views[size] = self.data[: rows * size].reshape(rows, size, *self.data.shape[1:])
        return view

    def gather(self, offsets: Array, size: int, aligned: bool) -> Array:
        if aligned:
            return self.view(size).take(offsets // size, axis=0)
        return self.data[indices(offsets, size)]

    def scatter(self, offsets: Array, size: int, aligned: bool, rows: Array) -> None:
        if aligned:
            self.view(size)[offsets // size] = rows
        else:
            self.data[indices(offsets, size)] = rows


def is_aligned(offsets: Array, size: int) -> bool:
    """Whether every offset is a multiple of `size`, a power of two."""
    return size & (size - 1) == 0 and not bool((offsets & (size - 1)).any())


@dataclass
class Buffer:
    label: str
    bytes: Bytes
    writable: bool


def buffer_address(index: int) -> int:
    """Address of the first byte of kernel argument `index`."""
    return ((index + 1) << _SHIFT) + _MIDDLE


def constant_address(index: int) -> int:
    """Address of the first byte of the module's constant variable number `index`."""
    return buffer_address(_CONSTANTS + index)


def implicit_address() -> int:
    """Address of the implicit kernel arguments of AMD code objects: the three workgroup counts as u32."""
    return buffer_address(_IMPLICIT)


class GlobalMemory:
    """Buffers by number; accesses take addresses (uint64) of some lanes and return one row of bytes per lane."""

    def __init__(self) -> None:
        self.buffers: dict[int, Buffer] = {}
        self.maps: dict[int, TensorMap] = {}
        self.published: dict[int, int] = {}
        self.made: dict[int, TensorMap] = {}

    def add_map(self, index: int, map_: TensorMap) -> None:
        """A tensor map as argument `index`; its 128 bytes are not to be read."""
        self.maps[buffer_address(index)] = map_

    def publish_map(self, address: int, data: Array, lane: int) -> None:
        """A tensor map that a kernel made arrives at an address."""
        if address % MAP_BYTES:
            raise EmulatorError(f"A tensor map is published at {address:#x}, no multiple of {MAP_BYTES} bytes.")
        old = self.made.pop(address, None)
        if old is not None and old.under_way:
            raise EmulatorError(
                f"A tensor map is published at {address:#x}, where copies by the one before are still under way."
            )
        self.store(np.array([address], np.uint64), data[None, :], np.array([lane]))
        self.published[address] = self.published.get(address, 0) + 1

    def tensor_map(self, address: int) -> TensorMap:
        """The map of a kernel argument, or the one that was published last at an address."""
        if address in self.published:
            if address not in self.made:
                data = self.load(np.array([address], np.uint64), MAP_BYTES, np.zeros(1, np.int64))
                self.made[address] = decode(data[0].copy(), self._place)
            return self.made[address]
        if address not in self.maps:
            raise EmulatorError(
                f"The address {address:#x} is neither that of a tensor map that the kernel was given nor of one that "
                "it published."
            )
        return self.maps[address]

    def _place(self, address: int) -> tuple[Array, int]:
        """(bytes of a buffer, offset into them) of an address."""
        number = address >> _SHIFT
        offset = address - ((number << _SHIFT) + _MIDDLE)
        buffer = self.buffers.get(number)
        if buffer is None or offset < 0:
            raise EmulatorError(f"A tensor map holds the address {address:#x}, which is in no buffer.")
        return buffer.bytes.data, offset

    def add_argument(self, index: int, array: Array) -> None:
        if not array.flags.c_contiguous:
            raise EmulatorError(f"Argument {index} is not contiguous in memory; pass numpy.ascontiguousarray(...).")
        data = array.reshape(-1).view(np.uint8)
        self.buffers[index + 1] = Buffer(f"argument {index}", Bytes(data), array.flags.writeable)

    def add_constant(self, index: int, name: str, data: bytes) -> None:
        array = np.frombuffer(data, np.uint8)
        self.buffers[_CONSTANTS + index + 1] = Buffer(f"constant @{name}", Bytes(array), False)

    def add_implicit(self, grid: tuple[int, int, int]) -> None:
        counts = np.array(grid, np.uint32)
        self.buffers[_IMPLICIT + 1] = Buffer("the implicit arguments", Bytes(counts.view(np.uint8)), False)

    def load(self, addresses: Array, size: int, lanes: Array) -> Array:
        return self._access(addresses, size, lanes, None)

    def store(self, addresses: Array, rows: Array, lanes: Array) -> None:
        self._access(addresses, rows.shape[1], lanes, rows)

    def _access(self, addresses: Array, size: int, lanes: Array, rows: Array | None) -> Array:
        numbers = (addresses >> np.uint64(_SHIFT)).astype(np.int64)
        if (numbers != numbers[0]).any():
            return self._split(numbers, addresses, size, lanes, rows)
        buffer = self.buffers.get(int(numbers[0]))
        if buffer is None:
            raise EmulatorError(f"Lane {lanes[0]} accesses address {int(addresses[0]):#x}, which is in no buffer.")
        offsets = addresses.astype(np.int64) - ((int(numbers[0]) << _SHIFT) + _MIDDLE)
        outside = (offsets < 0) | (offsets + size > len(buffer.bytes.data))
        if outside.any():
            at = first(outside)
            raise EmulatorError(
                f"Out-of-bounds {'read' if rows is None else 'write'} by lane {lanes[at]}: byte offset {offsets[at]}, "
                f"{size} bytes, in {buffer.label} of {len(buffer.bytes.data)} bytes."
            )
        aligned = is_aligned(offsets, size)
        if rows is None:
            return buffer.bytes.gather(offsets, size, aligned)
        if not buffer.writable:
            raise EmulatorError(f"Lane {lanes[0]} writes to {buffer.label}, which is read-only.")
        buffer.bytes.scatter(offsets, size, aligned, rows)
        return rows

    def _split(self, numbers: Array, addresses: Array, size: int, lanes: Array, rows: Array | None) -> Array:
        """Lanes that point into different buffers."""
        result = np.zeros((len(addresses), size), np.uint8)
        for number in np.unique(numbers):
            at = np.nonzero(numbers == number)[0]
            result[at] = self._access(addresses[at], size, lanes[at], None if rows is None else rows[at])
        return result
