"""The timeline: the time model, its record, the forms it is written in, `tlxc trace`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result
from kernels import Call, Sample, block, integers, nothing, samples

import tlxc
from tlxc import tl, tlx
from tlxc.cli import main
from tlxc.simulator.timeline import Timeline, chrome, form_of, path, summarise
from tlxc.simulator.timeline.record import LOAD, TENSOR, WAIT, Span
from tlxc.targets import Target, all_targets, get_target

EXAMPLES = Path(__file__).parent.parent / "examples"
HOPPER = get_target("sm_90")
assert HOPPER.timing is not None
SAMPLES = list(samples())


def timed(call: Call, target: Target | None = None, seed: int = 0) -> Timeline:
    """The timeline of a launch, whose results are right."""
    target = target or HOPPER
    with tlxc.simulate(seed=seed, target=target) as sim:
        sim.timeline = Timeline(target)
        call.run()
    call.check()
    assert not sim.reports
    return sim.timeline


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_kernel_has_a_timeline(sample: Sample) -> None:
    """Tasks do one thing at a time, waits end when something ended them, and the critical path is the whole time."""
    for trips in (sample.trips[0], sample.trips[-1]):
        timeline = timed(sample.make(trips))
        (launch,) = timeline.launches
        for lane in launch.tasks():
            for one, next_ in zip(lane.spans, lane.spans[1:]):
                assert one.start < one.end <= next_.start
        for span in (span for lane in launch.lanes for span in lane.spans):
            assert launch.start <= span.start < span.end <= launch.end
            if span.kind in (WAIT, LOAD):
                assert span.start <= span.released <= span.end
                assert not span.blocked or span.cause is not None and span.cause.time == span.released
            if span.flight is not None:
                assert span.flight.issued <= span.start <= span.flight.moved
        assert sum(path.critical_path(launch).values()) == launch.end - launch.start
        events(timeline)


# ------------------------------------------------------------------------------------------------ trace events
def events(timeline: Timeline) -> list[dict[str, Any]]:
    """The trace events, after a check of what Perfetto asks of them."""
    file = json.loads(chrome.render(timeline))
    assert file.keys() == {"traceEvents", "displayTimeUnit", "otherData"} and file["displayTimeUnit"] == "ns"
    slices: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    named, flows = set(), defaultdict(list)
    last = 0
    for event in file["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            named.add(place)
            continue
        assert place in named and event["cat"]
        for key in {"ts", "dur"} & event.keys():
            event[key] = round(event[key] * 1000)  # whole nanoseconds, as Perfetto has them
        assert event["ts"] >= last
        last = event["ts"]
        if event["ph"] == "X":
            before = slices[place][-1] if slices[place] else None
            assert event["dur"] > 0 and event["args"]["op"]
            assert before is None or before["ts"] + before["dur"] <= event["ts"]  # no overlap in a thread
            slices[place].append(event)
        else:
            assert event["ph"] in "sf" and (event["ph"] == "s" or event["bp"] == "e")
            flows[event["id"]].append(event)
    for start, end in flows.values():
        assert (start["ph"], end["ph"]) == ("s", "f") and start["name"] == end["name"] and start["ts"] <= end["ts"]
        for event in (start, end):
            inside = [s for s in slices[event["pid"], event["tid"]] if s["ts"] <= event["ts"] < s["ts"] + s["dur"]]
            assert len(inside) == 1
    return list(file["traceEvents"])


def gemm_ws(k: int = 512, **constants: Any) -> Call:
    """Two tiles for each of two CTAs."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from hopper_gemm_ws import gemm
    finally:
        sys.path.pop(0)
    m, n = 256, 512
    a, b, out = (
        integers(0, m, k, dtype=np.float16),
        integers(1, k, n, dtype=np.float16),
        nothing(m, n, dtype=np.float16),
    )
    descriptors = {"a_desc": block(a, 64, 64), "b_desc": block(b, 64, 256), "c_desc": block(out, 64, 64)}
    args = {**descriptors, "M": m, "N": n, "K": k, **constants}
    return Call(gemm, (2,), args, out, a.astype(np.float32) @ b.astype(np.float32))


