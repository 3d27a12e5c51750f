"""Shared memory: where a thread's elements lie, and vector accesses.

The element offset of (register, lane, warp) is the memory layout applied to the register layout's coordinate.  Low
coordinate bits (the swizzle atom) combine by XOR, repetitions above it by addition; so each access is one thread part,
XORed with a register constant, plus an immediate.
"""

from __future__ import annotations

from functools import cache

from tlxc.errors import InternalError
from tlxc.ir.core import Op, Value
from tlxc.ir.layout import Layout
from tlxc.ir.memory import Memory, vector_bits
from tlxc.ir.types import Barrier, Buffer, element_of

from .lowering import Lowering, coordinates_of, layout_of, lowers, register_of
from .words import load_text, store_words, take_apart, word_shape


def buffer_type(v: Value) -> tuple[Buffer, Memory]:
    t = v.type
    if not isinstance(t, Buffer) or t.layout is None:
        raise InternalError(f"{v!r} is no buffer with a layout")
    return t, t.layout


@lowers("local_alloc", "alloc_barriers")
def alloc(low: Lowering, op: Op) -> None:
    """Buffers and barriers are byte offsets from the start of shared memory: a number, or an i32."""
    offset = str(op.attrs["offset"])
    if stride := op.attrs.get("copy_stride"):
        offset = low.w.add(low.w.assign(f"mul i32 {low.copy}, {stride}"), offset)
    low.set(op.result, [offset])


@lowers("local_view", "barrier_view")
def view(low: Lowering, op: Op) -> None:
    array, index = op.inputs
    t = array.type
    assert isinstance(t, (Buffer, Barrier))
    i = low.scalar(index)
    if isinstance(t, Buffer):
        step = str(t.tile_offset(int(i))) if i.isdigit() else _tile_offset(low, t, i)
    else:
        step = str(8 * int(i)) if i.isdigit() else low.w.assign(f"mul i32 {i}, 8")
    low.set(op.result, [add_offsets(low, low.scalar(array), step)])


def _tile_offset(low: Lowering, t: Buffer, i: str) -> str:
    """`t.tile_offset` of an index at run time, which is not negative."""
    w = low.w
    if t.group == 1:
        return w.assign(f"mul i32 {i}, {t.pitch or t.tile_bytes}")
    outer = w.assign(f"mul i32 {w.assign(f'udiv i32 {i}, {t.group}')}, {t.pitch}")
    return w.add(outer, w.assign(f"mul i32 {w.assign(f'urem i32 {i}, {t.group}')}, {t.tile_bytes}"))


def add_offsets(low: Lowering, a: str, b: str) -> str:
    """Sum of two byte offsets, folded where both are numbers."""
    return str(int(a) + int(b)) if a.isdigit() and b.isdigit() else low.w.add(a, b)


_SAME_PLACE = ("local_trans", "local_reinterpret", "local_slice")  # views of one buffer


@lowers("local_trans", "local_reinterpret")
def same_bytes(low: Lowering, op: Op) -> None:
    low.set(op.result, low.get(op.inputs[0]))


@lowers("local_slice")
def local_slice(low: Lowering, op: Op) -> None:
    low.set(op.result, [add_offsets(low, low.scalar(op.inputs[0]), str(_slice_start(op)))])


def _slice_start(op: Op) -> int:
    """Bytes from the start of a buffer to a part of it."""
    t, mem = buffer_type(op.inputs[0])
    return mem.offset(op.attrs["offsets"]) * t.dtype.bytes


