"""`examples/hopper_gemm_ws.py` against cuBLAS through torch, fp16 and bf16, inside one process: large problems cool and
in bursts, small ones and those of few rows in CUDA graphs.

`ratio_interval` is the 95 % bootstrap interval of the median over rounds of our throughput to cuBLAS's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import _harness

SIZES = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 16384), (8192, 8192, 1024))
SMALL = (
    (2048, 2048, 2048), (1024, 1024, 1024), (16, 8192, 8192), (64, 8192, 8192), (4224, 4096, 4096), (4000, 3000, 1000),
)  # fmt: skip
ROUNDS = 60
LOADS: dict[str, Callable[[dict[str, Callable[[], None]]], dict[str, list[float]]]] = {
    "cool": lambda contestants: _harness.cooled(contestants, ROUNDS),
    "burst": lambda contestants: _harness.interleaved(contestants, ROUNDS, burst=4),
    "graph": lambda contestants: _harness.graphed(contestants, ROUNDS),
}


def measure(torch: Any, dtype: Any, size: tuple[int, int, int], loads: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """One record for each load."""
    import hopper_gemm_skinny
    import hopper_gemm_ws

    m, n, k = size
    example = hopper_gemm_skinny if m <= hopper_gemm_skinny.MOST_ROWS else hopper_gemm_ws
    a, b = (torch.randn(shape, device="cuda", dtype=dtype) for shape in ((m, k), (k, n)))
    ours, theirs = (torch.empty((m, n), device="cuda", dtype=dtype) for _ in range(2))
    contestants = {"tlxc": example.prepare(a, b, ours), "cuBLAS": lambda: torch.matmul(a, b, out=theirs)}
    for fn in contestants.values():
        fn()
    difference = float((ours.float() - theirs.float()).norm() / theirs.float().norm())
    if not difference < 1e-2:
        sys.exit(f"hopper_gemm {dtype} {size}: relative difference {difference:.2e} to cuBLAS")
    compiled = example.gemm.variants[-1].compiled
    for load in loads:
        found = LOADS[load](contestants)
        samples = {name: [2 * m * n * k / (1e6 * t) for t in times] for name, times in found.items()}
        yield _harness.record(
            "hopper_gemm", f"{str(dtype).removeprefix('torch.')} {m}x{n}x{k} {load}", "throughput", "TFLOP/s", samples,
            "more", ratio_interval=_harness.ratio_interval(samples["tlxc"], samples["cuBLAS"]), difference=difference,
            registers=compiled.registers, spill_bytes=compiled.spill_bytes,
            notes=[f"{n.kind}: {n.text}" for n in compiled.notes],
        )  # fmt: skip


def main() -> None:
    import torch

    torch.manual_seed(0)
    records = []
    for dtype in (torch.float16, torch.bfloat16):
        problems = [(size, ("cool", "burst")) for size in SIZES] + [(size, ("graph",)) for size in SMALL]
        for size, loads in problems:
            for made in measure(torch, dtype, size, loads):
                records.append(made)
                low, high = made["ratio_interval"]
                print(f"{made['case']}: {made['tlxc']:.1f} TFLOP/s, ratio {low:.4f} to {high:.4f}", flush=True)
    _harness.write("hopper_gemm", records)


if __name__ == "__main__":
    main()
