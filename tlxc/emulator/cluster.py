"""The CTAs of one cluster, alive together: whose turn it is, what lands when, and the report when nothing can go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tlxc.emulator.clocks import Clocks
from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.machine import Cta, Program
from tlxc.emulator.mbarrier import Mbarrier
from tlxc.emulator.memory import GlobalMemory
from tlxc.emulator.shared import SharedMemory
from tlxc.emulator.values import Array, LaneValue

_MAX_BLOCKS = 20_000_000
_BUDGET = 512  # blocks of one CTA before the next has its turn
_MAX_POLLS = 20_000  # tests of mbarriers that fail with nothing else happening


@dataclass
class Copy:
    """An asynchronous copy under way: `land` performs it. `into` is the CTA whose shared memory it writes or reads."""

    land: Callable[[], None]
    into: int
    what: str


class ClusterBarrier:
    """barrier.cluster: threads that have arrived, what they pass on, and the phase of each warp's last arrival."""

    def __init__(self, warps: int, agents: int) -> None:
        self.arrived, self.phase = 0, 0
        self.gathering = np.zeros(agents, np.int32)
        self.released = np.zeros(agents, np.int32)
        self.gathering_inits = np.zeros(agents, np.int32)
        self.released_inits = np.zeros(agents, np.int32)
        self.arrival = np.full(warps, -1)
        self.parked: list[tuple[Cta, int]] = []


class Cluster:
    """`random`, from the seed of a launch, makes the schedule and the landing of copies random; without it copies land
    when nothing else can run, in the order of their issue."""

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        grid: tuple[int, int, int],
        shape: tuple[int, int, int],
        origin: tuple[int, int, int],
        seed: int | None,
    ) -> None:
        self.program, self.memory, self.grid, self.shape, self.origin = program, memory, grid, shape, origin
        self.random = None if seed is None else np.random.default_rng([seed, *origin])
        self.size = shape[0] * shape[1] * shape[2]
        warps = self.size * program.lanes // program.warp_size
        self.clocks = Clocks(warps)
        self.barrier = ClusterBarrier(warps, len(self.clocks.clock))
        self.alive = self.size * program.lanes
        self.ctas: list[Cta] = []
        self.mbarriers: dict[int, Mbarrier] = {}
        self.under_way: list[Copy] = []
        self.polls = 0

    def add_cta(self, registers: list[LaneValue | None], shared_bytes: int, check: bool) -> None:
        """The CTA of the next rank."""
        rank, (x, y, _) = len(self.ctas), self.shape
        place = (rank % x, rank // x % y, rank // (x * y))
        ctaid = (self.origin[0] + place[0], self.origin[1] + place[1], self.origin[2] + place[2])
        shared = SharedMemory(shared_bytes, self.program.shared_base, self.clocks, rank, check)
        self.ctas.append(Cta(self.program, registers, self.memory, shared, self, ctaid, rank))

    def peer(self, rank: int) -> Cta:
        """A CTA whose shared memory is accessed."""
        if rank >= self.size:
            raise EmulatorError(f"A shared::cluster address names CTA {rank} of a cluster of {self.size}.")
        cta = self.ctas[rank]
        if cta.has_ended:
            raise EmulatorError(
                f"The shared memory of CTA {rank} of the cluster is accessed after that CTA has ended; keep it alive "
                "with barrier.cluster."
            )
        return cta

    # -- the schedule
    def run(self) -> None:
        blocks = 0
        while blocks < _MAX_BLOCKS:
            ran = sum(cta.advance(self._budget()) for cta in self.ctas)
            blocks += ran
            if self._land_one():
                continue
            if not ran:
                self._end()
                return
        raise EmulatorError(f"The CTA did not end within {_MAX_BLOCKS} basic blocks.")

    def _budget(self) -> int:
        return _BUDGET if self.random is None else int(self.random.integers(1, 16))

    def _land_one(self) -> bool:
        if not self.under_way:
            return False
        at = 0 if self.random is None else int(self.random.integers(len(self.under_way)))
        copy = self.under_way.pop(at)
        if self.ctas[copy.into].has_ended:
            raise EmulatorError(f"{copy.what} is under way when its CTA ends; wait for its mbarrier.")
        self.polls = 0
        copy.land()
        return True

    def polled(self) -> None:
        """A test of an mbarrier has failed, and its thread goes on."""
        self.polls += 1
        if self.polls > _MAX_POLLS:
            raise EmulatorError(f"mbarrier.test_wait has failed {_MAX_POLLS} times with nothing happening between.")

    def _end(self) -> None:
        waiting = [(cta.rank, line) for cta in self.ctas for line in cta.waiting()]
        if waiting:
            lines = [f"  {f'CTA {rank} of the cluster, ' if self.size > 1 else ''}{line}" for rank, line in waiting]
            raise EmulatorError("Deadlock: no warp can go on.\n" + "\n".join(lines))
        for cta in self.ctas:
            for groups in cta.groups.values():
                groups.finish()

    # -- barrier.cluster counts the threads that have not ended
    def lanes_left(self, count: int) -> None:
        self.alive -= count
        self.complete_barrier()

    def complete_barrier(self) -> None:
        barrier = self.barrier
        if not barrier.arrived or barrier.arrived < self.alive:
            return
        barrier.arrived, barrier.phase = 0, barrier.phase + 1
        barrier.released = np.maximum(barrier.released, barrier.gathering)
        barrier.released_inits = np.maximum(barrier.released_inits, barrier.gathering_inits)
        for cta, warp in barrier.parked:
            cta.wake(np.array([warp]))
        barrier.parked = []


def cluster_arrive(cta: Cta, warps: Array, lanes: int, relaxed: bool) -> None:
    """`warps` are numbers within the CTA."""
    cluster, agents = cta.cluster, warps + cta.first_warp
    barrier = cluster.barrier
    twice = barrier.arrival[agents] == barrier.phase
    if twice.any():
        raise EmulatorError(f"Warp {warps[twice][0]} arrives at the cluster's barrier again without a wait between.")
    barrier.arrival[agents] = barrier.phase
    barrier.arrived += lanes
    passed_inits = cluster.clocks.init_fenced[agents].max(axis=0)
    barrier.gathering_inits = np.maximum(barrier.gathering_inits, passed_inits)
    if not relaxed:
        barrier.gathering = np.maximum(barrier.gathering, cluster.clocks.release(agents))
    cluster.complete_barrier()


def cluster_wait_gate(cta: Cta, warps: Array) -> Array:
    """The active lanes of warps whose phase is complete."""
    barrier, agents = cta.cluster.barrier, warps + cta.first_warp
    if (barrier.arrival[agents] < 0).any():
        raise EmulatorError("barrier.cluster.wait is executed by a warp that has not arrived.")
    late = warps[barrier.arrival[agents] == barrier.phase]
    ready = agents[barrier.arrival[agents] < barrier.phase]
    cta.cluster.clocks.acquire(ready, barrier.released)
    cta.cluster.clocks.acquire_inits(ready, barrier.released_inits)
    if not len(late):
        return cta.active
    cluster = cta.cluster
    cta.park(late, lambda: f"barrier.cluster: {cluster.alive - barrier.arrived} threads have not arrived")
    barrier.parked += [(cta, int(warp)) for warp in late]
    return cta.without(late)
