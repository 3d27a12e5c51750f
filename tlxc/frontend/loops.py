"""Loops: counted and conditional ones at run time, unrolled ones at compile time.

A name that the body of a run-time loop assigns and that has a value before it is carried: it becomes a run-time value
with the type that it has on entry, and must have that type at the end of the body.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError, Location
from tlxc.ir.core import Region, Value
from tlxc.ir.types import DType, Scalar, element_of, int32, int64, shape_of
from tlxc.language import promotion
from tlxc.language.core import as_tensor, convert, tensor

from .analysis import assigned
from .branches import condition, own_names
from .flow import Flow, Splice, Step
from .scope import Binding, Names, Undefined
from .statements import assign
from .values import (
    Leaf,
    Mismatch,
    Structure,
    carried,
    describe_structure,
    describe_type,
    flatten,
    is_runtime,
    is_scalar_number,
    leaf_types,
    rebuild,
    rename,
)

if TYPE_CHECKING:
    from .visitor import Visitor

MAX_UNROLLED = 10_000
ITERABLES = "range, tl.range, tl.static_range, and tuples"


# ---------------------------------------------------------------------------------------------------------- which loop
def for_statement(v: Visitor, node: ast.For) -> Flow:
    _refuse_else(v, node)
    bounds = _counted(v, node.iter)
    if bounds is not None:
        counted_loop(v, node, bounds)
        return None
    steps: list[Step] = []
    for item in compile_time_items(v, node.iter):
        steps.append(lambda item=item: assign(v, node.target, item))  # type: ignore[misc]
        steps += node.body
    return Splice(steps)


def _refuse_else(v: Visitor, node: ast.For | ast.While) -> None:
    if node.orelse:
        raise v.error(
            node.orelse[0],
            "a loop has no `else` branch in a kernel",
            fix="without `break` the branch always runs: write its statements after the loop",
        )


def _callee(v: Visitor, node: ast.expr) -> Any:
    """What an expression calls, if it is a call."""
    return v.eval(node.func) if isinstance(node, ast.Call) else None


def _counted(v: Visitor, node: ast.expr) -> Any:
    """The bounds of `range(...)` or `tl.range(...)`, in an object with start, stop and step; None for other iterables."""
    from tlxc.language import tl

    from .calls import arguments

    callee = _callee(v, node)
    if callee is not builtins.range and getattr(callee, "__tlxc_range__", "") != "range":
        return None
    assert isinstance(node, ast.Call)
    args, keywords = arguments(v, node)
    if callee is builtins.range:
        if keywords or not 1 <= len(args) <= 3:
            raise v.error(node, "range takes one to three bounds", allowed="range(stop), range(start, stop), range(start, stop, step)")
        callee = tl.range
    bounds = v.apply(node, callee, *args, **keywords)
    for option in ("num_stages", "loop_unroll_factor"):
        if getattr(bounds, option) is not None:
            _note(v, node, f"tl.range: `{option}` is accepted and has no effect; tlxc neither pipelines nor unrolls by itself")
    return bounds


def _note(v: Visitor, node: ast.AST, text: str) -> None:
    """One Python warning per place and text, at the kernel's line."""
    loc = v.location(node)
    registry = v.frame.source.fn.__globals__.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, UserWarning, loc.file, loc.line, registry=registry)


def compile_time_items(v: Visitor, node: ast.expr) -> Sequence[Any]:
    """The items of a tuple or of tl.static_range; in a comprehension also of a range with compile-time bounds."""
    from .calls import arguments

    callee = _callee(v, node)
    if callee is builtins.range or hasattr(callee, "__tlxc_range__"):
        assert isinstance(node, ast.Call)
        args, keywords = arguments(v, node)
        bounds = v.apply(node, callee, *args, **keywords)
        items: Sequence[Any] = builtins.range(bounds.start, bounds.stop, bounds.step)
    else:
        items = v.eval(node)
    if not isinstance(items, (tuple, builtins.range)):
        raise v.error(node, "a kernel cannot loop over this", found=describe_type(items), allowed=ITERABLES)
    if len(items) > MAX_UNROLLED:
        raise v.error(
            node,
            f"an unrolled loop of {len(items)} trips would compile to as many copies of its body",
            allowed=f"up to {MAX_UNROLLED} trips",
            fix="write a run-time loop with `range` or tl.range",
        )
    return items


