"""Runs the examples of a kernel in the simulator over several schedules, and says what that covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tlxc.errors import TlxcError
from tlxc.runtime.simulate import Launch, Simulation

if TYPE_CHECKING:
    from tlxc.runtime.kernel import Kernel
    from tlxc.simulator import Report
    from tlxc.targets import Target

# Of four runs two are random: the first run of an example is.
_SCHEDULES = ("random", "adversarial", "random", "round-robin")


@dataclass
class Outcome:
    """What came of one example.  `graphs`: distinct sets of conflicting accesses; `settled`: runs since the last new
    one; `proved`: no branch depends on the schedule, so that a clean run stands for all of them."""

    example: str
    runs: int = 0
    proved: bool = True
    graphs: list[frozenset[Any]] = field(default_factory=list)
    settled: int = 0
    report: Report | None = None
    seed: int = 0
    schedule: str = ""

    @property
    def coverage(self) -> str:
        if self.report is not None:
            return f"a report with seed {self.seed} of the {self.schedule} schedule"
        if self.proved:
            return "clean: all schedules of these inputs"
        graphs = f"{len(self.graphs)} conflict graph{'s' * (len(self.graphs) != 1)}"
        return f"clean in {self.runs} schedules: {graphs}, none new in the last {self.settled}"

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        report = self.report
        return {
            "example": self.example,
            "runs": self.runs,
            "coverage": self.coverage,
            "seed": self.seed if report else None,
            "kind": report.kind if report else None,
            "lines": report.lines if report else [],
            "report": str(report) if report else None,
        }


class _Watched(Simulation):
    """Remembers whether launches leave anything to the schedule."""

    concurrent = False

    def run(self, launch: Launch, program: Any = None) -> None:
        self.concurrent |= launch.program.concurrent
        super().run(launch, program)


def examples_of(kernel: Kernel) -> Sequence[Callable[..., Any]]:
    """The examples of a kernel; a refusal where it has none."""
    if not kernel.examples:
        raise TlxcError(
            f"{kernel.name} has no example to run; decorate a function without parameters that returns (grid, "
            f"arguments) with @{kernel.name}.example."
        )
    return kernel.examples


def launch_example(kernel: Kernel, example: Callable[..., Any]) -> None:
    """The launch that an example describes."""
    grid, arguments = example()
    if isinstance(arguments, Mapping):
        kernel[grid](**arguments)
    else:
        kernel[grid](*arguments)


def check(
    kernel: Kernel, target: Target, seeds: int, first: int = 0, done: Callable[[int], None] = lambda runs: None
) -> Iterator[Outcome]:
    """Each example under `seeds` schedules, from seed `first` on; ends an example at its first report.  `done` is told
    how many runs there are no more to come."""
    for example in examples_of(kernel):
        outcome = Outcome(example.__name__)
        for seed in range(first, first + seeds):
            if not _run(kernel, example, target, seed, outcome):
                done(first + seeds - seed)
                break
            done(1)
        yield outcome


def _run(kernel: Kernel, example: Callable[..., Any], target: Target, seed: int, outcome: Outcome) -> bool:
    """One run; False where there is nothing more to try."""
    from tlxc.simulator import SimulationError

    schedule = _SCHEDULES[seed % len(_SCHEDULES)]
    simulation = _Watched(seed, schedule, target)
    outcome.runs += 1
    try:
        with simulation:
            launch_example(kernel, example)
    except SimulationError as error:
        outcome.report, outcome.seed, outcome.schedule = error.report, seed, schedule
        return False
    outcome.proved &= not simulation.concurrent
    graph = frozenset(simulation.conflicts)
    outcome.settled += 1
    if graph not in outcome.graphs:
        outcome.graphs.append(graph)
        outcome.settled = 0
    return True
