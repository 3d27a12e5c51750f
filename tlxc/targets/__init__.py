"""What each GPU is, as data: limits, memories, matrix shapes, features.

`get_target` finds a description by name; the compiler asks the description and never compares names.
"""

from __future__ import annotations

import difflib

from . import amd, nvidia
from .target import MmaShape, Target, TargetError

__all__ = ["MmaShape", "Target", "TargetError", "all_targets", "get_target"]

_BY_NAME = {target.name: target for target in nvidia.TARGETS + amd.TARGETS}


def all_targets() -> tuple[Target, ...]:
    """Every known target, NVIDIA's first, each vendor's from the oldest on."""
    return tuple(_BY_NAME.values())


def get_target(name: str) -> Target:
    """The target called `name`; the assembler's spelling (``sm_90a``) names the same one.

    Raises `TargetError`, which lists the known targets and names the closest, for any other name.
    """
    known = {**_BY_NAME, **{target.ptxas_arch: target for target in nvidia.TARGETS}}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower().replace("-", "_"), _BY_NAME, n=2, cutoff=0.75)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise TargetError(f"Unknown target {name!r}.{hint} Known targets: {', '.join(_BY_NAME)}.")
