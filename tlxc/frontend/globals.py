"""Names from outside a kernel: which kinds of values may be read, and how they are found.

Module constants are read while the kernel is compiled, so only values that can be compared and hashed are allowed: a
changed one must be noticed.
"""

from __future__ import annotations

import builtins
from types import FunctionType, ModuleType
from typing import Any

from tlxc.errors import CompileError
from tlxc.language.core import constexpr

from .source import Source

UNDEFINED = object()
CONSTANT_TYPES = (bool, int, float, str, type(None))
MARKS = ("__tlxc_builtin__", "__tlxc_constexpr__", "__tlxc_range__", "__tlxc_source__")

# Python builtins that have a meaning in a kernel; `calls` says which.
PYTHON_BUILTINS = "abs bool float getattr hasattr int isinstance len list max min range tuple".split()
ALLOWED_GLOBALS = (
    "modules, functions, kernels, dtypes, ints, floats, bools, strings, None, tuples of these, and tl.constexpr values"
)


def unwrap(value: Any) -> Any:
    """A compile-time value without its `tl.constexpr` wrapper; a list becomes a tuple, because kernels do not mutate."""
    if isinstance(value, constexpr):
        return unwrap(value.value)
    if isinstance(value, list) or type(value) is tuple:
        return tuple(unwrap(v) for v in value)
    return value


def is_constant(value: Any) -> bool:
    """Whether a value from outside is data that a kernel may read: numbers, strings, dtypes, layouts and tuples of them."""
    if isinstance(value, tuple):
        return all(is_constant(v) or is_code(v) for v in value)
    return isinstance(value, (*CONSTANT_TYPES, constexpr)) or (_is_ours(type(value)) and not is_code(value))


def is_code(value: Any) -> bool:
    """Whether a value from outside is a function, kernel or class that a kernel may name."""
    if isinstance(value, type):
        return value in (bool, int, float, str, tuple, list) or _is_ours(value)
    return isinstance(value, FunctionType) or any(hasattr(value, mark) for mark in MARKS)


def _is_ours(owner: type) -> bool:
    return owner.__module__.partition(".")[0] == "tlxc"


def find(source: Source, name: str) -> Any:
    """The value of a name that is no local of the function: enclosing functions, then the module, then the Python
    builtins that kernels have; UNDEFINED where nothing is found."""
    cell = source.cell(name)
    if cell is not None:
        try:
            return cell.cell_contents
        except ValueError:  # the enclosing function has not assigned it yet
            return UNDEFINED
    if name in source.fn.__globals__:
        return source.fn.__globals__[name]
    return getattr(builtins, name) if name in PYTHON_BUILTINS else UNDEFINED


def admit(name: str, value: Any) -> Any:
    """A value from outside as the kernel sees it; an error for the kinds that it may not read."""
    if isinstance(value, ModuleType) or is_constant(value) or is_code(value):
        return unwrap(value)
    python = getattr(builtins, name, UNDEFINED) is value or getattr(value, "__module__", None) == "builtins"
    raise CompileError(
        f"`{name}` cannot be used in a kernel",
        found=f"a Python builtin, {name}" if python and callable(value) else f"a value of type {_type_name(value)}",
        allowed=ALLOWED_GLOBALS,
        fix=_FIXES.get(type(value).__name__, "pass it as a kernel argument, or compute what is needed of it before the launch"),
    )


_FIXES = {
    "list": "make it a tuple: then its value can enter the cache key",
    "dict": "use one name per entry, or a tuple",
    "set": "make it a tuple: then its value can enter the cache key",
    "builtin_function_or_method": "call it in a function decorated with @tlxc.constexpr_function, which runs at compile time",
    "ufunc": "use the function of the same name in `tl`",
    "type": "call it in a function decorated with @tlxc.constexpr_function, which runs at compile time",
}


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
