"""Accumulators of matrix products that are issued and not waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tlxc.emulator.errors import EmulatorError

_GROUP = 128  # lanes of a warp group


class Lanes(Protocol):
    """What is needed of the CTA: which lanes execute."""

    active: np.ndarray[Any, Any]


class Queue(Protocol):
    """How many groups of products the waits of a warp group have retired."""

    retired: int


@dataclass(frozen=True)
class Token:
    """The products of group number `serial` of one warp group."""

    queue: Queue
    serial: int

    @property
    def is_pending(self) -> bool:
        return self.queue.retired <= self.serial


class Pending:
    """An array of which some warp groups' lanes are results to come: it can be carried, merged, and given to the next
    product or to the wait; any other use before the wait is an error. `tokens` are by warp group."""

    def __init__(self, lanes: Lanes, value: np.ndarray[Any, Any], tokens: dict[int, Token]) -> None:
        self.lanes, self.value, self.tokens = lanes, value, tokens

    @property
    def is_pending(self) -> bool:
        """Whether an executing lane's value is still to come."""
        return any(
            token.is_pending and self.lanes.active[group * _GROUP : (group + 1) * _GROUP].any()
            for group, token in self.tokens.items()
        )

    def settled(self) -> np.ndarray[Any, Any]:
        if self.is_pending:
            raise EmulatorError(
                "An accumulator is used while the wgmma that computes it is under way; wait for its group "
                "(wgmma.wait_group) first."
            )
        return self.value

    def holding(self, value: np.ndarray[Any, Any]) -> Pending:
        """Another array that is to come with the same products."""
        return Pending(self.lanes, value, self.tokens)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.settled() if dtype is None else self.settled().astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*[i.settled() if isinstance(i, Pending) else i for i in inputs], **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settled(), name)

    def __getitem__(self, index: Any) -> Any:
        return self.settled()[index]

    def __len__(self) -> int:
        return len(self.value)


def merge_pending(mask: np.ndarray[Any, Any], new: Any, old: Any) -> Any:
    """`new` on the lanes of `mask`, `old` elsewhere, where one of them is a Pending."""
    values = [v.value if isinstance(v, Pending) else v for v in (new, old)]
    merged = np.where(mask, *values)
    groups = mask[::_GROUP] if len(mask) % _GROUP == 0 else mask[:0]
    tokens = {}
    for source, wanted in ((new, True), (old, False)):
        if isinstance(source, Pending):
            tokens.update({g: t for g, t in source.tokens.items() if bool(groups[g]) is wanted and t.is_pending})
    lanes = new.lanes if isinstance(new, Pending) else old.lanes
    return Pending(lanes, merged, tokens) if tokens else merged
