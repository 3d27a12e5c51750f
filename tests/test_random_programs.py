"""Random programs of fixed seeds: the emulator, the simulator and, with a device, the GPU agree on each.

A part of the seeds here, for time; `python tests/random_programs.py 0 500` runs all of them without a GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_programs import RandomProgram, generate, has_products, run

SEEDS = 500
ON_EMULATOR = range(0, SEEDS, 4)
ON_AMD = [seed for seed in range(2, SEEDS, 12) if not has_products(seed)]


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
    for name, value in a.arguments.items():
        np.testing.assert_array_equal(*(x[0] if isinstance(x, tuple) else x for x in (value, b.arguments[name])))


def test_programs_vary() -> None:
    """Every statement of the generator and every dtype occurs, and a fifth of the programs has products."""
    programs: list[RandomProgram] = [generate(seed) for seed in range(SEEDS)]
    text = "\n".join(p.text for p in programs)
    for needle in (
        "tl.dot tl.sum tl.max tl.min tl.where tl.minimum tl.trans tl.permute tl.reshape tl.join tl.split "
        "tl.broadcast_to tl.cdiv tl.exp tl.sqrt tl.atomic_add local_trans local_slice tl.static_range while if else: "
        "not // % / << >> & ^ ~ mask= other= keep_dims= dtype= sorted_pair None"
    ).split():
        assert text.count(needle) >= 10, needle
    for dtype in "int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32".split():
        assert text.count(f".to(tl.{dtype})") >= 20, dtype
    assert [p.seed for p in programs if p.matrix] == [seed for seed in range(SEEDS) if has_products(seed)]
