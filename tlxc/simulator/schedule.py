"""Who goes next: random, in turn, or adversarial.  The same seed makes the same run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tlxc.errors import TlxcError

SCHEDULES = ("random", "round-robin", "adversarial")
_CHANGES, _SPAN = 3, 400  # steps at which an adversarial schedule demotes whom it favours


class Schedule:
    """Picks among what is ready.  Adversarial: fixed random priorities with a few changes, where engines as a whole are
    as slow or as fast as possible for two seeds of three.  `alone`: also asks where only one is ready.  `stops`: at
    breakpoints."""

    alone, stops = False, True

    def __init__(self, name: str, seed: int) -> None:
        if name not in SCHEDULES:
            raise TlxcError(f"The schedule is {name!r}; it may be one of {', '.join(SCHEDULES)}.")
        self.random = random.Random(seed)
        self.bias = (0.0, 2.0, -2.0)[seed % 3]
        self._turn, self._steps = 0, 0
        self._changes = {self.random.randrange(_SPAN) for _ in range(_CHANGES)}
        self.pick = {"random": self._any, "round-robin": self._next, "adversarial": self._favourite}[name]

    def _any(self, ready: Sequence[Any]) -> int:
        return int(self.random.random() * len(ready))

    def _next(self, ready: Sequence[Any]) -> int:
        self._turn += 1
        return self._turn % len(ready)

    def _favourite(self, ready: Sequence[Any]) -> int:
        self._steps += 1
        best = max(range(len(ready)), key=lambda i: ready[i].priority)
        if self._steps % _SPAN in self._changes:
            # Below all others, slow engines too: loops that wait for what one of these does must let it.
            ready[best].priority = min(item.priority for item in ready) - self.random.random()
        return best

    def priority(self, item: Any) -> float:
        return self.random.random() + (self.bias if hasattr(item, "stages") else 0.0)

    def order(self, count: int) -> list[int]:
        """In which order the clusters of a grid start."""
        numbers = list(range(count))
        self.random.shuffle(numbers)
        return numbers
