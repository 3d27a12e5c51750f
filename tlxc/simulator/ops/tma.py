"""TMA copies of blocks by descriptor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.ir.core import Op
from tlxc.ir.types import Descriptor as DescriptorType

from .. import checks
from ..agents import AsyncOp
from ..barriers import BarrierPlace
from ..clocks import Clock
from ..global_memory import Allocation, Block
from ..memory import Array, Footprint, Place, Scattered
from ..program import Step
from ..reports import at, fail
from ..values import storage
from .barrier import barrier_at, begin, deliver, holds, number
from .buffer import must_be_known

if TYPE_CHECKING:
    from ..machine import Cta, Strand

_CHUNK = 16  # bytes; TMA wants whole ones at the innermost offset


@dataclass(frozen=True)
class Descriptor:
    """A tensor map: `shape` and `strides` in elements, in the order of the array.  `padding`: zero or nan.  `slot`:
    place of one that the kernel made, in its CTA's part of the workspace."""

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str = "zero"
    slot: int | None = None


class Box:
    """A block at offsets: `inside` cuts the part of the array out of it, `data` is that part in global memory."""

    __slots__ = ("allocation", "where", "inside", "data", "shape")

    def __init__(
        self, desc: Descriptor, allocation: Allocation, block: tuple[int, ...], offsets: list[int], dtype: Any
    ):
        self.allocation, self.shape = allocation, block
        low = [min(max(o, 0), n) for o, n in zip(offsets, desc.shape)]
        high = [max(min(o + b, n), at_) for o, b, n, at_ in zip(offsets, block, desc.shape, low)]
        self.inside = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, offsets))
        part = tuple(b - a for a, b in zip(low, high))
        first = (desc.address - allocation.origin) // dtype.itemsize + sum(a * s for a, s in zip(low, desc.strides))
        per = dtype.itemsize // allocation.granule
        self.where = Block(first * per, (*part[:-1], part[-1] * per), tuple(s * per for s in desc.strides[:-1]) + (1,))
        strides = [s * dtype.itemsize for s in desc.strides]
        self.data: Array = (
            np.ndarray(part, dtype, allocation.bytes.data, first * dtype.itemsize, strides)
            if all(part)
            else np.zeros(part, dtype)
        )

    @property
    def empty(self) -> bool:
        return not self.data.size


def box(strand: Strand, op: Op, desc: Descriptor, offsets: tuple[Any, ...], store: bool) -> Box:
    """Checks what the hardware refuses: it stops with an illegal instruction."""
    t = op.inputs[0].type
    assert isinstance(t, DescriptorType)
    dtype = storage(t.dtype)
    where = [number(o) for o in offsets]
    if where[-1] * dtype.itemsize % _CHUNK:
        raise fail(
            "tma-offset",
            f"{at(op)} by {strand.name} has the innermost offset {where[-1]} of {desc.name}, "
            f"{where[-1] * dtype.itemsize} bytes; TMA takes multiples of {_CHUNK} bytes",
            op,
        )
    if store and min(where) < 0:
        raise fail(
            "tma-offset",
            f"{at(op)} by {strand.name} stores to {desc.name} at {where}; offsets must not be negative",
            op,
        )
    if store and desc.shape[-1] * dtype.itemsize % _CHUNK:
        raise fail(
            "out-of-bounds",
            f"{at(op)} by {strand.name} stores to {desc.name}, whose rows are {desc.shape[-1] * dtype.itemsize} bytes; "
            f"TMA writes the last {_CHUNK} bytes of a row whole, also beyond its end",
            op,
        )
    last = sum((n - 1) * s for n, s in zip(desc.shape, desc.strides)) * dtype.itemsize
    allocation = strand.machine.memory.find(desc.address, desc.address + last + dtype.itemsize)
    if allocation is None:
        raise fail("out-of-bounds", f"the descriptor {desc.name} reaches beyond its array", op)
    return Box(desc, allocation, t.shape, where, dtype)


@dataclass(frozen=True)
class Target:
    """Where a copy into shared memory goes: a buffer in each of `ctas`, whose barriers get the bytes.  `put` writes
    one; `foot`: what is written; `proxy`: by the async proxy."""

    buf: Place
    bar: BarrierPlace
    ctas: list[Cta]
    foot: Footprint | Scattered
    put: Callable[[Cta], None]
    size: int
    proxy: bool = True


