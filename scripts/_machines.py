"""One launch whose kernel was changed after all passes, in three machines: simulator, emulator, GPU.

A change edits the tile IR that all passes have made, so that what the language inserts or refuses can be left out, and
the same module is then checked, emulated and assembled.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the tiles are small, and threads of BLAS wait for one another
import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "examples")]
sys.path.append(str(ROOT / "benchmarks"))  # last: examples go by the names of benchmarks

from kernels import Call  # noqa: E402

import tlxc  # noqa: E402
from tlxc.compiler import Compiled, assemble_module  # noqa: E402
from tlxc.errors import TlxcError  # noqa: E402
from tlxc.ir.core import Module, Region, clone_op  # noqa: E402
from tlxc.runtime import simulate as runtime  # noqa: E402
from tlxc.runtime.arrays import is_numpy  # noqa: E402
from tlxc.simulator import Program, SimulationError  # noqa: E402
from tlxc.targets import get_target  # noqa: E402

TARGET = "sm_90"
Change = Callable[[Module], None]


def unchanged(module: Module) -> None:
    """No change."""


def options(call: Call) -> dict[str, Any]:
    return {**call.args, "num_warps": call.num_warps, "ctas_per_cga": call.cluster}


def changed_module(call: Call, change: Change) -> tuple[runtime.Launch, Module]:
    """The launch that a call means, and a changed copy of its kernel after all passes."""
    launch = runtime.prepare(get_target(TARGET), call.kernel, call.grid, (), options(call))
    assert launch is not None
    module, mapping = launch.program.module, {}
    copy = dataclasses.replace(module, body=Region(), attrs=dict(module.attrs))
    copy.body.ops = [clone_op(op, mapping) for op in module.body.ops]
    change(copy)
    return launch, copy


# ------------------------------------------------------------------------------------------------ without a GPU
def in_simulator(call: Call, change: Change, seed: int = 0) -> str:
    """`clean`, `wrong values`, or the kind of the report and the lines that it names."""
    launch, module = changed_module(call, change)
    try:
        runtime.Simulation(seed).run(launch, Program(module))
    except SimulationError as error:
        lines = dict.fromkeys(at.line for at in error.report.locations)
        return f"{error.report.kind} at {'lines' if len(lines) > 1 else 'line'} {', '.join(map(str, lines))}"
    return verdict(call)


def verdict(call: Call) -> str:
    return "clean" if np.array_equal(call.out.astype(np.float64), call.wanted.astype(np.float64)) else "wrong values"


def in_emulator(call: Call, change: Change, seed: int | None = None) -> str:
    """`clean`, `wrong values`, or the first line of the error."""
    from tlxc.codegen.generate import generate
    from tlxc.emulator import EmulatorError, launch

    _, module = changed_module(call, change)
    args = [_emulated(call.args[p.name], p.type) for p in module.params]
    threads = int(module.attrs.get("total_warps", module.num_warps)) * 32
    try:
        launch(
            generate(module, get_target(TARGET)), (*call.grid, 1, 1)[:3], threads, args,
            module.attrs.get("shared", 0), cluster=call.cluster, seed=seed,
        )  # fmt: skip
    except EmulatorError as error:
        return next(line for line in str(error).splitlines() if line.strip())
    return verdict(call)


def _emulated(value: Any, type_: Any) -> Any:
    if not isinstance(value, tlxc.TensorDescriptor):
        return value
    from tlxc.codegen.nvptx.boxes import box_of
    from tlxc.emulator import TensorMap

    box, array = box_of(type_), value.base
    return TensorMap(
        array, array.shape[::-1], array.strides[:-1][::-1], box.box[::-1], swizzle=box.swizzle, dtype=array.dtype
    )


def compiled(call: Call, change: Change, cycles: int | None = None, ptx: Mapping[str, str] | None = None) -> Compiled:
    """The changed kernel as a cubin.  `cycles`: after so many a wait traps; `ptx`: replacements in the assembly."""
    from tlxc.codegen.nvptx.assemble import assemble

    _, module = changed_module(call, change)
    made = assemble_module(module, get_target(TARGET), wait_limit=cycles)
    if ptx:
        text = str(made.asm["ptx"])
        for old, new in ptx.items():
            assert old in text, (call.kernel, old)
            text = text.replace(old, new)
        made.asm["ptx"], made.asm["cubin"] = text, assemble(text, get_target(TARGET).ptxas_arch).cubin
    return made


# ------------------------------------------------------------------------------------------------ on a GPU
@dataclasses.dataclass
class Seen:
    """What the card did: of `runs` launches `wrong_runs` left wrong values, in `wrong` of `places`; `error` is what
    CUDA said and `trap` the wait that gave up."""

    runs: int = 0
    wrong_runs: int = 0
    wrong: int = 0
    places: int = 0
    error: str = ""
    trap: str = ""

    def __str__(self) -> str:
        if self.trap:
            return f"trap in launch {self.runs}: {self.trap}"
        if self.error:
            return f"error in launch {self.runs}: {self.error}"
        if self.wrong:
            return f"wrong values in {self.wrong_runs} of {self.runs} runs ({self.wrong} of {self.places} places)"
        return f"right values in {self.runs} runs ({self.places} places)"


class OnCard:
    """A call on device 0.  Places of the result, the rows of its last dimension, are compared by `wrong`."""

    def __init__(self, call: Call, made: Compiled) -> None:
        import torch

        from tlxc.runtime import cuda
        from tlxc.runtime.artifact import CompiledKernel
        from tlxc.runtime.cache import Entry
        from tlxc.runtime.kernel import ready_of

        self.torch, self.call = torch, call
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes the context
        _, arguments, bound = call.kernel.ahead((), options(call), runtime._stand_for)
        code = CompiledKernel(Entry(made.metadata, made.asm), "compiled")
        self.launch = ready_of(code, cuda.device(0), bound).launcher()
        self.memory: dict[int, tuple[Any, Any]] = {}  # by address on the host: (first contents, tensor)
        self.values = [self._value(call.args[name]) for name, _ in bound.signature.arguments]
        self.out = self._tensor(call.out)
        self.wanted = torch.from_numpy(np.ascontiguousarray(call.wanted)).cuda().to(self.out.dtype)
        self.wanted = self.wanted.reshape(self.out.shape)

    def _tensor(self, array: Any) -> Any:
        address = array.ctypes.data
        if address not in self.memory:
            first = self.torch.from_numpy(np.array(array)).cuda()
            self.memory[address] = first, first.clone()
        return self.memory[address][1].view(array.shape)

    def _value(self, value: Any) -> Any:
        if isinstance(value, tlxc.TensorDescriptor):
            return tlxc.TensorDescriptor.from_tensor(self._tensor(value.base), value.block_shape, value.padding)
        return self._tensor(value).data_ptr() if is_numpy(value) else value

    def once(self) -> int:
        """Launches with the first contents of all memory; the number of wrong places."""
        for first, now in self.memory.values():
            now.copy_(first)
        status = self.launch((*self.call.grid, 1, 1)[:3], self.torch.cuda.current_stream().cuda_stream, *self.values)
        if status:
            raise self.call.kernel.refuse(status)
        self.torch.cuda.synchronize()
        bad = (self.out != self.wanted).reshape(-1, self.out.shape[-1])
        return int(bad.any(1).sum())

    @property
    def places(self) -> int:
        return int(self.out.numel() // self.out.shape[-1])

    def run(self, runs: int, seconds: float = float("inf")) -> Seen:
        """Stops at the first error: CUDA is then dead in this process.  At most `runs`, and no more after `seconds`."""
        seen, end = Seen(), time.monotonic() + seconds
        while seen.runs < runs and time.monotonic() < end:
            seen.runs += 1
            try:
                wrong = self.once()
            except (RuntimeError, TlxcError) as error:
                said = tlxc.explain_trap()
                seen.error = str(error).splitlines()[0]
                seen.trap = "" if said.startswith("No ") else said.splitlines()[0].replace(f"{ROOT}/", "")
                return seen
            seen.places += self.places
            seen.wrong += wrong
            seen.wrong_runs += wrong > 0
        return seen


TIMEOUT = 120  # seconds for one process


def in_a_process(script: str, *arguments: str) -> dict[str, Any]:
    """What `script --child ...` prints as JSON: after a trap, CUDA is dead in the process that launched."""
    command = [sys.executable, script, "--child", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"card_said": f"hangs: ended after {TIMEOUT} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"card_said": f"no result: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}"}
    return dict(json.loads(lines[-1]))


# ------------------------------------------------------------------------------------------------ results
def write(name: str, records: list[dict[str, Any]], out: str) -> None:
    """`out`, or benchmarks/results/<name>.json: the records, each with what it ran on."""
    from _harness import environment

    where = environment()
    path = Path(out) if out else ROOT / "benchmarks" / "results" / f"{name}.json"
    path = path / f"{name}.json" if path.is_dir() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{**r, **where} for r in records], indent=1) + "\n")
    print(f"written to {path}")


def put_table(page: Path, name: str, rows: list[list[str]]) -> None:
    """Puts a table between the marks of this name in a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    page.write_text(before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + after, encoding="utf-8")
