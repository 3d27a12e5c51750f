"""Boxes of TMA copies against the placement that the PTX ISA states, element by element."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from tlxc.codegen.nvptx.boxes import MAX_EXTENT, box_of
from tlxc.errors import CompileError
from tlxc.ir import types as ir
from tlxc.ir.memory import Memory, row_major, swizzled, xor_swizzled
from tlxc.ir.types import Descriptor

Shape = tuple[int, ...]


def landed(address: int, swizzle: int) -> int:
    """Where TMA puts the byte of a dense box: 16-byte chunks XORed with the 128-byte line that they are in."""
    mask = (swizzle // 16 - 1) if swizzle else 0
    return address ^ ((address >> 7 & mask) << 4)


def check(descriptor: Descriptor, mem: Memory) -> None:
    """Every element of the block is copied once, to the byte where the layout has it."""
    made, elem, seen = box_of(descriptor), descriptor.dtype.bytes, set()
    assert all(n <= MAX_EXTENT for n in made.box) and made.box[-1] * elem % 16 == 0
    assert not made.swizzle or made.box[-1] * elem == made.swizzle
    assert made.bytes == prod(made.box) * elem and len(list(made.pieces())) == prod(made.counts)
    for base, start in made.pieces():
        for index, inside in enumerate(product(*map(range, made.box))):
            coords = tuple(s + i for s, i in zip(start, inside))
            assert landed(base + index * elem, made.swizzle) == mem.offset(coords) * elem
            seen.add(coords)
    assert len(seen) == prod(descriptor.shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "mem", "box", "counts"),
    [
        ((64, 64), ir.float16, swizzled((64, 64), 2, 128), (64, 64), (1, 1)),
        ((64, 256), ir.float16, swizzled((64, 256), 2, 128), (64, 64), (1, 4)),
        ((80, 128), ir.bfloat16, swizzled((80, 128), 2, 128), (80, 64), (1, 2)),
        ((64, 32), ir.float16, swizzled((64, 32), 2, 64), (64, 32), (1, 1)),
        ((16, 48), ir.float16, swizzled((16, 48), 2, 32), (16, 16), (1, 3)),
        ((32, 64), ir.float32, swizzled((32, 64), 4, 128), (32, 32), (1, 2)),
        ((8, 256), ir.int8, swizzled((8, 256), 1, 128), (8, 128), (1, 2)),
        ((512, 64), ir.float16, swizzled((512, 64), 2, 128), (256, 64), (2, 1)),
        ((3, 16, 64), ir.float16, swizzled((3, 16, 64), 2, 128), (3, 16, 64), (1, 1, 1)),
        ((2, 264, 64), ir.float16, swizzled((2, 264, 64), 2, 128), (1, 88, 64), (2, 3, 1)),
        ((32, 40), ir.float16, row_major((32, 40)), (32, 40), (1, 1)),
        ((32, 40), ir.float16, swizzled((32, 40), 2, 16), (32, 8), (1, 5)),
        ((2, 264, 24), ir.float16, swizzled((2, 264, 24), 2, 16), (1, 88, 8), (2, 3, 3)),
        ((4, 512), ir.float16, row_major((4, 512)), (1, 256), (4, 2)),
        ((512, 64), ir.float32, row_major((512, 64)), (256, 64), (2, 1)),
        ((2, 4, 64), ir.float32, row_major((2, 4, 64)), (2, 4, 64), (1, 1, 1)),
        ((1024,), ir.float16, row_major((1024,)), (256,), (4,)),
        ((80,), ir.float32, row_major((80,)), (80,), (1,)),
        ((64, 64), ir.float16, row_major((64, 64), 64), (1, 64), (64, 1)),
    ],
)  # fmt: skip
def test_boxes(shape: Shape, dtype: ir.DType, mem: Memory, box: Shape, counts: Shape) -> None:
    descriptor = Descriptor(shape, dtype, mem)
    made = box_of(descriptor)
    assert (made.box, made.counts) == (box, counts)
    check(descriptor, mem)


def test_a_slice_of_a_wider_buffer() -> None:
    """Two column blocks of a 64 x 256 buffer, further apart than a buffer of that size would have them."""
    whole = swizzled((128, 256), 2, 128)
    part = Memory(whole.bits, whole.bases, (8, 2), whole.strides)
    check(Descriptor((64, 128), ir.float16, part), part)
    assert box_of(Descriptor((64, 128), ir.float16, part)).counts == (1, 2)


def test_leading_dimensions_of_extent_one_are_left_out() -> None:
    mem = swizzled((1, 64, 64), 2, 128)
    assert box_of(Descriptor((64, 64), ir.float16, mem)).box == (64, 64)


@pytest.mark.parametrize(
    ("shape", "mem"), [((64, 128), swizzled((64, 128), 2, 128)), ((64, 48), swizzled((64, 48), 2, 32)),
                       ((256,), row_major((256,))), ((4, 8), row_major((4, 8)))]
)  # fmt: skip
def test_without_a_buffer_the_default_layout_counts(shape: Shape, mem: Memory) -> None:
    check(Descriptor(shape, ir.float16), mem)


def refusal(shape: Shape, dtype: ir.DType = ir.float16, mem: Memory | None = None) -> str:
    with pytest.raises(CompileError) as error:
        box_of(Descriptor(shape, dtype, mem))
    return str(error.value)


def test_refusals() -> None:
    assert refusal((2,) * 5 + (8,)) == (
        "error: a TMA descriptor has a rank that no tensor map has\n"
        "  found: the block 2x2x2x2x2x8 of tl.float16 of rank 6\n"
        "  allowed: 1 to 5 dimensions"
    )
    assert refusal((64, 4)) == (
        "error: the rows of a TMA block are not whole chunks of 16 bytes\n"
        "  found: rows of 8 bytes in the block 64x4 of tl.float16\n"
        "  allowed: multiples of 8 elements along the last dimension"
    )
    transposed = swizzled((64, 64), 2, 128).transpose((1, 0))
    for mem in (transposed, xor_swizzled((64, 64), 8, 1, 4), row_major((32, 64)), row_major((64, 64), 8)):
        assert "a buffer's layout cannot be filled by TMA" in refusal((64, 64), mem=mem)
    assert "a copy would start at byte 144, not at a multiple of 128" in refusal((64, 64), mem=row_major((64, 64), 8))
