"""Values, ops, regions and modules of tile IR.

SSA with structured control flow: a region is a list of ops with block arguments and ends in `yield` where its op wants
one.  Absent optional operands are None in `operands`.  Ops carry everything a pass needs; there are no side tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tlxc.errors import Location

from .types import Type


class Value:
    """One SSA value: the result of an op (`op` set) or a region argument or parameter (`op` None)."""

    __slots__ = ("type", "op", "index", "name")

    def __init__(self, type: Type, op: Op | None = None, index: int = 0, name: str = "") -> None:
        self.type, self.op, self.index, self.name = type, op, index, name

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Region:
    """Block arguments and ops; the last op is `yield` in the regions of `for`, `while` and `if`."""

    __slots__ = ("args", "ops")

    def __init__(self, args: list[Value] | None = None) -> None:
        self.args: list[Value] = args or []
        self.ops: list[Op] = []

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """Every op inside, outer before inner, in program order."""
        for op in self.ops:
            yield op
            for r in op.regions:
                yield from r.walk()


class Op:
    """One operation; `kind` is a row of the op table (`tlxc.ir.table`)."""

    __slots__ = ("kind", "operands", "attrs", "regions", "results", "loc")

    def __init__(
        self,
        kind: str,
        operands: Sequence[Value | None] = (),
        result_types: Sequence[Type] = (),
        attrs: dict[str, Any] | None = None,
        regions: list[Region] | None = None,
        loc: Location | None = None,
    ) -> None:
        self.kind = kind
        self.operands: list[Value | None] = list(operands)
        self.attrs: dict[str, Any] = attrs or {}
        self.regions: list[Region] = regions or []
        self.loc = loc
        self.results = [Value(t, self, i) for i, t in enumerate(result_types)]

    @property
    def result(self) -> Value:
        (only,) = self.results
        return only

    @property
    def inputs(self) -> list[Value]:
        """Operands that are present."""
        return [v for v in self.operands if v is not None]

    def __repr__(self) -> str:
        return f"<{self.kind} {self.attrs or ''}>"


@dataclass
class Param:
    """A run-time parameter of the kernel.  `align`: address alignment in bytes that the caller promises (0: that of the
    element); `divisible`: a known divisor of an integer."""

    value: Value
    align: int = 0
    divisible: int = 1

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def type(self) -> Type:
        return self.value.type


@dataclass
class Module:
    """One kernel for one target: parameters, body and launch facts.  `maxnreg`: registers that a thread may use at most
    (NVIDIA); None for no limit."""

    name: str
    params: list[Param] = field(default_factory=list)
    body: Region = field(default_factory=Region)
    num_warps: int = 4
    maxnreg: int | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)  # CTAs of a cluster along x, y, z; regroups the grid
    attrs: dict[str, Any] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        return self.body.walk()


class Builder:
    """Appends ops to the innermost open region; `loc` is stamped on each of them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.stack: list[Region] = [module.body]
        self.loc: Location | None = None

    @property
    def region(self) -> Region:
        return self.stack[-1]

    def op(
        self,
        kind: str,
        operands: Sequence[Value | None] = (),
        result_types: Sequence[Type] = (),
        regions: list[Region] | None = None,
        **attrs: Any,
    ) -> Op:
        made = Op(kind, operands, result_types, attrs, regions, self.loc)
        self.region.ops.append(made)
        return made

    def emit(self, kind: str, *operands: Value | None, type: Type, **attrs: Any) -> Value:
        """An op with exactly one result."""
        return self.op(kind, operands, (type,), **attrs).result


def uses(region: Region) -> dict[Value, list[tuple[Op, int]]]:
    """(op, operand position) of every use inside the region, in program order."""
    out: dict[Value, list[tuple[Op, int]]] = {}
    for op in region.walk():
        for i, v in enumerate(op.operands):
            if v is not None:
                out.setdefault(v, []).append((op, i))
    return out


def replace_uses(region: Region, mapping: dict[Value, Value]) -> None:
    """Replaces operands everywhere inside the region; chains in the mapping are followed."""
    if not mapping:
        return

    def final(v: Value) -> Value:
        while v in mapping:
            v = mapping[v]
        return v

    for op in region.walk():
        op.operands = [None if v is None else final(v) for v in op.operands]


def clone_op(op: Op, mapping: dict[Value, Value], on_clone: Callable[[Op], None] | None = None) -> Op:
    """A deep copy with operands taken through `mapping`, which also learns the copies of results and arguments."""
    regions = []
    copy = Op(op.kind, [None if v is None else mapping.get(v, v) for v in op.operands], (), dict(op.attrs), [], op.loc)
    for r in op.regions:
        args = [Value(a.type, None, a.index, a.name) for a in r.args]
        mapping.update(zip(r.args, args))
        new = Region(args)
        new.ops = [clone_op(o, mapping, on_clone) for o in r.ops]
        regions.append(new)
    copy.regions = regions
    copy.results = [Value(v.type, copy, i, v.name) for i, v in enumerate(op.results)]
    mapping.update(zip(op.results, copy.results))
    if on_clone is not None:
        on_clone(copy)
    return copy
