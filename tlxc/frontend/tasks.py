"""`with tlx.async_tasks():` and the tasks inside it: one `async_tasks` op, with one region per copy of a task.

A task's body is compiled once per copy, so that the replica id is a compile-time value.  What a task assigns is its
own: after the region, names have the values they had before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from tlxc.errors import CompileError, Location
from tlxc.ir.core import Op, Region, Value, clone_op
from tlxc.ir.table import traits
from tlxc.ir.types import Tensor
from tlxc.language.context import TaskCopy, current
from tlxc.language.core import describe, tensor
from tlxc.language.task import TaskRegion, TaskSpec

from .branches import condition, own_names
from .breakpoints import forget
from .scope import Binding, Names, Undefined

if TYPE_CHECKING:
    from .visitor import Visitor

WARPS_PER_GROUP = 4
ALLOWED = "`with tlx.async_task(...):` statements, and compile-time `if`s around them"


@dataclass(frozen=True)
class Task:
    """One `with tlx.async_task(...)` statement."""

    node: ast.With
    spec: TaskSpec


@dataclass(frozen=True)
class Copy:
    """One copy of a task on warps of its own."""

    task: Task
    replica: int
    num_warps: int
    start_warp: int

    @property
    def warps(self) -> range:
        return range(self.start_warp, self.start_warp + self.num_warps)


def with_statement(v: Visitor, node: ast.With) -> None:
    """A region of tasks; no other context manager has a meaning in a kernel."""
    what = _context(v, node)
    if isinstance(what, TaskSpec):
        raise v.error(
            node.items[0].context_expr,
            "async_task stands outside a region",
            allowed="directly inside `with tlx.async_tasks():`",
            fix="put it into a region, together with the other tasks of the CTA",
        )
    if current().task is not None:
        raise v.error(
            node.items[0].context_expr,
            "regions of tasks do not nest",
            found="async_tasks inside a task",
            fix="write the tasks side by side in one region, or one region after the other",
        )
    _check_exclusive(v, node, what)
    copies = place(v, node, list(_tasks(v, node.body)))
    outer: Names = dict(v.frame.names)
    regions = []
    for copy in copies:
        region, names = _compile(v, copy, outer)
        _own_tiles(v, copy, region)
        regions.append(region)
        _forget(v, copy, names)
    v.builder.loc = v.location(node.items[0].context_expr)
    op = v.builder.op(
        "async_tasks",
        regions=regions,
        num_warps=tuple(c.num_warps for c in copies),
        start_warp=tuple(c.start_warp for c in copies),
        num_regs=tuple(c.task.spec.num_regs for c in copies),
        replica=tuple(c.replica for c in copies),
    )
    if what.exclusive:
        op.attrs["exclusive"] = True


def _context(v: Visitor, node: ast.With) -> TaskRegion | TaskSpec:
    """What the `with` statement opens."""
    item = node.items[0]
    what: Any = None
    if len(node.items) == 1 and item.optional_vars is None:
        what = v.eval(item.context_expr)
    if not isinstance(what, (TaskRegion, TaskSpec)):
        raise v.error(
            node,
            "this `with` is not supported in a kernel",
            found="several context managers, or `as`" if what is None else f"`{ast.unparse(item.context_expr)}`",
            allowed="`with tlx.async_tasks():` and, inside it, `with tlx.async_task(...):`, one at a time",
            fix="remove it: no other context manager has a meaning in a kernel",
        )
    return what


def _check_exclusive(v: Visitor, node: ast.With, region: TaskRegion) -> None:
    """A region that promised to be the only one is."""
    others = [op for op in v.builder.module.walk() if op.kind == "async_tasks"]
    others += [op for r in v.builder.stack[1:] for op in r.walk() if op.kind == "async_tasks"]
    promised = [op for op in others if op.attrs.get("exclusive")]
    if others and (region.exclusive or promised):
        raise v.error(
            node.items[0].context_expr,
            "exclusive=True requires exactly one region in the kernel",
            found="a second region of tasks",
            fix="drop exclusive=True",
            related=[("the other region", (promised or others)[0].loc)],
        )


# -------------------------------------------------------------------------------------------------- what the region has
def _tasks(v: Visitor, statements: Sequence[ast.stmt]) -> Iterator[Task]:
    """The tasks of a region's body, through the branches that compile-time conditions choose."""
    for node in statements:
        if isinstance(node, ast.If):
            yield from _tasks(v, node.body if _known(v, node) else node.orelse)
        elif isinstance(node, ast.With) and isinstance(spec := _context(v, node), TaskSpec):
            yield Task(node, spec)
        elif not isinstance(node, ast.Pass):
            raise v.error(
                node,
                "a region of tasks holds nothing but async_task",
                found=f"`{ast.unparse(node).splitlines()[0]}`",
                allowed=ALLOWED,
                fix="move the statement before the region, or into a task",
            )


