"""Asynchronous bulk copies: by tensor map or of contiguous bytes, between global memory and the cluster's shared ones.

A copy is issued by one lane, checked then, and lands at a later step of the schedule. Copies to shared memory are
counted by an mbarrier in the same CTA; copies from it to global memory belong to the issuing lane's bulk groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tlxc.emulator import mbarrier
from tlxc.emulator.cluster import Copy
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta
from tlxc.emulator.memory import RANK_SHIFT
from tlxc.emulator.tensormap import TensorMap, reduce
from tlxc.emulator.values import Array

_BLOCK_ALIGN, _BULK_ALIGN = 128, 16


# -- to shared memory
def _write(cta: Cta, lane: int, address: int, barrier: int, size: int, source: Callable[[], Array], what: str) -> None:
    """Issues the copy of `size` bytes to a shared::cluster address, counted by the mbarrier at `barrier`."""
    counter = mbarrier.find(cta, barrier, lane)
    rank = address >> RANK_SHIFT
    if barrier >> RANK_SHIFT != rank:
        raise EmulatorError(f"{what} writes to CTA {rank} and signals {counter.name}; both must be in one CTA.")
    target = cta if rank == cta.rank else cta.cluster.peer(rank)
    span = target.shared.span(address, size, what)
    target.shared.begin_write(span, int(cta.agents[lane]))

    def land() -> None:
        target.shared.end_write(span, source(), counter.agent)
        mbarrier.complete(target, counter, size)

    cta.cluster.under_way.append(Copy(land, rank, what))


def _destinations(cta: Cta, address: int, barrier: int, mask: int | None) -> list[tuple[int, int]]:
    """(address, mbarrier) in every CTA of the multicast mask: the same offsets."""
    if mask is None:
        return [(address, barrier)]
    if mask >> cta.cluster.size or not mask:
        raise EmulatorError(f"The multicast mask is {mask:#x} in a cluster of {cta.cluster.size} CTAs.")
    low = (1 << RANK_SHIFT) - 1
    ranks = [rank for rank in range(cta.cluster.size) if mask >> rank & 1]
    return [(rank << RANK_SHIFT | address & low, rank << RANK_SHIFT | barrier & low) for rank in ranks]


def load_block(
    cta: Cta, lane: int, address: int, map_: TensorMap, start: Sequence[int], barrier: int, mask: int | None
) -> None:
    """cp.async.bulk.tensor from global memory, to the CTAs of `mask`."""
    _aligned(address, _BLOCK_ALIGN, "cp.async.bulk.tensor")
    _check_start(map_, start)
    for to, counter in _destinations(cta, address, barrier, mask):
        at = to & ((1 << RANK_SHIFT) - 1)

        def source(at: int = at) -> Array:
            map_.under_way -= 1
            return map_.image(map_.read(start), at)

        map_.under_way += 1
        _write(cta, lane, to, counter, map_.bytes, source, f"A load of the block at {tuple(start)}")


def load_bytes(cta: Cta, lane: int, address: int, pointer: int, size: int, barrier: int, mask: int | None) -> None:
    """cp.async.bulk of contiguous bytes from global memory."""
    for value in (address, pointer, size):
        _aligned(value, _BULK_ALIGN, "cp.async.bulk")
    for to, counter in _destinations(cta, address, barrier, mask):
        _write(cta, lane, to, counter, size, lambda: _global_bytes(cta, pointer, size, lane), "A bulk load")


def _global_bytes(cta: Cta, pointer: int, size: int, lane: int) -> Array:
    addresses = np.arange(pointer, pointer + size, 16, dtype=np.uint64)
    return cta.global_memory.load(addresses, 16, np.full(len(addresses), lane)).reshape(-1)


def send_bytes(cta: Cta, lane: int, address: int, source: int, size: int, barrier: int) -> None:
    """cp.async.bulk from this CTA's shared memory to another one's; the mbarrier tells that it has been read, too."""
    for value in (address, source, size):
        _aligned(value, _BULK_ALIGN, "cp.async.bulk")
    span = cta.shared.span(source, size, "the source of a bulk copy")
    counter = mbarrier.find(cta, barrier, lane)
    cta.shared.begin_read(span, int(cta.agents[lane]))

    def read() -> Array:
        cta.shared.end_read(span)
        cta.shared.mark_read(span, counter.agent)
        return cta.shared.bytes.data[span].copy()

    _write(cta, lane, address, barrier, size, read, "A bulk copy")


def send_value(cta: Cta, lane: int, address: int, data: Array, barrier: int) -> None:
    """st.async: the bytes of a register go to another CTA, through the generic proxy."""
    counter, rank = mbarrier.find(cta, barrier, lane), address >> RANK_SHIFT
    if barrier >> RANK_SHIFT != rank:
        raise EmulatorError(f"st.async writes to CTA {rank} and signals {counter.name}; both must be in one CTA.")
    target = cta if rank == cta.rank else cta.cluster.peer(rank)
    _aligned(address, len(data), "st.async")
    span = target.shared.span(address, len(data), "st.async")
    target.shared.begin_write(span, int(cta.agents[lane]), visible=False)

    def land() -> None:
        target.shared.end_write(span, data, counter.agent)
        mbarrier.complete(target, counter, len(data))

    cta.cluster.under_way.append(Copy(land, rank, "st.async"))


# -- to global memory: groups of one lane
@dataclass(eq=False)
class _Store:
    """A copy from shared to global memory: `take` reads the source, `put` writes what was read."""

    span: slice
    put: Callable[[Array], None]
    data: Array | None = None


@dataclass
class BulkGroups:
    """The bulk groups of one lane, oldest first, that have not written."""

    open: list[_Store] = field(default_factory=list)
    committed: deque[list[_Store]] = field(default_factory=deque)

    def finish(self) -> None:
        """At the end of a CTA: the sources must have been read; what is left to write arrives by the kernel's end."""
        for stores in [*self.committed, self.open]:
            for store in stores:
                if store.data is None:
                    raise EmulatorError(
                        "The CTA ends while a bulk copy still reads its shared memory; wait for it with "
                        "cp.async.bulk.wait_group.read 0."
                    )
                _put(store)


