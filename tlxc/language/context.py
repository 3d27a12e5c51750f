"""The kernel being built: what `tl` and `tlx` functions append their ops to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tlxc.errors import CompileError
from tlxc.ir.core import Builder

if TYPE_CHECKING:
    from tlxc.targets import Target


@dataclass
class Context:
    """Builder and target of one compilation; the frontend sets `builder.loc` before it evaluates an expression."""

    builder: Builder
    target: Target


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
