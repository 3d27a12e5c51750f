"""Tuning 64 configurations of `examples/hopper_gemm_pipelined.py` for one product, with nothing in any cache.

Each round starts fresh processes on at most 16 cores.  The first tunes: its time is that of the first launch, from the
call to the result, with worker processes started, everything compiled, loaded and timed.  The second finds the record
on disk.  The third launches with what was chosen, beside the example's own configuration and cuBLAS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import _harness

import tlxc
from tlxc import Config

SIZE = 4096
ROUNDS = 3
CORES = 16
TILES = (  # BM, BN, BC, warps
    (64, 128, 64, 4), (64, 256, 64, 4), (128, 64, 64, 4), (128, 128, 64, 4),
    (128, 128, 64, 8), (128, 256, 64, 8), (256, 64, 32, 8), (256, 128, 32, 8),
)  # fmt: skip
DEPTHS = ((2, 64), (3, 64), (4, 64), (2, 128))  # STAGES, BK
GROUPS = (4, 8)


def shape_blocks(arguments: dict[str, Any]) -> None:
    """The blocks of the descriptors are those of the configuration."""
    bm, bn, bk, bc = (arguments[name] for name in ("BM", "BN", "BK", "BC"))
    for name, block in (("a_desc", [bm, bk]), ("b_desc", [bk, bn]), ("c_desc", [bm, bc])):
        arguments[name].block_shape = block


CONFIGS = [
    Config(
        {"BM": bm, "BN": bn, "BK": bk, "BC": bc, "STAGES": stages, "GROUP": group},
        num_warps=warps,
        pre_hook=shape_blocks,
    )
    for bm, bn, bc, warps in TILES
    for stages, bk in DEPTHS
    for group in GROUPS
]


def tuned() -> Any:
    import hopper_gemm_pipelined as example

    return tlxc.autotune(CONFIGS, key=["M", "N", "K"])(example.gemm)


def grid(arguments: dict[str, Any]) -> tuple[int]:
    return (tlxc.cdiv(SIZE, arguments["BM"]) * tlxc.cdiv(SIZE, arguments["BN"]),)


def child(case: str) -> None:
    """Prints one JSON object."""
    import torch

    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    theirs = torch.matmul(a, b)
    descriptors = [tlxc.TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b, c)]
    kernel = tuned()
    torch.cuda.synchronize()
    start = time.perf_counter()
    kernel[grid](*descriptors, SIZE, SIZE, SIZE)
    torch.cuda.synchronize()
    out = {"ms": 1e3 * (time.perf_counter() - start), "config": str(kernel.best_config)}
    difference = float((c.float() - theirs.float()).norm() / theirs.float().norm())
    if not difference < 1e-2:
        sys.exit(f"relative difference {difference:.2e} to cuBLAS with {kernel.best_config}")
    if case == "cold":
        from tlxc.runtime import trial

        (record,) = trial.records()
        out["trials"] = [[t.config, t.us, t.reason] for t in record.trials]
    if case == "speed":
        import hopper_gemm_pipelined as example

        contestants = {
            "tlxc": lambda: kernel[grid](*descriptors, SIZE, SIZE, SIZE),
            "untuned": lambda: example.launch(a, b, c),
            "cuBLAS": lambda: torch.matmul(a, b, out=theirs),
        }
        samples = _harness.interleaved(contestants, rounds=40, burst=4)
        out["tflops"] = {name: [2 * SIZE**3 / (1e6 * t) for t in times] for name, times in samples.items()}
    print(json.dumps(out))


def run(case: str, cache: str) -> dict[str, Any]:
    cores = set(sorted(os.sched_getaffinity(0))[:CORES])
    done = subprocess.run(
        [sys.executable, __file__, case], env={**os.environ, "TLXC_CACHE_DIR": cache}, capture_output=True, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    results: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            for case, made in results.items():
                made.append(run(case, cache))
            speed = run("speed", cache)
    trials = results["cold"][-1]["trials"]
    facts = {
        "cores": min(CORES, len(os.sched_getaffinity(0))),
        "chosen": [r["config"] for r in results["cold"]],
        "timed": sum(us is not None for _, us, _ in trials),
        "skipped": [[config, reason] for config, us, reason in trials if us is None],
    }
    case = f"{len(CONFIGS)} configurations of a GEMM"
    seconds = {"tlxc": [r["ms"] / 1e3 for r in results["cold"]]}
    milliseconds = {"tlxc": [r["ms"] for r in results["warm"]]}
    records = [
        _harness.record("tuning", f"{case}, cold", "time", "s", seconds, **facts),
        _harness.record("tuning", f"{case}, from disk", "time", "ms", milliseconds),
        _harness.record("tuning", f"float16 {SIZE}^3, tuned", "throughput", "TFLOP/s", speed["tflops"], "more"),
    ]
    _harness.write("tuning", records)
    print(f"chosen: {'; '.join(facts['chosen'])}; {facts['timed']} timed, {len(facts['skipped'])} skipped")


if __name__ == "__main__":
    child(sys.argv[1]) if len(sys.argv) > 1 else main()
