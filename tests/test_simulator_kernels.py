"""The kernels of `tests/kernels` in the simulator: right values and no report, whatever the schedule and trip count."""

from __future__ import annotations

import pytest
from kernels import Sample, samples

import tlxc

SAMPLES = list(samples())


def test_there_are_enough() -> None:
    """Different kernels; some run with several numbers of stages."""
    assert len({id(sample.make(sample.trips[-1]).kernel) for sample in SAMPLES}) >= 25


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_schedule(sample: Sample) -> None:
    """Three schedules for each number of trips, 20 seeds for one of them."""
    for trips in sample.trips:
        seeds = 18 if trips == sample.trips[-1] else 1
        for seed, schedule in [(seed, "random") for seed in range(seeds)] + [(1, "round-robin"), (2, "adversarial")]:
            call = sample.make(trips)
            with tlxc.simulate(seed=seed, schedule=schedule) as sim:
                call.run()
            assert not sim.reports
            call.check()
