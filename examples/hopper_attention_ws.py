"""Attention forward on Hopper, O = softmax(scale * Q @ K^T) @ V: one task loads by TMA, others multiply.

Each CTA works on 64 rows of Q per consumer.  K and V come in blocks of BN keys, from the last to the first, so that
those which need a mask come first.  The scores of a block stay in registers: they are a result of one wgmma and, as
probabilities, operand A of the next, for which no thread has to move them.

python examples/hopper_attention_ws.py --check         runs and checks on a GPU; without one, compiles and reports
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _attention
import _support
from _attention import LOG2_E, LOWEST, as_matrix, block_range, load, load_blocks, mask_scores, softmax_step, store_rows

import tlxc
from tlxc import tl, tlx


@tlxc.kernel(num_warps=4)
def attention(
    q_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 128)),
    k_desc: tlx.tensor_descriptor_type(tl.float16, (1, 128, 128)),
    v_desc: tlx.tensor_descriptor_type(tl.float16, (1, 128, 128)),
    o_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 128)),
    lse: tl.ptr(tl.float32),
    N: tl.int32,
    scale: tl.float32,
    D: tl.constexpr = 128,
    BN: tl.constexpr = 128,
    STAGES: tl.constexpr = 2,
    CONSUMERS: tl.constexpr = 2,
    REGISTERS: tl.constexpr = 240,
    GROUP: tl.constexpr = 1,
    CAUSAL: tl.constexpr = False,
):
    """O and the log-sum-exp of the scaled scores; Q, O (heads, N, D) in blocks (1, 64, D), K, V (heads // GROUP, N, D)
    in blocks (1, BN, D), one CTA for 64 * CONSUMERS rows of a head."""
    dtype = tlx.dtype_of(q_desc)
    q = tlx.local_alloc((1, 64, D), dtype, CONSUMERS)  # at the end the consumer's part of O
    k = tlx.local_alloc((1, BN, D), dtype, STAGES)
    v = tlx.local_alloc((1, BN, D), dtype, STAGES)
    q_full = tlx.alloc_barriers(CONSUMERS)
    k_full, v_full = tlx.alloc_barriers(STAGES), tlx.alloc_barriers(STAGES)
    k_empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    v_empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    head = tl.program_id(1)
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * 64 * CONSUMERS  # those with most keys come first
    blocks, whole = block_range(start, N, 64 * CONSUMERS, BN, CAUSAL)

    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=24):
            for i in tl.static_range(CONSUMERS):
                load(q_desc, q[i], [head, start + 64 * i, 0], q_full[i])
            of_kv = k_full, k_empty, v_full, v_empty
            load_blocks(k_desc, v_desc, k, v, *of_kv, head // GROUP, blocks, 0, STAGES)

        with tlx.async_task(num_warps=4, num_regs=REGISTERS, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            row = start + 64 * me
            acc = tl.zeros((64, D), tl.float32)
            highest = tl.full((64,), LOWEST, tl.float32)
            total = tl.zeros((64,), tl.float32)
            to_base_2 = scale * LOG2_E
            tlx.barrier_wait(q_full[me], 0)
            for masked in tl.static_range(1, -1, -1):
                for block in range((blocks if masked else whole) - 1, (whole if masked else 0) - 1, -1):
                    stage, phase = tlx.get_bufidx_phase(blocks - 1 - block, STAGES)
                    tlx.barrier_wait(k_full[stage], phase)
                    s = tlx.async_dot(as_matrix(q[me]), tlx.local_trans(as_matrix(k[stage])))
                    s = tlx.async_dot_wait(0, s)
                    tlx.barrier_arrive(k_empty[stage])
                    if masked:
                        s = mask_scores(s, row, block * BN, N, CAUSAL)
                    p, highest, total, alpha = softmax_step(s, highest, total, to_base_2)
                    acc = acc * alpha[:, None]
                    tlx.barrier_wait(v_full[stage], phase)
                    acc = tlx.async_dot(p.to(dtype), as_matrix(v[stage]), acc)
                    acc = tlx.async_dot_wait(0, acc)
                    tlx.barrier_arrive(v_empty[stage])
            store_rows(o_desc, lse, q[me], acc, highest, total, head, row, N, scale)
            tlx.async_descriptor_store_wait(0)


@attention.example
def example():
    """Two heads of ragged sequences."""
    return (2, 2), _attention.example(2, 200, 64, 64, 64)


@attention.example
def causal():
    """The same, each query with the keys up to its own."""
    return (2, 2), _attention.example(2, 200, 64, 64, 64, CAUSAL=True)


def prepare(q, k, v, o, lse, causal=False, BN=128, CONSUMERS=2, **constants) -> Callable[[], None]:
    """A function that computes o = softmax(q @ k.mT / sqrt(D)) @ v and the log-sum-exp for torch tensors
    (.., heads, N, D) of float16 or bfloat16; the tensor maps are made once."""
    q, k, v, o = map(_attention.flat, (q, k, v, o))
    heads, n, d = q.shape
    blocks = _attention.descriptors(q, k, v, o, 64, BN)
    grid = (tlxc.cdiv(n, 64 * CONSUMERS), heads)
    constants |= dict(D=d, BN=BN, CONSUMERS=CONSUMERS, GROUP=heads // k.shape[0], CAUSAL=causal)
    return partial(attention[grid], *blocks, lse, n, d**-0.5, **constants)


def launch(q, k, v, o, lse, causal=False, **constants) -> None:
    prepare(q, k, v, o, lse, causal, **constants)()


def check(torch) -> None:
    _attention.check(torch, launch)
    _attention.check(torch, launch, d=64, CONSUMERS=3, REGISTERS=160)


if __name__ == "__main__":
    _support.main(attention, check)
