"""mbarriers, named barriers and fences.

An mbarrier counts arrivals and announced bytes.  Its phases follow each other: one completes when all arrivals of its
count have come and all bytes have landed; then its parity flips and the count starts again.  A wait for parity p
returns once the phase of that parity has completed, so a wait for 1 on a fresh barrier returns at once.
"""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.core import Value
from tlxc.ir.ops.barrier import SCOPES
from tlxc.ir.types import Barrier, int32

from .core import builder, builtin, constant, describe, literal_int
from .handles import mbarrier, one_barrier, predicate, remote_mbarrier, require_cluster, require_feature, scalar_i32
from .promotion import is_literal

MAX_ARRIVALS = (1 << 20) - 1  # pending arrivals and bytes are 20-bit fields of the hardware barrier
NAMED_BARRIERS = 16


def _positive(x: Any, what: str, most: int = MAX_ARRIVALS) -> int:
    n = literal_int(x, what)
    if not 1 <= n <= most:
        raise CompileError(f"{what} is out of range", found=str(n), allowed=f"1 to {most}")
    return n


@builtin
def alloc_barriers(num_barriers: int, arrive_count: int = 1) -> mbarrier:
    """An array of `num_barriers` mbarriers, each with `arrive_count` arrivals to a phase; `bar[i]` is one of them.

    Both are compile-time.  One thread of the CTA initialises them before any thread goes on.  Call it outside tasks for
    barriers that tasks share.  Targets: sm_90 and later.  Errors: counts out of range.
    Instruction: `mbarrier.init.shared::cta.b64` (PTX ISA, "mbarrier.init").
    """
    return _alloc(num_barriers, _positive(arrive_count, "arrive_count"), warp=False)


@builtin
def alloc_warp_barrier(num_barriers: int, num_warps: int = 1, num_arrivals: int = 1) -> mbarrier:
    """An array of mbarriers at which every thread arrives by itself, `num_arrivals` times to a phase.

    `num_warps`: warps that arrive, all replicas together; a phase takes num_warps * 32 * num_arrivals arrivals.  An
    arrival needs no barrier of the task before it.  Targets: sm_90 and later.  Errors: counts out of range.
    Instruction: `mbarrier.init.shared::cta.b64` (PTX ISA, "mbarrier.init").
    """
    warps, arrivals = _positive(num_warps, "num_warps"), _positive(num_arrivals, "num_arrivals")
    return _alloc(num_barriers, _positive(warps * 32 * arrivals, "the number of arrivals"), warp=True)


def _alloc(num: Any, arrivals: int, warp: bool) -> mbarrier:
    require_feature("mbarrier", "an mbarrier")
    kind = Barrier(_positive(num, "num_barriers", 4096), warp)
    return mbarrier(builder().emit("alloc_barriers", type=kind, arrive_count=arrivals))


@builtin
def barrier_expect_bytes(bar: Any, size: int, pred: Any = None) -> None:
    """One arrival at `bar` that also announces `size` bytes of asynchronous copies, which the phase then waits for.

    `size`: compile-time bytes that land in this CTA; `pred`: a bool scalar, false for no arrival.  Call it before the
    copies are issued.  Targets: sm_90 and later.  Errors: an array of barriers; a size out of range.
    Instruction: `mbarrier.arrive.expect_tx.shared::cta.b64` by one thread (PTX ISA, "mbarrier.arrive").
    """
    barrier = one_barrier(bar, "the barrier of barrier_expect_bytes")
    count = _positive(size, "the size of barrier_expect_bytes")
    builder().op("barrier_expect", (barrier.value, predicate(pred)), bytes=count)


@builtin
def barrier_wait(bar: Any, phase: Any, pred: Any = None) -> None:
    """Waits until the phase of `bar` with parity `phase` (0 or 1, an int or integer scalar) has completed.

    Every thread of the task waits, and sees what was written before the arrivals and what the copies brought.
    `pred`: a bool scalar, false for no wait.  Targets: sm_90 and later.  Errors: an array of barriers; a phase that is
    neither 0 nor 1.
    Instruction: a loop around `mbarrier.try_wait.parity.shared::cta.b64` (PTX ISA, "mbarrier.test_wait").
    """
    barrier = one_barrier(bar, "the barrier of barrier_wait")
    if isinstance(phase, int) and phase not in (0, 1):
        raise CompileError("the phase of barrier_wait is a parity", found=str(phase), allowed="0 or 1")
    parity = constant(int(phase), int32).value if isinstance(phase, bool) else scalar_i32(phase, "the phase")
    builder().op("barrier_wait", (barrier.value, parity, predicate(pred)))