def offset_terms(low: Lowering, v: Value) -> tuple[int, list[tuple[str, int]]]:
    """The byte offset of a buffer as a sum: (what is known, [(run-time number, bytes per one of it), ...])."""
    op = v.op
    if op is None or op.kind not in ("local_alloc", "local_view", *_SAME_PLACE):
        offset = low.scalar(v)
        return (int(offset), []) if offset.isdigit() else (0, [(offset, 1)])
    if op.kind == "local_alloc":
        stride = op.attrs.get("copy_stride")
        return int(op.attrs["offset"]), [(low.copy, stride)] if stride else []
    fixed, terms = offset_terms(low, op.inputs[0])
    if op.kind == "local_slice":
        return fixed + _slice_start(op), terms
    if op.kind == "local_view":
        (t, _), i = buffer_type(op.inputs[0]), low.scalar(op.inputs[1])
        if i.isdigit():
            return fixed + t.tile_offset(int(i)), terms
        step = (i, t.pitch or t.tile_bytes) if t.group == 1 else (_tile_offset(low, t, i), 1)
        return fixed, [*terms, step]
    return fixed, terms


def shared_pointer(low: Lowering, v: Value, extra: int = 0) -> str:
    """ptr addrspace(3) of a buffer or barrier, `extra` bytes on."""
    offset = add_offsets(low, low.scalar(v), str(extra))
    return low.w.assign(f"getelementptr i8, ptr addrspace(3) @smem, i32 {offset}")


def split_offset(mem: Memory, coords: tuple[int, ...]) -> tuple[int, int]:
    """(XOR part, ADD part) of an element offset."""
    outer = sum((c >> b) * s for c, b, s in zip(coords, mem.bits, mem.strides))
    return mem.offset(coords) - outer, outer


@cache
def thread_offsets(layout: Layout, mem: Memory) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """((lane XOR bases, warp XOR bases), (lane ADD bases, warp ADD bases)); the ADD parts never share a carry."""
    xor, add, seen = [], [], [0] * len(mem.bits)
    for name in ("lane", "warp"):
        parts = []
        for basis in layout.bases(name):
            coords = layout.unpack(basis)
            for d, (c, b) in enumerate(zip(coords, mem.bits)):
                if c >> b & seen[d]:
                    raise InternalError(f"{layout} has dependent threads above the atom of {mem}")
                seen[d] |= c >> b
            parts.append(split_offset(mem, coords))
        xor.append(tuple(x for x, _ in parts))
        add.append(tuple(a for _, a in parts))
    return tuple(xor), tuple(add)


def shared_addresses(low: Lowering, buf: Value, layout: Layout, firsts: tuple[int, ...]) -> list[str]:
    """Address (ptr addrspace(3)) of the element that each of these registers holds."""
    w = low.w
    t, mem = buffer_type(buf)
    size = t.dtype.bytes
    xor_bases, add_bases = thread_offsets(layout, mem)
    base = low.thread_linear(*(tuple(b * size for b in bases) for bases in xor_bases))
    outer = "0"
    for name, bases in zip((low.lane, low.warp), add_bases):
        for i, b in enumerate(bases):
            if b:
                bit = w.masked_shift(name, 1 << i, -i) if i else w.assign(f"and i32 {name}, 1")
                outer = w.add(outer, w.assign(f"mul i32 {bit}, {b * size}"))
    start = low.scalar(buf)
    fixed = int(start) if start.isdigit() else 0
    if not start.isdigit():
        outer = w.add(outer, start)
    made: dict[int, str] = {}
    held, out = coordinates_of(layout), []
    for r in firsts:
        x, a = split_offset(mem, held[r])
        if x not in made:
            offset = w.add(w.xor(base, str(x * size)), outer)
            made[x] = w.assign(f"getelementptr i8, ptr addrspace(3) @smem, i32 {offset}")
        out.append(w.assign(f"getelementptr i8, ptr addrspace(3) {made[x]}, i32 {fixed + a * size}"))
    return out


@cache
def shared_runs(layout: Layout, mem: Memory, size: int) -> tuple[tuple[int, ...], ...]:
    """Registers in groups that one shared-memory access serves, in memory order.

    Threads whose own part has low offset bits would hold a vector in another order, so such bits end the vector.
    """
    v = vector_bits(layout, mem, size)
    low_bits = 0
    for bases in (*thread_offsets(layout, mem)[0], *thread_offsets(layout, mem)[1]):
        for b in bases:
            low_bits |= b
    while low_bits & ((1 << v) - 1):
        v -= 1
    groups: dict[int, list[tuple[int, int]]] = {}
    for coords, r in register_of(layout).items():
        offset = mem.offset(coords)
        groups.setdefault(offset >> v, []).append((offset, r))
    return tuple(tuple(r for _, r in sorted(g)) for g in groups.values())


