"""Running a grid: clusters one after the other where they cannot wait for each other, else together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tlxc.errors import InternalError
from tlxc.ir.core import Module
from tlxc.ir.types import Pointer, Scalar
from tlxc.targets import Target

from .findings import Findings
from .global_memory import Extent, GlobalMemory
from .machine import Machine
from .ops.tma import Descriptor
from .program import Program
from .schedule import Schedule
from .values import quiet, storage

if TYPE_CHECKING:
    from .timeline import Timeline

RESIDENT = 132  # CTAs that are alive at once where they may wait for each other


def simulate_grid(
    program: Program,
    target: Target,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
    arrays: Sequence[Extent],
    schedule: Schedule,
    findings: Findings,
    timeline: Timeline | None = None,
) -> None:
    """Simulates a grid; raises `SimulationError` with the first report.

    `arguments`: by name, numbers, addresses in bytes for pointers, `Descriptor`.  `arrays`: what they may touch.
    `schedule`: who goes when.  `findings` collects what is met.  `timeline` records when things happen on the target's
    time model, which then is the schedule.
    """
    module = program.module
    make: Callable[..., Machine] = Machine
    if timeline is not None:
        from .timeline.machine import TimedMachine
        from .timeline.program import TimedProgram

        program, make = TimedProgram(module), partial(TimedMachine, timeline)
    memory = GlobalMemory(arrays)
    values = [_value(p.type, arguments[p.name]) for p in module.params]
    firsts = _clusters(grid, module.cluster)
    order = [firsts[i] for i in schedule.order(len(firsts))]
    with quiet():
        for domain, part in enumerate([firsts] if timeline else _parts(order, program, module)):
            machine = make(
                program, target, memory, grid, values, domain, len(part), schedule, len(firsts) > 1, findings
            )
            for first in part:
                machine.add_cluster(first)
            machine.run()


def _parts(order: list[Any], program: Program, module: Module) -> Iterable[list[Any]]:
    """Clusters that run on one machine."""
    if not program.concurrent:
        return ([first] for first in order)
    x, y, z = module.cluster
    together = max(1, RESIDENT // (x * y * z))
    return (order[i : i + together] for i in range(0, len(order), together))


def _clusters(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The position of the first CTA of each."""
    (x, y, z), (cx, cy, cz) = grid, cluster
    return [(i, j, k) for k in range(0, z, cz) for j in range(0, y, cy) for i in range(0, x, cx)]


def _value(type_: Any, given: Any) -> Any:
    if isinstance(type_, Scalar):
        return storage(type_.dtype).type(given)
    if isinstance(type_, Pointer):
        return storage(type_).type(given)
    if not isinstance(given, Descriptor):
        raise InternalError(f"an argument of type {type_} is {given!r}")
    return given
