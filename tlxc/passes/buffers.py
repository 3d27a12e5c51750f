"""Memory layouts of buffers, of their views and of TMA blocks.

Invariant after the pass: every buffer has a layout, a view the one that follows from its source; every descriptor has
the layout of the buffers that it fills or reads; and each buffer is laid out as TMA, bulk copies and wgmma need it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import gcd, prod
from typing import NamedTuple

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Value
from tlxc.ir.memory import CORE, Memory, row_major, swizzled, widest_swizzle
from tlxc.ir.types import Barrier, Buffer, Descriptor, DType, element_of
from tlxc.targets import Target

SWIZZLES = (128, 64, 32, CORE)  # bytes of a row
MAX_RANK = 5  # of a tensor map
CHUNK = 16  # bytes that an inner row of a TMA box is a multiple of
TMA_ALIGNMENT = 128  # bytes, of shared memory that TMA fills without a swizzle


def assign_buffers(module: Module, target: Target) -> None:
    """Rewrites the types of buffers, views and descriptors; see the invariant of this module."""
    dots = (op for op in module.walk() if op.kind == "async_dot")
    multiplied = {_laid_out_by(v) for op in dots for v in op.inputs[:2] if isinstance(v.type, Buffer)}
    for op in module.walk():
        _refuse_chosen(op)
        for v in op.results:
            if isinstance(v.type, Buffer):
                v.type = replace(v.type, layout=_layout(op, v.type, target, op in multiplied))
    _describe(module, target)
    for op in module.walk():
        if check := _CHECKS.get(op.kind):
            check(op)


def default_memory(shape: tuple[int, ...], elem: int, target: Target) -> Memory:
    """Layout of a buffer that its user left open: the widest swizzle that the shape admits, for TMA and wgmma."""
    return widest_swizzle(shape, elem) if len(shape) > 1 and target.vendor == "nvidia" else row_major(shape)


def _operand_memory(shape: tuple[int, ...], elem: int, target: Target) -> Memory:
    """The same for a buffer that wgmma reads: where no swizzle fits, columns of the 8x8 matrices that it takes."""
    mem = default_memory(shape, elem, target)
    fits = len(shape) > 1 and shape[-1] * elem % CORE == 0 and shape[-2] % 8 == 0
    return swizzled(shape, elem, CORE) if fits and not swizzle_width(mem, elem) else mem


def memory_of(v: Value) -> Memory:
    assert isinstance(v.type, Buffer) and v.type.layout is not None
    return v.type.layout


def allocation(v: Value) -> Op:
    """The allocation behind a view."""
    assert v.op is not None
    return v.op if v.op.kind == "local_alloc" else allocation(v.op.inputs[0])


def _laid_out_by(v: Value) -> Op:
    """The op from which the layout of a view follows."""
    assert v.op is not None
    return _laid_out_by(v.op.inputs[0]) if v.op.kind in _VIEWS else v.op


def _refuse_chosen(op: Op) -> None:
    """Where a buffer lies is known at compile time, but for the index into its array."""
    carried = [*op.results, *(a for r in op.regions for a in r.args)] if op.regions else []
    for v in carried:
        if isinstance(v.type, (Buffer, Barrier, Descriptor)):
            raise CompileError(
                "a buffer, barrier or descriptor is carried by a loop or chosen by an `if`",
                found=f"{v.name or 'a value'} of type {v.type}",
                allowed="one object in every iteration and branch",
                fix="allocate one array, and carry or choose the index into it",
                loc=op.loc,
            )


# ------------------------------------------------------------------------------------------------ layouts
def _layout(op: Op, t: Buffer, target: Target, multiplied: bool) -> Memory:
    """`multiplied`: wgmma reads what is laid out here."""
    if op.kind in _VIEWS:
        return _VIEWS[op.kind](op)
    if t.layout is not None and op.kind == "local_alloc":
        return t.layout  # the user's
    fresh = t.layout or (_operand_memory if multiplied else default_memory)(t.shape, t.dtype.bytes, target)
    if op.kind == "local_reinterpret":
        _check_reinterpret(op, replace(t, layout=fresh))
    return fresh


def _slice(op: Op) -> Memory:
    (source,) = op.inputs
    t = op.result.type
    assert isinstance(t, Buffer)
    found = slice_memory(memory_of(source), tuple(op.attrs["offsets"]), t.shape)
    if found is None:
        mem = memory_of(source)
        raise CompileError(
            "this local_slice cuts a swizzle atom",
            found=f"offsets {tuple(op.attrs['offsets'])} and shape {t.shape} in a buffer laid out as {mem}",
            allowed=f"offsets and extents in multiples of {tuple(1 << b for b in mem.bits)} elements",
            fix="slice along whole atoms, or allocate the parts as buffers of their own",
            loc=op.loc,
            related=[("the buffer is allocated", allocation(source).loc)],
        )
    return found


_VIEWS: dict[str, Callable[[Op], Memory]] = {
    "local_view": lambda op: memory_of(op.inputs[0]),
    "local_trans": lambda op: memory_of(op.inputs[0]).transpose(op.attrs["order"]),
    "local_slice": _slice,
}


def slice_memory(mem: Memory, offsets: tuple[int, ...], shape: tuple[int, ...]) -> Memory | None:
    """Layout of a box inside `mem`, relative to the offset of its first element; None where the box cuts an atom.

    A dimension whose bits no other dimension is XORed with may be cut inside the atom: its higher bits become
    repetitions.  So may the contiguous one where the start is not aligned to it.
    """
    start = mem.offset(offsets)
    bits, bases, reps, strides = [], [], [], []
    for d, (at, n, b, bs, stride) in enumerate(zip(offsets, shape, mem.bits, mem.bases, mem.strides)):
        cut = min(b, _zeros(at | n))
        if bs[:1] == (1,):
            cut = min(cut, _zeros(start))
        if cut < b:
            one_repetition = at >> b == (at + n - 1) >> b
            if not _linear(mem, d) or not (one_repetition or stride == bs[0] << b):
                return None
            stride = bs[cut]
        bits.append(cut)
        bases.append(bs[:cut])
        reps.append(n >> cut)
        strides.append(stride)
    return Memory(tuple(bits), tuple(bases), tuple(reps), tuple(strides))


def _zeros(n: int) -> int:
    """Trailing zero bits; many for zero."""
    return (n & -n).bit_length() - 1 if n else 64


def _linear(mem: Memory, d: int) -> bool:
    """Whether the dimension steps evenly, in offset bits of its own."""
    own, others = mem.bases[d], [b for i, bs in enumerate(mem.bases) if i != d for b in bs]
    taken = sum(own)
    return all(b == own[0] << i for i, b in enumerate(own)) and not any(b & taken for b in others)


def _check_reinterpret(op: Op, t: Buffer) -> None:
    """The new view covers bytes of the source only, and starts where its swizzle may start."""
    (source,) = op.inputs
    s, mem = source.type, memory_of(source)
    assert isinstance(s, Buffer)
    dense = mem.extent == prod(mem.shape)
    if t.nbytes <= s.nbytes and dense and _start(source) % alignment(t) == 0:
        return
    raise CompileError(
        "this local_reinterpret does not fit the buffer that it views",
        found=f"{t} of {t.nbytes} bytes in {s} of {s.nbytes} bytes",
        allowed=f"whole buffers without gaps; at most the bytes of the source; tiles that start at multiples of "
        f"{alignment(t)} bytes for the swizzle of the new view",
        loc=op.loc,
        related=[("the buffer is allocated", allocation(source).loc)],
    )


def alignment(t: Buffer) -> int:
    """Bytes to which a buffer of this layout starts aligned: the 8-row atom of its swizzle, else one access."""
    width = swizzle_width(t.layout, t.dtype.bytes) if t.layout is not None else 0
    return 8 * width or CHUNK


def _start(v: Value) -> int:
    """A number of bytes of which the distance of a view from its allocation is a multiple; 0 where it starts there."""
    op = v.op
    assert op is not None
    if op.kind == "local_alloc":
        return op.attrs["alias"][1] if "alias" in op.attrs else 0
    (source, *_), t = op.inputs, op.result.type
    assert isinstance(t, Buffer)
    step = 0
    if op.kind == "local_view":
        assert isinstance(source.type, Buffer)
        if source.type.count > 1:
            step = gcd(source.type.pitch, t.tile_bytes if source.type.group > 1 or not source.type.pitch else 0)
    elif op.kind == "local_slice":
        step = memory_of(source).offset(op.attrs["offsets"]) * t.dtype.bytes
    return gcd(_start(source), step)


def swizzle_width(mem: Memory, elem: int) -> int:
    """Bytes of a row of the hardware swizzle that the layout repeats in two of its dimensions, CORE where it repeats
    8x8 matrices without one; 0 for other layouts."""
    active = [d for d, b in enumerate(mem.bits) if b]
    fast = next((d for d in active if mem.bases[d][0] == 1), None)
    if fast is None or len(active) != 2:
        return 0
    slow = active[0] + active[1] - fast
    width = elem << mem.bits[fast]
    if width not in SWIZZLES:
        return 0
    atom = swizzled((8, width // elem), elem, width)
    dense = mem.strides[slow] == 8 * width // elem
    return width if (mem.bases[slow], mem.bases[fast]) == atom.bases and dense else 0


# ------------------------------------------------------------------------------------------------ descriptors
class _Touched(NamedTuple):
    """The layout in which a copy of a descriptor sees its block, and the two places in the source."""

    block: Memory
    copy: Op
    buffer: Op


def _describe(module: Module, target: Target) -> None:
    """Gives descriptors the layout of their buffers, or the default where no copy uses them."""
    touched: dict[Hashable, _Touched] = {}
    made = {_map_of(op.inputs[0]): op for op in module.walk() if op.kind == "encode_descriptor"}
    for op in module.walk():
        if op.kind in ("tma_load", "tma_store"):
            desc, buf = op.inputs[:2]
            if desc.op is not None and _map_of(desc) not in made:
                raise _unmade(op, desc)
            if op.kind == "tma_store" and desc.op is not None:
                _check_rows(op, made[_map_of(desc)])
            new = _Touched(_block(op, desc, memory_of(buf)), op, allocation(buf))
            old = touched.setdefault(_map_of(desc), new)
            if old.block != new.block:
                raise _conflict(desc, old, new)
    values = [p.value for p in module.params] + [v for op in module.walk() for v in op.results]
    maps = {v: _map_of(v) for v in values if isinstance(v.type, Descriptor)}
    for v, key in maps.items():
        d = v.type
        assert isinstance(d, Descriptor)
        fallback = d.box_layout or default_memory(d.shape, d.dtype.bytes, target)
        v.type = replace(d, box_layout=touched[key].block if key in touched else fallback)


def _check_rows(store: Op, encode: Op) -> None:
    """Measured on an H200: a store writes the last 16 bytes of a row whole, beyond the extent where that is smaller.
    Extents that are known at run time only are the author's affair."""
    d = encode.inputs[0].type
    assert isinstance(d, Descriptor)
    last = encode.inputs[2 + len(d.shape)].op
    if last is not None and last.kind == "constant" and last.attrs["value"] * d.dtype.bytes % CHUNK:
        raise CompileError(
            f"a store by this descriptor would write beyond the rows of its tensor, to a multiple of {CHUNK} bytes",
            found=f"rows of {last.attrs['value'] * d.dtype.bytes} bytes",
            allowed=f"a last extent that is a multiple of {CHUNK // d.dtype.bytes} elements of {d.dtype!r}",
            fix="store with tl.store, or make the rows longer if what follows them may be overwritten",
            loc=store.loc,
            related=[("the descriptor is made", encode.loc)],
        )


