"""Asynchronous copies between global and shared memory: TMA by descriptor, bulk copies, `cp.async` groups."""

from __future__ import annotations

from math import prod
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.core import Op, Value
from tlxc.ir.ops.memory import LEVELS
from tlxc.ir.ops.tma import EVICTION, REDUCTIONS
from tlxc.ir.types import Barrier, Buffer, Descriptor, DType, Pointer, Tensor, Token, int1, int32

from .barrier import check_rank, cluster_rank
from .context import Private, current
from .core import builder, builtin, constant, describe, literal_int, name_of, tensor
from .handles import (
    a_descriptor,
    async_token,
    buffered_tensor,
    items_of,
    one_barrier,
    one_buffer,
    predicate,
    require_cluster,
    require_feature,
    scalar_i32,
    tensor_descriptor,
)
from .memory import to_element
from .promotion import is_literal
from .shape import fit_shape

# What a reducing store computes on, by the short names of the dtypes.  Measured on an H200: any other pair, bitwise
# operations on i64 too, is an illegal instruction.
_REDUCE_DTYPES = {
    "add": "i32 u32 u64 f32 f16 bf16",
    "min": "i32 u32 i64 u64 f16 bf16",
    "max": "i32 u32 i64 u64 f16 bf16",
    "and": "i32 u32 u64",
    "or": "i32 u32 u64",
    "xor": "i32 u32 u64",
}
CHUNK = 16  # bytes that the innermost offset of a TMA copy is a multiple of
_WIDTHS = (4, 8, 16)  # bytes that one cp.async moves
_CACHE = ("", ".ca", ".cg")


# -------------------------------------------------------------------------------------------------------- arguments
def _choice(value: Any, names: tuple[str, ...], what: str) -> str:
    if value not in names:
        raise CompileError(f"unknown {what}", found=describe(value), allowed=", ".join(map(repr, names)))
    return str(value)


def _given(**attrs: str) -> dict[str, Any]:
    """Attributes without those that are empty."""
    return {name: text for name, text in attrs.items() if text}


def _offsets(offsets: Any, kind: Descriptor, what: str) -> list[Value]:
    """One offset per dimension; what the unit cannot do shows here where an offset is known.

    Measured on an H200: a copy whose innermost offset is not a multiple of 16 bytes is an illegal instruction.
    """
    items = items_of(offsets, f"the offsets of {what}")
    if len(items) != len(kind.shape):
        raise CompileError(
            f"{what} takes one offset per dimension of the descriptor",
            found=f"{len(items)} offsets for blocks {kind.shape}",
            allowed=str(len(kind.shape)),
        )
    if is_literal(items[-1]) and items[-1] * kind.dtype.bytes % CHUNK:
        raise CompileError(
            f"the last offset of {what} is not a multiple of {CHUNK} bytes",
            found=f"{items[-1]} elements of {kind.dtype!r}",
            allowed=f"multiples of {CHUNK // kind.dtype.bytes} elements along the last dimension",
            fix="begin at such a multiple, or copy with tl.load and tl.store instead",
        )
    return [scalar_i32(x, f"an offset of {what}") for x in items]


def _store_offsets(offsets: Any, kind: Descriptor, what: str) -> list[Value]:
    """Stores begin inside the tensor; loads may begin before it."""
    for x in items_of(offsets, f"the offsets of {what}"):
        if is_literal(x) and x < 0:
            raise CompileError(
                "a store of a block begins before its tensor",
                found=f"the offset {x}",
                allowed="offsets of 0 and more; the block may end beyond the tensor",
                fix="store the part that lies inside with tl.store",
            )
    return _offsets(offsets, kind, what)


def _block(x: Any, desc: tensor_descriptor, what: str) -> buffered_tensor:
    """A buffer that holds one block of the descriptor, leading extents of 1 allowed."""
    buffer, kind = one_buffer(x, what), desc.descriptor
    extra = len(buffer.shape) - len(kind.shape)
    if buffer.dtype != kind.dtype or buffer.shape != (1,) * extra + kind.shape:
        raise CompileError(
            f"{what} is no block of the descriptor",
            found=f"{buffer.describe()}, {desc.describe()}",
            allowed=f"a buffer {kind.shape} of {kind.dtype!r}",
            fix="give buffer and block_shape the same extents and dtype",
        )
    return buffer


def _multicast(targets: Any) -> Value | None:
    """The mask of CTA ranks that receive a copy."""
    ranks = items_of(targets, "multicast_targets")
    if not ranks:
        return None
    require_cluster("async_descriptor_load with multicast_targets")
    mask: Any = 0
    for rank in ranks:
        mask = mask | (1 << (check_rank(rank) if isinstance(rank, int) else tensor(cluster_rank(rank))))
    return scalar_i32(mask, "the multicast mask")


