"""Barriers between accesses to shared memory that conflict inside one task.

Invariant after the pass, for every task: between two accesses of overlapping bytes, one of them a write, lies a
barrier on every path; between a write by ordinary stores and an access of the async proxy (wgmma, TMA, bulk copies)
lies a proxy fence, then a barrier; what an asynchronous op has read or written is behind its wait, then a barrier.  No
inserted barrier or fence can be left out, and none stands inside a loop that could stand before it.  `synced` is set on
arrivals before which the task need not meet.  Before an atomic that releases, which is the act of one thread, the task
meets where others have accessed memory.

What orders the threads of a task among themselves: `barrier`, `named_barrier_wait`, `cluster_barrier`, and an arrival
that the task meets before.  A wait for an mbarrier does not.  Between tasks the kernel's own barriers order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import or_
from typing import Any, NamedTuple

from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.types import Barrier, Buffer
from tlxc.targets import Target

from .tasks import tasks_of
from .warps import WARPGROUP

Bytes = tuple[int, int]  # [start, end)
Places = frozenset[Bytes]
BARRIER, FENCE = "barrier", "fence_async_shared"
NOWHERE: Places = frozenset()


# ------------------------------------------------------------------------------------------------ accesses
class Access(NamedTuple):
    """Bytes that an op touches.  `reads`, `writes`: by all threads, ordinarily; `async_*`: by the async proxy.
    `pending`: the field of the state that keeps them until a wait."""

    reads: Places = NOWHERE
    writes: Places = NOWHERE
    async_reads: Places = NOWHERE
    async_writes: Places = NOWHERE
    pending: str = ""


# Kind -> (field of `Access`, where it is kept until a wait).  A load by TMA is waited for by every thread.
_ACCESSES: dict[str, tuple[str, str]] = {
    "local_load": ("reads", ""),
    "local_gather": ("reads", ""),
    "local_store": ("writes", ""),
    "local_scatter": ("writes", ""),
    "encode_descriptor": ("writes", ""),
    "async_load": ("writes", "copying"),
    "dot": ("async_reads", ""),
    "async_dot": ("async_reads", "multiplying"),
    "tma_store": ("async_reads", "storing"),
    "bulk_store": ("async_reads", "storing"),
    "async_remote_copy": ("async_reads", "storing"),
    "tma_load": ("async_writes", ""),
    "bulk_load": ("async_writes", ""),
}
_REMOTE = ("remote_store", "async_remote_store")  # write to another CTA only
_VIEWS = ("local_view", "local_trans", "local_slice", "local_reinterpret")
# Waits -> the field of the state that they empty
_WAITS = {"async_load_wait": "copying", "async_dot_wait": "multiplying", "tma_store_wait": "storing"}
# Memory accesses of every thread, which an arrival by one of them must not overtake
_BY_ALL = frozenset(
    "local_load local_gather local_store local_scatter load store atomic_rmw async_load async_load_wait remote_store "
    "async_remote_store encode_descriptor".split()
)
_ARRIVALS = ("barrier_arrive", "barrier_expect")
_MEETINGS = ("barrier", "named_barrier_wait", "cluster_barrier")
_EVENTS = {*_ACCESSES, *_WAITS, *_BY_ALL, *_ARRIVALS, *_MEETINGS, "barrier_wait", FENCE}


def access_of(op: Op) -> Access | None:
    """What an op does to shared memory, None for nothing."""
    buffers = [v for v in op.inputs if isinstance(v.type, Buffer)]
    if not buffers or op.kind in _VIEWS or op.kind in _REMOTE:
        return None
    if op.kind == "async_remote_copy":
        buffers = buffers[1:]  # the destination lies in another CTA
    if op.kind not in _ACCESSES:
        raise InternalError(f"{op.kind} at {op.loc} touches a buffer in a way that synchronisation does not know")
    name, pending = _ACCESSES[op.kind]
    made: dict[str, Any] = {name: frozenset(bytes_of(v) for v in buffers), "pending": pending}
    return Access(**made)


def bytes_of(v: Value) -> Bytes:
    """Where a buffer lies; one of an array exactly if its index is a constant, other views as all of their source."""
    op = v.op
    if op is not None and op.kind in _VIEWS:
        start, end = bytes_of(op.inputs[0])
        index = op.inputs[1].op if op.kind == "local_view" else None
        if index is not None and index.kind == "constant":
            assert isinstance(v.type, Buffer)
            array = op.inputs[0].type
            assert isinstance(array, Buffer)
            start += array.tile_offset(index.attrs["value"])
            end = start + v.type.tile_bytes
        return start, end
    if op is None or "offset" not in op.attrs:
        raise InternalError("a buffer without an offset reached synchronisation")
    assert isinstance(v.type, Buffer)
    start = op.attrs["offset"]
    return start, start + v.type.nbytes


# ------------------------------------------------------------------------------------------------ dataflow
class _State(NamedTuple):
    """Accesses that no barrier has covered yet.

    unfenced, fenced: written by ordinary stores and not fenced; fenced since, but no barrier has told the others
    retired: reads of the async proxy that the acting thread, or the one warpgroup of the task, knows to be complete
    copying, multiplying, storing: under way, asynchronously; no barrier says when they end
    touched: a thread has accessed memory; lagging: a warp may still wait for an mbarrier that others have passed
    """

    reads: Places = NOWHERE
    writes: Places = NOWHERE
    unfenced: Places = NOWHERE
    fenced: Places = NOWHERE
    retired: Places = NOWHERE
    copying: Places = NOWHERE
    multiplying: Places = NOWHERE
    storing: Places = NOWHERE
    touched: bool = False
    lagging: bool = False

    def __or__(self, other: _State) -> _State:
        return _State(*map(or_, self, other))

    def met(self) -> bool:
        """Whether what one thread now tells others holds for all threads of its task."""
        return not self.touched and not self.lagging

    def barrier(self) -> _State:
        return _State(unfenced=self.unfenced, copying=self.copying, multiplying=self.multiplying, storing=self.storing)

    def fence(self) -> _State:
        return self._replace(unfenced=NOWHERE, fenced=self.fenced | self.unfenced)

    def access(self, a: Access, one_warpgroup: bool) -> _State:
        """After an access."""
        if a.pending:
            return self._replace(**{a.pending: getattr(self, a.pending) | a.writes | a.async_reads})
        state = self._replace(
            reads=self.reads | a.reads, writes=self.writes | a.writes, unfenced=self.unfenced | a.writes
        )
        return state.multiplied(a.async_reads, one_warpgroup)

    def multiplied(self, places: Places, one_warpgroup: bool) -> _State:
        """wgmma has read its operands: all four warps of a warpgroup know when one does, several warpgroups do not."""
        if one_warpgroup:
            return self._replace(retired=self.retired | places)
        return self._replace(reads=self.reads | places)

    def wait(self, op: Op, one_warpgroup: bool) -> _State:
        """After a wait; with `pendings` some of the work is over and some is not."""
        name = _WAITS[op.kind]
        over = getattr(self, name)
        nothing: dict[str, Any] = {name: NOWHERE}
        state = self if op.attrs["pendings"] else self._replace(**nothing)
        if name == "copying":
            return state._replace(writes=state.writes | over, unfenced=state.unfenced | over)
        return state.multiplied(over, one_warpgroup or name == "storing")

    def needs(self, a: Access) -> tuple[str, ...]:
        """The ops that must stand before an access."""
        if _meet(a.async_reads | a.async_writes, self.unfenced):
            return FENCE, BARRIER
        conflict = (
            _meet(a.reads | a.async_reads, self.writes | self.fenced)
            or _meet(a.writes, self.writes | self.reads | self.retired)
            or _meet(a.async_writes, self.writes | self.reads | self.fenced)
        )
        return (BARRIER,) if conflict else ()


def _releases(op: Op) -> bool:
    """Whether an atomic, which one thread performs, hands over what all threads of the task did before it."""
    return op.kind == "atomic_rmw" and op.attrs["sem"] in ("release", "acq_rel")


def _meet(a: Places, b: Places) -> bool:
    return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)


class _Sync:
    """Walks the ops of one task with the state before them.  `inserts`: it repairs, and marks arrivals; else `conflict`
    only says that it would have to."""

    def __init__(self, warps: int, accesses: Mapping[Op, Access], inserts: bool) -> None:
        self.warps = warps
        self.accesses = accesses
        self.one_warpgroup = warps <= WARPGROUP
        self.inserts = inserts
        self.conflict = False
        self.made: list[tuple[Region, Op]] = []

    def region(self, region: Region, state: _State) -> _State:
        i = 0
        while i < len(region.ops):
            op = region.ops[i]
            if op.regions:
                state = self.structured(op, state)
            elif op.kind in _EVENTS:
                access = self.accesses.get(op)
                wanted = state.needs(access) if access is not None else ()
                if _releases(op) and not state.met():
                    wanted = (BARRIER,)
                if wanted:
                    self.conflict = True
                    if not self.inserts:
                        return state
                    self.insert(region, i, wanted)
                    continue  # at the first of the new ops
                state = self.step(op, access, state)
            i += 1
        return state

    def step(self, op: Op, access: Access | None, state: _State) -> _State:
        """The state after an op without regions."""
        if access is not None:
            state = state.access(access, self.one_warpgroup)
        if op.kind in _MEETINGS:
            return state if op.attrs.get("relaxed") else state.barrier()
        if op.kind == FENCE:
            return state.fence()
        if op.kind in _ARRIVALS:
            return self.arrive(op, state)
        if op.kind in _WAITS:
            state = state.wait(op, self.one_warpgroup)
        elif op.kind == "barrier_wait" and self.warps > 1:
            return state._replace(lagging=True)
        elif op.kind in ("async_dot", "dot") and access is not None:
            # The warps of a warpgroup multiply together, so all have come this far; those of another may not have.
            return state._replace(lagging=False) if self.one_warpgroup else state._replace(touched=True)
        return state._replace(touched=True) if op.kind in _BY_ALL else state

    def arrive(self, op: Op, state: _State) -> _State:
        if isinstance(op.inputs[0].type, Barrier) and op.inputs[0].type.warp and op.kind == "barrier_arrive":
            return state  # every thread by itself
        if self.inserts:
            op.attrs.pop("synced", None)
            if state.met():
                op.attrs["synced"] = True
        return state if state.met() else state.barrier()

    def insert(self, region: Region, at: int, kinds: tuple[str, ...]) -> None:
        new = [Op(kind, loc=region.ops[at].loc) for kind in kinds]
        region.ops[at:at] = new
        self.made += [(region, op) for op in new]

    def structured(self, op: Op, state: _State) -> _State:
        if op.kind == "if":
            return self.region(op.regions[0], state) | self.region(op.regions[1], state)
        while True:  # until another iteration brings nothing new to the loop's entry
            after = state
            for r in op.regions[:-1]:  # the condition of a while loop
                after = self.region(r, after)
            leaving = after
            after = self.region(op.regions[-1], after)
            if after | state == state:
                return leaving
            state |= after


# ------------------------------------------------------------------------------------------------ insertion
@dataclass(frozen=True)
class _Task:
    """The code of one task, its warps, and what earlier regions may have left under way when it starts."""

    region: Region
    warps: int
    accesses: Mapping[Op, Access]
    entry: _State = _State()

    def walk(self, inserts: bool) -> tuple[_Sync, _State]:
        sync = _Sync(self.warps, self.accesses, inserts)
        return sync, sync.region(self.region, self.entry)

    def holds(self) -> bool:
        return not self.walk(inserts=False)[0].conflict


def insert_barriers(module: Module, target: Target) -> None:
    """Inserts what is missing in every task, then takes back, innermost first, what other insertions made needless."""
    tasks = [_Task(region, warps, _accesses(region)) for region, warps in tasks_of(module)]
    if len(tasks) > 1:
        tasks = _with_entries(module, tasks)
    for task in tasks:
        _synchronise(task)
    if len(tasks) > 1:
        _fence_for_later_regions(module, tasks)


def _accesses(region: Region) -> dict[Op, Access]:
    found = ((op, access_of(op)) for op in region.walk())
    return {op: access for op, access in found if access is not None}


def _repeated(module: Module) -> dict[Region, bool]:
    """Per task, whether its region of tasks may come after another, or after itself in a loop."""
    regions = [op for op in module.walk() if op.kind == "async_tasks"]
    return {r: len(regions) > 1 or op not in module.body.ops for op in regions for r in op.regions}


def _with_entries(module: Module, tasks: list[_Task]) -> list[_Task]:
    """CTA barriers between regions cover all accesses but those under way, which only a wait ends."""
    left = _State()
    for task in tasks:
        left |= task.walk(inserts=False)[1]
    entry = _State(copying=left.copying, multiplying=left.multiplying, storing=left.storing)
    repeated = _repeated(module)
    return [replace(t, entry=entry) if repeated[t.region] else t for t in tasks]


def _fence_for_later_regions(module: Module, tasks: list[_Task]) -> None:
    """What a region leaves written and a later one hands to the async proxy is fenced where the writing task ends; a
    CTA barrier follows.  Between tasks that run at once, fences are the kernel's own."""
    repeated = _repeated(module)
    for task in tasks:
        if not repeated[task.region]:
            continue
        left = task.walk(inserts=False)[1].unfenced
        if any(_meet(a.async_reads | a.async_writes, left) for t in tasks for a in t.accesses.values()):
            task.region.ops.append(Op(FENCE, loc=task.region.ops[-1].loc))


def _synchronise(task: _Task) -> None:
    made = task.walk(inserts=True)[0].made
    around = _loops(task.region)
    for region, op in sorted(made, key=lambda made: -len(around[made[0]])):
        at = region.ops.index(op)
        del region.ops[at]
        if not task.holds() and not _hoist(task, op, around[region]):
            region.ops.insert(at, op)
    task.walk(inserts=True)  # marks arrivals by what stands now


def _loops(region: Region, around: tuple[tuple[Region, Op], ...] = ()) -> dict[Region, tuple[tuple[Region, Op], ...]]:
    """Per region, the loops around it as (region that holds the loop, loop), outermost first."""
    out = {region: around}
    for op in region.ops:
        for r in op.regions:
            out |= _loops(r, around if op.kind == "if" else (*around, (region, op)))
    return out


def _hoist(task: _Task, op: Op, loops: tuple[tuple[Region, Op], ...]) -> bool:
    """Puts the op in front of the outermost loop where it is enough there."""
    for region, loop in loops:
        at = region.ops.index(loop)
        region.ops.insert(at, op)
        if task.holds():
            return True
        del region.ops[at]
    return False
