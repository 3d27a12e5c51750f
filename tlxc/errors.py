"""Diagnostics: source locations and the errors a user can cause.

Every error shows the source line with a caret, the chain of inlined calls, what was found, what is allowed and how to
fix it.  This module stands beside the layers: all of them raise these errors, and it imports none of them.
"""

from __future__ import annotations

import linecache
import unicodedata
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Location:
    """A span of one source line; `callers` is the inline stack, innermost call first."""

    file: str
    line: int
    column: int = 0
    end_column: int = 0
    callers: tuple[Location, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"


def _width(text: str) -> int:
    """Columns that `text` takes on a terminal (wide characters take two)."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def source_excerpt(loc: Location, text: str | None = None) -> str:
    """The source line (`text`, if that is known) with a caret run under the span, or nothing where the source cannot be
    read."""
    if text is None:
        text = linecache.getline(loc.file, loc.line).rstrip("\n")
    if not text:
        return ""
    number = f"{loc.line:>5} | "
    end = loc.end_column if loc.end_column > loc.column else loc.column + 1
    before, under = text[: loc.column], text[loc.column : end] or " "
    pad = "".join("\t" if c == "\t" else " " * _width(c) for c in before)
    return f"{number}{text}\n{' ' * (len(number) - 2)}| {pad}^{'~' * (_width(under) - 1)}"


class TlxcError(Exception):
    """Base of every error that tlxc raises on purpose."""


@dataclass
class CompileError(TlxcError):
    """An error in a kernel.  `found`, `allowed` and `fix` are full sentences or short phrases, each optional.

    `related` holds the other half of a conflict: (what stands there, where).
    """

    summary: str
    found: str = ""
    allowed: str = ""
    fix: str = ""
    loc: Location | None = None
    related: list[tuple[str, Location | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.summary)

    def at(self, loc: Location | None) -> CompileError:
        """Fills in the location where none is known yet; the innermost expression wins."""
        if self.loc is None:
            self.loc = loc
        return self

    def __str__(self) -> str:
        lines = [f"{self.loc}: error: {self.summary}" if self.loc else f"error: {self.summary}"]
        if self.loc and (excerpt := source_excerpt(self.loc)):
            lines.append(excerpt)
        lines += [
            f"  {label}: {text}"
            for label, text in (("found", self.found), ("allowed", self.allowed), ("fix", self.fix))
            if text
        ]
        for text, loc in self.related:
            lines.append(f"  {text}" + (f" at {loc}" if loc else ""))
            if loc and (excerpt := source_excerpt(loc)):
                lines.append(excerpt)
        for caller in self.loc.callers if self.loc else ():
            lines.append(f"  called from {caller}")
            if excerpt := source_excerpt(caller):
                lines.append(excerpt)
        return "\n".join(lines)


class InternalError(TlxcError):
    """tlxc broke one of its own invariants; never the user's fault."""
