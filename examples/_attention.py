"""What the Hopper attention examples share: the softmax, masks, descriptors, and the check."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import _support
from _gemm import column_parts

import tlxc
from tlxc import tl, tlx

LOWEST = tl.constexpr(-1e30)  # below every score, and finite: a difference of two maxima is never inf - inf
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

# (batch * heads, heads that share one K and V, N)
SHAPES = ((4, 1, 128), (3, 1, 1024), (8, 4, 2048), (2, 2, 1000), (1, 1, 1), (2, 1, 129), (1, 1, 4095))


def as_matrix(buffer):
    """A buffer (1, rows, columns) without its first dimension."""
    return tlx.local_reshape(buffer, (buffer.shape[1], buffer.shape[2]))


def mask_scores(s, row, column, N, CAUSAL: tl.constexpr):
    """Scores of rows and columns that begin there; -inf where no key is, or one that comes after the query."""
    rows = row + tl.arange(0, s.shape[0])[:, None]
    columns = column + tl.arange(0, s.shape[1])[None, :]
    return tl.where(columns <= rows if CAUSAL else columns < N, s, float("-inf"))


def softmax_step(s, highest, total, scale):
    """One block of an online softmax of s * scale to the base 2: (p, highest, total, alpha).  `alpha` is what earlier
    sums are multiplied by, since `highest` has grown."""
    before = highest
    highest = tl.maximum(highest, tl.max(s, 1))
    p = tl.exp2(s * scale - (highest * scale)[:, None], ftz=True)
    alpha = tl.exp2((before - highest) * scale, ftz=True)
    return p, highest, total * alpha + tl.sum(p, 1), alpha


def load(desc, buffer, where, barrier):
    """Starts a copy and announces its bytes."""
    tlx.barrier_expect_bytes(barrier, buffer.shape[1] * buffer.shape[2] * tlx.size_of(buffer.dtype))
    tlx.async_descriptor_load(desc, buffer, where, barrier)


def load_block(desc, blocks, full, empty, head, block, count, STAGES: tl.constexpr):
    """Loads a block of K or V of a head; `count` blocks were loaded before."""
    stage, phase = tlx.get_bufidx_phase(count, STAGES)
    tlx.barrier_wait(empty[stage], phase ^ 1)
    load(desc, blocks[stage], [head, block * blocks.shape[1], 0], full[stage])


def load_blocks(k_desc, v_desc, k, v, k_full, k_empty, v_full, v_empty, head, blocks, count, STAGES: tl.constexpr):
    """Loads the blocks of K and V of a head, from the last one on; `count` blocks were loaded before."""
    for block in range(blocks - 1, -1, -1):
        load_block(k_desc, k, k_full, k_empty, head, block, count, STAGES)
        load_block(v_desc, v, v_full, v_empty, head, block, count, STAGES)
        count += 1
    return count


def store_rows(o_desc, lse, buffer, acc, highest, total, head, row, N, scale):
    """Stores the rows that a consumer is done with: O by way of `buffer`, so many columns at a time as it has, and the
    log-sum-exp."""
    rows = row + tl.arange(0, acc.shape[0])
    tl.store(lse + head * N + rows, highest * scale + tl.log2(total) * LN_2, mask=rows < N)
    parts = column_parts((acc * (1.0 / total)[:, None]).to(buffer.dtype), buffer.shape[2])
    for i in tl.static_range(len(parts)):
        if i > 0:
            tlx.async_descriptor_store_wait(0, read=True)
        tlx.local_store(as_matrix(buffer), parts[i])
        tlx.async_descriptor_store(o_desc, buffer, [head, row, i * buffer.shape[2]])


def block_range(row, N, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """(blocks of keys that the rows from `row` on see, how many of them need no mask): the others are the last ones.
    Rows that do not exist see one block, since each consumer begins with one."""
    last = min(row + BM, N) if CAUSAL else N
    return (1 if row >= N else tl.cdiv(last, BN)), ((row + 1) // BN if CAUSAL else N // BN)


def descriptors(
    q: Any, k: Any, v: Any, o: Any, BM: int, BN: int, columns: int | None = None
) -> list[tlxc.TensorDescriptor]:
    """Descriptors of (heads, N, D) arrays in blocks of BM rows of Q and O, and of BN of K and V; those of O have
    `columns` columns, the others D."""
    d = q.shape[-1]
    blocks = ((q, BM, d), (k, BN, d), (v, BN, d), (o, BM, columns or d))
    return [tlxc.TensorDescriptor.from_tensor(x, [1, rows, width]) for x, rows, width in blocks]


def form(d: int, n: int, causal: bool) -> dict[str, int]:
    """Constants with which the guarded and the persistent kernel are fastest on an H200, for heads of `d` elements."""
    if d > 256:
        raise ValueError(f"Heads have {d} elements, but a consumer's registers hold rows of up to 256.")
    if d > 128:
        return dict(CONSUMERS=2, BN=64, REGISTERS=240, num_warps=1)
    if d > 64:
        return dict(CONSUMERS=3, BN=64 if causal and n <= 4096 else 80, REGISTERS=160, num_warps=1)
    if causal or n <= 4096:
        return dict(CONSUMERS=4, BN=64, REGISTERS=112, num_warps=1)
    return dict(CONSUMERS=3, BN=128, REGISTERS=160, STAGES=4, num_warps=1)


def example(heads: int, n: int, d: int, BM: int, BN: int, **constants: Any) -> dict[str, Any]:
    """Arguments that `tlxc check` and `tlxc trace` run without a GPU."""
    import numpy as np

    q, k, v, o = _support.rows(4, heads, n, d)
    described = dict(zip(("q_desc", "k_desc", "v_desc", "o_desc"), descriptors(q, k, v, o, BM, BN)))
    return described | dict(lse=np.empty((heads, n), np.float32), N=n, scale=d**-0.5, BN=BN, D=d) | constants


def flat(x: Any) -> Any:
    """(batch, heads, N, D) as (batch * heads, N, D), or a tensor that is so already."""
    return x.reshape(-1, *x.shape[-2:])


def reference(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """(output, log-sum-exp of the scaled scores) in float64, for (heads, N, D)."""
    group, n = q.shape[0] // k.shape[0], q.shape[1]
    k, v = (x.double().repeat_interleave(group, 0) for x in (k, v))
    s = q.double() @ k.mT * q.shape[-1] ** -0.5
    if causal:
        s.masked_fill_(torch.ones(n, n, device=s.device, dtype=torch.bool).triu(1), -math.inf)
    return s.softmax(-1) @ v, s.logsumexp(-1)


def check(torch: Any, launch: Callable[..., None], d: int = 128, **constants: Any) -> None:
    """`launch(q, k, v, o, lse, causal, **constants)` against float64: whole blocks, ragged ones, shared heads."""
    for heads, group, n in SHAPES:
        for dtype in (torch.float16, torch.bfloat16):
            for causal in (False, True):
                q = torch.randn(heads, n, d, device="cuda", dtype=dtype)
                k, v = (torch.randn(heads // group, n, d, device="cuda", dtype=dtype) for _ in range(2))
                o = torch.full_like(q, float("nan"))
                lse = torch.full((heads, n), float("nan"), device="cuda")
                launch(q, k, v, o, lse, causal, **constants)
                wanted, wanted_lse = reference(torch, q, k, v, causal)
                _support.expect_close(o, wanted, dtype)
                if not float((lse - wanted_lse).abs().max()) < 1e-4:
                    raise SystemExit(f"wrong log-sum-exp for {tuple(q.shape)} {dtype}, causal {causal}")
