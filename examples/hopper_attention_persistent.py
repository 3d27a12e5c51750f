"""Attention forward on Hopper by as many CTAs as run at once, which take tiles of 64 * CONSUMERS rows from a counter.

As hopper_attention_guarded.py.  While a CTA works on one tile it stores O of the last one and loads Q of the next one.
Tiles go by sections of heads whose K and V stay in the L2 cache; in a section those with most keys come first, so that
all CTAs are done at about the same time.

python examples/hopper_attention_persistent.py --check         runs and checks on a GPU; without one, compiles
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import _attention
import _support
from _attention import LOG2_E, block_range, load, load_block, store_rows
from hopper_attention_guarded import attend, leave_out

import tlxc
from tlxc import tl, tlx

NO_MORE = tl.constexpr(-1)
L2_BYTES = 32 << 20  # of K and V that one section may take


def width_of_o(D: tl.constexpr):
    """Columns of O that are stored at a time: with more there is no room for all of Q, K, V and O."""
    return D if D <= 128 else D // 2


def place(tile, section, heights, ROWS: tl.constexpr):
    """(head, first row) of a tile, of which a head has `heights`."""
    part = tile // (section * heights)
    within = tile - part * section * heights
    order = within // section
    return part * section + within - order * section, (heights - 1 - order) * ROWS


@tlxc.kernel(num_warps=4)
def attention(
    q_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 128)),
    k_desc: tlx.tensor_descriptor_type(tl.float16, (1, 80, 128)),
    v_desc: tlx.tensor_descriptor_type(tl.float16, (1, 80, 128)),
    o_desc: tlx.tensor_descriptor_type(tl.float16, (1, 64, 128)),
    lse: tl.ptr(tl.float32),
    counter: tl.ptr(tl.int32),
    tiles: tl.int32,
    section: tl.int32,
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
    """O and the log-sum-exp of the scaled scores; Q, O (heads, N, D) in blocks (1, 64, D), of which O has width_of_o(D)
    columns, K, V (heads // GROUP, N, D) in blocks (1, BN, D).  `section` divides the number of heads.  `counter`: two
    zeros, which are zeros again at the end.  `cycles`: a 64-bit integer, to which each CTA adds the cycles that it
    takes."""
    if cycles is not None:
        tl.atomic_add(cycles, -tlx.clock64(), sem="relaxed")
    dtype = tlx.dtype_of(q_desc)
    ROWS: tl.constexpr = 64 * CONSUMERS
    q = tlx.local_alloc((1, 64, D), dtype, CONSUMERS)
    o = tlx.local_alloc((1, 64, width_of_o(D)), dtype, CONSUMERS)
    k = tlx.local_alloc((1, BN, D), dtype, STAGES)
    v = tlx.local_alloc((1, BN, D), dtype, STAGES)
    taken = tlx.local_alloc((1,), tl.int32, 2)  # head and first row of the tile that Q is of
    q_full = tlx.alloc_barriers(CONSUMERS)
    q_empty = tlx.alloc_barriers(1, arrive_count=CONSUMERS)
    k_full, v_full = tlx.alloc_barriers(STAGES), tlx.alloc_barriers(STAGES)
    k_empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    v_empty = tlx.alloc_barriers(STAGES, arrive_count=CONSUMERS)
    heights = tl.cdiv(N, ROWS)

    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=24):
            tile, count, trip = tl.program_id(0), 0, 0
            while tile < tiles:
                head, start = place(tile, section, heights, ROWS)
                blocks, _ = block_range(start, N, ROWS, BN, CAUSAL)
                of_k, of_v = (k_desc, k, k_full, k_empty, head // GROUP), (v_desc, v, v_full, v_empty, head // GROUP)
                load_block(*of_k, blocks - 1, count, STAGES)
                tlx.barrier_wait(q_empty[0], (trip & 1) ^ 1)
                tlx.local_store(taken[0], tl.full((1,), head, tl.int32))
                tlx.local_store(taken[1], tl.full((1,), start, tl.int32))
                for i in tl.static_range(CONSUMERS):
                    load(q_desc, q[i], [head, start + 64 * i, 0], q_full[i])
                for block in range(blocks - 1, 0, -1):
                    load_block(*of_k, block - 1, count + 1, STAGES)
                    load_block(*of_v, block, count, STAGES)
                    count += 1
                # Here, since the last block of V has to wait for its place anyway.
                following = tl.num_programs(0) + tl.atomic_add(counter, 1, sem="relaxed")
                load_block(*of_v, 0, count, STAGES)
                tile, count, trip = following, count + 1, trip + 1
            tlx.barrier_wait(q_empty[0], (trip & 1) ^ 1)
            tlx.local_store(taken[0], tl.full((1,), NO_MORE, tl.int32))
            for i in tl.static_range(CONSUMERS):
                tlx.barrier_arrive(q_full[i])
            if tl.atomic_add(counter + 1, 1) == tl.num_programs(0) - 1:  # the last CTA
                tl.store(counter, 0)
                tl.store(counter + 1, 0)

        with tlx.async_task(num_warps=4, num_regs=REGISTERS, replicate=CONSUMERS):
            me = tlx.async_task_replica_id()
            count, trip = 0, 0
            tlx.barrier_wait(q_full[me], 0)
            head, start = tl.max(tlx.local_load(taken[0]), 0), tl.max(tlx.local_load(taken[1]), 0)
            while head != NO_MORE:
                row = start + 64 * me
                blocks, _ = block_range(start, N, ROWS, BN, CAUSAL)
                mine, whole = block_range(row, N, 64, BN, CAUSAL)
                of_kv = k_full, k_empty, v_full, v_empty
                if CAUSAL:
                    leave_out(count, blocks - mine, *of_kv, STAGES)
                where = count + blocks - mine, row, mine, whole, N, scale * LOG2_E
                acc, highest, total = attend(q[me], k, v, *of_kv, q_empty[0], *where, CAUSAL, STAGES)
                tlx.async_descriptor_store_wait(0, read=True)
                store_rows(o_desc, lse, o[me], acc, highest, total, head, row, N, scale)
                count, trip = count + blocks, trip + 1
                tlx.barrier_wait(q_full[me], trip & 1)
                head, start = tl.max(tlx.local_load(taken[0]), 0), tl.max(tlx.local_load(taken[1]), 0)
            tlx.async_descriptor_store_wait(0)

    if cycles is not None:
        tl.atomic_add(cycles, tlx.clock64(), sem="relaxed")


def _example(**constants):
    import numpy as np

    more = dict(counter=np.zeros(2, np.int32), tiles=8, section=2, CONSUMERS=2, REGISTERS=240)
    return (3,), _attention.example(4, 200, 64, 64, 64, **more, **constants)


@attention.example
def example():
    """Three CTAs take eight tiles of ragged sequences."""
    return _example()


@attention.example
def causal():
    """The same, each query with the keys up to its own."""
    return _example(CAUSAL=True)


def heads_of_section(heads: int, bytes_of_head: int) -> int:
    """The most heads that divide `heads` and whose K and V fit into the L2 cache; one, if none do."""
    return next((n for n in range(heads, 1, -1) if heads % n == 0 and n * bytes_of_head <= L2_BYTES), 1)


def prepare(q, k, v, o, lse, causal=False, **constants) -> Callable[[], None]:
    """A function that computes o = softmax(q @ k.mT / sqrt(D)) @ v and the log-sum-exp for torch tensors
    (.., heads, N, D) of float16 or bfloat16; the tensor maps are made once.  Its calls follow each other.
    Without BN, CONSUMERS and REGISTERS those of `_attention.form`."""
    import torch

    q, k, v, o = map(_attention.flat, (q, k, v, o))
    heads, n, d = q.shape
    if "BN" not in constants:
        constants |= _attention.form(d, n, causal)
    BN, CONSUMERS = constants["BN"], constants["CONSUMERS"]
    group = heads // k.shape[0]
    blocks = _attention.descriptors(q, k, v, o, 64, BN, width_of_o(d))
    tiles = tlxc.cdiv(n, 64 * CONSUMERS) * heads
    section = heads_of_section(heads, 2 * n * d * k.element_size() // group)
    counter = torch.zeros(2, dtype=torch.int32, device=q.device)
    constants |= dict(D=d, GROUP=group, CAUSAL=causal)
    grid = (min(tiles, _support.sm_count(q.device)),)
    return partial(attention[grid], *blocks, lse, counter, tiles, section, n, d**-0.5, **constants)


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
