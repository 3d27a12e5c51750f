"""The linear layer of `examples/operators/linear.py`: in the simulator on CPU tensors, and marked `gpu` on a card."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tlxc

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples" / "operators"))
import linear as example  # noqa: E402

functional = torch.nn.functional
ACTIVATIONS: dict[Any, Any] = {
    None: lambda x: x,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


@pytest.fixture
def simulated() -> Iterator[None]:
    torch.manual_seed(0)
    with tlxc.simulate():
        yield


def operands(device: str, shape: tuple[int, ...], n: int, dtype: Any) -> tuple[Any, ...]:
    """x, weight, bias and residual."""
    k = shape[-1]
    sizes = (shape, (n, k), (n,), (*shape[:-1], n))
    scales = (1.0, k**-0.5, 1.0, 1.0)
    return tuple((torch.randn(size) * scale).to(device, dtype) for size, scale in zip(sizes, scales))


def expect_right(found: Any, x: Any, weight: Any, bias: Any, activation: Any, residual: Any) -> None:
    """Against float64."""
    wanted = x.double() @ weight.double().mT + (0 if bias is None else bias.double())
    wanted = ACTIVATIONS[activation](wanted)
    wanted = wanted if residual is None else wanted + residual.double()
    assert found.shape == wanted.shape and found.dtype == x.dtype
    rounding = 2.0**-8 if x.dtype is torch.bfloat16 else 2.0**-11
    torch.testing.assert_close(found.double(), wanted, rtol=1.1 * rounding, atol=4e-5)


def check_all(device: str, shape: tuple[int, ...], n: int, dtype: Any) -> None:
    x, weight, bias, residual = operands(device, shape, n, dtype)
    for activation in ACTIVATIONS:
        for b, r in ((None, None), (bias, None), (bias, residual)):
            expect_right(example.linear(x, weight, b, activation, r), x, weight, b, activation, r)


@pytest.mark.parametrize("shape", [(40,), (24, 40), (2, 3, 40)], ids=str)
def test_against_float64(simulated: None, shape: tuple[int, ...]) -> None:
    check_all("cpu", shape, 72, torch.float16)


def test_operands_by_columns(simulated: None) -> None:
    x, weight, bias, residual = operands("cpu", (24, 40), 72, torch.bfloat16)
    x, weight, residual = (t.mT.contiguous().mT for t in (x, weight, residual))
    expect_right(example.linear(x, weight, bias, "silu", residual), x, weight, bias, "silu", residual)


def test_without_rows(simulated: None) -> None:
    x, weight, *_ = operands("cpu", (0, 40), 72, torch.float16)
    assert example.linear(x, weight).shape == (0, 72)


def test_opcheck(simulated: None) -> None:
    x, weight, bias, residual = operands("cpu", (2, 4, 40), 16, torch.float16)
    torch.library.opcheck(example.linear, (x, weight))
    torch.library.opcheck(example.linear, (x, weight, bias, "gelu", residual))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(simulated: None, dynamic: bool) -> None:
    torch._dynamo.reset()
    step = torch.compile(
        lambda x, *more: example.linear(x * 2, *more) + 1, fullgraph=True, backend="aot_eager", dynamic=dynamic
    )
    for rows in (24, 8):
        x, weight, bias, residual = operands("cpu", (rows, 40), 16, torch.float16)
        wanted = example.linear(x * 2, weight, bias, "relu", residual) + 1
        assert torch.equal(step(x, weight, bias, "relu", residual), wanted)


def test_what_does_not_go_together(simulated: None) -> None:
    x, weight, bias, residual = operands("cpu", (24, 40), 16, torch.float16)
    c = "c of shape (24, 16), strides (16, 1) and torch.float16"
    bias_message = (
        f"A bias of shape (8,) and strides (1,) does not go with {c}; it has one element for each column, one after "
        "the other, and the rows of c are contiguous."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(bias_message)}$"):
        example.linear(x, weight, bias[:8])
    residual_message = (
        f"A residual of shape (24, 16), strides (16, 1) and torch.float32 does not go with {c}; shape and dtype must "
        "be the same, and dimension 1 contiguous."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(residual_message)}$"):
        example.linear(x, weight, None, None, residual.float())
    product_message = (
        "Tensors of shapes (24, 32), (40, 16) and (24, 16) are no a, b and c of a product, which are (M, K), (K, N) "
        "and (M, N)."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(product_message)}$"):
        example.linear(x[:, :32], weight)
    with pytest.raises(ValueError, match="multiples? of 16 bytes"):
        example.linear(x[:, :36].contiguous(), weight[:, :36].contiguous())
    with pytest.raises(tlxc.CompileError, match="no activation is called 'tanh'"):
        example.linear(x, weight, None, "tanh")


def test_the_example_runs() -> None:
    file = ROOT / "examples" / "operators" / "linear.py"
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line, kind in zip(done.stdout.splitlines(), ("eager", "compiled"), strict=True):
        found = re.fullmatch(rf"{kind}: relative error (\d\.\d+)", line)
        assert found and float(found[1]) < 4e-3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(8, 512, 1024), (1, 4096), (1000, 3000)], ids=str)
def test_on_a_gpu(shape: tuple[int, ...], dtype: str) -> None:
    check_all("cuda", shape, 1536, getattr(torch, dtype))


@pytest.mark.gpu
def test_compiled_on_a_gpu() -> None:
    pytest.importorskip("triton", reason="Inductor needs triton")
    torch._dynamo.reset()
    step = torch.compile(lambda x, *more: example.linear(x * 2, *more) + 1, fullgraph=True)
    x, weight, bias, residual = operands("cuda", (1000, 512), 768, torch.bfloat16)
    wanted = example.linear(x * 2, weight, bias, "gelu", residual) + 1
    torch.testing.assert_close(step(x, weight, bias, "gelu", residual), wanted, rtol=1e-2, atol=1e-2)
