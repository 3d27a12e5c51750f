"""A linear layer as an operator of torch: act(x @ weight^T + bias) + residual in one kernel, that of hopper_gemm_fused.

python examples/operators/linear.py           runs on a GPU; without one, in the simulator on CPU tensors
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import tlxc

sys.path.append(str(Path(__file__).resolve().parent.parent))
import hopper_gemm_fused  # noqa: E402


@tlxc.torch_op("tlxc_examples::linear")
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """x (.., K), weight (N, K), bias (N,), residual (.., N); float16 or bfloat16, K and N multiples of 8.  activation:
    None, "relu", "silu", "gelu" or "gelu_tanh"."""
    y = _result(x, weight)
    if y.numel():
        bias = None if bias is None else bias.contiguous()
        rows, out = x.reshape(-1, x.shape[-1]), y.view(-1, y.shape[-1])
        residual = None if residual is None else residual.reshape(out.shape).contiguous()
        hopper_gemm_fused.launch(rows, weight.mT, out, bias=bias, residual=residual, activation=activation or "")
    return y


@linear.register_fake
def _result(x, weight, bias=None, activation=None, residual=None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


class FeedForward(nn.Module):
    """x + down(gelu(up(x))) in two kernels."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        h = linear(x, self.up.weight, self.up.bias, "gelu")
        return linear(h, self.down.weight, self.down.bias, None, x)


class TorchFeedForward(FeedForward):
    """The same of torch's own operators."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def main(device: str, batch: tuple[int, ...], width: int, hidden: int, backend: str) -> None:
    torch.manual_seed(0)
    ours, theirs = (kind(width, hidden).to(device, torch.bfloat16) for kind in (FeedForward, TorchFeedForward))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(*batch, width).to(device, torch.bfloat16)
    with torch.no_grad():
        wanted = theirs.double()(x.double())
        for kind, model in (("eager", ours), ("compiled", torch.compile(ours, fullgraph=True, backend=backend))):
            error = (model(x).double() - wanted).norm() / wanted.norm()
            print(f"{kind}: relative error {float(error):.4f}")


if __name__ == "__main__":
    if torch.version.cuda and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        main("cuda", batch=(8, 512), width=1024, hidden=4096, backend="inductor")
    else:
        with tlxc.simulate():
            main("cpu", batch=(2, 20), width=64, hidden=136, backend="aot_eager")
