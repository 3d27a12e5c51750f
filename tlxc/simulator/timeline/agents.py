"""What agents take: which unit works for an op, and how many bytes it moves from and to where."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tlxc.ir.core import Op
from tlxc.targets.timing import Timing

from ..global_memory import GlobalMemory
from .costs import bytes_of, pointee_bytes
from .units import LINE

_SECTOR = 32  # bytes that global memory is read and written in
TMA_LOAD, TMA_STORE, CP_ASYNC, LOADS, STORES, REMOTE = (
    "TMA load", "TMA store", "cp.async", "global loads", "global stores", "SM to SM"
)  # fmt: skip
LOADING = frozenset((TMA_LOAD, CP_ASYNC, LOADS))


class Agent(NamedTuple):
    """`rate` names the figure of the target's table; `extra` the one that adds to the latency of memory."""

    name: str
    rate: str
    extra: str = ""
    writes: bool = False


AGENTS = {
    "tma_load": Agent(TMA_LOAD, "tma_bytes", "tma_latency"),
    "bulk_load": Agent(TMA_LOAD, "tma_bytes", "tma_latency"),
    "tma_store": Agent(TMA_STORE, "tma_bytes", "tma_latency", writes=True),
    "bulk_store": Agent(TMA_STORE, "tma_bytes", "tma_latency", writes=True),
    "async_load": Agent(CP_ASYNC, "sm_bytes"),
    "load": Agent(LOADS, "sm_bytes"),
    "atomic_rmw": Agent(LOADS, "sm_bytes"),
    "store": Agent(STORES, "sm_bytes", writes=True),
    "async_remote_store": Agent(REMOTE, "remote_bytes"),
    "async_remote_copy": Agent(REMOTE, "remote_bytes"),
}


class Amount(NamedTuple):
    """Bytes that are moved, and the blocks of global memory that they are in, each of `block` bytes."""

    size: int
    blocks: Sequence[Hashable]
    block: int


def rate_of(agent: Agent, timing: Timing) -> int:
    return int(getattr(timing, agent.rate))


def amount(op: Op, values: list[Any], memory: GlobalMemory) -> Amount:
    """How much an op moves, by the values of its operands.  Arrays count as aligned, as on the card, wherever the
    process has them."""
    if op.kind in ("tma_load", "tma_store"):
        size = op.inputs[1].type.nbytes  # type: ignore[union-attr]
        offsets = values[5:] if op.kind == "tma_load" else values[2:]
        return Amount(size, [(values[0].address, *map(_scalar, offsets))], size)
    if op.kind == "async_remote_copy":
        return Amount(op.inputs[1].type.nbytes, (), 0)  # type: ignore[union-attr]
    if op.kind == "async_remote_store":
        return Amount(values[1].size * bytes_of(op.inputs[1].type), (), 0)
    if op.kind in ("bulk_load", "bulk_store"):
        given = values[3] if op.kind == "bulk_load" else values[2]
        size = values[1].type.nbytes if given is None else _scalar(given)
        return Amount(size, _blocks(_scalar(values[0]) + np.arange(0, size, _SECTOR), memory, LINE), LINE)
    mask = values[1] if op.kind == "load" else values[2]
    addresses = np.asarray(values[0]).reshape(-1)
    if mask is not None:
        addresses = addresses[np.broadcast_to(mask, np.shape(values[0])).reshape(-1)]
    ends = np.concatenate([addresses, addresses + (pointee_bytes(op) - 1)])
    return Amount(len(_blocks(ends, memory, _SECTOR)) * _SECTOR, _blocks(ends, memory, LINE), LINE)


def _scalar(value: Any) -> int:
    return int(np.asarray(value).flat[0])


def _blocks(addresses: Any, memory: GlobalMemory, size: int) -> list[Hashable]:
    """The blocks of an array that addresses are in, however few of their bytes."""
    if not addresses.size:
        return []
    first = int(addresses.min())
    array = memory.find(first, first + 1)
    origin = 0 if array is None else array.start
    return [(origin, number) for number in np.unique((addresses - origin) // size).tolist()]
