"""The GEMM examples beyond one product of whole waves: batches, split sums, and every GEMM under many schedules.

Small matrices of small integers, whose sums are exact.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numeric.support import Blocks, emulate

import tlxc

EXAMPLES = Path(__file__).parent.parent / "examples"
BK, BN, BC = 32, 64, 32


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def integers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Small enough for exact sums in float16."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


def nothing(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, np.nan, np.float16)


def expect_product(c: Any, a: Any, b: Any) -> None:
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


# ------------------------------------------------------------------------------------------------------------- batched
BATCHED = {
    "halves": dict(BM=128, STAGES=3, LEAD=2, PINGPONG=False),
    "pingpong": dict(BM=64, STAGES=2, PINGPONG=True),
}
PRODUCTS = [(3, 128, 64, 64), (2, 200, 72, 104), (4, 1, 8, 8), (1, 264, 136, 40), (3, 72, 64, 0)]


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
@pytest.mark.parametrize("form", BATCHED)
def test_batched(form: str, shape: tuple[int, int, int, int]) -> None:
    """Two CTAs walk over the tiles of all products; rows of one product do not spill into the next."""
    batch, m, n, k = shape
    a, b, c = integers(sum(shape), batch, m, k), integers(batch, batch, k, n), nothing(batch, m, n)
    blocks = ((1, 64, BK), (1, BK, BN), (1, 64, BC))
    described = [Blocks(x, block) for x, block in zip((a, b, c) if k else (c, c, c), blocks)]
    kernel = importlib.import_module("hopper_gemm_batched").gemm
    emulate(kernel, (2,), *described, batch, m, n, k, BN=BN, BK=BK, BC=BC, GROUP=2, **BATCHED[form])
    expect_product(c, a, b)


def test_products_that_share_b() -> None:
    a, b, c = integers(1, 3, 72, 40), integers(2, 1, 40, 72), nothing(3, 72, 72)
    described = [Blocks(x, block) for x, block in zip((a, b, c), ((1, 64, BK), (1, BK, BN), (1, 64, BC)))]
    kernel = importlib.import_module("hopper_gemm_batched").gemm
    emulate(kernel, (2,), *described, 3, 72, 72, 40, BN=BN, BK=BK, BC=BC, SHARED_B=True, **BATCHED["halves"])
    expect_product(c, a, b)


@pytest.mark.parametrize("case", ["products", "shared", "expanded", "gaps", "strides", "one"])
def test_operands_of_batches(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `prepare` makes of strides, on three SMs: shared B is one product of more rows where A and C allow that."""
    torch = pytest.importorskip("torch")
    example = importlib.import_module("hopper_gemm_batched")
    monkeypatch.setattr("_support.sm_count", lambda device: 3)
    torch.manual_seed(0)
    a, b = torch.randn(3, 40, 72).half(), torch.randn(3, 72, 136).half()
    a, b = {
        "products": lambda: (a, b),
        "shared": lambda: (a, b[1]),
        "expanded": lambda: (a, b[1].expand(3, -1, -1)),
        "gaps": lambda: (torch.randn(3, 48, 72).half()[:, 5:45], b[:1]),
        "strides": lambda: (a.transpose(0, 1).contiguous().transpose(0, 1), b),
        "one": lambda: (a[2], b[2]),
    }[case]()
    c = torch.full((*a.shape[:-1], 136), float("nan")).half()
    with tlxc.simulate() as simulation:
        example.launch(a, b, c, **example.FORMS["small"])
    assert not simulation.reports
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)


def test_forms_of_batches() -> None:
    """Large tiles for large products, small ones where they would be mostly empty."""
    example = importlib.import_module("hopper_gemm_batched")
    assert example.choose(64, 1024, 1024, 1024, 132)["BN"] == 256
    assert example.choose(1000, 64, 64, 256, 132) == example.FORMS["small"]
