"""Layer normalisation of the rows of a matrix with weight and bias, one CTA per row, the row in registers.

python examples/layer_norm.py --check     runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _support

import tlxc
from tlxc import tl


@tlxc.kernel(num_warps=8)
def layer_norm(
    x: tl.ptr(tl.float16),
    weight: tl.ptr(tl.float16),
    bias: tl.ptr(tl.float16),
    y: tl.ptr(tl.float16),
    n: tl.int32,
    stride: tl.int32,
    eps: tl.float32,
    BLOCK: tl.constexpr = 8192,
):
    """y[row, :] = (x[row, :] - mean) / sqrt(variance + eps) * weight + bias; n <= BLOCK."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    values = tl.load(x + row * stride + columns, mask=mask).to(tl.float32)
    mean = tl.sum(values, axis=0) / n
    centred = tl.where(mask, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n
    scale = tl.rsqrt(variance + eps)
    w = tl.load(weight + columns, mask=mask).to(tl.float32)
    b = tl.load(bias + columns, mask=mask).to(tl.float32)
    tl.store(y + row * stride + columns, centred * scale * w + b, mask=mask)


@layer_norm.example
def example():
    """Three rows that fill a part of their tile."""
    (x, y), (weight, bias) = _support.rows(2, 3, 781), _support.rows(2, 781)
    return (3,), (x, weight, bias, y, 781, 781, 1e-5, 1024)


def launch(x, weight, bias, y, eps: float = 1e-5) -> None:
    """Layer norm of the rows of a 2-D torch tensor into `y`."""
    rows, n = x.shape
    block = tlxc.next_power_of_2(n)
    # For long rows, too, 8 are faster: 134.6 us against 135.9 with 16 (8192 x 8192 of fp32 on H200).
    warps = min(8, _support.warps_for(block * x.element_size()))
    limit = _register_limit(x, weight, block)
    layer_norm[(rows,)](x, weight, bias, y, n, x.stride(0), eps, BLOCK=block, num_warps=warps, maxnreg=limit)


def _register_limit(x, weight, block: int) -> int | None:
    """64 registers let four CTAs of 8 warps run on an SM, where the 80 that the kernel takes by itself let three.

    16-bit rows of 8192 fit into them without a spill if they are read in pieces of 16 bytes, for which the row length
    and the stride have to be multiples of 16 elements.  32-bit rows, and others of 16 bits, would spill.
    """
    narrow = x.element_size() == weight.element_size() == 2
    return 64 if narrow and block == 8192 and x.shape[1] % 16 == x.stride(0) % 16 == 0 else None


def check(torch) -> None:
    for rows, n in ((37, 781), (64, 8192), (3, 4097)):
        for dtype in (torch.float16, torch.float32, torch.bfloat16):
            x = torch.randn(rows, n, device="cuda", dtype=dtype) * 3 + 1
            weight, bias = (torch.randn(n, device="cuda", dtype=dtype) for _ in range(2))
            y = torch.full_like(x, float("nan"))
            launch(x, weight, bias, y)
            want = torch.nn.functional.layer_norm(x.double(), (n,), weight.double(), bias.double(), 1e-5)
            _support.expect_close(y, want, dtype)


if __name__ == "__main__":
    _support.main(layer_norm, check)
