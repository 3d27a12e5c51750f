"""Targets of assignments: names, and tuples of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tlxc.language.core import tensor

from .values import describe_type

if TYPE_CHECKING:
    from .visitor import Visitor

# What cannot be assigned to: summary, found, allowed, fix of the error.
TARGETS: dict[type[ast.AST], tuple[str, str, str, str]] = {
    ast.Subscript: (
        "an element cannot be assigned: values in a kernel do not change in place",
        "",
        "names, and tuples of names",
        "write memory with tl.store, or make a new tile with tl.where",
    ),
    ast.Attribute: (
        "an attribute cannot be assigned: values in a kernel do not change in place",
        "",
        "names, and tuples of names",
        "assign to a name of its own",
    ),
    ast.Starred: (
        "`*` in the target of an assignment is not supported",
        "",
        "names, and tuples of names",
        "slice the tuple",
    ),
}


def assign(v: Visitor, target: ast.expr, value: Any) -> None:
    """Binds a name, or the names of a possibly nested tuple."""
    if isinstance(target, ast.Name):
        v.bind(target.id, value, v.location(target))
    elif isinstance(target, (ast.Tuple, ast.List)):
        _assign_items(v, target, value)
    else:
        raise v.error(target, *TARGETS[type(target)])


def _assign_items(v: Visitor, target: ast.Tuple | ast.List, value: Any) -> None:
    if not isinstance(value, tuple):
        fix = "take a tile apart with tl.split, along a last extent of 2 or odd" if isinstance(value, tensor) else ""
        raise v.error(target, "only a tuple can be unpacked", found=describe_type(value), fix=fix)
    starred = [t for t in target.elts if isinstance(t, ast.Starred)]
    if starred:
        raise v.error(starred[0], *TARGETS[ast.Starred])
    if len(value) != len(target.elts):
        raise v.error(
            target,
            f"{len(target.elts)} names are assigned from a tuple of {len(value)}",
            found=describe_type(value),
            fix="use as many names as there are values",
        )
    for item, part in zip(target.elts, value):
        assign(v, item, part)
