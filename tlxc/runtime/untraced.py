"""Code that torch.compile shall leave alone.

A launch that torch.compile meets is a graph break: it then runs as Python.  But torch looks at every Python frame that
is entered from there, and would trace the compiler and the simulator as well.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

_REASON = "a launch is no part of a graph; launch in a function that tlxc.torch_op makes an operator of"

F = TypeVar("F", bound=Callable[..., Any])


def untraced(fn: F) -> F:
    """Decorates a function so that torch does not trace it, nor what it calls."""
    disabled: list[F] = []

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return fn(*args, **kwargs)
        if not disabled:
            disable = sys.modules["torch"].compiler.disable
            reason = {"reason": _REASON} if "reason" in inspect.signature(disable).parameters else {}
            disabled.append(disable(fn, **reason))
        return disabled[0](*args, **kwargs)

    return call  # type: ignore[return-value]
