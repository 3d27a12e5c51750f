"""What runs leave behind beside results: what they covered, and what is odd but not wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tlxc.errors import Location
from tlxc.ir.core import Module, Op

from .reports import Report


@dataclass
class Findings:
    """`conflicts`: pairs of conflicting accesses that were met.  `notes`: by the ops that they are about.  `trips`: how
    often loops turned, by their place in the source.  `ended` is called when a CTA ends."""

    conflicts: set[tuple[Any, ...]] = field(default_factory=set)
    notes: dict[tuple[str, ...], Report] = field(default_factory=dict)
    trips: dict[Location, set[int]] = field(default_factory=dict)
    ended: Callable[[], None] = lambda: None

    def note(self, report: Report) -> None:
        self.notes.setdefault((report.kind, *map(str, report.locations)), report)


def loops(module: Module) -> dict[Op, Location]:
    """Loops of the source whose trips are known at run time only."""
    return {op: op.loc for op in module.walk() if op.kind in ("for", "while") and op.loc and not _counted(op)}


def _counted(op: Op) -> bool:
    return op.kind == "for" and all(v.op is not None and v.op.kind == "constant" for v in op.inputs[:3])


def tried(trips: Mapping[Location, set[int]]) -> list[str]:
    """Lines on the trip counts of each loop: which were tried, and that 0 was not."""
    out = []
    for loc, counts in sorted(trips.items(), key=lambda item: (item[0].file, item[0].line)):
        called = "".join(f" called at line {c.line}" for c in loc.callers)
        never = "" if 0 in counts else "; never 0"
        out.append(f"loop at line {loc.line}{called}: {_ranges(sorted(counts))} trips{never}")
    return out


def _ranges(numbers: list[int]) -> str:
    """`0 to 3, 5`"""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    return ", ".join(f"{p[0]} to {p[-1]}" if len(p) > 2 else ", ".join(map(str, p)) for p in parts)
