"""The third machine: the same calls in the simulator, on aligned copies of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tlxc
from tlxc.runtime.simulate import Launch as Prepared
from tlxc.runtime.simulate import prepare
from tlxc.simulator import Program
from tlxc.targets import get_target

from .support import Array, Blocks, Case, Cluster, In, InOut, Launch, Out, check_memory, memory_of, named_arguments

Memories = dict[str, Array]  # by parameter: the bytes behind an array argument


@dataclass(frozen=True)
class Call:
    """A launch that can be repeated: `memories` holds the bytes of each array before it, and `arguments` gives what the
    kernel takes, given copies of them."""

    kernel: Any
    grid: Sequence[int]
    memories: Memories
    arguments: Callable[[Memories], Mapping[str, Any]]
    num_warps: int = 4
    cluster: Cluster = (1, 1, 1)

    def prepare(self, target: str) -> tuple[Prepared | None, Memories]:
        """Compiled for the simulator, and the copies that a run of it will change."""
        copies = {name: aligned(memory) for name, memory in self.memories.items()}
        options = {"num_warps": self.num_warps, "ctas_per_cga": self.cluster}
        named = {**self.arguments(copies), **options}
        return prepare(get_target(target), self.kernel, tuple(self.grid), (), named), copies


def simulate_call(
    call: Call,
    target: str = "sm_90",
    seed: int = 0,
    schedule: str = "random",
    program: Callable[[Program], Program] = lambda program: program,
) -> Memories:
    """The memories after the call.  A report of the simulator is raised; `program` may replace what runs."""
    launch, copies = call.prepare(target)
    if launch is not None:
        tlxc.simulate(seed, schedule, target).run(launch, program(launch.program))
    return copies


def aligned(memory: Array) -> Array:
    """The bytes of an array, copied to a multiple of 256 bytes."""
    data = np.ascontiguousarray(memory).reshape(-1).view(np.uint8)
    room = np.empty(data.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    out = room[start : start + data.nbytes]
    out[:] = data
    return out


# ---------------------------------------------------------------------------------------------------------- two ways in
def call_of_case(case: Case, launch: Launch, tail: int = 0) -> Call:
    """`tail`: bytes of the guard zone behind each array."""
    buffers = {name: v for name, v in launch.args.items() if isinstance(v, (In, Out, InOut))}
    before = {name: memory_of(v, tail) for name, v in buffers.items()}

    def arguments(copies: Memories) -> Mapping[str, Any]:
        args = dict(launch.args)
        for name, buffer in buffers.items():
            data, start = buffer.data, before[name][1]
            view = copies[name][start : start + data.nbytes].view(data.dtype).reshape(data.shape)
            args[name] = view
            if buffer.block is not None:
                args[name] = tlxc.TensorDescriptor.from_tensor(view, buffer.block, buffer.padding)
        return args

    memories = {name: memory for name, (memory, _) in before.items()}
    return Call(case.kernel, launch.grid, memories, arguments, case.num_warps, case.cluster)


def call_of(
    kernel: Any, grid: Sequence[int], named: Mapping[str, Any], num_warps: int = 4, cluster: Cluster = (1, 1, 1)
) -> Call:
    """A call of `emulate`, with the arrays as they stand now."""
    arrays = {name: array for name, v in named.items() if (array := array_of(v)) is not None}
    first = {id(array): name for name, array in reversed(arrays.items())}  # an array may be passed twice

    def arguments(copies: Memories) -> Mapping[str, Any]:
        memory = {name: copies[first[id(array)]] for name, array in arrays.items()}
        return {name: _passed(v, arrays[name], memory[name]) if name in arrays else v for name, v in named.items()}

    memories = {name: aligned(arrays[name]) for name in first.values()}
    return Call(kernel, grid, memories, arguments, num_warps, cluster)


def array_of(value: Any) -> Array | None:
    """The array behind an argument of `emulate`."""
    if isinstance(value, Blocks):
        return value.array
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return value[0]
    return value if isinstance(value, np.ndarray) else None


def _passed(value: Any, array: Array, memory: Array) -> Any:
    """An argument of `emulate` as one of the kernel, in other memory."""
    if isinstance(value, Blocks):
        size = int(np.prod(value.shape or array.shape)) * value.type.dtype.bytes
        view = memory[value.offset : value.offset + size].view(value.view().dtype).reshape(value.view().shape)
        return tlxc.TensorDescriptor.from_tensor(view, value.block, value.padding)
    offset = value[1] if isinstance(value, tuple) else 0
    return memory[offset:].view(array.dtype)


def simulate(
    kernel: Any,
    grid: Sequence[int],
    *args: Any,
    num_warps: int = 4,
    target: str = "sm_90",
    ctas_per_cga: Cluster = (1, 1, 1),
    **constants: Any,
) -> None:
    """`emulate` in the simulator: NumPy arrays are written in place."""
    named = named_arguments(kernel, args, constants)
    call = call_of(kernel, grid, named, num_warps, ctas_per_cga)
    for name, memory in simulate_call(call, target).items():
        array = array_of(named[name])
        assert array is not None
        array[...] = memory.view(array.dtype).reshape(array.shape)


def run_simulated(case: Case, target: str = "sm_90", seed: int = 0, schedule: str = "random") -> None:
    """Runs a case in the simulator and checks memory."""
    launch = case.launch(big=False)
    before = {name: memory_of(v, 0) for name, v in launch.args.items() if isinstance(v, (In, Out, InOut))}
    check_memory(launch, before, simulate_call(call_of_case(case, launch), target, seed, schedule))
