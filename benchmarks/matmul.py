"""`examples/matmul.py` (plain `tl.dot`) against cuBLAS through torch, in bursts that alternate inside one process."""

from __future__ import annotations

import sys

import _harness

SIZE = 4096


def main() -> None:
    import torch

    import matmul as example  # examples/matmul.py: this file runs as __main__

    records = []
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) for _ in range(2))
        ours, theirs = torch.empty_like(a), torch.empty_like(a)
        contestants = {
            "tlxc": lambda: example.launch(a, b, ours),
            "cuBLAS": lambda: torch.matmul(a, b, out=theirs),
        }
        samples = _harness.interleaved(contestants, rounds=40, burst=4)
        error = float((ours.float() - theirs.float()).norm() / theirs.float().norm())
        if not error < 1e-2:
            sys.exit(f"matmul {dtype}: relative difference {error:.2e} to cuBLAS")
        flop = 2 * SIZE**3
        tflops = {n: [flop / (1e6 * t) for t in s] for n, s in samples.items()}
        name = str(dtype).removeprefix("torch.")
        records.append(
            _harness.record("matmul", f"{name} {SIZE}^3", "throughput", "TFLOP/s", tflops, "more", difference=error)
        )
    _harness.write("matmul", records)


if __name__ == "__main__":
    main()