# --------------------------------------------------------------------------------------------------------------- TMA
@builtin
def async_descriptor_load(
    desc: Any,
    result: Any,
    offsets: Any,
    barrier: Any,
    pred: Any = None,
    cache_modifier: str = "",
    eviction_policy: str = "",
    multicast_targets: Any = (),
) -> None:
    """Starts to copy the block of `desc` at `offsets` (elements, one integer scalar per dimension) to the buffer
    `result`; its bytes are signalled at `barrier`, where `barrier_expect_bytes` announced them before.

    The buffer has the shape and dtype of a block.  Elements outside the tensor arrive as the descriptor's padding and
    count as bytes.  `pred`: a bool scalar, false for no copy; `eviction_policy`: "" evict_first evict_last.
    `multicast_targets`: ranks of the CTAs that receive the block in the same place, as range(2) or [0, rank], each of
    which announces its bytes.
    Targets: sm_90 and later.  Errors: a buffer that is no block; a wrong number of offsets; an int as last
    offset that is no multiple of 16 bytes; multicast without a cluster.
    Instruction: `cp.async.bulk.tensor` (PTX ISA, "cp.async.bulk.tensor").
    """
    require_feature("tma", "async_descriptor_load")
    source = a_descriptor(desc, "the first argument of async_descriptor_load")
    target = _block(result, source, "the result of async_descriptor_load")
    signal = one_barrier(barrier, "the barrier of async_descriptor_load")
    _choice(cache_modifier, ("",), "cache_modifier of async_descriptor_load")
    eviction = _choice(eviction_policy, EVICTION, "eviction_policy of async_descriptor_load")
    places = _offsets(offsets, source.descriptor, "async_descriptor_load")
    operands = (source.value, target.value, signal.value, predicate(pred), _multicast(multicast_targets), *places)
    builder().op("tma_load", operands, **_given(eviction=eviction))


@builtin
def async_descriptor_store(
    desc: Any, source: Any, offsets: Any, eviction_policy: str = "", store_reduce: str = ""
) -> None:
    """Starts to copy the buffer `source` to the block of `desc` at `offsets`; elements outside the tensor are dropped.
    The block may end beyond the tensor and not begin before it: no offset is negative, which at run time nothing checks
    but the emulator (CUDA C++ Programming Guide, "Tensor Memory Access").

    `store_reduce`: "" to write, or add, min, max, and, or, xor to combine with what is there, atomically per element.
    Rows of the tensor are multiples of 16 bytes, for the hardware writes their last 16 bytes whole.
    The copy reads the buffer until `async_descriptor_store_wait` says that it is done; what the task stored to the
    buffer before is ordered before it.  `eviction_policy`: "" evict_first evict_last.
    Targets: sm_90 and later.  Errors: a buffer that is no block; a wrong number of offsets; a negative int as offset,
    or as last one an int that is no multiple of 16 bytes; a reduction that the dtype lacks.
    Instruction: `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor` and `cp.async.bulk.commit_group`.
    """
    require_feature("tma", "async_descriptor_store")
    target = a_descriptor(desc, "the first argument of async_descriptor_store")
    buffer = _block(source, target, "the source of async_descriptor_store")
    eviction = _choice(eviction_policy, EVICTION, "eviction_policy of async_descriptor_store")
    combine = _choice(store_reduce, REDUCTIONS, "store_reduce")
    if combine and target.dtype.short not in _REDUCE_DTYPES[combine].split():
        raise CompileError(
            f"store_reduce={combine!r} does not compute on {target.dtype!r}",
            found=target.describe(),
            allowed=_REDUCE_DTYPES[combine].replace(" ", ", "),
        )
    places = _store_offsets(offsets, target.descriptor, "async_descriptor_store")
    operands = (target.value, buffer.value, *places)
    builder().op("tma_store", operands, **_given(reduce=combine, eviction=eviction))


@builtin
def async_descriptor_store_wait(pendings: int = 0, read: bool = False) -> None:
    """Waits until at most `pendings` of the newest bulk stores of this task are under way: the others are complete in
    global memory or, with `read=True`, have read their buffers, which may then be written again.

    Both are compile-time.  Targets: sm_90 and later.  Errors: a negative number.
    Instruction: `cp.async.bulk.wait_group`, `.read` (PTX ISA, "cp.async.bulk.wait_group").
    """
    require_feature("bulk", "async_descriptor_store_wait")
    builder().op("tma_store_wait", pendings=_pendings(pendings), read=_flag(read, "read"))


