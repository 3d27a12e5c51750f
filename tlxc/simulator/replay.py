"""Schedules that are written down as turns, and schedules that follow such turns: how a run is replayed and shortened.

A turn is a stretch in which one strand or one piece of work of an engine goes on alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .barriers import MBarrier
from .reports import at, place
from .schedule import Schedule

if TYPE_CHECKING:
    from .machine import Strand

PATIENCE = 500  # picks in a row after which a strand that only turns in a loop lets others go

# (CTA, number of the task's region, number of its work; -1 is the strand itself)
Key = tuple[int, int, int]
# Who is to go on, and how far: see `_progress`.
Goal = tuple[Key, int]


@dataclass
class Turn:
    """`who` ran from `start` to `end`, as words; `until`: how far it came; `domain`: the number of its machine."""

    key: Key
    domain: int
    who: str
    start: str
    end: str = ""
    until: int = 0

    def __str__(self) -> str:
        if self.start.removeprefix("from ") == self.end.removeprefix("to "):
            return f"{self.who}: at {self.end.removeprefix('to ')}"
        return f"{self.who}: {self.start} {self.end}"


class Recorder(Schedule):
    """A schedule that keeps its turns."""

    alone, stops = True, False

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self.turns: list[Turn] = []
        self.clusters: list[int] = []  # in the order in which they start
        self._numbers: dict[int, int] = {}  # id of work under way -> its number in its strand
        self._issued: dict[tuple[int, int], int] = {}
        self._now: Any = None
        self._choose: Callable[[Sequence[Any]], int] = self.pick
        self.pick = self._noted

    def order(self, count: int) -> list[int]:
        self.clusters = super().order(count)
        return self.clusters

    def priority(self, item: Any) -> float:
        if _is_work(item):
            issuer = (item.strand.cta.number, item.strand.task)
            self._numbers[id(item)] = self._issued[issuer] = self._issued.get(issuer, -1) + 1
        return super().priority(item)

    def key(self, item: Any) -> Key:
        strand = _strand(item)
        return strand.cta.number, strand.task, self._numbers[id(item)] if _is_work(item) else -1

    def _noted(self, ready: Sequence[Any]) -> int:
        i = self._choose(ready) if len(ready) > 1 else 0
        item = ready[i]
        if item is not self._now:
            self.close()
            self._now = item
            self.turns.append(Turn(self.key(item), _strand(item).machine.domain, "", _start(item)))
        return i

    def close(self) -> None:
        """The turn under way is over."""
        if self._now is not None:
            turn = self.turns[-1]
            turn.who = _who(self._now)
            turn.end, turn.until = _end(self._now), _progress(self._now)
            self._now = None


class Guided(Recorder):
    """Lets strands run until they wait, those of the first CTA and task first, but follows `goals` while there are any.

    `lazy`: engines work only when every strand waits; else before a strand takes over from another.  `backwards`: the
    last task goes first.  Where `only` is given, others go on only if none of these can.
    """

    def __init__(
        self,
        clusters: Sequence[int],
        goals: Sequence[Goal] = (),
        lazy: bool = False,
        backwards: bool = False,
        only: Iterable[Key] | None = None,
    ) -> None:
        super().__init__("round-robin", 0)
        self._order = list(clusters)
        self._goals = list(reversed(goals))
        self._lazy, self._sign = lazy, -1 if backwards else 1
        self._only = None if only is None else frozenset(only)
        self._known: dict[Key, Any] = {}
        self._row, self._tired = 0, dict[Key, int]()
        self._choose = self._guided

    def order(self, count: int) -> list[int]:
        self.clusters = self._order
        return self.clusters

    def priority(self, item: Any) -> float:
        value = super().priority(item)
        self._known[self.key(item)] = item
        return value

    def _guided(self, ready: Sequence[Any]) -> int:
        while self._goals:
            key, until = self._goals[-1]
            item = self._known.get(key)
            if item is not None and (_progress(item) >= until or _over(item)):
                self._goals.pop()
                continue
            for i, one in enumerate(ready):
                if one is item:
                    return i
            break
        return self._freely(ready)

    def _freely(self, ready: Sequence[Any]) -> int:
        self._row = self._row + 1 if any(item is self._now for item in ready) else 0
        if self._row > PATIENCE:
            key = self.key(self._now)
            self._tired[key] = self._tired.get(key, 0) + 1
            self._row = 0
        return min(range(len(ready)), key=lambda i: self._rank(ready[i]))

    def _rank(self, item: Any) -> tuple[Any, ...]:
        key = self.key(item)
        late = self._only is not None and key not in self._only
        if _is_work(item):
            return late, 0, 3 if self._lazy else 1, 0, *key
        return late, self._tired.get(key, 0), 0 if item is self._now else 2, self._sign * key[1], *key


def _is_work(item: Any) -> bool:
    return hasattr(item, "stages")


def _strand(item: Any) -> Strand:
    found: Strand = item.strand if _is_work(item) else item
    return found


def _over(item: Any) -> bool:
    return bool(item.finished if _is_work(item) else item.done)


def _progress(item: Any) -> int:
    """Grows whenever the item goes on; a strand that has passed a wait is further than in it."""
    return int(item.done) if _is_work(item) else 2 * item.epoch + (item.blocked is None)


def _who(item: Any) -> str:
    return f"engine of {item.strand.name}" if _is_work(item) else str(item.name)


def _start(item: Any) -> str:
    if _is_work(item):
        return f"{at(item.op)}, step {item.done + 1}"
    return f"from {place(item.step.op)}" if item.step is not None else "from its beginning"


def _end(item: Any) -> str:
    if _is_work(item):
        return "to its end" if item.finished else f"to step {item.done} of {len(item.stages)}"
    if item.done:
        return "to its end"
    if item.blocked is None:
        return f"to {place(item.step.op)}"
    what = item.blocked.object
    if item.blocked.kind == "tasks":
        return "until it waits for its tasks"
    of = f" of {what.label}" if isinstance(what, MBarrier) else ""
    return f"until it waits at {at(item.blocked.op)}{of}"
