"""The Hopper attention examples as users call them, on CPU tensors in the simulator."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

import tlxc

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def tensors(heads: int, group: int, n: int, d: int, dtype: Any = None) -> tuple[Any, ...]:
    """q, k, v, and o and the log-sum-exp full of NaN."""
    generator = torch.Generator().manual_seed(n)
    q, k, v = (
        torch.randn(h, n, d, generator=generator).to(dtype or torch.float16)
        for h in (heads, heads // group, heads // group)
    )
    return q, k, v, torch.full_like(q, math.nan), torch.full((heads, n), math.nan)


@pytest.mark.parametrize("example", ["hopper_attention_guarded", "hopper_attention_persistent"])
def test_cycles_of_all_ctas(example: str) -> None:
    """Each CTA adds the cycles that it takes; without `cycles` there is no clock in the code."""
    cycles = torch.zeros(1, dtype=torch.int64)
    options: dict[str, Any] = dict(BN=64, CONSUMERS=2, REGISTERS=240)
    with tlxc.simulate():
        importlib.import_module(example).launch(*tensors(1, 1, 200, 64), cycles=cycles, **options)
    assert 0 < int(cycles) < 2**20
    assert "clock64" not in importlib.import_module(example).attention.compile("sm_90").asm["ptx"]
