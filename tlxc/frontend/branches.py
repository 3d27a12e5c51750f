"""`if` on run-time scalars: both branches are compiled and their values joined.

A name that both branches leave with one type is merged.  Any other name that a branch assigned has no value afterwards;
that is an error only where it is read, and the error says why.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError
from tlxc.ir.core import Region, Value
from tlxc.ir.types import Scalar, Tensor, Type, agreement, int1
from tlxc.language import math
from tlxc.language.core import describe, tensor

from .flow import Flow, Fork, Returned, Splice, Step
from .scope import Binding, Names, Undefined
from .values import Mismatch, Structure, describe_type, flatten, leaf_types, rebuild, same, unify, wrap

if TYPE_CHECKING:
    from .visitor import Visitor

# Compile-time values whose truth Python and kernels agree on.
TRUTH_TYPES = (bool, int, float, str, tuple, type(None))
MAX_COPIES = 32


def condition(v: Visitor, node: ast.expr, keyword: str) -> bool | tensor:
    """The value of a condition: a bool known at compile time, or a run-time i1 scalar."""
    value = v.eval(node)
    if isinstance(value, TRUTH_TYPES):
        return bool(value)
    if not isinstance(value, tensor):
        raise v.error(
            node,
            f"the condition of `{keyword}` is neither true nor false",
            found=describe_type(value),
            allowed="run-time scalars, and compile-time bools, numbers, strings, tuples and None",
        )
    if value.shape:
        raise v.error(
            node,
            f"the condition of `{keyword}` is a tile, but a branch needs one scalar",
            found=describe(value),
            allowed="a run-time scalar or a compile-time value",
            fix="choose element by element with tl.where(cond, x, y), or reduce the tile to a scalar with tl.max",
        )
    truth: tensor = v.apply(node, math.truth, value)
    if agreement(truth.type) < agreement(Scalar(int1, "warp" if keyword == "if" else "task")):
        assert isinstance(truth.type, Scalar)
        raise v.error(
            node,
            f"the condition of `{keyword}` differs between the threads of the task",
            found=f"a value that is known per {truth.type.uniform} only",
            allowed="conditions that all threads of the task agree on"
            + (", or those of a warp, as tlx.warp_any gives them" if keyword == "if" else ""),
            fix="store from one thread by a scalar tl.store, or choose with tl.where",
        )
    return truth


def differs_by_warp(test: tensor) -> bool:
    """Whether a condition is one on which only the threads of a warp agree."""
    return agreement(test.type) < agreement(Scalar(int1))


def if_statement(v: Visitor, node: ast.If) -> Flow:
    test = condition(v, node.test, "if")
    if isinstance(test, bool):
        return Splice(node.body if test else node.orelse)
    if not v.frame.loops and v.returns(node):
        if differs_by_warp(test):
            raise v.error(
                node,
                "warps that branch by themselves cannot return",
                found="a `return` under a condition on which only the threads of a warp agree",
                fix="assign the results in the branches, and return them after the `if`",
            )
        return Fork(node, test)
    choose(v, node, test, lambda: v.block(node.body), lambda: v.block(node.orelse))
    return None


# ------------------------------------------------------------------------------------------------------- both branches
@dataclass
class Arm:
    """One branch after it was compiled: its ops, its names, and what its action returned."""

    region: Region
    names: Names
    value: Any = None


@contextmanager
def own_names(v: Visitor, names: Names) -> Iterator[None]:
    """Assignments inside change `names` only."""
    outer, v.frame.names = v.frame.names, names
    try:
        yield
    finally:
        v.frame.names = outer


def compile_arm(v: Visitor, action: Callable[[], Any]) -> Arm:
    arm = Arm(Region(), dict(v.frame.names))
    with own_names(v, arm.names), v.into(arm.region):
        arm.value = action()
    return arm


def choose(
    v: Visitor, node: ast.If | ast.IfExp, test: tensor, then: Callable[[], Any], other: Callable[[], Any]
) -> Any:
    """Compiles both sides of a run-time condition; merges their values and what they assigned."""
    arms = compile_arm(v, then), compile_arm(v, other)
    join = Join(v, node, arms)
    try:
        join.add("", arms[0].value, arms[1].value)
    except Mismatch as mismatch:
        raise v.error(
            node,
            "the two sides of a conditional expression have different types",
            found=f"{describe_type(mismatch.left)} and {describe_type(mismatch.right)}",
            fix="convert one side with `.to(...)`, or write an `if` statement",
        ) from None
    for name in dict.fromkeys((*arms[0].names, *arms[1].names)):
        a, b = arms[0].names.get(name), arms[1].names.get(name)
        if a is not b:
            v.frame.names[name] = _merge_name(join, node, name, a, b)
    values = join.emit(test)
    for name, binding in join.merged.items():
        v.bind(name, values[name], binding.loc)
    return values[""]


def _merge_name(
    join: Join, node: ast.If | ast.IfExp, name: str, a: Binding | Undefined | None, b: Binding | Undefined | None
) -> Binding | Undefined:
    """What a name is after the branches; a name to be merged is filled in when the op exists."""
    if not isinstance(a, Binding) or not isinstance(b, Binding):
        return _missing(name, node, a, b)
    if same(a.value, b.value):
        return a
    try:
        join.add(name, a.value, b.value)
    except Mismatch as mismatch:
        first, second = describe_type(mismatch.left), describe_type(mismatch.right)
        return Undefined(
            found=f"a run-time condition decides its type: {first} after one branch, {second} after the other",
            fix=f"give `{name}` one type in both branches, for example with `.to(...)`",
            related=((f"`{name}` is assigned", a.loc), (f"`{name}` is assigned otherwise", b.loc)),
        )
    join.merged[name] = a
    return a


def _missing(
    name: str, node: ast.If | ast.IfExp, a: Binding | Undefined | None, b: Binding | Undefined | None
) -> Undefined:
    """A name that one branch alone gives a value; an older reason stands where the branches add nothing."""
    if not isinstance(a, Binding) and not isinstance(b, Binding):
        reason = a if isinstance(a, Undefined) else b
        assert isinstance(reason, Undefined)
        return reason
    bound, where, elsewhere = (a, "if", "else") if isinstance(a, Binding) else (b, "else", "if")
    assert isinstance(bound, Binding)
    missing = f"the `{elsewhere}` branch leaves it without a value" if node.orelse else "there is no `else` branch"
    return Undefined(
        found=f"the `{where}` branch assigns it, and {missing}; the condition is known only at run time",
        fix=f"assign `{name}` before the `if`, or in both branches",
        related=((f"`{name}` is assigned in the `{where}` branch", bound.loc),),
    )


class Join:
    """Collects pairs of values, one of each branch, and builds the `if` op that yields them."""

    def __init__(self, v: Visitor, node: ast.AST, arms: tuple[Arm, Arm]) -> None:
        self.v, self.node, self.arms = v, node, arms
        self.pairs: dict[str, tuple[Any, Any, Structure]] = {}
        self.merged: dict[str, Binding] = {}

    def add(self, key: str, a: Any, b: Any) -> None:
        """Mismatch where the two have no common type."""
        self.pairs[key] = (a, b, unify(a, b))

    def emit(self, test: tensor) -> dict[str, Any]:
        """Ends both regions, appends the op and returns the joined value of every key."""
        v = self.v
        for position, arm in enumerate(self.arms):
            with v.into(arm.region), v.at(self.node):
                yields = [x for pair in self.pairs.values() for x in flatten(pair[position], pair[2])]
                v.builder.op("yield", tuple(yields))
        types = [t for pair in self.pairs.values() for t in leaf_types(pair[2])]
        if differs_by_warp(test):
            types = [self._of_a_warp(t) for t in types]
        v.builder.loc = v.location(self.node)
        op = v.builder.op("if", (test.value,), types, [arm.region for arm in self.arms])
        results = iter(op.results)
        return {key: rebuild(pair[2], results) for key, pair in self.pairs.items()}

    def _of_a_warp(self, t: Type) -> Type:
        """What a value is after warps took different branches."""
        if not isinstance(t, (Scalar, Tensor)):
            raise self.v.error(
                self.node,
                "warps that branch by themselves cannot choose this value",
                found=describe(wrap(Value(t))),
                allowed="tiles and numbers",
                fix="choose it under a condition that the whole task agrees on",
            )
        return Scalar(t.dtype, "warp") if isinstance(t, Scalar) and t.uniform == "task" else t


# -------------------------------------------------------------------------------------------------------- early return
def fork(v: Visitor, flow: Fork, rest: Sequence[Step]) -> Returned:
    """A run-time `if` with a `return` in it, and all the steps after it: each branch that does not return goes on with
    them, so a function still ends at one place."""
    entered: list[str] = []

    def branch(label: str, statements: Sequence[Step]) -> tuple[Arm, Returned | None]:
        arm = compile_arm(v, lambda: v.run([*statements, lambda: entered.append(label), *rest]))
        return arm, arm.value

    then, first = branch("then", flow.node.body)
    other, second = branch("else", flow.node.orelse)
    if rest and len(entered) > 1:
        _count_copy(v, flow.node)
    join = Join(v, flow.node, (then, other))
    try:
        join.add("", first.value if first else None, second.value if second else None)
    except Mismatch:
        raise _returns_differ(v, flow.node, first, second) from None
    end = first or second
    return Returned(join.emit(flow.condition)[""], end.loc if end else v.location(flow.node))


def _count_copy(v: Visitor, node: ast.If) -> None:
    v.frame.copies += 1
    if v.frame.copies > MAX_COPIES:
        raise v.error(
            node,
            "`return` stands in too many nested run-time branches",
            found=f"statements after them that would be compiled more than {MAX_COPIES} times",
            fix="return at the outermost `if`, or set a flag in the branches and test it once",
        )


def _returns_differ(v: Visitor, node: ast.If, *ends: Returned | None) -> CompileError:
    return v.error(
        node,
        f"`{v.frame.source.name}` returns values of different types on the two paths of a run-time `if`",
        found=" and ".join(describe_type(end.value) if end else "nothing" for end in ends),
        fix="return one type on all paths, for example with `.to(...)`",
        related=[("this path returns", end.loc) for end in ends if end],
    )
