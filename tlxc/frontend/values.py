"""How Python values map to IR values where control flow joins.

A value that a loop carries or an `if` merges is a tree of tuples.  Its `Structure` says what each leaf is: a run-time
value of a known type, or a compile-time value that stays one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Union

from tlxc.ir.core import Value
from tlxc.ir.types import DType, Scalar, Type, element_of, shape_of
from tlxc.language import promotion
from tlxc.language.core import as_tensor, describe, handle, tensor
from tlxc.language.handles import wrap

RUNTIME = (tensor, handle)


@dataclass(frozen=True)
class Leaf:
    """A run-time value."""

    type: Type


@dataclass(frozen=True)
class Fixed:
    """A compile-time value that is the same on every path."""

    value: Any


@dataclass(frozen=True)
class Group:
    """A tuple."""

    items: tuple[Structure, ...]


Structure = Union[Leaf, Fixed, Group]


class Mismatch(Exception):
    """Two values cannot be one: they differ in the parts `left` and `right` (values or structures)."""

    def __init__(self, left: Any, right: Any) -> None:
        super().__init__()
        self.left, self.right = left, right


def is_runtime(x: Any) -> bool:
    """Whether any part of a value exists only at run time."""
    return any(is_runtime(v) for v in x) if isinstance(x, tuple) else isinstance(x, RUNTIME)


def same(a: Any, b: Any) -> bool:
    """Whether two values are one compile-time value, or one and the same run-time value."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, RUNTIME) or isinstance(b, RUNTIME):
        return isinstance(a, RUNTIME) and isinstance(b, RUNTIME) and a.value is b.value
    return type(a) is type(b) and repr(a) == repr(b) and bool(a == b)  # repr tells 0.0 from -0.0


def describe_type(x: Any) -> str:
    """A value or a structure as messages name it, tuples item by item."""
    if isinstance(x, Group):
        x = x.items
    if isinstance(x, tuple):
        return f"a tuple ({', '.join(map(describe_type, x))})"
    if isinstance(x, Fixed):
        return describe_type(x.value)
    if isinstance(x, Leaf):
        return describe(wrap(Value(x.type)))
    return f"the function `{x.__name__}`" if isinstance(x, FunctionType) else "None" if x is None else describe(x)


def carried(x: Any) -> Structure:
    """The structure of a value that enters a loop: numbers become run-time scalars of their natural dtype."""
    if isinstance(x, tuple):
        return Group(tuple(map(carried, x)))
    if isinstance(x, RUNTIME):
        return Leaf(x.value.type)
    return Leaf(Scalar(promotion.natural(x))) if promotion.is_literal(x) else Fixed(x)


def unify(a: Any, b: Any) -> Structure:
    """The structure of a value that is `a` on one path and `b` on the other; Mismatch where there is none."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return Group(tuple(map(unify, a, b)))
    if same(a, b) and not isinstance(a, RUNTIME):
        return Fixed(a)
    if isinstance(a, RUNTIME) and fits(b, a.value.type):
        return Leaf(a.value.type)
    if isinstance(b, RUNTIME) and fits(a, b.value.type):
        return Leaf(b.value.type)
    if promotion.is_literal(a) and promotion.is_literal(b):
        x, y = promotion.natural(a), promotion.natural(b)
        if x == y or "bool" not in (x.kind, y.kind):
            return Leaf(Scalar(promotion.promote(x, y)))
    raise Mismatch(a, b)


def fits(x: Any, type: Type) -> bool:
    """Whether a value has this type, or is a literal that takes it."""
    if isinstance(x, RUNTIME):
        return bool(x.value.type == type)
    if not promotion.is_literal(x) or not isinstance(type, Scalar):
        return False
    low, high = promotion.kind_rank(x), promotion.kind_rank(type.dtype)
    return low <= high and (low == 0) == (high == 0)  # a bool stays a bool: True is not the number 1


def conform(x: Any, structure: Structure) -> None:
    """Mismatch where `x` cannot have this structure."""
    if isinstance(structure, Group):
        if not isinstance(x, tuple) or len(x) != len(structure.items):
            raise Mismatch(structure, x)
        for item, inner in zip(x, structure.items):
            conform(item, inner)
    elif not (same(x, structure.value) if isinstance(structure, Fixed) else fits(x, structure.type)):
        raise Mismatch(structure, x)


def flatten(x: Any, structure: Structure) -> list[Value]:
    """The IR values of the leaves of a value that conforms; literals are made run-time scalars here."""
    if isinstance(structure, Group):
        return [v for item, inner in zip(x, structure.items) for v in flatten(item, inner)]
    if isinstance(structure, Fixed):
        return []
    if isinstance(x, handle):
        return [x.value]
    element = element_of(structure.type)
    return [as_tensor(x, element if isinstance(element, DType) else None).value]


def rebuild(structure: Structure, values: Iterator[Value]) -> Any:
    """The value with this structure whose leaves are the next of `values`."""
    if isinstance(structure, Group):
        return tuple(rebuild(item, values) for item in structure.items)
    return structure.value if isinstance(structure, Fixed) else wrap(next(values))


def leaf_types(structure: Structure) -> list[Type]:
    if isinstance(structure, Group):
        return [t for item in structure.items for t in leaf_types(item)]
    return [structure.type] if isinstance(structure, Leaf) else []


def rename(x: Any, name: str) -> None:
    """Names the IR values in `x` after the variable that holds them first; only for reading the printed IR."""
    if isinstance(x, tuple):
        for i, item in enumerate(x):
            rename(item, f"{name}_{i}")
    elif isinstance(x, RUNTIME) and not x.value.name:
        x.value.name = name


def is_scalar_number(x: Any) -> bool:
    """Whether a run-time value is one number, neither tile nor pointer."""
    return isinstance(x, tensor) and shape_of(x.value.type) == () and isinstance(x.dtype, DType)
