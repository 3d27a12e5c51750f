"""A gated MLP whose normalisation, products and activation are kernels, trained by autograd and torch.compile.

Each operator is a function that allocates its results and launches a kernel; `tlxc.torch_op` tells torch of it. What a
backward launches is an operator as well.

python examples/training/mlp.py           trains on a GPU; without one, in the simulator on CPU tensors
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import tlxc
from tlxc import tl

# -- normalisation: y = x / rms(x) * weight --------------------------------------------------------------------------


@tlxc.kernel
def rms_norm_kernel(x, weight, y, n, eps: tl.float32, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + eps)
    tl.store(y + row * n + columns, values * scale * tl.load(weight + columns, mask=inside), mask=inside)


@tlxc.kernel
def rms_norm_backward_kernel(grad, x, weight, grad_x, parts, n, eps: tl.float32, BLOCK: tl.constexpr):
    """`parts`: what each row gives to the gradient of the weight."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    at = row * n + columns
    values, g = tl.load(x + at, mask=inside).to(tl.float32), tl.load(grad + at, mask=inside).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + eps)
    normed = values * scale
    weighted = g * tl.load(weight + columns, mask=inside)
    mean = tl.sum(weighted * normed, axis=0) / n
    tl.store(grad_x + at, (weighted - normed * mean) * scale, mask=inside)
    tl.store(parts + at, g * normed, mask=inside)


@tlxc.torch_op("tlxc_mlp::rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x, (rows, n) = x.contiguous(), x.shape
    y = torch.empty_like(x)
    rms_norm_kernel[(rows,)](x, weight, y, n, eps, BLOCK=tlxc.next_power_of_2(n))
    return y


@tlxc.torch_op("tlxc_mlp::rms_norm_backward")
def rms_norm_backward(grad: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    grad, x, (rows, n) = grad.contiguous(), x.contiguous(), x.shape
    grad_x, parts = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    block = tlxc.next_power_of_2(n)
    rms_norm_backward_kernel[(rows,)](grad, x, weight, grad_x, parts, n, eps, BLOCK=block)
    return grad_x, parts


def _rms_norm_setup(ctx, inputs, output) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_grad(ctx, grad):
    x, weight = ctx.saved_tensors
    grad_x, parts = rms_norm_backward(grad, x, weight, ctx.eps)
    return grad_x, parts.sum(0).to(weight.dtype), None


rms_norm.register_autograd(_rms_norm_grad, setup_context=_rms_norm_setup)

# -- products of matrices with any strides ---------------------------------------------------------------------------


@tlxc.kernel
def product_kernel(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column,
    BM: tl.constexpr = 64, BN: tl.constexpr = 64, BK: tl.constexpr = 32,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a_at = a + rows[:, None] * a_row + inner[None, :] * a_column
        b_at = b + inner[:, None] * b_row + columns[None, :] * b_column
        x = tl.load(a_at, mask=(rows[:, None] < M) & (inner[None, :] < K))
        y = tl.load(b_at, mask=(inner[:, None] < K) & (columns[None, :] < N))
        acc = tl.dot(x, y, acc)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.dtype), mask=inside)


@tlxc.torch_op("tlxc_mlp::product")
def product(a: Tensor, b: Tensor) -> Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    product_kernel[(tlxc.cdiv(m, 64), tlxc.cdiv(n, 64))](a, b, c, m, n, k, *a.stride(), *b.stride())
    return c


def _product_setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _product_grad(ctx, grad):
    a, b = ctx.saved_tensors
    return product(grad, b.t()), product(a.t(), grad)


product.register_autograd(_product_grad, setup_context=_product_setup)

# -- activation: silu(gate) * up -------------------------------------------------------------------------------------


@tlxc.kernel
def gated_kernel(gate, up, y, n, BLOCK: tl.constexpr = 1024):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < n).to(tl.float32)
    tl.store(y + at, g / (1.0 + tl.exp(-g)) * tl.load(up + at, mask=at < n), mask=at < n)


@tlxc.kernel
def gated_backward_kernel(grad, gate, up, grad_gate, grad_up, n, BLOCK: tl.constexpr = 1024):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d, g = tl.load(grad + at, mask=inside).to(tl.float32), tl.load(gate + at, mask=inside).to(tl.float32)
    s = 1.0 / (1.0 + tl.exp(-g))
    tl.store(grad_gate + at, d * tl.load(up + at, mask=inside) * s * (1.0 + g * (1.0 - s)), mask=inside)
    tl.store(grad_up + at, d * g * s, mask=inside)


@tlxc.torch_op("tlxc_mlp::gated")
def gated(gate: Tensor, up: Tensor) -> Tensor:
    gate, up = gate.contiguous(), up.contiguous()
    y = torch.empty_like(gate)
    gated_kernel[(tlxc.cdiv(y.numel(), 1024),)](gate, up, y, y.numel())
    return y


@tlxc.torch_op("tlxc_mlp::gated_backward")
def gated_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    grad, gate, up = grad.contiguous(), gate.contiguous(), up.contiguous()
    grad_gate, grad_up, n = torch.empty_like(gate), torch.empty_like(up), gate.numel()
    gated_backward_kernel[(tlxc.cdiv(n, 1024),)](grad, gate, up, grad_gate, grad_up, n)
    return grad_gate, grad_up


def _gated_setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _gated_grad(ctx, grad):
    return gated_backward(grad, *ctx.saved_tensors)


gated.register_autograd(_gated_grad, setup_context=_gated_setup)

# -- the model -------------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """x + down(silu(gate(norm(x))) * up(norm(x))) on rows of `width`."""

    def __init__(self, width: int, hidden: int, dtype: torch.dtype, device: str) -> None:
        super().__init__()

        def weights(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter((torch.randn(rows, columns) / rows**0.5).to(device, dtype))

        self.norm = nn.Parameter(torch.ones(width, dtype=dtype, device=device))
        self.gate, self.up, self.down = weights(width, hidden), weights(width, hidden), weights(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        h = rms_norm(x, self.norm, 1e-5)
        return x + product(gated(product(h, self.gate), product(h, self.up)), self.down)


class TorchMlp(Mlp):
    """The same of torch's own operators."""

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.rms_norm(x, x.shape[-1:], self.norm, 1e-5)
        return x + (nn.functional.silu(h @ self.gate) * (h @ self.up)) @ self.down


def loss_of(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return ((model(x).float() - target.float()) ** 2).mean()


def train(model: nn.Module, x: Tensor, target: Tensor, steps: int, **compile_options) -> list[float]:
    """The losses of so many steps; with options, of the compiled model."""
    step = torch.compile(loss_of, fullgraph=True, **compile_options) if compile_options else loss_of
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = step(model, x, target)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def main(device: str, rows: int, width: int, hidden: int, steps: int, backend: str) -> None:
    torch.manual_seed(0)
    x, target = (torch.randn(rows, width).to(device, torch.bfloat16) for _ in range(2))
    for kind, options in (("eager", {}), ("compiled", {"backend": backend})):
        torch.manual_seed(1)
        losses = train(Mlp(width, hidden, torch.bfloat16, device), x, target, steps, **options)
        print(f"{kind}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {steps} steps")


if __name__ == "__main__":
    if torch.version.cuda and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        main("cuda", rows=4096, width=1024, hidden=2816, steps=20, backend="inductor")
    else:
        with tlxc.simulate():
            main("cpu", rows=24, width=48, hidden=80, steps=3, backend="aot_eager")
