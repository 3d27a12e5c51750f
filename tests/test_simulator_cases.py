"""The cases of the numeric tests in the simulator: the same values, and no report under any schedule that is tried."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from numeric.cases import ASYNC_CASES, TILE_FAMILIES
from numeric.support import Case, In, InOut, Out, _check, _memory

import tlxc

# Every async case, and of tile cases an even sample.
TILE_CASES = [case for family in TILE_FAMILIES.values() for case in family.cases()]
SAMPLE = [case for case in TILE_CASES if zlib.crc32(case.id.encode()) % 6 == 0]


def run_simulated(case: Case, seed: int = 0, schedule: str = "random") -> None:
    """Launches a case on NumPy arrays and checks memory."""
    launch = case.launch(big=False)
    memories = {name: _memory(v, 0) for name, v in launch.args.items() if isinstance(v, (In, Out, InOut))}
    after = {name: aligned(memory) for name, (memory, _) in memories.items()}
    args: dict[str, Any] = dict(launch.args)
    for name, (_, start) in memories.items():
        buffer = launch.args[name]
        data = buffer.data
        view = after[name][start : start + data.nbytes].view(data.dtype).reshape(data.shape)
        args[name] = view
        if buffer.block is not None:
            args[name] = tlxc.TensorDescriptor.from_tensor(view, buffer.block, buffer.padding)
    with tlxc.simulate(seed=seed, schedule=schedule) as sim:
        case.kernel[launch.grid](**args, num_warps=case.num_warps, ctas_per_cga=case.cluster)
    assert not sim.reports
    _check(launch, memories, after)


def aligned(memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that starts at a multiple of 256 bytes."""
    room = np.empty(memory.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    out = room[start : start + memory.nbytes]
    out[:] = memory
    return out


@pytest.mark.parametrize("case", ASYNC_CASES, ids=lambda case: case.id)
def test_async(case: Case) -> None:
    run_simulated(case)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.id)
def test_tile(case: Case) -> None:
    run_simulated(case)
