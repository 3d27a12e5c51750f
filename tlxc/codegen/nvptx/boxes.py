"""Hardware boxes: how TMA copies of at most 256 elements a dimension cover the block of a descriptor.

Sources: PTX ISA, "Tensor dimension, size, and format" and "Swizzling modes"; CUDA driver API, cuTensorMapEncodeTiled.

A box lands in shared memory as dense rows, so it may only span what the buffer's layout keeps dense: one column block
of a swizzle, or whole rows of a layout without one.  Where a block is wider, several copies cover it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from tlxc.errors import CompileError
from tlxc.ir.layout import LayoutError
from tlxc.ir.memory import CORE, Memory, row_major, swizzled, widest_swizzle
from tlxc.ir.types import Descriptor, DType

MAX_EXTENT = 256  # elements of a box along one dimension
MAX_RANK = 5
CHUNK = 16  # bytes that an inner row of a box is a multiple of
WIDTHS = (128, 64, 32, CORE)  # bytes of a row of a column block


@dataclass(frozen=True)
class Box:
    """One tensor map and the copies through it that cover a block.

    `box`: elements of a copy, in the descriptor's order of dimensions.  `swizzle`: 0, 32, 64 or 128 bytes.  `counts`:
    copies along each dimension.  `bytes`: shared memory that one copy fills.
    """

    box: tuple[int, ...]
    swizzle: int
    counts: tuple[int, ...]
    bytes: int
    layout: Memory
    elem: int

    def pieces(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(byte offset in the buffer, coordinate in the block) where each copy starts, in row-major order."""
        for index in product(*map(range, self.counts)):
            start = tuple(i * n for i, n in zip(index, self.box))
            yield self.layout.offset(start) * self.elem, start


def box_of(descriptor: Descriptor) -> Box:
    """The box for the layout of the descriptor's buffers; without one, for the layout that a buffer gets by default.

    Raises CompileError where no TMA copy fills a buffer of that layout.
    """
    shape, dtype = descriptor.shape, descriptor.dtype
    if not 1 <= len(shape) <= MAX_RANK:
        raise CompileError(
            "a TMA descriptor has a rank that no tensor map has",
            found=f"the block {_text(shape, dtype)} of rank {len(shape)}",
            allowed=f"1 to {MAX_RANK} dimensions",
        )
    if shape[-1] * dtype.bytes % CHUNK:
        raise CompileError(
            "the rows of a TMA block are not whole chunks of 16 bytes",
            found=f"rows of {shape[-1] * dtype.bytes} bytes in the block {_text(shape, dtype)}",
            allowed=f"multiples of {CHUNK // dtype.bytes} elements along the last dimension",
        )
    return _box(shape, dtype, _layout(descriptor))


def _layout(descriptor: Descriptor) -> Memory:
    shape, mem = descriptor.shape, descriptor.box_layout
    if mem is None:
        return widest_swizzle(shape, descriptor.dtype.bytes) if len(shape) > 1 else row_major(shape)
    extra = len(mem.shape) - len(shape)
    if extra < 0 or prod(mem.shape[:extra]) != 1 or mem.shape[extra:] != shape:
        raise _unfit(shape, descriptor.dtype, mem, "its extents are not those of the block")
    return Memory(mem.bits[extra:], mem.bases[extra:], mem.reps[extra:], mem.strides[extra:])


@cache
def _box(shape: tuple[int, ...], dtype: DType, mem: Memory) -> Box:
    elem = dtype.bytes
    swizzle = next((width for width in WIDTHS if _has_atom(mem, elem, width)), 0)
    inner = swizzle // elem if swizzle else _divisor(shape[-1], MAX_EXTENT, CHUNK // elem)
    strides = _row_steps(mem, swizzle)
    if strides is None:
        raise _unfit(shape, dtype, mem, "TMA writes dense rows, plain or in a swizzle of 32, 64 or 128 bytes")
    # Without a swizzle more than one row is dense only where the box has the whole of each.
    box, dense = [inner], inner if swizzle or inner == shape[-1] else 0
    for d in reversed(range(len(shape) - 1)):
        unit = 8 if swizzle and d == len(shape) - 2 else 1
        extent = _divisor(shape[d], MAX_EXTENT, unit) if strides[d] == dense or shape[d] == 1 else 1
        dense = dense * extent if extent == shape[d] else 0
        box.append(extent)
    box.reverse()
    counts = tuple(n // b for n, b in zip(shape, box))
    made = Box(tuple(box), 0 if swizzle == CORE else swizzle, counts, prod(box) * elem, mem, elem)
    alignment = 8 * swizzle or 128
    for offset, _ in made.pieces():
        if offset % alignment:
            raise _unfit(shape, dtype, mem, f"a copy would start at byte {offset}, not at a multiple of {alignment}")
    return made


def _has_atom(mem: Memory, elem: int, width: int) -> bool:
    """Whether the layout repeats the atom of a hardware swizzle: 8 rows of `width` bytes."""
    if len(mem.shape) < 2 or width < elem:
        return False
    try:
        atom = swizzled((8, width // elem), elem, width)
    except LayoutError:
        return False
    return mem.bits[-2:] == atom.bits and mem.bases[-2:] == atom.bases and not any(mem.bits[:-2])


def _row_steps(mem: Memory, swizzle: int) -> tuple[int, ...] | None:
    """Elements from one row to the next along each dimension before the last, the XOR of a swizzle left out; None where
    steps are uneven or a row is not contiguous.  Column blocks of a swizzle may lie anywhere: each is a box of its own.
    """
    out = []
    for d, (bases, reps, stride) in enumerate(zip(mem.bases, mem.reps, mem.strides)):
        if swizzle and d >= len(mem.bases) - 2:
            per = 1 << len(mem.bases[-1])
            steps = [per, 2 * per, 4 * per] + [stride] * (reps > 1) if d == len(mem.bases) - 2 else []
        else:
            steps = [*bases, *[stride] * (reps > 1)]
        if any(step != steps[0] << i for i, step in enumerate(steps)):
            return None
        out.append(steps[0] if steps else 0)
    last = out.pop()
    return tuple(out) if last in (0, 1) else None


def _divisor(n: int, most: int, unit: int) -> int:
    """The largest divisor of n that is a multiple of `unit` and at most `most`; `unit` itself divides n."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0 and d % unit == 0)


def _text(shape: tuple[int, ...], dtype: DType) -> str:
    return "x".join(map(str, shape)) + f" of {dtype!r}"


def _unfit(shape: tuple[int, ...], dtype: DType, mem: Memory, why: str) -> CompileError:
    return CompileError(
        "a buffer's layout cannot be filled by TMA",
        found=f"layout {mem} for a block {_text(shape, dtype)}; {why}",
        allowed="row-major buffers and those with a swizzle of 32, 64 or 128 bytes, the last dimension contiguous",
        fix="leave out the layout of the buffer, or copy with local_store and tl.store instead",
    )
