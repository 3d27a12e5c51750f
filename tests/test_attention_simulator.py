"""The Hopper attention examples as users call them, on CPU tensors in the simulator."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tlxc
from tlxc.cli import main

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


KERNELS: list[tuple[str, dict[str, Any]]] = [
    ("hopper_attention_ws", {}),
    ("hopper_attention_pipelined", {}),
    ("hopper_attention_pipelined", {"TURNS": True}),
    ("hopper_attention_guarded", {}),
    ("hopper_attention_persistent", {}),
]
SMALL: dict[str, Any] = dict(BN=16, CONSUMERS=2, REGISTERS=160)


def expect_right(example: str, sizes: tuple[int, int, int, int], causal: bool, **constants: Any) -> None:
    """The results of a launch on `sizes`, as `tensors` takes them."""
    q, k, v, o, lse = tensors(*sizes)
    importlib.import_module(example).launch(q, k, v, o, lse, causal, **constants)
    wanted, wanted_lse = importlib.import_module("_attention").reference(torch, q, k, v, causal)
    assert float((o.double() - wanted).norm() / wanted.norm()) < 1e-3
    torch.testing.assert_close(lse.double(), wanted_lse, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("example", "options"), KERNELS, ids=str)
def test_trip_counts(example: str, options: dict[str, Any], causal: bool) -> None:
    """1 to 10 blocks of keys, so that every loop over blocks makes none to nine trips; whole blocks, and one key more
    or less.  Two heads share K and V."""
    with tlxc.simulate() as simulation:
        for n in sorted({16 * blocks + more for blocks in range(10) for more in (-1, 0, 1)} - {-1, 0}):
            expect_right(example, (2, 2, n, 64), causal, **SMALL, **options)
    assert not simulation.reports


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("example", ["hopper_attention_guarded", "hopper_attention_persistent"])
def test_forms(example: str, d: int, causal: bool) -> None:
    """As `prepare` chooses them."""
    with tlxc.simulate() as simulation:
        expect_right(example, (2, 2, 200, d), causal)
    assert not simulation.reports


@pytest.mark.parametrize("d", [64, 256])
def test_schedules_of_the_tile_counter(d: int) -> None:
    """Who takes a tile depends on the schedule, so one clean run proves less than all."""
    for seed in range(20):
        with tlxc.simulate(seed=seed, schedule="random") as simulation:
            expect_right("hopper_attention_persistent", (2, 2, 150, d), seed % 2 == 1, **SMALL)
        assert not simulation.reports


@pytest.mark.parametrize("example", sorted({example for example, _ in KERNELS}))
def test_examples_under_twenty_seeds(example: str) -> None:
    result = CliRunner().invoke(main, ["check", str(EXAMPLES / f"{example}.py"), "--seeds", "20"])
    assert result.exit_code == 0, result.output
    proven = "clean in 20 schedules" if example.endswith("persistent") else "clean: all schedules of these inputs"
    assert result.output.count(proven) == len(importlib.import_module(example).attention.examples)


def test_a_form_that_does_not_exist() -> None:
    message = "Heads have 264 elements, but a consumer's registers hold rows of up to 256."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        importlib.import_module("hopper_attention_guarded").launch(*tensors(1, 1, 8, 264))
