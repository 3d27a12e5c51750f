"""The timeline: the time model, its record, the forms it is written in, `tlxc trace`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result
from kernels import Call, Sample, samples
from kernels.real import _gemm as small_gemm

import tlxc
from tlxc.cli import main
from tlxc.simulator.timeline import Timeline, chrome, form_of, path, summarise
from tlxc.simulator.timeline.record import LOAD, TENSOR, WAIT, Launch, Span
from tlxc.targets import Target, all_targets, get_target

SAMPLES = list(samples())


def timed(call: Call, target: Target | None = None, seed: int = 0) -> Timeline:
    """The timeline of a launch, whose results are right."""
    target = target or get_target("sm_90")
    with tlxc.simulate(seed=seed, target=target) as sim:
        sim.timeline = Timeline(target)
        call.run()
    call.check()
    assert not sim.reports
    return sim.timeline


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_kernel_has_a_timeline(sample: Sample) -> None:
    """Tasks do one thing at a time, waits end when something ended them, and the critical path is the whole time."""
    for trips in (sample.trips[0], sample.trips[-1]):
        timeline = timed(sample.make(trips))
        (launch,) = timeline.launches
        for lane in launch.tasks():
            for one, next_ in zip(lane.spans, lane.spans[1:]):
                assert one.start < one.end <= next_.start
        for span in (span for lane in launch.lanes for span in lane.spans):
            assert launch.start <= span.start < span.end <= launch.end
            if span.kind in (WAIT, LOAD):
                assert span.start <= span.released <= span.end
                assert not span.blocked or span.cause is not None and span.cause.time == span.released
            if span.flight is not None:
                assert span.flight.issued <= span.start <= span.flight.moved
        assert sum(path.critical_path(launch).values()) == launch.end - launch.start
        events(timeline)


# ------------------------------------------------------------------------------------------------ trace events
def events(timeline: Timeline) -> list[dict[str, Any]]:
    """The trace events, after a check of what Perfetto asks of them."""
    file = json.loads(chrome.render(timeline))
    assert file.keys() == {"traceEvents", "displayTimeUnit", "otherData"} and file["displayTimeUnit"] == "ns"
    slices: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    named, flows = set(), defaultdict(list)
    last = 0
    for event in file["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            named.add(place)
            continue
        assert place in named and event["cat"]
        for key in {"ts", "dur"} & event.keys():
            event[key] = round(event[key] * 1000)  # whole nanoseconds, as Perfetto has them
        assert event["ts"] >= last
        last = event["ts"]
        if event["ph"] == "X":
            before = slices[place][-1] if slices[place] else None
            assert event["dur"] > 0 and event["args"]["op"]
            assert before is None or before["ts"] + before["dur"] <= event["ts"]  # no overlap in a thread
            slices[place].append(event)
        else:
            assert event["ph"] in "sf" and (event["ph"] == "s" or event["bp"] == "e")
            flows[event["id"]].append(event)
    for start, end in flows.values():
        assert (start["ph"], end["ph"]) == ("s", "f") and start["name"] == end["name"] and start["ts"] <= end["ts"]
        for event in (start, end):
            inside = [s for s in slices[event["pid"], event["tid"]] if s["ts"] <= event["ts"] < s["ts"] + s["dur"]]
            assert len(inside) == 1
    return list(file["traceEvents"])