def _map_of(desc: Value) -> Hashable:
    """What descriptors have in common that share a tensor map, as far as its box goes: a parameter is its own; those
    that a kernel makes agree in the allocation of their slots and in their blocks."""
    v, d = desc, desc.type
    assert isinstance(d, Descriptor)
    while v.op is not None and v.op.inputs:
        v = v.op.inputs[0]
    return desc if v.op is None else (v.op.attrs["offset"], d.shape, d.dtype)


def _unmade(op: Op, desc: Value) -> CompileError:
    assert isinstance(desc.type, Descriptor)
    return CompileError(
        "no tlx.make_tensor_descriptor fills the slots of this descriptor with such blocks",
        found=f"a copy of blocks {desc.type.shape} of {desc.type.dtype!r}",
        allowed="the block_shape and the dtype that some slot of the allocation is filled with",
        fix="give tlx.reinterpret_tensor_descriptor the block_shape of tlx.make_tensor_descriptor, and the dtype of "
        "its base",
        loc=op.loc,
        related=[("the descriptor is taken from its slot", desc.op.loc if desc.op else None)],
    )


def _block(op: Op, desc: Value, mem: Memory) -> Memory:
    """The buffer's layout over the dimensions of the block; further leading ones have extent 1."""
    assert isinstance(desc.type, Descriptor)
    extra = len(mem.shape) - len(desc.type.shape)
    if prod(mem.shape[:extra]) != 1:
        raise CompileError(
            "the buffer of a TMA copy holds more than one block",
            found=f"a buffer {mem.shape} for blocks {desc.type.shape}",
            allowed="the block's extents, with any number of extents of 1 before them",
            loc=op.loc,
        )
    return Memory(mem.bits[extra:], mem.bases[extra:], mem.reps[extra:], mem.strides[extra:])


