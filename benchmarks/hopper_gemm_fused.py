"""`examples/hopper_gemm_fused.py` against torch, fp16, 4096 x 4096 x 4096, inside one process, cool and in bursts: what
follows a product, with the weight by columns as `torch.nn.Linear` has it, and operands of both orders of memory.

torch multiplies with cuBLAS and runs further kernels for what follows, or has cuBLASLt do it where it can
(`torch._addmm_activation`).  `ratio_interval` is the 95 % bootstrap interval of the median over rounds of our
throughput to that of torch's faster way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import _harness

SIZE = 4096
ROUNDS = 40
LOADS: dict[str, Callable[[dict[str, Callable[[], None]]], dict[str, list[float]]]] = {
    "cool": lambda contestants: _harness.cooled(contestants, ROUNDS),
    "burst": lambda contestants: _harness.interleaved(contestants, ROUNDS, burst=4),
}
Case = tuple[str, Callable[[], None], Any, dict[str, Callable[[], Any]]]  # name, ours, our result, theirs


def cases(torch: Any) -> Iterator[Case]:
    """`theirs` give results."""
    import hopper_gemm_fused as example

    functional = torch.nn.functional
    x, weight, residual = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(3))
    weight = weight / SIZE**0.5
    bias = torch.randn(SIZE, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)

    def tanh() -> Any:
        return functional.gelu(functional.linear(x, weight, bias), approximate="tanh")

    theirs = {"linear, gelu": tanh}
    if hasattr(torch, "_addmm_activation"):
        theirs["cuBLASLt"] = lambda: torch._addmm_activation(bias, x, weight.mT, use_gelu=True)
    ours = example.prepare(x, weight.mT, out, bias=bias, activation="gelu_tanh")
    yield "bias gelu_tanh", ours, out, theirs
    ours = example.prepare(x, weight.mT, out, bias=bias, activation="gelu")
    yield "bias gelu", ours, out, {"linear, gelu": lambda: functional.gelu(functional.linear(x, weight, bias))}
    ours = example.prepare(x, weight.mT, out, bias=bias, activation="silu", residual=residual)
    theirs = {"linear, silu, add": lambda: functional.silu(functional.linear(x, weight, bias)) + residual}
    yield "bias silu residual", ours, out, theirs
    for by_columns in product((False, True), repeat=2):
        a, b = (t.mT.contiguous().mT if turn else t for t, turn in zip((x, weight), by_columns))
        name = "".join("t" if turn else "n" for turn in by_columns)
        yield name, example.prepare(a, b, out), out, {"cuBLAS": partial(torch.matmul, a, b, out=torch.empty_like(x))}


def measure(torch: Any, case: Case) -> Iterator[dict[str, Any]]:
    """One record for each load."""
    import hopper_gemm_fused as example

    name, ours, out, theirs = case
    ours()
    differences = {peer: float((out.float() - (y := fn().float())).norm() / y.norm()) for peer, fn in theirs.items()}
    if not max(differences.values()) < 1e-2:
        sys.exit(f"hopper_gemm_fused {name}: relative differences {differences} to torch")
    compiled = example.gemm.variants[-1].compiled
    for load, run in LOADS.items():
        found = run({"tlxc": ours, **theirs})
        samples = {peer: [2 * SIZE**3 / (1e6 * t) for t in times] for peer, times in found.items()}
        best = [max(rates) for rates in zip(*(samples[peer] for peer in theirs))]
        yield _harness.record(
            "hopper_gemm_fused", f"{name} {load}", "throughput", "TFLOP/s", samples, "more",
            ratio_interval=_harness.ratio_interval(samples["tlxc"], best), differences=differences,
            registers=compiled.registers, spill_bytes=compiled.spill_bytes, notes=compiled.notes,
        )  # fmt: skip


def main() -> None:
    import torch

    torch.manual_seed(0)
    records = []
    for case in cases(torch):
        for made in measure(torch, case):
            records.append(made)
            low, high = made["ratio_interval"]
            print(f"{made['case']}: {made['tlxc']:.1f} TFLOP/s, ratio {low:.4f} to {high:.4f}", flush=True)
    _harness.write("hopper_gemm_fused", records)


if __name__ == "__main__":
    main()
