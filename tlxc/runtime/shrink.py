"""From a schedule that fails to a short one that fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tlxc.simulator import Recorder, Report, Turn

T = TypeVar("T")
RUNS, SECONDS = 200, 30.0  # what a search may take


@dataclass
class Shrunk:
    """`turns` of the shortest failing run that was found, the last makes the report; `report` is what it made.
    `clusters`: those that run to their end before, by number.  `before`: turns of the run that was replayed; `runs`:
    how many were tried."""

    report: Report
    turns: list[Turn]
    clusters: list[int]
    before: int
    runs: int

    def __str__(self) -> str:
        head = f"shortest failing schedule: {len(self.turns)} of {self.before} turns, after {self.runs} runs"
        if self.clusters:
            head += f"; clusters {', '.join(map(str, self.clusters))} run to their end before"
        rows = [f"  {i:>3}  {turn}" for i, turn in enumerate(self.turns, 1)]
        return "\n".join([head, *rows[:-1], f"{rows[-1]}, where the report is made"])


@dataclass
class _Run:
    schedule: Recorder
    report: Report

    @property
    def turns(self) -> list[Turn]:
        """Of the machine that failed."""
        return [t for t in self.schedule.turns if t.domain == self.domain]

    @property
    def domain(self) -> int:
        return self.schedule.turns[-1].domain

    @property
    def cost(self) -> int:
        """Turns, and machines that ran before."""
        return len(self.turns) + self.domain


@dataclass
class _Search:
    """`play` runs an example under a schedule and gives its report.  `best` is the shortest run so far, `how` it was
    guided."""

    play: Callable[[Recorder], Report | None]
    best: _Run
    wanted: Any
    runs: int = 1
    deadline: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    how: dict[str, Any] = field(default_factory=dict)

    def fails(self, clusters: Sequence[int], **how: Any) -> bool:
        """Whether a guided run makes the same report; the shortest is kept."""
        from tlxc.simulator import Guided

        if self.runs >= RUNS or time.monotonic() > self.deadline:
            return False
        self.runs += 1
        schedule = Guided(clusters, **how)
        report = self.play(schedule)
        schedule.close()
        if report is None or _identity(report) != self.wanted:
            return False
        run = _Run(schedule, report)
        if run.cost < self.best.cost:
            self.best, self.how = run, how
        return True


def shrink(play: Callable[[Recorder], Report | None], first: Recorder, report: Report, concurrent: bool) -> Shrunk:
    """The shortest schedule that makes the same kind of report about the same lines: one in which strands run until
    they wait, if that fails as well, else the recorded turns without those that can be left out.  `first`: a run that
    made `report`; `concurrent`: clusters run together."""
    first.close()
    original = _Run(first, report)
    search = _Search(play, original, _identity(report))
    order = first.clusters
    if not concurrent:
        at = original.domain
        before = minimal(order[:at], lambda part: search.fails(_front(order, [*part, order[at]])))
        order = _front(order, [*before, order[at]])
    plain = [
        {"lazy": lazy, "backwards": backwards}
        for lazy in (False, True)
        for backwards in (False, True)
        if search.fails(order, lazy=lazy, backwards=backwards)
    ]
    if not plain:
        goals = [(turn.key, turn.until) for turn in original.turns]
        minimal(goals, lambda part: search.fails(order, goals=part, lazy=True))
    _leave_out(search, order)
    while _join(search, order):
        continue
    done = search.best
    ahead = done.schedule.clusters[: done.domain] if not concurrent else []
    return Shrunk(done.report, done.turns, ahead, len(original.turns), search.runs)


def _leave_out(search: _Search, order: Sequence[int]) -> None:
    """Lets wait, for as long as can be, who is not needed for the report."""
    from tlxc.simulator import Guided

    if not isinstance(search.best.schedule, Guided):
        return
    how = search.how

    def fails(part: list[Any]) -> bool:
        goals = [goal for goal in how.get("goals", ()) if goal[0] in part]
        return bool(part) and search.fails(order, **{**how, "goals": goals, "only": part})

    minimal(list(dict.fromkeys(turn.key for turn in search.best.turns)), fails)


def _join(search: _Search, order: Sequence[int]) -> bool:
    """Makes one turn of two of the same task or engine, by running the second right after the first; False where none
    of them can be joined."""
    turns, cost = search.best.turns, search.best.cost
    for i, turn in enumerate(turns):
        j = next((j for j in range(i + 1, len(turns)) if turns[j].key == turn.key), None)
        if j is None:
            continue
        goals = [(t.key, turns[j].until if t is turn else t.until) for k, t in enumerate(turns[:-1]) if k != j]
        search.fails(order, **{**search.how, "goals": goals})
        if search.best.cost < cost:
            return True
    return False


def _front(order: Sequence[int], first: Sequence[int]) -> list[int]:
    return [*first, *(n for n in order if n not in first)]


def _identity(report: Report) -> Any:
    return report.kind, frozenset((loc.file, loc.line) for loc in report.locations)


def minimal(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A part of `items` that still fails and of which no single item can be left out (delta debugging); all of them
    where nothing can."""
    kept, parts = list(items), 1
    if kept and fails([]):
        return []
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fewer and fails(fewer):
                kept, parts = fewer, max(parts - 1, 1)
                break
        else:
            if parts >= len(kept):
                break
            parts = min(len(kept), parts * 2)
    return kept