def copy_into(strand: Strand, op: Op, to: Target, clock: Clock, work: AsyncOp, read: tuple[int, ...]) -> None:
    """The second half of a copy into shared memory: for each CTA the write, then the bytes at its barrier.  `read`:
    accesses that are over when the copy is."""
    machine, name = strand.machine, to.buf.name
    for cta in to.ctas:
        access = machine.number()
        work.writes.append(access)
        bar = barrier_at(cta, to.bar)
        checks.reach(strand, cta, op, clock, access)
        checks.stable(bar, clock, "a transaction", op, strand)
        checks.shared_access(strand, cta, to.buf.start, to.foot, name, op, clock, True, to.proxy, access)
        if not to.proxy:
            cta.stored |= 1 << access
        machine.live[access] = (cta, op)
        machine.vehicles[access] = f"{bar.label} phase {bar.phase}"
        work.stages.append(partial(to.put, cta))
        work.stages.append(partial(deliver, bar, to.size, (access, *read), work, clock, bar.phase, to.proxy))


def tma_load(
    strand: Strand, step: Step, desc: Descriptor, buf: Place, bar: BarrierPlace, pred: Any, mask: Any, *offsets: Any
) -> None:
    if not holds(pred):
        return
    op, machine = step.op, strand.machine
    source = box(strand, op, desc, offsets, store=False)
    clock = strand.clock.copy()
    read: tuple[int, ...] = ()
    if not source.empty:
        read = (machine.number(),)
        checks.global_access(strand, source.allocation, source.where, op, clock, False, True, read[0])
    held: list[Array] = []

    def fetch() -> None:
        dtype = source.data.dtype
        tile = np.full(source.shape, np.nan if desc.padding == "nan" else 0, dtype)
        tile[source.inside] = source.data
        held.append(tile.reshape(buf.type.shape))

    work = AsyncOp(op, strand, fetch)
    work.reads = list(read)
    size = buf.foot.elements.size * buf.foot.itemsize
    to = Target(buf, bar, _targets(strand, op, mask), buf.foot, lambda cta: cta.memory.write(buf, held[0]), size)
    copy_into(strand, op, to, clock, work, read)
    _read_map(strand, desc, op, (*read, *work.writes)[0])
    machine.submit(work)


def _read_map(strand: Strand, desc: Descriptor, op: Op, access: int) -> None:
    """The copy reads its map until it is over; a store, until it has read its source."""
    if desc.slot is not None:
        checks.slot_access(strand, desc.slot, f"the slot of {desc.name}", op, write=False, access=access)


def _targets(strand: Strand, op: Op, mask: Any) -> list[Cta]:
    cluster = strand.cta.cluster
    if mask is None:
        return [strand.cta]
    bits = number(mask)
    if not 0 < bits < 1 << len(cluster):
        raise fail(
            "bad-rank", f"{at(op)} by {strand.name} has the multicast mask {bits:#x} in a cluster of {len(cluster)}", op
        )
    return [cta for cta in cluster if bits >> cta.rank & 1]


_REDUCE: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def tma_store(strand: Strand, step: Step, desc: Descriptor, buf: Place, *offsets: Any) -> None:
    op, machine, cta = step.op, strand.machine, strand.cta
    target = box(strand, op, desc, offsets, store=True)
    clock, reduction = strand.clock.copy(), op.attrs.get("reduce", "")
    read, write = machine.number(), machine.number()
    checks.shared_access(strand, cta, buf.start, buf.foot, buf.name, op, clock, False, True, read)
    if not target.empty:
        checks.global_access(
            strand, target.allocation, target.where, op, clock, True, True, write, atomic=bool(reduction)
        )
    _read_map(strand, desc, op, read)
    held: list[Array] = []

    def fetch() -> None:
        must_be_known(strand, cta, buf.start, buf.foot, buf.name, op)
        held.append(cta.memory.read(buf).reshape(target.shape)[target.inside])

    def put() -> None:
        if reduction:
            target.data[...] = _REDUCE[reduction](target.data, held[0])
        else:
            target.data[...] = held[0]

    work = AsyncOp(op, strand, fetch, put)
    work.reads, work.writes = [read], [write]
    strand.bulk.append(work)
    machine.submit(work)


def tma_store_wait(strand: Strand, step: Step) -> Iterator[Any]:
    """Groups of bulk stores, TMA's and others."""
    if len(strand.machine.ready) > 1:
        yield None
    begin(strand)
    op = step.op
    pendings, read = op.attrs["pendings"], op.attrs["read"]
    old = strand.bulk[: max(len(strand.bulk) - pendings, 0)]
    enough = 1 if read else 2
    strand.block("engine", op, None)
    while any(work.done < enough for work in old):
        yield strand.engines
    strand.blocked = None
    for work in old:
        for access in work.reads if read else (*work.reads, *work.writes):
            strand.clock.know(access)
    if not read:
        del strand.bulk[: len(old)]
    strand.acquired.append(f"{at(op)} ({pendings})")


EFFECTS = {"tma_load": tma_load, "tma_store": tma_store}
FLOWS = {"tma_store_wait": tma_store_wait}