@builtin
def async_descriptor_prefetch_tensor(desc: Any, offsets: Any, pred: Any = None, eviction_policy: str = "") -> None:
    """Brings the block of `desc` at `offsets` to the L2 cache.

    `pred`: a bool scalar; `eviction_policy`: "" evict_first evict_last.  Targets: sm_90 and later.
    Errors: a wrong number of offsets; an int as last offset that is no multiple of 16 bytes.
    Instruction: `cp.async.bulk.prefetch.tensor`.
    """
    require_feature("tma", "async_descriptor_prefetch_tensor")
    source = a_descriptor(desc, "the first argument of async_descriptor_prefetch_tensor")
    eviction = _choice(eviction_policy, EVICTION, "eviction_policy of async_descriptor_prefetch_tensor")
    places = _offsets(offsets, source.descriptor, "async_descriptor_prefetch_tensor")
    builder().op("tma_prefetch", (source.value, predicate(pred), *places), **_given(eviction=eviction))


@builtin
def prefetch_descriptor(desc: Any) -> None:
    """Brings the tensor map of `desc` to the descriptor cache.  Targets: sm_90 and later.
    Instruction: `prefetch.tensormap` (PTX ISA, "prefetch")."""
    require_feature("tma", "prefetch_descriptor")
    builder().op("prefetch_descriptor", (a_descriptor(desc, "the argument of prefetch_descriptor").value,))


# -------------------------------------------------------------------------------------------------- synchronous copies
def _private(desc: tensor_descriptor, barrier: bool) -> Private:
    """The buffer of this place in the text, allocated before everything else so that no task owns it."""
    context, kind = current(), desc.descriptor
    build, task = context.builder, context.task
    key = (build.loc, id(task), kind, barrier)  # the entry keeps the task, so its id stays its own
    if key not in context.private:
        made = [Op("local_alloc", (), (Buffer(kind.shape, kind.dtype),), loc=build.loc)]
        if barrier:
            made.append(Op("alloc_barriers", (), (Barrier(),), {"arrive_count": 1}, loc=build.loc))
        build.module.body.ops[:0] = made
        context.private[key] = Private(made[0].result, made[1].result if barrier else None, task)
    return context.private[key]


def descriptor_load(desc: tensor_descriptor, offsets: Any) -> tensor:
    """`desc.load(offsets)`."""
    require_feature("tma", "desc.load")
    kind = desc.descriptor
    places = _offsets(offsets, kind, "desc.load")
    own = _private(desc, barrier=True)
    add = builder()
    add.op("barrier_expect", (own.barrier, None), bytes=prod(kind.shape) * kind.dtype.bytes)
    add.op("tma_load", (desc.value, own.buffer, own.barrier, None, None, *places))
    first = constant(0, int32).value  # the phase of every later wait follows from the ones before it
    own.waits.append(add.op("barrier_wait", (own.barrier, first, None)))
    return tensor(add.emit("local_load", own.buffer, type=Tensor(kind.shape, kind.dtype)))


def descriptor_store(desc: tensor_descriptor, offsets: Any, value: Any) -> None:
    """`desc.store(offsets, value)`."""
    require_feature("tma", "desc.store")
    kind = desc.descriptor
    if not isinstance(value, tensor) or value.shape != kind.shape:
        raise CompileError(
            "desc.store writes a tile of the descriptor's block shape",
            found=f"{describe(value)}, {desc.describe()}",
            allowed=f"a tile {kind.shape}",
        )
    tile = to_element(value, kind.dtype, "the stored value")
    places = _store_offsets(offsets, kind, "desc.store")
    own = _private(desc, barrier=False)
    add = builder()
    add.op("local_store", (own.buffer, tile.value))
    add.op("tma_store", (desc.value, own.buffer, *places))
    add.op("tma_store_wait", pendings=0, read=False)


