"""When things happen: a run of the simulator on the clock of the target's time model, its record, and its drawings."""

from __future__ import annotations

from .files import form_of, write
from .record import Timeline
from .summary import summarise, text

__all__ = ["Timeline", "form_of", "summarise", "text", "write"]