def _conflict(desc: Value, old: _Touched, new: _Touched) -> CompileError:
    places = [(t, t.buffer.result.name or "a buffer") for t in (old, new)]
    return CompileError(
        f"the descriptor {desc.name or ''} copies to and from buffers of two layouts".replace("  ", " "),
        found=" and ".join(f"{name} with {t.block}" for t, name in places),
        allowed="one layout for all buffers of a descriptor: its tensor map has one box and one swizzle",
        fix="give the buffers one shape and layout, or pass a second descriptor"
        + ("" if desc.op is None else ", in slots of an allocation of its own"),
        loc=new.copy.loc,
        related=[
            (f"{name} is {what}", where.loc)
            for t, name in places
            for what, where in (("allocated", t.buffer), ("copied", t.copy))
            if where is not new.copy
        ],
    )


# ------------------------------------------------------------------------------------------------ what hardware needs
def _refusal(what: str, op: Op, buf: Value, why: str, allowed: str, fix: str) -> CompileError:
    t = buf.type
    assert isinstance(t, Buffer)
    return CompileError(
        what,
        found=f"a buffer {t.shape} of {t.dtype!r} laid out as {t.layout}: {why}",
        allowed=allowed,
        fix=fix,
        loc=op.loc,
        related=[("the buffer is allocated", allocation(buf).loc)],
    )


