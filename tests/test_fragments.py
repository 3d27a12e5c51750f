"""Instruction fragments against the lane formulas that the vendors publish (PTX ISA, AMD matrix calculator).

The formulas are written as in those documents, for one instruction; `check` also wants every larger tile to be a set of
such fragments, in operand order, that covers the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tlxc.ir.layout import Layout, LayoutError, slice_
from tlxc.targets.fragments import mfma_acc, mma16816, tmem_32x32b, wgmma_a, wgmma_acc

Formula = Callable[[int, int, int], tuple[int, int]]  # (fragment element i, lane, warp in its group) -> (row, column)


def mma_a(i: int, lane: int, warp: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    return row, thread * 2 + (i & 1) + (0 if i < 4 else 8)


def mma_b(i: int, lane: int, warp: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    return thread * 2 + (i & 1) + (0 if i < 2 else 8), group


def mma_c(i: int, lane: int, warp: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    return group if i < 2 else group + 8, thread * 2 + (i & 1)


def wgmma_d(i: int, lane: int, warp: int) -> tuple[int, int]:
    return 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2


def wgmma_a16(i: int, lane: int, warp: int) -> tuple[int, int]:
    row = lane // 4 + (0 if i in (0, 1, 4, 5) else 8)
    return 16 * warp + row, 2 * (lane % 4) + (i & 1) + (8 if i >= 4 else 0)


def wgmma_a8(i: int, lane: int, warp: int) -> tuple[int, int]:
    row = lane // 4 + (0 if i < 4 or 8 <= i < 12 else 8)
    return 16 * warp + row, 4 * (lane % 4) + (i & 3) + (16 if i >= 8 else 0)


def wgmma_a32(i: int, lane: int, warp: int) -> tuple[int, int]:
    row = lane // 4 + (0 if i in (0, 2) else 8)
    return 16 * warp + row, lane % 4 + (0 if i < 2 else 4)


def mfma_32(i: int, lane: int, warp: int) -> tuple[int, int]:
    return 8 * (i // 4) + 4 * (lane // 32) + i % 4, lane % 32


def mfma_16(i: int, lane: int, warp: int) -> tuple[int, int]:
    return 4 * (lane // 16) + i, lane % 16


def tmem(i: int, lane: int, warp: int) -> tuple[int, int]:
    return 32 * warp + lane, i


def check(a: Layout, formula: Formula, registers: int, group: int = 1) -> None:
    """`registers` elements per fragment, `group` warps per instruction."""
    lanes, warps = 1 << len(a.lane), 1 << len(a.bases("warp"))
    seen = set()
    for first, leader in product(range(0, a.registers, registers), range(0, warps, group)):
        origin = a.apply(first, 0, leader)
        for i, lane, warp in product(range(registers), range(lanes), range(group)):
            row, column = formula(i, lane, warp)
            element = a.apply(first + i, lane, leader + warp)
            assert element == (origin[0] + row, origin[1] + column)
            seen.add(element)
    assert seen == set(product(range(a.shape[0]), range(a.shape[1])))


@pytest.mark.parametrize("n", (8, 16, 64, 72, 96))
@pytest.mark.parametrize(("m", "warps"), ((64, 4), (128, 8), (128, 4)))
def test_wgmma_accumulator(m: int, n: int, warps: int) -> None:
    whole = n // 2 if m == 16 * warps else 4  # all operands of the instruction, or its steps of 8 columns
    check(wgmma_acc(m, n, warps), wgmma_d, whole, 4)


@pytest.mark.parametrize(
    ("elem", "k", "registers", "formula"), ((2, 16, 8, wgmma_a16), (1, 32, 16, wgmma_a8), (4, 8, 4, wgmma_a32))
)
def test_wgmma_register_operand(elem: int, k: int, registers: int, formula: Formula) -> None:
    for m, steps, warps in ((64, 1, 4), (64, 4, 4), (64, 3, 4), (128, 2, 8), (128, 2, 4)):
        check(wgmma_a(m, k * steps, warps, elem), formula, registers, 4)


@pytest.mark.parametrize(
    ("role", "registers", "formula", "tile"),
    (("a", 8, mma_a, (16, 16)), ("b", 4, mma_b, (16, 8)), ("acc", 4, mma_c, (16, 8))),
)
def test_mma_16816(role: str, registers: int, formula: Formula, tile: tuple[int, int]) -> None:
    check(mma16816(role, tile, (1, 1)), formula, registers)
    for grid in ((4, 1), (2, 2), (1, 4)):
        for shape in ((64, 64), (32, 96), (80, 16)):
            check(mma16816(role, shape, grid), formula, registers)


def test_mma_operands_agree_with_the_accumulator_on_warps() -> None:
    """The warp that holds accumulator rows and columns holds the operand rows and columns they need."""
    for grid in ((4, 1), (2, 2), (1, 4)):
        acc, a, b = (mma16816(r, s, grid) for r, s in (("acc", (64, 64)), ("a", (64, 32)), ("b", (32, 64))))
        for warp in range(4):
            mine = {acc.apply(r, lane, warp) for r in range(acc.registers) for lane in range(32)}
            rows = {a.apply(r, lane, warp)[0] for r in range(a.registers) for lane in range(32)}
            columns = {b.apply(r, lane, warp)[1] for r in range(b.registers) for lane in range(32)}
            assert {i for i, _ in mine} <= rows
            assert {j for _, j in mine} <= columns


def test_mfma_accumulator() -> None:
    check(mfma_acc((32, 32), 32, 1), mfma_32, 16)
    check(mfma_acc((16, 16), 16, 1), mfma_16, 4)
    check(mfma_acc((128, 64), 32, 4), mfma_32, 16)
    check(mfma_acc((128, 48), 16, 4), mfma_16, 4)


def test_tensor_memory() -> None:
    for columns in (1, 64, 96):
        check(tmem_32x32b((128, columns)), tmem, columns, 4)
    two = tmem_32x32b((128, 64), 8)
    for i, lane, warp in product(range(32), range(32), range(8)):
        assert two.apply(i, lane, warp) == (32 * (warp % 4) + lane, 32 * (warp // 4) + i)


def test_accumulators_are_16_bit_operands_without_any_move() -> None:
    for n in (16, 80, 128):
        assert wgmma_acc(64, n) is wgmma_a(64, n)
    assert slice_(wgmma_acc(64, 80), 1) is slice_(wgmma_acc(64, 128), 1)


@pytest.mark.parametrize(
    ("build", "says"),
    (
        (lambda: wgmma_acc(80, 64), "rows in units of 64"),
        (lambda: wgmma_acc(64, 20), "columns in units of 8"),
        (lambda: wgmma_acc(64, 64, 2), "warps in units of 4"),
        (lambda: wgmma_acc(192, 64, 12), "not a power of two"),
        (lambda: wgmma_a(64, 72), "units of 16"),
        (lambda: mma16816("a", (16, 8)), "multiple of 16"),
        (lambda: mma16816("d", (16, 8)), "role"),
        (lambda: mfma_acc((64, 64), 8), "16x16 or 32x32"),
        (lambda: mfma_acc((16, 64), 32), "multiple of"),
        (lambda: tmem_32x32b((64, 64)), "128 rows"),
    ),
)
def test_refusals(build: Callable[[], Layout], says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        build()
