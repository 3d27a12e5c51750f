"""How machines are compared: what must agree bit for bit, what may differ and by how much; and what was found wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numeric.agreement import TooLong, compare, granule, observe
from numeric.simulated import call_of, simulate
from numeric.support import emulate

import tlxc
from tlxc import tl

Function = Callable[..., Any]


@tlxc.kernel
def sum_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, v)
    tl.store(out + N, tl.sum(v))


@tlxc.kernel
def fused_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, v * v + v)


@tlxc.kernel
def function_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.rsqrt(tl.load(x + i)))


@tlxc.kernel
def product_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    v = tl.load(x + i).to(tl.float16)
    tl.store(out + i, tl.dot(v, v))


@tlxc.kernel
def old_values_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + 1 + i, tl.atomic_add(out + i * 0, tl.load(x + i)))


@tlxc.kernel
def long_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in range(1_000_000):
        v = tl.maximum(v, 1.0)
    tl.store(out + i, v)


def observed(kernel: Any, x: np.ndarray[Any, Any], length: int, **options: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    """What the simulator makes of a call, and its output."""
    n = x.size
    call = call_of(kernel, (1,), {"x": x, "out": np.zeros(length, np.float32), "N": n})
    found = observe(call, **options)
    return found, found.memories[0]["out"].view(np.float32).copy()


INTEGERS = np.arange(256, dtype=np.float32) % 7 - 3
REALS = np.random.default_rng(0).standard_normal(256).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "length", "met"),
    [
        (sum_kernel, 257, "sum"),
        (fused_kernel, 256, "mul"),
        (product_kernel, 256, "dot"),
        (function_kernel, 256, "rsqrt"),
    ],
)
def test_what_is_open_depends_on_the_values(kernel: Any, length: int, met: str) -> None:
    """Sums and products of small integers are exact in every order; functions never are."""
    found, _ = observed(kernel, REALS**2, length)
    assert set(found.open) == {met}
    found, _ = observed(kernel, INTEGERS, length)
    assert set(found.open) == ({met} if kernel is function_kernel else set())


def test_an_element_may_differ_by_what_moves_it() -> None:
    """The sum may; the elements that were only copied may not."""
    found, out = observed(sum_kernel, REALS, 257)
    for at, factor, agrees in ((256, 1 + 2.0**-20, True), (256, 1.25, False), (3, 1 + 2.0**-20, False)):
        other = out.copy()
        other[at] *= np.float32(factor)
        if agrees:
            compare(found, {"out": (other, 0)}, "another")
            continue
        with pytest.raises(AssertionError, match=r"out: 1 of 257 elements differ between another and the simulator"):
            compare(found, {"out": (other, 0)}, "another")


def test_what_is_exact_agrees_to_the_bit() -> None:
    found, out = observed(sum_kernel, INTEGERS, 257)
    compare(found, {"out": (out, 0)}, "another")
    other = out.copy()
    other[256] = np.nextafter(out[256], np.float32(np.inf))
    with pytest.raises(AssertionError, match=r"the first at \(256,\): .* open: nothing"):
        compare(found, {"out": (other, 0)}, "another")
    other[256], other[3] = out[256], -0.0  # INTEGERS[3] is +0
    with pytest.raises(AssertionError, match=r"the first at \(3,\): np.float32\(-0.0\) and np.float32\(0.0\)"):
        compare(found, {"out": (other, 0)}, "another")


def test_old_values_of_atomics_are_not_compared() -> None:
    assert observed(old_values_kernel, INTEGERS, 257)[0].ordered
    assert not observed(sum_kernel, INTEGERS, 257)[0].ordered


def test_a_long_simulation_is_given_up() -> None:
    with pytest.raises(TooLong):
        observed(long_kernel, INTEGERS, 256, seconds=0.2)


def test_granules() -> None:
    assert granule(np.array([6.0, 0.0, -8.0])) == 2 and granule(np.zeros(3)) == np.inf
    assert granule(np.array([2.0**-149], np.float32)) == 2.0**-149 and granule(np.array([1.5, 3e38])) == 0.5


# ------------------------------------------------------------------------------------------------ what was found wrong
@pytest.mark.parametrize("run", [emulate, simulate])
@pytest.mark.parametrize("target", ["sm_90", "gfx950"])
def test_rsqrt_of_subnormals(run: Function, target: str) -> None:
    """AMD's instruction takes them as zeros, in the simulator too."""
    x = np.array([2.0**-140, -(2.0**-140), 0.0, -0.0, 2.0**-126, 4.0, -1.0, np.inf], np.float32)
    out = np.zeros_like(x)
    run(function_kernel, (1,), x, out, N=8, num_warps=1, target=target)
    first = [np.inf, -np.inf] if target == "gfx950" else [2.0**70, np.nan]
    np.testing.assert_allclose(
        out, np.array([*first, np.inf, -np.inf, 2.0**63, 0.5, np.nan, 0.0], np.float32), rtol=1e-6
    )


@tlxc.kernel
def row_sums_kernel(x, rows, columns, total, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(rows + tl.arange(0, M), tl.sum(v, 1))
    tl.store(columns + tl.arange(0, N), tl.sum(v, 0))
    tl.store(total, tl.sum(v))


@pytest.mark.parametrize("run", [emulate, simulate])
@pytest.mark.parametrize("shape", [(16, 32), (1, 8), (5, 4), (64, 64)])
def test_sums_of_negative_zeros(run: Function, shape: tuple[int, int]) -> None:
    """-0 + -0 is -0, however it is added up."""
    m, n = shape
    x, rows, columns, total = (np.full(count, -0.0, np.float32) for count in (m * n, m, n, 1))
    for out in (rows, columns, total):
        out[:] = 1
    run(row_sums_kernel, (1,), x, rows, columns, total, M=m, N=n)
    for out in (rows, columns, total):
        assert (out == 0).all() and np.signbit(out).all()
