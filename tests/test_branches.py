"""Branches that each warp takes by itself: what may stand in them, where results lie, what code they become."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numeric.support import emulate

import tlxc
from tlxc import tl, tlx
from tlxc.errors import CompileError


@tlxc.kernel
def loads(x, out, N: tl.constexpr = 64):
    rows = tl.arange(0, N)
    y = tl.load(x + rows)
    if tlx.warp_any(y > 0):
        y = tl.load(x + rows + 1)
    tl.store(out + rows, y)


@tlxc.kernel
def stores(x, out, N: tl.constexpr = 64):
    rows = tl.arange(0, N)
    if tlx.warp_any(tl.load(x + rows) > 0):
        tl.store(out + rows, 1.0)


@tlxc.kernel
def endless(x, out, N: tl.constexpr = 64):
    y = tl.load(x + tl.arange(0, N))
    i = 0
    if tlx.warp_any(y > 0):
        while i < 3:
            i += 1
    tl.store(out + tl.arange(0, N), y + i)


@tlxc.kernel
def whole_sum(x, out, N: tl.constexpr = 1024):
    y = tl.load(x + tl.arange(0, N))
    if tlx.warp_any(y > 0):
        y += tl.sum(y, 0)
    tl.store(out + tl.arange(0, N), y)


@tlxc.kernel
def carried(x, out, N: tl.constexpr = 64):
    y = tl.load(x + tl.arange(0, N))
    far = tlx.warp_any(y > 0)
    for _ in range(3):
        if far:
            y += 1
        far = tlx.warp_any(y > 5)
    tl.store(out + tl.arange(0, N), y)


def test_the_vote_that_decides_is_known() -> None:
    assert _error(carried) == (
        "error: it is not known what decides a branch that each warp takes by itself\n"
        "  found: a vote that a loop or another branch hands on\n"
        "  allowed: results of tlx.warp_any and tlx.warp_all, and bools made of them by `not`, `and`, `or`\n"
        "  fix: vote in front of the `if`"
    )


ONE_BY_ONE = tlx.layout(shape=((32, 4), (2,)), stride=((1, 32), (128,)))
IN_PAIRS = tlx.layout(shape=((32, 4), (2,)), stride=((2, 64), (1,)))


@tlxc.kernel
def apart(x, out, A: tl.constexpr, B: tl.constexpr):
    rows = tl.arange(0, 256)
    y = tl.load(x + rows)
    z = tlx.require_layout(y * 2, B)
    if tlx.warp_any(tlx.require_layout(y, A) > 0):
        z = tlx.require_layout(z + 1, B)
    tl.store(out + rows, z)


def _error(kernel: Any, **constants: Any) -> str:
    with pytest.raises(CompileError) as caught:
        kernel.warmup(tl.float32, tl.float32, target="sm_90", **constants)
    return re.sub(r"(?m)^\S*test_branches.py:\d+:\d+: | at \S+$|^ +(\d+)? \|.*\n?", "", str(caught.value))


ALLOWED = (
    "  allowed: elementwise arithmetic, and reductions of rows that the warp holds whole\n"
    "  fix: do it before or after the `if`, or let the whole task agree on the condition\n"
    "  the condition is a vote of each warp"
)


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (loads, "load, which is more than arithmetic of one warp"),
        (stores, "store, which is more than arithmetic of one warp"),
        (endless, "while, which is more than arithmetic of one warp"),
        (whole_sum, "a reduction along an axis that several warps share"),
    ],
)
def test_a_branch_of_a_warp_is_arithmetic_of_that_warp(kernel: Any, found: str) -> None:
    expected = f"error: a branch that each warp takes by itself cannot do this\n  found: {found}\n{ALLOWED}"
    assert _error(kernel).strip() == expected


def test_results_lie_where_the_vote_was_taken() -> None:
    text = _error(apart, A=ONE_BY_ONE, B=IN_PAIRS)
    assert text.startswith(
        "error: a result of a branch that each warp takes by itself lies in other warps than what they voted on\n"
        "  found: z as "
    )
    assert (
        "  allowed: results whose rows lie in the warp that holds the same rows of the tile in tlx.warp_any\n" in text
    )
    apart.warmup(tl.float32, tl.float32, target="sm_90", A=ONE_BY_ONE, B=ONE_BY_ONE)


@tlxc.kernel
def guarded(x, limits, out, M: tl.constexpr, N: tl.constexpr, ALL: tl.constexpr, BITS: tl.constexpr):
    """Rows of x, less their limit where no row of the warp is above it, else less the greatest of the row."""
    rows = tl.arange(0, M)
    at = rows[:, None] * N + tl.arange(0, N)[None, :]
    y, limit = tl.load(x + at), tl.load(limits + rows)
    a, b = (y.to(tl.int32, bitcast=True), limit.to(tl.int32, bitcast=True)) if BITS else (y, limit)
    top, found = limit, 0
    if tlx.warp_all(a <= b[:, None]) == False if ALL else tlx.warp_any(a > b[:, None]):  # noqa: E712
        top = tl.maximum(tl.max(y, 1), limit)
        found = 100
    tl.store(out + at, y - top[:, None] + found)


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("warps", [1, 2, 4])
def test_each_warp_takes_its_own_branch(every: bool, bits: bool, warps: int) -> None:
    x = np.random.default_rng(warps).integers(0, 8, (64, 64)).astype(np.float32)
    limits = np.full(64, 8, np.float32)
    x[17, 5] = 9
    out = np.zeros_like(x)
    constants = {"M": 64, "N": 64, "ALL": every, "BITS": bits}
    emulate(guarded, (1,), x, limits, out, **constants, num_warps=warps)
    high = out > 50
    assert high.any(1)[17] and (high.all(1) == high.any(1)).all()
    if warps == 4:
        assert not high.all()
    top = np.where(high[:, 0], np.maximum(x.max(1), limits), limits)
    np.testing.assert_array_equal(out, x - top[:, None] + 100 * high)


def test_a_vote_on_a_limit_takes_one_maximum_of_three_operands() -> None:
    """The bits of non-negative floats order as integers, of which the machine takes the greatest of three at once."""
    made = guarded.warmup(*[tl.float32] * 3, 64, 64, False, True, target="sm_90")
    from tlxc.codegen.nvptx.disassemble import DisassemblerError, disassemble

    try:
        sass = disassemble(made.asm["cubin"])
    except DisassemblerError as error:
        pytest.skip(str(error))
    registers = 64 * 64 // 128
    assert len(re.findall(r"\bVIMNMX3\b", sass)) >= registers // 4
    assert len(re.findall(r"\bISETP\.G[TE]\.", sass)) < registers // 2 and len(re.findall(r"\bVOTE\.ANY\b", sass)) == 1
