"""Global memory: vector accesses, masks, atomics.

A thread's elements are grouped into runs that are contiguous in memory, as wide as three facts allow: the registers
that hold neighbours (layout), what is known of the addresses (axis analysis) and of the mask.
"""

from __future__ import annotations

from functools import cache

from tlxc.ir.core import Op, Value
from tlxc.ir.layout import Layout, components
from tlxc.ir.types import Pointer, Tensor, element_of
from tlxc.passes.axis import AxisInfo

from .emitter import Access
from .lowering import Lowering, layout_of, lowers, register_of
from .words import word_shape

MAX_BYTES = 16  # of one access of one thread


@cache
def runs(layout: Layout, dim: int, limit: int) -> tuple[tuple[int, ...], ...]:
    """Registers in groups of neighbours along `dim`, at most `limit` (a power of two) each, in memory order."""
    _, lane, warp = components(layout, dim)
    v, where = 1, register_of(layout)
    elsewhere = 0
    for b in lane + warp:
        elsewhere |= b
    while v * 2 <= limit and not elsewhere & (v * 2 - 1) and _paired(layout, dim, v, where):
        v *= 2
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for coords, r in where.items():
        start = tuple(c & -v if d == dim else c for d, c in enumerate(coords))
        groups.setdefault(start, []).append((coords[dim], r))
    return tuple(tuple(r for _, r in sorted(g)) for g in groups.values())


def _paired(layout: Layout, dim: int, v: int, where: dict[tuple[int, ...], int]) -> bool:
    """Whether every register's neighbour at distance v along `dim` is a register of the same thread."""
    return layout.bits[dim] >= (2 * v).bit_length() - 1 and all(
        tuple(c ^ v if d == dim else c for d, c in enumerate(coords)) in where for coords in where
    )


def access_limits(info: AxisInfo, pointer: Value, mask: Value | None) -> dict[str, int]:
    """Elements along the fastest dimension that one access may cover, by the fact that says so."""
    p = element_of(pointer.type)
    assert isinstance(p, Pointer)
    dim = info.order(pointer)[0]
    limits = {
        "contiguity": info.contiguity(pointer, dim),
        "alignment": info.divisibility(pointer, dim) // p.dtype.bytes,
    }
    return limits if mask is None else {**limits, "mask": info.constancy(mask, dim)}


def access_runs(info: AxisInfo, pointer: Value, mask: Value | None, layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Groups of registers that one access serves."""
    p = element_of(pointer.type)
    assert isinstance(p, Pointer)
    limit = min(*access_limits(info, pointer, mask).values(), MAX_BYTES // p.dtype.bytes)
    limit = 1 << (max(1, limit).bit_length() - 1)
    return runs(layout, info.order(pointer)[0], limit)


# ------------------------------------------------------------------------------------------------ ops
@lowers("addptr")
def addptr(low: Lowering, op: Op) -> None:
    pointer, offset = op.inputs
    p = element_of(pointer.type)
    assert isinstance(p, Pointer)
    item = "i8" if p.dtype.bytes == 1 else f"i{8 * p.dtype.bytes}"
    t = low.llvm(offset)
    low.set(
        op.result,
        [
            low.w.assign(f"getelementptr {item}, ptr addrspace(1) {a}, {t} {o}")
            for a, o in zip(low.get(pointer), low.get(offset))
        ],
    )


def _access(low: Lowering, op: Op, address: str, predicate: str | None, count: int, size: int) -> Access:
    bits, words = word_shape(count, size)
    return Access(address, bits, words, predicate, op.attrs.get("cache", ""), op.attrs.get("eviction", ""))


@lowers("load")
def load(low: Lowering, op: Op) -> None:
    pointer, mask, other = op.operands
    assert pointer is not None
    element = element_of(op.result.type)
    tile = isinstance(op.result.type, Tensor)
    groups = access_runs(low.info, pointer, mask, layout_of(op.result)) if tile else ((0,),)
    addresses = low.get(pointer)
    masks = low.get(mask) if mask is not None else None
    words = []
    for group in groups:
        first = group[0]
        access = _access(low, op, addresses[first], masks[first] if masks else None, len(group), element.bytes)
        fill = low.words(other, group) if other is not None else None
        words.append((group, low.emitter.load_global(access, fill)))
    low.set_words(op.result, words)


@lowers("store")
def store(low: Lowering, op: Op) -> None:
    pointer, value, mask = op.operands
    assert pointer is not None and value is not None
    element = element_of(value.type)
    layout = layout_of(value)
    owner = low.owner(layout)
    addresses = low.get(pointer)
    masks = low.get(mask) if mask is not None else None
    for group in access_runs(low.info, pointer, mask, layout):
        first = group[0]
        predicate = low.both(owner, masks[first] if masks else None)
        access = _access(low, op, addresses[first], predicate, len(group), element.bytes)
        low.emitter.store_global(access, low.words(value, group))


@lowers("atomic_rmw")
def atomic_rmw(low: Lowering, op: Op) -> None:
    pointer, value, mask = op.operands
    assert pointer is not None and value is not None
    layout = layout_of(value)
    owner = low.owner(layout)
    masks = low.get(mask) if mask is not None else [None] * layout.registers
    element = element_of(value.type)
    out = []
    for address, x, m in zip(low.get(pointer), low.get(value), masks):
        predicate = low.both(owner, m)
        out.append(low.emitter.atomic_add(address, x, str(element), predicate, op.attrs["sem"], op.attrs["scope"]))
    low.set(op.result, out)
