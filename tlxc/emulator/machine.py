"""Executes one CTA: all lanes are one vector, every lane has a current block, and warps whose lanes stand at the same
block run it together.

Within a warp the earliest block runs next, for exactly the lanes that are there. "Earliest" is a reverse post order in
which every loop is contiguous, so lanes that leave a loop wait for those still in it, and both arms of a branch come
before their join: lanes reconverge where a GPU's would. Among warps the earliest block comes first as well, until a
warp has gone round loops often enough to be sent to the end of the queue. An instruction that may have to wait is the
first of its block: its gate tells who may pass, the others are parked until something wakes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.memory import RANK_SHIFT, SHARED_WINDOW, GlobalMemory
from tlxc.emulator.parse import Instruction
from tlxc.emulator.shared import SharedMemory
from tlxc.emulator.tensormap import TensorMap
from tlxc.emulator.values import Array, LaneValue, merge

if TYPE_CHECKING:
    from tlxc.emulator.barriers import NamedBarrier
    from tlxc.emulator.cluster import Cluster
    from tlxc.emulator.copies import BulkGroups

_PATIENCE = 32  # rounds of loops before another warp gets its turn
GLOBAL_SPACES, SHARED_SPACES, CLUSTER_SPACE = (1, 4), (3, 7), 7
Gate = Callable[["Cta"], Array]


@dataclass(slots=True)
class Step:
    """One compiled instruction. `dst` is a register number or -1; `local` says that no other block reads it, so
    that lanes outside of this block need no old value."""

    run: Callable[[Cta], LaneValue]
    dst: int
    local: bool
    instruction: Instruction


@dataclass
class Edge:
    """Taking a branch: the target's place in the order, and the phi values it receives as (dst, source) registers."""

    target: int
    moves: list[tuple[int, int]]


@dataclass
class CompiledBlock:
    """`gate`, when there is one, says which of the active lanes may run the block now; it parks the others' warps."""

    steps: list[Step]
    terminate: Callable[[Cta], None]
    terminator: Instruction
    gate: Gate | None = None


@dataclass
class Program:
    """A kernel compiled for a CTA size. `registers` holds the constants, of which those in `shared_slots` are shared
    addresses; `params` are (register, type) in order. `dynamic_start` is the offset of dynamic shared memory, None when
    the kernel has none. `cluster` is what the kernel declares, None when nothing."""

    name: str
    lanes: int
    warp_size: int
    registers: list[LaneValue | None]
    params: list[tuple[int, np.dtype[Any]]]
    shared_base: int = 0
    static_shared: int = 0
    dynamic_start: int | None = None
    constants: list[tuple[str, bytes]] = field(default_factory=list)
    blocks: list[CompiledBlock] = field(default_factory=list)
    shared_slots: list[int] = field(default_factory=list)
    cluster: tuple[int, int, int] | None = None

    def shared_bytes(self, dynamic: int) -> int:
        """Shared memory of a CTA that is launched with `dynamic` bytes."""
        if self.dynamic_start is None:
            return self.static_shared
        return self.dynamic_start + dynamic


