"""Which of the Hopper GEMM examples is made for a problem, as benchmarks/hopper_gemm.py measures them on an H200."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import _support
import hopper_gemm_batched
import hopper_gemm_pingpong
import hopper_gemm_skinny
import hopper_gemm_splitk
import hopper_gemm_streamk
import hopper_gemm_ws

import tlxc

SHORT_K = 2048  # up to this, hiding stores is worth more than large tiles
MANY_TILES = 8  # of 128 x 128 for each SM


def example_for(sms: int, m: int, n: int, k: int, *batch: int) -> ModuleType:
    """The example for a product (M, K) @ (K, N), or a batch of them."""
    if batch:
        return hopper_gemm_batched
    if m <= hopper_gemm_skinny.MOST_ROWS:
        return hopper_gemm_skinny
    if k <= SHORT_K and tlxc.cdiv(m, 128) * tlxc.cdiv(n, 128) >= MANY_TILES * sms and aligned(n, k):
        return hopper_gemm_pingpong
    if hopper_gemm_streamk.choose(m, n, k, sms):
        return hopper_gemm_streamk
    split = hopper_gemm_splitk.choose(m, n, k, sms)["SPLIT"] > 1
    return hopper_gemm_splitk if split else hopper_gemm_ws


def aligned(n: int, k: int) -> bool:
    """Whether rows start at multiples of 128 bytes, so that TMA takes no more lines than there are."""
    return k * 2 % 128 == n * 2 % 128 == 0


def prepare(a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """A function that computes c = a @ b for 2-D torch tensors, or for 3-D ones of a batch of products, of float16 or
    bfloat16; rows are contiguous, starts multiples of 16 bytes."""
    *batch, m, k = a.shape
    example = example_for(_support.sm_count(c.device), m, b.shape[-1], k, *batch)
    made: Callable[[], Any] = example.prepare(a, b, c)
    return made
