"""Global memory by pointers: loads, stores, atomics, with bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.ir.core import Op
from tlxc.ir.types import Pointer, element_of

from .. import checks
from ..clocks import Clock
from ..global_memory import Allocation, Elements
from ..memory import Array
from ..program import Step
from ..reports import at, fail
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


def touched(strand: Strand, op: Op, addresses: Array, dtype: np.dtype[Any], write: bool) -> list[Touched]:
    """The allocations behind addresses (flat, not empty), each with its elements; all in bounds and aligned."""
    size, memory = dtype.itemsize, strand.machine.memory
    low, high = int(addresses.min()), int(addresses.max()) + size
    if (addresses % size).any():
        bad = int(addresses[addresses % size != 0][0])
        raise fail(
            "misaligned",
            f"{at(op)} by {strand.name} accesses {size} bytes at address {bad:#x}, no multiple of {size}",
            op,
        )
    found = memory.find(low, high)
    if found is None:
        return _several(strand, op, addresses, dtype, write)
    if write:
        _writeable(strand, op, found)
    return [Touched(found, addresses - found.origin, dtype)]


def _several(strand: Strand, op: Op, addresses: Array, dtype: np.dtype[Any], write: bool) -> list[Touched]:
    """Addresses in several arrays, or outside of all."""
    out, memory = [], strand.machine.memory
    inside = np.zeros(len(addresses), np.bool_)
    for allocation in memory.allocations:
        mine = (addresses >= allocation.start) & (addresses + dtype.itemsize <= allocation.stop)
        if mine.any():
            if write:
                _writeable(strand, op, allocation)
            out.append(Touched(allocation, addresses[mine] - allocation.origin, dtype))
            inside |= mine
    if inside.all():
        raise fail("out-of-bounds", f"{at(op)} by {strand.name} accesses several arrays with one tile of addresses", op)
    raise out_of_bounds(strand, op, int(addresses[~inside][0]), dtype.itemsize, int((~inside).sum()))


def out_of_bounds(strand: Strand, op: Op, address: int, size: int, count: int) -> Exception:
    near = strand.machine.memory.nearest(address)
    where = ""
    if near is not None:
        index = (address - near.start) // near.granule
        where = f": element {index} of {near.name}, which has {(near.stop - near.start) // near.granule}"
    more = f" and {count - 1} more" if count > 1 else ""
    return fail("out-of-bounds", f"{at(op)} by {strand.name} accesses {size} bytes at {address:#x}{more}{where}", op)


def _writeable(strand: Strand, op: Op, allocation: Allocation) -> None:
    for extent in allocation.extents:
        if not extent.writeable:
            raise fail("read-only", f"{at(op)} by {strand.name} writes {extent.name}, a read-only array", op)


def load(strand: Strand, step: Step, pointers: Any, mask: Any, other: Any) -> Any:
    op = step.op
    dtype = pointee(op)
    addresses = np.asarray(pointers).reshape(-1)
    wanted = None if mask is None else np.broadcast_to(mask, np.shape(pointers)).reshape(-1)
    if wanted is not None and not wanted.all():
        out = np.zeros(addresses.shape, dtype)
        if other is not None:
            out[...] = np.broadcast_to(other, np.shape(pointers)).reshape(-1)
        addresses = addresses[wanted]
        if addresses.size:
            out[wanted] = _load(strand, op, addresses, dtype)
    else:
        out = _load(strand, op, addresses, dtype)
    out = out.reshape(np.shape(pointers))
    return out[()] if out.ndim == 0 else out


def _load(strand: Strand, op: Op, addresses: Array, dtype: np.dtype[Any]) -> Array:
    (what,) = touched(strand, op, addresses, dtype, write=False)
    checks.global_access(strand, what.allocation, what.granules, op, strand.clock, write=False)
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
    (what,) = touched(strand, op, addresses, dtype, write=True)
    checks.global_access(strand, what.allocation, what.granules, op, strand.clock, write=True)
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
        (what,) = touched(strand, op, chosen, dtype, write=True)
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
    release gives what happened before, relaxed what a fence covered."""
    sem, cells, size = op.attrs["sem"], strand.machine.cells, strand.machine.size
    acquires, releases = sem in ("acquire", "acq_rel"), sem in ("release", "acq_rel")
    given: Clock | None = None
    if releases:
        given = strand.clock.copy()
        given.g[2] = given.g[0]
        strand.released.append((strand.epoch, at(op)))
    elif strand.fenced is not None:
        given = strand.fenced
    taken = False
    for address in set(addresses.tolist()):
        cell = cells.get(address)
        if cell is not None:
            taken = True
            if acquires:
                strand.clock.merge(cell)
            else:
                if strand.seen is None:
                    strand.seen = Clock.zero(size)
                strand.seen.merge(cell)
        if given is not None:
            if cell is None:
                cell = cells[address] = Clock.zero(size)
            cell.merge(given)
    if taken and acquires:
        strand.acquired.append(at(op))


EFFECTS = {"load": load, "store": store, "atomic_rmw": atomic_rmw}
