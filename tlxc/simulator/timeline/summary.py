"""A launch in words: how busy each lane is, what waits wait for, and which unit the time goes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .agents import LOADING
from .path import INSTRUCTIONS, LATENCY, THROUGHPUT, Part, critical_path
from .record import LOAD, Lane, Launch, Span, Timeline

_MENTIONED = 0.01  # shares below this are left out
_DOMINATES = 0.4  # share of the critical path that makes a bottleneck


@dataclass(frozen=True)
class Row:
    """Lanes of one name in all CTAs; shares of their time.  `waits`: by what is waited for, the longest first."""

    name: str
    busy: float
    waits: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Summary:
    """Of one launch.  `path`: shares of the critical path by what they went to, the largest first."""

    launch: Launch
    rows: Sequence[Row]
    path: Sequence[tuple[Part, float]]
    bottleneck: str


def summarise(launch: Launch) -> Summary:
    names = dict.fromkeys(lane.name for lane in (*launch.tasks(), *launch.agents()))
    rows = [_row(name, [lane for lane in launch.lanes if lane.name == name], launch) for name in names]
    cycles = critical_path(launch)
    total = max(1, launch.end - launch.start)
    path = _shares([(part, count / total) for part, count in cycles.most_common()])
    return Summary(launch, rows, path, _sentence(path))


def _row(name: str, lanes: Sequence[Lane], launch: Launch) -> Row:
    spans = [span for lane in lanes for span in lane.spans]
    if lanes[0].agent:
        busy = sum(span.flight.moved - span.start for span in spans if span.flight is not None)
        return Row(name, busy / max(1, _lifetime(launch, {lane.sm for lane in lanes})), ())
    time = max(1, sum(lane.spans[-1].end - lane.spans[0].start for lane in lanes if lane.spans))
    waits: Counter[str] = Counter()
    for span in spans:
        if span.blocked:
            waits[waited_for(span)] += span.blocked
    work = sum(span.end - span.start - span.blocked for span in spans)
    return Row(name, work / time, [(what, cycles / time) for what, cycles in waits.most_common()])


def _lifetime(launch: Launch, sms: Iterable[int]) -> int:
    """Cycles that SMs have CTAs."""
    wanted = set(sms)
    ends: dict[int, tuple[int, int]] = {}
    for lane in launch.tasks():
        if lane.spans and lane.sm in wanted:
            low, high = ends.get(lane.sm, (lane.spans[0].start, 0))
            ends[lane.sm] = min(low, lane.spans[0].start), max(high, lane.spans[-1].end)
    return sum(high - low for low, high in ends.values())


def waited_for(span: Span) -> str:
    """`full` of a wait for `full[2]`; of other waits what they are called."""
    if span.barrier:
        return span.barrier.partition("[")[0]
    return "a load" if span.kind == LOAD else "its tasks" if span.op.kind == "async_tasks" else span.label


def _shares(path: Sequence[tuple[Part, float]]) -> list[tuple[Part, float]]:
    """The path with the parts of all tasks together; each keeps the task with most of it."""
    found: dict[tuple[str, ...], tuple[Part, float]] = {}
    for part, share in path:
        first, before = found.get(part[:-1], (part, 0.0))
        found[part[:-1]] = first, before + share
    return sorted(found.values(), key=lambda one: -one[1])


def _side(part: Part) -> str:
    """Whose fault a part is: of loads, of the tensor core, of stores, of a task's instructions or its barriers."""
    if part.way in (THROUGHPUT, LATENCY):
        return "loads" if part.name in LOADING else part.name
    return describe(part)


def _sentence(path: Sequence[tuple[Part, float]]) -> str:
    """Names the bottleneck, where one side has most of the critical path."""
    sides: dict[str, list[tuple[Part, float]]] = {}
    for part, share in path:
        sides.setdefault(_side(part), []).append((part, share))
    if not sides:
        return "Nothing takes time."
    side, parts = max(sides.items(), key=lambda one: sum(share for _, share in one[1]))
    total = sum(share for _, share in parts)
    much = f"{_percent(total)} of the critical path"
    if total < _DOMINATES:
        return f"There is no single bottleneck: the largest part, the {side}, is {much}."
    if side != "loads":
        return f"The bottleneck is the {side}: {much}."
    task = parts[0][0].task
    who = "the loads" if task == "main" else f"the producer ({task})"
    late = sum(share for part, share in parts if part.way == LATENCY)
    hint = "; more loads under way at once would hide it" if late > total / 2 else ""
    split = f"{_percent(total - late)} for throughput, {_percent(late)} for latency{hint}"
    return f"The bottleneck is {who}: {much}, {split}."


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def describe(part: Part) -> str:
    """A part of the critical path, in words."""
    if part.way == THROUGHPUT:
        return part.name if part.limit == part.name else f"{part.name} (limited by {part.limit})"
    return {LATENCY: f"latency of {part.name}", INSTRUCTIONS: f"instructions of {part.name}"}.get(
        part.way, f"barriers in {part.name}"
    )


def text(timeline: Timeline, summary: Summary) -> str:
    """The summary as the terminal has it."""
    launch, timing = summary.launch, timeline.timing
    cycles = launch.end - launch.start
    ctas = f"{launch.ctas} CTA{'s' * (launch.ctas != 1)}"
    head = (
        f"{launch.name}: {ctas}, {cycles} cycles, {cycles / timing.clock:.2f} us at {timing.clock} MHz (a model "
        f"of {timing.product}, not a measurement)"
    )
    width = max([4, *(len(row.name) for row in summary.rows)])
    lines = [head, f"  {'lane':{width}}  {'busy':>5}  waits"]
    for row in summary.rows:
        waits = ", ".join(f"{what} {_percent(share)}" for what, share in row.waits if share >= _MENTIONED)
        lines.append(f"  {row.name:{width}}  {_percent(row.busy):>5}  {waits}".rstrip())
    parts = ", ".join(f"{describe(part)} {_percent(share)}" for part, share in summary.path if share >= _MENTIONED)
    return "\n".join([*lines, f"  critical path: {parts}", f"  {summary.bottleneck}"])
