"""A loop that waits for another thread reads by atomics."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tlxc
from tlxc import tl

FLAGS = {"flag": tl.ptr(tl.int32), "out": tl.ptr(tl.int32)}


def ptx(fn: Any) -> str:
    fn.__annotations__ = FLAGS
    return str(tlxc.kernel(fn).compile("sm_90").asm["ptx"])


def waits(flag, out):  # type: ignore[no-untyped-def]
    while tl.load(flag) == 0:
        pass
    tl.store(out, 1)


def waits_in_a_longer_way(flag, out):  # type: ignore[no-untyped-def]
    n = tl.load(out)
    while (tl.load(flag + 1) & 4) + n < 3:
        n = n + 0
    tl.store(out, n)


def walks(flag, out):  # type: ignore[no-untyped-def]
    n = 0
    while tl.load(flag + n) != 0:
        n += 1
    tl.store(out, n)


def asks_an_atomic(flag, out):  # type: ignore[no-untyped-def]
    while tl.atomic_add(flag, 0, sem="acquire") == 0:
        pass
    tl.store(out, 1)


def writes(flag, out):  # type: ignore[no-untyped-def]
    while tl.load(flag) > 0:
        tl.store(flag, tl.load(flag) - 1)
    tl.store(out, 1)


def test_a_plain_load_is_refused() -> None:
    with pytest.raises(tlxc.CompileError) as error:
        ptx(waits)
    assert str(error.value).partition("error: ")[2] == (
        "a loop waits for memory that a plain load reads\n"
        "   22 |     while tl.load(flag) == 0:\n"
        "      |           ^~~~~~~~~~~~~\n"
        "  found: a condition that only another thread can change\n"
        "  allowed: atomics, which are performed in every turn\n"
        '  fix: read by an atomic, as in `while tl.atomic_add(flag, 0, sem="acquire") == 0`'
    )
    with pytest.raises(tlxc.CompileError, match="a loop waits for memory"):
        ptx(waits_in_a_longer_way)


def test_other_loops_stay() -> None:
    assert re.search(r"ld\.global", ptx(walks)) and "bra" in ptx(walks)
    assert "atom" in ptx(asks_an_atomic) and "bra" in ptx(asks_an_atomic)
    assert len(re.findall(r"ld\.global", ptx(writes))) >= 1
