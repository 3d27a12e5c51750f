"""Host time of one launch of a kernel with six arguments, beside `torch.add` and raw cuda.bindings.

Median over samples of 400 launches back to back; the queue is drained between samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import _harness

import tlxc
from tlxc import tl

LAUNCHES, SAMPLES = 400, 30


@tlxc.kernel
def six_arguments(x: tl.ptr(tl.float32), y: tl.ptr(tl.float32), z: tl.ptr(tl.float32), n, stride, offset):
    """Stores nothing: every program lies past the end."""
    index = tl.program_id(0) * stride + offset
    if index > n:
        tl.store(z + index, tl.load(x + index) + tl.load(y + index))


def raw_launch(compiled: Any, arguments: tuple[Any, ...]) -> Callable[[], None]:
    """cuda.bindings with everything that can be prepared prepared."""
    import ctypes

    import torch
    from cuda.bindings import driver

    _, library = driver.cuLibraryLoadData(compiled.asm["cubin"], [], [], 0, [], [], 0)
    _, kernel = driver.cuLibraryGetKernel(library, compiled.name.encode())
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = compiled.metadata["threads"], 1, 1
    config.hStream = torch.cuda.current_stream().cuda_stream
    kinds = [ctypes.c_uint64 if p["type"].startswith("ptr") else ctypes.c_int32 for p in compiled.metadata["params"]]
    values = [k(a.data_ptr() if hasattr(a, "data_ptr") else a) for k, a in zip(kinds, arguments)]
    packed = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    function = driver.CUfunction(int(kernel))
    address = ctypes.addressof(packed)

    def launch() -> None:
        (status,) = driver.cuLaunchKernelEx(config, function, address, 0)
        assert status == 0, status

    launch.keep = (library, values, packed)  # type: ignore[attr-defined]
    return launch


def main() -> None:
    import torch

    x, y, z = (torch.zeros(1024, device="cuda") for _ in range(3))
    arguments = (x, y, z, 7, 3, 11)
    compiled = six_arguments[(1,)](*arguments)
    contestants = {
        "tlxc": lambda: six_arguments[(1,)](*arguments),
        "cuda.bindings": raw_launch(compiled, arguments),
        "torch.add": lambda: torch.add(x, y, out=z),
    }
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(SAMPLES):
        for name, call in contestants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                call()
            samples[name].append(1e6 * (time.perf_counter() - start) / LAUNCHES)
    _harness.write("launch", [_harness.record("launch", "6 arguments", "host time", "us", samples)])


if __name__ == "__main__":
    main()
