"""Tiles in shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.ir.core import Op
from tlxc.ir.types import Buffer

from .. import checks
from ..memory import Array, Footprint, Place, Scattered
from ..program import Step
from ..reports import at, fail
from .barrier import number

if TYPE_CHECKING:
    from ..machine import Cta, Strand


def buffer_of(step: Step) -> Buffer:
    t = step.op.results[0].type
    assert isinstance(t, Buffer)
    return t


def local_alloc(strand: Strand, step: Step) -> Place:
    name = strand.machine.program.names[step.op]
    return Place(step.op.attrs["offset"], buffer_of(step), step.data, name)


def local_view(strand: Strand, step: Step, array: Place, index: Any) -> Place:
    i, t = number(index), array.type
    if not 0 <= i < t.count:
        raise fail("bad-index", f"{array.name}[{i}] by {strand.name}, but {array.name} has {t.count} buffers", step.op)
    return Place(array.start + t.tile_offset(i), buffer_of(step), step.data, f"{array.name}[{i}]")


def local_slice(strand: Strand, step: Step, buf: Place) -> Place:
    assert buf.type.layout is not None
    offsets = step.op.attrs["offsets"]
    start = buf.start + buf.type.layout.offset(offsets) * buf.type.dtype.bytes
    t = buffer_of(step)
    part = ", ".join(f"{o}:{o + n}" for o, n in zip(offsets, t.shape))
    return Place(start, t, step.data, f"{buf.name}[{part}]")


def same_bytes(strand: Strand, step: Step, buf: Place) -> Place:
    return Place(buf.start, buffer_of(step), step.data, buf.name)


def must_be_known(strand: Strand, cta: Cta, start: int, foot: Footprint | Scattered, name: str, op: Op) -> None:
    """A read of bytes that nothing has written is reported at the end, unless a race explains it."""
    if not cta.memory.is_known(start, foot):
        strand.machine.defer(
            fail(
                "uninitialised",
                f"{cta.label(name)} is read by {strand.name} ({at(op)}), but parts of it were never written",
                op,
            )
        )


def local_load(strand: Strand, step: Step, buf: Place) -> Array:
    cta, op = strand.cta, step.op
    checks.shared_access(strand, cta, buf.start, buf.foot, buf.name, op, strand.clock, write=False)
    must_be_known(strand, cta, buf.start, buf.foot, buf.name, op)
    return cta.memory.read(buf)


def local_store(strand: Strand, step: Step, buf: Place, value: Array) -> None:
    memory = strand.cta.memory
    checks.shared_access(
        strand, strand.cta, buf.start, buf.foot, buf.name, step.op, strand.clock, write=True,
        agrees=lambda: memory.holds(buf, value),
    )  # fmt: skip
    memory.write(buf, value)


def _indexed(strand: Strand, step: Step, buf: Place, indices: Array) -> tuple[Array, Scattered]:
    """(element offset of each index along the axis, their bytes)"""
    axis, extent = step.op.attrs["axis"], buf.type.shape[step.op.attrs["axis"]]
    if indices.size and (indices.min() < 0 or indices.max() >= extent):
        bad = int(indices[(indices < 0) | (indices >= extent)].flat[0])
        raise fail(
            "bad-index", f"{at(step.op)} by {strand.name} has index {bad} into {buf.name} of extent {extent}", step.op
        )
    grid: list[Any] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    whole = buf.foot.elements.reshape(buf.type.shape)
    offsets = whole[tuple(grid)].reshape(-1)
    size = buf.type.dtype.bytes
    touched = np.unique(offsets)
    bytes_ = (touched[:, None] * size + np.arange(size)).reshape(-1)
    return offsets, Scattered(bytes_, int(bytes_[-1]) + 1)


def local_gather(strand: Strand, step: Step, buf: Place, indices: Array) -> Array:
    offsets, foot = _indexed(strand, step, buf, indices)
    checks.shared_access(strand, strand.cta, buf.start, foot, buf.name, step.op, strand.clock, write=False)
    must_be_known(strand, strand.cta, buf.start, foot, buf.name, step.op)
    return strand.cta.memory.elements(buf)[offsets].reshape(indices.shape)


def local_scatter(strand: Strand, step: Step, buf: Place, value: Array, indices: Array) -> None:
    """Of equal targets the last wins."""
    offsets, foot = _indexed(strand, step, buf, indices)
    checks.shared_access(strand, strand.cta, buf.start, foot, buf.name, step.op, strand.clock, write=True)
    strand.cta.memory.elements(buf)[offsets] = value.reshape(-1)
    strand.cta.memory.mark(buf.start, foot)


EFFECTS = {
    "local_alloc": local_alloc,
    "local_view": local_view,
    "local_slice": local_slice,
    "local_trans": same_bytes,
    "local_reinterpret": same_bytes,
    "local_load": local_load,
    "local_store": local_store,
    "local_gather": local_gather,
    "local_scatter": local_scatter,
}
