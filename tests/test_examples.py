"""The examples compile for every target that has what they use, without spills on the one that they are measured on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import tlxc
from tlxc.cli import find_kernel, load_file, main
from tlxc.compiler import compile_kernel
from tlxc.targets import all_targets, get_target

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("[!_]*.py"))

_WGMMA = {"sm_1": "async_dot on registers does not exist on", "gfx": "does not exist on gfx"}
REFUSED = {  # example -> start of a target's name -> the error
    "matmul": {"gfx": "matrix multiplications are not available on AMD targets yet"},
    "cluster_reduce": {"gfx9": "an mbarrier does not exist on", "gfx12": "ctas_per_cga is an option of NVIDIA targets"},
    "hopper_gemm_ws": _WGMMA,
    "hopper_gemm_batched": _WGMMA,
    "hopper_gemm_streamk": _WGMMA,
    "hopper_gemm_splitk": {"gfx9": "an mbarrier does not exist on"} | _WGMMA,
    "hopper_gemm_skinny": _WGMMA,
    "hopper_gemm_fused": _WGMMA,
    "hopper_gemm_pipelined": _WGMMA,
    "hopper_gemm_cooperative": _WGMMA,
    "hopper_gemm_pingpong": _WGMMA,
    "hopper_attention_ws": _WGMMA,
    "hopper_attention_pipelined": _WGMMA,
    "hopper_attention_guarded": _WGMMA,
    "hopper_attention_persistent": _WGMMA,
}


# What compilations for sm_90 note: kinds of notes
NOTES = {
    "layer_norm": {"narrow"},
    "matmul": {"convert"},
    "softmax": {"narrow"},
    "vector_add": {"narrow"},
}
BY_ATOMICS = ("hopper_attention_persistent", "hopper_gemm_streamk")


@pytest.mark.parametrize("name", NAMES)
def test_is_clean_in_the_simulator(name: str) -> None:
    """What stands in the file itself for `tlxc check`, which loads it as a user does."""
    result = CliRunner().invoke(main, ["check", str(EXAMPLES / f"{name}.py"), "--seeds", "2"])
    assert result.exit_code == 0, result.output
    # Who takes a tile from a counter, and how often a flag is asked for, depends on the schedule.
    assert ("clean in 2 schedules" if name in BY_ATOMICS else "clean: all schedules of these inputs") in result.output


@pytest.mark.parametrize("target", [target.name for target in all_targets()])
@pytest.mark.parametrize("name", NAMES)
def test_compiles_as_the_annotations_declare(name: str, target: str) -> None:
    file = str(EXAMPLES / f"{name}.py")
    kernel, gpu = find_kernel(load_file(file), file, None), get_target(target)
    errors = [text for start, text in REFUSED.get(name, {}).items() if target.startswith(start)]
    if errors:
        with pytest.raises(tlxc.CompileError, match=errors[0]):
            compile_kernel(kernel.__tlxc_source__, kernel.signature(), gpu)
        return
    compiled = compile_kernel(kernel.__tlxc_source__, kernel.signature(), gpu)
    assert compiled.binary.startswith(b"\x7fELF") and compiled.shared <= gpu.max_shared
    if target == "sm_90":
        assert compiled.metadata["spill_bytes"] == compiled.metadata["stack_bytes"] == 0
        # Nothing is assumed of pointers and sizes but what annotations promise.
        assert {note["kind"] for note in compiled.metadata["notes"]} == NOTES.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_runs_as_a_program(name: str) -> None:
    """Without a GPU it compiles and reports; with one, it also checks its results."""
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"\w+ sm_90: \d+ registers, \d+ bytes shared, 0 spills, \d+ threads; ptxas .*", first)
    assert re.fullmatch(r"\w+ was compiled and not run: .*\.|\w+: right on .*", second)
