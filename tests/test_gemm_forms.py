"""Which GEMM example is taken for which problem, and that each computes what it is taken for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import tlxc

SMS = 132  # of an H200
FORMS = {
    (64, 1024, 1024, 1024): "batched",
    (16, 8192, 8192): "skinny",
    (8192, 8192, 1024): "pingpong",
    (8192, 8200, 1024): "ws",  # rows of B do not start at multiples of 128 bytes: more loads are not worth it
    (4096, 4096, 4096): "ws",
    (1024, 1024, 1024): "ws",
    (512, 512, 16384): "splitk",
    (2432, 1792, 16384): "streamk",
}


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    return importlib.import_module("_gemm_forms")


@pytest.mark.parametrize("size", FORMS, ids=str)
def test_the_example_for_a_problem(size: tuple[int, ...], forms: Any) -> None:
    *batch, m, n, k = size
    assert forms.example_for(SMS, m, n, k, *batch).__name__ == f"hopper_gemm_{FORMS[size]}"


@pytest.mark.parametrize("size", [(2, 72, 136, 40), (24, 136, 72), (136, 136, 200)], ids=str)
def test_a_product_by_the_example_for_it(size: tuple[int, ...], forms: Any) -> None:
    torch = pytest.importorskip("torch")
    *batch, m, n, k = size
    torch.manual_seed(0)
    a, b = torch.randn(*batch, m, k).half(), torch.randn(*batch, k, n).half()
    c = torch.full((*batch, m, n), float("nan")).half()
    with tlxc.simulate() as simulation:
        forms.prepare(a, b, c)()
    assert not simulation.reports
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)
