"""Buffers and shared memory of one launch, with the checks that hardware does not make.

Addresses: buffer number k occupies the 2**37 bytes from k << 37, its first byte in the middle of them, so that
offsets on both sides of the buffer are recognised. Shared memory is its own space that starts at `SHARED_BASE` on
NVIDIA (so that a null pointer is out of bounds) and at 0 on AMD; a generic pointer to shared memory has
`SHARED_WINDOW` added.

Shared-memory order is tracked with one vector clock per warp: a barrier joins the clocks of the warps that meet, and
an access must come after the last unordered write (and a write after the last unordered reads) of the same byte.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.values import Array

_SHIFT = 37
_MIDDLE = 1 << (_SHIFT - 1)
_CONSTANTS, _IMPLICIT = 1 << 12, 1 << 16
SHARED_BASE = 1024
SHARED_WINDOW = 1 << 56
_ALWAYS = np.iinfo(np.int32).max
_WARP_BITS = 6
_WARP = (1 << _WARP_BITS) - 1


def _first(mask: Array) -> int:
    return int(np.argmax(mask))


def _indices(offsets: Array, size: int) -> Array:
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
        return self.data[_indices(offsets, size)]

    def scatter(self, offsets: Array, size: int, aligned: bool, rows: Array) -> None:
        if aligned:
            self.view(size)[offsets // size] = rows
        else:
            self.data[_indices(offsets, size)] = rows


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
            at = _first(outside)
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


@dataclass
class _AsyncReads:
    """Shared memory that one warp group's issued matrix products still read: 16-byte rows per committed group."""

    open: list[Array] = field(default_factory=list)
    committed: deque[list[Array]] = field(default_factory=deque)


