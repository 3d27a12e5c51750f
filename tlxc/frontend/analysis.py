"""What statements may do, read off the AST before they are compiled: which names they assign, whether they return.

`decide` tells the outcome of an `if` condition that is known already, else None; dead branches do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

Decide = Callable[[ast.expr], bool | None]


# Fields that hold no node, or one that says nothing by itself: contexts and operators.
_LEAVES = frozenset("ctx op ops id attr arg name names kind type_comment".split())


@cache
def _inside(kind: type[ast.AST]) -> tuple[str, ...]:
    """Names of the fields of a class of nodes that hold others, the last first."""
    return () if kind is ast.Constant else tuple(name for name in reversed(kind._fields) if name not in _LEAVES)


def walk(root: ast.AST) -> list[ast.AST]:
    """The node and everything inside it but contexts and operators, in the order of fields; faster than `ast.walk`."""
    found: list[ast.AST] = []
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        found.append(node)
        for name in _inside(node.__class__):
            value = getattr(node, name)
            if value.__class__ is list:
                pending += [item for item in reversed(value) if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                pending.append(value)
    return found


def _alive(node: ast.AST, decide: Decide) -> Iterator[ast.AST]:
    """The node and everything inside it, in order of the text, but for tasks and the dead branches of `if`
    statements."""
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and (known := decide(node.test)) is not None:
        children = [node.test, *(node.body if known else node.orelse)]
    elif isinstance(node, ast.With):  # a task's names are its own, and nothing returns out of it
        children = []
    elif isinstance(node, ast.comprehension):  # its target is local to it
        children = [node.iter, *node.ifs]
    for child in children:
        yield from _alive(child, decide)


def assigned(statements: Iterable[ast.stmt], decide: Decide = lambda test: None) -> list[str]:
    """Names that the statements may assign, in order of their first assignment."""
    names: dict[str, None] = {}
    for statement in statements:
        for node in _alive(statement, decide):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
    return list(names)


def has_return(statement: ast.stmt, decide: Decide) -> bool:
    return any(isinstance(node, ast.Return) for node in _alive(statement, decide))


def names_used(node: ast.AST) -> set[str]:
    return {n.id for n in walk(node) if isinstance(n, ast.Name)}


def local_names(arguments: ast.arguments, nodes: Iterable[ast.AST]) -> set[str]:
    """Parameters and every name that the nodes of the function assign anywhere, as Python's own scoping has it."""
    stars = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars)}
    return names | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
