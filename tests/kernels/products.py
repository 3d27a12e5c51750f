"""Matrix products on tensor cores: pipelines, warp specialisation, ping-pong, operands in registers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import tlxc
from tlxc import tl, tlx

from . import Call, Sample, block, integers, nothing

M, N, K = 64, 16, 16
BYTES = (M * K + K * N) * 2


@tlxc.kernel(do_not_specialize=("steps",))
def prefetched(a, b, out, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """One task: TMA is STAGES - 1 blocks ahead of wgmma."""
    BYTES: tl.constexpr = (M * K + K * N) * 2
    x = tlx.local_alloc((M, K), tl.float16, STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    full = tlx.alloc_barriers(STAGES)
    for i in tl.static_range(STAGES - 1):
        tlx.barrier_expect_bytes(full[i], BYTES, pred=i < steps)
        tlx.async_descriptor_load(a, x[i], [0, i * K], full[i], pred=i < steps)
        tlx.async_descriptor_load(b, y[i], [i * K, 0], full[i], pred=i < steps)
    acc = tl.zeros((M, N), tl.float32)
    for i in range(steps):
        stage, phase = tlx.get_bufidx_phase(i, STAGES)
        tlx.barrier_wait(full[stage], phase)
        acc = tlx.async_dot(x[stage], y[stage], acc)
        acc = tlx.async_dot_wait(0, acc)
        ahead = i + STAGES - 1
        s = ahead % STAGES
        tlx.barrier_expect_bytes(full[s], BYTES, pred=ahead < steps)
        tlx.async_descriptor_load(a, x[s], [0, ahead * K], full[s], pred=ahead < steps)
        tlx.async_descriptor_load(b, y[s], [ahead * K, 0], full[s], pred=ahead < steps)
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    tl.store(out + rows[:, None] * N + columns[None, :], acc)


@tlxc.kernel(do_not_specialize=("steps",))
def specialised(a, b, out, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """Producer and consumer; a stage is released one dot later; the result leaves by TMA."""
    BYTES: tl.constexpr = (M * K + K * N) * 2
    x = tlx.local_alloc((M, K), tl.float16, STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    z = tlx.local_alloc((M, N), tl.float32, 1)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], BYTES)
                tlx.async_descriptor_load(a, x[stage], [0, i * K], full[stage])
                tlx.async_descriptor_load(b, y[stage], [i * K, 0], full[stage])
        with tlx.async_task(num_warps=4):
            acc = tl.zeros((M, N), tl.float32)
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                acc = tlx.async_dot(x[stage], y[stage], acc)
                acc = tlx.async_dot_wait(1, acc)
                if i > 0:
                    tlx.barrier_arrive(empty[(i - 1) % STAGES])
            acc = tlx.async_dot_wait(0, acc)
            tlx.local_store(z[0], acc)
            tlx.async_descriptor_store(out, z[0], [0, 0])
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def persistent(
    a, b, out, tiles, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Two consumers share b and own one half of the rows each; the ring goes on over several tiles."""
    BYTES: tl.constexpr = (2 * M * K + K * N) * 2
    x = tlx.local_alloc((M, K), tl.float16, 2 * STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    z = tlx.local_alloc((M, N), tl.float32, 2)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES, arrive_count=2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            count = 0
            for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
                for i in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    tlx.async_descriptor_load(a, x[2 * stage], [2 * tile * M, i * K], full[stage])
                    tlx.async_descriptor_load(a, x[2 * stage + 1], [2 * tile * M + M, i * K], full[stage])
                    tlx.async_descriptor_load(b, y[stage], [i * K, 0], full[stage])
                    count += 1
        with tlx.async_task(num_warps=4, replicate=2):
            me = tlx.async_task_replica_id()
            count = 0
            for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
                acc = tl.zeros((M, N), tl.float32)
                for _ in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(x[2 * stage + me], y[stage], acc)
                    acc = tlx.async_dot_wait(0, acc)
                    tlx.barrier_arrive(empty[stage])
                    count += 1
                tlx.async_descriptor_store_wait(0, read=True)
                tlx.local_store(z[me], acc)
                tlx.async_descriptor_store(out, z[me], [2 * tile * M + me * M, 0])
            tlx.async_descriptor_store_wait(0)


@tlxc.kernel(do_not_specialize=("steps",))
def ping_pong(a, b, out, tiles, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """Consumers take alternate tiles; an mbarrier each passes the turn, so that one multiplies while the other
    stores."""
    BYTES: tl.constexpr = (M * K + K * N) * 2
    x = tlx.local_alloc((M, K), tl.float16, STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    turn = tlx.alloc_barriers(2)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            count = 0
            for tile in range(tiles):
                for i in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(empty[stage], phase ^ 1)
                    tlx.barrier_expect_bytes(full[stage], BYTES)
                    tlx.async_descriptor_load(a, x[stage], [tile * M, i * K], full[stage])
                    tlx.async_descriptor_load(b, y[stage], [i * K, 0], full[stage])
                    count += 1
        with tlx.async_task(num_warps=4, replicate=2):
            me = tlx.async_task_replica_id()
            count = me * steps
            passed = me ^ 1
            rows, columns = tl.arange(0, M), tl.arange(0, N)
            for tile in range(me, tiles, 2):
                acc = tl.zeros((M, N), tl.float32)
                tlx.barrier_wait(turn[me], passed)
                for _ in range(steps):
                    stage, phase = tlx.get_bufidx_phase(count, STAGES)
                    tlx.barrier_wait(full[stage], phase)
                    acc = tlx.async_dot(x[stage], y[stage], acc)
                    acc = tlx.async_dot_wait(0, acc)
                    tlx.barrier_arrive(empty[stage])
                    count += 1
                tlx.barrier_arrive(turn[me ^ 1])
                passed ^= 1
                count += steps
                tl.store(out + (tile * M + rows[:, None]) * N + columns[None, :], acc)


@tlxc.kernel(do_not_specialize=("steps",))
def register_a(a, b, out, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """A goes through registers, where it is changed, to wgmma; B stays where TMA put it."""
    x = tlx.local_alloc((M, K), tl.float16, STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            acc = tl.zeros((M, N), tl.float32)
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                tile = tlx.local_load(x[stage]) + 1
                acc = tlx.async_dot(tile, y[stage], acc)
                acc = tlx.async_dot_wait(0, acc)
                tlx.barrier_arrive(empty[stage])
            rows, columns = tl.arange(0, M), tl.arange(0, N)
            tl.store(out + rows[:, None] * N + columns[None, :], acc)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], (M * K + K * N) * 2)
                tlx.async_descriptor_load(a, x[stage], [0, i * K], full[stage])
                tlx.async_descriptor_load(b, y[stage], [i * K, 0], full[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def chained(a, b, out, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """As in attention: each product, rounded, is the register operand of the next one."""
    x = tlx.local_alloc((M, K), tl.float16, STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            acc = tl.zeros((M, N), tl.float32)
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                p = tlx.async_dot_wait(0, tlx.async_dot(x[stage], y[stage]))
                acc = tlx.async_dot_wait(0, tlx.async_dot(p.to(tl.float16), y[stage], acc))
                tlx.barrier_arrive(empty[stage])
            rows, columns = tl.arange(0, M), tl.arange(0, N)
            tl.store(out + rows[:, None] * N + columns[None, :], acc)
        with tlx.async_task(num_warps=1):
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.barrier_expect_bytes(full[stage], (M * K + K * N) * 2)
                tlx.async_descriptor_load(a, x[stage], [0, i * K], full[stage])
                tlx.async_descriptor_load(b, y[stage], [i * K, 0], full[stage])


@tlxc.kernel(do_not_specialize=("steps",))
def written_operands(a, b, out, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """Threads of another task write the operands of wgmma: they fence."""
    x = tlx.local_alloc((M, K), tl.float16, STAGES)
    y = tlx.local_alloc((K, N), tl.float16, STAGES)
    full = tlx.alloc_barriers(STAGES)
    empty = tlx.alloc_barriers(STAGES)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(empty[stage], phase ^ 1)
                tlx.local_store(x[stage], tl.load(a + rm[:, None] * (steps * K) + i * K + rk[None, :]))
                tlx.local_store(y[stage], tl.load(b + (i * K + rk[:, None]) * N + rn[None, :]))
                tlx.fence_async_shared()
                tlx.barrier_arrive(full[stage])
        with tlx.async_task(num_warps=4):
            acc = tl.zeros((M, N), tl.float32)
            for i in range(steps):
                stage, phase = tlx.get_bufidx_phase(i, STAGES)
                tlx.barrier_wait(full[stage], phase)
                acc = tlx.async_dot_wait(0, tlx.async_dot(x[stage], y[stage], acc))
                tlx.barrier_arrive(empty[stage])
            rows, columns = tl.arange(0, M), tl.arange(0, N)
            tl.store(out + rows[:, None] * N + columns[None, :], acc)


def _operands(trips: int, rows: int = M) -> tuple[Any, Any, Any]:
    k = max(trips, 1) * K
    a, b = integers(trips, rows, k, dtype=np.float16), integers(trips + 100, k, N, dtype=np.float16)
    wanted = a.astype(np.float32) @ b.astype(np.float32) if trips else np.zeros((rows, N), np.float32)
    return a, b, wanted


_SIZES = {"M": M, "N": N, "K": K}


def _simple(kernel: Any, stages: int, trips: int, plus: int = 0, tma_out: bool = False, pointers: bool = False) -> Call:
    a, b, wanted = _operands(trips)
    if plus and trips:
        wanted = (a.astype(np.float32) + plus) @ b.astype(np.float32)
    out = nothing(M, N)
    args = {
        "a": a if pointers else block(a, M, K),
        "b": b if pointers else block(b, K, N),
        "out": block(out, M, N) if tma_out else out,
        "steps": trips,
        "STAGES": stages,
        **_SIZES,
    }
    return Call(kernel, (1,), args, out, wanted)


def _chained(trips: int) -> Call:
    call = _simple(chained, 2, trips)
    a, b, _ = _operands(trips)
    wanted = np.zeros((M, N), np.float32)
    for i in range(trips):
        y = b[i * K : (i + 1) * K].astype(np.float32)
        wanted += (a[:, i * K : (i + 1) * K].astype(np.float32) @ y).astype(np.float16).astype(np.float32) @ y
    return Call(call.kernel, call.grid, call.args, call.out, wanted)


def _persistent(trips: int) -> Call:
    tiles = 3
    a, b, wanted = _operands(trips, 2 * M * tiles)
    out = nothing(2 * M * tiles, N)
    args = {"a": block(a, M, K), "b": block(b, K, N), "out": block(out, M, N), "tiles": tiles, "steps": trips}
    return Call(persistent, (2,), {**args, "STAGES": 2, **_SIZES}, out, wanted)


def _ping_pong(trips: int) -> Call:
    tiles = 3
    a, b, wanted = _operands(trips, M * tiles)
    out = nothing(M * tiles, N)
    args = {"a": block(a, M, K), "b": block(b, K, N), "out": out, "tiles": tiles, "steps": trips}
    return Call(ping_pong, (1,), {**args, "STAGES": 2, **_SIZES}, out, wanted)


def samples() -> Iterator[Sample]:
    yield Sample("prefetched-3", partial(_simple, prefetched, 3))
    yield Sample("specialised-2", partial(_simple, specialised, 2, tma_out=True))
    yield Sample("specialised-3", partial(_simple, specialised, 3, tma_out=True))
    yield Sample("persistent", _persistent)
    yield Sample("ping_pong", _ping_pong)
    yield Sample("register_a", partial(_simple, register_a, 2, plus=1))
    yield Sample("chained", _chained)
    yield Sample("written_operands", partial(_simple, written_operands, 2, pointers=True))
