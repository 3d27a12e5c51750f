"""Cluster barriers of tasks: every warp of the CTA takes part, or the kernel is refused."""

from __future__ import annotations

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.compiler import build, run_passes
from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op
from tlxc.targets import get_target

SM90 = get_target("sm_90")


def kinds(op: Op, task: int) -> list[str]:
    return [inner.kind for inner in op.regions[task].walk() if inner.kind not in ("constant", "yield")]


def regions(module: Module) -> list[Op]:
    return [op for op in module.walk() if op.kind == "async_tasks"]


def meet(HOW: tl.constexpr, x, n, i):
    if HOW == "argument":
        if n > i:
            tlx.cluster_barrier()
    elif HOW == "memory":
        if tl.load(x) > 0:
            tlx.cluster_barrier()
    elif HOW == "while":
        while n > 0:
            tlx.cluster_barrier()
            tl.store(x, n)
            n = n // 2
    else:
        tlx.cluster_barrier()


@tlxc.kernel(ctas_per_cga=(2, 1, 1))
def cluster(x: tl.ptr(tl.int32), n: tl.int32, HOW: tl.constexpr, OTHER: tl.constexpr, WARPS: tl.constexpr = 1):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for i in range(n):
                tl.store(x + tl.arange(0, 128), tl.load(x + tl.arange(0, 128)) + i)
                meet(HOW, x, n, i)
        with tlx.async_task(num_warps=WARPS):
            for i in range(n):
                meet(OTHER, x, n, i)


def placed(how: str, other: str, warps: int = 1) -> Module:
    module = build(cluster.__tlxc_source__, cluster.signature(HOW=how, OTHER=other, WARPS=warps), SM90)
    return run_passes(module, SM90, until="tasks", check=True)


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("", ["for", "cluster_barrier"]),
        ("argument", ["for", "cmp", "if", "cluster_barrier"]),
        ("while", ["for", "while", "cmp", "cluster_barrier", "idiv"]),
    ],
)
def test_idle_warps_run_what_is_left_of_a_task(how: str, left: list[str]) -> None:
    (op,) = regions(placed(how, how))
    assert (op.attrs["start_warp"], op.attrs["num_warps"]) == ((0, 4, 5, 6), (4, 1, 1, 2))
    assert kinds(op, 2) == kinds(op, 3) == left


def test_full_warpgroups_leave_no_idle_warps() -> None:
    (op,) = regions(placed("memory", "memory", 4))
    assert op.attrs["num_warps"] == (4, 4)


def test_a_task_that_can_be_followed_is_enough() -> None:
    (op,) = regions(placed("memory", "argument"))
    assert kinds(op, 2) == ["for", "cmp", "if", "cluster_barrier"]


def refusal(how: str, other: str) -> list[str]:
    with pytest.raises(CompileError) as caught:
        placed(how, other)
    lines = str(caught.value).splitlines()
    return [lines[0].partition(": error: ")[2], *(line for line in lines[3:] if line.startswith("  ") and ":" in line)]


def test_a_condition_that_only_the_task_knows_is_refused() -> None:
    summary, *rest = refusal("memory", "memory")
    assert summary == "only the task itself knows how often it executes this cluster_barrier"
    assert rest[:3] == [
        "  found: a loop or branch around it that depends on load, and 3 warps of the CTA without a task, which the "
        "barrier waits for too",
        "  allowed: loops and branches that follow from arguments, program ids and what was computed before the region",
        "  fix: compute the condition before the region, or use tasks that fill whole groups of 4 warps",
    ]
    assert rest[3].startswith("  it depends on at ") and "if tl.load(x) > 0:" in "".join(rest)


@tlxc.kernel(ctas_per_cga=(2, 1, 1))
def outside(x: tl.ptr(tl.int32), HOW: tl.constexpr):
    n = tl.load(x)
    meet(HOW, x, n, 0)
    for i in range(3):
        meet("", x, n, i)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(x, n)
        with tlx.async_task(num_warps=8):
            tl.store(x + 1, n)


def test_idle_warps_follow_loops_outside_of_regions() -> None:
    module = build(outside.__tlxc_source__, outside.signature(HOW=""), SM90)
    load, second, _ = regions(run_passes(module, SM90, until="tasks", check=True))
    assert len(load.regions) == 1  # no barrier, so nobody follows
    assert kinds(second, 1) == ["for", "cluster_barrier"]
    assert (second.attrs["start_warp"], second.attrs["num_warps"]) == ((0, 4), (4, 8))


def test_a_condition_outside_of_regions_that_memory_decides_is_refused() -> None:
    with pytest.raises(CompileError) as caught:
        run_passes(build(outside.__tlxc_source__, outside.signature(HOW="memory"), SM90), SM90)
    text = str(caught.value)
    assert "error: only the default task knows how often it executes this cluster_barrier\n" in text
    assert (
        "  found: a loop or branch around it that depends on load, and 8 warps of the CTA without a task, which the "
        "barrier waits for too\n"
    ) in text
    assert "  fix: take it out of the loop or branch\n" in text


@tlxc.kernel(ctas_per_cga=(2, 1, 1))
def alone(x: tl.ptr(tl.int32)):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tlx.cluster_barrier()
        with tlx.async_task(num_warps=4):
            tl.store(x, 1)


def test_a_task_without_its_barrier_is_refused() -> None:
    with pytest.raises(CompileError) as caught:
        run_passes(build(alone.__tlxc_source__, alone.signature(), SM90), SM90)
    where, line, caret, *rest = str(caught.value).splitlines()
    assert where.endswith(": error: cluster_barrier is executed by some tasks of a region and not by others")
    assert line.endswith("|             tlx.cluster_barrier()") and caret.endswith("^~~~~~~~~~~~~~~~~~~~~")
    assert rest == [
        "  found: the default task executes it, task copy 1 does not",
        "  allowed: regions in which every task executes it the same number of times: the hardware counts all warps",
        "  fix: call tlx.cluster_barrier() in the other tasks too, or outside of the region; an mbarrier with "
        "remote_cta_rank tells single tasks",
    ]


@tlxc.kernel(ctas_per_cga=(2, 1, 1))
def with_copies(x: tl.ptr(tl.int32), n: tl.int32):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(x + tl.arange(0, 128), tl.arange(0, 128))
            tlx.cluster_barrier()
        with tlx.async_task(num_warps=4, replicate=2):
            tl.store(x + 128 * (1 + tlx.async_task_replica_id()) + tl.arange(0, 128), tl.arange(0, 128))
            tlx.cluster_barrier()
        with tlx.async_task(num_warps=1):
            tlx.cluster_barrier()


def test_idle_warps_beside_copies_that_share_code() -> None:
    module = build(with_copies.__tlxc_source__, with_copies.signature(), SM90)
    run_passes(module, SM90, until="tasks", check=True)
    (op,) = regions(module)
    assert op.attrs["copies"] == (1, 2, 1, 1, 1) and module.attrs["total_warps"] == 16
    assert (op.attrs["start_warp"], op.attrs["num_warps"]) == ((0, 4, 12, 13, 14), (4, 4, 1, 1, 2))
