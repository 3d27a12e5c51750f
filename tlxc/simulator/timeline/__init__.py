"""When things happen: a run of the simulator on the clock of the target's time model, its record, and its drawings."""

from __future__ import annotations

from .record import Lane, Span, Timeline

__all__ = ["Lane", "Span", "Timeline"]
