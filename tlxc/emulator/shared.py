"""Shared memory (LDS) of one CTA, with the checks that hardware does not make.

An access must come after the last write of the same byte (and a write after its last reads), by the clocks of
`clocks.py`. Bytes that an asynchronous copy is going to write, is reading, or that are an mbarrier, are guarded until
it is over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tlxc.emulator.clocks import AGENT, AGENT_BITS, Clocks
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.memory import RANK_SHIFT, Bytes, first, indices, is_aligned
from tlxc.emulator.values import Array

_MBARRIER, _WRITTEN, _READ = 128, 64, 63  # flags, and the count of copies that read the byte
_BUSY = {
    _MBARRIER: "which is part of an mbarrier; mbarrier.inval ends its life",
    _WRITTEN: "which an asynchronous copy under way may still write; wait for its mbarrier first",
    _READ: "which a bulk copy may still read; wait for it (cp.async.bulk.wait_group.read, or its mbarrier) first",
}


@dataclass
class AsyncReads:
    """One warp group's matrix products: rows of 16 bytes that each committed group reads, oldest first. `retired`
    counts the groups that waits have retired."""

    open: list[Array] = field(default_factory=list)
    committed: deque[list[Array]] = field(default_factory=deque)
    retired: int = 0

    @property
    def serial(self) -> int:
        """The number of the group that is open."""
        return self.retired + len(self.committed)


class SharedMemory:
    """Accesses take addresses (uint64) of some lanes with their agents (warps, numbered through the cluster)."""

    def __init__(self, size: int, base: int, clocks: Clocks, rank: int, check: bool) -> None:
        padded = -(-size // 16) * 16
        self.size, self.origin, self.rank, self.check = size, base + (rank << RANK_SHIFT), rank, check
        self.clocks = clocks
        self.bytes = Bytes(np.zeros(padded, np.uint8))
        self.writer = Bytes(np.zeros(padded, np.int32))
        self.readers = Bytes(np.zeros((padded, clocks.warps), np.int32))
        self.atomics: Bytes | None = None
        self.copy_reads: Bytes | None = None
        self.guard = Bytes(np.zeros(padded, np.uint8))
        self.guards = 0
        self.async_readers = np.zeros(padded // 16, np.int32)
        self.async_queues: dict[int, AsyncReads] = {}
        self.async_marks = np.zeros((padded // 16, clocks.warps), np.int32)

    # -- accesses of lanes
    def load(self, addresses: Array, size: int, lanes: Array, warps: Array) -> Array:
        offsets, aligned = self._offsets(addresses, size, lanes, "read")
        if self.guards:
            self._check_guard(offsets, size, aligned, lanes, "reads", _MBARRIER | _WRITTEN)
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
        if self.guards:
            self._check_guard(offsets, size, aligned, lanes, "writes", 255)
        if self.check:
            self._check_write(offsets, size, aligned, lanes, warps, atomic)
        self.bytes.scatter(offsets, size, aligned, rows)

    def _check_write(self, offsets: Array, size: int, aligned: bool, lanes: Array, warps: Array, atomic: bool) -> None:
        what = "atomic access" if atomic else "write"
        self._check_marks(self.readers, "read", offsets, size, aligned, lanes, warps, what)
        if self.async_queues:
            self._check_async_reads(offsets, size, lanes, warps, what)
        if self.copy_reads is not None:
            read = self.copy_reads.gather(offsets, size, aligned)
            self._check_order(read, offsets, lanes, warps, what, "bulk copy's read")
        if atomic:
            if self.atomics is None:
                self.atomics = Bytes(np.zeros_like(self.readers.data))
            self._mark(self.atomics, offsets, size, aligned, warps)
            return
        self._check_order(self.writer.gather(offsets, size, aligned), offsets, lanes, warps, what)
        self._check_marks(self.atomics, "atomic access", offsets, size, aligned, lanes, warps, what)
        codes = self.clocks.codes(warps)[:, None]
        self.writer.scatter(offsets, size, aligned, codes)
        lost = self.writer.gather(offsets, size, aligned) != codes
        if lost.any():  # two warps write one byte in the same instruction
            lane, byte = np.argwhere(lost)[0]
            other = self.writer.data[offsets[lane] + byte] & AGENT
            self._race(offsets[lane] + byte, what, lanes[lane], "write", other)

    # -- matrix products
    def load_async(self, addresses: Array, warps: Array) -> Array:
        """16-byte rows read by a warp group's tensor-core operation, through the asynchronous proxy."""
        lanes = np.full(len(addresses), warps[0])
        offsets, aligned = self._offsets(addresses, 16, lanes, "asynchronous read")
        rows = self.bytes.gather(offsets, 16, aligned)
        if self.guards:
            self._check_guard(offsets, 16, aligned, None, "reads", _MBARRIER | _WRITTEN)
        if not self.check:
            return rows
        written = self.writer.gather(offsets, 16, aligned)
        self._check_written(written, offsets, None)
        self._check_async(written, offsets[:, None] + np.arange(16), warps, "wgmma read", visible=True)
        rows_read = np.unique(offsets >> 4)
        self.async_readers[rows_read] += 1
        self.queue(int(warps[0])).open.append(rows_read)
        return rows

    def queue(self, group: int) -> AsyncReads:
        """The products of a warp group, which is named by its first warp."""
        return self.async_queues.setdefault(group, AsyncReads())

    def commit_async(self, group: int) -> None:
        queue = self.queue(group)
        queue.committed.append(queue.open)
        queue.open = []

    def wait_async(self, group: int, pending: int) -> None:
        """The reads that the wait retires are over for all four warps of the group; others have to be told by one of
        them before they write there."""
        queue = self.queue(group)
        warps = np.arange(group, group + 4)
        while len(queue.committed) > pending:
            queue.retired += 1
            for rows in queue.committed.popleft():
                self.async_readers[rows] -= 1
                self.async_marks[rows, group : group + 4] = self.clocks.clock[warps]

    # -- copies of contiguous bytes by an asynchronous agent
    def span(self, address: int, size: int, what: str) -> slice:
        offset = address - self.origin
        if offset < 0 or offset + size > self.size:
            raise EmulatorError(
                f"Out-of-bounds {what}: byte offset {offset} of shared memory, {size} bytes, of {self.size} bytes."
            )
        return slice(offset, offset + size)

    def begin_write(self, span: slice, warp: int, visible: bool = True) -> None:
        """`warp` issues a copy that will write there: it must have seen all that was done there before. `visible`: its
        earlier writes must have been fenced."""
        self._check_span(span, "writes", 255)
        if self.check:
            warps = np.array([warp])
            offsets, seen = np.arange(span.start, span.stop), self.clocks.seen[warp]
            self._check_async(self.writer.data[span], offsets, warps, "copy's write", visible)
            if self.copy_reads is not None:
                self._check_async(self.copy_reads.data[span], offsets, warps, "copy's write", False, "bulk copy's read")
            late = self.readers.data[span] > seen[: self.clocks.warps]
            if late.any():
                byte, other = np.argwhere(late)[0]
                self._race(span.start + byte, "copy's write", None, "read", other)
            if self.async_queues:
                rows = np.array([*range(span.start, span.stop, 16), span.stop - 1])
                self._check_async_reads(rows, 1, np.full(len(rows), -1), np.full(len(rows), warp), "write")
        self.guard.data[span] |= _WRITTEN
        self.guards += 1

    def end_write(self, span: slice, data: Array, agent: int) -> None:
        self.guard.data[span] &= 255 - _WRITTEN
        self.guards -= 1
        self.bytes.data[span] = data
        if self.check:
            self.writer.data[span] = self.clocks.code(agent)

    def begin_read(self, span: slice, warp: int) -> None:
        """`warp` issues a copy that reads there, through the asynchronous proxy."""
        self._check_span(span, "reads", _MBARRIER | _WRITTEN)
        if self.check:
            written, offsets = self.writer.data[span], np.arange(span.start, span.stop)
            self._check_written(written, offsets, None)
            self._check_async(written, offsets, np.array([warp]), "bulk copy's read", visible=True)
        if ((self.guard.data[span] & _READ) == _READ).any():
            raise EmulatorError(f"More than {_READ} bulk copies read one byte of shared memory at a time.")
        self.guard.data[span] += 1
        self.guards += 1

    def end_read(self, span: slice) -> None:
        self.guard.data[span] -= 1
        self.guards -= 1

    def mark_read(self, span: slice, agent: int) -> None:
        """The read is over for `agent`: a warp that waited for it, or the mbarrier that tells of it."""
        if not self.check:
            return
        if agent < self.clocks.warps:
            self.readers.data[span, agent] = self.clocks.clock[agent]
            return
        if self.copy_reads is None:
            self.copy_reads = Bytes(np.zeros_like(self.writer.data))
        self.copy_reads.data[span] = self.clocks.code(agent)

    # -- mbarriers are kept elsewhere; their bytes are not to be touched
    def place_mbarrier(self, offset: int, warp: int) -> None:
        lanes = np.array([-1])
        offsets = np.array([offset])
        self._check_guard(offsets, 8, True, None, "writes", 255)
        if self.check:
            self._check_write(offsets, 8, True, lanes, np.array([warp]), False)
        self.guard.data[offset : offset + 8] = _MBARRIER
        self.guards += 1

    def remove_mbarrier(self, offset: int, warp: int) -> None:
        self.guard.data[offset : offset + 8] = 0
        self.guards -= 1
        if self.check:
            self._check_write(np.array([offset]), 8, True, np.array([-1]), np.array([warp]), False)
            self.writer.data[offset : offset + 8] = self.clocks.code(warp)

    # -- checks
    def _offsets(self, addresses: Array, size: int, lanes: Array, what: str) -> tuple[Array, bool]:
        offsets = addresses.astype(np.int64) - self.origin
        outside = (offsets < 0) | (offsets + size > self.size)
        if outside.any():
            at = first(outside)
            other = (int(addresses[at]) >> RANK_SHIFT) != self.rank
            raise EmulatorError(
                f"Out-of-bounds {what} of shared memory by lane {lanes[at]}: byte offset {offsets[at]}, {size} bytes, "
                f"of {self.size} bytes."
                + (f" The address belongs to CTA {int(addresses[at]) >> RANK_SHIFT} of a cluster." if other else "")
            )
        return offsets, is_aligned(offsets, size)

    def _check_guard(
        self, offsets: Array, size: int, aligned: bool, lanes: Array | None, verb: str, flags: int
    ) -> None:
        found = self.guard.gather(offsets, size, aligned) & np.uint8(flags)
        if found.any():
            lane, byte = np.argwhere(found)[0]
            self._guarded(offsets[lane] + byte, f"Lane {lanes[lane]}" if lanes is not None else "", verb)

    def _check_span(self, span: slice, verb: str, flags: int) -> None:
        found = self.guard.data[span] & np.uint8(flags)
        if self.guards and found.any():
            self._guarded(span.start + first(found != 0), "A copy", verb)

    def _guarded(self, byte: int, who: str, verb: str) -> None:
        state = int(self.guard.data[byte])
        reason = next(_BUSY[flag] for flag in (_MBARRIER, _WRITTEN, _READ) if state & flag)
        raise EmulatorError(f"{who or 'A matrix operation'} {verb} shared memory at byte {byte}, {reason}.")

    def _check_written(self, written: Array, offsets: Array, lanes: Array | None) -> None:
        missing = written == 0
        if missing.any():
            at = np.argwhere(missing)[0]
            byte = int(offsets[at[0]]) + (int(at[1]) if len(at) > 1 else 0)
            who = "An asynchronous operation" if lanes is None else f"Lane {lanes[at[0]]}"
            raise EmulatorError(f"{who} reads shared memory that nobody wrote, at byte {byte}.")

    def _check_order(
        self, written: Array, offsets: Array, lanes: Array, warps: Array, what: str, other: str = "write"
    ) -> None:
        """Against the last plain write (or another access that left one code) of each byte."""
        others = written & AGENT
        late = (written >> AGENT_BITS) > self.clocks.seen[warps[:, None], others]
        if late.any():
            lane, byte = np.argwhere(late)[0]
            self._race(offsets[lane] + byte, what, lanes[lane], other, others[lane, byte])

    def _check_async(
        self, written: Array, offsets: Array, warps: Array, what: str, visible: bool, other: str = "write"
    ) -> None:
        """The writes `written` (codes, at `offsets`) come before what `warps` issue together, and are fenced."""
        agent, clock = written & AGENT, written >> AGENT_BITS
        late = clock > self.clocks.seen[warps].min(axis=0)[agent]
        if late.any():
            at = first(late.reshape(-1))
            self._race(offsets.reshape(-1)[at], what, None, other, agent.reshape(-1)[at])
        if not visible:
            return
        hidden = clock > self.clocks.visible(warps)[agent]
        if hidden.any():
            at = first(hidden.reshape(-1))
            raise EmulatorError(
                f"A {what} of shared memory at byte {offsets.reshape(-1)[at]}, which warp "
                f"{agent.reshape(-1)[at]} wrote "
                "with ordinary stores, and no fence.proxy.async stands between."
            )

    def _mark(self, shadow: Bytes, offsets: Array, size: int, aligned: bool, warps: Array) -> None:
        """Notes each warp's clock beside the bytes it accesses."""
        clocks = self.clocks.clock[warps][:, None]
        if aligned:
            shadow.view(size)[offsets // size, :, warps] = clocks
        else:
            shadow.data[indices(offsets, size), warps[:, None]] = clocks

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
        late = shadow.gather(offsets, size, aligned) > self.clocks.seen[warps, None, : self.clocks.warps]
        if late.any():
            lane, byte, other = np.argwhere(late)[0]
            self._race(offsets[lane] + byte, what, lanes[lane], other_what, other)

    def _check_async_reads(self, offsets: Array, size: int, lanes: Array, warps: Array, what: str) -> None:
        """No matrix product that reads these bytes may be under way, or retired by another warp group that has not told
        this one since."""
        busy = self.async_readers[offsets >> 4] | self.async_readers[(offsets + size - 1) >> 4]
        if busy.any():
            at = first(busy != 0)
            raise EmulatorError(
                f"{_who(lanes[at])} writes shared memory at byte {offsets[at]}, which an issued wgmma may still read; "
                "wait for its group (wgmma.wait_group) first."
            )
        count = self.clocks.warps // 4 * 4
        groups = np.arange(count // 4)
        seen = self.clocks.seen[warps, :count]
        for rows in (offsets >> 4, (offsets + size - 1) >> 4):
            late = (self.async_marks[rows, :count] > seen).reshape(len(rows), -1, 4).all(axis=2)
            late &= groups != warps[:, None] // 4
            if late.any():
                lane, group = np.argwhere(late)[0]
                self._race(offsets[lane], what, lanes[lane], "wgmma read", 4 * group)

    def _race(self, byte: Any, what: str, lane: Any, other_what: str, other: Any) -> None:
        by = "" if lane is None else " by a copy" if lane < 0 else f" by lane {lane}"
        agent = f"warp {other}" if other < self.clocks.warps else "a copy that an mbarrier counts"
        between = "no barrier" if other < self.clocks.warps else "no wait for it"
        raise EmulatorError(
            f"Race on shared memory at byte {byte}: {what}{by} and {other_what} by {agent} with {between} between."
        )


def _who(lane: int) -> str:
    return "A copy" if lane < 0 else f"Lane {lane}"
