"""Grids and clusters: CTAs along x, y and z."""

from __future__ import annotations

import operator
from typing import Any

from tlxc.errors import TlxcError

MAX_GRID = ((1 << 31) - 1, 65535, 65535)
MAX_CLUSTER = 16  # CTAs of a cluster; more than 8 run on some GPUs only
_MISSING_AXES: tuple[tuple[int, ...], ...] = ((), (1, 1), (1,), ())


Cluster = tuple[int, int, int]


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


def cluster_shape(given: Any) -> Cluster | None:
    """The cluster of an option `ctas_per_cga`: None is (1, 1, 1), a tuple of one to three ints is filled up with ones.
    None for what is no cluster."""
    if given is None:
        return (1, 1, 1)
    if not isinstance(given, tuple) or not 1 <= len(given) <= 3 or any(type(n) is not int or n < 1 for n in given):
        return None
    x, y, z = (*given, 1, 1)[:3]
    return (x, y, z) if x * y * z <= MAX_CLUSTER else None


def check_cluster(sizes: Cluster, cluster: Cluster) -> None:
    """A `GridError` where a grid is not made of whole clusters."""
    for axis, size, part in zip("xyz", sizes, cluster):
        if size % part:
            raise GridError(
                f"The grid is {sizes}, but along {axis} it must be a multiple of the {part} CTAs of a cluster "
                f"(ctas_per_cga={cluster})."
            )
