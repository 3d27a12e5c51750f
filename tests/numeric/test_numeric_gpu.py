"""Every case on the GPU: the same kernels and references as in the emulator, at larger sizes."""

from __future__ import annotations

import pytest

from .cases import CASES
from .support import Case, run_on_gpu


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_gpu(case: Case) -> None:
    run_on_gpu(case)
