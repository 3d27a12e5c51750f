"""The Hopper attention examples in the emulator: whole blocks, ragged ones, masks, shared heads, both 16-bit types."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numeric.support import Blocks, emulate

import tlxc

EXAMPLES = Path(__file__).parent.parent / "examples"
Array = np.ndarray[Any, Any]

# (N, D, BN, consumers, heads, heads that share K and V, causal, dtype)
CASES: list[tuple[int, int, int, int, int, int, bool, Any]] = [
    (256, 64, 64, 2, 1, 1, False, np.float16),
    (200, 128, 80, 2, 2, 2, False, np.float16),
    (200, 64, 64, 3, 2, 1, True, ml_dtypes.bfloat16),
    (129, 128, 128, 2, 1, 1, True, np.float16),
    (1, 64, 64, 2, 1, 1, False, ml_dtypes.bfloat16),
    (130, 256, 64, 2, 2, 2, True, np.float16),
    (193, 256, 64, 2, 1, 1, False, ml_dtypes.bfloat16),
]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def reference(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """(output, log-sum-exp) in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group, n = q.shape[0] // k.shape[0], q.shape[1]
    k, v = k.repeat(group, 0), v.repeat(group, 0)
    s = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    return p @ v / total, (top + np.log(total))[..., 0]


EXAMPLES_AND_OPTIONS = [
    ("hopper_attention_ws", {}),
    ("hopper_attention_pipelined", {}),
    ("hopper_attention_pipelined", {"TURNS": True}),
    ("hopper_attention_guarded", {}),
    ("hopper_attention_persistent", {}),
    ("hopper_attention_persistent", {"num_warps": 1}),
]


@pytest.mark.parametrize(("example", "more"), EXAMPLES_AND_OPTIONS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(example: str, more: dict[str, Any], case: tuple[Any, ...]) -> None:
    n, d, _, _, heads, group, _, dtype = case
    rng = np.random.default_rng(n)
    run(example, more, case, *(rng.standard_normal((h, n, d)).astype(dtype) for h in (heads, *[heads // group] * 2)))


def test_heads_of_256_in_the_largest_blocks() -> None:
    """All of shared memory, which leaves the persistent form no room for O."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 170, 256)).astype(np.float16) for _ in range(3))
    run("hopper_attention_guarded", {}, (170, 256, 80, 2, 1, 1, True, np.float16), q, k, v)


# How scores go from the first key, which is multiplied last, to the last one.
SLOPES = {"falling": (6.0, 0.0), "rising": (0.0, 6.0), "negative": (-1.0, -8.0), "in one row": (0.0, 0.0)}


@pytest.mark.parametrize("slope", SLOPES)
def test_references_of_the_guarded_softmax(slope: str) -> None:
    """Scores that grow far beyond the reference of their row, in all warps or in one, and negative ones, whose bits do
    not order as they do."""
    n, d = 200, 64
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((1, n, d)).astype(np.float16) for _ in range(3))
    q[..., 0] = 8
    k[..., 0] = np.linspace(*SLOPES[slope], n)[None]
    if slope == "in one row":
        q[0, 37], k[0, 5] = 2 * q[0, 37], 2 * q[0, 37]
    run("hopper_attention_guarded", {}, (n, d, 64, 2, 1, 1, False, np.float16), q, k, v)


def run(example: str, more: dict[str, Any], case: tuple[Any, ...], q: Array, k: Array, v: Array) -> None:
    n, d, bn, consumers, heads, group, causal, dtype = case
    o, lse = np.full((heads, n, d), np.nan, dtype), np.full((heads, n), np.nan, np.float32)
    kernel = importlib.import_module(example).attention
    described = [Blocks(x, (1, rows, d)) for x, rows in ((q, 64), (k, bn), (v, bn))]
    grid: tuple[int, ...] = (tlxc.cdiv(n, 64 * consumers), heads)
    counter, taken, width = np.zeros(2, np.int32), (), d
    if example == "hopper_attention_persistent":  # CTAs take more tiles than one, of sections of two heads
        taken, grid = (counter, grid[0] * heads, min(2, heads)), (max(1, grid[0] * heads - 1),)
        width = min(d, 128)
    options = {"D": d, "BN": bn, "CONSUMERS": consumers, "GROUP": group, "CAUSAL": causal, "REGISTERS": 160, **more}
    emulate(kernel, grid, *described, Blocks(o, (1, 64, width)), lse, *taken, n, d**-0.5, **options)
    assert not counter.any()
    wanted, wanted_lse = reference(q, k, v, causal)
    error = np.linalg.norm(o.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < (1e-3 if dtype is np.float16 else 8e-3)
    np.testing.assert_allclose(lse, wanted_lse, rtol=1e-6, atol=1e-4)
