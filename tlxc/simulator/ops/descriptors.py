"""Tensor maps that a kernel makes: slots of a CTA, what fills them, what finds them filled.

A map is there at once where it is encoded; that copies use the map of its last acquisition follows from the value that
`acquire_descriptor` gives.  A slot is filled again only when the copies by it are known to be over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlxc.ir.ops.descriptor import MAP_BYTES
from tlxc.ir.types import Descriptor as DescriptorType

from .. import checks
from ..memory import Place
from ..program import Step
from ..reports import at, fail
from .tma import Descriptor

if TYPE_CHECKING:
    from ..machine import Strand


@dataclass(frozen=True)
class Slot:
    """Bytes [offset, offset + MAP_BYTES) of the CTA's part of the workspace."""

    offset: int


def descriptor_slots(strand: Strand, step: Step) -> Slot:
    return Slot(step.op.attrs["offset"])


def descriptor_slot(strand: Strand, step: Step, slots: Slot, index: Any) -> Slot:
    count = _count(step)
    if not 0 <= int(index) < count:
        text = f"{at(step.op)} in {strand.name} takes slot {int(index)} of {count}"
        raise fail("bad-index", text, step.op)
    return Slot(slots.offset + MAP_BYTES * int(index))


def _count(step: Step) -> int:
    made = step.op.inputs[0].op
    assert made is not None
    return int(made.attrs["count"])


def descriptor_view(strand: Strand, step: Step, slot: Slot) -> Slot:
    return slot


def encode_descriptor(strand: Strand, step: Step, slot: Slot, buf: Place, base: Any, *sizes: Any) -> None:
    t = step.op.inputs[0].type
    assert isinstance(t, DescriptorType)
    rank = len(t.shape)
    strides = tuple(int(s) // t.dtype.bytes for s in sizes[rank:])
    name = f"the descriptor of {step.op.inputs[2].name or 'a pointer'}"
    checks.slot_access(strand, slot.offset, f"the slot of {name}", step.op, write=True)
    shape, padding = tuple(map(int, sizes[:rank])), step.op.attrs["padding"]
    strand.cta.maps[slot.offset] = Descriptor(name, int(base), shape, (*strides, 1), padding, slot.offset)


def acquire_descriptor(strand: Strand, step: Step, slot: Slot) -> Descriptor:
    made = strand.cta.maps.get(slot.offset)
    if made is None:
        text = f"{at(step.op)} in {strand.name} takes a descriptor from a slot that nothing has filled yet"
        raise fail("uninitialised", text, step.op)
    checks.slot_access(strand, slot.offset, f"the slot of {made.name}", step.op, write=False)
    return made


EFFECTS = {
    "descriptor_slots": descriptor_slots,
    "descriptor_slot": descriptor_slot,
    "descriptor_view": descriptor_view,
    "encode_descriptor": encode_descriptor,
    "acquire_descriptor": acquire_descriptor,
}
