"""Grids: CTAs along x, y and z."""

from __future__ import annotations

import operator
from typing import Any

from tlxc.errors import TlxcError

MAX_GRID = ((1 << 31) - 1, 65535, 65535)
_MISSING_AXES: tuple[tuple[int, ...], ...] = ((), (1, 1), (1,), ())


class GridError(TlxcError, ValueError):
    """A grid that no GPU can launch."""


def extents(grid: Any) -> tuple[int, int, int]:
    """CTAs along x, y and z of an int or of one to three ints; a `GridError` for what no GPU launches."""
    sizes = (grid,) if hasattr(grid, "__index__") else grid
    try:
        given = tuple(map(operator.index, sizes))
        x, y, z = given + _MISSING_AXES[len(given) if len(given) <= 3 else 0]
    except (TypeError, ValueError):
        raise GridError(
            f"The grid is {grid!r}; give one to three integers, or a function of the arguments that returns them."
        ) from None
    for axis, size, most in zip("xyz", (x, y, z), MAX_GRID):
        if not 0 <= size <= most:
            raise GridError(f"The grid is {grid!r}, but along {axis} it may have 0 to {most} CTAs.")
    return x, y, z
