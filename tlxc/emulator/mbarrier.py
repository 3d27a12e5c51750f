"""mbarriers: counted arrivals and bytes, phases, and the order they pass on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.memory import RANK_SHIFT
from tlxc.emulator.values import Array

if TYPE_CHECKING:
    from tlxc.emulator.machine import Cta

_MAX_COUNT = (1 << 20) - 1


@dataclass(eq=False)
class Mbarrier:
    """`phase` counts the completed phases. `gathering` is what the arrivals of this phase pass on, `released` what
    waits for a completed one receive. `agent` performs the copies that it counts."""

    address: int
    expected: int
    agent: int
    initialised: tuple[int, int]  # the warp's agent and its clock
    gathering: Array
    released: Array
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    waiters: list[tuple[Cta, int, Callable[[], str]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        rank, offset = self.address >> RANK_SHIFT, self.address & ((1 << RANK_SHIFT) - 1)
        return f"the mbarrier at {offset:#x}" + (f" of CTA {rank}" if rank else "")

    def has_completed(self, parity: int) -> bool:
        """Whether the phase of that parity is the one before the present."""
        return self.phase & 1 != parity

    def expect(self, count: int) -> None:
        self.bytes += count
        if abs(self.bytes) > _MAX_COUNT:
            raise EmulatorError(f"{self.name} counts {self.bytes} pending bytes; at most {_MAX_COUNT} are possible.")

    def arrive(self, count: int) -> None:
        if not 1 <= count <= self.pending:
            raise EmulatorError(
                f"{count} arrivals at {self.name}, whose present phase (number {self.phase}) waits for "
                f"{self.pending} of {self.expected}."
            )
        self.pending -= count
        self.try_complete()

    def pass_on(self, known: Array) -> None:
        self.gathering = np.maximum(self.gathering, known)

    def try_complete(self) -> None:
        if self.pending or self.bytes:
            return
        self.phase, self.pending = self.phase + 1, self.expected
        self.released = np.maximum(self.released, self.gathering)
        for cta, warp, reason in self.waiters:
            cta.cluster.polls = 0
            if cta.waits.get(warp) is reason:  # not woken by another one since
                cta.wake(np.array([warp]))
        self.waiters = []

    def describe(self, wanted: str) -> str:
        return (
            f"{self.name}, {wanted}: phase {self.phase} lacks {self.pending} of {self.expected} arrivals and "
            f"{self.bytes} bytes"
        )


def initialise(cta: Cta, address: int, count: int, lane: int) -> None:
    cluster, agent = cta.cluster, int(cta.agents[lane])
    if not 1 <= count <= _MAX_COUNT:
        raise EmulatorError(f"mbarrier.init with a count of {count}; 1 to {_MAX_COUNT} are possible.")
    if address % 8:
        raise EmulatorError(f"An mbarrier at {address:#x} is not aligned to 8 bytes.")
    span = cta.shared.span(address, 8, "mbarrier.init")
    cta.shared.place_mbarrier(span.start, agent)
    clocks = cluster.clocks
    empty = np.zeros(len(clocks.clock), np.int32)
    cluster.mbarriers[address] = Mbarrier(
        address, count, clocks.new_agent(), (agent, int(clocks.clock[agent])), empty, empty, count
    )


def invalidate(cta: Cta, address: int, lane: int) -> None:
    barrier = find(cta, address, lane)
    if barrier.address >> RANK_SHIFT != cta.rank:
        raise EmulatorError("mbarrier.inval works on the CTA's own shared memory only.")
    del cta.cluster.mbarriers[barrier.address]
    cta.cluster.clocks.free_agent(barrier.agent)
    span = cta.shared.span(address, 8, "mbarrier.inval")
    cta.shared.remove_mbarrier(span.start, int(cta.agents[lane]))


def find(cta: Cta, address: int, lane: int, local: bool = False) -> Mbarrier:
    """The mbarrier at a shared address, whose initialisation the lane's warp must have seen. `local`: in this CTA."""
    barrier = cta.cluster.mbarriers.get(address)
    rank = address >> RANK_SHIFT
    if barrier is None or (local and rank != cta.rank):
        raise EmulatorError(
            f"Lane {lane} uses an mbarrier at {address:#x}, where none is initialised"
            + (" in its own CTA." if local else ".")
        )
    if rank != cta.rank:
        cta.cluster.peer(rank)
    warp, clock = barrier.initialised
    if cta.shared.check and not cta.cluster.clocks.sees_init(cta.agents[lane], warp, clock):
        raise EmulatorError(
            f"Race on {barrier.name}: lane {lane} uses it, and warp {warp} initialised it with no barrier between."
        )
    return barrier


