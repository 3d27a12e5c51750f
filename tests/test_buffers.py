"""Memory layouts of buffers, views and descriptors, and what TMA, bulk copies and wgmma refuse."""

from __future__ import annotations

from itertools import product

import pytest
from buffer_kernels import BufferKernel, buffer_of

from tlxc.errors import CompileError
from tlxc.ir.core import Value
from tlxc.ir.memory import Memory, row_major, swizzled, widest_swizzle, xor_swizzled
from tlxc.ir.types import Descriptor, float16, float32, int8
from tlxc.ir.verifier import verify
from tlxc.passes.buffers import assign_buffers, memory_of, slice_memory, swizzle_width
from tlxc.targets import get_target

SM90 = get_target("sm_90")


def assign(k: BufferKernel, target: str = "sm_90") -> None:
    assign_buffers(k.module, get_target(target))
    verify(k.module)


def refused(k: BufferKernel) -> CompileError:
    with pytest.raises(CompileError) as caught:
        assign_buffers(k.module, SM90)
    error = caught.value
    assert error.loc is not None and error.found and error.allowed
    return error


# ------------------------------------------------------------------------------------------------ layouts
@pytest.mark.parametrize(
    ("shape", "dtype", "width"),
    (
        ((64, 64), float16, 128), ((64, 256), float16, 128), ((64, 32), float16, 64), ((64, 48), float16, 32),
        ((8, 16), float32, 64), ((80, 64), float16, 128), ((64, 40), float16, 0), ((4, 64), float16, 0),
        ((3, 16, 64), float16, 128), ((1024,), float16, 0), ((64, 128), int8, 128),
    ),
)  # fmt: skip
def test_an_open_layout_is_the_widest_swizzle(shape: tuple[int, ...], dtype, width: int) -> None:
    k = BufferKernel()
    buf = k.alloc(shape, dtype)
    assign(k)
    wanted = swizzled(shape, dtype.bytes, width) if width else row_major(shape)
    assert memory_of(buf) == wanted
    assert swizzle_width(wanted, dtype.bytes) == width


def test_amd_buffers_are_row_major() -> None:
    k = BufferKernel()
    buf = k.alloc((64, 64))
    assign(k, "gfx942")
    assert memory_of(buf) == row_major((64, 64))


def test_a_pinned_layout_stays_and_reaches_its_views() -> None:
    k, mine = BufferKernel(), xor_swizzled((64, 64), 8, 1, 4)
    array = k.alloc((64, 64), count=3, layout=mine)
    view = k.view(array, 1)
    turned = k.trans(view)
    assign(k)
    assert memory_of(array) == memory_of(view) == mine and memory_of(turned) == mine.transpose((1, 0))


def test_a_view_of_another_type_starts_afresh() -> None:
    k = BufferKernel()
    array = k.alloc((128, 64), count=2)
    one = k.reinterpret(k.view(array, 1), (64, 64), float32)
    many = k.reinterpret(array, (64, 64), float16, 4)
    assign(k)
    assert memory_of(one) == widest_swizzle((64, 64), 4) and memory_of(many) == widest_swizzle((64, 64), 2)
    assert buffer_of(many).nbytes == buffer_of(array).nbytes


SLICES = [
    (swizzled((64, 128), 2, 128), (8, 64), (16, 64)), (swizzled((64, 128), 2, 128), (0, 0), (64, 128)),
    (swizzled((64, 128), 2, 128).transpose((1, 0)), (64, 8), (64, 16)),
    (swizzled((2, 16, 64), 2, 128), (1, 8, 0), (1, 8, 64)),
    (row_major((16, 64)), (3, 4), (5, 12)), (row_major((12, 40)), (1, 8), (3, 24)), (row_major((64,)), (6,), (50,)),
    (row_major((16, 64), pad=2), (1, 0), (1, 64)), (xor_swizzled((64, 64), 8, 1, 8), (8, 0), (8, 64)),
]  # fmt: skip


