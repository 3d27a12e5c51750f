"""Hooks around launches, for profilers and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlxc.errors import TlxcError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tlxc.runtime.artifact import CompiledKernel


@dataclass(frozen=True)
class LaunchInfo:
    """A launch that a hook sees.  name: of the kernel.  grid: CTAs along x, y and z.  stream: a raw handle.  device:
    its ordinal.  arguments: as they were given, with defaults and options, by name."""

    name: str
    compiled: CompiledKernel
    grid: tuple[int, int, int]
    stream: int
    device: int
    arguments: Mapping[str, Any]


Hook = Callable[[LaunchInfo], "AbstractContextManager[Any] | None"]

installed: list[Hook] = []


def launch_hook(hook: Hook) -> Callable[[], None]:
    """Calls `hook(info)` before every launch of every kernel, and returns a function that ends this.

    What the hook returns is None or a context manager, which is left when the launch has been put into its stream.
    While there are hooks, launches take a slower path.  Prepared launches and launches in the simulator have none.
    """
    if not callable(hook):
        raise TlxcError(f"A launch hook is a function of a LaunchInfo, not {hook!r}.")
    installed.append(hook)

    def remove() -> None:
        if hook in installed:
            installed.remove(hook)

    return remove


def around(info: LaunchInfo, launch: Callable[[], Any]) -> Any:
    """Launches inside all hooks."""
    with ExitStack() as stack:
        for hook in list(installed):
            context = hook(info)
            if context is not None:
                stack.enter_context(context)
        return launch()
