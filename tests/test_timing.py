"""Timing on a stand-in for the driver's graphs and events: what is captured, sampled, waited for and freed."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_driver import Array, install, install_compiler
from test_autotune import add

import tlxc
from tlxc import Config
from tlxc.runtime import cuda
from tlxc.runtime.timing import Hung, Timer
from tlxc.runtime.tuning import TuningError

GPU = cuda.Device(0, "fake", (9, 0), 0x1000)
STREAM, SIDE = 0x77, 0x51


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class Graphs:
    """`log`: calls in order.  `states`: what queries of an event return, then 0; `ms`: times between events."""

    CUresult = Result
    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE="l2")
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=1))
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=SimpleNamespace(value=2))
    CUevent_record_flags = SimpleNamespace(CU_EVENT_RECORD_EXTERNAL=SimpleNamespace(value=1))
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUstream = int
    _VALUES: dict[str, Any] = {
        "cuDeviceGet": 0, "cuDeviceGetAttribute": 60 << 20, "cuMemAlloc": 0x9000, "cuStreamCreate": SIDE,
        "cuStreamEndCapture": "graph", "cuGraphInstantiate": "runnable",
    }  # fmt: skip

    def __init__(self, ms: Callable[[], float] = lambda: 1.0) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.states: Callable[[], int] = lambda: 0
        self.lost, self.events, self.ms = 0, 0, ms

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.log.append((name, *arguments))
            return (0, self._VALUES[name]) if name in self._VALUES else (0,)

        return call

    def cuEventCreate(self, flags: int) -> tuple[int, str]:
        self.events += 1
        return 0, f"event {self.events}"

    def cuEventQuery(self, event: str) -> tuple[int]:
        return (self.states(),)

    def cuEventElapsedTime(self, start: str, end: str) -> tuple[int, float]:
        assert (start, end) == ("event 1", "event 2")
        return 0, self.ms()

    def cuCtxSynchronize(self) -> tuple[int]:
        return (self.lost,)

    def names(self) -> list[str]:
        return [entry[0] for entry in self.log]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    made = Graphs()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    monkeypatch.setattr(cuda, "in_context", lambda gpu: contextlib.nullcontext())
    return made


def test_what_is_captured_and_replayed(graphs: Graphs) -> None:
    samples = iter([9.0, 2.0, 8.0, 3.0, 1.0])
    graphs.ms = lambda: next(samples)
    timer, runs = Timer(GPU, STREAM), []

    def launch(stream: int) -> None:
        graphs.log.append(("launch", stream))

    def around(run: Callable[[], None]) -> None:
        runs.append(len(graphs.log))
        run()

    assert timer.median_us(launch, around) == 3000.0
    start = graphs.log.index(("launch", STREAM))  # a plain launch first: it finds what hangs
    words = 2 * (60 << 20) // 4
    replay = [("cuGraphLaunch", "runnable", STREAM), ("cuEventRecord", "event 3", STREAM)]
    assert graphs.log[start:] == [
        ("launch", STREAM),
        ("cuEventRecord", "event 3", STREAM),
        ("cuStreamBeginCapture", SIDE, "relaxed"),
        ("cuMemsetD32Async", 0x9000, 0, words, SIDE),
        ("cuEventRecordWithFlags", "event 1", SIDE, 1),
        ("launch", SIDE),
        ("cuEventRecordWithFlags", "event 2", SIDE, 1),
        ("cuStreamEndCapture", SIDE),
        ("cuGraphInstantiate", "graph", 0),
        *(replay * 6),
        ("cuGraphExecDestroy", "runnable"),
        ("cuGraphDestroy", "graph"),
    ]
    assert ("cuMemAlloc", 4 * words) in graphs.log and len(runs) == 7
    timer.close()
    assert graphs.names()[-5:] == ["cuStreamDestroy", *["cuEventDestroy"] * 3, "cuMemFree"]


@pytest.mark.parametrize("ms, count", [(0.001, 50), (1.0, 20), (7.0, 5), (100.0, 5)])
def test_samples_are_bounded_in_number_and_time(graphs: Graphs, ms: float, count: int) -> None:
    graphs.ms = lambda: ms
    assert Timer(GPU, STREAM).median_us(lambda stream: None, lambda run: run()) == pytest.approx(1e3 * ms)
    assert graphs.names().count("cuGraphLaunch") == count + 1


def test_a_kernel_that_never_ends(graphs: Graphs) -> None:
    graphs.states = lambda: 600
    with pytest.raises(Hung, match=r"^it did not end within 0.01 s$"):
        Timer(GPU, STREAM, limit_s=0.01).median_us(lambda stream: None, lambda run: run())


def test_waiting_goes_on_until_the_end(graphs: Graphs) -> None:
    states = iter([600] * 40)
    graphs.states = lambda: next(states, 0)
    Timer(GPU, STREAM, limit_s=5).finish()
    assert next(states, None) is None


def test_a_kernel_that_fails(graphs: Graphs) -> None:
    graphs.states = lambda: 700
    with pytest.raises(cuda.DriverError, match="Waiting for a kernel failed with CUDA_ERROR_ILLEGAL_ADDRESS: an earl"):
        Timer(GPU, STREAM).finish()


def test_a_launch_that_fails_in_the_capture_ends_it(graphs: Graphs) -> None:
    def launch(stream: int) -> None:
        if stream == SIDE:
            raise cuda.LaunchError("no")

    with pytest.raises(cuda.LaunchError):
        Timer(GPU, STREAM).median_us(launch, lambda run: run())
    assert graphs.names()[-1] == "cuStreamEndCapture"


# -- a whole tuning


def tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Graphs, **options: Any) -> Any:
    """Launches a kernel that is tuned over two configurations; the second is faster."""
    monkeypatch.setenv("TLXC_CACHE_DIR", str(tmp_path))
    fake = install(monkeypatch)
    fake.parameters = 2
    install_compiler(monkeypatch)
    monkeypatch.setattr(cuda, "driver", lambda: graphs)
    kernel = tlxc.autotune([Config({"BLOCK": block}) for block in (32, 64)], key=["n"], **options)(tlxc.kernel(add))
    try:
        kernel[lambda arguments: (arguments["BLOCK"],)](Array(), 100)
    finally:
        kernel.launches = fake.launches
    return kernel


def test_the_driver_times_a_tuning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Graphs) -> None:
    timed: list[int] = []
    graphs.ms = lambda: {32: 2.0, 64: 1.0}[timed[-1]]
    kernel = tune(
        monkeypatch, tmp_path, graphs, pre_hook=lambda arguments: timed.append(arguments["BLOCK"])
    )  # each run that measures calls it
    assert str(kernel.best_config) == "BLOCK=64"
    assert timed.count(32) == 10 + 2 and timed.count(64) == 20 + 2
    # of each configuration one launch in the stream and one into the graph; then the launch that was asked for
    assert [launch.stream for launch in kernel.launches] == [0, SIDE, 0, SIDE, 0]
    assert graphs.names()[-1] == "cuMemFree"


def test_nothing_is_freed_while_a_kernel_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Graphs
) -> None:
    graphs.states = lambda: 600
    with pytest.raises(TuningError, match=r"took the GPU from this process: it did not end within 0\.01 s\. Run"):
        tune(monkeypatch, tmp_path, graphs, limit_s=0.01)
    assert not {"cuMemFree", "cuEventDestroy", "cuStreamDestroy", "cuCtxSynchronize"} & set(graphs.names())


def test_a_hook_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Graphs
) -> None:
    def fail(arguments: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(monkeypatch, tmp_path, graphs, pre_hook=fail)
    assert graphs.names()[-1] == "cuMemFree"