@pytest.mark.parametrize(("mem", "offsets", "shape"), SLICES)
def test_a_slice_lies_where_it_lay_in_the_buffer(mem: Memory, offsets: tuple[int, ...], shape: tuple[int, ...]) -> None:
    part = slice_memory(mem, offsets, shape)
    assert part is not None and part.shape == shape
    for c in product(*map(range, shape)):
        assert mem.offset([a + b for a, b in zip(offsets, c)]) == mem.offset(offsets) + part.offset(c)
    contiguous = max((1 << b for b, bs in zip(part.bits, part.bases) if bs[:1] == (1,)), default=1)
    assert mem.offset(offsets) % contiguous == 0, "a vector may start where its bits say"


@pytest.mark.parametrize(
    ("mem", "offsets", "shape"),
    (
        (swizzled((64, 128), 2, 128), (4, 0), (8, 64)), (swizzled((64, 128), 2, 128), (0, 32), (64, 64)),
        (swizzled((64, 128), 2, 128), (0, 0), (4, 64)), (xor_swizzled((64, 64), 8, 1, 8), (0, 0), (8, 32)),
    ),
)  # fmt: skip
def test_a_slice_that_cuts_an_atom_is_refused(mem: Memory, offsets: tuple[int, ...], shape: tuple[int, ...]) -> None:
    k = BufferKernel()
    k.slice(k.alloc(mem.shape, layout=mem), offsets, shape)
    error = refused(k)
    assert error.summary == "this local_slice cuts a swizzle atom" and "in multiples of" in error.allowed
    assert error.related[0][1] is not None


@pytest.mark.parametrize(
    "make",
    (
        lambda k: k.reinterpret(k.alloc((64, 64)), (128, 64), float32),  # more bytes
        lambda k: k.reinterpret(k.view(k.alloc((96,), count=8), 1), (8, 8), float16),  # row-major: fits
        lambda k: k.reinterpret(k.view(k.alloc((768,), count=8), 1), (8, 64), float16),  # a tile every 1536 bytes
        lambda k: k.reinterpret(k.slice(k.alloc((64, 128)), (0, 0), (32, 128)), (64, 64), float16),  # gaps
    ),
)
def test_a_reinterpretation_covers_whole_aligned_bytes(make) -> None:
    k = BufferKernel()
    v = make(k)
    if memory_fits := buffer_of(v).shape == (8, 8):
        assign(k)
    else:
        assert refused(k).summary == "this local_reinterpret does not fit the buffer that it views"
    assert memory_fits == (buffer_of(v).layout is not None)


def test_a_buffer_is_not_chosen_at_run_time() -> None:
    k = BufferKernel()
    a, b = k.alloc((64, 64)), k.alloc((64, 64))
    k.branch(lambda: [a], lambda: [b])
    error = refused(k)
    assert "chosen by an `if`" in error.summary and "index into it" in error.fix


# ------------------------------------------------------------------------------------------------ descriptors
def box(v: Value) -> Memory | None:
    assert isinstance(v.type, Descriptor)
    return v.type.box_layout


def test_a_descriptor_has_the_layout_of_its_buffers() -> None:
    k = BufferKernel()
    used, unused = k.descriptor((64, 64)), k.descriptor((64, 32))
    array = k.alloc((64, 64), count=4)
    k.tma_load(used, k.view(array, 0))
    k.tma_store(used, k.view(array, 1))
    assign(k)
    assert box(used) == swizzled((64, 64), 2, 128) and box(unused) == swizzled((64, 32), 2, 64)
    assert k.module.params[1].type.box_layout == box(used)  # type: ignore[union-attr]


def test_leading_extents_of_one_are_not_part_of_the_block() -> None:
    k = BufferKernel()
    desc, buf = k.descriptor((64, 64)), k.alloc((1, 1, 64, 64))
    k.tma_load(desc, buf)
    assign(k)
    assert box(desc) == swizzled((64, 64), 2, 128)


def test_two_layouts_on_one_descriptor_are_named() -> None:
    k = BufferKernel()
    desc, first = k.descriptor((64, 64)), k.alloc((64, 64), name="first")
    second = k.alloc((64, 64), layout=swizzled((64, 64), 2, 64), name="second")
    one, two = k.tma_load(desc, first), k.tma_load(desc, second)
    error = refused(k)
    assert "first with" in error.found and "second with" in error.found and error.loc == two.loc
    assert [loc for _, loc in error.related] == [first.op.loc, one.loc, second.op.loc]  # type: ignore[union-attr]


