"""Calls: functions of the language, compile-time functions, Python builtins, and helpers, which are inlined."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from dataclasses import replace
from types import BuiltinMethodType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError, Location
from tlxc.ir.types import DType
from tlxc.language.core import builtin_max, builtin_min, constexpr, describe, tensor

from . import breakpoints
from .globals import COMPILE_TIME, PYTHON_BUILTINS, has_attribute, is_standard_library, unwrap
from .scope import Frame
from .source import Source
from .values import describe_type, is_runtime

if TYPE_CHECKING:
    from .visitor import Visitor

MAX_DEPTH = 100
MAX_NUMBERS = 1024  # of a range that is a value
CALLABLE = "functions of tl and tlx, functions and kernels written in Python, compile-time functions, and " + ", ".join(
    PYTHON_BUILTINS
)


def call(v: Visitor, node: ast.Call) -> Any:
    if isinstance(node.func, ast.Name) and node.func.id == "print" and "print" not in v.frame.names:
        fix = "print compile-time values with tl.static_print"
        raise v.error(node, "`print` is not supported in a kernel", fix=fix)
    callee = v.eval(node.func)
    args, keywords = arguments(v, node)
    if callee is builtins.breakpoint:
        return breakpoints.stop(v, node)
    if callee is builtins.range or hasattr(callee, "__tlxc_range__"):
        return _range(v, node, callee, args, keywords)
    if hasattr(callee, "__tlxc_source__"):
        return inline(v, node, callee.__tlxc_source__, args, keywords)
    if hasattr(callee, "__tlxc_constexpr__"):
        return _compile_time(v, node, callee, args, keywords)
    if hasattr(callee, "__tlxc_builtin__") or _is_method(callee) or _is_language_class(callee):
        return v.apply(node, callee, *args, **keywords)
    if isinstance(callee, FunctionType) and not is_standard_library(callee):
        with v.at(node):
            source = Source.of(callee)
        return inline(v, node, source, args, keywords)
    if id(callee) in PYTHON_IDS:
        return v.apply(node, PYTHON_IDS[id(callee)], *args, **keywords)
    raise v.error(
        node.func,
        f"`{ast.unparse(node.func)}` cannot be called in a kernel",
        found=describe_type(callee) + (" of Python's standard library" if isinstance(callee, FunctionType) else ""),
        allowed=CALLABLE,
        fix=_call_fix(callee),
    )


def _range(v: Visitor, node: ast.Call, callee: Any, args: list[Any], keywords: dict[str, Any]) -> tuple[int, ...]:
    """Python's range outside of a loop's head: the tuple of its numbers, which are known at compile time."""
    if callee is builtins.range and not any(map(is_runtime, args)):
        numbers = v.apply(node, builtins.range, *args, **keywords)
        if len(numbers) <= MAX_NUMBERS:
            return tuple(numbers)
    raise v.error(
        node,
        "this range is no value in a kernel",
        found=f"`{ast.unparse(node)}`",
        allowed=f"`for i in range(...)`; elsewhere `range` of compile-time bounds and up to {MAX_NUMBERS} numbers, "
        "which is the tuple of them",
        fix="loop over it where it stands",
    )


def _call_fix(callee: Any) -> str:
    if isinstance(callee, DType):
        return f"convert a value with x.to({callee!r})"
    return COMPILE_TIME if callable(callee) and not isinstance(callee, tensor) else ""


def arguments(v: Visitor, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    """The evaluated arguments; `*items` takes the items of a tuple."""
    args: list[Any] = []
    for a in node.args:
        if isinstance(a, ast.Starred):
            args += unpacked(v, a.value)
        else:
            args.append(v.eval(a))
    for k in node.keywords:
        if k.arg is None:
            fix = "write the arguments as name=value"
            raise v.error(k.value, "`**` in a call is not supported in a kernel", fix=fix)
    return args, {k.arg: v.eval(k.value) for k in node.keywords if k.arg is not None}


def unpacked(v: Visitor, node: ast.expr) -> tuple[Any, ...]:
    """The items of an expression after `*`."""
    value = v.eval(node)
    if not isinstance(value, tuple):
        raise v.error(node, "only a tuple can be unpacked with `*`", found=describe_type(value))
    return value


def _is_method(callee: Any) -> bool:
    """A method of a run-time value, or one of Python's own on a compile-time string or number."""
    if isinstance(callee, MethodType):
        return type(callee.__self__).__module__.partition(".")[0] == "tlxc"
    return isinstance(callee, BuiltinMethodType) and isinstance(callee.__self__, (str, int, float, tuple))


def _is_language_class(callee: Any) -> bool:
    return isinstance(callee, type) and callee.__module__.startswith("tlxc.language")


def _compile_time(v: Visitor, node: ast.Call, fn: Callable[..., Any], args: list[Any], keywords: dict[str, Any]) -> Any:
    for position, value in enumerate((*args, *keywords.values())):
        if is_runtime(value):
            raise v.error(
                node,
                f"`{ast.unparse(node.func)}` runs at compile time and takes compile-time values only",
                found=f"argument {position + 1} is {describe_type(value)}",
                fix="pass compile-time values, or remove @tlxc.constexpr_function so that the call is inlined",
            )
    return v.apply(node, fn, *args, **keywords)


