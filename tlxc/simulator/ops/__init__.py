"""What each op with an effect does, one module per family: plain functions of (strand, step, operand values), and
generators where the op may wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..control import FLOWS as _CONTROL
from . import barrier, buffer, cluster, copies, debug, descriptors, memory, mma, task, tma

_FAMILIES = (barrier, buffer, cluster, copies, debug, descriptors, memory, mma, task, tma)

EFFECTS: dict[str, Callable[..., Any]] = {}
FLOWS: dict[str, Callable[..., Any]] = dict(_CONTROL)
for _family in _FAMILIES:
    EFFECTS |= _family.EFFECTS
    FLOWS |= getattr(_family, "FLOWS", {})