def test_tma_refusals() -> None:
    cases = {
        "a row of the block has 8 bytes": lambda k: k.tma_load(k.descriptor((8, 4)), k.alloc((8, 4))),
        "not the contiguous one": lambda k: k.tma_load(k.descriptor((64, 64)), k.trans(k.alloc((64, 64)))),
        "multiple of 48 bytes": lambda k: k.tma_load(k.descriptor((24,)), k.view(k.alloc((24,), count=2), 1)),
        "6 dimensions": lambda k: k.tma_store(k.descriptor((1, 1, 1, 1, 8, 64)), k.alloc((1, 1, 1, 1, 8, 64))),
        "rows are swizzled": lambda k: k.tma_load(
            k.descriptor((64, 64)), k.alloc((64, 64), layout=xor_swizzled((64, 64), 4, 1, 4))
        ),
    }
    for why, build in cases.items():
        k = BufferKernel()
        build(k)
        error = refused(k)
        assert error.summary in ("TMA cannot copy this buffer",) and why in error.found, why


def test_bulk_copies_move_contiguous_bytes() -> None:
    k = BufferKernel()
    k.act("bulk_store", k.addptr(k.pointer(), k.const(0)), k.alloc((64, 64)), None)
    assert "not row-major" in refused(k).summary
    k = BufferKernel()
    k.act("bulk_store", k.addptr(k.pointer(), k.const(0)), k.alloc((4096,)), None)
    assign(k)


def test_remote_copies_keep_the_layout() -> None:
    k = BufferKernel()
    src = k.slice(k.alloc((64, 128)), (0, 0), (64, 64))
    k.act("async_remote_copy", k.alloc((64, 64)), src, k.const(1), k.barrier())
    assign(k)  # one column block is contiguous
    k = BufferKernel()
    src = k.slice(k.alloc((64, 128)), (0, 0), (32, 128))
    k.act("async_remote_copy", k.alloc((32, 128)), src, k.const(1), k.barrier())
    assert "buffers of one layout" in refused(k).summary


# ------------------------------------------------------------------------------------------------ wgmma
@pytest.mark.parametrize("turn_a", (False, True))
@pytest.mark.parametrize("turn_b", (False, True))
def test_wgmma_reads_16_bit_operands_of_either_major(turn_a: bool, turn_b: bool) -> None:
    k, (m, n, kk) = BufferKernel(), (64, 128, 32)
    a = k.trans(k.alloc((kk, m))) if turn_a else k.alloc((m, kk))
    b = k.trans(k.alloc((n, kk))) if turn_b else k.alloc((kk, n))
    k.async_dot(a, b)
    assign(k)


@pytest.mark.parametrize("columns", [8, 24, 40, 72, 136, 200, 248])
def test_where_no_swizzle_fits_wgmma_reads_columns_of_16_bytes(columns: int) -> None:
    """Only buffers that it reads lie so: TMA fills plain rows by fewer copies."""
    k = BufferKernel()
    read, other = k.view(k.alloc((32, columns), count=2)), k.alloc((32, columns))
    k.async_dot(k.alloc((64, 32)), read)
    assign(k)
    assert memory_of(read) == swizzled((32, columns), 2, 16) and swizzle_width(memory_of(read), 2) == 16
    assert memory_of(other) == row_major((32, columns))


def test_wgmma_refusals() -> None:
    k = BufferKernel()
    k.async_dot(k.alloc((64, 64)), k.alloc((64, 40), layout=row_major((64, 40))))
    error = refused(k)
    assert error.summary == "wgmma cannot read operand B from this buffer"
    assert error.found == (
        "a buffer (64, 40) of tl.float16 laid out as 64x40 i[]x64*40 j[1,2,4]x5*8: its rows are plain"
    )
    assert error.allowed == (
        "a swizzle of 32, 64 or 128 bytes, or columns of 16 bytes without one: the contiguous extent in units of "
        "these, the other in units of 8; 16-bit elements contiguous along K, M or N, wider and narrower ones along K"
    )
    k = BufferKernel()
    k.async_dot(k.alloc((64, 64), float32), k.alloc((64, 64), float32))
    error = refused(k)
    assert error.summary.startswith("wgmma cannot read operand B") and "contiguous along N" in error.found
    k = BufferKernel()
    k.async_dot(k.alloc((64, 64), float32), k.trans(k.alloc((64, 64), float32)))
    assign(k)
