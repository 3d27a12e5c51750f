"""Executes one CTA: all lanes are one vector, every lane has a current block, and the earliest block among the lanes
runs next, for exactly the lanes that are there.

"Earliest" is a reverse post order in which every loop is contiguous, so lanes that leave a loop wait for those still in
it, and both arms of a branch come before their join: lanes reconverge where a GPU's would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.memory import SHARED_WINDOW, GlobalMemory, SharedMemory
from tlxc.emulator.module import Block, Function
from tlxc.emulator.parse import Instruction
from tlxc.emulator.values import Array, LaneValue, merge

_MAX_BLOCKS = 20_000_000
GLOBAL_SPACES, SHARED_SPACES = (1, 4), (3, 7)


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
    steps: list[Step]
    terminate: Callable[[Cta], None]
    terminator: Instruction


@dataclass
class Program:
    """A kernel compiled for a CTA size. `registers` holds the constants; `params` are (register, type) in order.
    `dynamic_start` is the offset of dynamic shared memory, None when the kernel has none."""

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

    def shared_bytes(self, dynamic: int) -> int:
        """Shared memory of a CTA that is launched with `dynamic` bytes."""
        if self.dynamic_start is None:
            return self.static_shared
        return self.dynamic_start + dynamic


class Cta:
    """One CTA in execution: registers, lane masks, memory. Compiled instructions take it as their only argument."""

    def __init__(
        self,
        program: Program,
        registers: list[LaneValue | None],
        memory: GlobalMemory,
        shared: SharedMemory,
        ctaid: tuple[int, int, int],
        nctaid: tuple[int, int, int],
    ) -> None:
        self.program, self.lanes, self.warp_size = program, program.lanes, program.warp_size
        self.warps = self.lanes // self.warp_size
        self.regs = registers
        self.global_memory, self.shared = memory, shared
        self.lane_ids = np.arange(self.lanes)
        self.warp_ids = self.lane_ids // self.warp_size
        self.current = np.zeros(self.lanes, np.int64)
        self.active = np.ones(self.lanes, bool)
        self.full = True
        self.ctaid, self.nctaid = ctaid, nctaid
        self.copies: list[list[list[tuple[Array, Array, Array]]]] = [[[]] for _ in range(self.warps)]

    # -- control flow
    def run(self) -> None:
        blocks, exited = self.program.blocks, len(self.program.blocks)
        for _ in range(_MAX_BLOCKS):
            first = int(self.current.min())
            if first == exited:
                return
            self.active = self.current == first
            self.full = bool(self.active.all())
            self._run_block(blocks[first])
        raise EmulatorError(f"The CTA did not end within {_MAX_BLOCKS} basic blocks.")

    def _run_block(self, block: CompiledBlock) -> None:
        regs, full, instruction = self.regs, self.full, block.terminator
        try:
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
            raise EmulatorError(_located(error, instruction), located=True) from None

    def take(self, edge: Edge, mask: Array) -> None:
        """Sends the lanes of `mask` along `edge`; phis read their old values before any is written."""
        regs = self.regs
        everyone = bool(mask.all())
        values = [regs[source] for _, source in edge.moves]
        for (dst, _), value in zip(edge.moves, values):
            assert value is not None
            regs[dst] = value if everyone else merge(mask, value, regs[dst])
        self.current[mask] = edge.target

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

    def barrier(self, count: int | None) -> None:
        """A barrier over `count` lanes (None: the whole CTA)."""
        present = int(self.active.sum())
        wanted = self.lanes if count is None else count
        if present != wanted:
            raise EmulatorError(
                f"A barrier for {wanted} lanes is reached by {present} of the CTA's {self.lanes} lanes (the first lane "
                f"missing is {int(np.argmin(self.active))}); on hardware the others would wait for ever."
            )
        self.shared.barrier(self.active_warps("The barrier"))

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
            return self.shared.load(addresses, size, lanes, self.warp_ids[lanes])
        inside = self._in_window(space, addresses)
        result = np.empty((len(lanes), size), np.uint8)
        for at, shift, real in ((inside, SHARED_WINDOW, 3), (~inside, 0, 1)):
            if at.any():
                result[at] = self._load(real, addresses[at] - np.uint64(shift), size, lanes[at])
        return result

    def store_lanes(self, space: int, addresses: Array, rows: Array, lanes: Array, atomic: bool = False) -> None:
        """Like `store`, for the listed lanes only: addresses and rows have one entry per listed lane."""
        if space in GLOBAL_SPACES:
            self.global_memory.store(addresses, rows, lanes)
        elif space in SHARED_SPACES:
            self.shared.store(addresses, rows, lanes, self.warp_ids[lanes], atomic)
        else:
            inside = self._in_window(space, addresses)
            for at, shift, real in ((inside, SHARED_WINDOW, 3), (~inside, 0, 1)):
                if at.any():
                    self.store_lanes(real, addresses[at] - np.uint64(shift), rows[at], lanes[at], atomic)

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
        if space in SHARED_SPACES:
            return self.shared.load_atomic(addresses, size, lanes, self.warp_ids[lanes])
        if space == 0 and self._in_window(space, addresses).any():
            return self.shared.load_atomic(addresses - np.uint64(SHARED_WINDOW), size, lanes, self.warp_ids[lanes])
        return self._load(1 if space == 0 else space, addresses, size, lanes)

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


def _located(error: EmulatorError, instruction: Instruction) -> str:
    return f"{error}\n  LLVM line {instruction.line}: {instruction.text[:300]}"


# -- block order
def block_order(function: Function) -> list[Block]:
    """Reachable blocks so that each comes after its predecessors, back edges aside, and loops are contiguous."""
    blocks = function.blocks
    entry = next(iter(blocks))
    successors = {name: list(block.targets) for name, block in blocks.items()}
    reachable, todo = {entry}, [entry]
    while todo:
        for target in successors[todo.pop()]:
            if target not in blocks:
                raise EmulatorError(f"The block '%{target}' does not exist.")
            if target not in reachable:
                reachable.add(target)
                todo.append(target)
    return [blocks[name] for name in _order(entry, reachable, successors)]


def _order(entry: str, nodes: set[str], successors: dict[str, list[str]]) -> list[str]:
    """Topological order of strongly connected components; inside each loop, the same with its header's back edges
    cut."""
    result = []
    for component in reversed(_components(entry, nodes, successors)):
        if len(component) == 1:
            result.append(component[0])
            continue
        inside = set(component)
        header = next(name for name in component if name == entry or _entered(name, inside, nodes, successors))
        cut = {name: [t for t in successors[name] if t in inside and t != header] for name in component}
        result += _order(header, inside, cut)
    return result


def _entered(name: str, inside: set[str], nodes: set[str], successors: dict[str, list[str]]) -> bool:
    """Whether some block outside of the component branches to `name`."""
    return any(name in successors[other] for other in nodes - inside)


def _components(entry: str, nodes: set[str], successors: dict[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm without recursion: components in reverse topological order, each with its first-visited block
    first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    result: list[list[str]] = []

    def enter(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        work.append((name, 0))

    for root in [entry, *sorted(nodes)]:
        if root in index:
            continue
        work: list[tuple[str, int]] = []
        enter(root)
        while work:
            name, at = work.pop()
            targets = [t for t in successors[name] if t in nodes]
            if at < len(targets):
                work.append((name, at + 1))
                target = targets[at]
                if target not in index:
                    enter(target)
                elif target in on_stack:
                    low[name] = min(low[name], index[target])
                continue
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == index[name]:
                start = stack.index(name)
                result.append(stack[start:])
                on_stack.difference_update(stack[start:])
                del stack[start:]
    return result
