"""The Hopper examples in the emulator, on small matrices: whole tiles, ragged ones, several tiles per CTA, no K."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numeric.support import Blocks, emulate

import tlxc

EXAMPLES = Path(__file__).parent.parent / "examples"
Shape = tuple[int, int, int]

# (example, blocks of A, B and C, M N K, CTAs of the grid, options)
SMALL: dict[str, Any] = {"BN": 64, "BK": 32, "BC": 32, "GROUP": 2}
GEMMS: list[tuple[str, tuple[tuple[int, int], ...], dict[str, Any]]] = [
    ("hopper_gemm_ws", ((64, 32), (32, 64), (64, 32)), {"STAGES": 2}),
    ("hopper_gemm_ws", ((64, 32), (32, 64), (64, 32)), {"STAGES": 2, "BM": 64, "CONSUMERS": 1}),
    ("hopper_gemm_ws", ((64, 32), (32, 64), (64, 32)), {"STAGES": 3, "BN": 128, "CTAS": 2, "ctas_per_cga": (2, 1, 1)}),
    ("hopper_gemm_cooperative", ((128, 32), (32, 64), (128, 32)), {"STAGES": 2}),
    ("hopper_gemm_pingpong", ((128, 32), (32, 64), (128, 32)), {"STAGES": 3}),
    ("hopper_gemm_pipelined", ((128, 32), (32, 64), (128, 32)), {"STAGES": 3, "num_warps": 8}),
    ("hopper_gemm_pipelined", ((128, 32), (32, 64), (128, 32)), {"STAGES": 4, "num_warps": 4}),
]
SHAPES: list[Shape] = [(128, 64, 32), (256, 128, 160), (200, 72, 104), (384, 192, 8), (8, 8, 0)]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Small enough for exact sums in float16."""
    return rng.integers(-2, 3, shape).astype(np.float16)


def grid_of(example: str, shape: Shape, ctas: int) -> int:
    """One CTA for each tile where the kernel wants that; else two or, with clusters, two clusters, for more tiles."""
    m, n, _ = shape
    if example == "hopper_gemm_pipelined":
        return tlxc.cdiv(m, 128) * tlxc.cdiv(n, 64)
    return 2 * ctas


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("example", "blocks", "options"), GEMMS, ids=[f"{e}-{o}" for e, _, o in GEMMS])
def test_gemm(example: str, blocks: tuple[tuple[int, int], ...], options: dict[str, Any], shape: Shape) -> None:
    (m, n, k), rng = shape, np.random.default_rng(sum(shape))
    a, b = integers(rng, m, k), integers(rng, k, n)
    c = np.full((m, n), np.nan, np.float16)
    arrays = (a, b, c) if k else (c, c, c)  # as `_gemm.descriptors` has it
    described = [Blocks(x, block) for x, block in zip(arrays, blocks)]
    kernel = importlib.import_module(example).gemm
    grid = (grid_of(example, shape, options.get("CTAS", 1)),)
    emulate(kernel, grid, *described, m, n, k, **{**SMALL, **options})
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("shape", [(16, 64, 32), (7, 200, 104), (33, 72, 160), (5, 8, 0)], ids=str)
def test_skinny_gemm(shape: Shape) -> None:
    (m, n, k), rng = shape, np.random.default_rng(sum(shape))
    a, b = integers(rng, m, k), integers(rng, k, n)
    c, rows = np.full((m, n), np.nan, np.float16), tlxc.cdiv(m, 16) * 16
    described = [
        Blocks(x, block) for x, block in zip((a, b, c) if k else (c, c, c), ((rows, 32), (32, 64), (rows, 64)))
    ]
    kernel = importlib.import_module("hopper_gemm_skinny").gemm
    emulate(kernel, (tlxc.cdiv(n, 64),), *described, k, BM=rows, BN=64, BK=32, STAGES=3)
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize(("rows", "columns", "ctas"), [(1, 8, 2), (6, 500, 2), (9, 2048, 4)])
def test_cluster_reduce(rows: int, columns: int, ctas: int) -> None:
    columns -= columns % 8
    example = importlib.import_module("cluster_reduce")
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float16)
    y = np.full_like(x, np.nan)
    grid = (tlxc.cdiv(rows, 4) * ctas,)
    emulate(example.rms_norm, grid, x, y, rows, columns, BLOCK=512, CTAS=ctas, ctas_per_cga=(ctas, 1, 1))
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(1, keepdims=True) + example.EPS)
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=2e-3, atol=1e-6)
