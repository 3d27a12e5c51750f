"""Expressions: names, literals, operators, attributes, subscripts.  Calls stand in `calls`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tlxc.language import promotion
from tlxc.language.core import (
    constant_floordiv,
    constant_mod,
    logical_and,
    logical_not,
    logical_or,
    tensor,
)

from . import branches, calls, loops
from .assign import assign
from .globals import UNDEFINED, admit, has_attribute
from .scope import suggestion
from .values import RUNTIME, describe_type, is_runtime, same

if TYPE_CHECKING:
    from .visitor import Visitor

# Operator, and how messages write it.
BINARY: dict[type[ast.operator], tuple[Callable[[Any, Any], Any], str]] = {
    ast.Add: (operator.add, "+"),
    ast.Sub: (operator.sub, "-"),
    ast.Mult: (operator.mul, "*"),
    ast.Div: (operator.truediv, "/"),
    ast.FloorDiv: (operator.floordiv, "//"),
    ast.Mod: (operator.mod, "%"),
    ast.Pow: (operator.pow, "**"),
    ast.LShift: (operator.lshift, "<<"),
    ast.RShift: (operator.rshift, ">>"),
    ast.BitAnd: (operator.and_, "&"),
    ast.BitOr: (operator.or_, "|"),
    ast.BitXor: (operator.xor, "^"),
    ast.MatMult: (operator.matmul, "@"),
}
COMPARE: dict[type[ast.cmpop], tuple[Callable[[Any, Any], Any], str]] = {
    ast.Eq: (operator.eq, "=="),
    ast.NotEq: (operator.ne, "!="),
    ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, "<="),
    ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, ">="),
}
UNARY: dict[type[ast.unaryop], tuple[Callable[[Any], Any], str]] = {
    ast.USub: (operator.neg, "-"),
    ast.UAdd: (operator.pos, "+"),
    ast.Invert: (operator.invert, "~"),
}
CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}
# Compile-time numbers follow the rule of run-time integers, not Python's.
CONSTANT_DIVISION: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.FloorDiv: constant_floordiv,
    ast.Mod: constant_mod,
}


def _constant(v: Visitor, node: ast.Constant) -> Any:
    if isinstance(node.value, (bool, int, float, str, type(None))):
        return node.value
    raise v.error(
        node,
        f"a kernel has no values of type {type(node.value).__name__}",
        allowed="bools, ints, floats, strings and None",
    )


def _name(v: Visitor, node: ast.Name) -> Any:
    return v.lookup(node)


def _sequence(v: Visitor, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
    """Tuples and lists are both tuples: nothing in a kernel changes in place."""
    items: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            items += calls.unpacked(v, item.value)
        else:
            items.append(v.eval(item))
    return tuple(items)


def _attribute(v: Visitor, node: ast.Attribute) -> Any:
    base, name = v.reach(node.value), node.attr
    if isinstance(base, ModuleType):
        value = getattr(base, name, UNDEFINED)
        ours = base.__name__.partition(".")[0] == "tlxc"
        offered = getattr(base, "__all__", dir(base)) if ours else dir(base)
        if value is UNDEFINED or name not in offered:
            summary = f"the module `{ast.unparse(node.value)}` has no `{name}`"
            raise v.error(node, summary, fix=suggestion(name, offered))
        with v.at(node):
            return admit(f"{ast.unparse(node.value)}.{name}", value)
    return attribute(v, node, base, name)


def attribute(v: Visitor, node: ast.AST, base: Any, name: str) -> Any:
    """`base.name` of a value that is no module."""
    if name == "value" and not isinstance(base, RUNTIME):
        return base  # compile-time values stand for themselves, with or without `.value`
    if not has_attribute(base, name):
        fix = "" if name.startswith("_") else suggestion(name, [n for n in dir(base) if has_attribute(base, n)])
        raise v.error(node, f"{describe_type(base)} has no attribute `{name}`", fix=fix)
    return v.apply(node, getattr, base, name)


def _subscript(v: Visitor, node: ast.Subscript) -> Any:
    base, index = v.eval(node.value), v.eval(node.slice)
    if isinstance(base, tuple) and is_runtime(index):
        raise v.error(
            node.slice,
            "a tuple is indexed by compile-time integers",
            found=describe_type(index),
            fix="loop over the tuple with tl.static_range(len(x)), or choose with tl.where",
        )
    return v.apply(node, operator.getitem, base, index)


def _slice(v: Visitor, node: ast.Slice) -> slice:
    start, stop, step = (None if part is None else v.eval(part) for part in (node.lower, node.upper, node.step))
    if is_runtime((start, stop, step)):
        raise v.error(
            node,
            "the bounds of a slice are compile-time integers",
            found=", ".join(describe_type(part) for part in (start, stop, step) if is_runtime(part)),
            fix="address a part of memory with pointer arithmetic, for example x + tl.arange(0, 64) + start",
        )
    return slice(start, stop, step)


def binary(v: Visitor, node: ast.AST, op: ast.operator, a: Any, b: Any) -> Any:
    """`a op b` for operator expressions and augmented assignments."""
    kind = type(op)
    fn = BINARY[kind][0]
    if kind in CONSTANT_DIVISION and promotion.is_literal(a) and promotion.is_literal(b):
        fn = CONSTANT_DIVISION[kind]
    return v.apply(node, fn, a, b)


def _binary(v: Visitor, node: ast.BinOp) -> Any:
    a = v.eval(node.left)
    return binary(v, node, node.op, a, v.eval(node.right))


def _unary(v: Visitor, node: ast.UnaryOp) -> Any:
    x = v.eval(node.operand)
    if isinstance(node.op, ast.Not):
        return v.apply(node, logical_not, x) if isinstance(x, tensor) else not x
    return v.apply(node, UNARY[type(node.op)][0], x)


def _boolean(v: Visitor, node: ast.BoolOp) -> Any:
    """`and` and `or`: compile-time operands decide as in Python; run-time ones are all evaluated and combined."""
    stop, combine = (False, logical_and) if isinstance(node.op, ast.And) else (True, logical_or)
    result: Any = not stop
    for operand in node.values:
        x = v.eval(operand)
        if isinstance(result, tensor):
            if not isinstance(x, tensor) and bool(x) is stop:
                return stop
            result = v.apply(node, combine, result, x if isinstance(x, tensor) else bool(x))
        elif isinstance(x, tensor) or bool(x) is not stop:
            result = x
        else:
            return x
    return result


def _compare(v: Visitor, node: ast.Compare) -> Any:
    """Comparisons; a chain evaluates each operand once and joins its parts with `and`."""
    result: Any = True
    left = v.eval(node.left)
    for op, operand in zip(node.ops, node.comparators):
        right = v.eval(operand)
        part = _compare_two(v, node, op, left, right)
        if not isinstance(part, tensor) and not part:
            return False
        result = v.apply(node, logical_and, result, part) if isinstance(result, tensor) else part
        left = right
    return result


def _compare_two(v: Visitor, node: ast.Compare, op: ast.cmpop, a: Any, b: Any) -> Any:
    if isinstance(op, (ast.Is, ast.IsNot)):
        if isinstance(a, RUNTIME) and isinstance(b, RUNTIME):
            raise v.error(node, "`is` does not compare run-time values", fix="write `==`")
        return same(a, b) is isinstance(op, ast.Is)
    if isinstance(op, (ast.In, ast.NotIn)):
        if is_runtime((a, b)) or not isinstance(b, (tuple, str)):
            raise v.error(
                node,
                "`in` works on compile-time values only",
                found=f"{describe_type(a)} in {describe_type(b)}",
                fix="compare a run-time value with each item, and join the results with `or`",
            )
        return v.apply(node, operator.contains, b, a) is isinstance(op, ast.In)
    if is_runtime((a, b)) and (isinstance(a, tuple) or isinstance(b, tuple)):
        raise v.error(
            node,
            "tuples with run-time values cannot be compared",
            found=f"{describe_type(a)} and {describe_type(b)}",
            fix="compare them item by item",
        )
    return v.apply(node, COMPARE[type(op)][0], a, b)


def _conditional(v: Visitor, node: ast.IfExp) -> Any:
    condition = branches.condition(v, node.test, "if")
    if isinstance(condition, bool):
        return v.eval(node.body if condition else node.orelse)
    return branches.choose(v, node, condition, lambda: v.eval(node.body), lambda: v.eval(node.orelse))


def _walrus(v: Visitor, node: ast.NamedExpr) -> Any:
    value = v.eval(node.value)
    v.bind(node.target.id, value, v.location(node.target))
    return value


def _f_string(v: Visitor, node: ast.JoinedStr) -> str:
    return "".join(v.eval(part) for part in node.values)


def _formatted(v: Visitor, node: ast.FormattedValue) -> str:
    value = v.eval(node.value)
    if is_runtime(value):
        raise v.error(
            node.value,
            "an f-string holds compile-time values only",
            found=describe_type(value),
            fix="format x.shape or x.dtype, or store the value and print it on the host",
        )
    spec = "" if node.format_spec is None else v.eval(node.format_spec)
    if node.conversion != -1:
        value = CONVERSIONS[node.conversion](value)
    return v.apply(node, format, value, spec)


def _comprehension(v: Visitor, node: ast.ListComp) -> tuple[Any, ...]:
    """`[f(x) for x in items]`, unrolled; the loop variable is local to it."""
    (first, *more) = node.generators
    if more or first.ifs or first.is_async:
        summary = "a list comprehension has one `for` and no `if` in a kernel"
        raise v.error(node, summary, fix="write a tl.static_range loop")
    items = loops.compile_time_items(v, first.iter)
    outside = dict(v.frame.names)
    made = []
    for item in items:
        assign(v, first.target, item)
        made.append(v.eval(node.elt))
    for name in {n.id for n in ast.walk(first.target) if isinstance(n, ast.Name)}:
        v.frame.names.pop(name, None)
        if name in outside:
            v.frame.names[name] = outside[name]
    return tuple(made)


EXPRESSIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.NamedExpr: _walrus,
    ast.JoinedStr: _f_string,
    ast.FormattedValue: _formatted,
    ast.ListComp: _comprehension,
    ast.Call: calls.call,
}
