"""What several tasks, CTAs and engines do at once gives the same values under an unfriendly schedule.

All numeric cases run in the simulator beside the emulator (`tests/numeric/agreement.py`), under a random schedule.
"""

from __future__ import annotations

import pytest
from numeric.cases import ASYNC_CASES
from numeric.simulated import run_simulated
from numeric.support import Case


@pytest.mark.parametrize("case", ASYNC_CASES, ids=lambda case: case.id)
def test_async(case: Case) -> None:
    run_simulated(case, seed=1, schedule="adversarial")
