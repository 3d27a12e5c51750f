"""What the examples share: the command line, and the comparison with a reference."""

from __future__ import annotations

import argparse
from typing import Any

import tlxc


def warps_for(block: int) -> int:
    """Warps of a CTA that keeps a row of `block` elements in registers."""
    return max(1, min(8, block // 256))


def expect_close(got: Any, want: Any, dtype: Any) -> None:
    """Relative Frobenius error against a float64 reference, within a few roundings of the output type."""
    error = float((got.double() - want).norm() / want.norm())
    limit = {"torch.float32": 1e-5, "torch.float16": 1e-3, "torch.bfloat16": 8e-3}[str(dtype)]
    if not error <= limit:
        raise SystemExit(f"wrong result for {tuple(got.shape)} {dtype}: relative error {error:.2e}, limit {limit:.0e}")


def _torch_with_gpu() -> Any:
    """torch where it sees a Hopper or newer card, else None."""
    try:
        import torch
    except ImportError:
        return None
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):
        return torch
    return None


def main(kernel: Any, check: Any, target: str = "sm_90", **constants: Any) -> None:
    """`--check` runs `check(torch)` on a GPU; without a GPU the kernel is compiled from its annotations and reported."""
    parser = argparse.ArgumentParser(description=kernel.__doc__)
    parser.add_argument("--check", action="store_true", help="compare with a reference")
    parser.add_argument("--target", default=target, help="what to compile for where there is no GPU")
    arguments = parser.parse_args()
    torch = _torch_with_gpu()
    if torch is not None:
        check(torch)
        print(f"{kernel.name}: right on {torch.cuda.get_device_name()}")
        return
    compiled = kernel.warmup(target=arguments.target, **constants)
    facts = compiled.metadata
    print(
        f"{kernel.name}: no GPU here; compiled for {facts['target']}: {facts['registers']} registers, "
        f"{facts['shared']} bytes shared, {facts['spill_bytes']} bytes spilled, {facts['threads']} threads; "
        f"ptxas {facts['assembler']['version']} at {facts['assembler']['path']} (tlxc {tlxc.__version__})"
    )
