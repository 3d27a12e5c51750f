"""Executes tile IR, after all passes, on the CPU: tasks and engines with real asynchronous semantics, and a checker of
what must be ordered.  Design: docs/checking.md.
"""

from __future__ import annotations

from .launch import Descriptor, Extent, Program, launch
from .reports import Report, SimulationError

__all__ = ["Descriptor", "Extent", "Program", "Report", "SimulationError", "launch"]