@builtin
def barrier_arrive(bar: Any, arrive_count: int = 1, remote_cta_rank: Any = None, pred: Any = None) -> None:
    """`arrive_count` arrivals at `bar`: by one thread when all threads of the task have come here, at a warp barrier by
    every thread by itself.  What the task did to shared memory before is seen by those who wait.

    `remote_cta_rank`: arrive at the barrier in the same place of that CTA of the cluster.  `pred`: a bool scalar.
    An arrival after `async_dot` does not wait for the product: wait with `async_dot_wait` first.
    Targets: sm_90 and later.  Errors: an array of barriers; a count below 1; a rank in a kernel without clusters.
    Instruction: `mbarrier.arrive.shared::cta.b64`, with a rank `mapa` and `.shared::cluster` (PTX ISA,
    "mbarrier.arrive").
    """
    barrier = one_barrier(bar, "the barrier of barrier_arrive")
    count = _positive(arrive_count, "arrive_count")
    rank = None
    if remote_cta_rank is not None:
        require_cluster("barrier_arrive with remote_cta_rank")
        rank = cluster_rank(remote_cta_rank)
    builder().op("barrier_arrive", (barrier.value, predicate(pred), rank), count=count)


@builtin
def remote_view(bar: Any, remote_cta_rank: Any) -> remote_mbarrier:
    """The barrier in the same place as `bar` of another CTA of the cluster.

    No function takes it: `barrier_arrive` reaches other CTAs with `remote_cta_rank`, copies signal where they land, and
    a CTA waits at its own barriers.  It exists for programs that name such barriers.  Targets: sm_90 and later.
    Errors: no barrier, or an array of them; a kernel without clusters; a rank that the cluster does not have.
    No instruction.
    """
    barrier = one_barrier(bar, "the barrier of remote_view")
    require_cluster("remote_view")
    cluster_rank(remote_cta_rank)
    return remote_mbarrier(barrier.value)


def check_rank(rank: int) -> int:
    """A compile-time rank of a CTA in the cluster."""
    a, b, c = builder().module.cluster
    if not 0 <= rank < a * b * c:
        raise CompileError("the cluster has no CTA of this rank", found=str(rank), allowed=f"0 to {a * b * c - 1}")
    return rank


def cluster_rank(x: Any) -> Value:
    """The rank of a CTA in the cluster as an i32 value; an int is checked."""
    return scalar_i32(check_rank(x) if isinstance(x, int) else x, "the rank of a CTA")


# ---------------------------------------------------------------------------------------------------- named barriers
@builtin
def named_barrier_wait(bar: Any, arrive_count: int) -> None:
    """Comes to hardware barrier `bar` and waits until `arrive_count` threads have come, waiting or not.

    `bar`: an id from 1 to 15, an int or an integer scalar that arithmetic bounds, as in 8 + (i & 7): the compiler keeps
    its own barriers off all ids that are possible here.  `arrive_count`: threads, a multiple of 32.  All threads of the
    task execute it.
    Targets: sm_90 and later.  Errors: an id or a count out of range; an id that nothing bounds.
    Instruction: `bar.sync` (PTX ISA, "bar").
    """
    _named("named_barrier_wait", bar, arrive_count)


@builtin
def named_barrier_arrive(bar: Any, arrive_count: int) -> None:
    """Comes to hardware barrier `bar` and goes on; arguments as `named_barrier_wait`.

    Targets: sm_90 and later.  Errors: as `named_barrier_wait`.
    Instruction: `bar.arrive` (PTX ISA, "bar").
    """
    _named("named_barrier_arrive", bar, arrive_count)


def _named(kind: str, bar: Any, threads: Any) -> None:
    require_feature("mbarrier", kind)
    number, count = scalar_i32(bar, f"the id of {kind}"), literal_int(threads, "arrive_count")
    if is_literal(bar) and not 1 <= bar < NAMED_BARRIERS:
        raise CompileError(
            "a CTA has 16 named barriers, and 0 is that of the whole CTA", found=f"id {bar}", allowed="1 to 15"
        )
    if count < 32 or count % 32 or count > 1024:
        raise CompileError(
            f"the arrive_count of {kind} counts threads of whole warps",
            found=str(count),
            allowed="multiples of 32 up to 1024",
            fix="count 32 for each warp that arrives or waits",
        )
    builder().op(kind, (number,), threads=count)


# ------------------------------------------------------------------------------------------------------------ fences
@builtin
def fence(scope: str) -> None:
    """Orders memory accesses of every thread that executes it.

    "async_shared": accesses to shared memory by threads, before copies and matrix instructions that the hardware does
    by itself (TMA, wgmma); "gpu" and "sys": accesses to global memory, seen by the device or the system.
    Inside one task the compiler puts the first kind itself where it sees both sides.
    Targets: sm_90 and later.  Errors: another scope.
    Instruction: `fence.proxy.async.shared::cta`, `fence.acq_rel.gpu`, `fence.acq_rel.sys` (PTX ISA, "membar, fence").
    """
    if scope == "async_shared":
        require_feature("mbarrier", 'fence("async_shared")')
        builder().op("fence_async_shared")
    elif scope in SCOPES:
        builder().op("fence", scope=scope)
    else:
        raise CompileError(
            "unknown scope of fence", found=describe(scope), allowed=", ".join(map(repr, ("async_shared", *SCOPES)))
        )


@builtin
def fence_async_shared() -> None:
    """`fence("async_shared")`.  Targets: sm_90 and later."""
    fence("async_shared")
