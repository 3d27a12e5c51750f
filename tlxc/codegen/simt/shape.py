"""Making and relabelling tiles: no instruction but index arithmetic."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tlxc.errors import CompileError
from tlxc.ir.core import Op, Value
from tlxc.ir.layout import cute
from tlxc.ir.types import shape_of

from .lowering import Lowering, coordinates_of, layout_of, lowers, register_of

Coords = tuple[int, ...]


@lowers("arange")
def arange(low: Lowering, op: Op) -> None:
    start = op.attrs["start"]
    index = low.coordinate(layout_of(op.result), 0)
    low.set(op.result, [low.w.add(i, str(start)) for i in index] if start else index)


@lowers("splat")
def splat(low: Lowering, op: Op) -> None:
    low.set(op.result, low.get(op.inputs[0]) * low.registers(op.result))


def _relabel(low: Lowering, result: Value, source: Value, back: Callable[[Coords], Coords]) -> None:
    """`back` takes a coordinate of the result to that of the source; both are held by the same thread."""
    names, where = low.get(source), register_of(layout_of(source))
    out = layout_of(result)
    try:
        low.set(result, [names[where[back(coords)]] for coords in coordinates_of(out)])
    except KeyError:
        raise CompileError(
            "this relabelling would move data between threads", found=f"{layout_of(source)} to {out}"
        ) from None


@lowers("expand_dims")
def expand_dims(low: Lowering, op: Op) -> None:
    axis = op.attrs["axis"]
    _relabel(low, op.result, op.inputs[0], lambda c: c[:axis] + c[axis + 1 :])


@lowers("broadcast")
def broadcast(low: Lowering, op: Op) -> None:
    keep = tuple(n != 1 for n in shape_of(op.inputs[0].type))
    _relabel(low, op.result, op.inputs[0], lambda c: tuple(x if k else 0 for x, k in zip(c, keep)))


@lowers("permute")
def permute(low: Lowering, op: Op) -> None:
    order = op.attrs["order"]
    back = tuple(order.index(d) for d in range(len(order)))
    _relabel(low, op.result, op.inputs[0], lambda c: tuple(c[d] for d in back))


@lowers("reshape")
def reshape(low: Lowering, op: Op) -> None:
    source, to = shape_of(op.inputs[0].type), shape_of(op.result.type)
    _relabel(low, op.result, op.inputs[0], lambda c: _unflatten(_flatten(c, to), source))


def _flatten(coords: Coords, shape: Coords) -> int:
    index = 0
    for c, n in zip(coords, shape):
        index = index * n + c
    return index


def _unflatten(index: int, shape: Coords) -> Coords:
    out = []
    for n in reversed(shape):
        index, c = divmod(index, n)
        out.append(c)
    return tuple(reversed(out))


@lowers("require_layout")
def require_layout(low: Lowering, op: Op) -> None:
    _relabel(low, op.result, op.inputs[0], lambda c: c)


@lowers("split")
def split(low: Lowering, op: Op) -> None:
    for part, result in enumerate(op.results):
        _relabel(low, result, op.inputs[0], lambda c, part=part: (*c, part))  # type: ignore[misc]


@lowers("join")
def join(low: Lowering, op: Op) -> None:
    out = layout_of(op.result)
    sides = [(low.get(v), register_of(layout_of(v))) for v in op.inputs]
    names = []
    for *c, half in coordinates_of(out):
        values, where = sides[half]
        names.append(values[where[tuple(c)]])
    low.set(op.result, names)


@lowers("dump_layout")
def dump_layout(low: Lowering, op: Op) -> None:
    v = op.inputs[0]
    where = f"{op.loc.file}:{op.loc.line}" if op.loc else low.module.name
    text = cute(layout_of(v)) if shape_of(v.type) else "scalar, the same in every thread"
    print(f"// tlx.dump_layout @ {where}\n//   type: {v.type}\n//   cute: {text}", file=sys.stderr)
