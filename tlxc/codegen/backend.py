"""LLVM IR text to assembly or object code, through llvmlite.

LLVM ends the process on an instruction the target lacks, so nothing reaches it unchecked.  NVPTX runs at opt 0 with
register coalescing: emission is then linear, and tied wgmma accumulators stay in place.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

from tlxc.targets import Target

_LOCK = threading.Lock()


@cache
def _binding() -> Any:
    """llvmlite's binding with all targets; its options are process-wide and must precede the first target machine."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.set_option("", "-optimize-regalloc=true")
    return llvm


@cache
def _machine(target: Target) -> Any:
    """NVPTX at opt 0 (see above); AMDGPU at opt 3, where instruction selection and scheduling need it."""
    t = _binding().Target.from_triple(target.triple)
    opt = 0 if target.vendor == "nvidia" else 3
    return t.create_target_machine(
        cpu=target.cpu, features=target.llvm_features, opt=opt, reloc="default", codemodel="default"
    )


def _optimised(text: str, target: Target, timings: dict[str, float]) -> Any:
    """The parsed module after the O1 pipeline without unrolling and vectorisers."""
    llvm = _binding()
    start = time.perf_counter()
    module = llvm.parse_assembly(text)
    parsed = time.perf_counter()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(_machine(target), options)
    builder.getModulePassManager().run(module, builder)
    timings["llvm parse"] = parsed - start
    timings["llvm optimise"] = time.perf_counter() - parsed
    return module


def emit_assembly(text: str, target: Target, timings: dict[str, float]) -> str:
    """PTX or AMDGPU assembly."""
    with _LOCK:
        module = _optimised(text, target, timings)
        start = time.perf_counter()
        out: str = _machine(target).emit_assembly(module)
        timings["llvm emit"] = time.perf_counter() - start
    return out


def emit_object(text: str, target: Target, timings: dict[str, float]) -> bytes:
    """A relocatable object (AMDGPU)."""
    with _LOCK:
        module = _optimised(text, target, timings)
        start = time.perf_counter()
        out: bytes = _machine(target).emit_object(module)
        timings["llvm emit"] = time.perf_counter() - start
    return out
