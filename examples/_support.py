"""What the examples share: the command line, the comparison with a reference, and what to do without a GPU."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from tlxc.cli import resource_line
from tlxc.compiler import compile_kernel
from tlxc.runtime.kernel import Kernel
from tlxc.targets import get_target


def warps_for(row_bytes: int) -> int:
    """Warps of a CTA that keeps a row in registers.

    Up to 8 warps, one for each 512 bytes: 16 for a thread, the widest access.  Longer rows give a warp more to do,
    until that is 2 KiB; from there on the warps grow with the row again, up to 16.  Softmax of 8192 x 8192 on H200:
    fp16 takes 70.3 us with 8 warps and 75.4 with 16, fp32 takes 133.7 with 16 and 135.4 with 8.
    """
    return max(1, min(8, row_bytes // 512), min(16, row_bytes // 2048))


@functools.cache
def sm_count(device: Any) -> int:
    """Streaming multiprocessors of a torch device: the CTAs of a persistent kernel that fills it.  Two of the CPU, on
    whose tensors the simulator works."""
    import torch

    if torch.device(device).type == "cpu":
        return 2
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def rows(count: int, *shape: int, dtype: Any = "float16") -> list[Any]:
    """`count` arrays of random numbers in NumPy: what kernels run on without a GPU."""
    import numpy as np

    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32).astype(dtype) for _ in range(count)]


def expect_close(got: Any, want: Any, dtype: Any) -> None:
    """Relative Frobenius error against a float64 reference, within a few roundings of the output type."""
    error = float((got.double() - want).norm() / want.norm())
    limit = {"torch.float32": 1e-5, "torch.float16": 1e-3, "torch.bfloat16": 8e-3}[str(dtype)]
    if not error <= limit:
        raise SystemExit(f"wrong result for {tuple(got.shape)} {dtype}: relative error {error:.2e}, limit {limit:.0e}")


def _torch_with_gpu() -> Any:
    """torch where it sees an NVIDIA GPU of the Hopper generation or newer, else the reason why nothing is run."""
    try:
        import torch
    except ImportError:
        return "torch, which the check needs, is not installed"
    if not (torch.version.cuda and torch.cuda.is_available()):
        return "torch finds no NVIDIA GPU on this machine"
    if torch.cuda.get_device_capability() < (9, 0):
        return f"tlxc supports no {torch.cuda.get_device_name()}"
    return torch


def main(kernel: Kernel, check: Callable[[Any], None], **options: Any) -> None:
    """Compiles the kernel from its annotations with `options` and says what it takes; with --check and a GPU, runs
    `check(torch)`, which raises where a result is wrong."""
    parser = argparse.ArgumentParser(description=kernel.__doc__)
    parser.add_argument("--check", action="store_true", help="compare the results with torch's, where there is a GPU")
    parser.add_argument("--target", default="sm_90", help="what to compile for")
    arguments = parser.parse_args()
    signature = kernel.signature(**options)
    print(resource_line(compile_kernel(kernel.__tlxc_source__, signature, get_target(arguments.target))))
    torch = _torch_with_gpu()
    if isinstance(torch, str):
        print(f"{kernel.name} was compiled and not run: {torch}.")
    elif arguments.check:
        torch.manual_seed(0)
        check(torch)
        print(f"{kernel.name}: right on {torch.cuda.get_device_name()}")
