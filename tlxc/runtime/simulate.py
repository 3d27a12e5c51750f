"""Launches in the simulator: ordinary calls of kernels on NumPy arrays and CPU tensors.

`active` is what launches go to while a `with tlxc.simulate()` block is open, or always with `TLXC_SIMULATE=1`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlxc.errors import TlxcError
from tlxc.runtime.arrays import is_array, is_numpy
from tlxc.runtime.descriptor import TensorDescriptor
from tlxc.runtime.fake import is_void
from tlxc.runtime.grid import check_cluster, extents
from tlxc.runtime.progress import PATIENCE, progress
from tlxc.runtime.tokens import as_python
from tlxc.runtime.untraced import untraced

if TYPE_CHECKING:
    from types import TracebackType

    from tlxc.runtime.kernel import Kernel
    from tlxc.simulator import Extent, Program, Report, Schedule
    from tlxc.simulator.timeline import Timeline
    from tlxc.targets import Target

active: Simulation | None = None


class Simulation:
    """A context in which launches are simulated and checked: see `simulate`.

    reports: what was found; the first of a launch is also raised, as a `SimulationError`.  findings:
    what the launches covered, and notes on what is odd.  timeline: what happened when, of launches that are traced.
    """

    def __init__(
        self,
        seed: int = 0,
        schedule: str = "random",
        target: str | Target = "sm_90",
        trace: str | os.PathLike[str] | None = None,
    ) -> None:
        from tlxc.simulator import Findings
        from tlxc.targets import get_target

        self.seed, self.schedule = seed, schedule
        self.target = get_target(target) if isinstance(target, str) else target
        self.timeline: Timeline | None = None
        self._trace = None if trace is None else Path(trace)
        if self._trace is not None:
            from tlxc.simulator.timeline import Timeline, form_of

            form_of(self._trace)
            if schedule != "random":
                raise TlxcError(
                    f"The schedule is {schedule!r}, but a trace is made on the clock of the target's time model; leave "
                    "`schedule` out."
                )
            self.timeline = Timeline(self.target)
        self.reports: list[Report] = []
        self.findings = Findings()
        self._before: Simulation | None = None

    def __enter__(self) -> Simulation:
        global active
        self._before, active = active, self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global active
        active = self._before
        if self.timeline is not None and self._trace is not None:
            from tlxc.simulator.timeline import write

            write(self.timeline, self._trace)

    @untraced
    def launch(self, kernel: Kernel, grid: Any, /, *args: Any, **kwargs: Any) -> None:
        """Runs one grid to its end; raises `SimulationError` where it does something wrong."""
        if is_void(kernel.name, (*args, *kwargs.values())):
            return
        made = prepare(self.target, kernel, grid, args, kwargs)
        if made is not None:
            self.run(made)

    @property
    def notes(self) -> list[Report]:
        """What was found odd and is not wrong, as equal values that several CTAs store."""
        return list(self.findings.notes.values())

    def shown(self, label: str, ctas: int) -> AbstractContextManager[Callable[[int], None]]:
        """The bar of a launch that takes long."""
        return progress(ctas, label, PATIENCE)

    def chooser(self) -> Schedule:
        """Who goes when, in one launch."""
        from tlxc.simulator import Schedule

        return Schedule(self.schedule, self.seed)

    def run(self, launch: Launch, program: Program | None = None) -> None:
        """Runs a launch that was prepared; `program` in place of its own."""
        from tlxc.simulator import SimulationError, simulate_grid

        program = program or launch.program
        with self.shown(f"{program.module.name}, CTAs", math.prod(launch.grid)) as done:
            self.findings.ended = partial(done, 1)
            try:
                simulate_grid(
                    program,
                    self.target,
                    launch.grid,
                    launch.values,
                    launch.arrays,
                    self.chooser(),
                    self.findings,
                    self.timeline,
                )
            except SimulationError as error:
                self.reports.append(error.report)
                raise


@dataclass(frozen=True)
class Launch:
    """A kernel after all passes, with what it is launched on."""

    program: Program
    grid: tuple[int, int, int]
    values: Mapping[str, Any]
    arrays: Sequence[Extent]


def prepare(target: Target, kernel: Kernel, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Launch | None:
    """The launch that a call of a kernel means; None for an empty grid."""
    version, arguments, bound = kernel.ahead(args, kwargs, _stand_for)
    sizes = extents(grid(_plain(arguments)) if callable(grid) else grid)
    if 0 in sizes:
        return None
    check_cluster(sizes, bound.signature.cluster)
    names = [name for name, _ in bound.signature.arguments]
    values = {name: _passed(name, arguments[name]) for name in names}
    arrays = [extent for name in names for extent in _extents(name, arguments[name])]
    return Launch(_program(version, bound, target), sizes, values, arrays)


def simulate(
    seed: int = 0,
    schedule: str = "random",
    target: str | Target = "sm_90",
    trace: str | os.PathLike[str] | None = None,
) -> Simulation:
    """`with tlxc.simulate() as sim:` runs the kernels launched inside on the CPU, on NumPy arrays and CPU tensors, and
    checks them: races, missing fences, wrong phases and counts, deadlocks, accesses out of bounds.

    seed: of everything that is chosen, the order of CTAs, tasks and engines.  schedule: "random", "round-robin" or
    "adversarial".  target: what the kernels are compiled for.  trace: a file ending in .json (for Perfetto), .html or
    .svg, written at the end of the block: the timeline of the launches by the target's time model, which then is the
    schedule.
    """
    return Simulation(seed, schedule, target, trace)


class HostArray:
    """A NumPy array, looking like a tensor to the binder."""

    __slots__ = ("array", "dtype", "shape")

    def __init__(self, array: Any) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def get_device(self) -> int:
        return -1


def _stand_for(value: Any) -> Any:
    return HostArray(value) if is_numpy(value) else value


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they were given."""
    return {name: v.array if isinstance(v, HostArray) else v for name, v in arguments.items()}


