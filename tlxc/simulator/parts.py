"""Which thread and which warps hold which elements of a tile."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tlxc.ir.layout import Layout
from tlxc.ir.types import Tensor, Type

from .memory import Array

_LANES = 32


def own_parts(t: Type, condition: Array, a: Any, b: Any) -> Any:
    """What warps have whose threads take `a` where `condition` holds, else `b`."""
    if not isinstance(t, Tensor):
        return np.where(condition, a, b)
    assert t.layout is not None
    return np.where(condition[owner_of(t.layout)], a, b)


@cache
def held_by(layout: Layout) -> Array:
    """For each warp, which elements its threads hold."""
    held = np.zeros((1 << len(layout.bases("warp")), *layout.shape), np.bool_)
    for warp, elements in enumerate(held):
        for register in range(layout.registers):
            for lane in range(1 << len(layout.lane)):
                elements[layout.apply(register, lane, warp)] = True
    return held


@cache
def owner_of(layout: Layout) -> Array:
    """The first thread that holds each element."""
    owner = np.zeros(layout.shape, np.int64)
    for coords in np.ndindex(layout.shape):
        found = layout.invert(coords)
        owner[coords] = found.get("warp", 0) * _LANES + found.get("lane", 0)
    return owner
