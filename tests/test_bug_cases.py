"""Real bugs of other kernel languages, each right here: one test named after what was reported.

The numbers are issue numbers of the projects named.  What the numbers come to is checked in the emulator for both
vendors, in the simulator and, with a device, on the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numeric.indexing import row_major
from numeric.simulated import simulate
from numeric.support import emulate, launch_on_gpu

import tlxc
from tlxc import tl
from tlxc.errors import CompileError
from tlxc.frontend.source import Source
from tlxc.ir.types import Scalar, element_of
from tlxc.ir.types import int64 as ir_int64
from tlxc.runtime.grid import GridError, extents

Launch = Callable[..., Any]


def _on(target: str) -> Launch:
    return lambda *args, **kwargs: emulate(*args, target=target, **kwargs)


@pytest.fixture(params=["sm_90", "gfx950", "simulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def launch(request: pytest.FixtureRequest) -> Launch:
    """Runs a kernel on NumPy arrays, in place."""
    return {"gpu": launch_on_gpu, "simulator": simulate}.get(request.param) or _on(request.param)


def refused(kernel: Any, *args: Any, **kwargs: Any) -> str:
    """The message with which the kernel is refused."""
    with pytest.raises(CompileError) as error:
        emulate(kernel, (1,), *args, **kwargs)
    return str(error.value)


# ---------------------------------------------------------------------------------------------- integers and addressing
@tlxc.kernel
def division_kernel(a, b, quotient, rest, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(quotient + i, x // y)
    tl.store(rest + i, x % y)


@tlxc.kernel
def folded_division_kernel(out, A: tl.constexpr, B: tl.constexpr):
    a, b = tl.full((), A, tl.int32), tl.full((), B, tl.int32)
    tl.store(out, a // b)
    tl.store(out + 1, a % b)


@tlxc.kernel
def constant_division_kernel(out, A: tl.constexpr, B: tl.constexpr):
    tl.store(out, A // B)
    tl.store(out + 1, A % B)


_SIGNS = ((7, 3), (-7, 3), (7, -3), (-7, -3))
_TRUNCATED = {(7, 3): (2, 1), (-7, 3): (-2, -1), (7, -3): (-2, 1), (-7, -3): (2, -1)}


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_triton_619_4955_10930_division_of_negative_numbers(launch: Launch, dtype: Any) -> None:
    """`//` and `%` truncate at run time, in every width, and a == (a // b) * b + a % b."""
    a, b = np.array(_SIGNS, dtype).T.copy()
    q, r = np.zeros(4, dtype), np.zeros(4, dtype)
    launch(division_kernel, (1,), a, b, q, r, BLOCK=4)
    assert [tuple(x) for x in zip(q, r)] == [_TRUNCATED[s] for s in _SIGNS]
    assert (q * b + r == a).all()


@pytest.mark.parametrize(("a", "b"), _SIGNS)
def test_triton_619_4955_10930_folded_division_agrees(a: int, b: int) -> None:
    """What the compiler folds is what the hardware computes; of compile-time ints, negative ones are refused."""
    out = np.zeros(2, np.int32)
    built = emulate(folded_division_kernel, (1,), out, A=a, B=b)
    assert tuple(out) == _TRUNCATED[a, b]
    assert not {op.kind for op in built.module.walk()} & {"idiv", "rem"}
    if a > 0 and b > 0:
        emulate(constant_division_kernel, (1,), out, A=a, B=b)
        assert tuple(out) == _TRUNCATED[a, b]
    else:
        text = refused(constant_division_kernel, out, A=a, B=b)
        assert "`//` of a negative constant has two meanings" in text
        assert f"{a} // {b} is {_TRUNCATED[a, b][0]} truncated toward zero, as in C, and {a // b} rounded down" in text


def test_triton_619_4955_10930_floats_have_no_floor_division() -> None:
    x = np.array([-7.0, 7.0], np.float32)
    text = refused(division_kernel, x, x, x.copy(), x.copy(), BLOCK=2)
    assert "`//` works on integers only" in text


def test_tilelang_2973_quotient_and_remainder_round_alike(launch: Launch) -> None:
    a, b = np.array([-7] * 4, np.int32), np.array([3] * 4, np.int32)
    q, r = np.zeros(4, np.int32), np.zeros(4, np.int32)
    launch(division_kernel, (1,), a, b, q, r, BLOCK=4)
    assert set(q) == {-2} and set(r) == {-1}


@tlxc.kernel
def cdiv_kernel(a, b, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.cdiv(tl.load(a + i), tl.load(b + i)))
    tl.store(out + BLOCK, tl.cdiv(-36, 5))
    tl.store(out + BLOCK + 1, tl.cdiv(7, -3))


def test_triton_954_tilelang_2943_ceil_division_of_negative_numbers(launch: Launch) -> None:
    a, b = (
        np.array([-36, 7, 36, -7, 2**31 - 1, -(2**31), 5, 0], np.int32),
        np.array([5, -3, 5, -3, 2, 3, 5, -3], np.int32),
    )
    out = np.zeros(10, np.int32)
    launch(cdiv_kernel, (1,), a, b, out, BLOCK=8)
    assert list(out) == [*(-(-int(x) // int(y)) for x, y in zip(a, b)), -7, -2]
    assert (tlxc.cdiv(-36, 5), tlxc.cdiv(7, -3)) == (-7, -2)


@tlxc.kernel
def far_row_kernel(x, out, row, length, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + row * length + i))


@tlxc.kernel
def far_rows_kernel(x, out, first, length, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = first + tl.arange(0, ROWS)
    tile = tl.load(x + rows[:, None] * length + tl.arange(0, BLOCK)[None, :])
    tl.store(out + row_major((ROWS, BLOCK)), tile)


@tlxc.kernel
def far_program_kernel(x, out, length, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) + FIRST
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + row * length + tl.arange(0, BLOCK)))


@pytest.mark.parametrize("target", ["sm_90", "gfx950"])
def test_megablocks_185_triton_6748_fla_1080_offsets_beyond_32_bits(target: str) -> None:
    """Row 524 288 of length 4096 begins 2**31 elements on.  The array stands for that row: its address is passed as
    that of row 0, so that only a 64-bit offset comes back to it."""
    row, length = 524288, 4096
    x, before = np.arange(length, dtype=np.int16), -row * length * 2
    for kernel, size, given in (
        (far_row_kernel, length, {"row": row, "length": length}),
        (far_program_kernel, length, {"length": length, "FIRST": row}),
    ):
        out = np.zeros(size, np.int16)
        emulate(kernel, (1,), (x, before), out, **given, BLOCK=length, target=target)
        assert (out == x).all()


@pytest.mark.parametrize("target", ["sm_90", "gfx950"])
def test_megablocks_185_triton_6748_fla_1080_lane_offsets_beyond_32_bits(target: str) -> None:
    """The same where the row is in the offset of each lane."""
    row, length = 524280, 4096
    x = np.arange(16 * length, dtype=np.int16).reshape(16, length)
    out = np.zeros((16, 32), np.int16)
    built = emulate(
        far_rows_kernel, (1,), (x, -row * length * 2), out, first=row, length=length, ROWS=16, BLOCK=32, target=target
    )
    assert (out == x[:, :32]).all()
    offsets = [element_of(op.operands[1].type) for op in built.module.walk() if op.kind == "addptr"]  # type: ignore[union-attr]
    assert ir_int64 in offsets


@tlxc.kernel
def nested_modulo_kernel(x, b, out, K: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr):
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + j, tl.load(b + j % K) * 1000 + tl.load(x + j % K % M) + j // K % M * 100000)


@pytest.mark.parametrize(("k", "m"), [(12, 8), (12, 5), (48, 32), (7, 4), (16, 12)])
def test_tilelang_2955_nested_modulo_that_does_not_nest(launch: Launch, k: int, m: int) -> None:
    """Tiles of 64 are no multiple of the divisors, and the divisors not of each other."""
    x, b, out = np.arange(m, dtype=np.int32), np.arange(k, dtype=np.int32), np.zeros(128, np.int32)
    launch(nested_modulo_kernel, (2,), x, b, out, K=k, M=m, BLOCK=64)
    j = np.arange(128)
    assert (out == b[j % k] * 1000 + x[j % k % m] + j // k % m * 100000).all()


@tlxc.kernel
def opaque_kernel(x, always, out, total, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    tile = tl.load(x + pid * BLOCK + i)
    result = tl.sum(tile)
    if tl.load(always) != 0:
        result = tl.sum(tl.where(i < BLOCK // 2, tile, 0))
        if pid == 0:
            tl.store(total, result)
    tl.store(out + pid * BLOCK + i, tile + result)


@pytest.mark.parametrize("opaque", [0, 1])
def test_triton_11153_store_under_an_opaque_condition_changes_nothing_else(launch: Launch, opaque: int) -> None:
    x = np.arange(3 * 128, dtype=np.int32).reshape(3, 128)
    out, total = np.zeros_like(x), np.full(1, -1, np.int32)
    launch(opaque_kernel, (3,), x, np.array([opaque], np.int32), out, total, BLOCK=128)
    sums = (x[:, :64] if opaque else x).sum(1)
    assert (out == x + sums[:, None]).all()
    assert total[0] == (sums[0] if opaque else -1)


# -------------------------------------------------------------------------------------- floating point and conversions
@tlxc.kernel
def to_bf16_kernel(x, out, folded, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(tl.bfloat16))
    tl.store(folded, tl.full((), 259, tl.int32).to(tl.bfloat16))
    tl.store(folded + 1, tl.full((), 33000, tl.int32).to(tl.bfloat16))
    tl.store(folded + 2, tl.full((), -259, tl.int32).to(tl.bfloat16))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tilelang_2483_integers_to_bf16_round_to_nearest_even(launch: Launch, dtype: Any) -> None:
    x = np.array([259, 33000, -259, 257], dtype)
    out, folded = np.zeros(4, bfloat16), np.zeros(3, bfloat16)
    launch(to_bf16_kernel, (1,), x, out, folded, BLOCK=4)
    assert list(out.astype(np.float32)) == [260, 33024, -260, 256]
    assert list(folded.astype(np.float32)) == [260, 33024, -260]


@tlxc.kernel
def literal_kernel(x, out):
    tl.store(out, tl.full((), 8388608.5, tl.float32))
    tl.store(out + 1, tl.load(x) + 8388608.5)
    tl.store(out + 2, tl.full((), 16777216.0, tl.float32) + 1.0)
    tl.store(out + 3, (tl.full((), 2048, tl.float16) + 1.0).to(tl.float32))


@tlxc.kernel
def too_large_kernel(x, out):
    tl.store(out, tl.load(x) + 70000)


def test_tilelang_2945_2999_constants_fold_in_the_target_type(launch: Launch) -> None:
    """8388608.5 is no float32 (ties to even), 2**24 + 1 neither, 2049 no float16."""
    out = np.zeros(4, np.float32)
    launch(literal_kernel, (1,), np.zeros(1, np.float32), out)
    assert list(out) == [8388608.0, 8388608.0, 16777216.0, 2048.0]


def test_tilelang_2945_2999_literal_beyond_float16_is_refused() -> None:
    text = refused(too_large_kernel, np.zeros(1, np.float16), np.zeros(1, np.float16))
    assert "the literal 70000 is out of range of tl.float16" in text and "-65504 to 65504" in text
    assert "tl.load(x) + 70000" in text


@tlxc.kernel
def count_kernel(x, out, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)), dtype=DTYPE))


@pytest.mark.parametrize(
    ("dtype", "asked", "result"),
    [(np.bool_, None, np.int32), (np.int8, None, np.int32), (bfloat16, None, bfloat16),
     (bfloat16, tl.float32, np.float32), (np.int8, tl.int64, np.int64)],
)  # fmt: skip
def test_triton_5763_6974_sum_of_1024_ones(launch: Launch, dtype: Any, asked: Any, result: Any) -> None:
    """bf16 accumulates in f32: in bf16 the sum of ones stops at 256."""
    out = np.zeros(1, result)
    launch(count_kernel, (1,), np.ones(1024, dtype), out, DTYPE=asked, BLOCK=1024)
    assert out.astype(np.float64)[0] == 1024


@tlxc.kernel
def mixed_kernel(a, b, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.load(a + i) + tl.load(b + i)
    tl.static_assert(total.dtype == tl.float32, "int32 + bfloat16 is float32")
    tl.store(out + i, total)


def test_pytorch_179845_triton_4697_int32_plus_bf16(launch: Launch) -> None:
    """257 is no bf16: an integer never becomes one silently."""
    a, b, out = np.array([257, -259], np.int32), np.zeros(2, bfloat16), np.zeros(2, np.float32)
    launch(mixed_kernel, (1,), a, b, out, BLOCK=2)
    assert list(out) == [257, -259]


# ----------------------------------------------------------------------------------------------------- matrix and masks
@tlxc.kernel
def product_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    x, y = tl.load(a + row_major((M, K))), tl.load(b + row_major((K, N)))
    tl.store(out + row_major((M, N)), tl.dot(x, y))


def _matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * n + k)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


@pytest.mark.parametrize("target", ["sm_90", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("m", "n", "k", "warps"), [(64, 24, 16, 4), (64, 40, 32, 4), (128, 104, 16, 8), (16, 24, 16, 1), (32, 40, 16, 2)]
)
def test_tilelang_2381_2593_2603_2537_columns_of_8_mod_16(target: str, m: int, n: int, k: int, warps: int) -> None:
    a, b, out = _matrices(m, n, k)
    run = launch_on_gpu if target == "gpu" else emulate
    run(product_kernel, (1,), a, b, out, M=m, N=n, K=k, num_warps=warps)
    assert (out == a.astype(np.float32) @ b.astype(np.float32)).all()


def test_tilelang_2381_2593_2603_2537_extents_that_no_atom_divides_are_refused() -> None:
    a, b, out = _matrices(64, 16, 24)
    text = refused(product_kernel, a, b, out, M=64, N=16, K=24)
    assert "the inner extent of dot is no multiple of 16" in text and "K = 24" in text
    a, b, out = _matrices(64, 20, 16)
    text = refused(product_kernel, a, b, out, M=64, N=20, K=16)
    assert "no matrix instruction of sm_90 computes this dot" in text
    assert "64x16 by 16x20 of f16 and f16 with f32 accumulator, 4 warps" in text and "mma.sync m16n8k16" in text


def test_tilelang_2381_2593_2603_2537_twelve_warps_are_refused() -> None:
    with pytest.raises(tlxc.TlxcError, match=re.escape("num_warps is 12; it may be 1, 2, 4, 8, 16 or 32.")):
        product_kernel.warmup(tl.float16, tl.float16, tl.float32, M=128, N=104, K=16, num_warps=12, target="sm_90")


@tlxc.kernel
def tail_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n))


def test_tlx_readme_masked_load_without_other_gives_zeros(launch: Launch) -> None:
    """The tail of the last tile is 0, whatever stands behind the array or stood in the registers."""
    memory = np.full(256, np.nan, np.float16)
    memory[:77] = np.arange(77)
    out = np.full(128, np.nan, np.float16)
    launch(tail_kernel, (2,), memory, out, 77, BLOCK=64)
    assert (out[:77] == memory[:77]).all() and (out[77:] == 0).all()


@tlxc.kernel
def other_kernel(x, out, n, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=OTHER))
    tl.store(out + BLOCK, tl.load(x, mask=n > 1000, other=OTHER))


@pytest.mark.parametrize("other", [0, 0.0, float("-inf"), float("nan")])
def test_triton_3281_737_9917_other_of_a_masked_load(launch: Launch, other: float) -> None:
    x, out = np.arange(1, 65, dtype=np.float32), np.full(65, 5, np.float32)
    launch(other_kernel, (1,), x, out, 40, OTHER=other, BLOCK=64)
    assert (out[:40] == x[:40]).all()
    np.testing.assert_array_equal(out[40:], np.full(25, other, np.float32))


# -------------------------------------------------------------------------------------------------------------- runtime
def test_triton_3299_580_triton_viz_423_rocm_triton_865_grids() -> None:
    """An empty grid is a grid; what no GPU launches is refused before the driver; lists are taken."""
    assert extents((0,)) == (0, 1, 1) and extents([4]) == (4, 1, 1) and extents((2, 0, 3)) == (2, 0, 3)
    with pytest.raises(GridError) as error:
        extents((1, 70000))
    assert str(error.value) == "The grid is (1, 70000), but along y it may have 0 to 65535 CTAs."
    with pytest.raises(GridError) as error:
        extents((1, 1, 65536))
    assert str(error.value) == "The grid is (1, 1, 65536), but along z it may have 0 to 65535 CTAs."


@pytest.mark.gpu
def test_triton_3299_580_empty_and_long_grids_on_the_gpu() -> None:
    out = np.full(70000, -1, np.int32)
    launch_on_gpu(mark_kernel, (0,), out)
    assert (out == -1).all()
    launch_on_gpu(mark_kernel, [70000], out)
    assert (out == np.arange(70000)).all()


@tlxc.kernel
def mark_kernel(out):
    tl.store(out + tl.program_id(0), tl.program_id(0))


@tlxc.kernel
def rows_kernel(x, out, stride, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.store(out + r[:, None] * COLUMNS + c[None, :], tl.load(x + r[:, None] * stride + c[None, :]))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
@pytest.mark.parametrize("start", [0, 1, 8])
@pytest.mark.parametrize("stride", [64, 65, 72])
def test_triton_1330_1320_8885_vllm_45631_views_and_odd_strides(
    launch: Launch, dtype: Any, start: int, stride: int
) -> None:
    """x[1:], x[8:] and rows of odd stride: no access is wider than the addresses allow."""
    x, out = (np.arange(16 * 72 + 8) % 251).astype(dtype), np.zeros((16, 64), dtype)
    launch(rows_kernel, (1,), (x, start * x.itemsize), out, stride, COLUMNS=64, ROWS=16)
    rows = np.arange(16)[:, None] * stride + np.arange(64)[None, :]
    assert (out == x[start:][rows]).all()


def test_triton_1330_1320_8885_alignment_is_assumed_only_where_it_is_known() -> None:
    """The annotations of this kernel declare nothing, so neither does its ahead-of-time signature."""
    declared = dict(declared_kernel.signature(BLOCK=64).arguments)
    assert declared["x"].align == 0 and declared["aligned"].align == 32
    assert declared["n"].divisible == 1 and declared["n"].type == Scalar(tl.int32)
    assert [p.name for p in Source.of(declared_kernel).parameters] == ["x", "aligned", "n", "BLOCK"]


@tlxc.kernel
def declared_kernel(x: tl.ptr(tl.float16), aligned: tl.ptr(tl.float16, align=32), n: tl.int32, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(aligned + i, tl.load(x + i, mask=i < n), mask=i < n)
