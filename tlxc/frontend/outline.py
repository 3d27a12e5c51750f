"""What the digest of a function takes from its text: where the function stands in it, and the outside names it writes.

Both are found by parsing, and that is most of the time that it takes to find a kernel in the cache.  They follow from
the name and the text alone, so they may be kept by a hash of these, in this process and on disk: what is kept can be
missing but never out of date.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Outline(NamedTuple):
    """The function is lines `first` to `last`, exclusive, of its text.  `chains`: outside names, with the attributes
    that follow them, in the order of the text."""

    first: int
    last: int
    chains: tuple[tuple[str, ...], ...]


# By `address`: what this process has parsed, and what it was given from disk
OUTLINES: dict[str, Outline] = {}


def address(name: str, lines: Sequence[str]) -> str:
    """Of the outline of the function `name` that these lines hold."""
    return hashlib.sha256(f"{name}\0{''.join(lines)}".encode()).hexdigest()


def outline(function: ast.FunctionDef, nodes: Iterable[ast.AST], local: set[str], shift: int) -> Outline:
    """`nodes` and `local` are those of the function; `shift` lines of what was parsed stand before the text."""
    chains = (_chain(node) for node in nodes if node.__class__ in (ast.Name, ast.Attribute))
    outside = tuple(chain for chain in dict.fromkeys(chains) if chain and chain[0] not in local)
    assert function.end_lineno is not None
    return Outline(function.lineno - 1 - shift, function.end_lineno - shift, outside)


def _chain(node: ast.AST) -> tuple[str, ...]:
    """`a.b.c` as its names; nothing for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()
