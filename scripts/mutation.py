"""The mutation score of the checker: every weakening of the synchronisation of the kernels in tests/kernels.

    python scripts/mutation.py [--only NAME] [--every N] [--verbose]

A mutant is the IR of a kernel after all passes with one change: an op dropped (everywhere, or only its first or last
instance), moved one later, given another phase, count, number of bytes, stage, rank or scope.  What the compiler put in
(proxy fences, cluster barriers, releases) is weakened too.  It counts as reported if a run with any trip count raises a
report; equivalent if all runs are clean and have the conflicts of the original, or are clean where no branch depends on
the schedule, so that phase stability proves all schedules.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the tiles are small, and threads of BLAS wait for one another
import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from kernels import Call, Sample, samples  # noqa: E402

from tlxc.ir.core import Module, Op, Region, clone_op  # noqa: E402
from tlxc.ir.types import Barrier, Buffer, Scalar, int32  # noqa: E402
from tlxc.runtime import simulate as runtime  # noqa: E402
from tlxc.simulator import Program, Report, SimulationError  # noqa: E402
from tlxc.simulator.ops.barrier import barrier_at, number  # noqa: E402
from tlxc.simulator.program import EFFECT, Step, alloc_of, allocation_names  # noqa: E402

SCHEDULES = (("random", 0), ("adversarial", 1), ("adversarial", 2), ("round-robin", 3))
DROPPED = {
    "barrier_wait": "drop wait", "barrier_arrive": "drop arrive, expect", "barrier_expect": "drop arrive, expect",
    "fence_async_shared": "drop fence, cluster barrier", "cluster_barrier": "drop fence, cluster barrier",
    "fence_mbarrier_init": "drop fence, cluster barrier", "tma_store_wait": "drop group wait, commit",
    "async_dot_wait": "drop group wait, commit", "async_load_wait": "drop group wait, commit",
    "async_load_commit": "drop group wait, commit", "named_barrier_wait": "drop named barrier",
    "named_barrier_arrive": "drop named barrier",
}  # fmt: skip
COUNTED_BYTES = 16
# What fences and waits without a barrier act on.
_STORES = ("local_store", "local_scatter", "remote_store")
_REMOTE = ("remote_store", "async_remote_store", "async_remote_copy", "barrier_arrive", "tma_load")
GUARDED = {
    "fence_async_shared": _STORES, "cluster_barrier": _REMOTE, "fence_mbarrier_init": _REMOTE,
    "tma_store_wait": ("tma_store", "bulk_store"), "async_dot_wait": ("async_dot",),
    "async_load_wait": ("async_load",), "async_load_commit": ("async_load",),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`change` edits the op with this number of a copy of the module; `skip`: the instance that is left out instead."""

    kind: str
    name: str
    op: int
    change: Callable[[Module, Op], None] | None = None
    skip: str = ""


# ------------------------------------------------------------------------------------------------ changes of the IR
def parent(module: Module, op: Op) -> Region:
    """The region that an op stands in."""
    for region in regions(module.body):
        if any(o is op for o in region.ops):
            return region
    raise AssertionError(op)


def regions(region: Region) -> Iterator[Region]:
    yield region
    for op in region.ops:
        for inner in op.regions:
            yield from regions(inner)


def drop(module: Module, op: Op) -> None:
    forward(module, op)
    region = parent(module, op)
    region.ops = [o for o in region.ops if o is not op]


def forward(module: Module, op: Op) -> None:
    """What an op hands through goes on without it."""
    mapping = dict(zip(op.results, op.inputs)) if op.kind == "async_dot_wait" else {}
    for other in module.walk():
        other.operands = [mapping.get(v, v) if v is not None else None for v in other.operands]


def later(module: Module, op: Op) -> None:
    """Behind the next op that does something."""
    region = parent(module, op)
    i = next(j for j, o in enumerate(region.ops) if o is op)
    j = next(k for k in range(i + 1, len(region.ops)) if acts(region.ops[k]))
    region.ops.insert(j, region.ops.pop(i))


def acts(op: Op) -> bool:
    from tlxc.ir.table import OPS

    return "pure" not in OPS[op.kind].traits and op.kind not in ("barrier", "yield", "prefetch_descriptor")


def can_move(module: Module, op: Op) -> bool:
    region = parent(module, op)
    i = next(j for j, o in enumerate(region.ops) if o is op)
    return not op.results and any(acts(o) for o in region.ops[i + 1 :])


