"""Small kernels in the style of real ones, for the checker: correct in every schedule and for every trip count.

A `Sample` makes launches for a number of trips; the mutation score breaks each kernel in every way that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """One launch: `out` must be `wanted` afterwards."""

    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    out: Array
    wanted: Array
    cluster: tuple[int, int, int] = (1, 1, 1)
    num_warps: int = 4

    def run(self) -> None:
        self.kernel[self.grid](**self.args, num_warps=self.num_warps, ctas_per_cga=self.cluster)

    def check(self) -> None:
        np.testing.assert_array_equal(self.out.astype(np.float64), self.wanted.astype(np.float64))


@dataclass(frozen=True)
class Sample:
    name: str
    make: Callable[[int], Call]
    trips: tuple[int, ...] = field(default=(0, 1, 2, 3, 5))


def samples() -> Iterator[Sample]:
    """All of them."""
    from . import clusters, handovers, pipelines, products, real

    for module in (pipelines, handovers, products, clusters, real):
        yield from module.samples()


def integers(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    """Small integers, at an address that TMA takes; sums are exact."""
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    return aligned(values.astype(dtype))


def aligned(values: Array) -> Array:
    """A copy that starts at a multiple of 256 bytes."""
    room = np.zeros(values.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    out = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out


def nothing(*shape: int, dtype: Any = np.float32) -> Array:
    """An output that nobody has written: every element is 99."""
    return aligned(np.full(shape, 99, dtype))


def block(array: Array, *shape: int) -> Any:
    import tlxc

    return tlxc.TensorDescriptor.from_tensor(array, list(shape))