_programs: dict[Any, Program] = {}


def _program(version: Any, bound: Any, target: Target) -> Program:
    """The kernel after all passes, once a specialisation."""
    from tlxc.codegen.generate import check_supported
    from tlxc.compiler import build, check_launch, errors_at, run_passes
    from tlxc.simulator import Program

    key = (version.digest, target.name, *bound.identity)
    found = _programs.get(key)
    if found is None:
        module = build(version.source, bound.signature, target)
        with errors_at(version.source):
            check_launch(module, target)
            check_supported(module, target)
            # Without `copies` it is known which buffer each copy of a task takes.
            run_passes(module, target, without=("breakpoints", "copies"))
        found = _programs[key] = Program(module, target.vendor)
    return found


def _passed(name: str, value: Any) -> Any:
    """An argument as the simulator takes it: numbers, addresses, descriptors."""
    if isinstance(value, TensorDescriptor):
        from tlxc.simulator import Descriptor

        return Descriptor(name, value.address, tuple(value.shape), tuple(value.strides), value.padding)
    return value.data_ptr() if is_array(value) else as_python(value)


def _extents(name: str, value: Any) -> Sequence[Extent]:
    """The memory of an argument."""
    from tlxc.simulator import Extent

    array = value.base if isinstance(value, TensorDescriptor) else value
    if isinstance(array, HostArray):
        array = array.array
    if is_numpy(array):
        shape, strides, size = array.shape, array.strides, array.itemsize
        start, writeable = int(array.ctypes.data), bool(array.flags.writeable)
    elif is_array(array):
        size = array.element_size()
        shape, strides = tuple(array.shape), [s * size for s in array.stride()]
        start, writeable = int(array.data_ptr()), True
    else:
        return ()
    if 0 in shape:
        return ()
    steps = [(n - 1) * s for n, s in zip(shape, strides)]
    low, high = sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)
    return (Extent(name, start + low, high - low + size, size, array, writeable),)


if os.environ.get("TLXC_SIMULATE", "") not in ("", "0"):
    active = Simulation()