def attribute(name: str, rule: Callable[[Any], Any]) -> Callable[[Module, Op], None]:
    def change(module: Module, op: Op) -> None:
        op.attrs[name] = rule(op.attrs[name])

    return change


def operand(position: int, value: int | None) -> Callable[[Module, Op], None]:
    """A constant in place of an operand, or none."""

    def change(module: Module, op: Op) -> None:
        op.operands[position] = None if value is None else constant(module, op, value)

    return change


def constant(module: Module, op: Op, value: int) -> Any:
    made = Op("constant", (), (Scalar(int32),), {"value": value}, None, op.loc)
    ops = parent(module, op).ops
    ops.insert(next(i for i, o in enumerate(ops) if o is op), made)
    return made.result


def computed(position: int, kind: str, value: int, modulus: int = 0) -> Callable[[Module, Op], None]:
    """`operand kind value`, modulo `modulus` where given."""

    def change(module: Module, op: Op) -> None:
        x = op.operands[position]
        for k, n in ((kind, value), *([("rem", modulus)] if modulus else [])):
            made = Op(k, (x, constant(module, op, n)), (Scalar(int32),), {}, None, op.loc)
            ops = parent(module, op).ops
            ops.insert(next(i for i, o in enumerate(ops) if o is op), made)
            x = made.result
        op.operands[position] = x

    return change


def without_release(module: Module, op: Op) -> None:
    del op.attrs["release"]


# ------------------------------------------------------------------------------------------------ the list of mutants
def mutants(module: Module) -> Iterator[Mutant]:
    users = collections.defaultdict(list)
    for op in module.walk():
        for v in op.inputs:
            users[v].append(op)
    for i, op in enumerate(module.walk()):
        if op.kind in DROPPED:
            yield Mutant(DROPPED[op.kind], f"drop {op.kind}", i, drop)
            for which in ("first", "last"):
                yield Mutant("drop only first or last instance", f"drop {which} {op.kind}", i, skip=which)
            if op.kind not in ("barrier_arrive", "barrier_expect") and can_move(module, op):
                yield Mutant("one op later", f"{op.kind} later", i, later)
        for kind, name, change in changes(op, users):
            yield Mutant(kind, name, i, change)


