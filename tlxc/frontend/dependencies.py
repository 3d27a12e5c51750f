"""What a function depends on outside itself: the functions that it calls by name and the constants that it reads.

Found in the text without running anything, once per function.  The frontend only ever follows names that are found
here: a module is reached by its name and never passed as a value, so nothing escapes the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from .globals import UNDEFINED, find, is_constant, is_standard_library, unwrap
from .source import Source


@dataclass(frozen=True)
class Change:
    """A module constant or function that is no longer what was compiled in."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Read:
    """One constant or function: `name` as written in the kernel, the value that was read (UNDEFINED where there was
    none), and where to look again: `key` of the function's globals or of a module, or a closure cell."""

    name: str
    value: Any
    holder: Any = field(repr=False)
    key: str

    def now(self) -> Any:
        """The present value, or UNDEFINED."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.key, UNDEFINED)
        if isinstance(self.holder, ModuleType):
            return getattr(self.holder, self.key, UNDEFINED)
        try:
            return self.holder.cell_contents
        except ValueError:  # the variable was deleted
            return UNDEFINED

    def change(self) -> Change | None:
        new = self.now()
        return None if _key(new) == _key(self.value) else Change(self.name, unwrap(self.value), unwrap(new))


@dataclass(frozen=True)
class Dependencies:
    """`digest`: hexadecimal SHA-256 of everything that the function is compiled from, except its arguments.
    `addresses`: of the outlines of the function and of all that it calls."""

    digest: str
    reads: tuple[Read, ...]
    addresses: tuple[str, ...]


def collect(source: Source) -> Dependencies:
    """Walks the function and everything that it calls; the order is that of the text, so the digest is reproducible."""
    pending, seen = [source], {source.fn}
    parts = [source.text]  # an error where the kernel has no source; helpers without are reported where they are called
    reads: dict[tuple[int, str], Read] = {}
    addresses = []
    while pending:
        current = pending.pop(0)
        if not current.readable:
            continue
        addresses.append(current.address)
        parts.append(f"function {current.name}\n{current.text}")
        containers = (list, dict, set) if hasattr(current.fn, "__tlxc_constexpr__") else ()
        found = [(f"default {p.name}", p.default, None, "") for p in current.parameters]
        for name, value, holder, key in (*found, *_references(current)):
            functions = list(_functions(value))
            pending += [f for f in functions if f.fn not in seen]
            seen |= {f.fn for f in functions}
            constant = value is UNDEFINED or is_constant(value) or isinstance(value, containers)
            if constant:
                parts.append(f"constant {current.name}.{name} = {_key(value)}")
            if (constant or functions) and holder is not None:
                reads.setdefault((id(holder), key), Read(name, value, holder, key))
    text = "\0".join(parts)
    return Dependencies(hashlib.sha256(text.encode()).hexdigest(), tuple(reads.values()), tuple(addresses))


def _references(source: Source) -> Iterator[tuple[str, Any, Any, str]]:
    """(dotted name, value, holder, key) of every outside name, attributes of modules included, in order of the text."""
    for chain in source.chains:
        holder: Any = source.cell(chain[0])
        if holder is None:
            holder = source.fn.__globals__
        value, key = find(source, chain[0]), chain[0]
        for i, attribute in enumerate(chain[1:], 1):
            if not isinstance(value, ModuleType):
                chain = chain[:i]
                break
            holder, key = value, attribute
            value = getattr(value, attribute, UNDEFINED)
        if not _own(holder):
            yield ".".join(chain), value, holder, key


def _own(holder: Any) -> bool:
    """Whether a namespace is one of tlxc itself, whose version is in every key."""
    name = holder.get("__name__", "") if isinstance(holder, dict) else getattr(holder, "__name__", "")
    return str(name).partition(".")[0] == "tlxc"


def _functions(value: Any) -> Iterator[Source]:
    """Sources of the functions in a value: itself, or items of a tuple.  What kernels may not contain is no error here:
    compile-time functions are no kernels, and others are reported where they are called."""
    if isinstance(value, tuple):
        for item in value:
            yield from _functions(item)
        return
    value = unwrap(value)
    carried = getattr(value, "__tlxc_source__", None)
    if isinstance(carried, Source):
        yield carried
    elif isinstance(value, FunctionType) and not _own(value.__globals__) and not is_standard_library(value):
        yield Source(value)


def _key(value: Any) -> str:
    """Text that two values share exactly when a kernel cannot tell them apart."""
    value = unwrap(value)
    if value is UNDEFINED:
        return "undefined"
    if isinstance(value, tuple):
        return f"({', '.join(map(_key, value))})"
    functions = [f for f in _functions(value) if f.readable]
    return functions[0].text if functions else f"{type(value).__name__} {value!r}"
