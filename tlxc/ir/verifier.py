"""Checks a module: rows of the op table, dominance, terminators, result back links.

Runs after every pass in tests; a failure is a fault of tlxc, so it raises InternalError with the op printed.
"""

from __future__ import annotations

from tlxc.errors import InternalError

from .core import Module, Op, Region, Value
from .table import VerifyError, check_row, traits
from .types import Tensor


def verify(module: Module, layouts: bool = False) -> None:
    """`layouts`: every tensor must have one."""
    visible = {p.value for p in module.params}
    _region(module.body, visible, layouts, module)


def _fail(module: Module, op: Op, message: str) -> None:
    operands = ", ".join("_" if v is None else repr(v) for v in op.operands)
    results = ", ".join(repr(v) for v in op.results)
    raise InternalError(
        f"invalid tile IR in {module.name}: {message}\n  {op.kind} {operands} {op.attrs or ''} -> {results}"
        + (f"\n  at {op.loc}" if op.loc else "")
    )


def _region(region: Region, visible: set[Value], layouts: bool, module: Module) -> None:
    inner = visible | set(region.args)
    for position, op in enumerate(region.ops):
        for v in op.inputs:
            if v not in inner:
                _fail(module, op, f"operand {v!r} is not defined before its use")
        try:
            check_row(op)
        except VerifyError as e:
            _fail(module, op, str(e))
        if "terminator" in traits(op) and (position != len(region.ops) - 1 or region is module.body):
            _fail(module, op, "a terminator stands in the middle of a region")
        for r in op.regions:
            _region(r, inner, layouts, module)
        for i, v in enumerate(op.results):
            if v.op is not op or v.index != i:
                _fail(module, op, f"result {i} does not point back to its op")
            if layouts and isinstance(v.type, Tensor) and v.type.layout is None:
                _fail(module, op, f"result {i} has no layout")
            inner.add(v)
