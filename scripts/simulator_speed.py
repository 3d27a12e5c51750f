"""How long the simulator takes for `hopper_gemm_ws`, all checks on: one product, and a grid of 1,024 CTAs.

A tile op is an op of the IR that a task executes with an effect: copies, waits, arrivals, products, loads, stores.
Their time holds all that runs between them: arithmetic, engines, the scheduler, checks.  Least time of the process in
several runs; it is one thread.

OPENBLAS_NUM_THREADS=1 python scripts/simulator_speed.py [--runs N]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "tests")]

import tlxc  # noqa: E402
from tlxc.simulator.machine import Machine  # noqa: E402

# (M, N, K), CTAs
CASES = (((512, 512, 512), 8), ((4096, 8192, 128), 1024), ((4096, 8192, 512), 1024))


def launch(sizes: tuple[int, int, int], ctas: int) -> float:
    """Seconds of one simulated launch; its result is checked."""
    from hopper_gemm_ws import gemm
    from kernels import block, integers, nothing

    m, n, k = sizes
    a, b = integers(1, m, k, dtype=np.float16), integers(2, k, n, dtype=np.float16)
    c = nothing(m, n, dtype=np.float16)
    start = time.process_time()
    with tlxc.simulate():
        gemm[ctas](block(a, 64, 64), block(b, 64, 256), block(c, 64, 64), m, n, k)
    elapsed = time.process_time() - start
    assert (c == a.astype(np.float32) @ b.astype(np.float32)).all()
    return elapsed


def tile_ops(sizes: tuple[int, int, int], ctas: int) -> int:
    total = 0
    run = Machine.run

    def counted(machine: Machine) -> None:
        nonlocal total
        run(machine)
        total += sum(strand.epoch for strand in machine.strands.values())

    setattr(Machine, "run", counted)  # noqa: B010  (mypy refuses a method to be assigned)
    launch(sizes, ctas)
    setattr(Machine, "run", run)  # noqa: B010
    return total


def main() -> None:
    parser: Any = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    launch((128, 256, 64), 1)  # compiles
    for sizes, ctas in CASES:
        seconds = min(launch(sizes, ctas) for _ in range(runs))
        ops = tile_ops(sizes, ctas)
        shape = "x".join(map(str, sizes))
        print(f"{shape}, {ctas} CTAs: {seconds:.2f} s, {ops} tile ops, {1e6 * seconds / ops:.0f} us each")


if __name__ == "__main__":
    main()
