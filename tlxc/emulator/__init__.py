"""Executes the LLVM IR that code generation emits, all lanes of a CTA at once in NumPy: proof of the generated code
without a GPU, for NVIDIA (NVVM intrinsics and inline PTX) and AMD."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tlxc.emulator.cluster import Cluster
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Program
from tlxc.emulator.memory import GlobalMemory, buffer_address
from tlxc.emulator.module import Function, Module, parse_module
from tlxc.emulator.program import compile_program
from tlxc.emulator.tensormap import TensorMap
from tlxc.emulator.values import LaneValue

__all__ = ["EmulatorError", "TensorMap", "launch"]


def launch(
    llvm_text: str,
    grid: tuple[int, int, int],
    block: int,
    args: Sequence[Any],
    dynamic_shared: int = 0,
    warp_size: int = 32,
    kernel: str | None = None,
    check: bool = True,
    cluster: tuple[int, int, int] | None = None,
    seed: int | None = None,
) -> None:
    """Runs a kernel over `grid` CTAs of `block` threads, one cluster of CTAs after the other, in x, y, z order.

    `args`: NumPy arrays (C-contiguous, any dtype including those of ml_dtypes) become global buffers and are written
    in place; `(array, byte_offset)` points into one; a `TensorMap` is passed as it is; ints and floats are passed by
    value. `dynamic_shared` is in bytes. `kernel` names the kernel where the module has several. With `check`, shared
    memory is checked for races and for reads of bytes nobody wrote; accesses out of bounds or misaligned are errors
    always. `cluster` is needed where the kernel does not declare it. `seed` makes the order of warps and of
    asynchronous copies random, and repeatable.
    Raises EmulatorError, whose text names the LLVM line.
    """
    if warp_size not in (32, 64) or block <= 0 or block % warp_size:
        raise EmulatorError(
            f"A CTA of {block} threads is not a positive multiple of the warp size {warp_size} (32 or 64)."
        )
    program = _compile(llvm_text, kernel, block, warp_size)
    if len(args) != len(program.params):
        raise EmulatorError(f"The kernel {program.name} takes {len(program.params)} arguments, {len(args)} were given.")
    memory = GlobalMemory()
    for index, (name, data) in enumerate(program.constants):
        memory.add_constant(index, name, data)
    memory.add_implicit(grid)
    registers: list[LaneValue | None] = list(program.registers)
    for index, ((slot, dtype), value) in enumerate(zip(program.params, args)):
        registers[slot] = _argument(memory, index, value, dtype, block)
    with np.errstate(all="ignore"):
        shape = _cluster_shape(program, cluster)
        for origin in _clusters(grid, shape):
            group = Cluster(program, memory, grid, shape, origin, seed)
            for _ in range(group.size):
                group.add_cta(list(registers), program.shared_bytes(dynamic_shared), check)
            group.run()


def _cluster_shape(program: Program, given: tuple[int, int, int] | None) -> tuple[int, int, int]:
    declared = program.cluster
    if given and declared and given != declared:
        raise EmulatorError(f"The launch gives clusters of {given} CTAs, the kernel declares {declared}.")
    return given or declared or (1, 1, 1)


def _clusters(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The first CTA of every cluster."""
    if any(c <= 0 or g % c for g, c in zip(grid, cluster)):
        raise EmulatorError(f"The grid {grid} does not divide into clusters of {cluster} CTAs.")
    x, y, z = (range(0, g, c) for g, c in zip(grid, cluster))
    return [(i, j, k) for k in z for j in y for i in x]


def _argument(memory: GlobalMemory, index: int, value: Any, dtype: np.dtype[Any], lanes: int) -> Any:
    """The register contents of one kernel argument."""
    offset = 0
    if isinstance(value, tuple):
        value, offset = value
    if isinstance(value, TensorMap):
        memory.add_map(index, value)
        value = np.uint64(buffer_address(index))
    elif isinstance(value, np.ndarray):
        if dtype != np.uint64:
            raise EmulatorError(f"Argument {index} is an array, but the kernel takes a value of type {dtype} there.")
        memory.add_argument(index, value)
        value = np.uint64(buffer_address(index) + offset)
    elif not isinstance(value, (int, float, np.generic)):
        raise EmulatorError(f"Argument {index} is a {type(value).__name__}; arrays, ints and floats are supported.")
    if dtype.kind in "ui" and not isinstance(value, np.generic):
        value = np.array(int(value) % (1 << 64), np.uint64).astype(dtype)
    return np.full(lanes, value).astype(dtype)


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> Module:
    return parse_module(text)


@functools.lru_cache(maxsize=16)
def _compile(text: str, kernel: str | None, lanes: int, warp_size: int) -> Program:
    module = _parse(text)
    return compile_program(module, _kernel(module, kernel), lanes, warp_size)


def _kernel(module: Module, name: str | None) -> Function:
    kernels = module.kernels
    if name is None and len(kernels) == 1:
        return next(iter(kernels.values()))
    if name not in kernels:
        known = ", ".join(kernels) or "none"
        raise EmulatorError(f"The kernel {name!r} cannot be chosen; the module's kernels are: {known}.")
    return kernels[name]
