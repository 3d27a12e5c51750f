"""Global memory by pointers: loads, stores, atomics, with bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.ir.core import Op
from tlxc.ir.types import Pointer, element_of

from .. import checks
from ..cells import NARROW, Cell
from ..clocks import CLUSTER, Clock
from ..global_memory import Allocation, Elements, Extent
from ..memory import Array
from ..program import Step
from ..reports import SimulationError, at, fail
from ..values import storage

if TYPE_CHECKING:
    from ..machine import Strand


def pointee(op: Op) -> np.dtype[Any]:
    """The dtype behind the pointers of the first operand."""
    p = element_of(op.inputs[0].type)
    assert isinstance(p, Pointer)
    return storage(p.dtype)


class Touched:
    """Elements of an allocation that an op touches: `index` counts elements, `granules` what the shadow counts."""

    __slots__ = ("allocation", "index", "granules", "data")

    def __init__(self, allocation: Allocation, offsets: Array, dtype: np.dtype[Any]) -> None:
        self.allocation = allocation
        self.index = offsets // dtype.itemsize
        self.data = allocation.view(dtype)
        granule = allocation.granule
        if granule == dtype.itemsize:
            self.granules = Elements(self.index)
        else:
            first = offsets // granule
            parts = max(1, dtype.itemsize // granule)
            self.granules = Elements((first[:, None] + np.arange(parts)).reshape(-1))

    def holds(self, values: Array) -> Array:
        """Which granules hold these values already, bit for bit."""
        equal = _rows(self.data[self.index]) == _rows(values.astype(self.data.dtype))
        return np.repeat(equal.all(1), self.granules.index.size // max(1, len(values)))


def _rows(values: Array) -> Array:
    """The bytes of each value."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)


def touched(strand: Strand, step: Step, addresses: Array, dtype: np.dtype[Any], write: bool) -> Touched:
    """The elements behind addresses (flat, not empty), in bounds and aligned."""
    op, size, memory = step.op, dtype.itemsize, strand.machine.memory
    if (addresses % size).any():
        bad = int(addresses[addresses % size != 0][0])
        raise fail(
            "misaligned",
            f"{at(op)} by {strand.name} accesses {size} bytes at address {bad:#x}, no multiple of {size}",
            op,
        )
    behind = [memory.named[name] for name in sorted(step.data) if name in memory.named]
    if len(behind) == 1:
        allocation, extent = behind[0]
        if int(addresses.min()) < extent.start or int(addresses.max()) + size > extent.start + extent.size:
            raise _beyond(strand, op, addresses, extent, size)
        if write:
            _writeable(strand, op, allocation)
        return Touched(allocation, addresses - allocation.origin, dtype)
    found = memory.find(int(addresses.min()), int(addresses.max()) + size)
    if found is None:
        what = " and ".join(sorted(step.data)) or "any array"
        raise fail("out-of-bounds", f"{at(op)} by {strand.name} accesses addresses that are not all in {what}", op)
    if write:
        _writeable(strand, op, found)
    return Touched(found, addresses - found.origin, dtype)


def _beyond(strand: Strand, op: Op, addresses: Array, extent: Extent, size: int) -> SimulationError:
    """The first address outside of an array, as an element of it."""
    outside = addresses[(addresses < extent.start) | (addresses + size > extent.start + extent.size)]
    index, count = (int(outside[0]) - extent.start) // size, extent.size // size
    more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
    return fail(
        "out-of-bounds",
        f"{at(op)} by {strand.name} accesses element {index}{more} of {extent.name}, which has {count}: {size} bytes "
        f"at {int(outside[0]):#x}",
        op,
    )


def _writeable(strand: Strand, op: Op, allocation: Allocation) -> None:
    for extent in allocation.extents:
        if not extent.writeable:
            raise fail("read-only", f"{at(op)} by {strand.name} writes {extent.name}, a read-only array", op)


