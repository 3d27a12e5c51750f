"""Barriers between accesses to shared memory that conflict.

Invariant after the pass: between two accesses of overlapping bytes, one of them a write, lies a barrier on every path;
between a write by ordinary stores and a read by wgmma lies a proxy fence, then a barrier.  No inserted barrier or fence
can be left out, and none stands inside a loop that could stand before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region
from tlxc.ir.types import Buffer
from tlxc.targets import Target

Bytes = tuple[int, int]  # [start, end)
BARRIER, FENCE = "barrier", "fence_async_shared"


class Access(NamedTuple):
    """Bytes that an op reads and writes; `proxy`: the reads are those of the async proxy."""

    reads: tuple[Bytes, ...] = ()
    writes: tuple[Bytes, ...] = ()
    proxy: bool = False


def access_of(op: Op) -> Access | None:
    """What an op does to shared memory, None for nothing."""
    buffers = tuple(_bytes_of(v.type, v.op) for v in op.inputs if isinstance(v.type, Buffer))
    if not buffers:
        return None
    if op.kind == "local_store":
        return Access(writes=buffers)
    if op.kind == "local_load":
        return Access(reads=buffers)
    if op.kind == "dot":
        return Access(reads=buffers, proxy=True)
    raise InternalError(f"{op.kind} at {op.loc} touches a buffer in a way that synchronisation does not know")


def _bytes_of(t: Buffer, alloc: Op | None) -> Bytes:
    if alloc is None or "offset" not in alloc.attrs:
        raise InternalError("a buffer without an offset reached synchronisation")
    start = alloc.attrs["offset"]
    return start, start + t.nbytes


@dataclass(frozen=True)
class _State:
    """Accesses that no barrier has covered yet.  `unfenced`: written and not fenced; `fenced`: fenced since, but no
    barrier has told the other threads."""

    reads: frozenset[Bytes] = frozenset()
    writes: frozenset[Bytes] = frozenset()
    unfenced: frozenset[Bytes] = frozenset()
    fenced: frozenset[Bytes] = frozenset()

    def __or__(self, other: _State) -> _State:
        return _State(
            self.reads | other.reads,
            self.writes | other.writes,
            self.unfenced | other.unfenced,
            self.fenced | other.fenced,
        )

    def barrier(self) -> _State:
        return _State(unfenced=self.unfenced)

    def fence(self) -> _State:
        return _State(self.reads, self.writes, frozenset(), self.fenced | self.unfenced)

    def access(self, a: Access) -> _State:
        """After an access."""
        writes = frozenset(a.writes)
        return _State(self.reads | set(a.reads), self.writes | writes, self.unfenced | writes, self.fenced)

    def needs(self, a: Access) -> tuple[str, ...]:
        """The ops that must stand before an access."""
        if a.proxy and _meet(a.reads, self.unfenced):
            return FENCE, BARRIER
        conflict = _meet(a.reads, self.writes) or _meet(a.writes, self.writes) or _meet(a.writes, self.reads)
        return (BARRIER,) if conflict or a.proxy and _meet(a.reads, self.fenced) else ()


def _meet(a: tuple[Bytes, ...], b: frozenset[Bytes]) -> bool:
    return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)


class _Sync:
    """Walks ops with the state before them.  `inserts`: it repairs; else `conflict` says that it would have to."""

    def __init__(self, inserts: bool) -> None:
        self.inserts = inserts
        self.conflict = False
        self.made: list[tuple[Region, Op]] = []

    def region(self, region: Region, state: _State) -> _State:
        i = 0
        while i < len(region.ops):
            op = region.ops[i]
            if op.regions:
                state = self.structured(op, state)
            elif op.kind == BARRIER:
                state = state.barrier()
            elif op.kind == FENCE:
                state = state.fence()
            elif (access := access_of(op)) is not None:
                if wanted := state.needs(access):
                    self.conflict = True
                    if self.inserts:
                        self.insert(region, i, wanted)
                        continue  # at the first of the new ops
                state = state.access(access)
            i += 1
        return state

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


def _holds(module: Module) -> bool:
    check = _Sync(inserts=False)
    check.region(module.body, _State())
    return not check.conflict


def _loops(region: Region, around: tuple[tuple[Region, Op], ...] = ()) -> dict[Region, tuple[tuple[Region, Op], ...]]:
    """Per region, the loops around it as (region that holds the loop, loop), outermost first."""
    out = {region: around}
    for op in region.ops:
        for r in op.regions:
            out |= _loops(r, around if op.kind == "if" else (*around, (region, op)))
    return out


def insert_barriers(module: Module, target: Target) -> None:
    """Inserts what is missing, then takes back, innermost first, what other insertions made needless."""
    sync = _Sync(inserts=True)
    sync.region(module.body, _State())
    around = _loops(module.body)
    for region, op in sorted(sync.made, key=lambda made: -len(around[made[0]])):
        at = region.ops.index(op)
        del region.ops[at]
        if not _holds(module) and not _hoist(module, op, around[region]):
            region.ops.insert(at, op)


def _hoist(module: Module, op: Op, loops: tuple[tuple[Region, Op], ...]) -> bool:
    """Puts the op in front of the outermost loop where it is enough there."""
    for region, loop in loops:
        at = region.ops.index(loop)
        region.ops.insert(at, op)
        if _holds(module):
            return True
        del region.ops[at]
    return False
