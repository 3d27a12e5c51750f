"""`examples/hopper_gemm_fused.py` against torch, fp16, inside one process, cool and in bursts: what follows a product,
with the weight by columns as `torch.nn.Linear` has it, and operands in either order of memory.

torch multiplies with cuBLAS and runs further kernels for what follows, or has cuBLASLt do it where it can
(`torch._addmm_activation`).  `ratio_interval` is the 95 % bootstrap interval of the median over rounds of our
throughput to that of torch's faster way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import _harness

SIZES = ((4096, 4096, 4096), (8192, 8192, 1024))
ROUNDS = 40
LOADS: dict[str, Callable[[dict[str, Callable[[], None]]], dict[str, list[float]]]] = {
    "cool": lambda contestants: _harness.cooled(contestants, ROUNDS),
    "burst": lambda contestants: _harness.interleaved(contestants, ROUNDS, burst=4),
}


class Case(NamedTuple):
    name: str
    size: tuple[int, int, int]
    ours: Callable[[], None]
    out: Any  # of ours
    theirs: dict[str, Callable[[], Any]]  # which give results


def fused(torch: Any, size: tuple[int, int, int]) -> Iterator[Case]:
    """What follows a product."""
    import hopper_gemm_fused as example

    (m, n, k), functional = size, torch.nn.functional
    x, weight, bias, residual = (
        torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (n, k), (n,), (m, n))
    )
    weight /= k**0.5
    out = torch.empty_like(residual)

    def ours(activation: str, **more: Any) -> Callable[[], None]:
        return example.prepare(x, weight.mT, out, bias=bias, activation=activation, **more)

    def linear() -> Any:
        return functional.linear(x, weight, bias)

    theirs = {"linear, gelu": lambda: functional.gelu(linear(), approximate="tanh")}
    if hasattr(torch, "_addmm_activation"):
        theirs["cuBLASLt"] = lambda: torch._addmm_activation(bias, x, weight.mT, use_gelu=True)
    yield Case("bias gelu_tanh", size, ours("gelu_tanh"), out, theirs)
    yield Case("bias gelu", size, ours("gelu"), out, {"linear, gelu": lambda: functional.gelu(linear())})
    theirs = {"linear, silu, add": lambda: functional.silu(linear()) + residual}
    yield Case("bias silu residual", size, ours("silu", residual=residual), out, theirs)


def majors(torch: Any, size: tuple[int, int, int]) -> Iterator[Case]:
    """n: rows are contiguous, t: columns; of A and of B."""
    import hopper_gemm_fused as example

    m, n, k = size
    x, y = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n)))
    out = torch.empty(m, n, device="cuda", dtype=torch.float16)
    for by_columns in product((False, True), repeat=2):
        a, b = (t.mT.contiguous().mT if turn else t for t, turn in zip((x, y), by_columns))
        theirs = {"cuBLAS": partial(torch.matmul, a, b, out=torch.empty_like(out))}
        name = "".join("t" if turn else "n" for turn in by_columns)
        yield Case(name, size, example.prepare(a, b, out), out, theirs)


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """One record for each load."""
    import hopper_gemm_fused as example

    (m, n, k), where = case.size, f"{case.name} {'x'.join(map(str, case.size))}"
    case.ours()
    found = case.out.float()
    wanted = {peer: fn().float() for peer, fn in case.theirs.items()}
    differences = {peer: float((found - y).norm() / y.norm()) for peer, y in wanted.items()}
    if not max(differences.values()) < 1e-2:
        sys.exit(f"hopper_gemm_fused {where}: relative differences {differences} to torch")
    compiled = example.gemm.variants[-1].compiled
    for load, run in LOADS.items():
        times = run({"tlxc": case.ours, **case.theirs})
        samples = {peer: [2 * m * n * k / (1e6 * t) for t in ts] for peer, ts in times.items()}
        best = [max(rates) for rates in zip(*(samples[peer] for peer in case.theirs))]
        yield _harness.record(
            "hopper_gemm_fused", f"{where} {load}", "throughput", "TFLOP/s", samples, "more",
            ratio_interval=_harness.ratio_interval(samples["tlxc"], best), differences=differences,
            registers=compiled.registers, spill_bytes=compiled.spill_bytes,
            notes=[f"{n.kind}: {n.text}" for n in compiled.notes],
        )  # fmt: skip


def main() -> None:
    import torch

    torch.manual_seed(0)
    _harness.warm_up()
    records = []
    for case in (*majors(torch, SIZES[0]), *(case for size in SIZES for case in fused(torch, size))):
        for made in measure(case):
            records.append(made)
            low, high = made["ratio_interval"]
            print(f"{made['case']}: {made['tlxc']:.1f} TFLOP/s, ratio {low:.4f} to {high:.4f}", flush=True)
    _harness.write("hopper_gemm_fused", records)


if __name__ == "__main__":
    main()
