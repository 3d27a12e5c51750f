"""Code outside regions of tasks: who runs it, and how its values reach the tasks.

Scalar arithmetic and views are computed by every warp.  What has an effect, or needs the warps of one task together,
is run by the warps of the default task alone, in an `async_tasks` of its own with that one task.  Its scalars (from
memory, atomics and reductions) reach the other warps through shared memory; pure tiles are computed again in every task
that uses them; any other tile is refused.  Loops and branches around a region are run by all warps.

Invariant after the pass: outside `async_tasks` stand only scalar arithmetic, views, allocations, cluster protocol, CTA
barriers, control flow, and loads of published scalars; a CTA barrier stands between any two regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import tlxc.ir.ops  # noqa: F401  fills the op table
from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Region, Value, clone_op
from tlxc.ir.table import OPS
from tlxc.ir.types import Buffer, Scalar, Tensor, Token, int1, int32

from .dead_code import remove_dead

_BY_ALL_WARPS = ("local_alloc", "alloc_barriers", "prefetch_descriptor")
_MEETINGS = ("cluster_barrier", "fence_mbarrier_init")  # by all warps, in order with effects


def wrap_outside(module: Module) -> None:
    """See the invariant of this module."""
    wrapper = _Wrapper(module)
    wrapper.wrap(module.body)
    wrapper.reach(module.body)
    wrapper.publish(module.body)
    _separate(module.body, last=True)
    remove_dead(module)


def _holds_tasks(op: Op) -> bool:
    return any(inner.kind == "async_tasks" for r in op.regions for inner in r.walk())


def _recomputable(op: Op) -> bool:
    traits = OPS[op.kind].traits
    return "pure" in traits and "convergent" not in traits and not op.regions


def _is_tile(v: Value) -> bool:
    return isinstance(v.type, (Tensor, Token))


class _Wrapper:
    """`home`: where the default task computes a value, None for pure tiles that are computed where they are used."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.home: dict[Value, Op | None] = {}
        self.reached: dict[Value, Value] = {}  # value of the default task -> the same for all warps
        self.before: dict[Op, list[Op]] = {}
        self.after: dict[Op, list[Op]] = {}

    # -- effects into regions of the default task
    def wrap(self, region: Region) -> None:
        out: list[Op] = []
        pending: list[Op] = []
        local: set[Value] = set()
        for op in region.ops:
            if op.kind == "async_tasks" or _holds_tasks(op) or op.kind in _MEETINGS or op.kind == "yield":
                self.flush(pending, out)
                pending, local = [], set()
                if op.kind != "async_tasks":
                    _check_carried(op)
                    for r in op.regions:
                        self.wrap(r)
                out.append(op)
            elif self.for_all_warps(op, local):
                out.append(op)
            else:
                pending.append(op)
                local.update(op.results)
        self.flush(pending, out)
        region.ops = out

    def for_all_warps(self, op: Op, local: set[Value]) -> bool:
        if op.kind == "barrier" and op.attrs.get("cta"):
            return True
        if op.kind in _BY_ALL_WARPS:
            return local.isdisjoint(op.inputs)
        return _recomputable(op) and local.isdisjoint(op.inputs) and not any(map(_is_tile, (*op.inputs, *op.results)))

    def flush(self, pending: list[Op], out: list[Op]) -> None:
        task = None
        if not all(map(_recomputable, pending)):
            loc = next(op.loc for op in pending if not _recomputable(op))
            one = {"num_warps": (self.module.num_warps,), "start_warp": (0,), "num_regs": (0,), "replica": (0,)}
            body = Region()
            body.ops = pending
            task = Op("async_tasks", (), (), one, [body], loc)
            out.append(task)
        self.home.update((v, task) for op in pending for v in op.results)

    # -- values to where they are used
    def reach(self, region: Region) -> None:
        """Replaces, in program order, uses of values that another task computes."""
        for op in region.ops:
            if op.kind == "async_tasks":
                for task in op.regions:
                    self.enter(op, task)
            else:
                op.operands = [None if v is None else self.everywhere(v, op) for v in op.operands]
                for r in op.regions:
                    self.reach(r)

    def enter(self, op: Op, task: Region) -> None:
        """Makes every value from outside available in one task."""
        made: list[Op] = []
        copies: dict[Value, Value] = {}

        def here(v: Value, user: Op) -> Value:
            if v in copies or v not in self.home or self.home[v] is op:
                return copies.get(v, v)
            if not _is_tile(v):
                return self.everywhere(v, user)
            if v.op is None or not _recomputable(v.op):
                raise _captured(v, user)
            made.append(self.copy(v.op, lambda x: here(x, user)))
            copies.update(zip(v.op.results, made[-1].results))
            return copies[v]

        for user in task.walk():
            user.operands = [None if v is None else here(v, user) for v in user.operands]
        task.ops[:0] = made

    @staticmethod
    def copy(op: Op, operand: Callable[[Value], Value]) -> Op:
        return clone_op(op, {v: operand(v) for v in op.inputs})

    def everywhere(self, v: Value, user: Op) -> Value:
        """A scalar or view of the default task, for all warps: computed again, or published.  It stands behind the
        region that computes it, so it dominates what the original does."""
        home = self.home.get(v)
        if home is None or v in self.reached:
            if _is_tile(v):
                raise _captured(v, user)
            return self.reached.get(v, v)
        assert v.op is not None
        if _is_tile(v):
            raise _captured(v, user)
        repeatable = _recomputable(v.op) or v.op.kind == "acquire_descriptor"  # every user of a map acquires it
        if repeatable and not any(map(_is_tile, v.op.inputs)):
            copy = self.copy(v.op, lambda x: self.everywhere(x, user))
            self.after.setdefault(home, []).append(copy)
            self.reached.update(zip(v.op.results, copy.results))
        else:
            self.reached[v] = self.published(v, home, user)
        return self.reached[v]

    def published(self, v: Value, home: Op, user: Op) -> Value:
        """One element in shared memory: the default task stores it, every warp loads it after the region."""
        t = v.type
        if not isinstance(t, Scalar) or t.uniform != "task":
            raise _captured(v, user)
        loc = v.op.loc if v.op else None
        held = Scalar(int32) if t.dtype == int1 else t  # a tile of bool cannot be reduced
        tile = Tensor((1,), held.dtype)

        def emit(ops: list[Op], kind: str, operands: list[Value], types: list, **attrs: object) -> Value | None:
            ops.append(Op(kind, operands, types, dict(attrs), None, loc))
            return ops[-1].result if types else None

        store = home.regions[0].ops
        buf = emit(self.before.setdefault(home, []), "local_alloc", [], [Buffer((1,), held.dtype)])
        assert buf is not None
        buf.name = v.name
        value = v if held == t else emit(store, "cast", [v], [held])
        emit(store, "local_store", [buf, emit(store, "splat", [value], [tile])], [])  # type: ignore[list-item]
        load = self.after.setdefault(home, [])
        one = emit(load, "local_load", [buf], [tile])
        out = emit(load, "reduce", [one], [held], axis=0, combine="sum")  # type: ignore[list-item]
        if held != t:
            out = emit(load, "cast", [out], [t])  # type: ignore[list-item]
        assert out is not None
        out.name = v.name
        return out

    def publish(self, region: Region) -> None:
        """Puts the ops that publish next to their regions."""
        out: list[Op] = []
        for op in region.ops:
            if op.kind != "async_tasks":
                for r in op.regions:
                    self.publish(r)
            out += self.before.get(op, [])
            out.append(op)
            if op in self.after:
                out.append(_meet(op))
                out += self.after[op]
        region.ops = out


