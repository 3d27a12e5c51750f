"""`breakpoint()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..debugger import stop
from ..program import Step

if TYPE_CHECKING:
    from ..machine import Strand


def breakpoint_(strand: Strand, step: Step, *values: Any) -> None:
    if strand.machine.schedule.stops:
        stop(strand, step.op, dict(zip(step.op.attrs["names"], values)))


EFFECTS = {"breakpoint": breakpoint_}
