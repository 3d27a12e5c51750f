"""Reductions of a tile along one axis, or of all its elements.

The order in which elements are combined is unspecified, and the same in every run of one compiled kernel.
"""

from __future__ import annotations

from tlxc.errors import CompileError
from tlxc.ir.types import DType, float32, int1, int32, uint32

from .core import builder, builtin, check_dtype, convert, describe, tensor, tile_type
from .shape import check_axis, expand_dims, to_shape

# The dtype of a sum where the user names none; others keep their own.
_SUM_DTYPE = {"int1": int32, "int8": int32, "int16": int32, "uint8": uint32, "uint16": uint32}


@builtin
def sum(x: tensor, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> tensor:
    """The sum along `axis`, which is dropped or kept as an extent of 1; without `axis` the sum of all elements.

    `dtype` is that of the accumulation and of the result.  Its default: int32 for int1, int8 and int16; uint32 for
    uint8 and uint16; else the dtype of x.  float16 and bfloat16 accumulate in float32 and round once, at the end.
    Integers wrap.  A tile of rank 1 gives a scalar.  Targets: all.  Errors: a scalar or pointers; an axis out of range.
    Instruction: additions in the thread, then `shfl.sync` (PTX ISA, "shfl.sync"), `ds_bpermute`, `v_add` with DPP.
    """
    source = _operand("sum", x)
    result = _SUM_DTYPE.get(source.name, source) if dtype is None else check_dtype(dtype, "the dtype of sum")
    if result == int1:
        raise CompileError(
            "sum does not count in bools", found="dtype=tl.int1", fix="use tl.max(x, axis) for `any`, tl.min for `all`"
        )
    if result.is_int and source.is_float:
        raise CompileError(
            "sum does not convert floats to integers",
            found=f"{describe(x)}, dtype={result!r}",
            fix=f"convert first: x.to({result!r})",
        )
    return convert(_reduce("sum", convert(x, _computed_in(result)), axis, keep_dims), result)


@builtin
def max(x: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """The largest element along `axis`, which is dropped or kept as an extent of 1; without `axis` of all elements.

    dtypes: all; on bools it is `any`.  NaN is ignored unless every element is NaN.  A tile of rank 1 gives a scalar.
    Targets: all.  Errors: a scalar or pointers; an axis out of range.
    Instruction: `max` in the thread, then `shfl.sync` (PTX ISA, "max", "shfl.sync"), `ds_bpermute`, `v_max` with DPP.
    """
    return _extremum("max", x, axis, keep_dims)


@builtin
def min(x: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """The smallest element along `axis`, which is dropped or kept as an extent of 1; without `axis` of all elements.

    dtypes: all; on bools it is `all`.  NaN is ignored unless every element is NaN.  A tile of rank 1 gives a scalar.
    Targets: all.  Errors: a scalar or pointers; an axis out of range.
    Instruction: `min` in the thread, then `shfl.sync` (PTX ISA, "min", "shfl.sync"), `ds_bpermute`, `v_min` with DPP.
    """
    return _extremum("min", x, axis, keep_dims)


def _operand(name: str, x: tensor) -> DType:
    """The dtype of a tile that can be reduced."""
    if not isinstance(x, tensor) or not x.shape:
        raise CompileError(
            f"{name} reduces a tile",
            found=describe(x),
            fix=f"use Python's {name}() of several scalars" if name != "sum" else "add scalars with +",
        )
    return x.number


def _computed_in(dtype: DType) -> DType:
    if dtype.is_float:
        return float32
    return int32 if dtype == int1 else dtype


def _extremum(name: str, x: tensor, axis: int | None, keep_dims: bool) -> tensor:
    dtype = _operand(name, x)
    return convert(_reduce(name, convert(x, _computed_in(dtype)), axis, keep_dims), dtype)


def _reduce(combine: str, x: tensor, axis: int | None, keep_dims: bool) -> tensor:
    """One `reduce` op per axis; all axes: the last one first, which needs no reshape and so takes any extents."""
    rank = len(x.shape)
    axes = range(rank)[::-1] if axis is None else (check_axis(axis, rank, combine),)
    for at in axes:
        kept = x.shape[:at] + x.shape[at + 1 :]
        x = tensor(builder().emit("reduce", x.value, type=tile_type(kept, x.dtype), axis=at, combine=combine))
    if not keep_dims:
        return x
    return to_shape(x, (1,) * rank) if not x.shape else expand_dims(x, axes[0])
