"""What the checker has to say: kinds of reports, and how places in a kernel are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tlxc.errors import Location, TlxcError, source_excerpt
from tlxc.ir.core import Op

# Ops under the name by which kernels call them.
SPELLING = {
    "tma_load": "async_descriptor_load", "tma_store": "async_descriptor_store",
    "tma_store_wait": "async_descriptor_store_wait", "async_load_commit": "async_load_commit_group",
    "async_load_wait": "async_load_wait_group", "bulk_load": "async_bulk_load", "bulk_store": "async_bulk_store",
    "remote_store": "remote_shmem_store", "async_remote_store": "async_remote_shmem_store",
    "async_remote_copy": "async_remote_shmem_copy", "barrier_expect": "barrier_expect_bytes", "load": "tl.load",
    "store": "tl.store", "atomic_rmw": "tl.atomic_add", "dot": "tl.dot",
}  # fmt: skip


@dataclass
class Report:
    """One finding.  `ops`: what it is about, the accused first; each is shown with its source line.  `notes`: lines
    below."""

    kind: str
    text: str
    ops: Sequence[Op] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def locations(self) -> list[Location]:
        return [op.loc for op in self.ops if op.loc is not None]

    @property
    def lines(self) -> list[int]:
        """Source lines that it names, of the two sides first, then of the notes."""
        shown = [at.line for loc in self.locations for at in (loc, *loc.callers)]
        return shown + [int(n) for note in self.notes for n in re.findall(r"at line (\d+)", note)]

    def __str__(self) -> str:
        out = [f"{self.kind}: {self.text}"]
        shown: set[Location] = set()
        for loc in self.locations:
            if loc in shown:
                continue
            shown.add(loc)
            for i, at in enumerate((loc, *loc.callers)):
                out.append(f"  {'called from ' if i else ''}{at}")
                if excerpt := source_excerpt(at):
                    out.append(excerpt)
        return "\n".join([*out, *(f"  {note}" for note in self.notes)])


class SimulationError(TlxcError):
    """A simulated kernel did something that is wrong; `report` says what."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def spelled(op: Op) -> str:
    return SPELLING.get(op.kind, op.kind)


def at(op: Op) -> str:
    """`name at line 12`; what the compiler put in has no name that a user would know."""
    if op.loc is None:
        return f"{spelled(op)} (put in by the compiler)"
    return f"{spelled(op)} at {place(op)}"


def place(op: Op) -> str:
    """`line 12`, with the calls that led there; the name of an op that the compiler put in."""
    return at(op) if op.loc is None else _line(op.loc)


@lru_cache(maxsize=4096)
def _line(loc: Location) -> str:
    return f"line {loc.line}" + "".join(f" called at line {c.line}" for c in loc.callers)


def fail(kind: str, text: str, *ops: Op | None, notes: Sequence[str] = ()) -> SimulationError:
    """The error to raise."""
    return SimulationError(Report(kind, text, [op for op in ops if op is not None], list(notes)))
