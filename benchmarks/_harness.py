"""Shared by the benchmarks: interleaved timing on the device, and the JSON that they write.

Contestants take turns inside one process, the order rotating from round to round, so that clocks and heat treat them
alike.  Raw samples are kept.  A record: benchmark, case, metric, unit, tlxc, peers, ratio_best (our figure against the
best peer's of the same round, the median over rounds; > 1 is better than the peer), samples, and what it ran on.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT)]  # before this folder: examples go by the names of benchmarks
SPIN_CYCLES = 500_000  # of the GPU, a quarter of a millisecond


def environment() -> dict[str, Any]:
    """Card, driver and versions, as they stand in every record."""
    import llvmlite
    import torch

    import tlxc
    from tlxc.codegen.nvptx.assemble import find_ptxas

    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    card, driver, power = (x.strip() for x in subprocess.check_output(query, text=True).splitlines()[0].split(","))
    versions = {
        "tlxc": tlxc.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "llvmlite": llvmlite.__version__,
        "ptxas": find_ptxas().version,
    }
    commit = os.environ.get("TLXC_COMMIT") or _git("rev-parse", "--short", "HEAD")
    date = datetime.date.today().isoformat()
    return {"card": card, "driver": driver, "power_limit": power, "versions": versions, "commit": commit, "date": date}


def _git(*args: str) -> str:
    try:
        return subprocess.check_output(["git", *args], cwd=ROOT, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class Flush:
    """Overwrites the L2 cache (60 MB on an H200) before a timed launch."""

    def __init__(self) -> None:
        import torch

        self.buffer = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def __call__(self) -> None:
        self.buffer.zero_()


def warm_up(seconds: float = 1.0) -> None:
    """Keeps the GPU busy before the first measurement of a process: clocks rise with a delay."""
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()


def interleaved(
    contestants: dict[str, Callable[[], None]],
    rounds: int,
    burst: int | dict[str, int] = 1,
    before: Callable[[], None] | None = None,
) -> dict[str, list[float]]:
    """Microseconds per call, one sample per round and contestant.  `burst` calls, or so many for each contestant, stand
    between two events; `before` runs ahead of each sample, outside the events."""
    import torch

    names = list(contestants)
    calls = burst if isinstance(burst, dict) else dict.fromkeys(names, burst)
    for fn in contestants.values():
        for _ in range(3):
            fn()
    torch.cuda.synchronize()
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    for r in range(rounds):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if before is not None:
                before()
            start.record()
            for _ in range(calls[name]):
                contestants[name]()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [1e3 * a.elapsed_time(b) / calls[name] for a, b in pairs] for name, pairs in events.items()}


def graphed(contestants: dict[str, Callable[[], None]], rounds: int, calls: int = 20) -> dict[str, list[float]]:
    """Microseconds per call in CUDA graphs of `calls` calls: without what launching costs the host."""
    import torch

    graphs = {}
    for name, fn in contestants.items():
        fn()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(calls):
                fn()
    samples = interleaved({name: graph.replay for name, graph in graphs.items()}, rounds)
    return {name: [us / calls for us in times] for name, times in samples.items()}


def cooled(contestants: dict[str, Callable[[], None]], rounds: int, pause_s: float = 0.05) -> dict[str, list[float]]:
    """Microseconds of single launches on a GPU that has cooled down: each round idles for `pause_s`, and then every
    contestant in turn launches once to warm up and once for its sample.  Meanwhile the GPU spins, until both are in its
    queue: a host that has idled too is slow.  Bursts show what is left under full load."""
    import torch

    names = list(contestants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for fn in contestants.values():
        fn()
    for r in range(rounds):
        torch.cuda.synchronize()
        time.sleep(pause_s)
        events = []
        for name in names[r % len(names) :] + names[: r % len(names)]:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(SPIN_CYCLES)
            contestants[name]()
            start.record()
            contestants[name]()
            end.record()
            events.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in events:
            samples[name].append(1e3 * start.elapsed_time(end))
    return samples


def sustained(
    contestants: dict[str, Callable[[], None]], rounds: int, sample_ms: float = 30.0
) -> dict[str, list[float]]:
    """Microseconds per call on a GPU that never rests: in each round every contestant in turn is called back to back
    for about `sample_ms`, as often as a first burst says."""
    first = interleaved(contestants, rounds=3, burst=4)
    calls = {name: max(1, round(1e3 * sample_ms / statistics.median(times))) for name, times in first.items()}
    return interleaved(contestants, rounds, calls)


def ratio_interval(ours: list[float], theirs: list[float], resamples: int = 10_000) -> tuple[float, float]:
    """95 % bootstrap interval of the median over rounds of ours / theirs, from samples of which more is better."""
    import numpy as np

    ratios = np.array(ours) / np.array(theirs)
    rounds = np.random.default_rng(0).integers(0, len(ratios), (resamples, len(ratios)))
    low, high = np.quantile(np.median(ratios[rounds], axis=1), (0.025, 0.975))
    return float(low), float(high)


def _ratio(ours: list[float], theirs: list[float], better: str) -> float:
    """The median over rounds of how much better ours is; clocks change between rounds more than within one."""
    return statistics.median(b / a if better == "less" else a / b for a, b in zip(ours, theirs))


def record(
    benchmark: str,
    case: str,
    metric: str,
    unit: str,
    samples: dict[str, list[float]],
    better: str = "less",
    **more: Any,
) -> dict[str, Any]:
    """One record from samples per contestant; the one named tlxc is ours."""
    medians = {name: statistics.median(s) for name, s in samples.items()}
    ours = medians.pop("tlxc")
    ratio = min((_ratio(samples["tlxc"], samples[name], better) for name in medians), default=None)
    return {
        "benchmark": benchmark, "case": case, "metric": metric, "unit": unit, "tlxc": ours, "peers": medians,
        "ratio_best": ratio, "samples": {n: [round(x, 3) for x in s] for n, s in samples.items()}, **more,
    }  # fmt: skip


def write(name: str, records: list[dict[str, Any]]) -> None:
    """benchmarks/results/<name>.json, and a line per record on stdout."""
    where = environment()
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([{**r, **where} for r in records], indent=1) + "\n")
    for r in records:
        peers = ", ".join(f"{n} {v:.4g}" for n, v in r["peers"].items())
        ratio = "" if r["ratio_best"] is None else f", ratio {r['ratio_best']:.3f}"
        print(f"{r['benchmark']} {r['case']}: {r['tlxc']:.4g} {r['unit']} ({peers}{ratio})")