def load(strand: Strand, step: Step, pointers: Any, mask: Any, other: Any) -> Any:
    dtype = pointee(step.op)
    addresses = np.asarray(pointers).reshape(-1)
    wanted = None if mask is None else np.broadcast_to(mask, np.shape(pointers)).reshape(-1)
    if wanted is not None and not wanted.all():
        out = np.zeros(addresses.shape, dtype)
        if other is not None:
            out[...] = np.broadcast_to(other, np.shape(pointers)).reshape(-1)
        addresses = addresses[wanted]
        if addresses.size:
            out[wanted] = _load(strand, step, addresses, dtype)
    else:
        out = _load(strand, step, addresses, dtype)
    out = out.reshape(np.shape(pointers))
    return out[()] if out.ndim == 0 else out


def _load(strand: Strand, step: Step, addresses: Array, dtype: np.dtype[Any]) -> Array:
    what = touched(strand, step, addresses, dtype, write=False)
    checks.global_access(strand, what.allocation, what.granules, step.op, strand.clock, write=False)
    if dtype == np.bool_:  # any byte but 0 is true
        return what.data.view(np.uint8)[what.index] != 0
    return what.data[what.index]


def store(strand: Strand, step: Step, pointers: Any, value: Any, mask: Any) -> None:
    op = step.op
    dtype = pointee(op)
    addresses = np.asarray(pointers).reshape(-1)
    values = np.broadcast_to(value, np.shape(pointers)).reshape(-1)
    if mask is not None:
        wanted = np.broadcast_to(mask, np.shape(pointers)).reshape(-1)
        addresses, values = addresses[wanted], values[wanted]
    if not addresses.size:
        return
    what = touched(strand, step, addresses, dtype, write=True)
    checks.global_access(
        strand, what.allocation, what.granules, op, strand.clock, write=True, agrees=lambda: what.holds(values)
    )
    what.data[what.index] = values


def atomic_rmw(strand: Strand, step: Step, pointers: Any, value: Any, mask: Any) -> Any:
    """Adds element after element; gives the old values, 0 where masked."""
    op = step.op
    dtype = pointee(op)
    shape = np.shape(pointers)
    addresses = np.asarray(pointers).reshape(-1)
    values = np.broadcast_to(value, shape).reshape(-1)
    wanted = np.ones(len(addresses), np.bool_) if mask is None else np.broadcast_to(mask, shape).reshape(-1)
    old = np.zeros(len(addresses), dtype)
    if wanted.any():
        chosen = addresses[wanted]
        what = touched(strand, step, chosen, dtype, write=True)
        synchronise(strand, op, chosen)
        checks.global_access(strand, what.allocation, what.granules, op, strand.clock, True, atomic=True)
        old[wanted] = _add(what.data, what.index, values[wanted])
    old = old.reshape(shape)
    return old[()] if old.ndim == 0 else old


def _add(data: Array, index: Array, values: Array) -> Array:
    if len(np.unique(index)) == len(index):
        old = data[index]
        data[index] = old + values
        return old
    old = np.empty(len(index), data.dtype)
    for i, (where, value) in enumerate(zip(index.tolist(), values)):
        old[i] = data[where]
        data[where] = data[where] + value
    return old


def synchronise(strand: Strand, op: Op, addresses: Array) -> None:
    """What an atomic hands over through each word: acquire takes what was released there, relaxed keeps it for a fence;
    release gives what happened before, relaxed what a fence covered.  A release at CTA scope is none for others."""
    sem, scope, cta = op.attrs["sem"], op.attrs["scope"], strand.cta.number
    acquires = sem in ("acquire", "acq_rel")
    given: Clock | None = None
    if sem in ("release", "acq_rel"):
        given = strand.clock.copy()
        if scope != NARROW:
            given.cover(CLUSTER)
        strand.released.append((strand.epoch, at(op)))
    elif strand.fenced is not None:
        given = strand.fenced
    taken = False
    for address in set(addresses.tolist()):
        cell = strand.machine.cells.get(address)
        if cell is None:
            cell = strand.machine.cells[address] = Cell()
        for clock in cell.acquired(cta, scope):
            taken = True
            if acquires:
                strand.clock.merge(clock)
            else:
                if strand.seen is None:
                    strand.seen = Clock.zero(strand.machine.size)
                strand.seen.merge(clock)
        if given is not None:
            cell.release(cta, scope, given)
    if taken and acquires:
        strand.acquired.append(at(op))


EFFECTS = {"load": load, "store": store, "atomic_rmw": atomic_rmw}
