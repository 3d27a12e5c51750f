"""CTAs, their strands, and the scheduler that interleaves strands and engines.

A strand is one task copy (or the code outside of tasks): the compiler's own barriers, which are verified apart, make
the threads of a task one.  A machine runs clusters of CTAs that may wait for each other; clusters that cannot, run on
machines one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tlxc.ir.core import Op
from tlxc.targets import Target

from . import checks
from .agents import AsyncOp
from .barriers import MBarrier, Rendezvous, Waitable
from .cells import Cell
from .clocks import Clock, Record
from .control import run_code
from .deadlock import deadlock
from .findings import Findings
from .memory import SharedMemory
from .program import Code, Program, Step
from .reports import Report, SimulationError, fail
from .schedule import Schedule
from .shadow import SharedShadow

if TYPE_CHECKING:
    from .global_memory import GlobalMemory

TURNS = 200_000  # of while loops, after which nothing is expected to change


class Wait:
    """What a strand waits for: `object` to reach `wanted`."""

    __slots__ = ("kind", "op", "object", "wanted")

    def __init__(self, kind: str, op: Op, object: Any, wanted: int) -> None:
        self.kind, self.op, self.object, self.wanted = kind, op, object, wanted


class Strand:
    """One thread of control.  `number` in its machine; `clock`: what happens before its next op, `epoch` the number of
    its last, `accesses` a count; `step`: what it runs, or runs when it goes on.  `products`, `bulk`, `copies`: groups
    of wgmma, bulk stores and cp.async under way, oldest first."""

    def __init__(self, machine: Machine, cta: Cta, number: int, name: str, warps: int) -> None:
        self.machine, self.cta, self.number, self.warps = machine, cta, number, warps
        self.first_warp = 0
        self.name = name
        self.epoch = 0
        self.accesses = 0
        self.clock = Clock.zero(machine.size)
        self.env: list[Any] = []
        self.flow: Iterator[Waitable | None] = iter(())
        self.step: Step | None = None
        self.done = False
        self.finish = Waitable()
        self.engines = Waitable()  # something of its own went on
        self.blocked: Wait | None = None
        self.products: list[AsyncOp] = []
        self.lane: deque[AsyncOp] = deque()
        self.bulk: list[AsyncOp] = []
        self.copies: list[list[AsyncOp]] = []
        self.open_copies: list[AsyncOp] = []
        self.seen: Clock | None = None  # what relaxed atomics read, until a fence
        self.fenced: Clock | None = None  # what a fence at device scope released
        self.released: deque[tuple[int, str]] = deque(maxlen=32)  # for explanations only
        self.acquired: deque[str] = deque(maxlen=8)
        self.priority = 0.0

    def start(self, parent: Strand, code: Code, name: str, warps: int, first_warp: int) -> None:
        self.rename(name, warps)
        self.first_warp = first_warp
        self.env = list(parent.env)
        self.clock = parent.clock.copy()
        self.clock.g[:2, self.number] = self.epoch
        self.flow = run_code(self, code)
        self.done, self.blocked = False, None
        self.machine.enter(self)

    def rename(self, name: str, warps: int) -> None:
        clustered = self.machine.program.module.cluster != (1, 1, 1) or self.machine.many
        self.name = f"{name} of CTA {self.cta.number}" if clustered else name
        self.warps = warps

    @property
    def task(self) -> int:
        """Number of its region; 0 for the default task and outside of tasks."""
        return self.number - self.cta.first_number

    def block(self, kind: str, op: Op, object: Any, wanted: int = 0) -> None:
        """For the deadlock table; `blocked` is None again when the strand goes on."""
        self.blocked = Wait(kind, op, object, wanted)


class Cta:
    """`number`: linear index in the grid.  `initialised`: epoch of its first strand when its barriers were."""

    def __init__(
        self, machine: Machine, cluster: list[Cta], rank: int, position: tuple[int, int, int], first: int
    ) -> None:
        self.machine, self.cluster, self.rank, self.position = machine, cluster, rank, position
        x, y, z = machine.grid
        self.number = position[0] + x * (position[1] + y * position[2])
        self.first_number = first
        self.memory = SharedMemory(machine.program.shared)
        self.shadow = SharedShadow(machine.program.cuts)
        self.barriers: dict[int, MBarrier] = {}
        self.named: dict[int, Rendezvous] = {}
        self.maps: dict[int, Any] = {}  # descriptors that the kernel made, by the place of their slot
        self.map_records: dict[int, list[Record]] = {}  # accesses to them
        self.strands: list[Strand | None] = [None] * machine.program.regions
        self.active = 1
        self.initialised = 0
        self.stored = 0  # accesses of st.async that wrote its memory, as bits
        self.exited = False
        self.reached: list[tuple[Strand, int, int | None, Op]] = []

    def label(self, name: str) -> str:
        clustered = len(self.cluster) > 1
        return f"{name} of CTA {self.number}" if clustered else name

    def strand(self, index: int) -> Strand:
        found = self.strands[index]
        if found is None:
            number = self.first_number + index
            found = self.strands[index] = self.machine.strand_type(self.machine, self, number, "", 0)
            self.machine.strands[number] = found
        return found


class Machine:
    """`domain` numbers the machines of a launch.  `deferred`: a report that another may explain better."""

    strand_type: type[Strand] = Strand

    def __init__(
        self, program: Program, target: Target, memory: GlobalMemory, grid: tuple[int, int, int],
        arguments: list[Any], domain: int, clusters: int, schedule: Schedule, many: bool,
        findings: Findings,
    ) -> None:  # fmt: skip
        self.program, self.target, self.memory, self.grid = program, target, memory, grid
        self.arguments, self.domain, self.schedule, self.many = arguments, domain, schedule, many
        cx, cy, cz = program.module.cluster
        self.per_cluster = cx * cy * cz
        self.size = clusters * self.per_cluster * program.regions
        self.strands: dict[int, Strand] = {}
        self.ready: list[Any] = []
        self.cluster_barriers: dict[int, Rendezvous] = {}
        self.cells: dict[int, Cell] = {}  # words of global memory that atomics touched
        self.accesses = 0
        self.vehicles: dict[int, str] = {}  # access -> what announces its completion
        self.live: dict[int, tuple[Cta, Op]] = {}  # asynchronous writes into shared memory
        self.deferred: SimulationError | None = None
        self.turns = 0
        self.entered = 0
        self.findings = findings

    # -- accesses

    def number(self) -> int:
        """Of an asynchronous access."""
        self.accesses += 1
        return self.accesses - 1

    def note_conflict(self, old: Record, new: Record) -> None:
        self.findings.conflicts.add((old.name, old.instance, new.name, new.instance))

    def defer(self, error: SimulationError) -> None:
        """Keeps a report back: a later one may name both sides."""
        if self.deferred is None:
            self.deferred = error

    def protocol(self, bar: MBarrier, strand: Strand | None = None) -> list[str]:
        """Lines on a barrier; with a strand also what that does not wait for."""
        return self.program.protocol.explain(bar, None if strand is None else strand.task)

    def turn(self) -> None:
        self.turns += 1
        if self.turns > TURNS:
            raise fail("livelock", f"while loops have made {TURNS} turns and nothing ends them")

    # -- running

    def add_cluster(self, first: tuple[int, int, int]) -> None:
        """Starts the CTAs of the cluster whose first has this position."""
        cx, cy, cz = self.program.module.cluster
        cluster: list[Cta] = []
        for rank in range(self.per_cluster):
            x, y, z = rank % cx, rank // cx % cy, rank // (cx * cy)
            base = (self.entered * self.per_cluster + rank) * self.program.regions
            cluster.append(Cta(self, cluster, rank, (first[0] + x, first[1] + y, first[2] + z), base))
        self.cluster_barriers[id(cluster)] = Rendezvous(self.size)
        self.entered += 1
        for cta in cluster:
            main = cta.strand(0)
            main.rename("main", self.program.module.num_warps)
            main.env = list(self.program.template)
            for slot, value in zip(self.program.params, self.arguments):
                main.env[slot] = value
            main.flow = run_code(main, self.program.code)
            self.enter(main)

    def enter(self, item: Any) -> None:
        item.priority = self.schedule.priority(item)
        self.ready.append(item)

    def wake(self, what: Waitable) -> None:
        if what.waiters:
            self.ready.extend(what.waiters)
            what.waiters.clear()

    def submit(self, work: AsyncOp, in_order: bool = False) -> None:
        """Hands work to the engines; `in_order`: after the earlier work of its strand."""
        work.priority = self.schedule.priority(work)
        if in_order:
            work.lane = True
            work.strand.lane.append(work)
            if len(work.strand.lane) > 1:
                return
        self.ready.append(work)

    def run(self) -> None:
        """Until nothing is ready any more: all is done, or nothing can go on."""
        ready, pick, alone = self.ready, self.schedule.pick, self.schedule.alone
        while ready:
            i = pick(ready) if len(ready) > 1 or alone else 0
            item = ready[i]
            if item.__class__ is Strand:
                self._step(item, i)
            else:
                self._advance(item, i)
        self.settle()

    def settle(self) -> None:
        """Reports what is left when nothing is ready any more."""
        if any(not s.done for s in self.strands.values()):
            raise self.deferred or SimulationError(self._stuck())
        if self.deferred is not None:
            raise self.deferred

    def _stuck(self) -> Report:
        return deadlock([s for s in self.strands.values() if not s.done], self.program.protocol)

    def _take(self, i: int) -> None:
        last = self.ready.pop()
        if i < len(self.ready):
            self.ready[i] = last

    def _step(self, strand: Strand, i: int) -> None:
        """Runs a strand to its next op or wait."""
        try:
            what = next(strand.flow)
        except StopIteration:
            self._take(i)
            self._finish(strand)
            return
        if what is not None:
            self._take(i)
            what.waiters.append(strand)

    def _advance(self, work: AsyncOp, i: int) -> None:
        work.advance()
        if work.finished:
            self._take(i)
            if work.lane:
                lane = work.strand.lane
                lane.popleft()
                if lane:
                    self.ready.append(lane[0])
        self.wake(work.strand.engines)

    def _finish(self, strand: Strand) -> None:
        strand.done = True
        checks.unwaited(strand)
        self.wake(strand.finish)
        cta = strand.cta
        if strand.number == cta.first_number:
            cta.exited = True
            checks.cta_exit(cta, strand.clock)
            self.findings.ended()
