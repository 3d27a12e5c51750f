"""Instruction selection for matrix multiplies."""

from __future__ import annotations

import pytest
from assign_kernels import Kernel
from buffer_kernels import BufferKernel

from tlxc.errors import CompileError
from tlxc.ir.core import Op
from tlxc.ir.layout import Layout
from tlxc.ir.types import bfloat16, float16, float32
from tlxc.passes.dots import select_dots, warp_grid
from tlxc.targets import get_target
from tlxc.targets.fragments import mma16816

SHAPES_WGMMA = [
    (64, 8, 16, 4), (64, 256, 64, 4), (192, 80, 64, 4), (128, 24, 16, 8), (384, 192, 128, 8), (256, 64, 32, 16),
]  # fmt: skip
SHAPES_MMA = [
    (16, 8, 16, 1), (64, 64, 16, 1), (64, 64, 32, 2), (32, 64, 64, 4), (64, 128, 64, 8), (64, 264, 16, 4),
    (48, 24, 48, 4),
]  # fmt: skip


def select(m: int, n: int, k: int, warps: int, target: str = "sm_90", dtype=float16) -> Op:
    kernel = Kernel(warps)
    kernel.dot(kernel.full((m, k), 1.0, dtype), kernel.full((k, n), 1.0, dtype), kernel.full((m, n)))
    select_dots(kernel.module, get_target(target))
    return kernel.module.body.ops[-1]


@pytest.mark.parametrize("dtype", (float16, bfloat16))
@pytest.mark.parametrize("shape", SHAPES_WGMMA)
def test_wgmma_where_it_fits(shape: tuple[int, int, int, int], dtype) -> None:
    assert select(*shape, dtype=dtype).attrs == {"impl": "wgmma"}


@pytest.mark.parametrize("shape", SHAPES_MMA)
def test_mma_sync_where_wgmma_does_not(shape: tuple[int, int, int, int]) -> None:
    assert select(*shape).attrs["impl"] == "mma.sync"


@pytest.mark.parametrize("target", ("sm_100", "sm_103", "sm_120"))
@pytest.mark.parametrize("shape", SHAPES_WGMMA + SHAPES_MMA)
def test_mma_sync_on_later_gpus(shape: tuple[int, int, int, int], target: str) -> None:
    attrs = select(*shape, target=target).attrs
    assert attrs["impl"] == "mma.sync" and attrs["warps_mn"] == warp_grid(shape[0], shape[1], shape[3])


@pytest.mark.parametrize(
    ("m", "n", "warps", "grid"),
    (
        (128, 128, 4, (2, 2)), (128, 64, 4, (4, 1)), (64, 128, 4, (2, 2)), (16, 64, 4, (1, 4)), (128, 256, 8, (2, 4)),
        (16, 8, 4, (4, 1)), (64, 8, 4, (4, 1)), (48, 64, 4, (1, 4)), (256, 32, 8, (8, 1)), (64, 64, 1, (1, 1)),
    ),
)  # fmt: skip
def test_warps_share_the_result_evenly(m: int, n: int, warps: int, grid: tuple[int, int]) -> None:
    assert warp_grid(m, n, warps) == grid


@pytest.mark.parametrize("shape", SHAPES_MMA)
def test_every_element_has_a_warp_and_an_operand(shape: tuple[int, int, int, int]) -> None:
    m, n, k, warps = shape
    grid = warp_grid(m, n, warps)
    layouts: list[Layout] = [mma16816("acc", (m, n), grid), mma16816("a", (m, k), grid), mma16816("b", (k, n), grid)]
    assert all(a.surjective() and len(a.others) == warps.bit_length() - 1 for a in layouts)


