"""Cold and warm compilation in fresh processes, cubin included.

Each child compiles a first kernel, and that time counts from before `import tlxc`: it pays for imports and LLVM's
start.  Then come the others.  A child with an empty cache is cold; one more after it, which finds all kernels on disk,
is warm.  Medians of nine pairs of processes, once on all cores and once on two.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import _harness

PROCESSES = 9
FIRST = "softmax, first of a process,"
KERNELS = (  # (module, kernel, constants)
    ("vector_add", "vector_add", {}),
    ("matmul", "matmul", {}),
    ("hopper_gemm_ws", "gemm", {}),
    ("hopper_gemm_fused", "gemm", {"ACTIVATION": "gelu"}),
    ("hopper_attention_persistent", "attention", {}),
    ("hopper_attention_persistent", "attention", {"CAUSAL": True}),
)


def child() -> None:
    """Prints one JSON object: milliseconds by kernel, and the stages of each compilation."""
    start = time.perf_counter()
    import softmax

    compiled = softmax.softmax.compile("sm_90", BLOCK=1024)
    elapsed = 1e3 * (time.perf_counter() - start)
    out = {FIRST: {"ms": elapsed, "stages": compiled.metadata["timings"], "origin": compiled.origin}}
    for name, kernel, constants in KERNELS:
        module = importlib.import_module(name)
        start = time.perf_counter()
        compiled = getattr(module, kernel).compile("sm_90", **constants)
        elapsed = 1e3 * (time.perf_counter() - start)
        case = " ".join([name, *(f"{k}={v}" for k, v in constants.items())])
        out[case] = {"ms": elapsed, "stages": compiled.metadata["timings"], "origin": compiled.origin}
    print(json.dumps(out))


def run(cores: set[int] | None) -> dict[str, list[dict]]:
    results: dict[str, list[dict]] = {}
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, "TLXC_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}
            for state, origin in (("cold", "compiled"), ("warm", "cache")):
                text = subprocess.run(
                    [sys.executable, __file__, "child"], env=env, check=True, capture_output=True, text=True,
                    preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
                ).stdout  # fmt: skip
                for kernel, result in json.loads(text).items():
                    if result["origin"] != origin:
                        sys.exit(f"compile_time: {kernel} was {result['origin']} in a {state} process")
                    results.setdefault(f"{kernel} {state}", []).append(result)
    return results


def main() -> None:
    records = []
    for place, cores in (("all cores", None), ("2 cores", {0, 1})):
        for case, results in run(cores).items():
            stages = {
                name: round(statistics.median(r["stages"][name] for r in results), 2) for name in results[0]["stages"]
            }
            samples = {"tlxc": [r["ms"] for r in results]}
            records.append(_harness.record("compile_time", f"{case}, {place}", "time", "ms", samples, stages_ms=stages))
            if case.endswith("cold"):
                print(f"{case}, {place}: " + ", ".join(f"{n} {ms}" for n, ms in stages.items()))
    _harness.write("compile_time", records)


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
