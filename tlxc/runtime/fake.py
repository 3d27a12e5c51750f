"""Arrays without memory: torch's fake tensors, which its tracers run code on to learn shapes and dtypes.

Launching a kernel on one is an error, since what was traced would lack the kernel; only where shapes are all that is
wanted (`shapes_only`) such launches do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tlxc.errors import TlxcError

_fake_classes: dict[type, bool] = {}
_wanted: ContextVar[bool] = ContextVar("tlxc_shapes_only", default=False)


class FakeLaunchError(TlxcError, TypeError):
    """A kernel was launched while torch traces, outside of an operator."""


@contextmanager
def shapes_only() -> Iterator[None]:
    """Launches on fake tensors do nothing inside."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def is_fake(array: Any) -> bool:
    """Whether an array is one of those that stand for others while torch traces."""
    kind = array.__class__
    known = _fake_classes.get(kind)
    if known is None:
        known = any(base.__module__.startswith("torch._subclasses.") for base in kind.__mro__)
        _fake_classes[kind] = known
    return known


def holds_no_data(value: Any) -> bool:
    """Whether an argument is a fake tensor, one of torch's device "meta", or describes such."""
    array = getattr(value, "base", value) if hasattr(value, "block_shape") else value
    return is_fake(array) or getattr(getattr(array, "device", None), "type", None) == "meta"


def is_void(kernel: str, arguments: Iterable[Any]) -> bool:
    """Whether a launch shall do nothing, as it is on arrays without memory; `FakeLaunchError` where it may not."""
    if not any(map(holds_no_data, arguments)):
        return False
    if not _wanted.get():
        raise FakeLaunchError(
            f"{kernel} was launched on a tensor without memory (fake, or of device meta), as torch.compile and "
            "torch.export have while they trace; launch it in a function that tlxc.torch_op makes an operator of, also "
            "in a backward."
        )
    return True
