"""The kernel being built: what `tl` and `tlx` functions append their ops to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError, Location
from tlxc.ir.core import Builder, Op, Value

if TYPE_CHECKING:
    from tlxc.targets import Target


@dataclass(frozen=True)
class TaskCopy:
    """One copy of a task: `replica` counts the copies of one `async_task` from 0."""

    num_warps: int
    replica: int


@dataclass
class Private:
    """The buffer of one place in the text that copies a block and waits, and of one copy of a task; for loads also the
    barrier, and the waits at it, whose phases the frontend fills in when the kernel is complete."""

    buffer: Value
    barrier: Value | None
    task: TaskCopy | None
    waits: list[Op] = field(default_factory=list)


@dataclass
class Context:
    """Builder and target of one compilation; the frontend sets `builder.loc` before it evaluates an expression, and
    `task` while it compiles the body of a task."""

    builder: Builder
    target: Target
    task: TaskCopy | None = None
    storages: int = 0  # numbers given to storage that allocations share
    unused_specs: dict[int, Location | None] = field(default_factory=dict)  # number -> where it was made
    private: dict[Any, Private] = field(default_factory=dict)

    @property
    def num_warps(self) -> int:
        """Warps of the task that runs the code which is being built."""
        return self.builder.module.num_warps if self.task is None else self.task.num_warps


_current: ContextVar[Context | None] = ContextVar("tlxc_context", default=None)


def current() -> Context:
    """The compilation in progress in this thread; an error where a kernel function is called from plain Python."""
    context = _current.get()
    if context is None:
        raise CompileError(
            "this function works only inside a kernel", fix="call it in a function decorated with @tlxc.kernel"
        )
    return context


@contextmanager
def building(context: Context) -> Iterator[Context]:
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
