"""Performance notes: what a kernel costs beyond need, at its source line.

A note enters the metadata of a compilation, and with it the cache.  Cache keys leave line numbers out, so a note keeps
the text of its line: where an edit further up has moved that, the note is shown where the text stands now.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from tlxc.errors import Location, source_excerpt

# What notes are about.  `tlxc compile --fail-on` takes these names; docs/performance.md explains them.
KINDS = {
    "convert": "a tile changes its layout by shuffles or through shared memory",
    "narrow": "global memory is accessed in smaller pieces than a thread could",
    "copy": "an accumulator is copied before a product that would overwrite it",
    "spill": "registers ran out, and threads keep values in memory",
    "serialise": "the assembler lets products of wgmma wait for each other",
    "assembler": "anything else that the assembler remarks",
}


@dataclass(frozen=True)
class Note:
    """`text`: what costs how much, and why; `fix`: what may avoid it.  `source`: the text of the line of `loc`."""

    kind: str
    text: str
    loc: Location | None = None
    fix: str = ""
    source: str = ""

    def facts(self) -> dict[str, Any]:
        """JSON-able, without what is empty."""
        out: dict[str, Any] = {"kind": self.kind, "text": self.text}
        if self.loc is not None:
            source = self.source or linecache.getline(self.loc.file, self.loc.line).rstrip("\n")
            place = {"line": self.loc.line, "column": self.loc.column, "end_column": self.loc.end_column}
            out |= {"file": self.loc.file, **place, "source": source}
        return out | ({"fix": self.fix} if self.fix else {})

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Note:
        """The note behind `facts`, at the line where its text stands now."""
        loc, source = None, str(facts.get("source", ""))
        if "file" in facts:
            line = _line_now(facts["file"], facts["line"], source)
            loc = Location(facts["file"], line, facts["column"], facts["end_column"])
        return cls(facts["kind"], facts["text"], loc, facts.get("fix", ""), source)

    def __str__(self) -> str:
        lines = [f"{self.loc}: note: {self.kind}: {self.text}" if self.loc else f"note: {self.kind}: {self.text}"]
        if self.loc is not None and (excerpt := source_excerpt(self.loc, self.source or None)):
            lines.append(excerpt)
        return "\n".join([*lines, f"  fix: {self.fix}"] if self.fix else lines)


def _line_now(file: str, line: int, source: str) -> int:
    """The line nearest to `line` that reads `source`; `line` itself where there is none."""
    lines = linecache.getlines(file)
    alike = [i for i, text in enumerate(lines, 1) if text.rstrip("\n") == source]
    return min(alike, key=lambda i: abs(i - line), default=line)


def placed(facts: Mapping[str, Any], loc: Location) -> dict[str, Any]:
    """The facts of a note, at `loc` where it has no place yet."""
    note = Note.of(facts)
    return replace(note, loc=loc).facts() if note.loc is None else dict(facts)


def place_name(loc: Location | None) -> str:
    """How a sentence names another line."""
    return f"{PurePath(loc.file).name}:{loc.line}" if loc is not None else "an op of the compiler"
