"""What analyses of a module after all passes share: its ops with the loops around them, and notes on one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tlxc.errors import Location
from tlxc.ir.core import Op, Region, Value
from tlxc.ir.layout import shape_text
from tlxc.ir.types import Tensor, element_of, shape_of

T = TypeVar("T")


def with_loops(region: Region, loop: Op | None = None) -> Iterator[tuple[Op, Op | None]]:
    """Every op with the innermost loop around it, in program order."""
    for op in region.ops:
        yield op, loop
        for inner in op.regions:
            yield from with_loops(inner, op if op.kind in ("for", "while") else loop)


def by_line(found: Iterable[tuple[Op, Op | None, T]], same: Callable[[T], object]) -> list[list[tuple[Op, bool, T]]]:
    """(op, whether in a loop, what it costs) in groups of one span of the source, one loop and `same` costs: loops that
    were unrolled and helpers that were inlined several times give one note."""
    groups: dict[object, list[tuple[Op, bool, T]]] = {}
    for op, loop, cost in found:
        groups.setdefault((_span(op.loc), loop, same(cost)), []).append((op, loop is not None, cost))
    return list(groups.values())


def _span(loc: Location | None) -> tuple[object, ...]:
    return (loc.file, loc.line, loc.column, loc.end_column) if loc is not None else ()


def per_iteration(repeated: bool) -> str:
    return " per iteration" if repeated else ""


def number(count: int, word: str) -> str:
    """`1 load`, `2 loads`."""
    return f"{count} {word}{'s' * (count != 1)}"


def tile_text(v: Value) -> str:
    """A tile in a sentence: "`acc` (64x64 f32)"."""
    assert isinstance(v.type, Tensor)
    kind = f"{shape_text(shape_of(v.type))} {element_of(v.type)}"
    return f"`{v.name}` ({kind})" if v.name else f"this tile ({kind})"
