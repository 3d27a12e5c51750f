"""Making tiles and changing their shape.  Element order is row-major throughout; none of it moves data by itself."""

from __future__ import annotations

from math import prod
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import DType, Pointer, Tensor, int32

from .core import (
    as_tensor,
    builder,
    builtin,
    check_dtype,
    constant,
    convert,
    describe,
    literal_int,
    name_of,
    tensor,
    tile_type,
)
from .promotion import is_literal

MAX_ELEMENTS = 1 << 20


# -------------------------------------------------------------------------------------------------------- arguments
def check_shape(shape: Any, what: str = "the shape") -> tuple[int, ...]:
    """A tuple or list of positive compile-time ints (one int is a shape of rank 1), at most MAX_ELEMENTS elements."""
    extents = (shape,) if isinstance(shape, int) else shape
    if not isinstance(extents, (tuple, list)):
        raise CompileError(f"{what} must be a tuple of compile-time integers", found=describe(shape))
    out = tuple(literal_int(n, f"an extent of {what}") for n in extents)
    if any(n < 1 for n in out):
        raise CompileError(f"{what} has an extent below 1", found=str(out), allowed="extents from 1 on")
    if prod(out) > MAX_ELEMENTS:
        raise CompileError(
            f"{what} has too many elements for one tile",
            found=f"{out}: {prod(out)} elements",
            allowed=f"at most {MAX_ELEMENTS} elements",
            fix="loop over smaller tiles",
        )
    return out


def _variadic(values: tuple[Any, ...]) -> Any:
    """`f(x, 4, 8)` and `f(x, (4, 8))` are the same."""
    return values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values


def check_axis(axis: Any, rank: int, what: str) -> int:
    """An axis of 0 <= axis < rank; negative ones count from the end."""
    a = literal_int(axis, f"the axis of {what}")
    if not -rank <= a < rank:
        raise CompileError(f"{what} has no axis {a}", found=f"rank {rank}", allowed=f"axes from {-rank} to {rank - 1}")
    return a % rank


# ------------------------------------------------------------------------------------------------------ broadcasting
def _emit(kind: str, x: tensor, shape: tuple[int, ...], **attrs: Any) -> tensor:
    return tensor(builder().emit(kind, x.value, type=tile_type(shape, x.dtype), **attrs))


def to_shape(x: tensor, shape: tuple[int, ...]) -> tensor:
    """`x` broadcast to `shape`, which it is known to fit: a splat of a scalar, else expand_dims and one broadcast."""
    if x.shape == shape:
        return x
    if not x.shape:
        return _emit("splat", x, shape)
    while len(x.shape) < len(shape):
        x = _emit("expand_dims", x, (1, *x.shape), axis=0)
    return x if x.shape == shape else _emit("broadcast", x, shape)


