"""Descriptors that kernels make, through the whole compiler: boxes, tasks, refusals, and what the emulator finds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numeric.support import emulate

import tlxc
from tlxc import tl, tlx
from tlxc.codegen.nvptx.boxes import box_of
from tlxc.emulator import EmulatorError, launch
from tlxc.errors import CompileError
from tlxc.ir.types import Descriptor

ROWS, COLUMNS = 32, 64
BLOCK = (16, 32)


def arrays(dtype: Any = np.float32) -> tuple[Any, Any]:
    x = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(dtype)
    return x, np.zeros_like(x)


def refused(kernel: Any, *args: Any, **kwargs: Any) -> list[str]:
    """The message with which the kernel is refused, without the source."""
    with pytest.raises(CompileError) as error:
        emulate(kernel, (1,), *args, **kwargs)
    return re.findall(r"(?m)(?:^ +|: )((?:error|found|allowed|fix): .*)$", str(error.value))


# ---------------------------------------------------------------------------------------------------------------- boxes
@tlxc.kernel
def laid_out_kernel(x, out, BLOCK: tl.constexpr):
    """The source's buffer is swizzled by 64 bytes, and so is the map of its descriptor; the target's is plain."""
    dtype = tlx.dtype_of(x)
    slots = tlx.allocate_tensor_descriptor(2)
    tlx.make_tensor_descriptor(slots[1], x, [32, 64], [64, 1], BLOCK)
    source = tlx.reinterpret_tensor_descriptor(slots[1], BLOCK, dtype)
    target = tlx.make_tensor_descriptor(None, out, [32, 64], [64, 1], BLOCK)
    a = tlx.local_alloc(BLOCK, dtype, 1, layout=tlx.swizzled_layout(2, 3, 3))[0]
    bar = tlx.alloc_barriers(1)[0]
    tlx.barrier_expect_bytes(bar, BLOCK[0] * BLOCK[1] * 2)
    tlx.async_descriptor_load(source, a, [0, 0], bar)
    tlx.barrier_wait(bar, 0)
    target.store([0, 0], tlx.local_load(a))


def test_maps_follow_the_buffers_of_all_that_use_their_slots() -> None:
    """The one that fills the slot copies nothing itself; its box is that of the descriptor that does."""
    x, out = arrays(np.float16)
    built = emulate(laid_out_kernel, (1,), x, out, BLOCK=(16, 32))
    assert (out[:16, :32] == x[:16, :32]).all() and not out[16:].any()
    made = [op.inputs[0].type for op in built.module.walk() if op.kind == "encode_descriptor"]
    assert all(isinstance(d, Descriptor) for d in made)
    assert [box_of(d).swizzle for d in made] == [64, 64]  # type: ignore[arg-type]
    assert built.module.attrs["workspace"] == 3 * 128


@tlxc.kernel
def two_layouts_kernel(x, BLOCK: tl.constexpr):
    dtype = tlx.dtype_of(x)
    slots = tlx.allocate_tensor_descriptor(2)
    first = tlx.make_tensor_descriptor(slots[0], x, [32, 64], [64, 1], BLOCK)
    second = tlx.make_tensor_descriptor(slots[1], x, [32, 64], [64, 1], BLOCK)
    a = tlx.local_alloc(BLOCK, dtype, 1, layout=tlx.swizzled_layout(2, 3, 3))[0]
    b = tlx.local_alloc(BLOCK, dtype, 1, layout=tlx.swizzled_layout(0, 3, 3))[0]
    bar = tlx.alloc_barriers(1)[0]
    tlx.async_descriptor_load(first, a, [0, 0], bar)
    tlx.async_descriptor_load(second, b, [0, 0], bar)


@tlxc.kernel
def short_rows_kernel(x, out, COLUMNS: tl.constexpr):
    source = tlx.make_tensor_descriptor(None, x, [32, COLUMNS], [64, 1], [16, 32])
    target = tlx.make_tensor_descriptor(None, out, [32, COLUMNS], [64, 1], [16, 32])
    target.store([0, 0], source.load([0, 0]))


def test_stores_do_not_write_beyond_rows() -> None:
    x, out = arrays()
    assert refused(short_rows_kernel, x, out, COLUMNS=30) == [
        "error: a store by this descriptor would write beyond the rows of its tensor, to a multiple of 16 bytes",
        "found: rows of 120 bytes",
        "allowed: a last extent that is a multiple of 4 elements of tl.float32",
        "fix: store with tl.store, or make the rows longer if what follows them may be overwritten",
    ]


@tlxc.kernel
def rows_at_run_time_kernel(x, out, n):
    source = tlx.make_tensor_descriptor(None, x, [32, 64], [64, 1], [16, 32])
    target = tlx.make_tensor_descriptor(None, out, [32, n], [64, 1], [16, 32])
    target.store([0, 0], source.load([0, 0]))


def test_the_emulator_knows_rows_at_run_time() -> None:
    x, out = arrays()
    emulate(rows_at_run_time_kernel, (1,), x, out, 28)
    assert (out[:16, :28] == x[:16, :28]).all() and not out[:, 28:].any()
    with pytest.raises(EmulatorError, match="A store to rows of 120 bytes writes beyond their end"):
        emulate(rows_at_run_time_kernel, (1,), *arrays(), 30)


def test_slots_of_one_array_have_one_layout() -> None:
    message = refused(two_layouts_kernel, arrays(np.float16)[0], BLOCK=(16, 32))
    assert message[0] == "error: the descriptor second copies to and from buffers of two layouts"
    assert message[-1] == (
        "fix: give the buffers one shape and layout, or pass a second descriptor, in slots of an allocation of its own"
    )


@tlxc.kernel
def other_blocks_kernel(x, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    slots = tlx.allocate_tensor_descriptor(1)
    tlx.make_tensor_descriptor(slots[0], x, [32, 64], [64, 1], BLOCK)
    tlx.reinterpret_tensor_descriptor(slots[0], OTHER, tlx.dtype_of(x)).load([0, 0])
    bar = tlx.alloc_barriers(1)[0]
    buf = tlx.local_alloc(OTHER, tlx.dtype_of(x))[0]
    tlx.async_descriptor_load(tlx.reinterpret_tensor_descriptor(slots[0], OTHER, tlx.dtype_of(x)), buf, [0, 0], bar)


def test_a_slot_is_reinterpreted_as_it_was_filled() -> None:
    assert refused(other_blocks_kernel, arrays()[0], BLOCK=(16, 32), OTHER=(8, 32)) == [
        "error: no tlx.make_tensor_descriptor fills the slots of this descriptor with such blocks",
        "found: a copy of blocks (8, 32) of tl.float32",
        "allowed: the block_shape and the dtype that some slot of the allocation is filled with",
        "fix: give tlx.reinterpret_tensor_descriptor the block_shape of tlx.make_tensor_descriptor, and the dtype of "
        "its base",
    ]


@tlxc.kernel
def chosen_kernel(x, out, n):
    if n > 0:
        source = tlx.make_tensor_descriptor(None, x, [32, 64], [64, 1], (16, 32))
    else:
        source = tlx.make_tensor_descriptor(None, out, [32, 64], [64, 1], (16, 32))
    tl.store(out, tl.sum(tl.sum(source.load([0, 0]), 1), 0))


def test_a_descriptor_is_not_chosen_at_run_time() -> None:
    x, out = arrays()
    assert refused(chosen_kernel, x, out, 5) == [
        "error: a buffer, barrier or descriptor is carried by a loop or chosen by an `if`",
        "found: source of type desc<16x32xf32>",
        "allowed: one object in every iteration and branch",
        "fix: allocate one array, and carry or choose the index into it",
    ]


@tlxc.kernel
def filled_in_a_branch_kernel(x, out, n, BLOCK: tl.constexpr):
    """What one cannot write with two descriptors: the slot is filled by one branch or the other."""
    slots = tlx.allocate_tensor_descriptor(1)
    target = tlx.make_tensor_descriptor(None, out, [32, 64], [64, 1], BLOCK)
    if n > 5:
        tlx.make_tensor_descriptor(slots[0], x, [32, 64], [64, 1], BLOCK)
    else:
        tlx.make_tensor_descriptor(slots[0], x + 16 * 64, [16, 64], [64, 1], BLOCK)
    source = tlx.reinterpret_tensor_descriptor(slots[0], BLOCK, tlx.dtype_of(x))
    for j in range(0, 64, BLOCK[1]):
        target.store([0, j], source.load([0, j]))


@pytest.mark.parametrize(("n", "first"), [(7, 0), (3, 16)])
def test_a_slot_is_filled_in_a_branch(n: int, first: int) -> None:
    x, out = arrays()
    emulate(filled_in_a_branch_kernel, (1,), x, out, n, BLOCK=BLOCK)
    assert (out[:16] == x[first : first + 16]).all()


# ---------------------------------------------------------------------------------------------------------------- tasks
@tlxc.kernel
def producer_kernel(x, out, BLOCK: tl.constexpr):
    """A producer that makes its descriptor: one warp does all of it, whatever it was given."""
    dtype = tlx.dtype_of(x)
    buf = tlx.local_alloc(BLOCK, dtype)[0]
    bar = tlx.alloc_barriers(1)[0]
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.barrier_wait(bar, 0)
            at = tl.arange(0, BLOCK[0])[:, None] * BLOCK[1] + tl.arange(0, BLOCK[1])[None, :]
            tl.store(out + at, tlx.local_load(buf))
        with tlx.async_task(num_warps=4):
            source = tlx.make_tensor_descriptor(None, x, [32, 64], [64, 1], BLOCK)
            tlx.barrier_expect_bytes(bar, BLOCK[0] * BLOCK[1] * 4)
            tlx.async_descriptor_load(source, buf, [16, 32], bar)


def test_a_producer_stays_one_warp() -> None:
    x, out = arrays()
    built = emulate(producer_kernel, (1,), x, out, BLOCK=BLOCK)
    assert (out.reshape(-1)[:512].reshape(BLOCK) == x[16:, 32:]).all()
    (tasks,) = (op for op in built.module.walk() if op.kind == "async_tasks")
    assert tasks.attrs["num_warps"] == (4, 1)


@tlxc.kernel
def captured_kernel(x, out, BLOCK: tl.constexpr):
    source = tlx.make_tensor_descriptor(None, x, [32, 64], [64, 1], BLOCK)
    target = tlx.make_tensor_descriptor(None, out, [32, 64], [64, 1], BLOCK)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            target.store([0, 0], source.load([0, 0]))
        with tlx.async_task(num_warps=4):
            target.store([16, 32], source.load([16, 32]))


def test_tasks_acquire_what_they_capture() -> None:
    """The default task fills the slots; all warps acquire them behind the barrier that follows."""
    x, out = arrays()
    built = emulate(captured_kernel, (1,), x, out, BLOCK=BLOCK)
    assert (out[:16, :32] == x[:16, :32]).all() and (out[16:, 32:] == x[16:, 32:]).all()
    kinds = [op.kind for op in built.module.body.ops]
    made, second = (i for i, kind in enumerate(kinds) if kind == "async_tasks")
    behind = [kind for kind in kinds[made + 1 : second] if kind in ("barrier", "acquire_descriptor")]
    assert behind == ["barrier", "acquire_descriptor", "acquire_descriptor"]


# ------------------------------------------------------------------------------------------------------------- emulator
@tlxc.kernel
def copy_kernel(x, out, rows, stride, BLOCK: tl.constexpr):
    source = tlx.make_tensor_descriptor(None, x, [rows, 64], [stride, 1], BLOCK)
    target = tlx.make_tensor_descriptor(None, out, [rows, 64], [stride, 1], BLOCK)
    target.store([0, 0], source.load([0, 0]))


@pytest.mark.parametrize(
    ("rows", "stride", "message"),
    [
        (33, 64, r"The tensor map reaches byte 8448 of an array of 8192 bytes"),
        (32, 63, r"strides are multiples of 16 bytes, not \(252,\)"),
        (0, 64, r"its extents are \[64, 0\]; none is 0"),
    ],
)
def test_maps_are_checked_where_they_are_used(rows: int, stride: int, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        emulate(copy_kernel, (1,), *arrays(), rows, stride, BLOCK=BLOCK)


def test_the_base_is_checked() -> None:
    x, out = arrays()
    with pytest.raises(EmulatorError, match="its tensor starts at byte 4, which is no multiple of 16"):
        emulate(copy_kernel, (1,), (x, 4), out, 8, 64, BLOCK=BLOCK)


def broken(old: str, new: str, count: int = 1) -> str:
    """What the emulator says of the copy with a part of its code replaced."""
    x, out = arrays()
    built = emulate(copy_kernel, (1,), x, out, 32, 64, BLOCK=BLOCK)
    text, found = re.subn(old, new, built.llvm, count=count)
    assert found
    workspace = np.zeros(256, np.uint8)
    with pytest.raises(EmulatorError) as error:
        launch(text, (1, 1, 1), 128, [x, out, 32, 64, workspace], built.shared)
    return str(error.value)


def test_a_map_that_nobody_acquired() -> None:
    fence = r"fence\.proxy\.tensormap::generic\.acquire\.gpu \[\$0\], 128;"
    message = broken(fence, "")
    assert "copies by a tensor map that was published" in message and "fence.proxy.tensormap comes before" in message


def test_a_map_that_nobody_published() -> None:
    message = broken(r"@p tensormap\.cp_fenceproxy[^;]*;", "")
    assert "neither that of a tensor map that the kernel was given nor of one that it published" in message


def test_a_map_with_a_field_that_nobody_wrote() -> None:
    element_stride = r"@p tensormap\.replace\.tile\.element_stride[^;]*;"
    assert "element strides other than 1" in broken(element_stride, "")
    assert "the box is (32, 0)" in broken(r"@p tensormap\.replace\.tile\.box_dim\S+ \[\$0\], 1, \$1;", "")


def test_a_map_that_is_not_cleared() -> None:
    assert "reads shared memory that nobody wrote" in broken(r"@p st\.shared\.b32 \[\$0\], 0;", "")


def test_a_map_that_is_published_by_half_a_warp() -> None:
    x, out = arrays()
    built = emulate(copy_kernel, (1,), x, out, 32, 64, BLOCK=BLOCK)
    publish = re.search(r"@p tensormap\.cp_fenceproxy[^;]*;", built.llvm)
    assert publish
    half = ".reg .pred q; .reg .b32 t; mov.u32 t, %laneid; setp.lt.u32 q, t, 16; " + publish[0].replace("@p", "@q")
    with pytest.raises(EmulatorError, match="all lanes of a warp must execute it together"):
        launch(built.llvm.replace(publish[0], half, 1), (1, 1, 1), 128, [x, out, 32, 64, np.zeros(256, np.uint8)],
               built.shared)  # fmt: skip


@tlxc.kernel
def early_kernel(x, out, BLOCK: tl.constexpr, WAIT: tl.constexpr):
    """The slot is filled again while a copy by it may be under way, unless WAIT."""
    slots = tlx.allocate_tensor_descriptor(1)
    buf = tlx.local_alloc(BLOCK, tlx.dtype_of(x))[0]
    bar = tlx.alloc_barriers(1)[0]
    tlx.barrier_expect_bytes(bar, BLOCK[0] * BLOCK[1] * 4)
    source = tlx.make_tensor_descriptor(slots[0], x, [32, 64], [64, 1], BLOCK)
    tlx.async_descriptor_load(source, buf, [0, 0], bar)
    if WAIT:
        tlx.barrier_wait(bar, 0)
    target = tlx.make_tensor_descriptor(slots[0], out, [32, 64], [64, 1], BLOCK)
    tlx.barrier_wait(bar, 0)
    tlx.async_descriptor_store(target, buf, [0, 0])
    tlx.async_descriptor_store_wait(0)


def test_a_slot_that_is_filled_too_early() -> None:
    x, out = arrays()
    emulate(early_kernel, (1,), x, out, BLOCK=BLOCK, WAIT=True)
    assert (out[:16, :32] == x[:16, :32]).all()
    with pytest.raises(EmulatorError, match="where copies by the one before are still under way"):
        emulate(early_kernel, (1,), x, out, BLOCK=BLOCK, WAIT=False)


# -------------------------------------------------------------------------------------------------------- ahead of time
def test_the_artifact_tells_the_workspace() -> None:
    compiled = captured_kernel.warmup(tl.float32, tl.float32, BLOCK, target="sm_90")
    assert compiled.workspace == compiled.metadata["workspace"] == 256
    assert "k_param" not in compiled.asm["ptx"] and "captured_kernel_param_2" in compiled.asm["ptx"]
