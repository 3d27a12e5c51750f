"""What a compilation says about a kernel that is right but wasteful."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.compiler import compile_kernel
from tlxc.targets import get_target

SM90 = get_target("sm_90")


def tile(p):
    return p + tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]


@tlxc.kernel
def sums(x: tl.ptr(tl.float16, align=16), y: tl.ptr(tl.float32, align=16), n: tl.int32, HOW: tl.constexpr):
    a = tlx.local_alloc((64, 64), tl.float16, 1)[0]
    tlx.local_store(a, tl.load(tile(x)))
    acc = tl.zeros((64, 64), tl.float32) if HOW == "zeros" else tl.load(tile(y))
    if HOW == "before":
        tl.store(tile(y), acc + 1)
    if HOW in ("once", "before"):
        acc = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    elif HOW == "after":
        acc += tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    elif HOW == "loop" or HOW == "zeros":
        for i in range(n):
            tl.store(tile(y) + i * 4096, tlx.async_dot_wait(0, tlx.async_dot(a, a, acc)))
    elif HOW == "swap":
        old = acc
        for _ in range(n):
            acc, old = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc)), acc
        acc += old
    elif HOW == "carried":
        for _ in range(n):
            acc = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    elif n > 0:
        acc = tlx.async_dot_wait(0, tlx.async_dot(a, a, acc))
    else:
        acc *= 2
    tl.store(tile(y), acc)


def notes(how: str) -> list[str]:
    compiled = compile_kernel(sums.__tlxc_source__, sums.signature(HOW=how), SM90)
    return compiled.metadata["notes"]


@pytest.mark.parametrize("how", ["once", "before", "carried", "branch", "zeros"])
def test_an_accumulator_that_a_dot_takes_over_is_not_copied(how: str) -> None:
    assert notes(how) == []


@pytest.mark.parametrize(
    ("how", "text", "why"),
    [
        ("after", "        acc += tlx.async_dot_wait", "by add at test_notes.py:{}"),
        ("loop", "            tl.store(tile(y) + i", "in the next trip of the loop"),
        ("swap", "            acc, old =", "as a variable of a loop or `if`"),
    ],
)
def test_an_accumulator_that_lives_on_is_named(how: str, text: str, why: str) -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(i for i, found in enumerate(lines, 1) if found.startswith(text))
    assert notes(how) == [
        f"test_notes.py:{line}: `acc` is copied before this dot, 32 registers of each thread, since it is used again "
        + why.format(line)
    ]


def test_a_spec_without_allocations_warns() -> None:
    @tlxc.kernel
    def k(x: tl.ptr(tl.float32), USE: tl.constexpr):
        spec = tlx.storage_alias_spec()
        if USE:
            tlx.local_store(tlx.local_alloc((32,), tl.float32, 1, reuse=spec)[0], 1.0)
        tl.store(x, 1.0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        k.warmup(tl.float32, USE=True, target="sm_90")
        assert not caught
        k.warmup(tl.float32, USE=False, target="sm_90")
    line = k.__tlxc_source__.fn.__code__.co_firstlineno + 2
    assert [(str(w.message), w.filename, w.lineno) for w in caught] == [
        (
            "storage_alias_spec: nothing is allocated in it; pass it as tlx.local_alloc(..., reuse=spec), or remove it",
            __file__,
            line,
        )
    ]