@pytest.mark.parametrize(
    ("m", "n", "k", "warps"),
    ((64, 64, 24, 4), (64, 20, 64, 4), (64, 100, 64, 8), (8, 64, 64, 4), (72, 64, 64, 4), (64, 64, 8, 4)),
)
def test_a_tile_that_no_instruction_covers_is_refused(m: int, n: int, k: int, warps: int) -> None:
    with pytest.raises(CompileError) as caught:
        select(m, n, k, warps)
    error = caught.value
    assert error.summary == "no matrix instruction of sm_90 computes this dot"
    assert error.found == f"{m}x{k} by {k}x{n} of f16 and f16 with f32 accumulator, {warps} warps"
    assert "wgmma m64nNk16" in error.allowed and "mma.sync m16n8k16" in error.allowed
    assert error.loc is not None and error.fix


def test_only_the_instructions_of_the_target_are_named() -> None:
    with pytest.raises(CompileError) as caught:
        select(64, 64, 24, 4, "sm_120")
    assert "wgmma" not in caught.value.allowed and "mma.sync m16n8k16" in caught.value.allowed


@pytest.mark.parametrize("target", ("gfx942", "gfx950", "gfx1250"))
def test_amd_is_refused_by_name(target: str) -> None:
    with pytest.raises(CompileError) as caught:
        select(64, 64, 64, 4, target)
    assert caught.value.summary == f"dot is not supported on {target}"
    assert caught.value.allowed.endswith("sm_90, sm_100, sm_103, sm_120")


# ------------------------------------------------------------------------------------------------ async dots, tasks
def async_dot(m: int, n: int, k: int, warps: int, target: str = "sm_90", a=float16, b=float16) -> None:
    kernel = BufferKernel(4)

    def task() -> None:
        kernel.async_dot(kernel.alloc((m, k), a), kernel.alloc((k, n), b))

    kernel.tasks((1, lambda: None), (warps, task))
    select_dots(kernel.module, get_target(target))


@pytest.mark.parametrize("shape", SHAPES_WGMMA)
def test_async_dots_that_wgmma_computes(shape: tuple[int, int, int, int]) -> None:
    async_dot(*shape)


def test_tf32_steps_are_half_as_deep() -> None:
    async_dot(64, 64, 8, 4, a=float32, b=float32)


@pytest.mark.parametrize(
    ("args", "summary", "words"),
    (
        ((64, 64, 64, 2), "wgmma does not compute", "a task of 4 warps"),
        ((64, 64, 64, 8), "wgmma does not compute", "128 rows or a multiple"),
        ((64, 20, 64, 4), "wgmma does not compute", "pad N and K"),
        ((64, 264, 64, 4), "wgmma does not compute", "pad N and K"),
        ((64, 64, 24, 4), "wgmma does not compute", "pad N and K"),
        ((64, 64, 64, 4, "sm_90", float16, bfloat16), "wgmma does not compute", "cast both operands"),
        ((64, 64, 64, 4, "sm_120"), "async_dot is not supported on sm_120", "use tl.dot"),
        ((64, 64, 64, 4, "gfx942"), "async_dot is not supported on gfx942", "use tl.dot"),
    ),
)  # fmt: skip
def test_async_dots_that_wgmma_does_not_compute(args: tuple, summary: str, words: str) -> None:
    with pytest.raises(CompileError) as caught:
        async_dot(*args)
    assert caught.value.summary.startswith(summary) and words in caught.value.fix and caught.value.loc is not None


def test_a_dot_takes_the_warps_of_its_task() -> None:
    kernel = BufferKernel(4)

    def dot() -> None:
        kernel.dot(kernel.full((64, 64), 1.0, float16), kernel.full((64, 64), 1.0, float16), kernel.full((64, 64)))

    kernel.tasks((2, dot), (4, dot))
    select_dots(kernel.module, get_target("sm_90"))
    first, second = (op for op in kernel.module.walk() if op.kind == "dot")
    assert first.attrs == {"impl": "mma.sync", "warps_mn": warp_grid(64, 64, 2)} and second.attrs == {"impl": "wgmma"}
