"""The table: one function per op kind, that takes the op and the values of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tlxc.ir.core import Op
from tlxc.ir.types import DType, Pointer, element_of

from . import shapes
from .casts import convert
from .dtypes import STORAGE, Value, storage
from .elementwise import BINARY, PREDICATES, UNARY, address, exp2, rsqrt_flushed, select
from .matmul import matmul
from .reductions import partial_reduce, reduce

TileOp = Callable[[Op, list[Any]], Any]


def _binary(rule: Callable[[Value, Value], Value]) -> TileOp:
    return lambda op, x: rule(x[0], x[1])


def _unary(rule: Callable[[Value], Value]) -> TileOp:
    return lambda op, x: rule(x[0])


def _shape(op: Op) -> tuple[int, ...]:
    shape: tuple[int, ...] = op.results[0].type.shape  # type: ignore[union-attr]
    return shape


def _constant(op: Op, x: list[Any]) -> Value:
    element = element_of(op.results[0].type)
    assert isinstance(element, DType)
    return STORAGE[element.short].type(op.attrs["value"])


def _cast(op: Op, x: list[Any]) -> Value:
    to = element_of(op.results[0].type)
    assert isinstance(to, DType)
    return convert(x[0], to)


def _bitcast(op: Op, x: list[Any]) -> Value:
    return x[0].view(storage(element_of(op.results[0].type)))


def _addptr(op: Op, x: list[Any]) -> Value:
    pointer = element_of(op.results[0].type)
    assert isinstance(pointer, Pointer)
    return address(x[0], x[1], pointer.dtype.bytes)


def _same(op: Op, x: list[Any]) -> Value:
    return x[0]


TILE_OPS: dict[str, TileOp] = {
    **{kind: _binary(rule) for kind, rule in BINARY.items()},
    **{kind: _unary(rule) for kind, rule in UNARY.items()},
    "exp2": lambda op, x: exp2(x[0], op.attrs.get("ftz", False)),
    "constant": _constant,
    "cmp": lambda op, x: PREDICATES[op.attrs["pred"]](x[0], x[1]),
    "select": lambda op, x: select(x[0], x[1], x[2]),
    "cast": _cast,
    "bitcast": _bitcast,
    "addptr": _addptr,
    "arange": lambda op, x: shapes.arange(op.attrs["start"], op.attrs["end"]),
    "splat": lambda op, x: shapes.splat(x[0], _shape(op)),
    "expand_dims": lambda op, x: x[0].reshape(_shape(op)),
    "broadcast": lambda op, x: shapes.broadcast(x[0], _shape(op)),
    "reshape": lambda op, x: x[0].reshape(_shape(op)),
    "permute": lambda op, x: x[0].transpose(op.attrs["order"]),
    "join": lambda op, x: shapes.join(x[0], x[1]),
    "split": lambda op, x: shapes.split(x[0]),
    "convert_layout": _same,
    "require_layout": _same,
    "dump_layout": lambda op, x: None,  # prints while compiling
    "reduce": lambda op, x: reduce(x[0], op.attrs["axis"], op.attrs["combine"]),
    "partial_reduce": lambda op, x: partial_reduce(x[0], op.attrs["axis"], op.attrs["combine"], _shape(op)[-1]),
    "dot": lambda op, x: matmul(op, x[0], x[1], x[2]),
}

# Where hardware of a vendor computes otherwise than the table.
VENDOR_OPS: dict[str, dict[str, TileOp]] = {"nvidia": {}, "amd": {"rsqrt": _unary(rsqrt_flushed)}}
