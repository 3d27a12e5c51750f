"""Notes on accumulators that cost registers and moves.

wgmma adds in place.  An accumulator that is still wanted after a dot on top of it has to be copied before, which takes
as many registers again and a move for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.table import traits
from tlxc.ir.types import Tensor

from .note import Note, place_name

ACCUMULATOR = 2  # operand of dot and async_dot
# (region, position in it), the body of the kernel first
Path = tuple[tuple[Region, int], ...]


def copied_accumulators(module: Module) -> list[Note]:
    """One note for every dot of wgmma whose old accumulator lives on.  Tensors have layouts."""
    paths = dict(_paths(module.body, ()))
    homes = {arg: r for r in _regions(module.body) for arg in r.args}
    users: dict[Value, list[Op]] = {}
    for op in paths:
        for read in op.inputs:
            users.setdefault(read, []).append(op)
    return [
        _note(op, v, again)
        for op in paths
        if (v := _accumulator(op)) is not None
        and (again := next((u for u in users[v] if _follows(paths[op], paths[u], _home(v, paths, homes))), None))
    ]


def _accumulator(op: Op) -> Value | None:
    """What a dot of wgmma adds to, but for constants, which are made anew where they are wanted."""
    if op.kind != "async_dot" and not (op.kind == "dot" and op.attrs.get("impl") == "wgmma"):
        return None
    v = op.operands[ACCUMULATOR]
    return None if v is None or v.op is not None and "cheap" in traits(v.op) else v


def _regions(region: Region) -> Iterator[Region]:
    yield region
    for op in region.ops:
        for r in op.regions:
            yield from _regions(r)


def _paths(region: Region, above: Path) -> Iterator[tuple[Op, Path]]:
    for i, op in enumerate(region.ops):
        here = (*above, (region, i))
        yield op, here
        for r in op.regions:
            yield from _paths(r, here)


def _home(v: Value, paths: dict[Op, Path], homes: dict[Value, Region]) -> Region:
    """The region in which a value is defined."""
    return homes[v] if v.op is None else paths[v.op][-1][0]


def _follows(dot: Path, use: Path, home: Region) -> bool:
    """Whether a use of a value defined in `home` may come after a dot that uses it too."""
    start = next(i for i, (region, _) in enumerate(dot) if region is home)
    for level in range(start, min(len(dot), len(use))):
        (region, i), (other, j) = dot[level], use[level]
        if region is not other:  # two branches of an `if`, or two tasks
            return False
        if i != j:
            return j > i or _repeated(dot[start:level])
    return _repeated(dot[start:-1])  # the dot itself, on the next trip


def _repeated(path: Path) -> bool:
    """Whether a loop stands among the ops of a path: what it encloses follows itself."""
    return any(region.ops[i].kind in ("for", "while") for region, i in path)


def _note(dot: Op, v: Value, again: Op) -> Note:
    assert isinstance(v.type, Tensor) and v.type.layout is not None
    name = f"`{v.name}`" if v.name else "the accumulator"
    if again is dot:
        where = "in the next trip of the loop"
    else:
        carried = again.kind == "yield"
        where = "as a variable of a loop or `if`" if carried else f"by {again.kind} at {place_name(again.loc)}"
    text = (
        f"{name} is copied before this dot, {v.type.layout.registers} registers of each thread, since it is used again "
        f"{where}"
    )
    return Note("copy", text, dot.loc)
