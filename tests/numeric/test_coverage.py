"""The matrix is complete: every (op, dtype, number of warps) of the op table has a case, or a reason here why not.

A case names its cells, and `test_numeric.py` fails where the compiled kernel does not contain them.
"""

from __future__ import annotations

from collections import Counter

import pytest

import tlxc.ir.ops  # noqa: F401  (fills the table)
from tlxc.ir.table import OPS
from tlxc.ir.types import DTYPES

from .cases import CASES
from .support import WARPS

Triple = tuple[str, str, int]

_WIDENED = "the language computes it in f32 and rounds back, so the op never sees it; cases run it through f32"
_I32_ONLY = "the row's verifier takes i32 only"

# (ops, dtypes, warps): why no case can exist
_EXEMPT: tuple[tuple[str, str, tuple[int, ...], str], ...] = (
    ("div exp2 log2 sqrt rsqrt reduce partial_reduce", "f16 bf16", WARPS, _WIDENED),
    ("arange program_id num_programs", "i8 i16 i64", WARPS, _I32_ONLY),
    ("addptr", "i8 i16", WARPS, "offsets are widened to i32; the row's verifier takes i32 and i64"),
    ("atomic_rmw", "i8 i16 u8 u16", WARPS, "atomic_add refuses 8 and 16-bit integers"),
    ("partial_reduce", "i8 i16 u8 u16", (1,), "maxima of one warp are never partial, and narrow sums are 32 bits wide"),
    ("dot", "f32", WARPS, "the accumulator only; operands are f16 and bf16"),
    ("async_dot", "f16 bf16 f32", (1, 2), "wgmma takes warps in groups of 4"),
    ("async_dot_wait", "f32", (1, 2), "wgmma takes warps in groups of 4"),
    ("async_dot_wait", "f16 bf16", WARPS, "accumulators are f32"),
    ("breakpoint", "-", WARPS, "no code comes of it"),
)  # fmt: skip


def _table() -> set[Triple]:
    """All cells that the op table spans."""
    names = {kind: [d.short for d in DTYPES.values() if d.kind == kind] for kind in ("bool", "int", "uint", "float")}
    names["pointer"] = ["ptr"]
    return {
        (op, dtype, warps)
        for op, row in OPS.items()
        for dtype in ([n for kind in row.kinds for n in names[kind]] or ["-"])
        for warps in WARPS
    }


def _exempt() -> dict[Triple, str]:
    return {
        (op, dtype, warps): reason
        for ops, dtypes, at, reason in _EXEMPT
        for op in ops.split()
        for dtype in dtypes.split()
        for warps in at
    }


def _covered() -> set[Triple]:
    return {(op, dtype, case.num_warps) for case in CASES for op, dtype in case.cells}


def test_every_cell_has_a_case() -> None:
    missing = _table() - _exempt().keys() - _covered()
    assert not missing, f"{len(missing)} cells have no case: {sorted(missing)[:40]}"


def test_exemptions_are_needed() -> None:
    """An exemption names cells of the table, and goes when a case covers it."""
    assert not _exempt().keys() - _table()
    assert not _exempt().keys() & _covered()


def test_ids_are_unique() -> None:
    assert not [name for name, count in Counter(case.id for case in CASES).items() if count > 1]


@pytest.mark.parametrize("warps", WARPS)
def test_enough_cases(warps: int) -> None:
    assert sum(case.num_warps == warps for case in CASES) >= 100