def common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that both broadcast to: aligned at the last axis, extents equal or 1; None where there is none."""
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b))
    return tuple(max(m, n) for m, n in pairs) if all(m == n or 1 in (m, n) for m, n in pairs) else None


def broadcast_all(*values: tensor) -> list[tensor]:
    """All values in their common shape."""
    shape: tuple[int, ...] = ()
    for v in values:
        joint = common_shape(shape, v.shape)
        if joint is None:
            raise CompileError(
                "the shapes do not broadcast",
                found=" and ".join(str(x.shape) for x in values),
                allowed="extents that are equal or 1, aligned at the last axis",
                fix="insert axes with x[:, None] or x[None, :]",
            )
        shape = joint
    return [to_shape(v, shape) for v in values]


def fit_shape(x: tensor, shape: tuple[int, ...], what: str, whose: str) -> tensor:
    """`x` broadcast to a shape that something else has decided; `what` and `whose` name both in the error."""
    if common_shape(x.shape, shape) != shape:
        raise CompileError(
            f"{what} does not broadcast to the shape of {whose}",
            found=f"{what} has shape {x.shape}, {whose} {shape}",
            allowed=f"shapes that broadcast to {shape}: extents equal or 1, aligned at the last axis",
            fix=f"make {whose} a tile, as ptr + tl.arange(0, n) is"
            if not shape
            else "insert axes with x[:, None] or x[None, :]",
        )
    return to_shape(x, shape)


@builtin
def broadcast_to(x: Any, *shape: Any) -> tensor:
    """`x` repeated to `shape`: missing leading axes are inserted and extents of 1 repeated.

    `x`: a scalar or tile of any dtype, pointers included; `shape`: one tuple, or several ints.  Targets: all.
    Errors: a shape that x does not broadcast to.  No instruction: LLVM sees copies of registers.
    """
    return fit_shape(as_tensor(x), check_shape(_variadic(shape)), "x", "the target")


@builtin
def broadcast(x: Any, y: Any) -> tuple[tensor, tensor]:
    """Both values in their common shape, as the operators do it.

    Any dtypes, pointers included; each keeps its own.  Targets: all.  Errors: shapes that do not broadcast.
    No instruction.
    """
    a, b = broadcast_all(as_tensor(x), as_tensor(y))
    return a, b


# ------------------------------------------------------------------------------------------------------ making tiles
@builtin
def arange(start: int, end: int) -> tensor:
    """The int32 tile (start, start + 1, .., end - 1) of shape (end - start,).

    Bounds are compile-time ints; the extent need not be a power of two (c * 2**k is laid out for small odd c).
    Targets: all.  Errors: an empty range; more than 2**20 elements; a run-time bound; values outside int32.
    Instruction: arithmetic on the thread index (PTX `%tid`), nothing where a register index decides.
    """
    low, high = literal_int(start, "the start of arange"), literal_int(end, "the end of arange")
    if high <= low:
        raise CompileError("arange is empty", found=f"arange({low}, {high})", allowed="end > start")
    smallest, largest = int32.limits
    if low < smallest or high - 1 > largest:
        raise CompileError("arange leaves tl.int32", found=f"arange({low}, {high})", allowed=f"{smallest} to {largest}")
    (extent,) = check_shape((high - low,), "arange")
    return tensor(builder().emit("arange", type=Tensor((extent,), int32), start=low, end=high))


@builtin
def full(shape: Any, value: Any, dtype: DType) -> tensor:
    """A tile with `value` in every element; the shape () gives a scalar.

    `value`: a Python number that `dtype` can hold, or a run-time scalar, which is converted.  Targets: all.
    Errors: a literal out of range; a tile as the value.  No instruction but a move per register.
    """
    check_dtype(dtype)
    extents = check_shape(shape)
    scalar = constant(value, dtype) if is_literal(value) else convert(as_tensor(value), dtype)
    if scalar.shape:
        raise CompileError(
            "the value of full must be a scalar", found=describe(scalar), fix="use tl.broadcast_to(x, shape)"
        )
    return to_shape(scalar, extents)


@builtin
def zeros(shape: Any, dtype: DType) -> tensor:
    """A tile of zeros: `full(shape, 0, dtype)`.  Targets: all.  Errors: those of `full`."""
    return full(shape, 0, dtype)


@builtin
def zeros_like(x: tensor) -> tensor:
    """Zeros in the shape and dtype of `x`, a scalar or tile of numbers.  Targets: all.  Errors: pointers."""
    value = as_tensor(x)
    return full(value.shape, 0, value.number)


# ---------------------------------------------------------------------------------------------------- changing shape
def _tile(x: Any, what: str) -> tensor:
    if not isinstance(x, tensor) or not x.shape:
        raise CompileError(
            f"{what} takes a tile", found=describe(x), fix="make a tile with tl.full(shape, value, dtype)"
        )
    return x


@builtin
def expand_dims(x: Any, axis: int) -> tensor:
    """A new axis of extent 1 at position `axis` of the result; `x[:, None]` is axis 1, `x[None, :]` axis 0.

    Any dtype, pointers included; a scalar becomes a tile (1,).  Negative axes count from the end of the result.
    Targets: all.  Errors: an axis out of range.  No instruction.
    """
    value = as_tensor(x)
    at = check_axis(axis, len(value.shape) + 1, "the result of expand_dims")
    if not value.shape:
        return to_shape(value, (1,))
    return _emit("expand_dims", value, (*value.shape[:at], 1, *value.shape[at:]), axis=at)


def subscript(x: tensor, index: Any) -> tensor:
    """`x[...]` with `:` and `None`, which only change the rank; axes that are not named stay."""
    items = index if isinstance(index, tuple) else (index,)
    if any(not (i is None or isinstance(i, slice) and i == slice(None)) for i in items):
        if isinstance(x.dtype, Pointer):
            raise CompileError(
                "a pointer cannot be indexed",
                found=f"a subscript of {describe(x)} that is neither `:` nor `None`",
                fix="read memory with tl.load(pointer + offset), write it with tl.store(pointer + offset, value)",
            )
        raise CompileError(
            "a tile cannot be indexed",
            found=f"a subscript of {describe(x)} that is neither `:` nor `None`",
            allowed="`:` keeps an axis, `None` inserts one: x[:, None], x[None, :]",
            fix="take a row with tl.sum(tl.where(index == i, x, 0), axis), or a half with tl.split",
        )
    kept = sum(i is not None for i in items)
    if kept > len(x.shape):
        raise CompileError(
            "the subscript has more axes than the value",
            found=f"{kept} times `:` on {describe(x)}",
            allowed=f"{len(x.shape)}",
        )
    for axis, item in enumerate(items):
        if item is None:
            x = expand_dims(x, axis)
    return x


@builtin
def reshape(x: Any, *shape: Any) -> tensor:
    """The elements of `x` in another shape, row-major order kept.

    `x`: a scalar or tile of any dtype, pointers included; `shape`: one tuple, or several ints, with as many elements.
    Targets: all.  Errors: another number of elements; the shape () (reduce instead).  No instruction by itself.
    """
    value, extents = as_tensor(x), check_shape(_variadic(shape))
    if prod(value.shape) != prod(extents):
        raise CompileError(
            "reshape keeps the number of elements",
            found=f"{value.shape} has {prod(value.shape)} elements, {extents} has {prod(extents)}",
            allowed=f"shapes of {prod(value.shape)} elements",
        )
    if value.shape and not extents:
        raise CompileError(
            "reshape of a tile gives a tile", found="the shape ()", fix="use tl.sum(x) for the only element"
        )
    if not value.shape or value.shape == extents:
        return to_shape(value, extents)
    return _emit("reshape", value, extents)


@builtin
def permute(x: Any, *order: Any) -> tensor:
    """The axes of a tile in another order: axis i of the result is axis order[i] of `x`.

    Any dtype, pointers included; `order`: one tuple, or several ints, negative ones from the end.  Targets: all.
    Errors: an order that is no permutation of the axes.  No instruction by itself.
    """
    value, given = _tile(x, "permute"), _variadic(order)
    rank = len(value.shape)
    axes = tuple(literal_int(d, "an axis of permute") for d in given)
    if sorted(a + rank if a < 0 else a for a in axes) != list(range(rank)):
        raise CompileError(
            "the order of permute is no permutation of the axes",
            found=f"{axes} for {describe(value)}",
            allowed=f"each of {', '.join(map(str, range(rank)))} once",
        )
    axes = tuple(a % rank for a in axes)
    if axes == tuple(range(rank)):
        return value
    return _emit("permute", value, tuple(value.shape[a] for a in axes), order=axes)


@builtin
def trans(x: Any, *order: Any) -> tensor:
    """The transpose of a tile: without `order` the two axes of a rank-2 tile are swapped, with it as `permute`.

    Any dtype, pointers included.  Targets: all.  Errors: another rank without `order`.  No instruction by itself.
    """
    value = _tile(x, "trans")
    if not order and len(value.shape) != 2:
        raise CompileError(
            "trans without an order takes a tile of rank 2",
            found=describe(value),
            fix="give the order of the axes: tl.trans(x, 0, 2, 1)",
        )
    return permute(value, *(order or (1, 0)))


@builtin
def join(x: Any, y: Any) -> tensor:
    """Two tiles stacked along a new last axis of extent 2: result[..., 0] is x, result[..., 1] is y.

    Tiles of one dtype, pointers included; their shapes broadcast.  Targets: all.  Errors: scalars; different dtypes.
    No instruction: registers are renamed.
    """
    a, b = broadcast_all(_tile(x, "join"), _tile(y, "join"))
    if a.dtype != b.dtype:
        raise CompileError(
            "join takes two tiles of one dtype",
            found=f"{name_of(a.dtype)} and {name_of(b.dtype)}",
            fix="cast one with `.to(...)`",
        )
    return tensor(builder().emit("join", a.value, b.value, type=tile_type((*a.shape, 2), a.dtype)))


@builtin
def split(x: Any) -> tuple[tensor, ...]:
    """The parts along a last axis of extent 2 or an odd one, which is dropped: (x[..., 0], x[..., 1], ..); of two it
    undoes `join`.

    Rank 2 or more, any dtype, pointers included.  Targets: all.  Errors: another last extent; rank 1.
    No instruction where a thread holds all parts, as it always does of an odd number.
    """
    value = _tile(x, "split")
    count = value.shape[-1]
    if (count != 2 and count % 2 == 0) or len(value.shape) == 1:
        raise CompileError(
            "split takes a last axis of extent 2, or an odd one, apart",
            found=describe(value),
            allowed="rank 2 or more with a last extent of 2, 3, 5, 7, ..",
            fix="bring the axis there first: x.reshape(M, 2, N // 2).permute(0, 2, 1).split() halves N columns",
        )
    part = tile_type(value.shape[:-1], value.dtype)
    return tuple(map(tensor, builder().op("split", (value.value,), (part,) * count).results))
