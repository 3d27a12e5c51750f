"""Every report of the simulator, each with a kernel that earns it, and the line that is named."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simulator_bugs as kernels

import tlxc
from tlxc.ir.core import Module, Op
from tlxc.ir.table import OPS
from tlxc.runtime import simulate as runtime
from tlxc.simulator import Program, checks, machine, program
from tlxc.simulator.ops import EFFECTS, FLOWS
from tlxc.simulator.reports import Report
from tlxc.simulator.schedule import SCHEDULES, Schedule
from tlxc.simulator.values import TILE_OPS
from tlxc.targets import get_target

SOURCE = inspect.getsource(kernels).splitlines()


def line(kernel: Any, mark: str) -> int:
    """Number of the line of a kernel that ends in `# mark`."""
    lines, first = inspect.getsourcelines(kernel.fn)
    (found,) = [first + i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}")]
    return found


def floats(n: int = 64) -> np.ndarray[Any, Any]:
    """n values at an address that TMA takes."""
    room = np.zeros(n + 64, np.float32)
    start = -room.ctypes.data % 256 // 4
    room[start : start + n] = np.arange(n)
    return room[start : start + n]


def block(array: np.ndarray[Any, Any], *shape: int) -> tlxc.TensorDescriptor:
    return tlxc.TensorDescriptor.from_tensor(array, list(shape or (64,)))


def report_of(run: Callable[[], Any], seed: int = 0) -> Report:
    with tlxc.simulate(seed=seed) as sim, pytest.raises(tlxc.SimulationError) as caught:
        run()
    assert sim.reports == [caught.value.report]  # type: ignore[attr-defined]
    assert str(sim.reports[0]) == str(caught.value)
    return sim.reports[0]


def handover(**options: Any) -> Callable[[], Any]:
    return lambda: kernels.clean_handover[1](floats(), block(floats()), 64, **options)


def pipeline(**options: Any) -> Callable[[], Any]:
    return lambda: kernels.pipeline[1](block(floats(64 * 6)), floats(64 * 6), 6, **options)


def named(a: int, b: int) -> Callable[[], Any]:
    return lambda: kernels.named[1](floats(), floats(), a, b)


def exchange() -> None:
    kernels.exchange[2](floats(128), floats(128), ctas_per_cga=(2, 1, 1))


def flagged(scope: str) -> Callable[[], Any]:
    return lambda: kernels.flagged[2](floats(), np.zeros(1, np.int32), floats(), scope)


def flagged_tasks() -> None:
    kernels.flagged_tasks[1](floats(), np.zeros(1, np.int32), floats(), "cta")


def one_sided() -> None:
    kernels.one_sided[2](floats(2), ctas_per_cga=(2, 1, 1))


def product() -> None:
    a, b, out = (block(np.ones((64, 64), np.float16), 64, 64) for _ in range(3))
    kernels.product[1](a, b, out)


# (launch, kernel, kind, marks of the lines that are named)
REPORTS: dict[str, tuple[Callable[[], Any], Any, str, tuple[str, ...]]] = {
    "no fence": (handover(FENCE=False), kernels.clean_handover, "missing-proxy-fence", ("fence",)),
    "no arrival": (handover(ARRIVE=False), kernels.clean_handover, "deadlock", ("deadlock",)),
    "unordered": (
        lambda: kernels.unordered_tasks[1](floats(), floats()), kernels.unordered_tasks, "race", ("here", "here too"),
    ),
    "too few bytes": (pipeline(BYTES=128), kernels.pipeline, "tx-bytes", ("expect", "load")),
    "too many bytes": (pipeline(BYTES=512), kernels.pipeline, "tx-bytes", ("expect", "load")),
    "count too large": (pipeline(COUNT=2), kernels.pipeline, "deadlock", ("empty", "release")),
    "no wait of the producer": (pipeline(EMPTY=False), kernels.pipeline, "phase-race", ("expect", "release")),
    "no wait of the consumer": (pipeline(FULL=False), kernels.pipeline, "race", ("load", "read")),
    "never released": (pipeline(RELEASE=False), kernels.pipeline, "deadlock", ("empty",)),
    "wrong phase": (pipeline(PHASE=1), kernels.pipeline, "missing-wait", ("read", "load")),
    "too many arrivals": (pipeline(ARRIVALS=2), kernels.pipeline, "arrive-count", ("release",)),
    "beyond the array": (
        lambda: kernels.beyond[1](floats(256), floats(256), 4), kernels.beyond, "out-of-bounds", ("here",),
    ),
    "never written": (lambda: kernels.unwritten[1](floats()), kernels.unwritten, "uninitialised", ("here",)),
    "slot": (lambda: kernels.wrong_slot[1](floats(), 2), kernels.wrong_slot, "bad-index", ("here",)),
    "not waited for": (
        lambda: kernels.unwaited[1](floats(), block(floats())), kernels.unwaited, "unwaited-async", ("here",),
    ),
    "odd offset": (
        lambda: kernels.odd_offset[1](block(floats(128)), floats(), 2), kernels.odd_offset, "tma-offset", ("here",),
    ),
    "short rows": (
        lambda: kernels.short_rows[1](floats(), floats(), 30), kernels.short_rows, "out-of-bounds", ("here",),
    ),
    "slot that nothing filled": (
        lambda: kernels.slot_to_fill[1](floats(), floats(), 0), kernels.slot_to_fill, "uninitialised", ("here",),
    ),
    "same place": (lambda: kernels.same_place[2](floats()), kernels.same_place, "race", ("here",)),
    "named count": (named(512, 512), kernels.named, "deadlock", ("other",)),
    "phase overrun": (lambda: kernels.overrun[1](floats()), kernels.overrun, "phase-overrun", ("here", "again")),
    "phase 2": (lambda: kernels.any_phase[1](2), kernels.any_phase, "bad-phase", ("here",)),
    "rank 5": (lambda: kernels.any_rank[2](5, ctas_per_cga=(2, 1, 1)), kernels.any_rank, "bad-rank", ("here",)),
    "size of a bulk copy": (lambda: kernels.bulk[1](floats(), floats(), 36), kernels.bulk, "bulk-size", ("here",)),
    "different counts": (named(256, 512), kernels.named, "named-count", ("one", "other")),
    "two copies at once": (
        lambda: kernels.twice[1](block(floats(128))), kernels.twice, "overwrite-in-flight", ("first", "second"),
    ),
    "negative store": (lambda: kernels.stored_at[1](block(floats()), -4), kernels.stored_at, "tma-offset", ("here",)),
    "load that nobody waits for": (
        lambda: kernels.never_read[1](block(floats())), kernels.never_read, "unwaited-async", ("here",),
    ),
    "release for the own CTA only": (flagged("cta"), kernels.flagged, "race", ("release", "acquire")),
    "slot filled while a store reads it": (
        lambda: kernels.refilled[1](floats(), floats(128), False), kernels.refilled, "overwrite-while-read",
        ("fill", "store"),
    ),
    "slot filled while a load reads it": (
        lambda: kernels.refilled_source[1](floats(128), floats(128), False), kernels.refilled_source,
        "overwrite-while-read", ("fill", "load"),
    ),
    "overwritten while it is read": (
        lambda: kernels.reused_too_early[1](floats(128), block(floats(128))), kernels.reused_too_early,
        "overwrite-while-read", ("write", "store"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_report(name: str) -> None:
    run, kernel, kind, marks = REPORTS[name]
    report = report_of(run)
    assert report.kind == kind, report
    assert {line(kernel, mark) for mark in marks} <= set(report.lines), report


def test_report_in_full() -> None:
    """Both sides with their lines, what is missing, what happened between."""
    report = str(report_of(handover(FENCE=False)))
    file = kernels.__file__
    store, copy = line(kernels.clean_handover, "fence") - 7, line(kernels.clean_handover, "fence")
    assert report == "\n".join([
        f"missing-proxy-fence: buf[0]: async read by task 1 (async_descriptor_store at line {copy}) is not ordered "
        f"after write by default task (local_store at line {store})",
        f"  {file}:{copy}:13",
        f"{copy:>5} | {SOURCE[copy - 1]}",
        "      |             ^" + "~" * 43,
        f"  {file}:{store}:13",
        f"{store:>5} | {SOURCE[store - 1]}",
        "      |             ^" + "~" * 53,
        "  a generic write is seen by TMA and wgmma only after fence_async_shared by the writer",
        f"  after the first access: barrier_arrive at line {store + 4} on full[0] phase 0; before the second: "
        f"barrier_wait at line {copy - 1} of full[0] saw phase 0",
        f"  full (arrive_count 1) has arrivals: barrier_arrive at line {store + 4}; waits: barrier_wait at line "
        f"{copy - 1}",
    ])  # fmt: skip


CLEAN = {
    "handover": handover(),
    "two stages": pipeline(),
    "one stage": pipeline(STAGES=1),
    "three stages": pipeline(STAGES=3),
    "two arrivals": pipeline(COUNT=2, ARRIVALS=2),
    "named": named(256, 256),
    "exchange": exchange,
    "product": product,
    "one-sided": one_sided,
    "flag": flagged("gpu"),
    "slot filled after the store has read": lambda: kernels.refilled[1](floats(), floats(128), True),
    "slot filled after the load": lambda: kernels.refilled_source[1](floats(128), floats(128), True),
    "slot handed over": lambda: kernels.handed_too_early[1](floats(), floats(), True),
    "flag between tasks": flagged_tasks,
}


@pytest.mark.parametrize("schedule", ["random", "round-robin", "adversarial"])
@pytest.mark.parametrize("name", CLEAN)
def test_clean(name: str, schedule: str) -> None:
    for seed in range(3):
        with tlxc.simulate(seed=seed, schedule=schedule) as sim:
            CLEAN[name]()
        assert not sim.reports


def test_equal_values_are_a_note() -> None:
    """Whoever stores last: the values are right."""
    x, out = floats(192), floats(192)
    with tlxc.simulate() as sim:
        kernels.halo[2](x, out, 0)
    (note,) = sim.notes
    assert not sim.reports and note.kind == "equal-values" and set(note.lines) == {line(kernels.halo, "here")}
    assert re.fullmatch(
        r"out: main of CTA \d \(tl.store at line \d+\) and main of CTA \d \(tl.store at line \d+\) store equal "
        "values in no order",
        note.text,
    )
    assert report_of(lambda: kernels.halo[2](floats(192), floats(192), 1)).kind == "race"


def test_equal_values_in_shared_memory() -> None:
    """The store is a note; the load by one task of what the other may just write is a race."""
    kinds = set()
    for seed in range(8):
        with tlxc.simulate(seed=seed) as sim:
            try:
                kernels.told_twice[1](floats())
            except tlxc.SimulationError:
                assert sim.reports[0].kind == "race"
        kinds |= {note.kind for note in sim.notes}
    assert kinds == {"equal-values"}


# ----------------------------------------------------------------------------------- without the compiler's own ops
def edited(run: Callable[[], Any], edit: Callable[[Module], None]) -> Report:
    """The report of a kernel whose IR was changed after all passes."""
    made: list[runtime.Launch] = []

    class Catch(runtime.Simulation):
        def run(self, launch: runtime.Launch, program: Program | None = None) -> None:
            made.append(launch)

    runtime._programs.clear()
    with Catch():
        run()
    (launch,) = made
    edit(launch.program.module)
    runtime._programs.clear()
    sim = runtime.Simulation()
    with pytest.raises(tlxc.SimulationError) as caught:
        sim.run(launch, Program(launch.program.module))
    assert get_target("sm_90") is sim.target
    return caught.value.report  # type: ignore[attr-defined, no-any-return]


def ops(module: Module, kind: str) -> list[Op]:
    return [op for op in module.walk() if op.kind == kind]


def without(kind: str, which: int = 0) -> Callable[[Module], None]:
    """Drops the `which`-th op of a kind at the top level."""

    def edit(module: Module) -> None:
        module.body.ops.remove(ops(module, kind)[which])

    return edit


def test_release_at_cluster_scope() -> None:
    """A remote store is seen by its reader only if the arrival releases for the cluster."""

    def edit(module: Module) -> None:
        for op in ops(module, "barrier_arrive"):
            assert op.attrs.pop("release")

    report = edited(exchange, edit)
    assert report.kind == "missing-cluster-fence"
    assert {line(kernels.exchange, "store"), line(kernels.exchange, "load")} <= set(report.lines)


@pytest.mark.parametrize("kind", ["fence_mbarrier_init", "cluster_barrier"])
def test_barriers_are_initialised_before_the_cluster_uses_them(kind: str) -> None:
    report = edited(exchange, without(kind))
    assert report.kind == "init-not-visible"
    assert line(kernels.exchange, "store") in report.lines or line(kernels.exchange, "arrive") in report.lines


def test_no_cta_exits_before_its_peers_are_done() -> None:
    report = edited(one_sided, without("cluster_barrier", -1))
    assert report.kind == "peer-exited"
    assert line(kernels.one_sided, "here") in report.lines


def test_pending_value() -> None:
    """What the compiler refuses in a kernel is also seen when it runs."""

    def edit(module: Module) -> None:
        ops(module, "async_dot_wait")[0].attrs["pendings"] = 1

    report = edited(product, edit)
    assert report.kind in ("pending-value", "overwrite-while-read")
    assert line(kernels.product, "dot") in report.lines


def test_proxy_fence_of_the_compiler() -> None:
    report = edited(product, without("fence_async_shared"))
    assert report.kind == "missing-proxy-fence"
    assert line(kernels.product, "overwrite") in report.lines


def test_slot_that_may_not_be_filled_yet() -> None:
    """A race where it is filled in time, else nothing is there."""
    for seed in range(4):
        report = report_of(lambda: kernels.handed_too_early[1](floats(), floats(), False), seed)
        assert report.kind in ("race", "uninitialised")
        assert line(kernels.handed_too_early, "take") in report.lines
        if report.kind == "race":
            assert line(kernels.handed_too_early, "fill") in report.lines


def test_rounds_of_a_named_barrier() -> None:
    """Which of the two it is depends on the schedule."""
    reports = [report_of(lambda: kernels.two_rounds[1](floats()), seed) for seed in range(4)]
    assert {report.kind for report in reports} <= {"named-race", "named-twice"}
    assert all(line(kernels.two_rounds, "here") in report.lines for report in reports)


def test_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TURNS", 50)
    flag = np.zeros(1, np.int32)
    assert report_of(lambda: kernels.spins[1](flag, floats())).kind == "livelock"


@pytest.mark.parametrize("name", SCHEDULES)
def test_nobody_starves(name: str) -> None:
    """Whoever is ready runs at some time, so that loops which wait for that end.  Engines are what has stages."""
    for seed in range(30):
        schedule = Schedule(name, seed)
        ready = [SimpleNamespace(), SimpleNamespace(), SimpleNamespace(), SimpleNamespace(stages=())]
        for item in ready:
            item.priority = schedule.priority(item)
        assert {schedule.pick(ready) for _ in range(2000)} == {0, 1, 2, 3}


# --------------------------------------------------------------------------------------------------- completeness
ROOT = Path(__file__).parent.parent


def test_every_op_has_a_function() -> None:
    """No op lands without one."""
    apart = {"yield", "task_copy"}  # the simulator runs every copy of a task from code of its own
    known = EFFECTS.keys() | FLOWS.keys() | TILE_OPS.keys() | program.NOTHING | apart
    assert known == OPS.keys()


def test_every_kind_of_report_is_explained_and_tested() -> None:
    folder = ROOT / "tlxc" / "simulator"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    kinds = set(re.findall(r'(?:fail|Report)\(\s*"([a-z-]+)"', text)) | set(checks.KINDS.values())
    kinds |= set(re.findall(r'kind = "(.*?)"', text)) | {"overwrite-in-flight", "overwrite-while-read"}
    page = (ROOT / "docs" / "checking.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert kinds == {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)}
    # What examples print, which test_docs runs.
    shown = "".join(re.findall(r"^```(?:text|console fails)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert kinds <= set(re.findall(r"^([a-z-]+): ", shown, re.MULTILINE))
    assert all(f'"{kind}"' in Path(__file__).read_text(encoding="utf-8") for kind in kinds)


# --------------------------------------------------------------------------------------------------- launches
def test_an_array_that_follows_is_another_one() -> None:
    """Elements beyond an array are out of bounds although the next argument lies there."""
    both = floats(128)
    report = report_of(lambda: kernels.beyond[1](both[:64], both[64:], 1))
    assert report.kind == "out-of-bounds"
    assert "accesses element 64 and 63 more of x, which has 64" in report.text


def test_misaligned_array() -> None:
    room = np.zeros(260, np.uint8)
    start = -room.ctypes.data % 16 + 2
    odd = room[start : start + 256].view(np.float32) if start + 256 <= 260 else room[2:258].view(np.float32)
    assert report_of(lambda: kernels.plain[1](odd, floats())).kind == "misaligned"


def test_environment(tmp_path: Path) -> None:
    """TLXC_SIMULATE=1: every launch."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import numpy as np, simulator_bugs as k\n"
    code += "x, out = np.ones(64, np.float32), np.zeros(64, np.float32); k.plain[1](x, out); assert (x == out).all()"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TLXC_SIMULATE": "1"}, cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_read_only_array() -> None:
    x = floats()
    x.flags.writeable = False
    assert report_of(lambda: kernels.same_place[1](x)).kind == "read-only"


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.arange(64, dtype=torch.float32), torch.zeros(64)
    with tlxc.simulate():
        kernels.clean_handover[1](x, tlxc.TensorDescriptor.from_tensor(out, [64]), 64)
    assert torch.equal(x, out)


def test_empty_grid_and_grid_function() -> None:
    out = floats()
    with tlxc.simulate():
        kernels.same_place[0](out)
        kernels.same_place[lambda arguments: (arguments["out"].size // 64,)](out)
    assert not out.any()


def test_unknown_schedule() -> None:
    with (
        pytest.raises(tlxc.TlxcError, match="may be one of random, round-robin, adversarial"),
        tlxc.simulate(schedule="fair"),
    ):
        kernels.same_place[1](floats())