class Cta:
    """One CTA in execution: registers, lane masks, memory. Compiled instructions take it as their only argument.

    `at` is the block of all lanes while they agree and none is parked (`current` is stale then), None otherwise.
    `agents` are the lanes' warps, numbered through the cluster.
    """

    def __init__(
        self,
        program: Program,
        registers: list[LaneValue | None],
        memory: GlobalMemory,
        shared: SharedMemory,
        cluster: Cluster,
        ctaid: tuple[int, int, int],
        rank: int,
    ) -> None:
        self.program, self.lanes, self.warp_size = program, program.lanes, program.warp_size
        self.warps = self.lanes // self.warp_size
        self.regs = registers
        self.global_memory, self.shared, self.cluster = memory, shared, cluster
        self.lane_ids = np.arange(self.lanes)
        self.warp_ids = self.lane_ids // self.warp_size
        self.rank, self.first_warp = rank, rank * self.warps
        self.agents = self.warp_ids + self.first_warp
        self.current = np.zeros(self.lanes, np.int64)
        self.everyone = np.ones(self.lanes, bool)
        self.at: int | None = 0
        self.pc = 0
        self.active, self.full = self.everyone, True
        self.exited = len(program.blocks)
        self.runnable = np.ones(self.warps, bool)
        self.waits: dict[int, Callable[[], str]] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.granted = np.zeros(self.warps, bool)
        self.turns, self.rounds, self.last_turn = np.zeros(self.warps, np.int64), np.zeros(self.warps, np.int64), 0
        self.ctaid: tuple[int, int, int] = ctaid
        self.nctaid: tuple[int, int, int] = cluster.grid
        self.copies: list[list[list[tuple[Array, Array, Array]]]] = [[[]] for _ in range(self.warps)]
        self.groups: dict[int, BulkGroups] = {}
        self.frames: dict[Any, Any] = {}
        self.acquired: dict[int, Array] = {}  # per tensor map, which of those published there each lane has acquired
        self.ticks = 0
        for slot in program.shared_slots if rank else ():
            self.regs[slot] = self.regs[slot] + np.uint64(rank << RANK_SHIFT)

    def acquire_map(self, address: int, lanes: Array) -> None:
        """fence.proxy.tensormap by some lanes: they may use the map that stands there now."""
        known = self.acquired.setdefault(address, np.zeros(self.lanes, np.int64))
        known[lanes] = self.global_memory.published.get(address, 0)

    def tensor_map(self, address: int, lane: int) -> TensorMap:
        """The map by which a lane copies."""
        published = self.global_memory.published.get(address, 0)
        if published and (address not in self.acquired or self.acquired[address][lane] != published):
            raise EmulatorError(
                f"Lane {lane} copies by a tensor map that was published at {address:#x} since it acquired it last; "
                "fence.proxy.tensormap comes before."
            )
        return self.global_memory.tensor_map(address)

    def tick(self) -> int:
        """A clock that moves on whenever it is read."""
        self.ticks += 1
        return self.ticks

    # -- control flow
    def advance(self, budget: int) -> int:
        """Runs up to `budget` blocks; the number that were run."""
        blocks, exited = self.program.blocks, self.exited
        for count in range(budget):
            at = self.at
            if at is not None:
                if at == exited:
                    return count
                self.pc, self.active, self.full = at, self.everyone, True
            elif not self._choose():
                return count
            self._run_block(blocks[self.pc])
        return budget

    def _choose(self) -> bool:
        """Picks the warps that run next; False when none can."""
        places = self.current.reshape(self.warps, -1).min(axis=1)
        ready = self.runnable & (places < self.exited)
        if not ready.any():
            return False
        seeded = self.cluster.random
        if seeded is None:
            warp = int(np.where(ready, self.turns * (self.exited + 1) + places, np.iinfo(np.int64).max).argmin())
        else:
            warp = int(seeded.choice(np.nonzero(ready)[0]))
        self.pc = int(places[warp])
        chosen = ready & (places == self.pc)
        if seeded is not None and seeded.random() < 0.5:
            chosen = np.arange(self.warps) == warp
        self.active = np.repeat(chosen, self.warp_size) & (self.current == self.pc)
        self.full = bool(self.active.all())
        return True

    def _run_block(self, block: CompiledBlock) -> None:
        regs, instruction = self.regs, block.steps[0].instruction if block.steps else block.terminator
        try:
            if block.gate is not None:
                passing = block.gate(self)
                if passing is not self.active:
                    self.active, self.full = passing, bool(passing.all())
                    if not passing.any():
                        return
            full = self.full
            for step in block.steps:
                instruction = step.instruction
                value = step.run(self)
                if step.dst >= 0:
                    regs[step.dst] = value if full or step.local else merge(self.active, value, regs[step.dst])
            instruction = block.terminator
            block.terminate(self)
        except EmulatorError as error:
            if error.located:
                raise
            raise EmulatorError(located(error, instruction), located=True) from None

    def take(self, edge: Edge, mask: Array) -> None:
        """Sends the lanes of `mask` along `edge`; phis read their old values before any is written."""
        regs = self.regs
        everyone = mask is self.everyone or bool(mask.all())
        values = [regs[source] for _, source in edge.moves]
        for (dst, _), value in zip(edge.moves, values):
            assert value is not None
            regs[dst] = value if everyone else merge(mask, value, regs[dst])
        if everyone:
            self.at = edge.target
        else:
            self.at = None
            self.current[mask] = edge.target
            if edge.target <= self.pc:
                self._count_round(mask)
        if edge.target == self.exited:
            self.cluster.lanes_left(int(mask.sum()))

    def _count_round(self, mask: Array) -> None:
        """Warps that have gone round loops for long let others run."""
        warps = np.unique(self.warp_ids[mask])
        self.rounds[warps] += 1
        if self.rounds[warps[0]] >= _PATIENCE:
            self.last_turn += 1
            self.turns[warps], self.rounds[warps] = self.last_turn, 0

    # -- waiting
    def spread(self) -> None:
        """From here on lanes may be at different places."""
        if self.at is not None:
            self.current[:] = self.at
            self.at = None

    def park(self, warps: Array, reason: Callable[[], str]) -> None:
        """These warps stay where they are until `wake`; `reason` tells what for, when asked."""
        self.spread()
        self.runnable[warps] = False
        self.waits.update(dict.fromkeys(map(int, warps), reason))

    def wake(self, warps: Array) -> None:
        self.runnable[warps] = True
        for warp in warps:
            self.waits.pop(int(warp), None)

    def without(self, warps: Array) -> Array:
        """The active lanes, less those of `warps`."""
        keep = np.ones(self.warps, bool)
        keep[warps] = False
        return self.active & np.repeat(keep, self.warp_size)

    @property
    def has_ended(self) -> bool:
        return self.at == self.exited or (self.at is None and bool((self.current == self.exited).all()))

    def waiting(self) -> list[str]:
        """One line per warp that has not ended: where it stands and what it waits for."""
        lines: list[str] = []
        if self.has_ended:
            return lines
        places = self.current.reshape(self.warps, -1).min(axis=1)
        for warp in range(self.warps):
            if places[warp] < self.exited:
                block = self.program.blocks[places[warp]]
                at = block.steps[0].instruction if block.steps else block.terminator
                reason = self.waits[warp]() if warp in self.waits else "can run"
                lines.append(f"warp {warp}, LLVM line {at.line}: {reason}")
        return lines

    # -- lanes
    def uniform(self, value: Array, what: str) -> int:
        """The one integer that all active lanes hold."""
        chosen = value[self.active]
        if (chosen != chosen[0]).any():
            raise EmulatorError(f"{what} must be the same in all lanes.")
        return int(chosen[0])

    def active_warps(self, what: str, group: int = 1) -> Array:
        """Numbers of the warps that execute, each of which must be complete (and in groups of `group` warps)."""
        by_group = self.active.reshape(-1, group * self.warp_size)
        some = by_group.any(axis=1)
        if (some & ~by_group.all(axis=1)).any():
            unit = "warp" if group == 1 else "warp group"
            raise EmulatorError(
                f"{what} is executed by a part of a {unit} only; all its lanes must execute it together."
            )
        return (np.nonzero(some)[0][:, None] * group + np.arange(group)).reshape(-1)

    def by_warp(self, value: Array) -> Array:
        """(lanes, ...) as (warps, lanes of a warp, ...)."""
        return value.reshape(self.warps, self.warp_size, *value.shape[1:])

    # -- memory: addresses and rows are per lane of the CTA, `mask` says which lanes access (None: the active ones)
    def load(self, space: int, addresses: Array, size: int, align: int, mask: Array | None = None) -> Array:
        lanes, picked = self._select(addresses, align, mask)
        if not len(lanes):
            return np.zeros((self.lanes, size), np.uint8)
        rows = self._load(space, picked, size, lanes)
        if len(lanes) == self.lanes:
            return rows
        result = np.zeros((self.lanes, size), np.uint8)
        result[lanes] = rows
        return result

    def store(self, space: int, addresses: Array, rows: Array, align: int, mask: Array | None = None) -> None:
        lanes, picked = self._select(addresses, align, mask)
        if len(lanes):
            self.store_lanes(space, picked, rows if len(lanes) == self.lanes else rows[lanes], lanes)

    def _select(self, addresses: Array, align: int, mask: Array | None) -> tuple[Array, Array]:
        if mask is None and self.full:
            lanes, picked = self.lane_ids, addresses
        else:
            lanes = np.nonzero(self.active if mask is None else mask & self.active)[0]
            picked = addresses[lanes]
        wrong = picked & np.uint64(align - 1)
        if align > 1 and wrong.any():
            at = int(np.argmax(wrong != 0))
            raise EmulatorError(
                f"Misaligned access by lane {lanes[at]}: address {int(picked[at]):#x} is not a multiple of {align} "
                "bytes."
            )
        return lanes, picked

    def _load(self, space: int, addresses: Array, size: int, lanes: Array) -> Array:
        if space in GLOBAL_SPACES:
            return self.global_memory.load(addresses, size, lanes)
        if space in SHARED_SPACES:
            return self._load_shared(space, addresses, size, lanes)
        inside = self._in_window(space, addresses)
        result = np.empty((len(lanes), size), np.uint8)
        for at, shift, real in ((inside, SHARED_WINDOW, CLUSTER_SPACE), (~inside, 0, 1)):
            if at.any():
                result[at] = self._load(real, addresses[at] - np.uint64(shift), size, lanes[at])
        return result

    def store_lanes(self, space: int, addresses: Array, rows: Array, lanes: Array, atomic: bool = False) -> None:
        """Like `store`, for the listed lanes only: addresses and rows have one entry per listed lane."""
        if space in GLOBAL_SPACES:
            self.global_memory.store(addresses, rows, lanes)
        elif space in SHARED_SPACES:
            for shared, at in self.shared_parts(space, addresses):
                shared.store(addresses[at], rows[at], lanes[at], self.agents[lanes[at]], atomic)
        else:
            inside = self._in_window(space, addresses)
            for at, shift, real in ((inside, SHARED_WINDOW, CLUSTER_SPACE), (~inside, 0, 1)):
                if at.any():
                    self.store_lanes(real, addresses[at] - np.uint64(shift), rows[at], lanes[at], atomic)

    def shared_parts(self, space: int, addresses: Array) -> list[tuple[SharedMemory, Any]]:
        """The shared memories that addresses point into, each with the index of its addresses."""
        if space != CLUSTER_SPACE or len(self.cluster.ctas) == 1:
            return [(self.shared, slice(None))]
        ranks = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64)
        return [(self.cluster.peer(rank).shared, ranks == rank) for rank in map(int, np.unique(ranks))]

    def _load_shared(self, space: int, addresses: Array, size: int, lanes: Array) -> Array:
        result = np.empty((len(lanes), size), np.uint8)
        for shared, at in self.shared_parts(space, addresses):
            rows = shared.load(addresses[at], size, lanes[at], self.agents[lanes[at]])
            if isinstance(at, slice):
                return rows
            result[at] = rows
        return result

    def _in_window(self, space: int, addresses: Array) -> Array:
        if space != 0:
            raise EmulatorError(f"Memory of address space {space} is not supported; 0, 1, 3, 4 and 7 are.")
        return addresses >= np.uint64(SHARED_WINDOW)

    def read_modify_write(
        self,
        space: int,
        addresses: Array,
        size: int,
        update: Callable[[Array, Array], Array],
        mask: Array | None = None,
    ) -> Array:
        """Atomics, lane after lane where addresses collide. `update(old rows, lanes)` gives the new rows; returns the
        old rows of all lanes."""
        lanes, picked = self._select(addresses, size, mask)
        result = np.zeros((self.lanes, size), np.uint8)
        while len(lanes):
            _, first = np.unique(picked, return_index=True)
            old = self._load_atomic(space, picked[first], size, lanes[first])
            result[lanes[first]] = old
            self.store_lanes(space, picked[first], update(old, lanes[first]), lanes[first], atomic=True)
            rest = np.ones(len(lanes), bool)
            rest[first] = False
            lanes, picked = lanes[rest], picked[rest]
        return result

    def _load_atomic(self, space: int, addresses: Array, size: int, lanes: Array) -> Array:
        """The read of an atomic: unordered with other atomics, so it leaves no mark in the race check."""
        if space == 0 and self._in_window(space, addresses).any():
            space, addresses = CLUSTER_SPACE, addresses - np.uint64(SHARED_WINDOW)
        if space not in SHARED_SPACES:
            return self._load(1 if space == 0 else space, addresses, size, lanes)
        result = np.empty((len(lanes), size), np.uint8)
        for shared, at in self.shared_parts(space, addresses):
            result[at] = shared.load_atomic(addresses[at], size, lanes[at], self.agents[lanes[at]])
        return result

    # -- asynchronous copies to shared memory: they land when their warp waits for them
    def start_copy(self, addresses: Array, rows: Array, mask: Array) -> None:
        """Remembers per warp: rows to write at shared `addresses` for the lanes of `mask`."""
        for warp in np.unique(self.warp_ids[mask]):
            lanes = np.nonzero(mask & (self.warp_ids == warp))[0]
            self.copies[warp][-1].append((lanes, addresses[lanes], rows[lanes]))

    def commit_copies(self, warps: Array) -> None:
        for warp in warps:
            self.copies[warp].append([])

    def finish_copies(self, keep: int, warps: Array) -> None:
        """Lets all but the newest `keep` committed groups of `warps` land, oldest first."""
        for warp in warps:
            groups = self.copies[warp]
            while len(groups) - 1 > keep:
                for lanes, addresses, rows in groups.pop(0):
                    self.store_lanes(3, addresses, rows, lanes)


def located(error: EmulatorError, instruction: Instruction) -> str:
    return f"{error}\n  LLVM line {instruction.line}: {instruction.text[:300]}"
