"""Memory-bound kernels against `y.copy_(x)` of the same number of bytes, the L2 cache cleared before every launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _harness

ROWS = COLUMNS = 8192


def cases(torch: Any, dtype: Any) -> list[tuple[str, Callable[[], None], int]]:
    """(name, our call, bytes moved) of every kernel."""
    import layer_norm
    import softmax
    import vector_add

    size = dtype.itemsize * ROWS * COLUMNS
    x, other = (torch.randn(ROWS, COLUMNS, device="cuda", dtype=dtype) for _ in range(2))
    y = torch.empty_like(x)
    weight, bias = (torch.randn(COLUMNS, device="cuda", dtype=dtype) for _ in range(2))
    return [
        ("vector_add", lambda: vector_add.launch(x.view(-1), other.view(-1), y.view(-1)), 3 * size),
        ("softmax", lambda: softmax.launch(x, y), 2 * size),
        ("layer_norm", lambda: layer_norm.launch(x, weight, bias, y), 2 * size),
    ]


def measure(torch: Any, call: Callable[[], None], moved: int, flush: _harness.Flush) -> dict[str, list[float]]:
    source = torch.randn(moved // 8, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    contestants = {"tlxc": call, "copy_": lambda: target.copy_(source)}
    return _harness.interleaved(contestants, rounds=40, before=flush)


def main() -> None:
    import torch

    flush = _harness.Flush()
    records = []
    for dtype in (torch.float16, torch.float32):
        for name, call, moved in cases(torch, dtype):
            case = f"{name} {str(dtype).removeprefix('torch.')} {ROWS}x{COLUMNS}"
            samples = measure(torch, call, moved, flush)
            records.append(_harness.record("bandwidth", case, "time", "us", samples, bytes=moved))
    _harness.write("bandwidth", records)


if __name__ == "__main__":
    main()
