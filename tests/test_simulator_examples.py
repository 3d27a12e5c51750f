"""The examples on CPU tensors in the simulator, under several schedules: right results and no report.

The Hopper GEMMs are simulated by tests/kernels.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tlxc

torch = pytest.importorskip("torch")


def vector_add(launch: Callable[..., None]) -> tuple[Any, Any]:
    a, b = torch.randn(3000), torch.randn(3000)
    c = torch.empty(3000)
    launch(a, b, c)
    return c, a + b


def softmax(launch: Callable[..., None]) -> tuple[Any, Any]:
    x = torch.randn(5, 300).half()
    y = torch.empty_like(x)
    launch(x, y)
    return y, x.float().softmax(1)


def layer_norm(launch: Callable[..., None]) -> tuple[Any, Any]:
    x, weight, bias = torch.randn(5, 300), torch.randn(300), torch.randn(300)
    y = torch.empty_like(x)
    launch(x, weight, bias, y)
    return y, torch.nn.functional.layer_norm(x, (300,), weight, bias)


def matmul(launch: Callable[..., None]) -> tuple[Any, Any]:
    a, b = torch.randn(300, 72).half(), torch.randn(72, 136).half()
    c = torch.empty(300, 136).half()
    launch(a, b, c)
    return c, a.float() @ b.float()


def cluster_reduce(launch: Callable[..., None]) -> tuple[Any, Any]:
    x = torch.randn(6, 904).half()
    y = torch.empty_like(x)
    launch(x, y, ROWS=4, BLOCK=256)
    return y, x.float() * (x.float().square().mean(1, keepdim=True) + 1e-6).rsqrt()


EXAMPLES = [vector_add, softmax, layer_norm, matmul, cluster_reduce]


@pytest.mark.parametrize("schedule", ["random", "adversarial", "round-robin"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_example(example: Callable[..., Any], schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    torch.manual_seed(0)
    with tlxc.simulate(seed=1, schedule=schedule) as simulation:
        found, wanted = example(importlib.import_module(example.__name__).launch)
    assert not simulation.reports
    torch.testing.assert_close(found.float(), wanted, rtol=2e-3, atol=2e-2)