@lowers("local_store")
def local_store(low: Lowering, op: Op) -> None:
    buf, value = op.inputs
    d, layout = element_of(value.type), layout_of(value)
    _, mem = buffer_type(buf)
    groups = shared_runs(layout, mem, d.bytes)
    owner = low.owner(layout)
    addresses = shared_addresses(low, buf, layout, tuple(g[0] for g in groups))
    done = None
    if owner is not None:
        then, done = low.w.new_block("own"), low.w.new_block("owned")
        low.w.branch(owner, then, done)
        low.w.start(then)
    for group, address in zip(groups, addresses):
        bits, _ = word_shape(len(group), d.bytes)
        store_words(low.w, f"ptr addrspace(3) {address}", low.words(value, group), bits)
    if done is not None:
        low.w.jump(done)
        low.w.start(done)


@lowers("local_load")
def local_load(low: Lowering, op: Op) -> None:
    buf = op.inputs[0]
    d, layout = element_of(op.result.type), layout_of(op.result)
    _, mem = buffer_type(buf)
    groups = shared_runs(layout, mem, d.bytes)
    addresses = shared_addresses(low, buf, layout, tuple(g[0] for g in groups))
    words = []
    for group, address in zip(groups, addresses):
        bits, n = word_shape(len(group), d.bytes)
        t, load = load_text(f"ptr addrspace(3) {address}", bits, n)
        words.append((group, take_apart(low.w, t, low.w.assign(load), n)))
    low.set_words(op.result, words)


# ------------------------------------------------------------------------------------------------ elements by index
def element_address(low: Lowering, buf: Value, coords: list[str]) -> str:
    """Address of the element at run-time coordinates (i32 names)."""
    w = low.w
    t, mem = buffer_type(buf)
    size = t.dtype.bytes
    inner, outer = "0", low.scalar(buf)
    for c, bits, bases, stride in zip(coords, mem.bits, mem.bases, mem.strides):
        inner = w.xor(inner, w.linear(c, [b * size for b in bases]))
        if c.isdigit() or mem.shape == tuple(1 << b for b in mem.bits):
            high = str(int(c) >> bits) if c.isdigit() else "0"
        else:
            high = w.assign(f"lshr i32 {c}, {bits}")
        if high != "0":
            outer = w.add(outer, w.assign(f"mul i32 {high}, {stride * size}"))
    return w.assign(f"getelementptr i8, ptr addrspace(3) @smem, i32 {w.add(inner, outer)}")


def _indexed(low: Lowering, buf: Value, indices: Value, axis: int) -> list[str]:
    """Address per register: its own coordinates, with the index along `axis`."""
    layout = layout_of(indices)
    rank = len(layout.shape)
    columns = [low.get(indices) if d == axis else low.coordinate(layout, d) for d in range(rank)]
    return [element_address(low, buf, list(coords)) for coords in zip(*columns)]


@lowers("local_gather")
def local_gather(low: Lowering, op: Op) -> None:
    buf, indices = op.inputs
    element = element_of(op.result.type)
    words = []
    for r, address in enumerate(_indexed(low, buf, indices, op.attrs["axis"])):
        bits, n = word_shape(1, element.bytes)
        t, load = load_text(f"ptr addrspace(3) {address}", bits, n)
        words.append(((r,), take_apart(low.w, t, low.w.assign(load), n)))
    low.set_words(op.result, words)


@lowers("local_scatter")
def local_scatter(low: Lowering, op: Op) -> None:
    buf, value, indices = op.inputs
    bits, _ = word_shape(1, element_of(value.type).bytes)
    for r, address in enumerate(_indexed(low, buf, indices, op.attrs["axis"])):
        store_words(low.w, f"ptr addrspace(3) {address}", low.words(value, (r,)), bits)