def _known(v: Visitor, node: ast.If) -> bool:
    with v.into(Region()):  # a run-time condition leaves its ops there
        test = condition(v, node.test, "if")
    if isinstance(test, tensor):
        raise v.error(
            node.test,
            "which tasks a region has is decided at compile time",
            found=describe(test),
            fix="put the `if` into the task",
        )
    return test


def place(v: Visitor, node: ast.With, tasks: list[Task]) -> list[Copy]:
    """The copies of all tasks and their warps: the default task first, then the others in the order of the text."""
    defaults = [t for t in tasks if t.spec.default]
    if len(defaults) != 1:
        raise v.error(
            node.items[0].context_expr,
            "a region has exactly one default task",
            found=f"{len(defaults)} default tasks among {len(tasks)}",
            fix='write one `with tlx.async_task("default"):`',
            related=[("a default task", v.location(t.node)) for t in defaults],
        )
    base = v.builder.module.num_warps
    extra = [(t, r) for t in tasks for r in range(t.spec.replicate) if not (t.spec.default and r == 0)]
    first = Copy(defaults[0], 0, base, 0)
    starts = _given_starts(v, extra, base) or _free_starts(extra, base)
    others = [Copy(t, r, t.spec.num_warps or base, starts[i]) for i, (t, r) in enumerate(extra)]
    _check_warps(v, node, [first, *others])
    return [first, *others]


def _free_starts(extra: list[tuple[Task, int]], base: int) -> list[int]:
    """Start warps, larger copies first, each at the first gap that fits: a copy of 4 warps or more begins a group of 4,
    a smaller one lies inside one, that of a small default task too."""
    sizes = [t.spec.num_warps or base for t, _ in extra]
    starts = [0] * len(extra)
    taken = set(range(base))
    for i in sorted(range(len(extra)), key=lambda i: -sizes[i]):
        step = min(sizes[i], WARPS_PER_GROUP)
        starts[i] = next(at for at in count(0, step) if taken.isdisjoint(range(at, at + sizes[i])))
        taken.update(range(starts[i], starts[i] + sizes[i]))
    return starts


def _given_starts(v: Visitor, extra: list[tuple[Task, int]], base: int) -> list[int] | None:
    """Start warps as the author says; None where none is given."""
    given = [t for t, _ in extra if t.spec.start_warp is not None]
    missing = [t for t, _ in extra if t.spec.start_warp is None]
    if not given:
        return None
    if missing:
        raise v.error(
            missing[0].node.items[0].context_expr,
            "warp_group_start_id is given for all tasks but the default one, or for none",
            found="a task without it",
            fix="give it here too, or nowhere; extra copies of the default task exclude it",
            related=[("a task with warp_group_start_id", v.location(given[0].node.items[0].context_expr))],
        )
    return [(t.spec.start_warp or 0) + r * (t.spec.num_warps or base) for t, r in extra]