class SharedMemory:
    """Shared memory (LDS) of one CTA."""

    def __init__(self, size: int, base: int, warps: int, check: bool) -> None:
        padded = -(-size // 16) * 16
        self.size, self.base, self.check = size, base, check
        self.bytes = Bytes(np.zeros(padded, np.uint8))
        self.clock = np.ones(warps, np.int32)
        self.seen = np.zeros((warps, warps), np.int32)
        np.fill_diagonal(self.seen, _ALWAYS)
        self.fenced = np.zeros((warps, warps), np.int32)
        self.writer = Bytes(np.zeros(padded, np.int32))
        self.readers = Bytes(np.zeros((padded, warps), np.int32))
        self.atomics: Bytes | None = None
        self.async_readers = np.zeros(padded // 16, np.int32)
        self.async_queues: dict[int, _AsyncReads] = {}
        self.async_marks = np.zeros((padded // 16, -(-warps // 4)), np.int32)

    # -- synchronisation
    def barrier(self, warps: Array) -> None:
        """All earlier accesses of these warps come before all their later ones."""
        joined = np.where(np.eye(len(self.clock), dtype=bool), self.clock, self.seen)[warps].max(axis=0)
        self.seen[warps] = np.maximum(self.seen[warps], joined)
        self.clock[warps] += 1

    def proxy_fence(self, warps: Array) -> None:
        """What these warps wrote or have seen written becomes visible to asynchronous reads."""
        known = np.where(np.eye(len(self.clock), dtype=bool), self.clock, self.seen)
        self.fenced[warps] = known[warps]
        self.clock[warps] += 1

    # -- accesses
    def load(self, addresses: Array, size: int, lanes: Array, warps: Array) -> Array:
        offsets, aligned = self._offsets(addresses, size, lanes, "read")
        if self.check:
            written = self.writer.gather(offsets, size, aligned)
            self._check_written(written, offsets, lanes)
            self._check_order(written, offsets, lanes, warps, "read")
            self._check_marks(self.atomics, "atomic access", offsets, size, aligned, lanes, warps, "read")
            self._mark(self.readers, offsets, size, aligned, warps)
        return self.bytes.gather(offsets, size, aligned)

    def load_atomic(self, addresses: Array, size: int, lanes: Array, warps: Array) -> Array:
        """The read half of an atomic: races with plain writes, not with other atomics."""
        offsets, aligned = self._offsets(addresses, size, lanes, "atomic access")
        if self.check:
            written = self.writer.gather(offsets, size, aligned)
            self._check_written(written, offsets, lanes)
            self._check_order(written, offsets, lanes, warps, "atomic access")
        return self.bytes.gather(offsets, size, aligned)

    def store(self, addresses: Array, rows: Array, lanes: Array, warps: Array, atomic: bool = False) -> None:
        size = rows.shape[1]
        offsets, aligned = self._offsets(addresses, size, lanes, "write")
        if self.check:
            self._check_write(offsets, size, aligned, lanes, warps, atomic)
        self.bytes.scatter(offsets, size, aligned, rows)

    def _check_write(self, offsets: Array, size: int, aligned: bool, lanes: Array, warps: Array, atomic: bool) -> None:
        what = "atomic access" if atomic else "write"
        self._check_marks(self.readers, "read", offsets, size, aligned, lanes, warps, what)
        if self.async_queues:
            self._check_async_reads(offsets, size, lanes, warps, what)
        if atomic:
            if self.atomics is None:
                self.atomics = Bytes(np.zeros_like(self.readers.data))
            self._mark(self.atomics, offsets, size, aligned, warps)
            return
        self._check_order(self.writer.gather(offsets, size, aligned), offsets, lanes, warps, what)
        self._check_marks(self.atomics, "atomic access", offsets, size, aligned, lanes, warps, what)
        codes = ((self.clock[warps] << _WARP_BITS) | warps)[:, None]
        self.writer.scatter(offsets, size, aligned, codes)
        lost = self.writer.gather(offsets, size, aligned) != codes
        if lost.any():  # two warps write one byte in the same instruction
            lane, byte = np.argwhere(lost)[0]
            other = self.writer.data[offsets[lane] + byte] & _WARP
            self._race(offsets[lane] + byte, what, lanes[lane], "write", other)

    def load_async(self, addresses: Array, warps: Array) -> Array:
        """16-byte rows read by a warp group's tensor-core operation, through the asynchronous proxy."""
        first = np.full(len(addresses), warps[0])
        offsets, aligned = self._offsets(addresses, 16, first, "asynchronous read")
        rows = self.bytes.gather(offsets, 16, aligned)
        if not self.check:
            return rows
        written = self.writer.gather(offsets, 16, aligned)
        self._check_written(written, offsets, None)
        seen, fenced = self.seen[warps].min(axis=0), self.fenced
        warp, clock = written & _WARP, written >> _WARP_BITS
        late = clock > seen[warp]
        if late.any():
            row, byte = np.argwhere(late)[0]
            self._race(offsets[row] + byte, "wgmma read", None, "write", warp[row, byte])
        visible = np.maximum(np.diagonal(fenced), fenced[warps].min(axis=0))
        hidden = clock > visible[warp]
        if hidden.any():
            row, byte = np.argwhere(hidden)[0]
            raise EmulatorError(
                f"wgmma reads shared memory at byte {offsets[row] + byte}, which warp {warp[row, byte]} wrote with "
                "ordinary stores, and no fence.proxy.async stands between."
            )
        rows_read = np.unique(offsets >> 4)
        self.async_readers[rows_read] += 1
        self.async_queues.setdefault(int(warps[0]), _AsyncReads()).open.append(rows_read)
        return rows

    def commit_async(self, group: int) -> None:
        queue = self.async_queues.setdefault(group, _AsyncReads())
        queue.committed.append(queue.open)
        queue.open = []

    def wait_async(self, group: int, pending: int) -> None:
        """`group` is the first warp of a warp group. Its reads that the wait retires are over for all its four warps;
        others need a barrier after the wait before they write there."""
        queue = self.async_queues.setdefault(group, _AsyncReads())
        while len(queue.committed) > pending:
            for rows in queue.committed.popleft():
                self.async_readers[rows] -= 1
                self.async_marks[rows, group // 4] = self.clock[group]

    # -- checks
    def _offsets(self, addresses: Array, size: int, lanes: Array, what: str) -> tuple[Array, bool]:
        offsets = addresses.astype(np.int64) - self.base
        outside = (offsets < 0) | (offsets + size > self.size)
        if outside.any():
            at = _first(outside)
            raise EmulatorError(
                f"Out-of-bounds {what} of shared memory by lane {lanes[at]}: byte offset {offsets[at]}, {size} bytes, "
                f"of {self.size} bytes."
            )
        return offsets, is_aligned(offsets, size)

    def _check_written(self, written: Array, offsets: Array, lanes: Array | None) -> None:
        missing = written == 0
        if missing.any():
            lane, byte = np.argwhere(missing)[0]
            who = "A tensor-core operation" if lanes is None else f"Lane {lanes[lane]}"
            raise EmulatorError(f"{who} reads shared memory that nobody wrote, at byte {offsets[lane] + byte}.")

    def _check_order(self, written: Array, offsets: Array, lanes: Array, warps: Array, what: str) -> None:
        """Against the last plain write of each byte."""
        others = written & _WARP
        late = (written >> _WARP_BITS) > self.seen[warps[:, None], others]
        if late.any():
            lane, byte = np.argwhere(late)[0]
            self._race(offsets[lane] + byte, what, lanes[lane], "write", others[lane, byte])

    def _mark(self, shadow: Bytes, offsets: Array, size: int, aligned: bool, warps: Array) -> None:
        """Notes each warp's clock beside the bytes it accesses."""
        clocks = self.clock[warps][:, None]
        if aligned:
            shadow.view(size)[offsets // size, :, warps] = clocks
        else:
            shadow.data[_indices(offsets, size), warps[:, None]] = clocks

    def _check_marks(
        self,
        shadow: Bytes | None,
        other_what: str,
        offsets: Array,
        size: int,
        aligned: bool,
        lanes: Array,
        warps: Array,
        what: str,
    ) -> None:
        """Against the last access that each warp marked in `shadow`."""
        if shadow is None:
            return
        late = shadow.gather(offsets, size, aligned) > self.seen[warps][:, None, :]
        if late.any():
            lane, byte, other = np.argwhere(late)[0]
            self._race(offsets[lane] + byte, what, lanes[lane], other_what, other)

    def _check_async_reads(self, offsets: Array, size: int, lanes: Array, warps: Array, what: str) -> None:
        """No asynchronous read of these bytes may be under way, or retired by another warp group with no barrier
        since."""
        busy = self.async_readers[offsets >> 4] | self.async_readers[(offsets + size - 1) >> 4]
        if busy.any():
            at = _first(busy != 0)
            raise EmulatorError(
                f"Lane {lanes[at]} writes shared memory at byte {offsets[at]}, which an issued wgmma may still read; "
                "wait for its group (wgmma.wait_group) first."
            )
        groups = np.arange(self.async_marks.shape[1])
        for rows in (offsets >> 4, (offsets + size - 1) >> 4):
            late = (self.async_marks[rows] > self.seen[warps][:, ::4]) & (groups != warps[:, None] // 4)
            if late.any():
                lane, group = np.argwhere(late)[0]
                self._race(offsets[lane], what, lanes[lane], "wgmma read", 4 * group)

    def _race(self, byte: Any, what: str, lane: Any, other_what: str, other_warp: Any) -> None:
        who = "" if lane is None else f" by lane {lane}"
        raise EmulatorError(
            f"Race on shared memory at byte {byte}: {what}{who} and {other_what} by warp {other_warp} with no barrier "
            "between."
        )
