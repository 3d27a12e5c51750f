"""Runs the examples of a kernel in the simulator over several schedules, and says what that covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tlxc.errors import Location, TlxcError
from tlxc.runtime.shrink import Shrunk, shrink
from tlxc.runtime.simulate import Launch, Simulation

if TYPE_CHECKING:
    from tlxc.runtime.kernel import Kernel
    from tlxc.simulator import Recorder, Report, Schedule
    from tlxc.targets import Target

# Of four runs two are random: the first run of an example is.
_SCHEDULES = ("random", "adversarial", "random", "round-robin")


@dataclass
class Outcome:
    """What came of one example.  `graphs`: distinct sets of conflicting accesses; `settled`: runs since the last new
    one; `proved`: no branch depends on the schedule, so that a clean run stands for all of them; `shrunk`: of a replay
    that ended with a report; `notes`: what is odd and not wrong; `trips`: how often loops turned."""

    example: str
    runs: int = 0
    proved: bool = True
    graphs: list[frozenset[Any]] = field(default_factory=list)
    settled: int = 0
    report: Report | None = None
    seed: int = 0
    schedule: str = ""
    shrunk: Shrunk | None = None
    notes: list[Report] = field(default_factory=list)
    trips: dict[Location, set[int]] = field(default_factory=dict)

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
            "trips": [
                {"line": loc.line, "callers": [c.line for c in loc.callers], "counts": sorted(counts)}
                for loc, counts in self.trips.items()
            ],
            "notes": [str(note) for note in self.notes],
            "turns": [vars(turn) for turn in self.shrunk.turns] if self.shrunk else None,
        }


class _Watched(Simulation):
    """Remembers whether launches leave anything to the schedule.  `given` in place of the schedule of that name."""

    concurrent = False
    given: Recorder | None = None

    def shown(self, label: str, ctas: int) -> AbstractContextManager[Callable[[int], None]]:
        return nullcontext(lambda steps: None)  # there is one of all runs

    def chooser(self) -> Schedule:
        return self.given or super().chooser()

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


def trips_tried(outcomes: Sequence[Outcome]) -> list[str]:
    """Lines on the loops of a kernel, over all examples."""
    from tlxc.simulator import tried

    together: dict[Location, set[int]] = {}
    for outcome in outcomes:
        for loc, counts in outcome.trips.items():
            together.setdefault(loc, set()).update(counts)
    return tried(together)


def replay(kernel: Kernel, target: Target, seed: int, done: Callable[[int], None] = lambda runs: None) -> list[Outcome]:
    """Each example under the schedule of one seed; where that makes a report, the shortest schedule that does."""
    outcomes = []
    for example, outcome in zip(kernel.examples, check(kernel, target, 1, seed, done)):
        outcomes.append(outcome)
        if outcome.report is not None:
            outcome.shrunk = _shrink(kernel, example, target, outcome)
    return outcomes


def _shrink(kernel: Kernel, example: Callable[..., Any], target: Target, outcome: Outcome) -> Shrunk | None:
    """None where the report does not come again: the example is not the same at each call."""
    from tlxc.simulator import Recorder

    simulation = _Watched(target=target)

    def play(schedule: Recorder) -> Report | None:
        simulation.given = schedule
        return _launch(kernel, example, simulation)

    first = Recorder(outcome.schedule, outcome.seed)
    report = play(first)
    return None if report is None else shrink(play, first, report, simulation.concurrent)


def _launch(kernel: Kernel, example: Callable[..., Any], simulation: Simulation) -> Report | None:
    """One run of an example."""
    from tlxc.simulator import SimulationError

    try:
        with simulation:
            launch_example(kernel, example)
    except SimulationError as error:
        return error.report
    return None


def _run(kernel: Kernel, example: Callable[..., Any], target: Target, seed: int, outcome: Outcome) -> bool:
    """One run; False where there is nothing more to try."""
    schedule = _SCHEDULES[seed % len(_SCHEDULES)]
    simulation = _Watched(seed, schedule, target)
    outcome.runs += 1
    report = _launch(kernel, example, simulation)
    outcome.notes += [note for note in simulation.notes if str(note) not in map(str, outcome.notes)]
    for loc, counts in simulation.findings.trips.items():
        outcome.trips.setdefault(loc, set()).update(counts)
    if report is not None:
        outcome.report, outcome.seed, outcome.schedule = report, seed, schedule
        return False
    outcome.proved &= not simulation.concurrent
    graph = frozenset(simulation.findings.conflicts)
    outcome.settled += 1
    if graph not in outcome.graphs:
        outcome.graphs.append(graph)
        outcome.settled = 0
    return True
