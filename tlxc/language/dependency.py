"""Programmatic dependent launch: a grid that starts while the one before it in its stream still runs.

Source: PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from .core import builder, builtin
from .handles import require_feature


@builtin
def gdc_wait() -> None:
    """Waits until the grids that this one depends on have ended and what they wrote is visible.

    A kernel launched with `launch_pdl=True` may start before; until this call it must not touch what they read or
    write.  Without `launch_pdl`, and in the simulator, they have ended already and it does nothing.
    Targets: sm_90 and later.  Instruction: `griddepcontrol.wait`.
    """
    require_feature("griddepcontrol", "gdc_wait")
    builder().op("grid_dependency", action="wait")


@builtin
def gdc_launch_dependents() -> None:
    """Lets the grids that depend on this one start, once every CTA of it has called this or ended.

    It says nothing about memory: they see what this grid writes only after their `gdc_wait`, which waits for its end.
    Targets: sm_90 and later.  Instruction: `griddepcontrol.launch_dependents`.
    """
    require_feature("griddepcontrol", "gdc_launch_dependents")
    builder().op("grid_dependency", action="launch_dependents")
