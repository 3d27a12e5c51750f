"""`hopper_gemm.py --sweep`: what the GEMM examples choose among, timed one by one.

From these times come the constants in the examples: cycles of a tile, of stores, of sums that travel.  All forms of one
problem take turns in CUDA graphs; a line for each, the fastest first, with cuBLAS's among them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import _harness

# (batch, M, N, K); a batch of 1 stands for plain products of that size
BATCHES = ((64, 1024, 1024, 1024), (16, 2048, 2048, 2048), (512, 512, 512, 128), (1, 8192, 8192, 1024))
PRODUCTS = (
    (1024, 1024, 1024), (2048, 2048, 2048), (512, 512, 16384), (64, 8192, 8192), (128, 8192, 8192), (256, 8192, 8192),
    (384, 8192, 8192), (640, 8192, 8192), (4000, 3000, 1000), (4224, 4096, 4096), (2304, 4096, 4096),
)  # fmt: skip
ROUNDS = 15
Forms = Iterator[tuple[str, Callable[[], None]]]


def batched(a: Any, b: Any, c: Any) -> Forms:
    import hopper_gemm_batched as example

    for name, form in example.FORMS.items():
        for lead in (1,) if form["PINGPONG"] else (1, 2, 3):
            for group in (4, 8, 16):
                yield f"{name} LEAD={lead} GROUP={group}", example.prepare(a, b, c, **form, LEAD=lead, GROUP=group)
    wide = dict(BM=64, BN=256, STAGES=4, BC=64, PINGPONG=True)
    yield "pingpong 64x256", example.prepare(a, b, c, **wide)


def plain(a: Any, b: Any, c: Any) -> Forms:
    import _support
    import hopper_gemm_skinny
    import hopper_gemm_splitk
    import hopper_gemm_streamk
    import hopper_gemm_ws

    (m, k), n, sms = a.shape, b.shape[1], _support.sm_count(c.device)
    for tile in hopper_gemm_ws.TILES:
        named = dict(zip(("BM", "BN", "CONSUMERS", "STAGES"), tile))
        for ctas in (1, 2) if tile[1] >= 128 else (1,):
            yield f"ws {tile} CTAS={ctas}", hopper_gemm_ws.prepare(a, b, c, CTAS=ctas, **named)
    if m <= hopper_gemm_skinny.MOST_ROWS:
        yield "skinny", hopper_gemm_skinny.prepare(a, b, c)
    for form in hopper_gemm_splitk.forms():
        if form["SPLIT"] > 1:
            cycles = hopper_gemm_splitk.cycles(form, m, n, k, sms)
            yield f"split {form}, model {cycles:.0f} cycles", hopper_gemm_splitk.prepare(a, b, c, **form)
    tiles = -(-m // 128) * -(-n // 256)
    for streamed in {tiles % sms, tiles % sms + sms, tiles} - {0}:
        if streamed <= tiles:
            cycles = hopper_gemm_streamk.cycles(streamed, m, n, k, sms)
            yield f"stream {streamed}, model {cycles:.0f} cycles", hopper_gemm_streamk.prepare(a, b, c, streamed)


def sweep(torch: Any, wanted: Callable[[str], bool]) -> None:
    """All problems whose name, as 64x1024x1024x1024, is wanted."""
    for size in (*BATCHES, *PRODUCTS):
        if not wanted("x".join(map(str, size))):
            continue
        *batch, m, n, k = size
        a, b = (torch.randn((*batch, *shape), device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n)))
        ours, theirs = (torch.empty((*batch, m, n), device="cuda", dtype=torch.float16) for _ in range(2))
        torch.matmul(a, b, out=theirs)
        contestants = dict((batched if batch else plain)(a, b, ours))
        for name, fn in contestants.items():
            ours.zero_()
            fn()
            difference = float((ours.float() - theirs.float()).norm() / theirs.float().norm())
            if not difference < 1e-2:
                sys.exit(f"{size} {name}: relative difference {difference:.2e} to cuBLAS")
        contestants["cuBLAS"] = lambda a=a, b=b, out=theirs: torch.matmul(a, b, out=out)
        found = {name: statistics.median(times) for name, times in _harness.graphed(contestants, ROUNDS).items()}
        print(f"\n{size}")
        for name, us in sorted(found.items(), key=lambda item: item[1]):
            print(f"  {us:8.2f} us  {found['cuBLAS'] / us:.3f} of cuBLAS  {name}", flush=True)
