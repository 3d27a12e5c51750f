"""All notes of one compilation."""

from __future__ import annotations

from collections.abc import Iterable

from tlxc.ir.core import Module
from tlxc.passes.axis import AxisInfo
from tlxc.targets import Target

from .accesses import narrow_accesses
from .accumulators import copied_accumulators
from .conversions import conversions
from .note import KINDS, Note


def module_notes(module: Module, target: Target, info: AxisInfo) -> list[Note]:
    """What a module after all passes shows by itself."""
    return [*copied_accumulators(module), *conversions(module, target), *narrow_accesses(module, info)]


def in_order(notes: Iterable[Note]) -> list[Note]:
    """By source line; what has none comes last."""
    order = list(KINDS)

    def place(note: Note) -> tuple[object, ...]:
        where = (note.loc.file, note.loc.line, note.loc.column) if note.loc is not None else ("", 0, 0)
        return note.loc is None, *where, order.index(note.kind), note.text

    return sorted(notes, key=place)
