"""Names of one function while it is compiled: what each is bound to, or why it has no value."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, Union

from tlxc.errors import CompileError, Location

from .source import Source


@dataclass(frozen=True)
class Binding:
    """A variable's value and where it was assigned."""

    value: Any
    loc: Location


@dataclass(frozen=True)
class Undefined:
    """A variable that some path assigns, but that has no value here."""

    found: str
    fix: str
    related: tuple[tuple[str, Location], ...]

    def error(self, name: str, loc: Location | None) -> CompileError:
        return CompileError(
            f"`{name}` has no value here", found=self.found, fix=self.fix, loc=loc, related=list(self.related)
        )


Names = dict[str, Union[Binding, Undefined]]


@dataclass
class Frame:
    """One function being compiled: the kernel, or a helper inlined at `callers` (innermost call first).

    `loops` counts the run-time loops around the present statement, `copies` how often statements after an early return
    were compiled again.  `task`: the present statement stands in a task of a region that the function opens."""

    source: Source
    callers: tuple[Location, ...] = ()
    names: Names = field(default_factory=dict)
    loops: int = 0
    copies: int = 0
    task: bool = False


def suggestion(name: str, known: list[str]) -> str:
    """`did you mean ...?` for a misspelt name, or nothing."""
    close = difflib.get_close_matches(name, [k for k in dict.fromkeys(known) if not k.startswith("_")], n=2)
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""