# ------------------------------------------------------------------------------------------- copies by threads and bulk
@builtin
def async_load(
    src: Any,
    result: Any,
    mask: Any = None,
    other: Any = None,
    cache_modifier: str = "",
    eviction_policy: str = "",
    bulk: bool = False,
    bulk_size: Any = None,
    barrier: Any = None,
) -> async_token | None:
    """Starts to copy global memory to the buffer `result`.

    Without `bulk`: `src` is a tile of pointers of the buffer's shape, `mask` (bool) and `other` broadcast to it; masked
    elements become `other`, or 0 without it.  A thread moves runs of 4, 8 or 16 bytes.  Close a group with
    `async_load_commit_group`, wait with `async_load_wait_group`.  `cache_modifier`: "" .ca .cg.
    With `bulk=True`: `src` is a scalar pointer, `result` a buffer of rank 1; `bulk_size` bytes (default: all of it; a
    multiple of 16) are copied and signalled at `barrier`, where `barrier_expect_bytes` announced them.  No token.
    Targets: sm_90 and later.  Errors: other shapes or dtypes; mask or other with bulk;
    bulk_size or barrier without it.
    Instruction: `cp.async`, `cp.async.bulk.shared::cta.global` (PTX ISA, "cp.async", "cp.async.bulk").
    """
    target = one_buffer(result, "the result of async_load")
    if _flag(bulk, "bulk"):
        _bulk_load(src, target, bulk_size, barrier, given={"mask": mask, "other": other})
        return None
    if bulk_size is not None or barrier is not None:
        raise CompileError(
            "async_load takes bulk_size and barrier for a bulk copy only",
            fix="write bulk=True, or wait with tlx.async_load_wait_group",
        )
    require_feature("cp.async", "async_load")
    pointer = _addresses(src, target)
    keep, fill = _masked(mask, other, pointer, target)
    cache = _choice(cache_modifier, _CACHE, "cache_modifier of async_load")
    eviction = _choice(eviction_policy, EVICTION, "eviction_policy of async_load")
    operands = (pointer.value, target.value, keep, fill)
    return async_token(builder().emit("async_load", *operands, type=Token(), **_given(cache=cache, eviction=eviction)))


def _addresses(src: Any, target: buffered_tensor) -> tensor:
    """A tile of pointers to the elements of `target`."""
    pointer = src.dtype if isinstance(src, tensor) else None
    if not isinstance(pointer, Pointer) or src.shape != target.shape or pointer.dtype != target.dtype:
        raise CompileError(
            "async_load copies from a tile of pointers to a buffer of its shape and dtype",
            found=f"{describe(src)}, {target.describe()}",
            allowed=f"a tile {target.shape} of tl.ptr({name_of(target.dtype)})",
        )
    if target.dtype.bytes * target.shape[-1] < _WIDTHS[0]:
        raise CompileError(
            "async_load moves 4 bytes at least",
            found=f"rows of {target.dtype.bytes * target.shape[-1]} bytes in {target.describe()}",
            fix="copy through registers: tlx.local_store(buf, tl.load(ptr))",
        )
    return src


def _bools(mask: Any) -> tensor:
    """A mask as a bool scalar or tile."""
    keep = constant(mask, int1) if isinstance(mask, bool) else mask
    if not isinstance(keep, tensor) or keep.dtype != int1:
        raise CompileError("a mask is a bool", found=describe(mask), fix="compare: mask=offsets < n")
    return keep


def _masked(mask: Any, other: Any, pointer: tensor, target: buffered_tensor) -> tuple[Value | None, Value | None]:
    if mask is None:
        if other is not None:
            raise CompileError("async_load has `other` but no mask", fix="give mask=..., or drop other=")
        return None, None
    kept = fit_shape(_bools(mask), pointer.shape, "the mask", "the pointer").value
    if other is None or (is_literal(other) and other == 0):
        return kept, None
    assert isinstance(target.dtype, DType)
    fill = fit_shape(to_element(other, target.dtype, "other"), pointer.shape, "other", "the pointer")
    return kept, fill.value


def _bulk_load(src: Any, target: buffered_tensor, size: Any, barrier: Any, given: dict[str, Any]) -> None:
    require_feature("bulk", "async_load with bulk=True")
    extra = [name for name, value in given.items() if value is not None]
    if extra:
        found = describe(given[extra[0]])
        raise CompileError(f"a bulk copy has no {extra[0]}", found=found, fix="copy without bulk=True")
    if barrier is None:
        raise CompileError("a bulk copy signals a barrier", found="no barrier", fix="pass barrier=bar[i]")
    signal = one_barrier(barrier, "the barrier of async_load")
    operands = (_bulk_address(src, target).value, target.value, signal.value, _bulk_size(size, target), None)
    builder().op("bulk_load", operands)


def _bulk_address(x: Any, buffer: buffered_tensor) -> tensor:
    """A scalar pointer to the bytes of a buffer of rank 1."""
    pointer = x.dtype if isinstance(x, tensor) else None
    if not isinstance(pointer, Pointer) or x.shape or pointer.dtype != buffer.dtype or len(buffer.shape) != 1:
        raise CompileError(
            "a bulk copy moves bytes between a scalar pointer and a buffer of rank 1",
            found=f"{describe(x)}, {buffer.describe()}",
            allowed=f"a scalar tl.ptr({name_of(buffer.dtype)})",
            fix="view the buffer with tlx.local_reshape, or use a descriptor for tiles of higher rank",
        )
    return x