def _check_warps(v: Visitor, node: ast.With, copies: list[Copy]) -> None:
    """No two copies share a warp, and the target has them all."""
    for i, b in enumerate(copies):
        for a in copies[:i]:
            if a.start_warp < b.warps.stop and b.start_warp < a.warps.stop:
                raise v.error(
                    b.task.node.items[0].context_expr,
                    "Overlapping warp ranges of two tasks",
                    found=f"warps {b.warps.start} to {b.warps.stop - 1}, and warps {a.warps.start} to "
                    f"{a.warps.stop - 1}",
                    fix="choose other values of warp_group_start_id, or leave them out",
                    related=[("the other task", v.location(a.task.node.items[0].context_expr))],
                )
    target, total = current().target, max(c.warps.stop for c in copies)
    if total > target.max_warps:
        raise v.error(
            node.items[0].context_expr,
            "the tasks have more warps than a CTA",
            found=f"{total} warps",
            allowed=f"{target.max_warps} warps on {target.name}",
            fix="use fewer copies or fewer warps",
        )


# ----------------------------------------------------------------------------------------------------------- one copy
@contextmanager
def _inside(v: Visitor, copy: Copy) -> Iterator[None]:
    """The language and the frame know that a task is being compiled."""
    context = current()
    context.task, v.frame.task = TaskCopy(copy.num_warps, copy.replica), True
    try:
        yield
    finally:
        context.task, v.frame.task = None, False


def _compile(v: Visitor, copy: Copy, outer: Names) -> tuple[Region, Names]:
    """The region of one copy, and the names at its end."""
    region, names = Region(), dict(outer)
    with own_names(v, names), v.into(region), _inside(v, copy):
        v.block(copy.task.node.body)
    return region, names


def _forget(v: Visitor, copy: Copy, inner: Names) -> None:
    """Names that a task alone assigned have no value after the region; the others keep theirs."""
    for name, entry in inner.items():
        if isinstance(entry, Binding) and not isinstance(v.frame.names.get(name), Binding):
            v.frame.names[name] = Undefined(
                "it is assigned inside a task, and what a task assigns is its own",
                f"store it to a buffer, or assign `{name}` before the region",
                ((f"`{name}` is assigned in the task", entry.loc),),
            )


# ----------------------------------------------------------------------------------------------------- captured tiles
def _own_tiles(v: Visitor, copy: Copy, region: Region) -> None:
    """Tiles from outside are computed again inside the copy, whose threads do not hold them.

    Only tiles that follow from scalars can be; the default task, which the warps that made them run, keeps the others.
    """
    inside = {x for op in region.walk() for x in (*op.results, *(a for r in op.regions for a in r.args))}
    mapping: dict[Value, Value] = {}
    made: list[Op] = []
    for op in list(region.walk()):
        if op.kind == "breakpoint":
            forget(op, {x for x in op.inputs if x in inside or _computable(x)})
        for x in op.inputs:
            if isinstance(x.type, Tensor) and x not in inside and x not in mapping:
                if _computable(x):
                    _clone(x, mapping, made)
                elif copy.task.spec.default and copy.replica == 0:
                    continue
                else:
                    raise _captured(v, copy, x, op.loc)
        op.operands = [None if x is None else mapping.get(x, x) for x in op.operands]
    region.ops[:0] = made


def _computable(x: Value) -> bool:
    """Whether a tile follows from scalars by pure elementwise and shape ops alone."""
    if x.op is None:
        return False
    kind = traits(x.op)
    plain = "pure" in kind and "convergent" not in kind and kind & {"elementwise", "cheap", "relabel"}
    return bool(plain) and all(_computable(y) for y in x.op.inputs if isinstance(y.type, Tensor))


def _clone(x: Value, mapping: dict[Value, Value], made: list[Op]) -> None:
    """Appends copies of the ops behind a tile, operands first."""
    assert x.op is not None
    for y in x.op.inputs:
        if isinstance(y.type, Tensor) and y not in mapping:
            _clone(y, mapping, made)
    made.append(clone_op(x.op, mapping))


def _captured(v: Visitor, copy: Copy, x: Value, use: Location | None) -> CompileError:
    name = f"`{x.name}`" if x.name else "a tile"
    return CompileError(
        f"{name} is a tile from outside the task, whose threads do not hold it",
        found=describe(tensor(x)),
        allowed="scalars, pointers, buffers, barriers, descriptors, and tiles computed from them without memory access",
        fix="compute it inside the task, or go through a buffer: tlx.local_store before, tlx.local_load inside",
        loc=use,
        related=[("the tile is made", x.op.loc)] if x.op is not None and x.op.loc else [],
    )
