"""Scalar stores and atomics as accesses of a tile of one element.

A tile's owner rule then makes one thread do them; an atomic's old value comes back to all as the sum over that one
element.  Scalar loads stay: every thread reads the one address.
"""

from __future__ import annotations

from tlxc.ir.core import Module, Op, Region, Value, replace_uses
from tlxc.ir.types import Tensor, element_of, shape_of
from tlxc.targets import Target

_ACCESSES = ("store", "atomic_rmw")


def tile_scalar_accesses(module: Module, target: Target) -> None:
    """Invariant after it: every `store` and `atomic_rmw` acts on a tile."""
    mapping: dict[Value, Value] = {}
    _region(module.body, mapping)
    replace_uses(module.body, mapping)


def _region(region: Region, mapping: dict[Value, Value]) -> None:
    out: list[Op] = []
    for op in region.ops:
        for r in op.regions:
            _region(r, mapping)
        if op.kind in _ACCESSES and shape_of(op.inputs[0].type) == ():
            out += _tiled(op, mapping)
        else:
            out.append(op)
    region.ops = out


def _tiled(op: Op, mapping: dict[Value, Value]) -> list[Op]:
    ops: list[Op] = []

    def emit(kind: str, operands: list[Value | None], types: list[Tensor], **attrs: object) -> Op:
        ops.append(Op(kind, operands, types, dict(attrs), loc=op.loc))
        return ops[-1]

    operands: list[Value | None] = []
    for v in op.operands:
        operands.append(None if v is None else emit("splat", [v], [Tensor((1,), element_of(v.type))]).result)
    new = emit(op.kind, operands, [Tensor((1,), element_of(r.type)) for r in op.results], **op.attrs)
    for old, tile in zip(op.results, new.results):
        total = Op("reduce", [tile], [old.type], {"axis": 0, "combine": "sum"}, loc=op.loc)
        ops.append(total)
        mapping[old] = total.result
    return ops
