"""Words of global memory through which atomics hand over what happened before them.

Two atomics synchronise where the scope of each holds the thread of the other: of CTAs that differ, where both are at
device or system scope.
"""

from __future__ import annotations

from .clocks import Clock

NARROW = "cta"  # the scope that holds one CTA


class Cell:
    """One word.  `wide`: what was released at device scope, for acquires at that scope by any CTA.  `own`: what each
    CTA released at whatever scope, for its own."""

    __slots__ = ("wide", "own")

    def __init__(self) -> None:
        self.wide: Clock | None = None
        self.own: dict[int, Clock] = {}

    def release(self, cta: int, scope: str, clock: Clock) -> None:
        self.own[cta] = _merged(self.own.get(cta), clock)
        if scope != NARROW:
            self.wide = _merged(self.wide, clock)

    def acquired(self, cta: int, scope: str) -> list[Clock]:
        """What an atomic at this scope takes."""
        found = [self.own.get(cta), None if scope == NARROW else self.wide]
        return [clock for clock in found if clock is not None]


def _merged(into: Clock | None, clock: Clock) -> Clock:
    if into is None:
        return clock.copy()
    into.merge(clock)
    return into
