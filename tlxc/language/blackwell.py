"""Tensor memory and cluster launch control of Blackwell: names that exist so that their refusal says why.

A target without the hardware is told which feature the function needs; a target that has it, that tlxc does not compile
the function yet, and what to write instead.
"""

from __future__ import annotations

from typing import Any

from tlxc.ir.types import DType, float32

from .core import builtin
from .handles import not_yet

_PRODUCT = "write tl.dot(a, b, acc) on tiles in registers"
_COPY = "keep the data in shared memory: tlx.local_alloc without `storage`, read by tlx.local_load"
_TILES = "count tiles in the kernel: for tile in range(tl.program_id(0), tiles, tl.num_programs(0))"


# ------------------------------------------------------------------------------------------------------ tensor memory
@builtin
def subslice(buffer: Any, offset: int, size: int) -> Any:
    """Refused: the columns from `offset` to `offset + size` of a buffer in tensor memory.

    Targets: all refuse it; tensor memory exists on sm_100 and sm_103.
    """
    fix = "slice a buffer in shared memory with tlx.local_slice(buffer, offset, shape)"
    not_yet("tcgen05", "subslice", fix)


@builtin
def tmem_copy(src: Any, dst: Any) -> None:
    """Refused: a copy from shared memory to tensor memory.

    Targets: all refuse it; tensor memory exists on sm_100 and sm_103.
    """
    not_yet("tcgen05", "tmem_copy", _COPY)


@builtin
def tcgen05_commit(mBarrier: Any, two_ctas: bool = False) -> None:
    """Refused: an arrival at a barrier when the products and copies into tensor memory so far are complete.

    Targets: all refuse it; tensor memory exists on sm_100 and sm_103.  On sm_90, `async_dot_wait` waits for products.
    """
    not_yet("tcgen05", "tcgen05_commit", _PRODUCT)


@builtin
def async_dot_scaled(
    A: Any,
    B: Any,
    acc: Any,
    A_scale: Any,
    A_format: str,
    B_scale: Any,
    B_format: str,
    use_acc: Any = None,
    pred: Any = None,
    mBarriers: Any = (),
    two_ctas: bool = False,
    force_async: bool = False,
    out_dtype: DType = float32,
) -> None:
    """Refused: a product into tensor memory of operands with a scale for every 32 elements along K.

    Targets: all refuse it; tensor memory exists on sm_100 and sm_103.
    """
    not_yet("tcgen05", "async_dot_scaled", "multiply the operands by their scales first; then " + _PRODUCT)


# ---------------------------------------------------------------------------------------------- cluster launch control
@builtin
def clc_create_context(num_consumers: int, num_stages: int = 1) -> Any:
    """Refused: barriers and responses with which a kernel asks the hardware for the tiles of CTAs not started yet.

    Targets: all refuse it; cluster launch control exists on sm_100, sm_103 and sm_120.
    """
    not_yet("clc", "clc_create_context", _TILES)


@builtin
def clc_producer(ctx: Any, p_producer: Any, multi_ctas: bool = True, k: Any = 0) -> None:
    """Refused: asks for another tile.

    Targets: all refuse it; cluster launch control exists on sm_100, sm_103 and sm_120.
    """
    not_yet("clc", "clc_producer", _TILES)


@builtin
def clc_consumer(ctx: Any, p_consumer: Any, multi_ctas: bool = True, k: Any = 0, return_3d: bool = False) -> Any:
    """Refused: the next tile, or -1 when none is left.

    Targets: all refuse it; cluster launch control exists on sm_100, sm_103 and sm_120.
    """
    not_yet("clc", "clc_consumer", _TILES)