def test_the_trace_of_a_gemm() -> None:
    """Every CTA has its lanes; arrows lead from copies to the waits for `full` and from arrivals to those for `empty`;
    slices say where they come from."""
    timeline = timed(gemm_ws())
    found = events(timeline)
    threads = defaultdict(set)
    for event in found:
        if event["name"] == "thread_name":
            threads[event["pid"]].add(event["args"]["name"])
    assert len(threads) == 2
    for names in threads.values():
        assert {"default task", "task 1 copy 0", "task 1 copy 1", "TMA load", "TMA store", "tensor core"} <= names
    arrows = {event["name"] for event in found if event["ph"] == "s"}
    assert {f"{name}[{i}]" for name in ("full", "empty") for i in range(4)} <= arrows
    copies = [e["args"] for e in found if e["ph"] == "X" and e["args"]["op"] == "tma_load" and e["cat"] == "transfer"]
    assert len(copies) == 2 * 2 * 8 * 3  # CTAs, tiles, steps, copies of a step
    later = copies[-1]
    assert later["buffers"] == ["b[3]"] and (later["barrier"], later["stage"], later["phase"]) == ("full[3]", 3, 3)
    assert later["file"].endswith("hopper_gemm_ws.py") and later["line"] and later["called from line"]
    assert later["issued by"] == "default task" and later["limited by"] == "TMA load"


def test_the_same_seed_gives_the_same_file() -> None:
    for form in (".json", ".svg", ".html"):
        first, second = (form_of(Path(f"trace{form}"))(timed(gemm_ws(), seed=3)) for _ in range(2))
        assert first == second


def test_pictures_stand_alone() -> None:
    timeline = timed(gemm_ws())
    picture = form_of(Path("trace.svg"))(timeline)
    root = ElementTree.fromstring(picture)
    texts = {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"CTA 0 on SM 0", "CTA 1 on SM 1", "tensor core", "TMA load", "waits for full", "waits for empty"} <= texts
    titles = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(re.match(r"barrier_wait full\[1\] phase 2\n", title) for title in titles)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 50
    page = form_of(Path("trace.html"))(timeline)
    assert picture.strip() in page and "bottleneck is the tensor core" in page
    assert not re.search(r"(src|href)=|url\(|@import", page)


# ------------------------------------------------------------------------------------------------ the model
def with_timing(**figures: Any) -> Target:
    assert HOPPER.timing is not None
    return replace(HOPPER, timing=replace(HOPPER.timing, **figures))


def test_a_gemm_is_bound_by_the_tensor_core_or_by_its_producer() -> None:
    """48 KiB a step take 768 cycles of TMA, its products 1024 of the tensor core; at half the rate 1536."""
    call = gemm_ws(2048)
    (launch,) = timed(call).launches
    products = [s for lane in launch.agents() if lane.cta == 0 for s in lane.spans if s.kind == TENSOR]
    assert len(products) == 2 * 32 * 2 and all(s.end - s.start == 512 for s in products)
    assert launch.end >= 128 * 512
    assert re.fullmatch(
        r"The bottleneck is the tensor core: 8\d % of the critical path\.", summarise(launch).bottleneck
    )
    (slower,) = timed(call, with_timing(tma_bytes=32)).launches
    assert re.fullmatch(
        r"The bottleneck is the producer \(default task\): 9\d % of the critical path, [78]\d % for throughput, "
        r"1\d % for latency\.",
        summarise(slower).bottleneck,
    )
    assert slower.end >= 2 * 32 * 1536
    (faster,) = timed(call, with_timing(tma_bytes=32, mma=(("f16", 256),))).launches
    assert "bottleneck is the tensor core" in summarise(faster).bottleneck


def test_waits_show_who_is_late() -> None:
    def waits(target: Target, lane: str) -> dict[str, float]:
        (launch,) = timed(gemm_ws(2048), target).launches
        return dict(next(row for row in summarise(launch).rows if row.name == lane).waits)

    assert waits(HOPPER, "default task")["empty"] > 0.8
    assert waits(with_timing(tma_bytes=32), "task 1 copy 0")["full"] > 0.8


@tlxc.kernel
def add_late(x, y, out, n, LATE: tl.constexpr):
    at = tl.arange(0, 1024)
    a = tl.load(x + at)
    if LATE:
        a = a * 2.0
    b = tl.load(y + at)
    tl.store(out + at, a + b)


def test_loads_overlap_until_their_values_are_used() -> None:
    def cycles(late: bool) -> int:
        x, y, out = integers(0, 1024), integers(1, 1024), nothing(1024)
        wanted = x * (2 if late else 1) + y
        return timed(Call(add_late, (1,), {"x": x, "y": y, "out": out, "n": 1024, "LATE": late}, out, wanted)).end

    latency = HOPPER.timing.dram_latency  # type: ignore[union-attr]
    assert latency < cycles(False) - HOPPER.timing.l2_latency < 2 * latency < cycles(True)  # type: ignore[union-attr]


