"""TMA copies by descriptor.  Source: PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "createpolicy".

A block is cut into hardware boxes (`boxes.py`); the first thread of the task issues one copy per box.
"""

from __future__ import annotations

from tlxc.codegen.simt.buffer import shared_pointer
from tlxc.codegen.simt.lowering import Lower, Lowering
from tlxc.ir.core import Op, Value
from tlxc.ir.types import Descriptor

from .barrier import optional, predicated
from .boxes import Box, box_of

_SHARED = "ptr addrspace(3)"
_POLICY = {"evict_first": "0x12F0000000000000", "evict_last": "0x14F0000000000000"}


def _box(desc: Value) -> Box:
    assert isinstance(desc.type, Descriptor)
    return box_of(desc.type)


def _coordinates(low: Lowering, offsets: list[Value], step: tuple[int, ...]) -> list[tuple[str, str]]:
    """Coordinates of a box, innermost dimension first, as TMA wants them."""
    names = [low.w.add(low.scalar(o), str(s)) for o, s in zip(offsets, step)]
    return [("i32", x) for x in reversed(names)]


def _braced(first: int, count: int) -> str:
    return "{" + ", ".join(f"${first + i}" for i in range(count)) + "}"


def tma_load(low: Lowering, op: Op) -> None:
    desc, buf, bar, pred, mask, *offsets = op.operands
    assert desc is not None and buf is not None and bar is not None
    box, n = _box(desc), len(offsets)
    who = low.both(low.elected(), optional(low, pred))
    barrier = shared_pointer(low, bar)
    descriptor = low.scalar(desc)
    for start, step in box.pieces():
        args = [(_SHARED, shared_pointer(low, buf, start)), ("ptr", descriptor)]
        args += _coordinates(low, offsets, step)  # type: ignore[arg-type]
        args.append((_SHARED, barrier))
        kind = f"cp.async.bulk.tensor.{n}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        text = f"[$0], [$1, {_braced(2, n)}], [${n + 2}]"
        constraints = ["r", "l", *["r"] * n, "r"]
        if mask is not None:
            kind += ".multicast::cluster"
            text += f", ${len(args)}"
            args.append(("i16", low.w.assign(f"trunc i32 {low.scalar(mask)} to i16")))
            constraints.append("h")
        kind, text = _with_policy(op, kind, text, args, constraints)
        predicated(low, f"{kind} {text};", constraints, args, who)


def _with_policy(op: Op, kind: str, text: str, args: list[tuple[str, str]], constraints: list[str]) -> tuple[str, str]:
    """Adds the L2 policy that the op asks for."""
    if eviction := op.attrs.get("eviction"):
        kind += ".L2::cache_hint"
        text += f", ${len(args)}"
        args.append(("i64", str(int(_POLICY[eviction], 16))))
        constraints.append("l")
    return kind, text


def tma_store(low: Lowering, op: Op) -> None:
    desc, buf, *offsets = op.inputs
    box, n = _box(desc), len(offsets)
    who = low.elected()
    reduction = op.attrs.get("reduce", "")
    for start, step in box.pieces():
        args = [
            ("ptr", low.scalar(desc)),
            *_coordinates(low, offsets, step),
            (_SHARED, shared_pointer(low, buf, start)),
        ]
        constraints = ["l", *["r"] * n, "r"]
        name = f"cp.reduce.async.bulk.tensor.{n}d" if reduction else f"cp.async.bulk.tensor.{n}d"
        kind = f"{name}.global.shared::cta{'.' + reduction if reduction else ''}.tile.bulk_group"
        kind, text = _with_policy(op, kind, f"[$0, {_braced(1, n)}], [${n + 1}]", args, constraints)
        predicated(low, f"{kind} {text};", constraints, args, who)
    predicated(low, "cp.async.bulk.commit_group;", [], [], who)


def tma_store_wait(low: Lowering, op: Op) -> None:
    """Groups belong to the thread that committed them; the others have none and pass."""
    read = ".read" if op.attrs["read"] else ""
    low.w.asm("void", f"cp.async.bulk.wait_group{read} {op.attrs['pendings']};", "~{memory}", [])


def tma_prefetch(low: Lowering, op: Op) -> None:
    desc, pred, *offsets = op.operands
    assert desc is not None
    n = len(offsets)
    args = [("ptr", low.scalar(desc)), *_coordinates(low, offsets, (0,) * n)]  # type: ignore[arg-type]
    constraints = ["l", *["r"] * n]
    kind, text = _with_policy(
        op, f"cp.async.bulk.prefetch.tensor.{n}d.L2.global.tile", f"[$0, {_braced(1, n)}]", args, constraints
    )
    predicated(low, f"{kind} {text};", constraints, args, low.both(low.elected(), optional(low, pred)))


def prefetch_descriptor(low: Lowering, op: Op) -> None:
    first = low.first_thread()
    predicated(low, "prefetch.tensormap [$0];", ["l"], [("ptr", low.scalar(op.inputs[0]))], first)


LOWERINGS: dict[str, Lower] = {
    "tma_load": tma_load,
    "tma_store": tma_store,
    "tma_store_wait": tma_store_wait,
    "tma_prefetch": tma_prefetch,
    "prefetch_descriptor": prefetch_descriptor,
}
