"""Names from outside a kernel: which kinds of values may be read, and how they are found.

Module constants are read while the kernel is compiled, so only values that can be compared and hashed are allowed: a
changed one must be noticed.
"""

from __future__ import annotations

import builtins
import sys
from types import FunctionType, ModuleType
from typing import Any

from tlxc.errors import CompileError
from tlxc.language.core import constexpr

from .source import Source

UNDEFINED = object()
CONSTANT_TYPES = (bool, int, float, str, type(None))
MARKS = ("__tlxc_builtin__", "__tlxc_constexpr__", "__tlxc_range__", "__tlxc_source__")

# Python builtins that have a meaning in a kernel; `calls` says which.
PYTHON_BUILTINS = "abs bool breakpoint float getattr hasattr int isinstance len list max min range str tuple".split()
_BUILTIN_IDS = {id(getattr(builtins, name)) for name in PYTHON_BUILTINS}
ALLOWED_GLOBALS = (
    "modules, functions, kernels, dtypes, ints, floats, bools, strings, None, tuples of these, and tl.constexpr values"
)


def unwrap(value: Any) -> Any:
    """A compile-time value without its `tl.constexpr` wrapper; a list becomes a tuple: kernels do not mutate."""
    if isinstance(value, constexpr):
        return unwrap(value.value)
    if isinstance(value, list) or type(value) is tuple:
        return tuple(unwrap(v) for v in value)
    return value


def is_constant(value: Any) -> bool:
    """Whether a value from outside is data that a kernel may read: numbers, strings, dtypes, layouts, tuples."""
    if isinstance(value, tuple):
        return all(is_constant(v) or is_code(v) for v in value)
    return isinstance(value, (*CONSTANT_TYPES, constexpr)) or (_is_ours(type(value)) and not is_code(value))


def is_code(value: Any) -> bool:
    """Whether a value from outside is a function, kernel or class that a kernel may name."""
    if id(value) in _BUILTIN_IDS:
        return True
    if isinstance(value, type):
        return _is_ours(value)
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


def has_attribute(x: Any, name: str) -> bool:
    """Whether a value that is no module offers an attribute to kernels; properties are not run, they may append ops."""
    if name.startswith("_") or (name == "value" and hasattr(type(x), "value")):
        return False
    return hasattr(x if isinstance(x, type) else type(x), name) or name in getattr(x, "__dict__", ())


def admit(name: str, value: Any) -> Any:
    """A value from outside as the kernel sees it; an error for the kinds that it may not read."""
    if isinstance(value, ModuleType) or is_constant(value) or is_code(value):
        return unwrap(value)
    raise CompileError(
        f"`{name}` cannot be used in a kernel",
        found=_describe(value),
        allowed=ALLOWED_GLOBALS,
        fix=_FIXES.get(type(value).__name__, "pass it as a kernel argument, or pass what is needed of it"),
    )


def is_standard_library(fn: FunctionType) -> bool:
    """Whether a function is Python's own: it was not written to be inlined into kernels."""
    return (fn.__module__ or "").partition(".")[0] in sys.stdlib_module_names - {"__main__"}


COMPILE_TIME = "call it in a function decorated with @tlxc.constexpr_function, which runs at compile time"
_FIXES = {
    "list": "make it a tuple: then its value can enter the cache key",
    "dict": "use one name per entry, or a tuple",
    "set": "make it a tuple: then its value can enter the cache key",
    "builtin_function_or_method": COMPILE_TIME,
    "ufunc": "use the function of the same name in `tl`",
    "type": COMPILE_TIME,
}


def _describe(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    kind = type(value)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a value of type {prefix}{kind.__qualname__}"
