"""PTX that ptxas translates wrongly does not reach it; each kernel was wrong on an H200."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numeric.support import emulate, launch_on_gpu

import tlxc
from tlxc import tl
from tlxc.codegen.nvptx import faults
from tlxc.codegen.nvptx.assemble import assemble
from tlxc.codegen.nvptx.faults import without_faults

TARGETS = ["sm_90", pytest.param("gpu", marks=pytest.mark.gpu)]
RNG = np.random.default_rng(7)


@tlxc.kernel
def negated_maxima(x, highest, lowest):
    at = tl.arange(0, 64)[:, None] * 20 + tl.arange(0, 20)[None, :]
    tile = -tl.load(x + at)
    tl.store(highest + tl.arange(0, 64), tl.max(tile, 1))
    tl.store(lowest + tl.arange(0, 64), tl.min(tile, 1))


@tlxc.kernel
def clamped(x, out):
    at = tl.arange(0, 256)
    low = tl.maximum(tl.load(x + at), 0)
    tl.store(out + at, tl.where(low == 0, 3, low.to(tl.int32) + 100))


def run(target: str, kernel: Any, *arrays: np.ndarray) -> None:
    (launch_on_gpu if target == "gpu" else emulate)(kernel, (1,), *arrays)


@pytest.mark.parametrize("target", TARGETS)
def test_maxima_of_negated_integers(target: str) -> None:
    x = RNG.integers(-(2**31), 2**31, (64, 20)).astype(np.int32)
    highest, lowest = np.zeros(64, np.int32), np.zeros(64, np.int32)
    run(target, negated_maxima, x, highest, lowest)
    assert (highest == (-x).max(1)).all() and (lowest == (-x).min(1)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_a_clamped_narrow_integer_is_compared(target: str, dtype: Any) -> None:
    x, out = RNG.integers(-100, 100, 256).astype(dtype), np.zeros(256, np.int32)
    run(target, clamped, x, out)
    low = np.maximum(x, 0).astype(np.int32)
    assert (out == np.where(low == 0, 3, low + 100)).all()


PTX = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) {{
  .reg .b64 %rd; .reg .b32 %a, %b, %c, %d, %e, %f; .reg .b16 %x, %y; .reg .pred %q;
  ld.param.u64 %rd, [p];
  {body}
  ret;
}}
"""
NEGATED = """ld.global.u32 %a, [%rd]; ld.global.u32 %b, [%rd+4]; ld.global.u32 %c, [%rd+8];
  neg.s32 %d, %a; neg.s32 %e, %b; max.s32 %f, %c, %d; max.s32 %f, %f, %e; st.global.u32 [%rd+12], %f;"""
CLAMPED = """ld.global.u16 %x, [%rd]; max.s16 %y, %x, 0; setp.eq.b16 %q, %y, 0; st.global.u16 [%rd+8], %y;
  selp.b32 %a, 3, 4, %q; st.global.u32 [%rd+12], %a;"""


def sass(body: str, fix: bool) -> str:
    from tlxc.codegen.nvptx.disassemble import disassemble

    text = PTX.format(body=body)
    return disassemble(assemble(without_faults(text) if fix else text, "sm_90a").cubin)


def test_the_pinned_assembler_has_the_faults() -> None:
    """Where this fails, an assembler without them has come, and `faults` may go."""
    lost = sass(NEGATED, fix=False)
    assert "VIMNMX3" in lost and lost.count("-R") == 1
    assert "P0, P0" in sass(CLAMPED, fix=False)


def test_what_is_written_instead_is_translated_well() -> None:
    assert "VIMNMX3" not in sass(NEGATED, fix=True)
    assert "P0, P0" not in sass(CLAMPED, fix=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("neg.s32 %r1, %r2; max.s32 %r3, %r1, %r4;",
         "not.b32 %r1, %r2; add.s32 %r1, %r1, 1; max.s32 %r3, %r1, %r4;"),
        ("neg.s32 %r1, %r2; add.s32 %r3, %r1, %r4;", "neg.s32 %r1, %r2; add.s32 %r3, %r1, %r4;"),
        ("neg.f32 %f1, %f2; max.s32 %r3, %r1, 4;", "neg.f32 %f1, %f2; max.s32 %r3, %r1, 4;"),
        ("min.u16 %rs1, %rs2, %rs3;",
         "{ .reg .b32 a, b; cvt.u32.u16 a, %rs2; cvt.u32.u16 b, %rs3; min.u32 a, a, b; cvt.u16.u32 %rs1, a; }"),
        ("max.s16 %rs1, %rs2, -5;",
         "{ .reg .b32 a, b; cvt.s32.s16 a, %rs2; mov.b32 b, -5; max.s32 a, a, b; cvt.u16.u32 %rs1, a; }"),
        ("min.u16 %rs1, %rs2, -1;",
         "{ .reg .b32 a, b; cvt.u32.u16 a, %rs2; mov.b32 b, 65535; min.u32 a, a, b; cvt.u16.u32 %rs1, a; }"),
    ],
)  # fmt: skip
def test_rewriting(before: str, after: str) -> None:
    assert without_faults(before) == after
    assert faults.__doc__ and "ptxas" in faults.__doc__