def _meet(op: Op) -> Op:
    return Op("barrier", (), (), {"cta": True}, None, op.loc)


def _check_carried(op: Op) -> None:
    for v in op.results:
        if _is_tile(v):
            raise CompileError(
                "a loop or branch around a region of tasks cannot carry a tile",
                found=f"`{v.name or 'a value'}` of type {v.type}",
                allowed="scalars: all warps of the CTA follow the loop, and a tile belongs to the warps of one task",
                fix="move the loop into the tasks, or keep the tile in a buffer",
                loc=op.loc,
            )


def _captured(v: Value, user: Op) -> CompileError:
    thread = isinstance(v.type, Scalar) and v.type.uniform != "task"
    return CompileError(
        "a task cannot use this value from outside",
        found=f"`{v.name or 'a value'}` of type {v.type}, which the warps of another task hold",
        allowed="scalars that the task agrees on, buffers, barriers, descriptors, and tiles made of arange, full and "
        "arithmetic on them",
        fix="compute it in the task"
        + ("" if thread else ", or store it to a buffer before the region and load it in the task"),
        loc=user.loc,
        related=[("it is computed", v.op.loc)] if v.op is not None and v.op.loc is not None else [],
    )


# ------------------------------------------------------------------------------------------------ CTA barriers
def _matters(op: Op) -> bool:
    return op.kind != "yield" and not _recomputable(op)


def _covers(op: Op | None) -> bool:
    """Whether all warps meet here and see each other's memory."""
    if op is None:
        return False
    return op.kind == "barrier" or op.kind == "cluster_barrier" and not op.attrs.get("relaxed")


def _next(ops: Iterable[Op]) -> Op | None:
    return next(filter(_matters, ops), None)


def _separate(region: Region, last: bool, loop: bool = False) -> None:
    """CTA barriers behind regions; none where the kernel ends (`last`).  A loop that publishes ends in one: its next
    turn writes what slow warps still read."""
    out: list[Op] = []
    for i, op in enumerate(region.ops):
        following = _next(region.ops[i + 1 :])
        out.append(op)
        if op.kind == "async_tasks":
            if not (last and following is None) and not _covers(following):
                out.append(_meet(op))
        else:
            for r in op.regions:
                repeats = op.kind in ("for", "while")
                _separate(r, last and following is None and not repeats, repeats)
    if loop and any(op.kind == "local_load" for op in out):
        effects = [op for op in out if _matters(op)]
        if not _covers(effects[-1]):
            out.insert(len(out) - 1, _meet(effects[-1]))
    region.ops = out
