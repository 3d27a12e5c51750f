"""Making tiles and relabelling their elements; views wherever NumPy has one."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from .dtypes import Value

_COPIED = 4096  # elements that are copied faster than NumPy makes a view


@lru_cache(maxsize=256)
def arange(start: int, end: int) -> Value:
    tile = np.arange(start, end, dtype=np.int32)
    tile.flags.writeable = False
    return tile


def splat(x: Value, shape: tuple[int, ...]) -> Value:
    tile = np.empty(shape, x.dtype)
    tile.fill(x)
    return tile


def broadcast(x: Value, shape: tuple[int, ...]) -> Value:
    """A view of stride 0 where that costs less than a copy."""
    if prod(shape) > _COPIED:
        return np.broadcast_to(x, shape)
    tile = np.empty(shape, x.dtype)
    tile[...] = x
    return tile


def join(a: Value, b: Value) -> Value:
    tile = np.empty((*a.shape, 2), a.dtype)
    tile[..., 0] = a
    tile[..., 1] = b
    return tile


def split(x: Value) -> tuple[Value, ...]:
    return tuple(x[..., i] for i in range(x.shape[-1]))
