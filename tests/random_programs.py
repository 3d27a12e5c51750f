"""Random kernels: elementwise chains, conversions, reductions, changes of shape, masks, loops, branches, products.

`generate(seed)` gives one, as the text of a Python module with one kernel, and arguments; the same for a seed on every
machine.  Every kernel is defined by docs/numerics.md on all its inputs, which hold special values: divisors and shift
counts are kept in range, indices inside their arrays.  Where floats are added up they are mostly small integers, so
that most programs have one right answer, bit for bit.

    python tests/random_programs.py 17                  prints the program of seed 17
    python tests/random_programs.py 0 500               runs seeds 0 to 499 in emulator and simulator, for sm_90
    python tests/random_programs.py 0 500 gfx950        or for another target, or on the `gpu`
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numeric.agreement import NOTES
from numeric.support import emulate, launch_on_gpu
from random_kernels.control import product, statement
from random_kernels.elementwise import HELPERS
from random_kernels.memory import load, store
from random_kernels.shapes import powers
from random_kernels.writer import Shape, Val, Writer

EXTENTS = (1, 2, 4, 8, 16, 16, 32, 32, 64, 3, 5, 12, 24, 40)
TALL = ((64, 64), (128, 32), (16, 128), (96, 32), (256, 8), (8, 192))


@dataclass(frozen=True)
class RandomProgram:
    """`arguments` by name and in order: arrays, or an array and the byte where the parameter begins, of which `out...`
    are written, and numbers."""

    seed: int
    text: str
    arguments: dict[str, Any]
    grid: tuple[int]
    num_warps: int
    matrix: bool  # has products, which no AMD target computes yet

    def kernel(self, folder: Path) -> Any:
        """The kernel, from a file in `folder`."""
        path = folder / f"random_program_{self.seed}.py"
        path.write_text(self.text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.program


def has_products(seed: int) -> bool:
    """A fifth of the programs."""
    return seed % 5 == 4


def generate(seed: int) -> RandomProgram:
    w = Writer(seed)
    shape = _shape(w)
    if has_products(seed):
        shape = (16 * w.num_warps, w.random.choice((16, 32, 64)))
        product(w, *shape)
    for _ in range(w.random.choice((1, 2, 3))):
        load(w, w.random.choice((shape, shape, tuple(1 if w.chance(0.5) else n for n in shape))))
    if w.chance(0.4):
        load(w, ())
    for _ in range(w.random.randint(6, 20)):
        statement(w)
    for v in _results(w):
        store(w, v)
    head = ["import tlxc", "from tlxc import tl, tlx", "", "", HELPERS, "", "@tlxc.kernel"]
    arguments = {**w.arrays, **w.outs, **w.numbers}
    lines = [*head, f"def program({', '.join(arguments)}):", "    pid = tl.program_id(0)", *w.lines, ""]
    return RandomProgram(seed, "\n".join(lines), arguments, (w.programs,), w.num_warps, w.matrix)


def _results(w: Writer) -> list[Val]:
    """What nothing else was made of, and the last of all; at most ten."""
    uses = Counter(re.findall(r"\bv\d+\b", "\n".join(w.lines)))
    return [v for v in w.known if uses[v.name] == 1 or v in w.known[-2:]][-10:]


def _shape(w: Writer) -> Shape:
    rank = w.random.choice((1, 2, 2, 2, 3))
    if rank == 1:
        return (w.random.choice((1, 16, 64, 96, 128, 256, 512, 1024, 40)),)
    if rank == 3:
        return w.random.choice((powers(w, 256), (3, 8, 20), (2, 5, 32), (4, 16, 12)))
    return w.random.choice(TALL) if w.chance(0.25) else (w.random.choice(EXTENTS), w.random.choice(EXTENTS))


def copies(program: RandomProgram) -> dict[str, Any]:
    """Its arguments, for one run."""
    return {name: _copied(value) for name, value in program.arguments.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return value[0].copy(), value[1]
    return value.copy() if isinstance(value, np.ndarray) else value


def run(program: RandomProgram, folder: Path, target: str = "sm_90") -> dict[str, Any]:
    """Runs a program in the emulator for `target`, or on the GPU; both compare what comes out with the simulator."""
    kernel, args = program.kernel(folder), copies(program)
    if target == "gpu":
        launch_on_gpu(kernel, program.grid, num_warps=program.num_warps, **args)
    else:
        emulate(kernel, program.grid, num_warps=program.num_warps, target=target, **args)
    return args


def main(first: int, count: int, target: str = "sm_90") -> int:
    """Runs seeds and says which fail."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                if not (has_products(seed) and target.startswith("gfx")):
                    run(generate(seed), Path(folder), target)
            except Exception as error:
                failed.append(seed)
                print(f"seed {seed}: {''.join(traceback.format_exception_only(error))[:1500]}", flush=True)
    print(f"{count - len(failed)} of {count} run: {dict(NOTES)}; others: {failed}")
    return len(failed)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(generate(int(sys.argv[1])).text)
    else:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]) > 0)
