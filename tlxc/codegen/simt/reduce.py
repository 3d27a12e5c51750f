"""Reductions: a tree in the thread, then butterflies over the lanes that share the axis."""

from __future__ import annotations

from functools import reduce as fold

from tlxc.codegen.llvm_text import llvm_type
from tlxc.errors import InternalError
from tlxc.ir.core import Op
from tlxc.ir.layout import Layout
from tlxc.ir.types import DType, Tensor, element_of

from .convert import shuffle_words
from .lowering import Lowering, coordinates_of, layout_of, lowers, register_of
from .math import extreme


def combine(low: Lowering, how: str, d: DType, a: str, b: str) -> str:
    if how == "sum":
        return low.w.assign(f"{'fadd contract' if d.is_float else 'add'} {llvm_type(d)} {a}, {b}")
    return extreme(low, how, d, a, b)


def tree(low: Lowering, how: str, d: DType, names: list[str]) -> str:
    """Combines groups, so that the chain of dependent operations is short: pairs, but three integers of which the
    extreme is wanted, for which there is one instruction."""
    size = 3 if how != "sum" and d.is_int and len(names) > 2 else 2
    while len(names) > 1:
        groups = [names[i : i + size] for i in range(0, len(names), size)]
        names = [fold(lambda a, b: combine(low, how, d, a, b), group) for group in groups]
    return names[0]


def axis_lanes(layout: Layout, axis: int) -> int:
    """Mask of the lane bits that step along the axis and hold elements of their own."""
    mask = ((1 << layout.bits[axis]) - 1) << layout.shifts[axis]
    free = layout.free_masks().get("lane", 0)
    out = 0
    for i, b in enumerate(layout.lane):
        if b & mask and not free >> i & 1:
            if b & ~mask:
                raise InternalError(f"lane bit {i} of {layout} steps along axis {axis} and across it at once")
            out |= 1 << i
    return out


def _in_thread(low: Lowering, op: Op) -> dict[tuple[int, ...], str]:
    """Coordinates without the axis (at lane 0, warp 0) -> the combined registers of this thread."""
    source, axis = op.inputs[0], op.attrs["axis"]
    d = element_of(source.type)
    assert isinstance(d, DType)
    groups: dict[tuple[int, ...], list[str]] = {}
    names = low.get(source)
    for coords, r in register_of(layout_of(source)).items():
        groups.setdefault(coords[:axis] + coords[axis + 1 :], []).append(names[r])
    return {c: tree(low, op.attrs["combine"], d, g) for c, g in groups.items()}


def _across_lanes(low: Lowering, op: Op, x: str) -> str:
    d = element_of(op.inputs[0].type)
    assert isinstance(d, DType)
    lanes = axis_lanes(layout_of(op.inputs[0]), op.attrs["axis"])
    while lanes:
        bit = lanes & -lanes
        lanes ^= bit
        other = shuffle_words(low, x, d, lambda word, bit=bit: low.emitter.shuffle_xor(word, bit))  # type: ignore[misc]
        x = combine(low, op.attrs["combine"], d, x, other)
    return x


def _warps_share(layout: Layout, axis: int) -> bool:
    mask = ((1 << layout.bits[axis]) - 1) << layout.shifts[axis]
    free = layout.free_masks().get("warp", 0)
    return any(b & mask and not free >> i & 1 for i, b in enumerate(layout.others))


@lowers("reduce")
def reduce(low: Lowering, op: Op) -> None:
    if _warps_share(layout_of(op.inputs[0]), op.attrs["axis"]):
        raise InternalError("a reduction across warps reached code generation")
    parts = {c: _across_lanes(low, op, x) for c, x in _in_thread(low, op).items()}
    if not isinstance(op.result.type, Tensor):
        low.set(op.result, [parts[()]])
        return
    low.set(op.result, [parts[coords] for coords in coordinates_of(layout_of(op.result))])


@lowers("partial_reduce")
def partial_reduce(low: Lowering, op: Op) -> None:
    """The last axis of the result counts threads or warps, so at lane 0 of warp 0 it is always 0."""
    parts = _in_thread(low, op)
    if op.attrs["level"] == "warp":
        parts = {c: _across_lanes(low, op, x) for c, x in parts.items()}
    low.set(op.result, [parts[coords[:-1]] for coords in coordinates_of(layout_of(op.result))])
