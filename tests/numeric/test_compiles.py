"""Every case of the kinds that run on NVIDIA only, to a cubin: all passes under the verifier, and the assembler.

A case says which ops its kernel contains; so the matrix is known to be complete without running anything.
"""

from __future__ import annotations

import functools
import re

import pytest

from .cases import ASYNC_CASES
from .support import Case, compile_case

_WARNING = re.compile(r"[Ww]arning")


@pytest.mark.parametrize("case", ASYNC_CASES, ids=lambda case: case.id)
def test_assembles(case: Case) -> None:
    built = compile_case(case, "sm_90")
    missing = case.cells - built.cells
    assert not missing, f"the compiled kernel lacks what the case stands for: {sorted(missing)}"
    notes = _notes(built.llvm)
    assert not any(map(_WARNING.search, notes)), f"the assembler has doubts: {notes}"


@functools.lru_cache(maxsize=256)
def _notes(llvm: str) -> tuple[str, ...]:
    from tlxc.codegen.backend import emit
    from tlxc.codegen.nvptx.assemble import assemble
    from tlxc.targets import get_target

    target = get_target("sm_90")
    (ptx,) = emit(llvm, target, {}, "assembly")
    return tuple(assemble(ptx, target.ptxas_arch).notes)
