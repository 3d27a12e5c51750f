"""Tiles in shared memory: allocation, views, and copies between them and registers.

A buffer is a place, not a value: views name the same bytes, and what one thread stores another one loads.  Inside one
task the compiler puts the execution barriers between such accesses; between tasks mbarriers are the author's work.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.core import Value
from tlxc.ir.types import Buffer, DType, Tensor, int32

from .alias import check_storage, shared_storage, storage_kind
from .core import builder, builtin, check_dtype, constant, convert, describe, literal_int, name_of, tensor
from .handles import async_token, buffered_tensor, mbarrier, one_buffer
from .layout import memory_layout, require_layout
from .promotion import is_literal
from .shape import check_axis, check_shape, to_shape


# -------------------------------------------------------------------------------------------------------- allocation
@builtin
def local_alloc(
    shape: Any,
    dtype: DType,
    num: int = 1,
    storage: storage_kind = storage_kind.smem,
    reuse: Any = None,
    layout: Any = None,
) -> buffered_tensor:
    """An array of `num` buffers in shared memory, each a tile of `shape` and `dtype`; `buf[i]` is one of them.

    `shape` and `num` are compile-time values.  The memory is the CTA's for the whole kernel and starts uninitialised;
    the compiler lets buffers share it where their uses cannot overlap.  `reuse`: a `storage_alias_spec`, or a buffer
    array, whose memory this one shares, from the first byte unless `set_buffer_overlap` says more.  `layout`: a
    `tlx.swizzled_layout` that the buffers keep; else the layout follows from the shape: row-major for rank 1, else the
    widest swizzle that TMA and wgmma read.
    Targets: all.  Errors: num below 1; storage other than smem; `reuse` of another type; a layout that does not fit.
    """
    extents = check_shape(shape, "the shape of local_alloc")
    if not extents:
        raise CompileError("a buffer has a shape", found="the shape ()", fix="write (1,) for one element")
    count = literal_int(num, "num of local_alloc")
    if count < 1:
        raise CompileError("num of local_alloc is 1 or more", found=str(count), fix="write 1 for a single buffer")
    check_storage(storage, "local_alloc")
    element = check_dtype(dtype, "the dtype of local_alloc")
    attrs: dict[str, Any] = {}
    memory = None
    if layout is not None:
        memory, attrs["pinned"] = memory_layout(layout, extents, element), True
    if reuse is not None:
        attrs["alias"] = shared_storage(reuse)
    kind = Buffer(extents, element, layout=memory, count=count)
    return buffered_tensor(builder().emit("local_alloc", type=kind, **attrs))


# ------------------------------------------------------------------------------------------------------------- views
@builtin
def local_view(buf: Any, idx: Any) -> Any:
    """One buffer or barrier of an array: `buf[idx]`; idx is an int or an integer scalar, the latter unchecked.

    Targets: all.  Errors: no array; an int out of range.  No instruction but address arithmetic.
    """
    if not isinstance(buf, (buffered_tensor, mbarrier)):
        raise CompileError(
            "local_view takes an array of buffers or barriers",
            found=describe(buf),
            fix="allocate it with tlx.local_alloc or tlx.alloc_barriers",
        )
    return buf[idx]


def _view(kind: str, source: buffered_tensor, shape: tuple[int, ...], dtype: Any, count: int = 0, **attrs: Any) -> Any:
    made = Buffer(shape, dtype, source.buffer.storage, None, count)
    return buffered_tensor(builder().emit(kind, source.value, type=made, **attrs))


@builtin
def local_trans(buf: Any, dims: Any = (1, 0)) -> buffered_tensor:
    """The same buffer with its dimensions permuted: extent i is extent dims[i] of `buf`.

    Targets: all.  Errors: an array; `dims` that is no permutation.  No instruction: the bytes stay where they are.
    """
    source = one_buffer(buf, "the buffer of local_trans")
    order = tuple(literal_int(d, "a dimension of local_trans") for d in dims)
    if sorted(order) != list(range(len(source.shape))):
        raise CompileError(
            "the dims of local_trans are no permutation",
            found=f"{order} for {source.describe()}",
            allowed=f"each of {', '.join(map(str, range(len(source.shape))))} once",
        )
    return _view("local_trans", source, tuple(source.shape[d] for d in order), source.dtype, order=order)


@builtin
def local_slice(buffer: Any, offset: Any, shape: Any) -> buffered_tensor:
    """The box of `shape` that starts at `offset` inside a buffer; both are compile-time, one entry per dimension.

    The box must begin at a multiple of the layout's swizzle tile, 8 rows of the swizzle's width at most.
    Targets: all.  Errors: an array; another rank; a box that leaves the buffer.  No instruction but address arithmetic.
    """
    source = one_buffer(buffer, "the buffer of local_slice")
    extents = check_shape(shape, "the shape of local_slice")
    starts = tuple(literal_int(o, "an offset of local_slice") for o in offset)
    if not len(starts) == len(extents) == len(source.shape):
        raise CompileError(
            "local_slice takes one offset and one extent per dimension",
            found=f"offset {starts}, shape {extents} for {source.describe()}",
        )
    if any(o < 0 or o + n > m for o, n, m in zip(starts, extents, source.shape)):
        raise CompileError(
            "the box of local_slice leaves the buffer",
            found=f"offset {starts}, shape {extents} in {source.describe()}",
        )
    return _view("local_slice", source, extents, source.dtype, offsets=starts)


@builtin
def local_reinterpret(src: Any, dtype: DType, shape: Any = None) -> buffered_tensor:
    """The bytes of a buffer as elements of `dtype`, in `shape` or with the innermost extent scaled to the new size.

    `src`: a buffer, or an array whose buffers keep their size.  Targets: all.
    Errors: more bytes than the buffer has; an innermost row that does not divide.  No instruction.
    """
    if not isinstance(src, buffered_tensor):
        one_buffer(src, "the buffer of local_reinterpret")
    element, old = check_dtype(dtype, "the dtype of local_reinterpret"), src.buffer
    if shape is None:
        row = old.shape[-1] * old.dtype.bytes
        if row % element.bytes:
            raise CompileError(
                "the innermost row is no whole number of the new elements",
                found=f"{row} bytes in {src.describe()}, elements of {element!r}",
                fix="give the shape",
            )
        extents = (*old.shape[:-1], row // element.bytes)
    else:
        extents = check_shape(shape, "the shape of local_reinterpret")
    before, after = prod(old.shape) * old.dtype.bytes, prod(extents) * element.bytes
    if after > before or (old.count and after != before):
        raise CompileError(
            "local_reinterpret needs more bytes than the buffer has" if after > before else
            "local_reinterpret of an array keeps the size of its buffers",
            found=f"{after} bytes for {extents} of {element!r}, {before} bytes in {src.describe()}",
        )  # fmt: skip
    return _view("local_reinterpret", src, extents, element, old.count)


@builtin
def local_reshape(src: Any, shape: Any) -> buffered_tensor:
    """The same buffer in another shape with as many elements: `local_reinterpret(src, src.dtype, shape)`.

    Targets: all.  Errors: another number of elements.  No instruction.
    """
    source = one_buffer(src, "the buffer of local_reshape")
    extents = check_shape(shape, "the shape of local_reshape")
    if prod(extents) != prod(source.shape):
        raise CompileError("local_reshape keeps the number of elements", found=f"{extents} of {source.describe()}")
    return _view("local_reinterpret", source, extents, source.dtype)


# ---------------------------------------------------------------------------------------------------------- accesses
@builtin
def local_load(src: Any, token: Any = None, layout: Any = None) -> tensor:
    """The tile of a buffer in registers.

    `token` of asynchronous copies only documents the order: wait for the copies first.  `layout`: a `tlx.layout` that
    the result gets and keeps.  Targets: all.  Errors: an array; no token; a layout that does not fit.
    Instruction: `ld.shared` up to 16 bytes wide or `ldmatrix`, `ds_read`.
    """
    source = one_buffer(src, "the source of local_load")
    _check_token(token)
    tile = tensor(builder().emit("local_load", source.value, type=Tensor(source.shape, source.dtype)))
    return tile if layout is None else require_layout(tile, layout)


@builtin
def local_store(dst: Any, src: Any) -> None:
    """Writes a tile to a buffer of its shape and dtype; a scalar or literal fills the buffer.

    Targets: all.  Errors: the arguments in the other order; an array; another shape or dtype (fix: `.to`).
    Instruction: `st.shared` up to 16 bytes wide or `stmatrix`, `ds_write`.
    """
    if isinstance(src, buffered_tensor) and not isinstance(dst, buffered_tensor):
        raise CompileError(
            "local_store takes the buffer first",
            found=f"local_store({describe(dst)}, {describe(src)})",
            fix="write tlx.local_store(buffer, value)",
        )
    target = one_buffer(dst, "the destination of local_store")
    builder().op("local_store", (target.value, stored_tile(src, target, "local_store")))


def stored_tile(value: Any, target: buffered_tensor, what: str) -> Value:
    """A tile, scalar or literal as the tile that `target` holds."""
    element = target.dtype
    assert isinstance(element, DType)
    tile = constant(value, element) if is_literal(value) else value
    if not isinstance(tile, tensor):
        raise CompileError(f"{what} writes a tile or a scalar", found=describe(value))
    if tile.dtype != element or tile.shape not in ((), target.shape):
        raise CompileError(
            f"the value of {what} differs from the buffer",
            found=f"{describe(tile)} into {target.describe()}",
            allowed=f"a tile {target.shape} of {name_of(element)}, or a scalar",
            fix=f"convert it with `.to({element!r})`" if tile.shape in ((), target.shape) else "",
        )
    return to_shape(tile, target.shape).value


def _check_token(token: Any) -> None:
    if token is not None and not isinstance(token, async_token):
        raise CompileError("token is what tlx.async_load_wait_group gives", found=describe(token))


def _indices(indices: Any, source: buffered_tensor, axis: Any, what: str) -> tuple[tensor, int]:
    if not isinstance(indices, tensor) or len(indices.shape) != len(source.shape) or not indices.number.is_int:
        raise CompileError(
            f"the indices of {what} are an integer tile of the buffer's rank",
            found=f"{describe(indices)} for {source.describe()}",
        )
    at = check_axis(axis, len(source.shape), what)
    beyond = [d for d, (n, m) in enumerate(zip(indices.shape, source.shape)) if d != at and n > m]
    if beyond:
        raise CompileError(
            f"the indices of {what} reach beyond the buffer",
            found=f"{describe(indices)} for {source.describe()}, axis {at}",
            allowed="extents up to those of the buffer on the other axes",
        )
    return convert(indices, int32), at


@builtin
def local_gather(src: Any, indices: Any, axis: int, token: Any = None) -> tensor:
    """The tile r of the shape of `indices` with r[i, j] = src[indices[i, j], j] for axis 0, and so on.

    Indices are not checked.  Targets: all.  Errors: no integer tile of the buffer's rank; an axis out of range.
    Instruction: one `ld.shared` per element.
    """
    source = one_buffer(src, "the source of local_gather")
    _check_token(token)
    places, at = _indices(indices, source, axis, "local_gather")
    kind = Tensor(places.shape, source.dtype)
    return tensor(builder().emit("local_gather", source.value, places.value, type=kind, axis=at))


@builtin
def local_scatter(dst: Any, src: Any, indices: Any, axis: int, token: Any = None) -> None:
    """dst[indices[i, j], j] = src[i, j] for axis 0, and so on; of equal targets one wins, unspecified which.

    Indices are not checked.  Targets: all.  Errors: as `local_gather`; a value whose shape or dtype differs.
    Instruction: one `st.shared` per element.
    """
    target = one_buffer(dst, "the destination of local_scatter")
    _check_token(token)
    places, at = _indices(indices, target, axis, "local_scatter")
    if not isinstance(src, tensor) or src.shape != places.shape or src.dtype != target.dtype:
        raise CompileError(
            "the value of local_scatter has the shape of the indices and the dtype of the buffer",
            found=describe(src),
            allowed=f"a tile {places.shape} of {name_of(target.dtype)}",
        )
    builder().op("local_scatter", (target.value, src.value, places.value), axis=at)
