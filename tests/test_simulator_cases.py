"""The cases of the numeric tests in the simulator: the same values, and no report under any schedule that is tried."""

from __future__ import annotations

import zlib

import pytest
from numeric.cases import ASYNC_CASES, TILE_FAMILIES
from numeric.simulated import run_simulated
from numeric.support import Case

# Every async case, and of tile cases an even sample.
TILE_CASES = [case for family in TILE_FAMILIES.values() for case in family.cases()]
SAMPLE = [case for case in TILE_CASES if zlib.crc32(case.id.encode()) % 6 == 0]


@pytest.mark.parametrize("case", ASYNC_CASES, ids=lambda case: case.id)
def test_async(case: Case) -> None:
    run_simulated(case)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.id)
def test_tile(case: Case) -> None:
    run_simulated(case)
