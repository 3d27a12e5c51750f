"""Runs the examples of a kernel on the clock of the target's time model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tlxc.runtime.check import examples_of, launch_example
from tlxc.runtime.simulate import Simulation

if TYPE_CHECKING:
    from tlxc.runtime.kernel import Kernel
    from tlxc.simulator import SimulationError
    from tlxc.simulator.timeline import Timeline
    from tlxc.targets import Target


def trace(
    kernel: Kernel, target: Target, seed: int = 0, done: Callable[[int], None] = lambda runs: None
) -> tuple[Timeline, SimulationError | None]:
    """The timeline of all examples, one after the other, up to the first that does something wrong, and what that is.
    `done` is told of each example that is over."""
    from tlxc.simulator import SimulationError
    from tlxc.simulator.timeline import Timeline

    simulation = Simulation(seed, target=target)
    timeline = simulation.timeline = Timeline(target)
    for example in examples_of(kernel):
        before = len(timeline.launches)
        found = None
        try:
            with simulation:
                launch_example(kernel, example)
        except SimulationError as error:
            found = error
        for launch in timeline.launches[before:]:
            launch.name = f"{launch.name}, {example.__name__}"
        if found is not None:
            return timeline, found
        done(1)
    return timeline, None
