"""Two builds side by side: resources, the map of shared memory, instructions by loop, notes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeVar

from tlxc.codegen.nvptx.disassemble import DisassemblerError

from .forms import AMD, OTHER, PLAIN, PTX, SASS
from .loops import Code, Loop, read
from .sides import Buffer, Side

T = TypeVar("T")

ABSENT = "-"


@dataclass(frozen=True)
class Row:
    """One figure of both; None where a side has none."""

    name: str
    a: int | str | None
    b: int | str | None

    @property
    def change(self) -> str:
        if self.a == self.b:
            return ""
        return f"{self.b - self.a:+}" if isinstance(self.a, int) and isinstance(self.b, int) else "differs"

    def cells(self) -> tuple[str, ...]:
        return (self.name, *(ABSENT if x is None else str(x) for x in (self.a, self.b)), self.change)


@dataclass
class Difference:
    """`sections`: rows under a title.  `notes`: those of one side only, with its sign.  `remarks`: what could not be
    compared.  `code`: whether the instructions are the same; None where they could not be compared."""

    a: Side
    b: Side
    sections: list[tuple[str, list[Row]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    code: bool | None = None

    @property
    def same(self) -> bool:
        return self.counts_agree and not self.notes and self.code is not False

    @property
    def counts_agree(self) -> bool:
        return not any(row.change for _, rows in self.sections for row in rows)

    def __str__(self) -> str:
        out = [f"A: {self.a.label}", f"B: {self.b.label}"]
        cells = [[row.cells() for row in rows] for _, rows in self.sections]
        heads = [(title, "A", "B", "") for title, _ in self.sections]
        widths = [max(map(len, column)) for column in zip(*heads, *(row for rows in cells for row in rows))]
        for head, rows in zip(heads, cells):
            out += ["", *(_line(row, widths) for row in (head, *rows))]
        out += ["", "notes of one side only", *self.notes] if self.notes else []
        return "\n".join([*out, "", *self.remarks, self._verdict()])

    def _verdict(self) -> str:
        if self.same:
            return "No difference." if self.code else "No difference in what was compared."
        if self.counts_agree and not self.notes:
            return "All counts agree; the code differs in its order, registers or operands."
        return "They differ."


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths)))
    return "  ".join([first, *others]).rstrip()


def compare(a: Side, b: Side) -> Difference:
    out = Difference(a, b)
    names = [name for name in dict.fromkeys([*a.facts, *b.facts]) if a.facts.get(name) or b.facts.get(name)]
    out.sections.append(("resources", [Row(name, a.facts.get(name), b.facts.get(name)) for name in names]))
    buffers = [_buffer_row(x, y) for x, y in paired(a.memory, b.memory, lambda buffer: buffer.name)]
    if buffers:
        out.sections.append(("shared memory (offset + bytes)", buffers))
    codes, remark = _codes(a, b)
    out.remarks += [remark] if remark else []
    if codes is not None:
        out.sections += _code_sections(*codes)
        out.code = _texts(codes[0]) == _texts(codes[1])
    for x, y in paired(a.notes, b.notes, lambda note: (note.kind, note.text)):
        if x is None or y is None:
            out.notes.append(f"{'+' if x is None else '-'} {str(x or y).splitlines()[0]}")
    return out


def paired(a: Sequence[T], b: Sequence[T], *keys: Callable[[T], Hashable]) -> Iterator[tuple[T | None, T | None]]:
    """Items of both in order, those with equal keys side by side; what the first key leaves is paired by the next."""
    key, *others = keys
    matcher = SequenceMatcher(None, [key(x) for x in a], [key(x) for x in b], autojunk=False)
    for tag, i, end, j, stop in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(a[i:end], b[j:stop])
        elif others:
            yield from paired(a[i:end], b[j:stop], *others)
        else:
            yield from ((x, None) for x in a[i:end])
            yield from ((None, y) for y in b[j:stop])


def _buffer_row(x: Buffer | None, y: Buffer | None) -> Row:
    places = [None if one is None else f"{one.offset} + {one.bytes}" for one in (x, y)]
    return Row((x or y or Buffer("", 0, 0)).name or "(no name)", *places)


# ------------------------------------------------------------------------------------------------ code
def _codes(a: Side, b: Side) -> tuple[tuple[Code, Code] | None, str]:
    """Both sides in the best form that both have, and what there is to say about that."""
    remark = "The code is not compared: no form of it is there on both sides."
    for form in (SASS, PTX, AMD):
        if form.name not in a.texts or form.name not in b.texts:
            continue
        try:
            codes = read(form, a.texts[form.name]()), read(form, b.texts[form.name]())
        except DisassemblerError as error:
            remark = f"SASS cannot be compared: {error}"
            continue
        return codes, remark if form is PTX and "SASS" in a.texts and "SASS" in b.texts else ""
    return None, remark


def _texts(code: Code) -> list[tuple[str, str]]:
    """Instructions without the names of labels."""
    return [(x.mnemonic, x.operands if x.target is None else "") for x in code.instructions]


def _code_sections(a: Code, b: Code) -> Iterator[tuple[str, list[Row]]]:
    form = a.form.name
    yield f"{form}, whole kernel", _rows(a, a.counts, b.counts)
    loops = paired(a.loops, b.loops, lambda loop: (loop.depth, _work(loop)), lambda loop: loop.depth)
    for i, (x, y) in enumerate(loops, 1):
        one = x or y
        assert one is not None
        inner = f", inside {one.depth - 1} other{'s' * (one.depth > 2)}" if one.depth > 1 else ""
        yield f"{form}, loop {i}{inner}", _rows(a, x.counts if x else None, y.counts if y else None)


def _work(loop: Loop) -> frozenset[str]:
    """What tells a loop from others."""
    return frozenset(loop.counts) - PLAIN


def _rows(code: Code, a: dict[str, int] | None, b: dict[str, int] | None) -> list[Row]:
    order = [name for name, _ in code.form.classes] + [OTHER]
    names = [name for name in order if (a or {}).get(name) or (b or {}).get(name)]
    rows = [Row(name, *(None if counts is None else counts.get(name, 0) for counts in (a, b))) for name in names]
    return [*rows, Row("total", *(None if counts is None else sum(counts.values()) for counts in (a, b)))]
