"""Softmax along the rows of a matrix, one CTA per row, the row in registers.

python examples/softmax.py --check        runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _support

import tlxc
from tlxc import tl


@tlxc.kernel(num_warps=8)
def softmax(
    x: tl.ptr(tl.float16),
    y: tl.ptr(tl.float16),
    n: tl.int32,
    stride: tl.int32,
    BLOCK: tl.constexpr = 8192,
):
    """y[row, :n] = softmax(x[row, :n]); rows lie `stride` elements apart, n <= BLOCK."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    values = tl.load(x + row * stride + columns, mask=mask, other=float("-inf")).to(tl.float32)
    top = tl.max(values, axis=0)
    powers = tl.exp2((values - top) * 1.4426950408889634)
    scale = 1.0 / tl.sum(powers, axis=0)
    tl.store(y + row * stride + columns, powers * scale, mask=mask)


@softmax.example
def example():
    """Three rows that fill a part of their tile."""
    x, y = _support.rows(2, 3, 781)
    return (3,), (x, y, 781, 781, 1024)


def launch(x, y) -> None:
    """Softmax of the rows of a 2-D torch tensor into `y`."""
    rows, n = x.shape
    block = tlxc.next_power_of_2(n)
    warps = _support.warps_for(block * x.element_size())
    softmax[(rows,)](x, y, n, x.stride(0), BLOCK=block, num_warps=warps)


def check(torch) -> None:
    for rows, n in ((37, 781), (128, 8192), (5, 1), (3, 4097)):
        for dtype in (torch.float16, torch.float32, torch.bfloat16):
            x = torch.randn(rows, n, device="cuda", dtype=dtype)
            y = torch.full_like(x, float("nan"))
            launch(x, y)
            _support.expect_close(y, torch.softmax(x.double(), dim=1), dtype)


if __name__ == "__main__":
    _support.main(softmax, check)
