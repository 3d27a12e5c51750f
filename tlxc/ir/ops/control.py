"""Structured control flow.

`for`: operands lo, hi, step, carried...; one region with arguments index, carried...; ends in `yield carried`.
`while`: operands carried...; regions condition (ends in `yield cond`) and body (ends in `yield carried`), both with the
carried arguments.  `if`: operand cond; regions then and else, both ending in `yield results`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core import Op, Value
from ..table import require, row
from ..types import DType, Scalar, Tensor, Type, agreement, element_of, int1, shape_of


def _types(values: Sequence[Value]) -> list[Type]:
    return [v.type for v in values]


def _ends_in_yield(op: Op) -> None:
    for r in op.regions:
        require(bool(r.ops) and r.ops[-1].kind == "yield", f"{op.kind}: a region ends in yield")


def _carried(op: Op, inits: Sequence[Value], args: Sequence[Value], yields: Sequence[Value]) -> None:
    want = _types(op.results)
    for what, got in (("initial values", _types(inits)), ("arguments", _types(args)), ("yields", _types(yields))):
        require(got == want, f"{op.kind}: {what} have types {got}, results {want}")


def _for(op: Op) -> None:
    require(len(op.regions) == 1, "for has one region")
    _ends_in_yield(op)
    body, bounds = op.regions[0], op.inputs[:3]
    kinds = {v.type for v in (*bounds, body.args[0])}
    require(len(kinds) == 1, "for: bounds, step and induction value have one type")
    e = element_of(bounds[0].type)
    require(shape_of(bounds[0].type) == () and isinstance(e, DType) and e.is_int, "for: bounds are integer scalars")
    _carried(op, op.inputs[3:], body.args[1:], body.terminator.inputs)


def _while(op: Op) -> None:
    require(len(op.regions) == 2, "while has two regions")
    _ends_in_yield(op)
    cond, body = op.regions
    require(_types(cond.terminator.inputs) == [Scalar(int1)], "while: the condition region yields one i1")
    _carried(op, op.inputs, cond.args, body.terminator.inputs)
    _carried(op, op.inputs, body.args, body.terminator.inputs)


def _if(op: Op) -> None:
    require(len(op.regions) == 2, "if has two regions")
    _ends_in_yield(op)
    cond = op.inputs[0].type
    require(isinstance(cond, Scalar) and cond.dtype == int1, "if: the condition is a scalar i1")
    require(agreement(cond) > 0, "if: no thread takes a branch by itself")
    for r in op.regions:
        yields = r.terminator.inputs
        require(len(yields) == len(op.results), "if: a region yields one value for each result")
        for v, result in zip(yields, op.results):
            require(_becomes(v.type, result.type), f"if: {v.type} is yielded for a result of {result.type}")
    for t in _types(op.results) if by_warp(op) else ():
        own = isinstance(t, Scalar) and agreement(t) <= agreement(cond)
        require(
            own or isinstance(t, Tensor), f"if: warps that branch apart give tiles and scalars of their own, not {t}"
        )


def _becomes(t: Type, wanted: Type) -> bool:
    """Types are equal, but a scalar may be more uniform than what it becomes."""
    if isinstance(t, Scalar) and isinstance(wanted, Scalar):
        return t.dtype == wanted.dtype and agreement(t) >= agreement(wanted)
    return t == wanted


def by_warp(op: Op) -> bool:
    """Whether an `if` is one that each warp takes by itself."""
    return op.kind == "if" and agreement(op.inputs[0].type) < agreement(Scalar(int1))


row(
    "for",
    "control",
    "lo hi step carried*",
    -1,
    "",
    "descending",
    traits="structured",
    verify=_for,
    doc="Counted loop; zero trips are exact and the last step does not overflow.  `descending`: step is negative.",
)
row(
    "while",
    "control",
    "carried*",
    -1,
    traits="structured",
    verify=_while,
    doc="Loop while the first region yields true.",
)
row(
    "if",
    "control",
    "cond",
    -1,
    traits="structured",
    verify=_if,
    doc="A branch on a scalar that the task agrees on.  On one that only a warp agrees on, each warp takes its own "
    "branch and gives its own part of the results; both branches are then pure and stay within the warp.",
)


def _breakpoint(op: Op) -> None:
    require(len(op.attrs["names"]) == len(op.operands), "breakpoint: one name for each operand")
    for name, v in zip(op.attrs["names"], op.inputs):
        require(isinstance(v.type, (Scalar, Tensor)), f"breakpoint: {name} is a scalar or a tile, found {v.type}")
    for item in op.attrs["constants"]:
        require(isinstance(item, tuple) and len(item) == 2, "breakpoint: `constants` are pairs of a name and a value")


row(
    "breakpoint",
    "control",
    "values*",
    0,
    "names constants",
    verify=_breakpoint,
    doc="The simulator stops here and shows the kernel's variables.  Compilation drops it and what it alone needs.",
)
row("yield", "control", "values*", 0, traits="terminator", doc="Ends a region and hands its values to the owner.")
