"""`examples/matmul.py` (plain `tl.dot`) against cuBLAS through torch, in bursts that alternate inside one process."""

from __future__ import annotations

import sys
from typing import Any

import _harness

SIZE = 4096


def measure(torch: Any, dtype: Any) -> tuple[dict[str, list[float]], float]:
    """(microseconds per call by contestant, relative difference of the results)"""
    import matmul as example  # examples/matmul.py: this file runs as __main__

    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) for _ in range(2))
    ours, theirs = torch.empty_like(a), torch.empty_like(a)
    contestants = {"tlxc": lambda: example.launch(a, b, ours), "cuBLAS": lambda: torch.matmul(a, b, out=theirs)}
    samples = _harness.interleaved(contestants, rounds=40, burst=4)
    return samples, float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def main() -> None:
    import torch

    records = []
    for dtype in (torch.float16, torch.bfloat16):
        samples, difference = measure(torch, dtype)
        if not difference < 1e-2:
            sys.exit(f"matmul {dtype}: relative difference {difference:.2e} to cuBLAS")
        tflops = {name: [2 * SIZE**3 / (1e6 * t) for t in times] for name, times in samples.items()}
        case = f"{str(dtype).removeprefix('torch.')} {SIZE}^3"
        records.append(_harness.record("matmul", case, "throughput", "TFLOP/s", tflops, "more", difference=difference))
    _harness.write("matmul", records)


if __name__ == "__main__":
    main()
