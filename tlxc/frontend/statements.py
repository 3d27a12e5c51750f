"""Statements other than loops and branches: assignments, `return`, and the refusal of what kernels do not have."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError
from tlxc.ir.types import DType
from tlxc.language import math
from tlxc.language.core import as_tensor, constexpr, tensor

from . import branches, expressions, loops, tasks
from .assign import TARGETS, assign
from .flow import Returned
from .values import describe_type, is_runtime

if TYPE_CHECKING:
    from .visitor import Visitor


def _assign(v: Visitor, node: ast.Assign) -> None:
    value = v.eval(node.value)
    for target in node.targets:
        assign(v, target, value)


def _augmented(v: Visitor, node: ast.AugAssign) -> None:
    if not isinstance(node.target, ast.Name):
        raise v.error(node.target, *TARGETS[type(node.target)])
    now = v.lookup(node.target)
    v.bind(node.target.id, expressions.binary(v, node, node.op, now, v.eval(node.value)), v.location(node.target))


def _annotated(v: Visitor, node: ast.AnnAssign) -> None:
    """`x: tl.constexpr = ...` demands a compile-time value; `x: tl.int32 = ...` converts."""
    if not isinstance(node.target, ast.Name):
        raise v.error(node.target, *TARGETS[type(node.target)])
    name = node.target.id
    if node.value is None:
        raise v.error(node, f"`{name}` is annotated but not assigned", fix="assign a value, or remove the line")
    annotation, value = v.eval(node.annotation), v.eval(node.value)
    if annotation is constexpr:
        if is_runtime(value):
            raise v.error(
                node.value,
                f"`{name}` is annotated tl.constexpr, but its value exists only at run time",
                found=describe_type(value),
                fix="compute it from constexpr parameters, shapes and dtypes only, or remove the annotation",
            )
    elif isinstance(annotation, DType):
        value = v.apply(node.value, math.cast if isinstance(value, tensor) else as_tensor, value, annotation)
    else:
        raise v.error(
            node.annotation,
            "this annotation has no meaning for a variable",
            found=describe_type(annotation),
            allowed="tl.constexpr, or a dtype to convert to",
            fix="remove it",
        )
    v.bind(name, value, v.location(node.target))


# --------------------------------------------------------------------------------------------------------------- return
def _return(v: Visitor, node: ast.Return) -> Returned:
    if v.frame.task:
        raise v.error(
            node,
            "`return` inside a task is not supported",
            found="a task, which ends together with the other tasks of its region",
            fix="put the rest of the task under an `if`",
        )
    if v.frame.loops:
        raise v.error(
            node,
            "`return` inside a run-time loop is not supported",
            found="a loop whose number of trips is not known at compile time",
            fix="set a variable in the loop and return after it, or unroll the loop with tl.static_range",
        )
    value = None if node.value is None else v.eval(node.value)
    if value is not None and not v.frame.callers:
        fix = "store the result through a pointer with tl.store"
        raise v.error(node, "a kernel returns nothing", found=describe_type(value), fix=fix)
    return Returned(value, v.location(node))


def _expression(v: Visitor, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):  # docstrings and `...`
        v.eval(node.value)


def _nothing(v: Visitor, node: ast.stmt) -> None:
    """`pass`."""


# -------------------------------------------------------------------------------------------------------------- refused
# Class of the node: what it is, and what to write in its place.
_BOOLEAN_LOOP = "put the rest of the body under an `if`, or loop with `while` on a condition that the body computes"
REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Assert: ("`assert`", "check compile-time values with tl.static_assert(condition, message)"),
    ast.AsyncFor: ("`async for`", "write a plain `for`"),
    ast.AsyncFunctionDef: ("`async def`", "define a plain function at module level: a call inlines it"),
    ast.AsyncWith: ("`async with`", "remove it"),
    ast.Await: ("`await`", "remove it"),
    ast.Break: ("`break`", _BOOLEAN_LOOP),
    ast.ClassDef: ("`class`", "group values in tuples"),
    ast.Continue: ("`continue`", _BOOLEAN_LOOP),
    ast.Delete: ("`del`", "remove it: registers and buffers are freed after the last use"),
    ast.Dict: ("a dict", "use one name per entry, or a tuple"),
    ast.DictComp: ("a dict", "use one name per entry, or a tuple"),
    ast.FunctionDef: ("a nested function", "define it at module level: a call inlines it"),
    ast.GeneratorExp: ("a generator expression", "write a list comprehension, which is unrolled at compile time"),
    ast.Global: ("`global`", "pass values in as arguments and return them"),
    ast.Import: ("`import`", "import at the top of the file"),
    ast.ImportFrom: ("`import`", "import at the top of the file"),
    ast.Lambda: ("`lambda`", "define a function at module level: a call inlines it"),
    ast.Nonlocal: ("`nonlocal`", "pass values in as arguments and return them"),
    ast.Raise: ("`raise`", "check compile-time values with tl.static_assert(condition, message)"),
    ast.Set: ("a set", "use a tuple"),
    ast.SetComp: ("a set", "use a tuple"),
    ast.Starred: ("`*` here", "write the items out"),
    ast.Try: ("`try`", "remove it: a kernel raises no exceptions"),
    ast.Yield: ("`yield`", "store results through pointers with tl.store"),
    ast.YieldFrom: ("`yield`", "store results through pointers with tl.store"),
    ast.Match: ("`match`", "write `if` and `elif`"),
}


def refusal(v: Visitor, node: ast.AST) -> CompileError:
    """The error for syntax that kernels do not have."""
    what, fix = REFUSED.get(type(node), (f"{type(node).__name__} syntax", "write it with plain expressions"))
    return v.error(node, f"{what} is not supported in a kernel", fix=fix)


STATEMENTS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.AnnAssign: _annotated,
    ast.Return: _return,
    ast.Expr: _expression,
    ast.Pass: _nothing,
    ast.If: branches.if_statement,
    ast.For: loops.for_statement,
    ast.While: loops.while_statement,
    ast.With: tasks.with_statement,
}
