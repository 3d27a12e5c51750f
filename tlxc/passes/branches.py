"""Branches that each warp takes by itself: what may stand in them, and that their results stay in their warps.

The condition of such an `if` is a vote of a warp (`warp_vote`), so some warps of a task may take one side and some the
other.  Invariants: both sides are arithmetic that ends and that one warp can do alone; and an element of a result lies
in the same warp as its row of the tiles that were voted on, so that the vote which decides about a row has seen it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Union

from tlxc.errors import CompileError
from tlxc.ir.conversion import SHARED, classify
from tlxc.ir.core import Module, Op, Value
from tlxc.ir.layout import Layout
from tlxc.ir.ops.control import by_warp
from tlxc.ir.table import traits
from tlxc.ir.types import Scalar, Tensor, agreement, int1
from tlxc.targets import Target

# Of ops that all threads must reach together, those that a warp can do alone; of two of them layouts decide.
_IN_A_WARP = frozenset(("reduce", "partial_reduce", "convert_layout", "warp_vote"))
_STRUCTURE = frozenset(("if", "for", "yield"))


def _branches(module: Module) -> Iterator[Op]:
    return (op for op in module.walk() if by_warp(op))


def _inside(branch: Op) -> Iterator[Op]:
    return (op for region in branch.regions for op in region.walk())


def check_branches(module: Module, target: Target) -> None:
    """The first half of the invariants of this module: pure ops only."""
    for branch in _branches(module):
        for op in _inside(branch):
            t = traits(op)
            alone = "pure" in t and ("convergent" not in t or op.kind in _IN_A_WARP)
            if not alone and op.kind not in _STRUCTURE:
                raise _needs_others(op, branch, f"{op.kind}, which is more than arithmetic of one warp")


def check_parts_of_warps(module: Module, target: Target) -> None:
    """The second half, which layouts decide."""
    for branch in _branches(module):
        for op in _inside(branch):
            if op.kind == "reduce" and _axis_crosses_warps(op):
                raise _needs_others(op, branch, "a reduction along an axis that several warps share")
            if op.kind == "convert_layout" and classify(_layout(op.inputs[0]), _layout(op.result))[0] == SHARED:
                raise _needs_others(op, branch, "a value that other warps hold")
        tiles = [v for v in branch.results if isinstance(v.type, Tensor)]
        for result, vote in product(tiles, _votes(branch.inputs[0])):
            if vote is None:
                raise _unknown_vote(branch)
            voted = vote.inputs[0]
            if isinstance(voted.type, Tensor) and _rows_of_warps(_layout(result)) != _rows_of_warps(_layout(voted)):
                raise _apart(branch, result, voted)


def _layout(v: Value) -> Layout:
    assert isinstance(v.type, Tensor) and v.type.layout is not None
    return v.type.layout


def _axis_crosses_warps(op: Op) -> bool:
    a, axis = _layout(op.inputs[0]), op.attrs["axis"]
    mask = ((1 << a.bits[axis]) - 1) << a.shifts[axis]
    copies = a.free_masks().get("warp", 0)
    return any(b & mask and not copies >> i & 1 for i, b in enumerate(a.bases("warp")))


def _votes(condition: Value) -> list[Op | None]:
    """The votes behind a condition; None is one that comes out of a loop or branch."""
    found, todo = dict[Union[Op, None], None](), [condition]
    while todo:
        op = todo.pop().op
        if op is None or op.regions:
            found[None] = None
        elif op.kind == "warp_vote":
            found[op] = None
        else:
            todo += [v for v in op.inputs if agreement(v.type) < agreement(Scalar(int1))]
    return list(found)


def _rows_of_warps(a: Layout) -> tuple[tuple[int, ...], ...] | None:
    """By warp bit, the step along the first dimension, and whether several warps hold an element; None where warps part
    another dimension."""
    copies, out = a.free_masks().get("warp", 0), []
    for i in range(len(a.bases("warp"))):
        first, *others = a.apply(0, 0, 1 << i)
        if any(others):
            return None
        out.append((first, copies >> i & 1))
    return tuple(out)


def _needs_others(op: Op, branch: Op, found: str) -> CompileError:
    return CompileError(
        "a branch that each warp takes by itself cannot do this",
        found=found,
        allowed="elementwise arithmetic, and reductions of rows that the warp holds whole",
        fix="do it before or after the `if`, or let the whole task agree on the condition",
        loc=op.loc,
        related=[("the condition is a vote of each warp", branch.loc)],
    )


def _unknown_vote(branch: Op) -> CompileError:
    return CompileError(
        "it is not known what decides a branch that each warp takes by itself",
        found="a vote that a loop or another branch hands on",
        allowed="results of tlx.warp_any and tlx.warp_all, and bools made of them by `not`, `and`, `or`",
        fix="vote in front of the `if`",
        loc=branch.loc,
    )


def _apart(branch: Op, result: Value, tile: Value) -> CompileError:
    return CompileError(
        "a result of a branch that each warp takes by itself lies in other warps than what they voted on",
        found=f"{result.name or 'a result'} as {_layout(result)}, and the vote on {_layout(tile)}",
        allowed="results whose rows lie in the warp that holds the same rows of the tile in tlx.warp_any",
        fix="pin the layout of one of them with tlx.require_layout, or choose with tl.where",
        loc=branch.loc,
    )