def arrive(cta: Cta, addresses: Array, counts: Array, mask: Array, relaxed: bool = False, drop: bool = False) -> Array:
    """Every lane of `mask` arrives; returns the state tokens: the number of the phase arrived at."""
    lanes = np.nonzero(mask)[0]
    state = np.zeros(cta.lanes, np.uint64)
    if not len(lanes):
        return state
    warps = np.unique(cta.agents[lanes])
    known = None if relaxed else dict(zip(map(int, warps), cta.cluster.clocks.known(warps)))
    for lane in map(int, lanes):
        barrier = find(cta, int(addresses[lane]), lane)
        state[lane] = barrier.phase
        if known is not None:
            barrier.pass_on(known[int(cta.agents[lane])])
        if drop:
            barrier.expected -= int(counts[lane])
        barrier.arrive(int(counts[lane]))
    if known is not None:
        cta.cluster.clocks.clock[warps] += 1
    return state


def expect(cta: Cta, addresses: Array, counts: Array, mask: Array) -> None:
    for lane in map(int, np.nonzero(mask)[0]):
        find(cta, int(addresses[lane]), lane).expect(int(counts[lane]))


def complete(cta: Cta, barrier: Mbarrier, count: int) -> None:
    """The agent of the mbarrier has performed copies of `count` bytes."""
    clocks, agent = cta.cluster.clocks, barrier.agent
    barrier.gathering = barrier.gathering.copy()
    barrier.gathering[agent] = clocks.clock[agent]
    clocks.clock[agent] += 1
    barrier.expect(-count)
    barrier.try_complete()


# -- waits
def _reached(barrier: Mbarrier, wanted: int, is_parity: bool) -> bool:
    return barrier.has_completed(wanted & 1) if is_parity else barrier.phase > wanted


def test(cta: Cta, addresses: Array, wanted: Array, mask: Array, is_parity: bool) -> Array:
    """Per lane, whether its phase is complete; its warp then sees what the arrivals passed on."""
    result = np.zeros(cta.lanes, bool)
    for lanes in _alike(addresses, wanted, np.nonzero(mask)[0]):
        barrier = find(cta, int(addresses[lanes[0]]), lanes[0], local=True)
        if _reached(barrier, int(wanted[lanes[0]]), is_parity):
            result[lanes] = True
            cta.cluster.clocks.acquire(np.unique(cta.agents[lanes]), barrier.released)
    return result


def wait_gate(cta: Cta, addresses: Array, wanted: Array, mask: Array, is_parity: bool) -> Array:
    """try_wait: parks warps of which no lane's phase is complete; the others go on."""
    going = np.zeros(cta.warps, bool)
    barriers: dict[int, list[tuple[Mbarrier, int]]] = {}
    for lanes in _alike(addresses, wanted, np.nonzero(mask)[0]):
        barrier, phase = find(cta, int(addresses[lanes[0]]), lanes[0], local=True), int(wanted[lanes[0]])
        for warp in map(int, np.unique(cta.warp_ids[lanes])):
            going[warp] |= _reached(barrier, phase, is_parity)
            barriers.setdefault(warp, []).append((barrier, phase))
    stuck = [warp for warp in barriers if not going[warp]]
    for warp in stuck:
        reason = _reason(barriers[warp], is_parity)
        cta.park(np.array([warp]), reason)
        for barrier, _ in barriers[warp]:
            barrier.waiters.append((cta, warp, reason))
    return cta.without(np.array(stuck)) if stuck else cta.active


def _reason(barriers: list[tuple[Mbarrier, int]], is_parity: bool) -> Callable[[], str]:
    what = "parity" if is_parity else "phase number"
    return lambda: "; ".join(barrier.describe(f"{what} {phase}") for barrier, phase in barriers)


def _alike(addresses: Array, wanted: Array, lanes: Array) -> list[Array]:
    """Lanes by barrier and wanted phase."""
    where, phases = addresses[lanes], wanted[lanes]
    if not len(lanes) or ((where == where[0]).all() and (phases == phases[0]).all()):
        return [lanes] if len(lanes) else []
    parts: dict[tuple[int, int], list[int]] = {}
    for lane, key in zip(lanes, zip(map(int, where), map(int, phases))):
        parts.setdefault(key, []).append(lane)
    return [np.array(part) for part in parts.values()]
