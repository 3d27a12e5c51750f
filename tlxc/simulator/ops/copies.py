"""Copies without a descriptor: cp.async by every thread, bulk copies by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..agents import AsyncOp
from ..barriers import BarrierPlace
from ..memory import Array, Place, Scattered
from ..program import Step
from ..reports import at, fail
from ..values import storage
from .barrier import begin, holds, number
from .buffer import must_be_known
from .memory import Touched, pointee, touched
from .tma import Target, copy_into

if TYPE_CHECKING:
    from ..machine import Strand

_ALIGN = 16  # bytes, of a bulk copy


def async_load(strand: Strand, step: Step, pointers: Array, buf: Place, mask: Any, other: Any) -> None:
    """cp.async writes by the generic proxy; masked elements become `other` or 0."""
    op, machine, cta = step.op, strand.machine, strand.cta
    dtype, clock = pointee(op), strand.clock.copy()
    wanted = np.ones(pointers.shape, np.bool_) if mask is None else np.broadcast_to(mask, pointers.shape)
    work = AsyncOp(op, strand)
    what = None
    if wanted.any():
        what = touched(strand, step, pointers[wanted], dtype, write=False)
        read = machine.number()
        work.reads.append(read)
        checks.global_access(strand, what.allocation, what.granules, op, clock, False, False, read)
    access = machine.number()
    work.writes.append(access)
    work.retired.append(
        checks.shared_access(strand, cta, buf.start, buf.foot, buf.name, op, clock, True, False, access)
    )

    def copy() -> None:
        tile = np.zeros(pointers.shape, dtype)
        if other is not None:
            tile[...] = other
        if what is not None:
            tile[wanted] = what.data[what.index]
        cta.memory.write(buf, tile)

    work.stages = [copy]
    strand.open_copies.append(work)
    machine.submit(work)


def async_load_commit(strand: Strand, step: Step, *tokens: Any) -> None:
    strand.copies.append(strand.open_copies)
    strand.open_copies = []


def async_load_wait(strand: Strand, step: Step, *tokens: Any) -> Iterator[Any]:
    """What is retired counts as written by the strand itself, now."""
    if len(strand.machine.ready) > 1:
        yield None
    begin(strand)
    pendings = step.op.attrs["pendings"]
    old = strand.copies[: max(len(strand.copies) - pendings, 0)]
    strand.block("engine", step.op, None)
    while any(not work.finished for group in old for work in group):
        yield strand.engines
    strand.blocked = None
    for work in [w for group in old for w in group]:
        for access in (*work.reads, *work.writes):
            strand.clock.know(access)
        for record in work.retired:
            record.access, record.epoch = None, strand.epoch
    del strand.copies[: len(old)]
    strand.acquired.append(f"{at(step.op)} ({pendings})")
    return None


# ------------------------------------------------------------------------------------------------ bulk copies
def _bulk(
    strand: Strand, step: Step, pointer: Any, buf: Place, size: Any, write: bool
) -> tuple[int, Touched, Scattered]:
    """(bytes, elements in global memory, part of the buffer) of a bulk copy."""
    op = step.op
    whole = buf.type.nbytes
    count = whole if size is None else number(size)
    dtype = storage(buf.type.dtype)
    address = number(pointer)
    if count % _ALIGN or address % _ALIGN or not 0 <= count <= whole:
        raise fail(
            "bulk-size",
            f"{at(op)} by {strand.name} copies {count} bytes at {address:#x} with {buf.name} of {whole} bytes; size "
            f"and address must be multiples of {_ALIGN}, and the buffer large enough",
            op,
        )
    elements = address + np.arange(count // dtype.itemsize, dtype=np.int64) * dtype.itemsize
    what = touched(strand, step, elements, dtype, write)
    return count, what, Scattered(np.arange(count), count, dense=True)


def bulk_load(strand: Strand, step: Step, pointer: Any, buf: Place, bar: BarrierPlace, size: Any, pred: Any) -> None:
    if not holds(pred) or (size is not None and not number(size)):
        return
    op, machine = step.op, strand.machine
    clock = strand.clock.copy()
    count, what, foot = _bulk(strand, step, pointer, buf, size, write=False)
    read = machine.number()
    checks.global_access(strand, what.allocation, what.granules, op, clock, False, True, read)
    held: list[Array] = []
    work = AsyncOp(op, strand, lambda: held.append(what.data[what.index]))
    work.reads = [read]
    to = Target(buf, bar, [strand.cta], foot, lambda cta: cta.memory.write_bytes(buf.start, held[0], foot), count)
    copy_into(strand, op, to, clock, work, (read,))
    machine.submit(work)


def bulk_store(strand: Strand, step: Step, pointer: Any, buf: Place, size: Any) -> None:
    op, machine, cta = step.op, strand.machine, strand.cta
    clock = strand.clock.copy()
    if size is not None and not number(size):
        return
    count, what, foot = _bulk(strand, step, pointer, buf, size, write=True)
    read, write = machine.number(), machine.number()
    checks.shared_access(strand, cta, buf.start, foot, buf.name, op, clock, False, True, read)
    checks.global_access(strand, what.allocation, what.granules, op, clock, True, True, write)
    held: list[Array] = []

    def fetch() -> None:
        must_be_known(strand, cta, buf.start, foot, buf.name, op)
        held.append(cta.memory.bytes[buf.start : buf.start + count].view(what.data.dtype).copy())

    def put() -> None:
        what.data[what.index] = held[0]

    work = AsyncOp(op, strand, fetch, put)
    work.reads, work.writes = [read], [write]
    strand.bulk.append(work)
    machine.submit(work)


EFFECTS = {
    "async_load": async_load,
    "async_load_commit": async_load_commit,
    "bulk_load": bulk_load,
    "bulk_store": bulk_store,
}
FLOWS = {"async_load_wait": async_load_wait}
