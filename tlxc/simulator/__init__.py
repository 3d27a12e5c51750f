"""Executes tile IR, after all passes, on the CPU: tasks and engines with real asynchronous semantics, and a checker of
what must be ordered.  Design: docs/checking.md.
"""

from __future__ import annotations

from .findings import Findings, tried
from .global_memory import Extent
from .launch import simulate_grid
from .ops.tma import Descriptor
from .program import Program
from .replay import Guided, Recorder, Turn
from .reports import Report, SimulationError
from .schedule import Schedule

__all__ = [
    "Descriptor",
    "Extent",
    "Findings",
    "Guided",
    "Program",
    "Recorder",
    "Report",
    "Schedule",
    "SimulationError",
    "Turn",
    "simulate_grid",
    "tried",
]
