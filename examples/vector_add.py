"""Adds two vectors: the smallest kernel with masks.

python examples/vector_add.py --check     runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

import _support

import tlxc
from tlxc import tl


@tlxc.kernel
def vector_add(
    a: tl.ptr(tl.float32),
    b: tl.ptr(tl.float32),
    c: tl.ptr(tl.float32),
    n: tl.int32,
    BLOCK: tl.constexpr = 1024,
):
    """c = a + b; one CTA per BLOCK elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(a + offsets, mask=inside) + tl.load(b + offsets, mask=inside)
    tl.store(c + offsets, total, mask=inside)


@vector_add.example
def example():
    """The last CTA has few elements."""
    return (3,), (*_support.rows(3, 2100, dtype="float32"), 2100)


def launch(a, b, c, block: int = 1024) -> None:
    """c = a + b for contiguous torch tensors of one dtype."""
    n = c.numel()
    vector_add[(tlxc.cdiv(n, block),)](a, b, c, n, BLOCK=block)


def check(torch) -> None:
    for n in (0, 1, 1000, 1024, 1 << 20, (1 << 24) + 3):
        a, b = torch.randn(2, n, device="cuda")
        c = torch.full_like(a, float("nan"))
        launch(a, b, c)
        torch.testing.assert_close(c, a + b, rtol=0, atol=0)


if __name__ == "__main__":
    _support.main(vector_add, check)