def _bulk_size(size: Any, buffer: buffered_tensor) -> Value | None:
    """The number of bytes; None for the whole buffer."""
    whole = buffer.buffer.tile_bytes
    if isinstance(size, tensor):
        return scalar_i32(size, "the size of a bulk copy")
    count = whole if size is None else literal_int(size, "the size of a bulk copy")
    if not 16 <= count <= whole or count % 16:
        raise CompileError(
            "the size of a bulk copy is out of range",
            found=f"{count} bytes of {buffer.describe()}",
            allowed=f"multiples of 16 bytes from 16 to {whole}",
        )
    return None if count == whole else constant(count, int32).value


@builtin
def async_store(dst_global_ptr: Any, src_smem: Any, size: Any = None) -> None:
    """Starts to copy `size` bytes (default: all) of a buffer of rank 1 to global memory, from a scalar pointer on.

    `size` and the address are multiples of 16.  Wait with `async_descriptor_store_wait`.  Targets: sm_90 and later.
    Errors: another rank or dtype; a compile-time size out of range.
    Instruction: `cp.async.bulk.global.shared::cta`, `cp.async.bulk.commit_group` (PTX ISA, "cp.async.bulk").
    """
    require_feature("bulk", "async_store")
    buffer = one_buffer(src_smem, "the source of async_store")
    builder().op("bulk_store", (_bulk_address(dst_global_ptr, buffer).value, buffer.value, _bulk_size(size, buffer)))


@builtin
def async_load_commit_group(tokens: Any = ()) -> async_token:
    """Ends a group: the copies that `async_load` started since the last one.  `tokens` only documents which.

    Targets: sm_90 and later.  Instruction: `cp.async.commit_group` (PTX ISA, "cp.async.commit_group").
    """
    require_feature("cp.async", "async_load_commit_group")
    return async_token(builder().emit("async_load_commit", *_tokens(tokens), type=Token()))


@builtin
def async_load_wait_group(pendings: int, tokens: Any = ()) -> async_token:
    """Waits until at most `pendings` of the newest groups are under way; the tiles of the others may be loaded then.

    Targets: sm_90 and later.  Errors: a negative number.
    Instruction: `cp.async.wait_group` (PTX ISA, "cp.async.wait_group") and a barrier of the task.
    """
    require_feature("cp.async", "async_load_wait_group")
    done = builder().emit("async_load_wait", *_tokens(tokens), type=Token(), pendings=_pendings(pendings))
    return async_token(done)


def _tokens(tokens: Any) -> list[Value]:
    items = (tokens,) if isinstance(tokens, async_token) else items_of(tokens, "tokens")
    wrong = [t for t in items if not isinstance(t, async_token)]
    if wrong:
        raise CompileError("tokens are what tlx.async_load gives", found=describe(wrong[0]))
    return [t.value for t in items]


def _pendings(x: Any) -> int:
    n = literal_int(x, "pendings")
    if n < 0:
        raise CompileError("pendings counts groups that may be under way", found=str(n), allowed="0, 1, 2, ...")
    return n


def _flag(x: Any, what: str) -> bool:
    if not isinstance(x, bool):
        raise CompileError(f"{what} is a compile-time bool", found=describe(x))
    return x


@builtin
def prefetch(pointer: Any, level: str = "L2", mask: Any = None, tensormap: bool = False) -> None:
    """Asks for the cache lines of the addresses, into "L2", or "L1" and L2; nothing waits for them.

    `pointer`: a scalar or tile of global pointers; `mask`: bools that broadcast to its shape, false for no request.
    `tensormap=True`: `pointer` is a descriptor, and `prefetch_descriptor` brings its tensor map; `level` and `mask`
    have no meaning then.  Targets: sm_90 and later.  Errors: another level; no pointer.
    Instruction: `prefetch.global.L2`, `prefetch.tensormap` (PTX ISA, "prefetch").
    """
    if tensormap:
        prefetch_descriptor(pointer)
        return
    require_feature("tma", "prefetch")
    where = _choice(level, LEVELS, "level of prefetch")
    if not isinstance(pointer, tensor) or not isinstance(pointer.dtype, Pointer):
        raise CompileError(
            "prefetch takes pointers",
            found=describe(pointer),
            fix="pass tensormap=True for a descriptor" if isinstance(pointer, tensor_descriptor) else "",
        )
    keep = None if mask is None else fit_shape(_bools(mask), pointer.shape, "the mask", "the pointer").value
    builder().op("prefetch", (pointer.value, keep), level=where)