def store_block(cta: Cta, lane: int, map_: TensorMap, start: Sequence[int], address: int, reduction: str) -> None:
    """cp.async.bulk.tensor or cp.reduce.async.bulk.tensor to global memory."""
    _aligned(address, _BLOCK_ALIGN, "cp.async.bulk.tensor")
    _check_start(map_, start)
    if min(start) < 0:
        raise EmulatorError(f"A store of the block at {tuple(start)}: it may end beyond its tensor, not begin before.")
    at = address & ((1 << RANK_SHIFT) - 1)

    def put(data: Array) -> None:
        map_.under_way -= 1
        map_.write(start, map_.block(data, at), reduction)

    map_.under_way += 1
    _store(cta, lane, address, map_.bytes, put)


def store_bytes(
    cta: Cta, lane: int, pointer: int, address: int, size: int, reduction: str, dtype: np.dtype[np.generic] | None
) -> None:
    """cp.async.bulk or cp.reduce.async.bulk of contiguous bytes to global memory."""
    for value in (address, pointer, size):
        _aligned(value, _BULK_ALIGN, "cp.async.bulk")

    def put(data: Array) -> None:
        if reduction and dtype is not None:
            old = _global_bytes(cta, pointer, size, lane)
            data = reduce(reduction, old.view(dtype), data.view(dtype)).view(np.uint8)
        addresses = np.arange(pointer, pointer + size, 16, dtype=np.uint64)
        cta.global_memory.store(addresses, data.reshape(-1, 16), np.full(len(addresses), lane))

    _store(cta, lane, address, size, put)


def _store(cta: Cta, lane: int, address: int, size: int, put: Callable[[Array], None]) -> None:
    span = cta.shared.span(address, size, "the source of a bulk copy")
    cta.shared.begin_read(span, int(cta.agents[lane]))
    cta.groups.setdefault(lane, BulkGroups()).open.append(_Store(span, put))


def commit(cta: Cta, lane: int) -> None:
    groups = cta.groups.setdefault(lane, BulkGroups())
    groups.committed.append(groups.open)
    groups.open = []


def wait(cta: Cta, lane: int, keep: int, read: bool) -> None:
    """Lets all but the newest `keep` groups read their sources and, unless only that is asked for, write."""
    groups = cta.groups.setdefault(lane, BulkGroups())
    for stores in list(groups.committed)[: max(0, len(groups.committed) - keep)]:
        for store in stores:
            _read_source(cta, lane, store)
            if not read:
                _put(store)
        if not read:
            groups.committed.popleft()


def _read_source(cta: Cta, lane: int, store: _Store) -> None:
    if store.data is None:
        store.data = cta.shared.bytes.data[store.span].copy()
        cta.shared.end_read(store.span)
        cta.shared.mark_read(store.span, int(cta.agents[lane]))


def _put(store: _Store) -> None:
    assert store.data is not None
    store.put(store.data)


# -- checks
def _aligned(value: int, align: int, what: str) -> None:
    if value % align:
        raise EmulatorError(f"{what}: {value:#x} is not a multiple of {align} bytes.")


def _check_start(map_: TensorMap, start: Sequence[int]) -> None:
    if len(start) != len(map_.shape):
        raise EmulatorError(f"{len(start)} coordinates are given for a tensor map of {len(map_.shape)} dimensions.")
    if start[0] * map_.dtype.itemsize % 16:  # an illegal instruction on an H200
        raise EmulatorError(
            f"A copy of the block at {tuple(start)}: its innermost coordinate is no multiple of 16 bytes, that is of "
            f"{16 // map_.dtype.itemsize} elements."
        )
