"""Asynchronous copies: TMA by descriptor, bulk copies, cp.async groups."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Barrier, Buffer, Descriptor, Pointer, Scalar, Token, element_of, int1, int32, shape_of

REDUCTIONS = ("", "add", "min", "max", "and", "or", "xor")
EVICTION = ("", "evict_first", "evict_last")


def _descriptor(op: Op) -> Descriptor:
    d = op.inputs[0].type
    require(isinstance(d, Descriptor), f"{op.kind} takes a descriptor")
    assert isinstance(d, Descriptor)
    return d


def _block(op: Op, d: Descriptor, position: int) -> None:
    b = op.inputs[position].type
    require(isinstance(b, Buffer) and b.count == 0, f"{op.kind} takes one buffer")
    assert isinstance(b, Buffer)
    tail = b.shape[len(b.shape) - len(d.shape) :] if len(b.shape) >= len(d.shape) else ()
    require(b.shape == d.shape or tail == d.shape, f"{op.kind}: the buffer has shape {b.shape}, the block {d.shape}")
    require(b.dtype == d.dtype, f"{op.kind}: buffer and descriptor have one dtype")


def _offsets(op: Op, d: Descriptor, offsets: list) -> None:
    require(len(offsets) == len(d.shape), f"{op.kind}: one offset per dimension")
    require(all(o.type == Scalar(int32) for o in offsets), f"{op.kind}: offsets are i32 scalars")


def _load(op: Op) -> None:
    d = _descriptor(op)
    _block(op, d, 1)
    require(isinstance(op.inputs[2].type, Barrier), "tma_load signals a barrier")
    pred = op.operands[3]
    require(pred is None or pred.type == Scalar(int1), "tma_load: pred is an i1 scalar")
    mask = op.operands[4]
    require(mask is None or mask.type == Scalar(int32), "tma_load: the multicast mask is an i32 scalar")
    _offsets(op, d, op.operands[5:])
    require(op.attrs.get("eviction", "") in EVICTION, "tma_load: unknown eviction policy")


def _store(op: Op) -> None:
    d = _descriptor(op)
    _block(op, d, 1)
    _offsets(op, d, op.operands[2:])
    require(op.attrs.get("reduce", "") in REDUCTIONS, "tma_store: unknown reduction")


def _prefetch(op: Op) -> None:
    _offsets(op, _descriptor(op), op.operands[2:])


def _async_load(op: Op) -> None:
    p, b = element_of(op.inputs[0].type), op.inputs[1].type
    require(isinstance(p, Pointer) and isinstance(b, Buffer), "async_load copies from addresses to a buffer")
    assert isinstance(p, Pointer)
    require(
        shape_of(op.inputs[0].type) == shape_of(b) and element_of(b) == p.dtype, "async_load: shapes or dtypes differ"
    )
    require(op.result.type == Token(), "async_load gives a token")


def _group(op: Op) -> None:
    require(all(v.type == Token() for v in (*op.inputs, *op.results)), f"{op.kind} takes and gives tokens")


ASYNC = "reads_global writes_shared convergent"

row(
    "tma_load",
    "tma",
    "desc buf bar pred? multicast? offsets*",
    0,
    "",
    "eviction",
    traits=ASYNC,
    verify=_load,
    kinds="int uint float",
    doc="Copies the block at `offsets` to the buffer and signals its bytes at the barrier; `multicast` is a "
    "mask of CTA "
    "ranks: `cp.async.bulk.tensor.Nd.shared::cluster.global.mbarrier::complete_tx::bytes`.",
)
row(
    "tma_store",
    "tma",
    "desc buf offsets*",
    0,
    "",
    "reduce eviction",
    traits="writes_global reads_shared convergent",
    verify=_store,
    kinds="int uint float",
    doc="Copies the buffer to the block at `offsets`, or reduces into it, and commits the group: "
    "`cp.async.bulk.tensor.Nd.global.shared::cta.bulk_group`, `cp.reduce.async.bulk.tensor`.",
)
row(
    "tma_store_wait",
    "tma",
    "",
    0,
    "pendings read",
    traits="writes_shared reads_shared convergent",
    doc="Waits until all but `pendings` bulk groups are complete, or (`read`) have read their source: "
    "`cp.async.bulk.wait_group[.read]`.",
)
row(
    "tma_prefetch",
    "tma",
    "desc pred? offsets*",
    0,
    "",
    "eviction",
    traits="reads_global",
    verify=_prefetch,
    doc="Brings the block at `offsets` to the L2 cache: `cp.async.bulk.prefetch.tensor`.",
)
row(
    "prefetch_descriptor",
    "tma",
    "desc",
    0,
    traits="reads_global",
    verify=lambda op: None,
    doc="Brings a tensor map to the descriptor cache: `prefetch.tensormap`.",
)
row(
    "async_load",
    "tma",
    "ptr buf mask? other?",
    1,
    "",
    "cache eviction",
    traits=ASYNC,
    verify=_async_load,
    kinds="int uint float",
    doc="Each thread copies its elements from global to shared memory; masked ones become `other` or 0: `cp.async`.",
)
row(
    "async_load_commit",
    "tma",
    "tokens*",
    1,
    traits=ASYNC,
    verify=_group,
    doc="Ends a group of `async_load`: `cp.async.commit_group`.",
)
row(
    "async_load_wait",
    "tma",
    "tokens*",
    1,
    "pendings",
    traits=ASYNC + " reads_shared",
    verify=_group,
    doc="Waits until at most `pendings` groups of this thread are under way: `cp.async.wait_group`.",
)
row(
    "bulk_load",
    "tma",
    "ptr buf bar size? pred?",
    0,
    "",
    "",
    traits=ASYNC,
    kinds="int uint float",
    doc="One thread copies contiguous bytes from global to shared memory and signals them: "
    "`cp.async.bulk.shared::cta.global`.",
)
row(
    "bulk_store",
    "tma",
    "ptr buf size?",
    0,
    traits="writes_global reads_shared convergent",
    kinds="int uint float",
    doc="One thread copies contiguous bytes from shared to global memory and commits: "
    "`cp.async.bulk.global.shared::cta`.",
)
