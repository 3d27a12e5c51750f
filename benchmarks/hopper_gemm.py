"""The GEMM examples against cuBLAS through torch, fp16 and bf16, inside one process: large problems cool and in bursts,
small ones and those of few rows in CUDA graphs, batches (the first of four numbers) in both.  A plain Triton kernel
takes part in bursts, where Triton is installed.

`ratio_interval` is the 95 % bootstrap interval of the median over rounds of our throughput to cuBLAS's.
`--sweep [PROBLEM..]`, with problems as 1024x1024x1024, times the forms that the examples choose among instead.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import _gemm_sweep
import _harness
import _peers

SIZES = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 16384), (8192, 8192, 1024))
SMALL = (
    (2048, 2048, 2048), (1024, 1024, 1024), (16, 8192, 8192), (64, 8192, 8192), (4224, 4096, 4096), (4000, 3000, 1000),
    (512, 512, 16384), (384, 8192, 8192), (2304, 4096, 4096),
)  # fmt: skip
BATCHED = ((64, 1024, 1024, 1024),)
ROUNDS, LONG_ROUNDS = 50, 30
LOADS: dict[str, Callable[[dict[str, Callable[[], None]]], dict[str, list[float]]]] = {
    "cool": lambda contestants: _harness.cooled(contestants, ROUNDS),
    "burst": lambda contestants: _harness.interleaved(contestants, ROUNDS, burst=4),
    "sustained": lambda contestants: _harness.sustained(contestants, LONG_ROUNDS),
    "graph": lambda contestants: _harness.graphed(contestants, ROUNDS),
}


def measure(torch: Any, dtype: Any, size: tuple[int, ...], loads: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """One record for each load."""
    import _gemm_forms

    *batch, m, n, k = size
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    example = _gemm_forms.example_for(sms, m, n, k, *batch)
    a, b = (torch.randn((*batch, *shape), device="cuda", dtype=dtype) for shape in ((m, k), (k, n)))
    ours, theirs = (torch.empty((*batch, m, n), device="cuda", dtype=dtype) for _ in range(2))
    multiply = torch.bmm if batch else torch.matmul
    contestants = {"tlxc": example.prepare(a, b, ours), "cuBLAS": lambda: multiply(a, b, out=theirs)}
    for fn in contestants.values():
        fn()
    others = {} if batch else _peers.gemm(torch, a, b)
    difference = float((ours.float() - theirs.float()).norm() / theirs.float().norm())
    if not difference < 1e-2:
        sys.exit(f"hopper_gemm {dtype} {size}: relative difference {difference:.2e} to cuBLAS")
    compiled = example.gemm.variants[-1].compiled
    for load in loads:
        found = LOADS[load](contestants | (others if load == "burst" else {}))
        samples = {name: [2 * math.prod(size) / (1e6 * t) for t in times] for name, times in found.items()}
        case = f"{str(dtype).removeprefix('torch.')} {'x'.join(map(str, size))} {load}"
        yield _harness.record(
            "hopper_gemm", case, "throughput", "TFLOP/s", samples,
            "more", ratio_interval=_harness.ratio_interval(samples["tlxc"], samples["cuBLAS"]), difference=difference,
            form=example.__name__, registers=compiled.registers, spill_bytes=compiled.spill_bytes,
            notes=[f"{n.kind}: {n.text}" for n in compiled.notes],
        )  # fmt: skip


def main() -> None:
    import torch

    torch.manual_seed(0)
    if sys.argv[1:2] == ["--sweep"]:
        problems = sys.argv[2:]
        _gemm_sweep.sweep(torch, lambda name: not problems or name in problems)
        return
    _harness.warm_up()
    records = []
    for dtype in (torch.float16, torch.bfloat16):
        cases: list[tuple[tuple[int, ...], tuple[str, ...]]] = [
            (size, ("cool", "burst", "sustained")) for size in SIZES
        ]
        cases += [(size, ("graph",)) for size in SMALL] + [(size, ("burst", "graph")) for size in BATCHED]
        for size, loads in cases:
            for made in measure(torch, dtype, size, loads):
                records.append(made)
                low, high = made["ratio_interval"]
                print(f"{made['case']}: {made['tlxc']:.1f} TFLOP/s, ratio {low:.4f} to {high:.4f}", flush=True)
    _harness.write("hopper_gemm", records)


if __name__ == "__main__":
    main()
