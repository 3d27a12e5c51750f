"""Every GEMM example in the simulator, at two sizes: for 0 to 9 blocks of K, and for 20 seeds.

Right results and no report.  Integers are small, so that sums are exact.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import Array, Call, block, integers, nothing

import tlxc

EXAMPLES = Path(__file__).parent.parent / "examples"
BK, BN, BC = 32, 64, 16
SIZES = ((72, 64), (136, 136))
SEEDS, TRIPS, LONGEST = 20, range(10), 5  # all seeds for one number of trips, two for each other

Launch = tuple[int, dict[str, Any]]  # CTAs, and what the kernel is launched with
Form = Callable[[Array, Array, Array], Launch]


def described(a: Array, b: Array, c: Array, *blocks: tuple[int, ...]) -> dict[str, Any]:
    """Without a K, as `_gemm.descriptors` has it."""
    names, arrays = ("a_desc", "b_desc", "c_desc"), (a, b, c) if a.size else (c, c, c)
    return {name: block(x, *shape) for name, x, shape in zip(names, arrays, blocks)}


def sizes(a: Array, c: Array, **options: Any) -> dict[str, Any]:
    return dict(M=c.shape[-2], N=c.shape[-1], K=a.shape[-1], BK=BK, GROUP=2) | options


def tiles(c: Array, BM: int) -> int:
    return tlxc.cdiv(c.shape[-2], BM) * tlxc.cdiv(c.shape[-1], BN)


def two_ctas(rows: int, BC: int = BC, **options: Any) -> Form:
    def form(a: Array, b: Array, c: Array) -> Launch:
        args = described(a, b, c, (rows, BK), (BK, BN), (rows, BC))
        return 2, args | sizes(a, c, BN=BN, BC=BC, **options)

    return form


def cluster(a: Array, b: Array, c: Array) -> Launch:
    args = described(a, b, c, (64, BK), (BK, BN), (64, BC))
    return 2, args | sizes(a, c, BN=2 * BN, BC=BC, STAGES=2, CTAS=2, ctas_per_cga=(2, 1, 1))


def pipelined(a: Array, b: Array, c: Array) -> Launch:
    args = described(a, b, c, (128, BK), (BK, BN), (128, BC))
    return tiles(c, 128), args | sizes(a, c, BN=BN, BC=BC, STAGES=3)


def skinny(a: Array, b: Array, c: Array) -> Launch:
    rows = tlxc.cdiv(c.shape[0], 16) * 16
    args = described(a, b, c, (rows, BK), (BK, BN), (rows, BN))
    return tlxc.cdiv(c.shape[1], BN), args | dict(K=a.shape[1], BM=rows, BN=BN, BK=BK, STAGES=2)


def batched(**options: Any) -> Form:
    def form(a: Array, b: Array, c: Array) -> Launch:
        args = described(a, b, c, (1, 64, BK), (1, BK, BN), (1, 64, BC))
        return 2, args | sizes(a, c, BATCH=c.shape[0], BN=BN, BC=BC, **options)

    return form


def split(SPLIT: int, CONSUMERS: int) -> Form:
    def form(a: Array, b: Array, c: Array) -> Launch:
        args = described(a, b, c, (64, BK), (BK, BN), (64, BN // SPLIT))
        options = dict(BM=64 * CONSUMERS, BN=BN, STAGES=2, SPLIT=SPLIT, CONSUMERS=CONSUMERS)
        return tiles(c, 64 * CONSUMERS) * SPLIT, args | sizes(a, c, **options, ctas_per_cga=(SPLIT, 1, 1))

    return form


def streamed(a: Array, b: Array, c: Array) -> Launch:
    """As many tiles as there are for two CTAs beyond one for each, which are streamed."""
    args = described(a, b, c, (64, BK), (BK, BN), (64, BC))
    args |= dict(sums=nothing(2 * 64 * BN), flags=np.zeros(2, np.int32), streamed=max(1, tiles(c, 64) - 2))
    return 2, args | sizes(a, c, BM=64, BN=BN, BC=BC, STAGES=2, CONSUMERS=1)


FORMS: dict[str, tuple[str, Form]] = {
    "ws": ("hopper_gemm_ws", two_ctas(64, STAGES=2)),
    "ws, whole rows stored": ("hopper_gemm_ws", two_ctas(64, BC=BN, STAGES=2)),
    "ws, clusters": ("hopper_gemm_ws", cluster),
    "cooperative": ("hopper_gemm_cooperative", two_ctas(128, STAGES=2)),
    "pingpong": ("hopper_gemm_pingpong", two_ctas(128, STAGES=2)),
    "pipelined": ("hopper_gemm_pipelined", pipelined),
    "skinny": ("hopper_gemm_skinny", skinny),
    "batched": ("hopper_gemm_batched", batched(STAGES=3, LEAD=2)),
    "batched, turns": ("hopper_gemm_batched", batched(BM=64, STAGES=2, PINGPONG=True)),
    "split in 2": ("hopper_gemm_splitk", split(2, 2)),
    "split in 4": ("hopper_gemm_splitk", split(4, 1)),
    "streamed": ("hopper_gemm_streamk", streamed),
}


def call(name: str, m: int, n: int, trips: int) -> Call:
    example, form = FORMS[name]
    batch = (2,) if example == "hopper_gemm_batched" else ()
    k = max(0, trips * BK - 8)  # the last block is not whole
    a = integers(trips, *batch, m, k, dtype=np.float16)
    b = integers(trips + 1, *batch, k, n, dtype=np.float16)
    out = nothing(*batch, m, n, dtype=np.float16)
    ctas, args = form(a, b, out)
    kernel = importlib.import_module(example).gemm
    cluster = args.pop("ctas_per_cga", (1, 1, 1))
    return Call(kernel, (ctas,), args, out, a.astype(np.float32) @ b.astype(np.float32), cluster)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_every_schedule(name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    m, n = (min(size[0], 72), size[1]) if name == "skinny" else size
    for trips in TRIPS:
        schedules = [(seed, "random") for seed in range(SEEDS if trips == LONGEST else 1)]
        schedules.append((trips, "adversarial"))
        for seed, schedule in schedules:
            made = call(name, m, n, trips)
            with tlxc.simulate(seed=seed, schedule=schedule) as simulation:
                made.run()
            assert not simulation.reports
            made.check()
            assert not np.any(made.args.get("flags", 0))