def test_where_the_process_has_an_array_does_not_matter() -> None:
    def cycles(shift: int) -> int:
        x, y, out = (np.zeros(1024 + 64, np.float32)[shift:][:1024] for _ in range(3))
        args = {"x": x, "y": y, "out": out, "n": 1024, "LATE": False}
        return timed(Call(add_late, (1,), args, out, x + y)).end

    assert len({cycles(shift) for shift in (0, 1, 5, 8, 63)}) == 1


@tlxc.kernel
def running_sum(x, out, steps, AHEAD: tl.constexpr):
    at = tl.arange(0, 1024)
    total = tl.zeros((1024,), tl.float32)
    if AHEAD:
        next_ = tl.load(x + at)
        for i in range(1, steps):
            this = next_
            next_ = tl.load(x + i * 1024 + at)
            for _ in range(64):
                total += this
        total += next_ * 64.0
    else:
        for i in range(steps):
            this = tl.load(x + i * 1024 + at)
            for _ in range(64):
                total += this
    tl.store(out + at, total)


def test_a_load_that_a_loop_carries_is_hidden() -> None:
    def waited(ahead: bool) -> int:
        x, out = integers(0, 8, 1024), nothing(1024)
        args = {"x": x, "out": out, "steps": 8, "AHEAD": ahead}
        timeline = timed(Call(running_sum, (1,), args, out, x.sum(0) * 64))
        return sum(s.blocked for s in spans(timeline) if s.kind == LOAD)

    assert waited(True) < waited(False) / 3


def spans(timeline: Timeline) -> list[Span]:
    return [span for launch in timeline.launches for lane in launch.lanes for span in lane.spans]