def changes(op: Op, users: Any) -> Iterator[tuple[str, str, Callable[[Module, Op], None]]]:
    a = op.attrs
    if op.kind == "barrier_wait":
        yield "flip or freeze phase", "flip phase", computed(1, "xor", 1)
        yield "flip or freeze phase", "phase 0", operand(1, 0)
        yield "flip or freeze phase", "phase 1", operand(1, 1)
    if op.kind == "barrier_arrive":
        yield "arrive count, rank, multicast", "count + 1", attribute("count", lambda n: n + 1)
        if op.operands[2] is not None:
            yield "arrive count, rank, multicast", "local", operand(2, None)
        if a.get("release"):
            yield "scope", "no release", without_release
    if op.kind == "alloc_barriers":
        yield "arrive count, rank, multicast", "init count + 1", attribute("arrive_count", lambda n: n + 1)
        if a["arrive_count"] > 1:
            yield "arrive count, rank, multicast", "init count - 1", attribute("arrive_count", lambda n: n - 1)
    if op.kind == "barrier_expect":
        for name, rule in (("bytes / 2", lambda n: n // 2), ("bytes * 2", lambda n: n * 2),
                           ("bytes - 16", lambda n: n - COUNTED_BYTES)):  # fmt: skip
            yield "expected bytes", name, attribute("bytes", rule)
    if op.kind == "tma_load" and op.operands[4] is not None:
        yield "arrive count, rank, multicast", "self only", operand(4, None)
    if op.kind in ("barrier_view", "local_view"):
        t = op.inputs[0].type
        assert isinstance(t, (Barrier, Buffer))
        if t.count > 1:
            yield "stage index", f"{op.kind} + 1", computed(1, "add", 1, t.count)
            yield "stage index", f"{op.kind} 0", operand(1, 0)
    if op.kind in ("tma_store_wait", "async_dot_wait", "async_load_wait"):
        yield "pendings + 1", op.kind, attribute("pendings", lambda n: n + 1)
    if op.kind == "tma_store_wait" and not a["read"]:
        yield "scope", "read only", attribute("read", lambda _: True)
    if op.kind in ("named_barrier_wait", "named_barrier_arrive"):
        yield "named id, count", "id + 1", computed(0, "add", 1)
        yield "named id, count", "count + 32", attribute("threads", lambda n: n + 32)
        yield "named id, count", "count - 32", attribute("threads", lambda n: n - 32)
    if op.kind in ("remote_store", "async_remote_store", "async_remote_copy"):
        yield "arrive count, rank, multicast", f"{op.kind} to rank 0", operand(2, 0)
    if op.kind == "atomic_rmw" and a["sem"] != "relaxed":
        yield "scope", "relaxed", attribute("sem", lambda _: "relaxed")
    if op.kind == "atomic_rmw" and a["scope"] != "cta":
        yield "scope", "cta", attribute("scope", lambda _: "cta")


def mutated(module: Module, mutant: Mutant) -> tuple[Module, Op]:
    """A copy with the change, and the op that stands for the mutated one."""
    mapping: dict[Any, Any] = {}
    copy = dataclasses.replace(module, body=Region(), attrs=dict(module.attrs))
    copy.body.ops = [clone_op(op, mapping) for op in module.body.ops]
    op = list(copy.walk())[mutant.op]
    if mutant.change is not None:
        mutant.change(copy, op)
    return copy, op


# ------------------------------------------------------------------------------------------------ running them
class Skipper:
    """Leaves out one instance of a step in each strand.  `counts`: how often each strand comes there, by name."""

    def __init__(self, step: Step, which: str, counts: dict[str, int]) -> None:
        self.fn, self.kind, self.which, self.counts = step.fn, step.op.kind, which, counts
        self.seen: collections.Counter[str] = collections.Counter()
        step.fn = self.effect if step.mode == EFFECT else self.flow

    def here(self, strand: Any, values: tuple[Any, ...]) -> bool:
        """Whether this is the instance.  A wait that falls through, for no phase was completed, is none."""
        if self.kind == "barrier_wait" and barrier_at(strand.cta, values[0]).phase == 0 and number(values[1]) == 1:
            return False
        n = self.seen[strand.name]
        self.seen[strand.name] += 1
        return n == {"first": 0, "last": self.counts.get(strand.name, 0) - 1, "none": -1}[self.which]

    def effect(self, strand: Any, step: Step, *values: Any) -> Any:
        return None if self.here(strand, values) else self.fn(strand, step, *values)

    def flow(self, strand: Any, step: Step, *values: Any) -> Any:
        if self.here(strand, values):
            return values[0] if len(step.outs) == 1 and values else list(values)
        return (yield from self.fn(strand, step, *values))


def steps(program: Program) -> Iterator[Step]:
    def of(code: Any) -> Iterator[Step]:
        for step in code.steps:
            yield step
            for inner in step.codes:
                yield from of(inner)

    return of(program.code)


class Subject:
    """A kernel with a trip count: its launch, and what the original does."""

    def __init__(self, sample: Sample, trips: int) -> None:
        self.sample, self.trips = sample, trips
        self.module = self.launch(sample.make(trips)).program.module
        self.graphs = {s: self.run(self.module, s)[1] for s in SCHEDULES}

    def launch(self, call: Call) -> runtime.Launch:
        caught: list[runtime.Launch] = []

        class Catch(runtime.Simulation):
            def run(self, launch: runtime.Launch, program: Program | None = None) -> None:
                caught.append(launch)

        with Catch():
            call.run()
        return caught[0]

    def run(
        self, module: Module, schedule: tuple[str, int], edit: Callable[[Program], None] = lambda program: None
    ) -> tuple[Report | None, frozenset[Any], bool]:
        """(report, conflicts, whether the values are right)"""
        call = self.sample.make(self.trips)
        launch = self.launch(call)
        sim = runtime.Simulation(schedule[1], schedule[0])
        program = Program(module)
        edit(program)
        try:
            sim.run(launch, program)
        except SimulationError as error:
            return error.report, frozenset(sim.findings.conflicts), False
        right = bool(np.array_equal(call.out.astype(np.float64), call.wanted.astype(np.float64)))
        return None, frozenset(sim.findings.conflicts), right

    def counts(self, op: int, schedule: tuple[str, int]) -> dict[str, int]:
        """How often each strand comes to an op."""
        found: list[Skipper] = []
        wanted = list(self.module.walk())[op]

        def edit(program: Program) -> None:
            found.extend(Skipper(step, "none", {}) for step in steps(program) if step.op is wanted)

        self.run(self.module, schedule, edit)
        return dict(found[0].seen)


@dataclasses.dataclass
class Verdict:
    """reported, wrong value, same graph, all schedules, unproven"""

    outcome: str
    report: Report | None = None
    place: str = ""  # statement, object or nothing, where reported


def judge(subjects: list[Subject], mutant: Mutant) -> Verdict:
    same = right_always = True
    for schedule in SCHEDULES:
        for subject in subjects:
            module, op = mutated(subject.module, mutant)

            def edit(program: Program, subject: Subject = subject, op: Op = op, schedule: Any = schedule) -> None:
                if mutant.skip:
                    counts = subject.counts(mutant.op, schedule) if mutant.skip == "last" else {}
                    for step in steps(program):
                        if step.op is op:
                            Skipper(step, mutant.skip, counts)

            report, graph, right = subject.run(module, schedule, edit)
            if report is not None:
                return Verdict("reported", report, place_of(op, report, module))
            right_always &= right
            same &= graph == subject.graphs[schedule]
    if not right_always:
        return Verdict("wrong value")
    if same:
        return Verdict("same graph")
    return Verdict("unproven" if Program(subjects[0].module).concurrent else "all schedules")


def _lines(ops: Iterator[Op]) -> set[int]:
    return {op.loc.line for op in ops if op.loc is not None}


def place_of(op: Op, report: Report, module: Module) -> str:
    """What the report names of a mutant: its statement, an object that it acts on, or nothing of it."""
    own = {at.line for loc in [op.loc] if loc is not None for at in (loc, *loc.callers)}
    if own & set(report.lines):
        return "statement"
    if op.kind in GUARDED and _lines(o for o in module.walk() if o.kind in GUARDED[op.kind]) & set(report.lines):
        return "object"
    if op.kind.startswith("named_barrier"):
        return "object" if "named barrier" in str(report) else "elsewhere"
    known = allocation_names(module)
    names = {known[made] for v in (*op.inputs, *op.results) if (made := alloc_of(v)) in known}
    text = str(report)
    return "object" if any(f"{name}[" in text or f"{name} " in text for name in names) else "elsewhere"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th mutant")
    parser.add_argument("--verbose", action="store_true", help="list the mutants that are not reported")
    options = parser.parse_args()
    start = time.time()
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for sample in samples():
        if options.only not in sample.name:
            continue
        subjects = [Subject(sample, trips) for trips in sample.trips]
        for i, mutant in enumerate(mutants(subjects[-1].module)):
            if i % options.every:
                continue
            try:
                verdict = judge(subjects, mutant)
            except Exception:
                print(mutant, list(subjects[-1].module.walk())[mutant.op].loc)
                raise
            table[mutant.kind].update(["n", verdict.outcome, verdict.place])
            if options.verbose and (verdict.outcome != "reported" or verdict.place == "elsewhere"):
                op = list(subjects[-1].module.walk())[mutant.op]
                kind = verdict.report.kind if verdict.report else ""
                print(f"{verdict.outcome:14} {kind:20} {sample.name}: {mutant.name} {op.loc}")
    return show(table, time.time() - start)


COLUMNS = (
    "n", "reported", "statement", "object", "elsewhere", "wrong value", "same graph", "all schedules", "unproven",
)  # fmt: skip


def show(table: dict[str, collections.Counter[str]], seconds: float) -> int:
    total: collections.Counter[str] = collections.Counter()
    print(f"{'class':34}" + "".join(f"{c:>14}" for c in COLUMNS))
    for kind in sorted(table):
        total += table[kind]
        print(f"{kind:34}" + "".join(f"{table[kind][c]:>14}" for c in COLUMNS))
    print(f"{'all':34}" + "".join(f"{total[c]:>14}" for c in COLUMNS))
    equivalent = total["same graph"] + total["all schedules"]
    live, found = total["n"] - equivalent, total["reported"]
    if not live:
        return 1
    print(
        f"score {100 * found / live:.1f} % of {live}; equivalent {100 * equivalent / total['n']:.1f} % of "
        f"{total['n']}; names the statement {100 * total['statement'] / found:.1f} %, it or its object "
        f"{100 * (total['statement'] + total['object']) / found:.1f} %; {seconds:.0f} s"
    )
    return 0 if found >= 0.99 * live else 1


if __name__ == "__main__":
    sys.exit(main())
