"""Reductions along one axis, in the dtype of the tile.  The order of float additions is NumPy's, not the hardware's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .dtypes import FLOATS, Value


def _sum(x: Value, axis: int) -> Value:
    """Starts from -0, which changes nothing; NumPy starts some sums from +0, and -0 + -0 then loses its sign."""
    if x.dtype not in FLOATS:
        return np.add.reduce(x, axis, dtype=x.dtype)
    return np.add.reduce(x, axis, dtype=x.dtype, initial=x.dtype.type(-0.0))


def _min(x: Value, axis: int) -> Value:
    if x.dtype not in FLOATS:
        return np.minimum.reduce(x, axis)
    return _extreme(x, axis, np.fmin, negative=True)


def _max(x: Value, axis: int) -> Value:
    if x.dtype not in FLOATS:
        return np.maximum.reduce(x, axis)
    return _extreme(x, axis, np.fmax, negative=False)


def _extreme(x: Value, axis: int, ufunc: np.ufunc, negative: bool) -> Value:
    """Ignores NaN.  Of zeros of both signs the result is the one of sign `negative`, which NumPy leaves open."""
    best = ufunc.reduce(x, axis)
    if best.all():
        return best
    zero = x.dtype.type(0)
    preferred = np.logical_or.reduce((x == zero) & (np.signbit(x) == negative), axis)
    return np.where(preferred & (best == zero), -zero if negative else zero, best)[()]


REDUCTIONS: dict[str, Callable[[Value, int], Value]] = {"sum": _sum, "min": _min, "max": _max}


def reduce(x: Value, axis: int, combine: str) -> Value:
    """Drops the axis; of a tile of rank 1 a scalar."""
    return REDUCTIONS[combine](x, axis)


def partial_reduce(x: Value, axis: int, combine: str, parts: int) -> Value:
    """Combines blocks along `axis` into `parts` results on a new last axis.  Which elements meet in a part depends on
    the layout, so only the reduction of all parts means anything."""
    shape = x.shape
    blocks = x.reshape(*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])
    partial = reduce(blocks, axis + 1, combine)
    return np.moveaxis(partial, axis, -1)