# -------------------------------------------------------------------------------------------------------------- bounds
def _bound_dtype(v: Visitor, node: ast.expr, x: Any) -> DType:
    """The dtype with which a bound takes part in the promotion: a compile-time int counts as int32 where it fits."""
    if isinstance(x, int) and not isinstance(x, bool):
        low, high = int32.limits
        if low <= x <= high:
            return int32
        return int64 if x <= int64.limits[1] else promotion.natural(x)
    if is_scalar_number(x) and x.dtype.is_int:
        dtype: DType = x.dtype
        return dtype
    raise v.error(
        node,
        "the bounds of a loop are integer scalars",
        found=describe_type(x),
        fix="convert it with `.to(tl.int32)`" if is_scalar_number(x) else "",
    )


def _bounds(v: Visitor, node: ast.expr, bounds: Any) -> tuple[DType, list[Value]]:
    """The induction dtype, and lo, hi and step in it."""
    parts = (bounds.start, bounds.stop, bounds.step)
    dtypes = [_bound_dtype(v, node, x) for x in parts]
    dtype = promotion.promote(promotion.promote(dtypes[0], dtypes[1]), dtypes[2])
    if isinstance(bounds.step, int) and bounds.step < 0 and not dtype.signed:
        raise v.error(
            node,
            f"a loop over {dtype!r} cannot count down",
            found=f"the step {bounds.step}, and bounds that promote to an unsigned type",
            fix="convert the unsigned bound with `.to(tl.int32)` or `.to(tl.int64)`",
        )

    def value(x: Any) -> Value:
        converted: tensor = v.apply(node, convert, x, dtype) if isinstance(x, tensor) else v.apply(node, as_tensor, x, dtype)
        return converted.value

    return dtype, [value(x) for x in parts]


# ------------------------------------------------------------------------------------------------------------- carried
class Carried:
    """The values that a loop carries: names, structures and the values with which they enter."""

    def __init__(self, v: Visitor, node: ast.For | ast.While, skip: set[str]) -> None:
        self.v, self.node = v, node
        self.changing = assigned(node.body, v.known(node.body))
        names = [n for n in self.changing if n not in skip]
        self.entry: dict[str, Binding] = {n: b for n in names if isinstance(b := v.frame.names.get(n), Binding)}
        self.structures: dict[str, Structure] = {n: carried(b.value) for n, b in self.entry.items()}
        self.inits: list[Value] = []
        for name, binding in self.entry.items():
            self.inits += v.apply(node, lambda b=binding, n=name: list(flatten(b.value, self.structures[n])))
        self.types = [t for s in self.structures.values() for t in leaf_types(s)]

    def arguments(self, names: Names) -> list[Value]:
        """Region arguments for the carried values, bound to their names in `names`."""
        values = [Value(t, None, i) for i, t in enumerate(self.types)]
        source = iter(values)
        for name, structure in self.structures.items():
            value = rebuild(structure, source)
            rename(value, name)
            names[name] = Binding(value, self.entry[name].loc)
        return values

    def ends(self) -> list[Value]:
        """The values at the end of the body; an error for a name whose type changed."""
        values: list[Value] = []
        for name, structure in self.structures.items():
            now = self.v.frame.names[name]
            if isinstance(now, Undefined):
                raise now.error(name, self.v.location(self.node))
            try:
                values += self.v.apply(self.node, lambda n=now, s=structure: _flatten(n.value, s))
            except _Changed as changed:
                raise self._type_changed(name, now, changed.mismatch) from None
        return values

    def _type_changed(self, name: str, now: Binding, mismatch: Mismatch) -> CompileError:
        before, after = mismatch.left, mismatch.right
        text = describe_structure(before) if isinstance(before, Leaf) else _describe(before)
        return CompileError(
            f"`{name}` changes its type in a loop",
            found=f"it enters the loop as {text} and leaves the body as {_describe(after)}",
            allowed="one dtype and shape for all trips",
            fix=_type_fix(name, self.entry[name].value, before, after),
            loc=now.loc,
            related=[(f"`{name}` gets the value with which it enters the loop", self.entry[name].loc)],
        )

    def leave(self, inner: Names, results: list[Value], loop_names: set[str]) -> None:
        """Binds the names after the loop: carried ones to its results, those of the body to the reason why not."""
        v, loc = self.v, self.v.location(self.node)
        source = iter(results)
        for name, structure in self.structures.items():
            binding = inner[name]
            assert isinstance(binding, Binding)
            v.bind(name, rebuild(structure, source), binding.loc)
        for name in (*self.changing, *sorted(loop_names)):
            if name in self.entry:
                continue
            binding = inner.get(name)
            if name in loop_names:
                v.frame.names[name] = _gone(name, "it is the variable of a run-time loop, which ended", loc)
            elif isinstance(binding, Binding):
                what = "it is first assigned inside a run-time loop, which may make no trip"
                v.frame.names[name] = _gone(name, what, binding.loc)


class _Changed(Exception):
    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__()
        self.mismatch = mismatch