def _check_tma(op: Op) -> None:
    """TMA writes dense rows, plain or in a hardware swizzle, from an aligned start."""
    desc, buf = op.inputs[:2]
    d, t = desc.type, buf.type
    assert isinstance(d, Descriptor) and isinstance(t, Buffer) and d.box_layout is not None
    mem, elem = d.box_layout, d.dtype.bytes
    width = swizzle_width(mem, elem)
    row = d.shape[-1] * elem
    if not 1 <= len(d.shape) <= MAX_RANK:
        why = f"the block has {len(d.shape)} dimensions"
    elif row % CHUNK:
        why = f"a row of the block has {row} bytes"
    elif not _contiguous(mem, width):
        why = "the last dimension is not the contiguous one, or rows are swizzled as TMA does not"
    elif _start(buf) % (8 * width or TMA_ALIGNMENT):
        why = f"it starts at a multiple of {_start(buf)} bytes"
    else:
        return
    raise _refusal(
        "TMA cannot copy this buffer",
        op,
        buf,
        why,
        f"at most {MAX_RANK} dimensions; rows in multiples of {CHUNK} bytes; row-major or a swizzle "
        f"of 32, 64 or 128 bytes; buffers of an array, and slices, that start at multiples of {TMA_ALIGNMENT} bytes",
        "leave out the layout of the buffer, pad its rows, or copy with tl.load and tlx.local_store",
    )