# ------------------------------------------------------------------------------------------------------------ inlining
def inline(v: Visitor, node: ast.Call, source: Source, args: list[Any], keywords: dict[str, Any]) -> Any:
    """Compiles the function's body in place of the call, with its parameters bound to the argument values."""
    here = v.location(node)
    frame = Frame(source, (replace(here, callers=()), *v.frame.callers))
    if len(frame.callers) > MAX_DEPTH:
        raise _endless(source, here)
    try:
        bound = source.signature.bind(*args, **keywords)
    except TypeError as error:
        raise describe_failure(node, source, tuple(args), keywords, error).at(here) from None
    bound.apply_defaults()
    constexprs = {p.name for p in source.parameters if p.constexpr}
    outer, v.frame = v.frame, frame
    try:
        for name, value in bound.arguments.items():
            if name in constexprs and is_runtime(value):
                raise CompileError(
                    f"the parameter `{name}` of `{source.name}` is tl.constexpr, but the call passes a run-time value",
                    found=describe_type(value),
                    fix="pass a compile-time value, or remove the annotation",
                    loc=here,
                )
            v.bind(name, unwrap(value), here)
        returned = v.run(source.node.body)
    except RecursionError:
        raise _endless(source, here) from None
    finally:
        v.frame = outer
    return returned.value if returned else None


def _endless(source: Source, loc: Location) -> CompileError:
    return CompileError(
        f"calls nest too deep at `{source.name}`",
        found="recursion that no compile-time condition ends, or a chain of too many helpers",
        allowed=f"up to {MAX_DEPTH} calls inside each other",
        fix="end the recursion by an `if` on compile-time values, or write a loop",
        loc=replace(loc, callers=loc.callers[:2]),
    )


# ------------------------------------------------------------------------------------------------------ Python builtins
def _number(convert: type) -> Callable[..., Any]:
    """int, float and bool: of compile-time values only."""

    def converted(x: Any = 0) -> Any:
        if is_runtime(x):
            name = {int: "tl.int32", float: "tl.float32", bool: "tl.int1"}[convert]
            summary = f"{convert.__name__}() converts compile-time values only"
            raise CompileError(summary, found=describe_type(x), fix=f"write x.to({name})")
        return convert(x)

    return converted


def _extremum(plain: Callable[..., Any], general: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: general(*values) if is_runtime(values) else plain(*values)


def _tuple(items: Any = ()) -> tuple[Any, ...]:
    if isinstance(items, tensor):
        raise CompileError(
            "a run-time value is no sequence", found=describe(items), fix="take a tile apart with tl.split"
        )
    return tuple(items)


def _is_instance(x: Any, types: Any) -> bool:
    """`tl.constexpr` stands for every compile-time value."""
    classes = types if isinstance(types, tuple) else (types,)
    return isinstance(x, classes) or (constexpr in classes and not is_runtime(x))


def _get_attribute(x: Any, name: str, *default: Any) -> Any:
    if has_attribute(x, name):
        return getattr(x, name)
    if default:
        return default[0]
    raise CompileError(f"{describe_type(x)} has no attribute `{name}`")


def _text(x: Any = "") -> str:
    if is_runtime(x):
        raise CompileError("str() converts compile-time values only", found=describe_type(x))
    return str(x)


PYTHON: dict[Any, Callable[..., Any]] = {
    abs: abs,
    bool: _number(bool),
    float: _number(float),
    getattr: _get_attribute,
    hasattr: has_attribute,
    int: _number(int),
    isinstance: _is_instance,
    len: len,
    list: _tuple,
    max: _extremum(max, builtin_max),
    min: _extremum(min, builtin_min),
    str: _text,
    tuple: _tuple,
}
PYTHON_IDS = {id(builtin): meaning for builtin, meaning in PYTHON.items()}  # a callee need not be hashable


# ------------------------------------------------------------------------------------------------------------- messages
def describe_failure(
    node: ast.AST, fn: Any, args: tuple[Any, ...], keywords: dict[str, Any], error: Exception
) -> CompileError:
    """The error for an exception that a called function or an operator raised."""
    text = str(error) or type(error).__name__
    if isinstance(node, ast.Call):
        what = ast.unparse(node.func)
        return _wrong_arguments(what, fn, args, keywords) or CompileError(
            f"`{what}` raised {type(error).__name__}", found=text
        )
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.Compare, ast.UnaryOp)) and isinstance(error, TypeError):
        operands = " and ".join(describe_type(a) for a in args)
        return CompileError(f"`{_symbol(node)}` does not take {operands}")
    return CompileError("this expression cannot be computed at compile time", found=text)


def _symbol(node: ast.BinOp | ast.AugAssign | ast.Compare | ast.UnaryOp) -> str:
    """The operator as it is written; of a chained comparison, its first one."""
    from .expressions import BINARY, COMPARE, UNARY

    if isinstance(node, ast.Compare):
        return COMPARE[type(node.ops[0])][1]
    return UNARY[type(node.op)][1] if isinstance(node, ast.UnaryOp) else BINARY[type(node.op)][1]


def _wrong_arguments(what: str, fn: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> CompileError | None:
    """The error for arguments that do not fit the function's signature; None where they do."""
    try:
        signature = fn.signature if isinstance(fn, Source) else inspect.signature(fn)
    except (TypeError, ValueError):  # builtins without one
        return None
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
        return CompileError(
            f"`{what}` cannot be called with these arguments",
            found=str(error),
            allowed=f"{what}{inspect.Signature(plain)}",
        )
    return None
