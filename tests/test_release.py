"""Which remote arrivals must order remote stores for the whole cluster."""

from __future__ import annotations

import pytest

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.ir.parser import parse_module
from tlxc.ir.verifier import verify
from tlxc.passes.release import release_remote_stores
from tlxc.targets import get_target

STORE = "remote_store %b, %t, %peer\n"
ARRIVE = "barrier_arrive %bar, _, %peer {count = 1}\n"
LOCAL = "barrier_arrive %bar, _, _ {count = 1}\n"
BARRIER = "cluster_barrier\n"
RELAXED = "cluster_barrier {relaxed = true}\n"


def loop(body: str) -> str:
    return f"for %lo, %n, %one {{\n^(%i: i32):\n{body}yield\n}}\n"


def branch(then: str, other: str = "") -> str:
    return f"if %c {{\n{then}yield\n}} {{\n{other}yield\n}}\n"


def tasks(*bodies: str) -> str:
    n, starts = len(bodies), ", ".join(str(4 * i) for i in range(len(bodies)))
    fours, zeros = ", ".join(["4"] * n), ", ".join(["0"] * n)
    attrs = f"num_warps = ({fours}), start_warp = ({starts}), num_regs = ({zeros}), replica = ({zeros})"
    return f"async_tasks {{{attrs}}} " + " ".join(f"{{\n{b}}}" for b in bodies) + "\n"


# Each body, and whether its remote arrivals release in the order of the text.
CASES = {
    "nothing stored": (ARRIVE, [False]),
    "store, arrive": (STORE + ARRIVE + ARRIVE, [True, True]),
    "a local arrival": (STORE + LOCAL, []),
    "arrive, store": (ARRIVE + STORE, [False]),
    "covered": (STORE + BARRIER + ARRIVE, [False]),
    "not covered by a relaxed barrier": (STORE + RELAXED + ARRIVE, [True]),
    "stored again": (STORE + BARRIER + STORE + ARRIVE, [True]),
    "the turn before stored": (loop(ARRIVE + STORE), [True]),
    "the turn before stored, covered": (loop(ARRIVE + STORE + BARRIER), [False]),
    "after a loop": (loop(STORE) + ARRIVE, [True]),
    "a loop may not run": (STORE + loop(BARRIER) + ARRIVE, [True]),
    "one branch stored": (branch(STORE) + ARRIVE, [True]),
    "one branch covered": (STORE + branch(BARRIER) + ARRIVE, [True]),
    "both branches covered": (STORE + branch(BARRIER, BARRIER) + ARRIVE, [False]),
    "another task stored": (tasks(STORE, ARRIVE), [True]),
    "no task stored": (tasks(LOCAL, ARRIVE), [False]),
    "after tasks": (tasks(STORE, LOCAL) + ARRIVE, [True]),
}


@pytest.mark.parametrize(("body", "expected"), CASES.values(), ids=CASES)
def test_releases(body: str, expected: list[bool]) -> None:
    head = """
    %lo = constant {value = 0} : i32
    %one = constant {value = 1} : i32
    %c = cmp %n, %lo {pred = "gt"} : i1
    %t = splat %n : tensor<128xi32>
    %b = local_alloc : buffer<128xi32, smem>
    %bar = alloc_barriers {arrive_count = 1} : barrier
    %peer = cluster_rank : i32
    """
    m = parse_module(f"module @k(%n: i32) warps 4 cluster (2, 1, 1) {{\n{head}\n{body}}}\n")
    release_remote_stores(m, get_target("sm_90"))
    verify(m)
    remote = [op for op in m.walk() if op.kind == "barrier_arrive" and op.operands[2] is not None]
    assert [bool(op.attrs.get("release")) for op in remote] == expected