def _contiguous(mem: Memory, width: int) -> bool:
    """Whether rows along the last dimension are whole: swizzled along it, or plain."""
    *outer, last = range(len(mem.bits))
    if width:
        return mem.bits[last] > 0 and mem.bases[last][0] == 1 and not any(mem.bits[:-2])
    plain = mem.bases[last][:1] == (1,) or mem.bits[last] == 0 and (mem.strides[last] == 1 or mem.reps[last] == 1)
    return plain and all(_linear(mem, d) for d in outer if mem.bits[d]) and (not mem.bits[last] or _linear(mem, last))


def _check_bulk(op: Op) -> None:
    buf = next(v for v in op.inputs if isinstance(v.type, Buffer))
    t = buf.type
    assert isinstance(t, Buffer)
    if memory_of(buf) == row_major(t.shape):
        return
    raise _refusal(
        "a bulk copy moves contiguous bytes, but the buffer is not row-major",
        op,
        buf,
        "its rows are swizzled or have gaps",
        "buffers of one dimension, and row-major ones",
        "allocate the buffer with one dimension, or copy by descriptor",
    )


def _check_remote(op: Op) -> None:
    dst, src = op.inputs[:2]
    mem = memory_of(src)
    if memory_of(dst) == mem and mem.extent == prod(mem.shape):
        return
    raise _refusal(
        "async_remote_copy moves contiguous bytes between buffers of one layout",
        op,
        dst,
        f"the source is laid out as {mem}",
        "whole buffers of one shape, dtype and layout",
        "copy the whole buffer, or load it and use async_remote_store",
    )


def _check_wgmma(op: Op) -> None:
    """Operands in shared memory are columns of a swizzle's width, or of 16 bytes; only those of 16 bits may be
    contiguous along M or N."""
    for name, v, k_dim in zip("AB", op.inputs, (1, 0)):
        if not isinstance(v.type, Buffer):
            continue
        mem, e = memory_of(v), element_of(v.type)
        assert isinstance(e, DType)
        if not swizzle_width(mem, e.bytes):
            why = "its rows are plain"
        elif e.bytes != 2 and mem.bases[k_dim][:1] != (1,):
            why = f"{e!r} is contiguous along {'MN'[1 - k_dim]}"
        else:
            continue
        raise _refusal(
            f"wgmma cannot read operand {name} from this buffer",
            op,
            v,
            why,
            "a swizzle of 32, 64 or 128 bytes, or columns of 16 bytes without one: the contiguous extent in units of "
            "these, the other in units of 8; 16-bit elements contiguous along K, M or N, wider and narrower ones "
            "along K",
            "pad the extents, leave out the layout of the buffer, or let the producer transpose",
        )


_CHECKS: dict[str, Callable[[Op], None]] = {
    "tma_load": _check_tma,
    "tma_store": _check_tma,
    "bulk_load": _check_bulk,
    "bulk_store": _check_bulk,
    "async_remote_copy": _check_remote,
    "async_dot": _check_wgmma,
}
