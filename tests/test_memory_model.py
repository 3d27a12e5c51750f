"""Rules of docs/memory_model.md: what the bytes of a copy tell, and whose proxy fence covers what."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import memory_kernels as kernels
import numpy as np
import pytest
from kernels import block, integers, nothing

import tlxc

Launch = Callable[[], None]
SCHEDULES = [("random", 0), ("random", 1), ("round-robin", 2), ("adversarial", 3)]


def line(kernel: Any, mark: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}"))


def told(arrive: int) -> tuple[Launch, Any, Any]:
    x, y, out = integers(1, 64), integers(2, 64), nothing(64)
    return lambda: kernels.told_by_a_copy[1](x, block(y, 64), out, arrive), out, x + y


def rounds() -> tuple[Launch, Any, Any]:
    x, out = integers(1, 2, 4, 64), nothing(2, 4, 64)
    return lambda: kernels.two_rounds_of_async_stores[2](x, out, 64, ctas_per_cga=(2, 1, 1)), out, x[::-1]


def neighbour(here: bool, there: bool) -> tuple[Launch, Any, Any]:
    x, out = integers(1, 2, 64), nothing(2, 64)
    described = block(out.reshape(-1), 64)
    launch = lambda: kernels.stored_for_the_neighbour[2](x, described, here, there, ctas_per_cga=(2, 1, 1))  # noqa: E731
    return launch, out, x[::-1]


def products(fence: bool) -> tuple[Launch, Any, Any]:
    x, out = integers(1, 2, 64, 16, dtype=np.float16), nothing(2, 64, 16)
    wanted = np.broadcast_to(x[::-1].astype(np.float32).sum(-1, keepdims=True), out.shape)
    return lambda: kernels.multiplied_there[2](x, out, fence, ctas_per_cga=(2, 1, 1)), out, wanted


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize(
    "make",
    [lambda: told(1), rounds, lambda: neighbour(False, True), lambda: neighbour(True, True), lambda: products(True)],
)
def test_clean(make: Callable[[], tuple[Launch, Any, Any]], schedule: str, seed: int) -> None:
    launch, out, wanted = make()
    with tlxc.simulate(seed=seed, schedule=schedule):
        launch()
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
def test_bytes_tell_nothing_of_what_the_issuer_did(schedule: str, seed: int) -> None:
    with pytest.raises(tlxc.SimulationError) as caught, tlxc.simulate(seed=seed, schedule=schedule):
        told(0)[0]()
    report = caught.value.report  # type: ignore[attr-defined]
    assert report.kind == "race"
    assert report.lines[:2] == [line(kernels.told_by_a_copy, "read"), line(kernels.told_by_a_copy, "write")]
    assert (
        "the second side waited for the bytes of a copy that was issued after the first access: they tell of the copy, "
        "not of what its issuer did before; an arrival does" in report.notes
    )


@pytest.mark.parametrize("here", [False, True])
def test_a_fence_covers_the_memory_of_its_own_cta(here: bool) -> None:
    with pytest.raises(tlxc.SimulationError) as caught, tlxc.simulate():
        neighbour(here, False)[0]()
    report = caught.value.report  # type: ignore[attr-defined]
    assert report.kind == "missing-proxy-fence"
    assert report.lines[:2] == [
        line(kernels.stored_for_the_neighbour, "copy"),
        line(kernels.stored_for_the_neighbour, "send"),
    ]
    assert (
        "a store to the shared memory of another CTA is seen by TMA and wgmma there only after fence_async_shared by a "
        "task of that CTA: the fence covers the memory of the CTA that executes it" in report.notes
    )


def test_bytes_of_st_async_need_a_fence() -> None:
    """st.async writes by the generic proxy."""
    with pytest.raises(tlxc.SimulationError) as caught, tlxc.simulate():
        products(False)[0]()
    report = caught.value.report  # type: ignore[attr-defined]
    assert report.kind == "missing-proxy-fence"
    assert report.lines[:2] == [line(kernels.multiplied_there, "multiply"), line(kernels.multiplied_there, "send")]


def test_no_fence_of_shared_memory_covers_global_memory() -> None:
    x, room, out = integers(1, 64), nothing(64), nothing(64)
    with pytest.raises(tlxc.SimulationError) as caught, tlxc.simulate():
        kernels.through_global_memory[1](x, room, block(room, 64), out)
    report = caught.value.report  # type: ignore[attr-defined]
    assert report.kind == "missing-proxy-fence"
    assert report.lines[:2] == [line(kernels.through_global_memory, mark) for mark in ("copy", "write")]
    assert (
        "a generic write to global memory is seen by TMA in the same launch only after a proxy fence of global memory, "
        "which the language does not have: store it by TMA, or load it with tl.load" in report.notes
    )
