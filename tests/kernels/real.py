"""The Hopper examples, on small matrices."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tlxc

from . import Call, Sample, block, integers, nothing

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
BK, BN, BC = 32, 64, 16
Blocks = tuple[tuple[int, int], ...]

# (example, blocks of A, B and C, CTAs of a cluster, options)
GEMMS: list[tuple[str, Blocks, int, dict[str, Any]]] = [
    ("hopper_gemm_ws", ((64, BK), (BK, BN), (64, BC)), 1, {"STAGES": 2}),
    ("hopper_gemm_ws", ((64, BK), (BK, BN), (64, BC)), 2, {"STAGES": 2, "BN": 2 * BN, "CTAS": 2}),
    ("hopper_gemm_cooperative", ((128, BK), (BK, BN), (128, BC)), 1, {"STAGES": 2}),
    ("hopper_gemm_pingpong", ((128, BK), (BK, BN), (128, BC)), 1, {"STAGES": 2}),
    ("hopper_gemm_pipelined", ((128, BK), (BK, BN), (128, BC)), 1, {"STAGES": 3}),
]


def _kernel(example: str, name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return getattr(importlib.import_module(example), name)


def _gemm(example: str, blocks: Blocks, ctas: int, options: dict[str, Any], trips: int) -> Call:
    """One CTA or cluster for all tiles, or one each where the example wants that.  At least 2 trips: no size is 1."""
    m, n, k = 384, 128, trips * BK
    a, b = integers(trips, m, k, dtype=np.float16), integers(trips + 1, k, n, dtype=np.float16)
    out = nothing(m, n, dtype=np.float16)
    names = ("a_desc", "b_desc", "c_desc")
    args = {name: block(x, *shape) for name, x, shape in zip(names, (a, b, out), blocks)}
    args |= {"M": m, "N": n, "K": k, "BK": BK, "BN": BN, "BC": BC, "GROUP": 2, **options}
    grid = tlxc.cdiv(m, 128) * tlxc.cdiv(n, BN) if example == "hopper_gemm_pipelined" else ctas
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    return Call(_kernel(example, "gemm"), (grid,), args, out, wanted, (ctas, 1, 1))


def samples() -> Iterator[Sample]:
    for example, blocks, ctas, options in GEMMS:
        name = f"{example}-{ctas}"
        yield Sample(name, partial(_gemm, example, blocks, ctas, options), (2, 3, 5))