@tlxc.kernel
def fill(out, BYTES: tl.constexpr):
    room = tlx.local_alloc((BYTES // 4,), tl.float32, 1)
    at = tl.arange(0, 128)
    part = tlx.local_slice(room[0], (0,), (128,))
    tlx.local_store(part, at.to(tl.float32))
    tl.store(out + tl.program_id(0) * 128 + at, tlx.local_load(part))


@pytest.mark.parametrize("size, together", [(4096, 4), (65536, 3), (131072, 1)])
def test_an_sm_holds_as_many_ctas_as_fit(size: int, together: int) -> None:
    """The others come when one of them has exited."""
    out = nothing(4, 128)
    wanted = np.broadcast_to(np.arange(128), (4, 128))
    (launch,) = timed(Call(fill, (4,), {"out": out, "BYTES": size}, out, wanted), replace(HOPPER, sm_count=1)).launches
    times = sorted((lane.spans[0].start, lane.spans[-1].end) for lane in launch.tasks())
    assert sum(start == 0 for start, _ in times) == together
    assert all(start in {0, *(end for _, end in times)} for start, _ in times)
    (wide,) = timed(Call(fill, (4,), {"out": out, "BYTES": size}, out, wanted)).launches
    assert {lane.sm for lane in wide.lanes} == {0, 1, 2, 3} and {lane.spans[0].start for lane in wide.tasks()} == {0}


def test_blocks_come_from_dram_once() -> None:
    """The second tile of a CTA finds the rows of A in the L2 cache."""
    found = [
        s
        for s in spans(timed(gemm_ws()))
        if s.op.kind == "tma_load" and s.flight is not None and s.buffers == ("a[0]",)
    ]
    timing = HOPPER.timing
    assert timing is not None
    latencies = {s.end - s.flight.moved - timing.tma_latency for s in found if s.flight is not None}
    assert latencies == {timing.dram_latency, timing.l2_latency}


# What vendors' datasheets say: (dense 16-bit TFLOP/s, TB/s of memory)
PEAKS = {
    "sm_90": (989, 4.8), "sm_100": (2250, 8.0), "sm_103": (2250, 8.0), "sm_120": (209.5, 1.79), "gfx942": (1307, 5.3),
    "gfx950": (2307, 8.0),
}  # fmt: skip


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_rates_give_the_peaks_of_the_datasheets(target: Target) -> None:
    if target.timing is None:
        assert target.name not in PEAKS
        return
    flops, bandwidth = PEAKS[target.name]
    timing, hertz = target.timing, target.timing.clock * 1e6
    assert 2 * timing.mma_rate("f16") * (target.sm_count or 0) * hertz == pytest.approx(flops * 1e12, rel=0.02)
    assert timing.dram_bytes * hertz == pytest.approx(bandwidth * 1e12, rel=0.02)
    assert timing.mma_rate("no such type") == min(dict(timing.mma).values())


def test_the_table_of_the_documentation() -> None:
    text = (EXAMPLES.parent / "docs" / "timeline.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    heads = next(i for i, row in enumerate(rows) if row[0] == "" and row[1].startswith("sm_"))
    columns = zip(*(row[1:] for row in (rows[heads], *rows[heads + 2 :])))
    told = {name: tuple(figures) for names, *figures in columns for name in names.split(", ")}
    wanted = {
        target.name: (
            t.product,
            str(t.mma_rate("f16")),
            f"{t.sm_bytes}, {t.l2_bytes}, {t.dram_bytes}",
            f"{t.l2_latency}, {t.dram_latency}",
        )
        for target in all_targets()
        if (t := target.timing) is not None
    }
    assert told == wanted


# ------------------------------------------------------------------------------------------------ the API
@tlxc.kernel
def stuck(out, ARRIVES: tl.constexpr):
    bar = tlx.alloc_barriers(1)
    if ARRIVES:
        tlx.barrier_arrive(bar[0])
    tlx.barrier_wait(bar[0], 0)
    tl.store(out, 1.0)


def test_simulate_writes_a_trace(tmp_path: Path) -> None:
    """Of all launches in the block, one after the other."""
    file = tmp_path / "trace.json"
    out = nothing(1)
    with tlxc.simulate(trace=file) as sim:
        stuck[1](out, True)
        stuck[1](out, True)
    assert sim.timeline is not None
    first, second = sim.timeline.launches
    assert 0 < first.end == second.start < second.end
    names = [e["args"]["name"] for e in json.loads(file.read_text())["traceEvents"] if e["name"] == "process_name"]
    assert names == ["stuck: CTA 0 on SM 0"] * 2


def test_a_deadlock_is_drawn_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    with pytest.raises(tlxc.SimulationError, match="deadlock"), tlxc.simulate(trace=file):
        stuck[1](nothing(1), False)
    last = json.loads(file.read_text())["traceEvents"][-1]
    assert last["cat"] == "wait" and last["args"]["barrier"] == "bar[0]"


@tlxc.kernel
def stuck_tasks(out):
    bar = tlx.alloc_barriers(1)
    with tlx.async_tasks():
        with tlx.async_task("default"):
            tl.store(out, 1.0)
        with tlx.async_task(num_warps=4):
            tlx.barrier_wait(bar[0], 0)


def test_of_tasks_too() -> None:
    with tlxc.simulate() as sim:
        sim.timeline = Timeline(HOPPER)
        with pytest.raises(tlxc.SimulationError, match="deadlock"):
            stuck_tasks[1](nothing(1))
    (launch,) = sim.timeline.launches
    last = {lane.name: lane.spans[-1] for lane in launch.tasks()}
    assert {name: (span.label, span.end) for name, span in last.items()} == {
        "default task": ("async_tasks", launch.end),
        "task 1": ("barrier_wait bar[0] phase 0", launch.end),
    }
    events(sim.timeline)


def test_a_block_without_launches_writes_nothing(tmp_path: Path) -> None:
    with tlxc.simulate(trace=tmp_path / "trace.json"):
        pass
    assert not list(tmp_path.iterdir())


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(tlxc.TlxcError) as error:
        tlxc.simulate(trace="trace.txt")
    assert str(error.value) == (
        "The name of the trace is 'trace.txt'; it may end in .json, .html, .svg: JSON for Perfetto, a page, or a "
        "picture."
    )
    with pytest.raises(tlxc.TlxcError) as error:
        tlxc.simulate(schedule="adversarial", trace="trace.svg")
    assert str(error.value) == (
        "The schedule is 'adversarial', but a trace is made on the clock of the target's time model; leave `schedule` "
        "out."
    )
    with pytest.raises(tlxc.TlxcError) as error:
        tlxc.simulate(target="gfx1250", trace="trace.svg")
    assert str(error.value) == (
        "tlxc knows no figures of time for gfx1250, so it draws no timeline for it; take another target."
    )
    file = tmp_path / "none" / "trace.json"
    with pytest.raises(tlxc.TlxcError) as error, tlxc.simulate(trace=file):
        stuck[1](nothing(1), True)
    assert str(error.value) == f"{file} could not be written: No such file or directory."


OFF = """
import sys
import numpy as np
import tlxc
from tlxc import tl

@tlxc.kernel
def one(x):
    tl.store(x + tl.arange(0, 64), 1.0)

with tlxc.simulate():
    one[1](np.zeros(64, np.float32))
print([name for name in sys.modules if "timeline" in name])
"""


def test_runs_without_a_trace_do_not_load_it(tmp_path: Path) -> None:
    (tmp_path / "off.py").write_text(OFF, encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "off.py")], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ------------------------------------------------------------------------------------------------ the command
FILE = """
import numpy as np
import tlxc
from tlxc import tl

@tlxc.kernel
def add_one(x, out, n):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1{mask})
"""
WHOLE = """
@add_one.example
def whole():
    return (2,), (np.zeros(128, np.float32), np.zeros(128, np.float32), 128)
"""
PART = """
@add_one.example
def part():
    return (2,), dict(x=np.zeros(100, np.float32), out=np.zeros(100, np.float32), n=100)
"""


def run(folder: Path, text: str, *options: str, kernel: str = "") -> Result:
    (folder / "file.py").write_text(text.replace("{mask}", ", mask=at < n"), encoding="utf-8")
    return CliRunner().invoke(main, ["trace", f"{folder / 'file.py'}{kernel}", *options], prog_name="tlxc")


def test_the_command(tmp_path: Path) -> None:
    result = run(tmp_path, FILE + WHOLE + PART, "-o", str(tmp_path / "trace.json"))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert re.fullmatch(
        r"add_one, whole: 2 CTAs, \d+ cycles, [\d.]+ us at 1830 MHz \(a model of H200, not a measurement\)", lines[0]
    )
    assert lines[1] == "  lane            busy  waits" and re.fullmatch(r"  main +\d+ %  a load \d+ %", lines[2])
    assert lines[5].startswith("  critical path: latency of global loads ")
    assert lines[6].startswith("  The bottleneck is the loads: ")
    assert lines[7].startswith("add_one, part: 2 CTAs, ")
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["target"] == "sm_90"


def test_without_a_file_it_only_tells(tmp_path: Path) -> None:
    result = run(tmp_path, FILE + WHOLE, "--target", "gfx942", "--seed", "4")
    assert result.exit_code == 0 and "a model of MI300X" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["file.py"]


def test_a_report_ends_it_and_the_trace_shows_how_far_it_came(tmp_path: Path) -> None:
    text = (FILE + WHOLE + PART).replace("{mask}", "")
    result = run(tmp_path, text, "-o", str(tmp_path / "trace.svg"))
    assert result.exit_code == 1
    assert "out-of-bounds: tl.store at line 9 by main of CTA 1" in result.output
    assert (tmp_path / "trace.svg").exists()


def test_errors_of_the_command(tmp_path: Path) -> None:
    wrong = run(tmp_path, FILE + WHOLE, "-o", "trace.png")
    assert wrong.exit_code == 2
    assert wrong.output.splitlines()[-1] == (
        "Error: Invalid value for '-o': The name of the trace is 'trace.png'; it may end in .json, .html, .svg: JSON "
        "for Perfetto, a page, or a picture."
    )
    file = tmp_path / "file.py"
    unknown = run(tmp_path, FILE + WHOLE, kernel=":add_two")
    assert (unknown.exit_code, unknown.output) == (1, f"{file} has no kernel `add_two`; it defines add_one.\n")
    out = file / "trace.json"
    unwritable = run(tmp_path, FILE + WHOLE, "-o", str(out))
    assert (unwritable.exit_code, unwritable.output) == (1, f"{out} could not be written: File exists.\n")
    assert run(tmp_path, FILE + WHOLE, "--target", "sm_1").exit_code == 2
    timeless = run(tmp_path, FILE + WHOLE, "--target", "gfx1250")
    assert (timeless.exit_code, timeless.output) == (
        1,
        "tlxc knows no figures of time for gfx1250, so it draws no timeline for it; take another target.\n",
    )
    bare = run(tmp_path, FILE)
    assert (bare.exit_code, bare.output) == (
        1,
        "add_one has no example to run; decorate a function without parameters that returns (grid, arguments) with "
        "@add_one.example.\n",
    )
