"""Ids of named barriers that are known at run time only: what bounds them, and that the compiler keeps off them."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.codegen.generate import generate
from tlxc.compiler import build, run_passes
from tlxc.errors import CompileError
from tlxc.passes.named_barriers import taken_barriers
from tlxc.targets import get_target

SM90 = get_target("sm_90")


@tlxc.kernel
def meets(x: tl.ptr(tl.float32), n: tl.int32, BOUND: tl.constexpr, TASKS: tl.constexpr):
    for i in range(n):
        which = tl.load(x + i).to(tl.int32)
        if BOUND == "and":
            which = 8 + (which & 7)
        elif BOUND == "low":
            which = which & 7
        elif BOUND == "where":
            which = tl.where(which > 0, 3, 5)
        elif BOUND == "rem":
            which = 5 + which % 4
        elif BOUND == "trip":
            which = 2 + i % 4
        elif BOUND == "one":
            which = which * 0 + 16
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tlx.named_barrier_wait(which, 128)
            with tlx.async_task(num_warps=2, replicate=TASKS):
                tlx.named_barrier_wait(1, 64)
                tl.store(x + tl.arange(0, 64), tl.load(x + tl.arange(0, 64)) + 1)


def compiled(bound: str, tasks: int = 1) -> Any:
    module = build(meets.__tlxc_source__, meets.signature(BOUND=bound, TASKS=tasks), SM90)
    run_passes(module, SM90, check=True)
    return module


@pytest.mark.parametrize(
    ("bound", "ids"),
    [("and", range(8, 16)), ("where", range(3, 6)), ("rem", range(2, 9)), ("trip", range(2, 6))],
)
def test_arithmetic_bounds_an_id(bound: str, ids: range) -> None:
    module = compiled(bound)
    assert taken_barriers(module) == {1, *ids}
    own = {int(n) for n in re.findall(r"barrier\.cta\.sync\.aligned\.\w+\(i32 (\d+)", generate(module, SM90))}
    assert own and own.isdisjoint({1, *ids})


@pytest.mark.parametrize(
    ("bound", "found"),
    [("", "an id that nothing bounds"), ("low", "an id from 0 to 7"), ("one", "an id from 16 to 16")],
)
def test_an_id_that_may_be_any_is_refused(bound: str, found: str) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(bound)
    where, line, caret, *rest = str(caught.value).splitlines()
    assert where.endswith(": error: the id of named_barrier_wait may be other than 1 to 15")
    assert line.endswith("|                 tlx.named_barrier_wait(which, 128)")
    assert caret.endswith("^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~")
    assert rest == [
        f"  found: {found}",
        "  allowed: ids that are 1 to 15 whatever they are computed from: the compiler keeps its own barriers off them",
        "  fix: bound it by arithmetic, as in 8 + (i & 7) or tl.where(first, 9, 10)",
    ]


def test_all_possible_ids_count_against_the_tasks() -> None:
    with pytest.raises(CompileError) as caught:
        compiled("and", tasks=6)
    assert str(caught.value).splitlines()[3:] == [
        "  found: 7 tasks of several warps, and 9 named barriers of the kernel",
        "  allowed: 15 together; one of 16 is that of the whole CTA",
        "  fix: use fewer task copies, or tasks of one warp",
    ]
