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
    """The parsed module, cleaned up: what the tile passes and the assembler do not do themselves.

    A full O1 pipeline costs more than it saves and takes vector loads from shared memory apart.
    """
    llvm = _binding()
    start = time.perf_counter()
    module = llvm.parse_assembly(text)
    parsed = time.perf_counter()
    builder = llvm.create_pass_builder(_machine(target), llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_new_gvn_pass()  # first, so that what is computed twice is combined once
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    passes.run(module, builder)
    timings["llvm parse"] = parsed - start
    timings["llvm optimise"] = time.perf_counter() - parsed
    return module


def emit(text: str, target: Target, timings: dict[str, float], *kinds: str) -> list[Any]:
    """What LLVM makes of one module, in the order of `kinds`: "assembly" (text) or "object" (bytes).

    Emission changes the module, so each kind is emitted from a copy; `timings` gets seconds per stage.
    """
    emitters = {"assembly": "emit_assembly", "object": "emit_object"}
    with _LOCK:
        module = _optimised(text, target, timings)
        copies = [_binding().parse_assembly(str(module)) for _ in kinds[1:]]
        start = time.perf_counter()
        out = [getattr(_machine(target), emitters[kind])(m) for kind, m in zip(kinds, [module, *copies])]
        timings["llvm emit"] = time.perf_counter() - start
    return out
