"""Global memory: the arrays of a launch at their real addresses, with bounds."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .memory import Array
from .shadow import GlobalShadow

_ALIGN = 16


@dataclass(frozen=True)
class Extent:
    """An array of the launch: bytes [start, start + size) belong to it; `owner` keeps them alive."""

    name: str
    start: int
    size: int
    itemsize: int
    owner: Any = field(default=None, compare=False)
    writeable: bool = True


class Allocation:
    """Arrays whose bytes overlap or touch.  `origin` is aligned; bytes before `start` are never touched.  A granule is
    the smallest element of its arrays."""

    def __init__(self, extents: Sequence[Extent]) -> None:
        self.extents = extents
        self.start = min(e.start for e in extents)
        self.stop = max(e.start + e.size for e in extents)
        self.origin = self.start - self.start % _ALIGN
        self.granule = min(e.itemsize for e in extents)
        self.name = " / ".join(dict.fromkeys(e.name for e in extents))
        size = self.stop - self.origin
        self.bytes: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.origin))
        self.shadow = GlobalShadow(-(-size // self.granule))
        self._views: dict[Any, Array] = {}

    def view(self, dtype: np.dtype[Any]) -> Array:
        """Elements from `origin` on."""
        made = self._views.get(dtype)
        if made is None:
            whole = len(self.bytes) // dtype.itemsize * dtype.itemsize
            made = self._views[dtype] = self.bytes[:whole].view(dtype)
        return made


class GlobalMemory:
    """The allocations of a launch by address."""

    def __init__(self, extents: Sequence[Extent]) -> None:
        self.allocations = [Allocation(group) for group in _groups([e for e in extents if e.size])]
        self._starts = [a.start for a in self.allocations]
        # by the name of the parameter
        self.named = {e.name: (a, e) for a in self.allocations for e in a.extents}

    def find(self, low: int, high: int) -> Allocation | None:
        """The allocation that holds bytes [low, high)."""
        i = bisect_right(self._starts, low) - 1
        if i < 0 or high > self.allocations[i].stop:
            return None
        return self.allocations[i]


def _groups(extents: Sequence[Extent]) -> list[list[Extent]]:
    """Those that share bytes together, in the order of addresses."""
    out: list[list[Extent]] = []
    stop = -1
    for e in sorted(extents, key=lambda e: e.start):
        if out and e.start < stop:
            out[-1].append(e)
        else:
            out.append([e])
        stop = max(stop, e.start + e.size)
    return out


class Elements:
    """Granules of an allocation by number, for the shadow."""

    __slots__ = ("index",)

    def __init__(self, index: Array) -> None:
        self.index = index

    def select(self, array: Array) -> Array:
        return array[self.index]

    def put(self, array: Array, value: Any) -> None:
        array[self.index] = value


class Block:
    """Granules of a box of a strided array: `first`, then strides in granules."""

    __slots__ = ("first", "shape", "strides")

    def __init__(self, first: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.first, self.shape, self.strides = first, tuple(shape), tuple(strides)

    def select(self, array: Array) -> Array:
        """A view.  `array` has one axis, and a dtype that buffers know."""
        size = array.itemsize
        return np.ndarray(self.shape, array.dtype, array.data, self.first * size, [s * size for s in self.strides])

    def put(self, array: Array, value: Any) -> None:
        self.select(array)[...] = value
