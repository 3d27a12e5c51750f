"""Attention forward on Hopper with a softmax that looks for the maxima of rows only where it must.

As hopper_attention_pipelined.py, with two products under way.  But a row keeps the reference that its exponentials are
relative to, as long as no score is more than 2**8 times above it in P: such a P fits into 16 bits and its sums into 32.
Whether a block has a score that is, each warp asks once: it compares bits as integers, which order as floats that are
not negative do.  Only a warp that finds one computes maxima, takes them for references and rescales its sums.

With CAUSAL, a consumer leaves out the blocks that come after its own last row.

python examples/hopper_attention_guarded.py --check         runs and checks on a GPU; without one, compiles
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _attention
import _support
from _attention import LOG2_E, LOWEST, as_matrix, block_range, load, load_blocks, mask_scores, softmax_step, store_rows

import tlxc
from tlxc import tl, tlx

ROOM = tl.constexpr(8.0)  # scores may exceed their reference by this, in powers of two
ALWAYS = tl.constexpr(-(2**31))  # a limit that all scores reach


def limit_of(highest, room):
    """Bits of the scores that are too large for their reference.  Those of a negative number do not order as integers:
    such a row finds new references in every block."""
    top = highest + room
    return tl.where(top >= 0, top.to(tl.int32, bitcast=True), ALWAYS)


def leave_out(count, skipped, k_full, k_empty, v_full, v_empty, STAGES: tl.constexpr):
    """Gives `skipped` blocks of K and V back unread, when they are there; `count` blocks came before."""
    for i in range(skipped):
        stage, phase = tlx.get_bufidx_phase(count + i, STAGES)
        tlx.barrier_wait(k_full[stage], phase)
        tlx.barrier_arrive(k_empty[stage])
        tlx.barrier_wait(v_full[stage], phase)
        tlx.barrier_arrive(v_empty[stage])


def attend(q, k, v, k_full, k_empty, v_full, v_empty, q_empty, count, row, blocks, whole, N, scale, CAUSAL, STAGES):
    """(acc, highest, total) of the rows in q, from `row` on, and `blocks` blocks of keys; `whole` of them need no mask.
    `count` blocks came before; `q_empty`, if any, is told when q has been read."""
    BN: tl.constexpr = k.shape[1]
    dtype = q.dtype
    queries = as_matrix(q)
    room = ROOM / scale
    stage, phase = tlx.get_bufidx_phase(count, STAGES)
    tlx.barrier_wait(k_full[stage], phase)
    s = tlx.async_dot_wait(0, tlx.async_dot(queries, tlx.local_trans(as_matrix(k[stage]))))
    tlx.barrier_arrive(k_empty[stage])
    s = mask_scores(s, row, (blocks - 1) * BN, N, CAUSAL)
    highest, total = tl.full((64,), LOWEST, tl.float32), tl.zeros((64,), tl.float32)
    p, highest, total, alpha = softmax_step(s, highest, total, scale)
    limit = limit_of(highest, room)
    acc, p = tl.zeros((64, v.shape[2]), tl.float32), p.to(dtype)
    for masked in tl.static_range(1 if CAUSAL else 0, -1, -1):
        last = blocks - 2 if masked or not CAUSAL else min(blocks - 2, whole - 1)
        for block in range(last, (whole if masked else 0) - 1, -1):
            done = count + blocks - 1 - block
            stage, phase = tlx.get_bufidx_phase(done, STAGES)
            old, old_phase = tlx.get_bufidx_phase(done - 1, STAGES)
            tlx.barrier_wait(k_full[stage], phase)
            tlx.barrier_wait(v_full[old], old_phase)
            s = tlx.async_dot(queries, tlx.local_trans(as_matrix(k[stage])))
            acc = tlx.async_dot(p, as_matrix(v[old]), acc)
            s = tlx.async_dot_wait(1, s)
            tlx.barrier_arrive(k_empty[stage])
            if masked:
                s = mask_scores(s, row, block * BN, N, CAUSAL)
            alpha = tl.full((64,), 1.0, tl.float32)
            far = tlx.warp_any(s.to(tl.int32, bitcast=True) >= limit[:, None])
            if far:
                before = highest
                highest = tl.maximum(highest, tl.max(s, 1))
                alpha = tl.exp2((before - highest) * scale, ftz=True)
                total = total * alpha
                limit = limit_of(highest, room)
            p = tl.exp2(s * scale - (highest * scale)[:, None], ftz=True)
            total += tl.sum(p, 1)
            acc = tlx.async_dot_wait(0, acc)
            tlx.barrier_arrive(v_empty[old])
            if far:
                acc = acc * alpha[:, None]
            p = p.to(dtype)
    if q_empty is not None:
        tlx.barrier_arrive(q_empty)
    stage, phase = tlx.get_bufidx_phase(count + blocks - 1, STAGES)
    tlx.barrier_wait(v_full[stage], phase)
    acc = tlx.async_dot_wait(0, tlx.async_dot(p, as_matrix(v[stage]), acc))
    tlx.barrier_arrive(v_empty[stage])
    return acc, highest, total


@tlxc.kernel(num_warps=4)
def attention(
    q_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 128)),
    k_desc: tlx.tensor_descriptor_type(tl.float16, (1, 80, 128)),
    v_desc: tlx.tensor_descriptor_type(tl.float16, (1, 80, 128)),
    o_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 128)),
    lse: tl.ptr(tl.float32),
    N: tl.int32,
    scale: tl.float32,
    D: tl.constexpr = 128,
    BN: tl.constexpr = 80,
    STAGES: tl.constexpr = 2,
    CONSUMERS: tl.constexpr = 3,
    REGISTERS: tl.constexpr = 160,
    GROUP: tl.constexpr = 1,
    CAUSAL: tl.constexpr = False,
    cycles=None,
):
    """O and the log-sum-exp of the scaled scores; Q, O (heads, N, D) in blocks (1, 64, D), K, V (heads // GROUP, N, D)
    in blocks (1, BN, D), one CTA for 64 * CONSUMERS rows of a head.  `cycles`: a 64-bit integer, to which
    each CTA adds the cycles that it takes."""
    if cycles is not None:
        tl.atomic_add(cycles, -tlx.clock64(), sem="relaxed")
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
    blocks, _ = block_range(start, N, 64 * CONSUMERS, BN, CAUSAL)

    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=24):
            for i in tl.static_range(CONSUMERS):
                load(q_desc, q[i], [head, start + 64 * i, 0], q_full[i])
            of_kv = k_full, k_empty, v_full, v_empty
            load_blocks(k_desc, v_desc, k, v, *of_kv, head // GROUP, blocks, 0, STAGES)

        with tlx.async_task(num_warps=4, num_regs=REGISTERS, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            row = start + 64 * me
            mine, whole = block_range(row, N, 64, BN, CAUSAL)
            of_kv = k_full, k_empty, v_full, v_empty
            if CAUSAL:
                leave_out(0, blocks - mine, *of_kv, STAGES)
            tlx.barrier_wait(q_full[me], 0)
            where = blocks - mine, row, mine, whole, N, scale * LOG2_E
            acc, highest, total = attend(q[me], k, v, *of_kv, None, *where, CAUSAL, STAGES)
            store_rows(o_desc, lse, q[me], acc, highest, total, head, row, N, scale)
            tlx.async_descriptor_store_wait(0)

    if cycles is not None:
        tl.atomic_add(cycles, tlx.clock64(), sem="relaxed")


@attention.example
def example():
    """Two heads of ragged sequences."""
    return (2, 2), _attention.example(2, 200, 64, 64, 64, CONSUMERS=2, REGISTERS=240)


@attention.example
def causal():
    """The same, each query with the keys up to its own."""
    return (2, 2), _attention.example(2, 200, 64, 64, 64, CONSUMERS=2, REGISTERS=240, CAUSAL=True)


def prepare(q, k, v, o, lse, causal=False, **constants) -> Callable[[], None]:
    """A function that computes o = softmax(q @ k.mT / sqrt(D)) @ v and the log-sum-exp for torch tensors
    (.., heads, N, D) of float16 or bfloat16; the tensor maps are made once.  Without BN, CONSUMERS and REGISTERS those
    of `_attention.form`."""
    q, k, v, o = map(_attention.flat, (q, k, v, o))
    heads, n, d = q.shape
    if "BN" not in constants:
        constants |= _attention.form(d, n, causal)
    BN, CONSUMERS = constants["BN"], constants["CONSUMERS"]
    blocks = _attention.descriptors(q, k, v, o, 64, BN)
    grid = (tlxc.cdiv(n, 64 * CONSUMERS), heads)
    constants |= dict(D=d, GROUP=heads // k.shape[0], CAUSAL=causal)
    return partial(attention[grid], *blocks, lse, n, d**-0.5, **constants)


def launch(q, k, v, o, lse, causal=False, **constants) -> None:
    prepare(q, k, v, o, lse, causal, **constants)()


def check(torch) -> None:
    for d in (64, 128, 256):
        _attention.check(torch, launch, d)
    _attention.check(torch, launch, CONSUMERS=2, REGISTERS=240, BN=128)
    _attention.check(torch, launch, d=64, CONSUMERS=3, REGISTERS=160, BN=128)
    _attention.check(torch, launch, d=64, CONSUMERS=4, REGISTERS=112, BN=64)


if __name__ == "__main__":
    _support.main(attention, check)
