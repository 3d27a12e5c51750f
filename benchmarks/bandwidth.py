"""Memory-bound kernels against `y.copy_(x)` of the same number of bytes, the L2 cache cleared before every launch."""

from __future__ import annotations

from typing import Any

import _harness


def cases(torch: Any) -> Any:
    """(name, our call, bytes moved) of every case."""
    import layer_norm
    import softmax
    import vector_add

    rows = columns = 8192
    for dtype in (torch.float16, torch.float32):
        size = dtype.itemsize * rows * columns
        x, other = (torch.randn(rows, columns, device="cuda", dtype=dtype) for _ in range(2))
        y = torch.empty_like(x)
        weight, bias = (torch.randn(columns, device="cuda", dtype=dtype) for _ in range(2))
        name = str(dtype).removeprefix("torch.")
        yield f"vector_add {name}", lambda: vector_add.launch(x.view(-1), other.view(-1), y.view(-1)), 3 * size
        yield f"softmax {name}", lambda: softmax.launch(x, y), 2 * size
        yield f"layer_norm {name}", lambda: layer_norm.launch(x, weight, bias, y), 2 * size


def main() -> None:
    import torch

    flush = _harness.Flush()
    records = []
    for name, call, moved in cases(torch):
        source = torch.randn(moved // 8, device="cuda", dtype=torch.float32)
        target = torch.empty_like(source)
        contestants = {"tlxc": call, "copy_": lambda source=source, target=target: target.copy_(source)}
        samples = _harness.interleaved(contestants, rounds=40, before=flush)
        records.append(_harness.record("bandwidth", f"{name} 8192x8192", "time", "us", samples, bytes=moved))
    _harness.write("bandwidth", records)


if __name__ == "__main__":
    main()
