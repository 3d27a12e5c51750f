"""Asynchronous engines: TMA, bulk copies, cp.async, wgmma, stores to other CTAs.

An operation under way has stages; the scheduler runs each at a moment of its choice, in their order.  What an engine
computes on the tensor core stays in order within its strand; copies do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op

if TYPE_CHECKING:
    from .clocks import Record
    from .machine import Strand


class AsyncOp:
    """Work under way.  `stages` are run one by one.  `reads`, `writes`: numbers of its accesses; `retired`: records
    that become ordinary writes when the issuer has waited (cp.async); `result`: of a matrix product."""

    __slots__ = ("op", "strand", "stages", "done", "reads", "writes", "retired", "result", "priority", "lane")

    def __init__(self, op: Op, strand: Strand, *stages: Callable[[], None]) -> None:
        self.op, self.strand, self.stages = op, strand, list(stages)
        self.done = 0
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.retired: list[Record] = []
        self.result: Pending | None = None
        self.priority = 0.0
        self.lane = False

    @property
    def finished(self) -> bool:
        return self.done == len(self.stages)

    def advance(self) -> None:
        self.stages[self.done]()
        self.done += 1


class Pending:
    """The result of an async_dot until a wait makes it ready.  Using it otherwise is an error of the kernel."""

    __slots__ = ("value", "ready", "op")
    __array_ufunc__ = None

    def __init__(self, op: Op) -> None:
        self.op = op
        self.value: Any = None
        self.ready = False

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a pending value has no elements")
