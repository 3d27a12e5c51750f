"""`hopper_gemm_fused` in the emulator, on small matrices: operands either way round."""

from __future__ import annotations

import importlib
import re
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numeric.support import Blocks, emulate

import tlxc

EXAMPLES = Path(__file__).parent.parent / "examples"
Array = np.ndarray[Any, Any]

SMALL: dict[str, Any] = {"BM": 128, "BN": 64, "BK": 32, "BC": 32, "GROUP": 2, "STAGES": 2}
SHAPES = [(256, 128, 160), (200, 72, 104)]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def integers(rng: np.random.Generator, *shape: int, dtype: Any = np.float16) -> Array:
    """Small enough for exact sums in 16 bits."""
    return rng.integers(-2, 3, shape).astype(dtype)


def run(a: Array, b: Array, c: Array, **options: Any) -> None:
    """The kernel on the matrices as they are stored, on two CTAs."""
    options = {**SMALL, **options}
    left, right = options.get("A_TRANSPOSED", False), options.get("B_TRANSPOSED", False)
    (m, n), k = c.shape, a.shape[0] if left else a.shape[1]
    rows, bn, bk = options["BM"] // options.get("CONSUMERS", 2), options["BN"], options["BK"]
    blocks = ((bk, rows) if left else (rows, bk), (bn, bk) if right else (bk, bn), (rows, options["BC"]))
    described = [Blocks(x, block) for x, block in zip((a, b, c) if k else (c, c, c), blocks)]
    emulate(importlib.import_module("hopper_gemm_fused").gemm, (2,), *described, m, n, k, **options)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(("left", "right"), list(product((False, True), repeat=2)))
def test_operands_either_way_round(left: bool, right: bool, consumers: int, shape: tuple[int, int, int]) -> None:
    (m, n, k), rng = shape, np.random.default_rng(sum(shape))
    dtype = ml_dtypes.bfloat16 if left else np.float16
    a, b = integers(rng, m, k, dtype=dtype), integers(rng, k, n, dtype=dtype)
    c = np.full((m, n), np.nan, dtype)
    stored = [np.ascontiguousarray(x.T) if t else x for x, t in ((a, left), (b, right))]
    run(*stored, c, A_TRANSPOSED=left, B_TRANSPOSED=right, BM=64 * consumers, CONSUMERS=consumers)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(c.astype(np.float64), exact.astype(dtype).astype(np.float64))


@pytest.mark.parametrize("stored", list(product((False, True), repeat=3)), ids=str)
def test_launch_takes_tensors_as_they_are_strided(stored: tuple[bool, bool, bool]) -> None:
    """In the simulator; a C by columns is computed as the transposed product."""
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    m, n, k = 136, 72, 40
    shapes = ((m, k), (k, n), (m, n))
    a, b, c = (
        torch.randint(-2, 3, shape[::-1]).half().mT if by_columns else torch.randint(-2, 3, shape).half()
        for shape, by_columns in zip(shapes, stored)
    )
    with tlxc.simulate():
        example.launch(a, b, c, **SMALL)
    assert c.stride() == ((1, m) if stored[2] else (n, 1))
    assert torch.equal(c.double(), a.double() @ b.double())


def test_without_contiguous_rows_or_columns() -> None:
    torch, example = pytest.importorskip("torch"), importlib.import_module("hopper_gemm_fused")
    a = torch.zeros(64, 64, dtype=torch.float16)
    message = (
        "The matrix b of shape (64, 32) has strides (128, 2); one of them must be 1, so that rows or columns are "
        "contiguous. Pass a copy, as .contiguous() makes one."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        example.launch(a, torch.zeros(64, 128, dtype=torch.float16)[:, :64:2], a)
