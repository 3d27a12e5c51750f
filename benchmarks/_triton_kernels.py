"""Plain Triton kernels to compare with: a persistent GEMM, and attention forward, both by host-made descriptors."""

import triton
import triton.language as tl


@triton.jit
def gemm(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        group = tile // (GROUP * columns)
        height = min(rows - group * GROUP, GROUP)
        row = (group * GROUP + tile % (GROUP * columns) % height) * BM
        column = tile % (GROUP * columns) // height * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
        c_desc.store([row, column], acc.to(c_desc.dtype))


@triton.jit
def attention(
    q_desc, k_desc, v_desc, o_desc, N, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start, base = tl.program_id(0) * BM, tl.program_id(1) * N
    rows = start + tl.arange(0, BM)
    q = q_desc.load([base + start, 0])
    highest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for masked in tl.static_range(2 if CAUSAL else 1):
        first = start if masked else 0
        last = start + BM if masked else (start if CAUSAL else N)
        for j in range(first, last, BN):
            s = tl.dot(q, k_desc.load([base + j, 0]).T) * scale
            if masked:
                s = tl.where(rows[:, None] >= j + tl.arange(0, BN)[None, :], s, float("-inf"))
            now = tl.maximum(highest, tl.max(s, 1))
            p = tl.exp2(s - now[:, None])
            alpha = tl.exp2(highest - now)
            total = total * alpha + tl.sum(p, 1)
            acc = tl.dot(p.to(v_desc.dtype), v_desc.load([base + j, 0]), acc * alpha[:, None])
            highest = now
    o_desc.store([base + start, 0], (acc / total[:, None]).to(o_desc.dtype))
