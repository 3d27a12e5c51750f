"""What each op costs its task: the unit that it occupies, for how long, and how long it holds the task up."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tlxc.ir.core import Op
from tlxc.ir.table import OPS
from tlxc.ir.types import Buffer, DType, Pointer, Tensor, element_of
from tlxc.targets import Target
from tlxc.targets.timing import Timing

from .units import cycles

ARITHMETIC, SPECIAL, SHARED, TENSOR = "arithmetic", "special functions", "shared memory", "tensor core"
SCHEDULERS = 4  # of an SM, each with its own warps
VECTOR = 16  # bytes that a thread moves by one instruction
WGMMA_ROWS = 64

# Ops on tiles that give no instruction: relabelled registers, constants, views whose offset is a constant.
_FREE = frozenset(
    "constant splat arange local_alloc alloc_barriers local_slice local_trans local_reinterpret thread_id task_copy "
    "descriptor_slots descriptor_slot descriptor_view async_load_commit".split()
)
_SPECIAL = frozenset(("exp2", "log2", "sqrt", "rsqrt", "div"))
# Instructions an element where they are not one.  Address arithmetic is done once for a vector.
_FACTORS = {"addptr": 0.25, "idiv": 20.0, "rem": 20.0, "convert_layout": 2.0}


class Charge(NamedTuple):
    """`busy` cycles of `unit` (none: ""), of which the task waits for `hold` and more where the unit is busy."""

    unit: str
    busy: int
    hold: int


class Launch(NamedTuple):
    """What costs depend on beside the op."""

    target: Target
    timing: Timing
    warps: int

    @property
    def schedulers(self) -> int:
        return min(self.warps, SCHEDULERS)


def charge(launch: Launch, op: Op, values: list[Any]) -> Charge:
    """The cost of an op, its waits and what agents do left out."""
    found = _EFFECTS.get(op.kind)
    if found is not None:
        return found(launch, op, values)
    if op.kind in _FREE or OPS[op.kind].has("relabel") or _only_renamed(op):
        return Charge("", 0, 0)
    t = op.results[0].type if op.results else None
    return _tile(launch, op, t) if isinstance(t, Tensor) else Charge("", 0, launch.timing.scalar)


def _only_renamed(op: Op) -> bool:
    """Casts from one integer type to another of the same width."""
    if op.kind != "cast":
        return False
    source, to = (element_of(v.type) for v in (op.inputs[0], op.result))
    integers = all(isinstance(t, DType) and t.is_int for t in (source, to))
    return integers and source.bits == to.bits


def _tile(launch: Launch, op: Op, result: Tensor) -> Charge:
    """Arithmetic: of every element of the operand of a reduction, else of the result."""
    source = op.inputs[0].type if op.kind in ("reduce", "partial_reduce") else result
    assert isinstance(source, Tensor)
    return _instructions(launch, source.numel, _FACTORS.get(op.kind, 1.0), op.kind in _SPECIAL)


def _instructions(launch: Launch, numel: int, factor: float = 1.0, special: bool = False) -> Charge:
    timing, lanes = launch.timing, launch.target.warp_size
    if special:
        busy = cycles(numel, timing.special)
        return Charge(SPECIAL, busy, cycles(numel * SCHEDULERS, timing.special * launch.schedulers) + timing.latency)
    count = max(numel / lanes, launch.warps) * factor
    hold = cycles(count, timing.issue * launch.schedulers) + timing.latency
    return Charge(ARITHMETIC, cycles(count, timing.issue * SCHEDULERS), hold)


def _flat(field: str) -> Callable[[Launch, Op, list[Any]], Charge]:
    """A figure of the target's table."""
    return lambda launch, op, values: Charge("", 0, getattr(launch.timing, field))


def _nothing(launch: Launch, op: Op, values: list[Any]) -> Charge:
    return Charge("", 0, 0)


def _local(launch: Launch, op: Op, values: list[Any]) -> Charge:
    """Of a tile in shared memory; a store is over when it is issued."""
    tile = next(v.type for v in (*op.results, *reversed(op.inputs)) if isinstance(v.type, Tensor))
    busy = cycles(tile.numel * bytes_of(tile), launch.timing.shared_bytes)
    return Charge(SHARED, busy, busy + (launch.timing.shared_latency if op.results else 0))


def _remote(launch: Launch, op: Op, values: list[Any]) -> Charge:
    tile = op.inputs[1].type
    busy = cycles(prod(getattr(tile, "shape", ())) * bytes_of(tile), launch.timing.remote_bytes)
    return Charge(SHARED, busy, busy)


def _global(launch: Launch, op: Op, values: list[Any]) -> Charge:
    """Issuing the accesses of a tile of pointers, in vectors."""
    pointers = np.size(values[0])
    size = pointers * pointee_bytes(op)
    return _instructions(launch, max(1, size // VECTOR))


def product(launch: Launch, op: Op) -> Charge:
    """A matrix product on the tensor cores.  wgmma reads its operands in shared memory while it multiplies: B for
    every 64 rows."""
    timing = launch.timing
    result, a, b = op.results[0].type, op.inputs[0].type, op.inputs[1].type
    assert isinstance(result, Tensor) and isinstance(a, (Tensor, Buffer)) and isinstance(b, (Tensor, Buffer))
    element = element_of(a)
    assert isinstance(element, DType)
    busy = result.numel * a.shape[-1] / timing.mma_rate(element.short)
    if op.kind == "async_dot" or op.attrs.get("impl") == "wgmma":
        read = prod(b.shape) * element.bytes * (result.shape[-2] / WGMMA_ROWS)
        read += prod(a.shape) * element.bytes if isinstance(a, Buffer) else 0
        busy = max(busy, read / timing.shared_bytes)
        return Charge(TENSOR, cycles(busy, 1), cycles(busy, 1) + timing.mma_latency)
    busy /= timing.mma_sync
    hold = cycles(busy * SCHEDULERS, launch.schedulers) + timing.mma_latency
    return Charge(TENSOR, cycles(busy, 1), hold)


def bytes_of(type_: Any) -> int:
    element = element_of(type_)
    return 8 if isinstance(element, Pointer) else int(element.bytes)


def pointee_bytes(op: Op) -> int:
    """Size of what the pointers of the first operand point to."""
    element = element_of(op.inputs[0].type)
    assert isinstance(element, Pointer)
    return int(element.dtype.bytes)


_EFFECTS: dict[str, Callable[[Launch, Op, list[Any]], Charge]] = {
    **dict.fromkeys(("local_load", "local_store", "local_gather", "local_scatter"), _local),
    **dict.fromkeys(("load", "store", "atomic_rmw", "async_load"), _global),
    **dict.fromkeys(("barrier_arrive", "barrier_expect", "named_barrier_arrive"), _flat("arrive")),
    **dict.fromkeys(("fence", "fence_async_shared", "fence_mbarrier_init", "acquire_descriptor"), _flat("fence")),
    **dict.fromkeys(
        "tma_load tma_store bulk_load bulk_store async_dot async_remote_store async_remote_copy".split(),
        _flat("start"),
    ),
    **dict.fromkeys(
        "barrier_wait named_barrier_wait cluster_barrier tma_store_wait async_load_wait async_dot_wait".split(),
        _nothing,
    ),
    "remote_store": _remote,
    "encode_descriptor": _flat("l2_latency"),
    "dot": lambda launch, op, values: product(launch, op),
}
