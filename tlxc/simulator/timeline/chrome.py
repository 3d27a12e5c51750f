"""The timeline in the JSON of Chrome's trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing load.

Clocks there count nanoseconds in whole numbers; one of them stands for one cycle.  A process is a CTA, a thread is a
lane.  Spans of an agent that overlap are laid out on several threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .layout import Track, tracks
from .record import LOAD, TENSOR, TRANSFER, WAIT, WORK, Launch, Span, Timeline

# Colours by their names in chrome://tracing; Perfetto colours by name and category.
_COLOURS = {
    WORK: "thread_state_running", WAIT: "terrible", LOAD: "bad", TENSOR: "good", TRANSFER: "thread_state_iowait"
}  # fmt: skip


def render(timeline: Timeline) -> str:
    """The whole file."""
    events: list[dict[str, Any]] = []
    pid, flow = 0, 0
    for launch in timeline.launches:
        rows = tracks(launch)
        places: dict[int, tuple[int, int]] = {}
        for cta in dict.fromkeys(row.lane.cta for row in rows):
            pid += 1
            own = [row for row in rows if row.lane.cta == cta]
            events += _process(pid, launch, own)
            for tid, row in enumerate(own, 1):
                events += [_slice(span, pid, tid) for span in row.spans]
                places |= {id(span): (pid, tid) for span in row.spans}
        for span in (span for row in rows for span in row.spans):
            arrow = _arrow(span, places, flow)
            flow += bool(arrow)
            events += arrow
    events.sort(key=lambda e: (e["ph"] != "M", e.get("ts", 0.0)))  # stable: of equal times, those of one lane in order
    facts = {
        "target": timeline.target.name,
        "model": f"{timeline.timing.product}: rough latencies and throughputs, not a measurement",
        "unit": f"1 ns of this trace is 1 cycle of a clock of {timeline.timing.clock} MHz",
    }
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": facts}) + "\n"


def _clock(cycles: int) -> float:
    """In microseconds, the unit of the format."""
    return round(cycles / 1000, 3)


def _process(pid: int, launch: Launch, rows: list[Track]) -> Iterator[dict[str, Any]]:
    """Names and order of a CTA and its lanes."""
    lane = rows[0].lane
    yield _named("process_name", pid, 0, name=f"{launch.name}: CTA {lane.cta} on SM {lane.sm}")
    yield _named("process_sort_index", pid, 0, sort_index=pid)
    for tid, row in enumerate(rows, 1):
        yield _named("thread_name", pid, tid, name=row.name)
        yield _named("thread_sort_index", pid, tid, sort_index=tid)


def _named(what: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _slice(span: Span, pid: int, tid: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.label,
        "cat": span.kind,
        "ts": _clock(span.start),
        "dur": _clock(span.end - span.start),
        "pid": pid,
        "tid": tid,
        "cname": _COLOURS[span.kind],
        "args": facts(span),
    }


def facts(span: Span) -> dict[str, Any]:
    """What is known of a span, by name."""
    loc = span.op.loc
    out: dict[str, Any] = {"op": span.op.kind}
    if loc is not None:
        out |= {"file": loc.file, "line": loc.line}
        if loc.callers:
            out["called from line"] = [caller.line for caller in loc.callers]
    if span.buffers:
        out["buffers"] = list(span.buffers)
    if span.barrier:
        out["barrier"] = span.barrier
    for key, value in (("stage", span.stage), ("phase", span.phase)):
        if value is not None:
            out[key] = value
    if span.kind in (WAIT, LOAD):
        out["blocked cycles"] = span.blocked
    if span.flight is not None:
        flight = span.flight
        out |= {"issued by": flight.issuer.lane.name, "issued at cycle": flight.issued, "limited by": flight.limit}
        out |= {"queued cycles": span.start - flight.issued, "latency cycles": span.end - flight.moved}
    return out


def _arrow(span: Span, places: dict[int, tuple[int, int]], number: int) -> list[dict[str, Any]]:
    """From what ended a wait to the wait.  Both ends lie inside of their slices."""
    cause = span.cause
    if span.kind not in (WAIT, LOAD) or cause is None or id(cause.span) not in places:
        return []
    source = min(max(cause.time, cause.span.start), cause.span.end - 1)
    arrival = min(max(span.released, span.start, source), span.end - 1)
    name = span.barrier or span.op.kind
    out = []
    for ph, end, time in (("s", cause.span, source), ("f", span, arrival)):
        pid, tid = places[id(end)]
        out.append({"ph": ph, "id": number, "name": name, "cat": "release", "ts": _clock(time), "pid": pid, "tid": tid})
    out[1]["bp"] = "e"
    return out
