"""Loops: counted and conditional ones at run time, unrolled ones at compile time.

A name that the body of a run-time loop assigns and that has a value before it is carried: it becomes a run-time value
with the type that it has on entry, and must have that type at the end of the body.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError
from tlxc.ir.core import Region, Value
from tlxc.ir.types import DType, Scalar, int32, int64
from tlxc.language import promotion, tl
from tlxc.language.core import as_tensor, convert, tensor
from tlxc.language.handles import check_uniform

from .analysis import assigned
from .assign import assign
from .branches import condition, own_names
from .calls import arguments
from .flow import Flow, Splice, Step
from .notes import warn
from .scope import Binding, Names, Undefined
from .values import (
    Mismatch,
    Structure,
    carried,
    conform,
    describe_type,
    flatten,
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
    """The bounds of `range(...)` or `tl.range(...)` as start, stop and step of an object; None for other iterables."""
    callee = _callee(v, node)
    if callee is not builtins.range and getattr(callee, "__tlxc_range__", "") != "range":
        return None
    assert isinstance(node, ast.Call)
    args, keywords = arguments(v, node)
    if callee is builtins.range:
        if keywords or not 1 <= len(args) <= 3:
            forms = "range(stop), range(start, stop), range(start, stop, step)"
            raise v.error(node, "range takes one to three bounds", allowed=forms)
        callee = tl.range
    bounds = v.apply(node, callee, *args, **keywords)
    hints = [option for option in ("num_stages", "loop_unroll_factor") if getattr(bounds, option) is not None]
    if hints:
        text = f"tl.range: no effect of {' and '.join(hints)}, tlxc pipelines and unrolls nothing by itself"
        warn(v.frame.source, v.location(node), text)
    return bounds


def compile_time_items(v: Visitor, node: ast.expr) -> Sequence[Any]:
    """The items of a tuple or of tl.static_range; in a comprehension also of a range with compile-time bounds."""
    callee = _callee(v, node)
    if callee is builtins.range or hasattr(callee, "__tlxc_range__"):
        assert isinstance(node, ast.Call)
        args, keywords = arguments(v, node)
        bounds = v.apply(node, callee, *args, **keywords)
        items: Sequence[Any] = v.apply(node, builtins.range, bounds.start, bounds.stop, bounds.step)
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
        if isinstance(x, tensor):
            v.apply(node, check_uniform, x, "a bound of a loop")
        converted: tensor = v.apply(node, convert if isinstance(x, tensor) else as_tensor, x, dtype)
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
        with v.at(node):
            for name, binding in self.entry.items():
                self.inits += flatten(binding.value, self.structures[name])
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
                conform(now.value, structure)
            except Mismatch as mismatch:
                raise self._type_changed(name, now, mismatch) from None
            with self.v.at(self.node):
                values += flatten(now.value, structure)
        return values

    def _type_changed(self, name: str, now: Binding, mismatch: Mismatch) -> CompileError:
        before, after = describe_type(mismatch.left), describe_type(mismatch.right)
        entry = (f"`{name}` gets the value with which it enters the loop", self.entry[name].loc)
        if not leaf_types(self.structures[name]):
            return CompileError(
                f"`{name}` changes in a run-time loop, but it has no run-time form",
                found=f"it enters the loop as {before} and leaves the body as {after}",
                allowed="numbers, pointers, tiles and tuples of them",
                fix="unroll the loop with tl.static_range",
                loc=now.loc,
                related=[entry],
            )
        return CompileError(
            f"`{name}` changes its type in a loop",
            found=f"it enters the loop as {before} and leaves the body as {after}",
            allowed="one dtype and shape for all trips",
            fix=_type_fix(name, self.entry[name].value, now.value),
            loc=now.loc,
            related=[entry],
        )

    def leave(self, inner: Names, results: list[Value], loop_names: set[str]) -> None:
        """Binds the names after the loop: carried ones to its results, those of the body to the reason why not."""
        v, loc = self.v, self.v.location(self.node)
        source = iter(results)
        for name, structure in self.structures.items():
            binding = inner[name]
            assert isinstance(binding, Binding)
            v.bind(name, rebuild(structure, source), binding.loc)
        for name in dict.fromkeys((*self.changing, *sorted(loop_names))):
            now = inner.get(name)
            if name in loop_names:
                v.frame.names[name] = Undefined(
                    "it is the variable of a run-time loop, which has ended",
                    "keep the value in a variable that is assigned before the loop",
                    ((f"`{name}` is the variable of the loop", loc),),
                )
            elif isinstance(now, Undefined):
                v.frame.names[name] = now
            elif isinstance(now, Binding) and name not in self.entry:
                v.frame.names[name] = Undefined(
                    "it is first assigned inside a run-time loop, which may make no trip",
                    f"assign `{name}` before the loop",
                    ((f"`{name}` is assigned in the loop", now.loc),),
                )


def _type_fix(name: str, before: Any, after: Any) -> str:
    """The cast or the assignment that makes the two types one."""
    if isinstance(after, tensor) and promotion.is_literal(before) and is_scalar_number(after):
        return f"start it with that dtype: `{name}: {after.dtype!r} = {before!r}`"
    if not isinstance(after, tensor) or (promotion.is_literal(before) and not after.shape):
        return f"give `{name}` the type that it has in the loop before the loop starts"
    if promotion.is_literal(before):
        return f"start it as a tile, for example `{name} = tl.full({after.shape}, {before!r}, {after.dtype!r})`"
    if isinstance(before, tensor) and before.shape == after.shape and isinstance(before.dtype, DType):
        return f"end the body with `{name} = {name}.to({before.dtype!r})`, or start with {after.dtype!r}"
    return f"give `{name}` its final shape and dtype before the loop, for example with tl.zeros"


# ------------------------------------------------------------------------------------------------------ run-time loops
def counted_loop(v: Visitor, node: ast.For, bounds: Any) -> None:
    """`for` over range: one `for` op; a negative compile-time step counts down."""
    target = node.target
    if not isinstance(target, ast.Name):
        raise v.error(target, "the variable of a run-time loop is one name", fix="write `for i in range(...)`")
    dtype, limits = _bounds(v, node.iter, bounds)
    loop = Carried(v, node, {target.id})
    names = dict(v.frame.names)
    index = Value(Scalar(dtype), name=target.id)
    region = Region([index, *loop.arguments(names)])
    with own_names(v, names), v.into(region):
        v.bind(target.id, tensor(index), v.location(target))
        yields = _body(v, node, loop)
    _end(v, node, region, yields)
    descending = {"descending": True} if isinstance(bounds.step, int) and bounds.step < 0 else {}
    op = v.builder.op("for", (*limits, *loop.inits), loop.types, [region], **descending)
    loop.leave(names, op.results, {target.id})


def while_statement(v: Visitor, node: ast.While) -> None:
    """One `while` op; the condition is a region of its own, because every trip computes it again."""
    _refuse_else(v, node)
    if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
        raise v.error(node.test, "`:=` in the condition of `while` is not supported", fix="assign the name in the body")
    loop = Carried(v, node, set())
    before, names = dict(v.frame.names), dict(v.frame.names)
    test_region, region = Region(loop.arguments(before)), Region(loop.arguments(names))
    with own_names(v, before), v.into(test_region):
        test = condition(v, node.test, "while")
    if test is True:
        raise v.error(
            node.test,
            "this loop never ends",
            found="a condition that is true at compile time; a kernel has no `break`",
            fix="loop on a run-time condition, or use a `for` loop",
        )
    if isinstance(test, bool):
        return
    with own_names(v, names), v.into(region):
        yields = _body(v, node, loop)
    _end(v, node, test_region, [test.value])
    _end(v, node, region, yields)
    op = v.builder.op("while", tuple(loop.inits), loop.types, [test_region, region])
    loop.leave(names, op.results, set())


def _body(v: Visitor, node: ast.For | ast.While, loop: Carried) -> list[Value]:
    """Compiles the body where the builder stands; the values that it yields."""
    v.frame.loops += 1
    v.block(node.body)
    v.frame.loops -= 1
    return loop.ends()


def _end(v: Visitor, node: ast.AST, region: Region, yields: list[Value]) -> None:
    with v.into(region), v.at(node):
        v.builder.op("yield", tuple(yields))
