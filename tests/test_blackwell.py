"""Functions of Blackwell are refused by name, with the reason that holds for the target."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import tlxc
from tlxc import tl, tlx
from tlxc.errors import CompileError
from tlxc.ir.core import Builder, Module
from tlxc.language.context import Context, building
from tlxc.targets import get_target

PRODUCT = "write tl.dot(a, b, acc) on tiles in registers"
TILES = "count tiles in the kernel: for tile in range(tl.program_id(0), tiles, tl.num_programs(0))"
FIXES = {
    "tmem_copy": "keep the data in shared memory: tlx.local_alloc without `storage`, read by tlx.local_load",
    "subslice": "slice a buffer in shared memory with tlx.local_slice(buffer, offset, shape)",
    "tcgen05_commit": PRODUCT,
    "async_dot_scaled": "multiply the operands by their scales first; then " + PRODUCT,
    "clc_create_context": TILES,
    "clc_producer": TILES,
    "clc_consumer": TILES,
}


def _refusal(name: str, target: str) -> str:
    """Of a call in which every argument without a default is None."""
    fn: Any = getattr(tlx, name)
    required = [p for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
    with building(Context(Builder(Module("k")), get_target(target))), pytest.raises(CompileError) as caught:
        fn(*[None] * len(required))
    return str(caught.value)


@pytest.mark.parametrize("name", FIXES)
def test_a_target_without_the_hardware_names_the_feature(name: str) -> None:
    feature = "clc" if name.startswith("clc") else "tcgen05"
    assert _refusal(name, "sm_90") == (
        f"error: {name} does not exist on sm_90\n"
        f"  found: a target without the feature {feature}\n"
        "  fix: compile for a target that has it, or choose the code by target"
    )


@pytest.mark.parametrize("name", FIXES)
def test_a_target_with_the_hardware_says_that_it_is_not_there_yet(name: str) -> None:
    feature = "clc" if name.startswith("clc") else "tcgen05"
    assert _refusal(name, "sm_100") == (
        f"error: {name} is not supported yet\n"
        f"  found: a target that has the feature {feature}, sm_100, for which tlxc has no such code\n"
        f"  fix: {FIXES[name]}"
    )


def test_buffers_in_tensor_memory() -> None:
    with building(Context(Builder(Module("k")), get_target("sm_100"))), pytest.raises(CompileError) as caught:
        tlx.local_alloc((128, 64), tl.float32, 1, tlx.storage_kind.tmem)
    assert str(caught.value) == (
        "error: tensor memory is not supported yet\n"
        "  found: a target that has the feature tcgen05, sm_100, for which tlxc has no such code\n"
        "  fix: leave `storage` out, for shared memory"
    )


def test_launch_control_without_tensor_memory() -> None:
    assert "clc_producer is not supported yet" in _refusal("clc_producer", "sm_120")
    assert "tmem_copy does not exist on sm_120" in _refusal("tmem_copy", "sm_120")


@tlxc.kernel
def commits(x: tl.ptr(tl.float32)):
    done = tlx.alloc_barriers(1)
    tlx.tcgen05_commit(done[0])
    tl.store(x, 1.0)


def test_a_kernel_shows_the_line() -> None:
    with pytest.raises(CompileError) as caught:
        commits.warmup(tl.float32, target="sm_90")
    where, line, caret, *rest = str(caught.value).splitlines()
    assert where.endswith(": error: tcgen05_commit does not exist on sm_90")
    assert line.endswith("|     tlx.tcgen05_commit(done[0])") and caret.endswith("^~~~~~~~~~~~~~~~~~~~~~~~~~~")
    assert rest == [
        "  found: a target without the feature tcgen05",
        "  fix: compile for a target that has it, or choose the code by target",
    ]
