"""`maxnreg`, the registers that a thread may use at most: from the signature to the PTX, and what it leaves alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tlxc
from tlxc import tl
from tlxc.compiler import Compiled, compile_kernel
from tlxc.frontend.signature import Signature
from tlxc.targets import all_targets, get_target


@tlxc.kernel
def total(x: tl.ptr(tl.float32, align=16), y: tl.ptr(tl.float32), BLOCK: tl.constexpr = 8192):  # type: ignore[no-untyped-def, valid-type]
    """All values of a row are in registers until their sum is known."""
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(y + tl.arange(0, BLOCK), values * tl.sum(values, axis=0))


def compiled(maxnreg: int | None, target: str = "sm_90", num_warps: int = 4, **constants: Any) -> Compiled:
    signature = replace(total.signature(num_warps, **constants), maxnreg=maxnreg)
    return compile_kernel(total.__tlxc_source__, signature, get_target(target))


def bounds(made: Compiled) -> list[str]:
    """The launch bounds of the PTX."""
    return re.findall(r"^\.(?:maxntid|maxnreg|minnctapersm) .*$", str(made.asm["ptx"]), re.MULTILINE)


@pytest.mark.parametrize("target", [target.name for target in all_targets() if target.vendor == "nvidia"])
def test_the_ptx_has_the_limit(target: str) -> None:
    free, limited = compiled(None, target), compiled(40, target)
    assert bounds(free) == [".maxntid 128", ".minnctapersm 1"]
    assert bounds(limited) == [".maxntid 128", ".maxnreg 40"]
    assert free.registers is not None and limited.registers is not None
    assert free.registers > 64 and limited.registers <= 40
    assert (free.metadata["maxnreg"], limited.metadata["maxnreg"]) == (None, 40)
    assert free.metadata["spill_bytes"] == 0 < limited.metadata["spill_bytes"]


@pytest.mark.parametrize(("num_warps", "limit"), [(32, 64), (16, 128), (8, 200)])
def test_a_cta_always_fits_on_an_sm(num_warps: int, limit: int) -> None:
    """A limit above what an SM has for each thread of the CTA would allow code that cannot be launched."""
    made = compiled(200, num_warps=num_warps, BLOCK=131072)
    assert bounds(made) == [f".maxntid {32 * num_warps}", f".maxnreg {limit}"]
    assert made.registers is not None and 32 * num_warps * made.registers <= get_target("sm_90").registers_per_sm


@pytest.mark.parametrize("target", [target.name for target in all_targets() if target.vendor == "amd"])
def test_amd_targets_refuse_it(target: str) -> None:
    with pytest.raises(tlxc.CompileError) as error:
        compiled(64, target, BLOCK=256)
    assert "error: maxnreg is an option of NVIDIA targets\n" in str(error.value)
    assert str(error.value).endswith(
        f"\n  found: maxnreg=64 for target {target}\n"
        "  allowed: maxnreg=None on AMD targets\n"
        "  fix: leave maxnreg out where the target is AMD's"
    )


def test_only_the_launch_bounds_differ() -> None:
    free, limited = (str(compiled(maxnreg).asm["llvm"]) for maxnreg in (None, 64))
    assert limited == free.replace('"nvvm.minctasm"="1"', '"nvvm.maxnreg"="64"') != free


def test_the_emulator_runs_limited_code() -> None:
    from tlxc.emulator import launch

    made = compiled(64, BLOCK=512)
    x, y = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    launch(str(made.asm["llvm"]), (1, 1, 1), made.metadata["threads"], [x, y], made.shared)
    assert np.array_equal(y, x * x.sum())


def test_a_signature_has_no_limit_of_its_own() -> None:
    assert Signature(()).maxnreg is None and total.signature() == total.signature(maxnreg=None)
