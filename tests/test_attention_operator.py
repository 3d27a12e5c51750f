"""The operator of attention: on CPU tensors in the simulator, and marked `gpu` on a card."""

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
FOLDER = Path(__file__).parent.parent / "examples" / "operators"
sys.path.insert(0, str(FOLDER))
import attention  # noqa: E402

attention_forward: Any = attention.attention_forward


@pytest.fixture
def simulated() -> Iterator[None]:
    torch._dynamo.reset()
    with tlxc.simulate():
        yield


def tensors(batch: int, heads: int, group: int, n: int, d: int, device: str = "cpu", dtype: Any = None) -> list[Any]:
    torch.manual_seed(n)
    shapes = [(batch, h, n, d) for h in (heads, heads // group, heads // group)]
    return [torch.randn(shape, device=device).to(dtype or torch.float16) for shape in shapes]


def expect_right(q: Any, k: Any, v: Any, causal: bool, o: Any, lse: Any) -> None:
    """Against torch in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert float((o.double() - wanted).norm() / wanted.norm()) < (1e-3 if o.dtype == torch.float16 else 8e-3)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-6, atol=1e-4)


# (batch, heads, heads that share K and V, N, D, causal, dtype)
CASES = [
    (2, 2, 2, 70, 64, True, torch.float16),
    (1, 1, 1, 130, 128, False, torch.bfloat16),
    (1, 2, 1, 65, 256, True, torch.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results(case: tuple[Any, ...], simulated: None) -> None:
    *sizes, causal, dtype = case
    q, k, v = tensors(*sizes, dtype=dtype)
    expect_right(q, k, v, causal, *attention_forward(q, k, v, causal))


def test_heads_of_a_longer_cache(simulated: None) -> None:
    """Rows of a head lie side by side, and the next head begins further on."""
    q, k, v = (x[:, :, :70] for x in tensors(1, 2, 1, 100, 64))
    assert not q.is_contiguous()
    expect_right(q, k, v, False, *attention_forward(q, k, v, False))


def test_no_queries(simulated: None) -> None:
    o, lse = attention_forward(*tensors(0, 2, 1, 100, 64), False)
    assert o.shape == (0, 2, 100, 64) and lse.shape == (0, 2, 100)


def test_opcheck(simulated: None) -> None:
    torch.library.opcheck(attention_forward, (*tensors(1, 2, 2, 70, 64), True))


def test_a_compiled_function_is_one_graph(simulated: None) -> None:
    q, k, v = tensors(1, 2, 1, 70, 64)
    compiled = torch.compile(lambda *x: attention_forward(*x, True)[0] * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v), attention_forward(q, k, v, True)[0] * 2)


def _refusals() -> dict[str, tuple[list[Any], str]]:
    q, k, v = tensors(1, 6, 1, 8, 64)
    across = q.transpose(1, 2).contiguous().transpose(1, 2).expand(2, -1, -1, -1)
    return {
        "dimensions": ([q[0], k, v], "q has 3 dimensions; give it four: (batch, heads, N, D)."),
        "dtype": (
            [q.float(), k, v],
            "q is of torch.float32; q, k and v are all of torch.float16 or all of torch.bfloat16.",
        ),
        "two dtypes": (
            [q, k, v.bfloat16()],
            "v is of torch.bfloat16; q, k and v are all of torch.float16 or all of torch.bfloat16.",
        ),
        "strides": (
            [across, k, v],
            "q has strides (0, 64, 384, 1); elements of a row have to lie side by side, heads at equal distances over "
            "the whole batch, and rows at multiples of 16 bytes: pass q.contiguous().",
        ),
        "columns": (
            [q, k.mT.contiguous().mT, v],
            "k has strides (3072, 512, 1, 8); elements of a row have to lie side by side, heads at equal distances "
            "over the whole batch, and rows at multiples of 16 bytes: pass k.contiguous().",
        ),
        "size": ([x[..., :32] for x in (q, k, v)], "Heads have 32 elements; they have to have 64, 128 or 256."),
        "lengths": (
            [q, k[:, :, :4], v[:, :, :4]],
            "q, k and v have shapes (1, 6, 8, 64), (1, 6, 4, 64) and (1, 6, 4, 64); they may differ in the heads only, "
            "and k and v not in these.",
        ),
        "heads": (
            [q, k[:, :4], v[:, :4]],
            "q has 6 heads and k has 4; each of k serves equally many of q.",
        ),
    }


REFUSALS = _refusals()


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str, simulated: None) -> None:
    arguments, message = REFUSALS[name]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attention_forward(*arguments, False)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attention.shapes(*arguments, False)


def test_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, FOLDER / "attention.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rpartition(": ")[2]) < 1e-3


# -- on a card -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", attention.DTYPES, ids=str)
@pytest.mark.parametrize("d", attention.SIZES)
def test_results_on_a_gpu(d: int, dtype: Any, causal: bool) -> None:
    for sizes in ((2, 8, 4, 1000), (1, 2, 1, 4224), (3, 1, 1, 1)):
        q, k, v = tensors(*sizes, d, "cuda", dtype)
        expect_right(q, k, v, causal, *attention_forward(q, k, v, causal))


@pytest.mark.gpu
def test_opcheck_on_a_gpu() -> None:
    torch.library.opcheck(attention_forward, (*tensors(1, 4, 2, 300, 128, "cuda"), True))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_on_a_gpu(mode: str) -> None:
    """By Inductor, in CUDA graphs too: the tile counter is zero again for each replay."""
    pytest.importorskip("triton", reason="Inductor needs triton")
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: attention_forward(*x, True)[0] + 1, fullgraph=True, mode=mode)
    for _ in range(4):
        q, k, v = tensors(1, 8, 1, 2048, 128, "cuda")
        torch.testing.assert_close(compiled(q, k, v), attention_forward(q, k, v, True)[0] + 1)
