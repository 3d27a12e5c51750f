"""Attention forward as an operator of torch, by the kernel of hopper_attention_persistent.py.

`attention_forward(q, k, v, causal)` gives O and the log-sum-exp of the scaled scores, eager and compiled.  How many
consumers there are and how large the blocks are follows from D, N and the mask.

python examples/operators/attention.py           compares with torch on a GPU; without one, in the simulator
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

import tlxc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import hopper_attention_persistent  # noqa: E402

DTYPES = (torch.float16, torch.bfloat16)
SIZES = (64, 128, 256)


@tlxc.torch_op("tlxc_examples::attention_forward")
def attention_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """softmax(q @ k.mT / sqrt(D)) @ v, and the log-sum-exp of the scaled scores in float32.  q: (batch, heads, N, D); k
    and v may have fewer heads, each for as many consecutive heads of q."""
    o, lse = results(q, k, v)
    if o.numel():
        hopper_attention_persistent.launch(q, k, v, o, lse, causal)
    return o, lse


@attention_forward.register_fake
def shapes(q, k, v, causal):
    return results(q, k, v)


def results(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Where O and the log-sum-exp go; an error where the kernel does not take the arguments."""
    check_arguments(q, k, v)
    return torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(q.shape[:-1], dtype=torch.float32)


def check_arguments(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in dict(q=q, k=k, v=v).items():
        if x.dim() != 4:
            raise ValueError(f"{name} has {x.dim()} dimensions; give it four: (batch, heads, N, D).")
        if x.dtype not in DTYPES or x.dtype != q.dtype:
            raise ValueError(f"{name} is of {x.dtype}; q, k and v are all of torch.float16 or all of torch.bfloat16.")
        if not described_by_tma(x):
            raise ValueError(
                f"{name} has strides {tuple(x.stride())}; elements of a row have to lie side by side, heads at equal "
                f"distances over the whole batch, and rows at multiples of 16 bytes: pass {name}.contiguous()."
            )
    if q.shape[-1] not in SIZES:
        raise ValueError(f"Heads have {q.shape[-1]} elements; they have to have 64, 128 or 256.")
    if k.shape != v.shape or (*k.shape[:1], *k.shape[2:]) != (*q.shape[:1], *q.shape[2:]):
        raise ValueError(
            f"q, k and v have shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}; they may differ in the "
            "heads only, and k and v not in these."
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads and k has {k.shape[1]}; each of k serves equally many of q.")


def described_by_tma(x: Tensor) -> bool:
    """Whether (batch * heads, N, D) is a view that a tensor map can describe."""
    (batch, heads, _, _), (of_batch, of_head, of_row, of_element) = x.shape, x.stride()
    one_stride = batch == 1 or heads == 1 or of_batch == heads * of_head
    return bool(of_element == 1 and one_stride and of_row % 8 == 0 and of_head % 8 == 0 and of_row > 0 and of_head > 0)


def main(device: str, heads: int, n: int, backend: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, n, 64, device=device, dtype=torch.float16) for _ in range(3))
    compiled = torch.compile(lambda q, k, v: attention_forward(q, k, v, True)[0] * 2, fullgraph=True, backend=backend)
    wanted = torch.nn.functional.scaled_dot_product_attention(*(x.float() for x in (q, k, v)), is_causal=True) * 2
    error = float((compiled(q, k, v).float() - wanted).norm() / wanted.norm())
    print(f"relative error against torch in float32: {error:.1e}")


if __name__ == "__main__":
    if torch.version.cuda and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        main("cuda", heads=16, n=4096, backend="inductor")
    else:
        with tlxc.simulate():
            main("cpu", heads=2, n=200, backend="aot_eager")
