"""What kernels of several families need to address tiles of any rank."""

from __future__ import annotations

import math

import tlxc
from tlxc import tl


@tlxc.constexpr_function
def count(shape):
    return math.prod(shape)


def row_major(shape):
    """The offsets of a tile of this shape in row-major order."""
    offsets = tl.zeros(shape, tl.int32)
    for axis in tl.static_range(len(shape)):
        index = tl.arange(0, shape[axis]) * count(shape[axis + 1 :])
        for other in tl.static_range(len(shape)):
            if other != axis:
                index = tl.expand_dims(index, other)
        offsets += index
    return offsets
