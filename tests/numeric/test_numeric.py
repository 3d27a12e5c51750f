"""Every case in the emulator: LLVM IR of sm_90 and, of what needs no matrix instructions, of gfx950 (waves of 64)."""

from __future__ import annotations

import pytest

from .cases import ASYNC_FAMILIES, CASES
from .support import Case, run_emulated

# The thinner selection for AMD: the smallest and the usual number of waves.
AMD_CASES = [case for case in CASES if case.amd and case.num_warps in (1, 4)]
# What several tasks or CTAs do at once.
CONCURRENT = [case for name in ("barrier", "task", "cluster") for case in ASYNC_FAMILIES[name].cases()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_sm_90(case: Case) -> None:
    built = run_emulated(case, "sm_90")
    if built is not None:
        missing = case.cells - built.cells
        assert not missing, f"the compiled kernel lacks what the case stands for: {sorted(missing)}"


@pytest.mark.parametrize("case", AMD_CASES, ids=lambda case: case.id)
def test_gfx950(case: Case) -> None:
    run_emulated(case, "gfx950")


@pytest.mark.parametrize("case", CONCURRENT, ids=lambda case: case.id)
def test_any_order(case: Case) -> None:
    """Nothing depends on which warp goes first and which copy lands first."""
    run_emulated(case, "sm_90", seed=1)
