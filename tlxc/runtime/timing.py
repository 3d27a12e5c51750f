"""The time of a launch on the GPU: in a CUDA graph, with a cold L2 cache, the median of several.

The graph overwrites the L2 cache, records an event, launches, and records another: neither Python nor what the launch
does on the host is between the events.  The stream is polled, not waited for, so a kernel that never ends is found.

Source: CUDA driver API, Graph Management and Event Management (CU_EVENT_RECORD_EXTERNAL).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from tlxc.errors import TlxcError
from tlxc.runtime import cuda

Launch = Callable[[int], None]  # launches in a stream, given by its raw handle

BUDGET_US = 20_000  # of the kernel's own time, for the samples of a configuration
SAMPLES = range(5, 51)
LIMIT_S = 10.0
_SPIN_S = 2e-3  # so long polling goes on without sleeping


class Hung(TlxcError):
    """A kernel did not end within the limit; it still runs, and nothing behind it in the GPU's queue will."""


class Timer:
    """Times launches in one stream of a GPU; `close` frees what it took, except after a `Hung`."""

    def __init__(self, gpu: cuda.Device, stream: int, limit_s: float = LIMIT_S) -> None:
        self.gpu, self.stream, self.limit_s = gpu, stream, limit_s
        api = cuda.driver()
        attribute = api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
        with cuda.in_context(gpu):
            self._words = int(cuda.call("cuDeviceGetAttribute", attribute, cuda.call("cuDeviceGet", gpu.ordinal))) // 2
            self._buffer = cuda.call("cuMemAlloc", 4 * self._words)  # twice the cache
            self._side = cuda.call("cuStreamCreate", api.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
            self._start, self._end = (cuda.call("cuEventCreate", 0) for _ in range(2))
            self._done = cuda.call("cuEventCreate", api.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)

    def close(self) -> None:
        with cuda.in_context(self.gpu):
            cuda.call("cuStreamDestroy", self._side)
            for event in (self._start, self._end, self._done):
                cuda.call("cuEventDestroy", event)
            cuda.call("cuMemFree", self._buffer)

    def finish(self) -> None:
        """Waits for the stream; raises `Hung` after the limit, and a `DriverError` where a kernel failed."""
        api = cuda.driver()
        with cuda.in_context(self.gpu):
            cuda.call("cuEventRecord", self._done, api.CUstream(self.stream))
            begin = time.perf_counter()
            while status := int(api.cuEventQuery(self._done)[0]):
                if status != int(api.CUresult.CUDA_ERROR_NOT_READY):
                    raise cuda.failure(api, status, "Waiting for a kernel")
                waited = time.perf_counter() - begin
                if waited > self.limit_s:
                    raise Hung(f"it did not end within {self.limit_s:g} s")
                if waited > _SPIN_S:
                    time.sleep(_SPIN_S / 10)

    def median_us(self, launch: Launch, around: Callable[[Callable[[], None]], None]) -> float:
        """Microseconds of a launch.  `around` is called with each run as a function, and runs it between hooks."""
        around(lambda: self._plain(launch))
        graph, runnable = self._captured(launch)
        samples: list[float] = []
        around(lambda: self._replay(runnable))  # what a first replay does besides is not sampled
        while len(samples) < SAMPLES.start or (sum(samples) < BUDGET_US and len(samples) < SAMPLES.stop - 1):
            around(lambda: self._replay(runnable))
            samples.append(1e3 * float(cuda.call("cuEventElapsedTime", self._start, self._end)))
        with cuda.in_context(self.gpu):
            cuda.call("cuGraphExecDestroy", runnable)
            cuda.call("cuGraphDestroy", graph)
        return statistics.median(samples)

    def _plain(self, launch: Launch) -> None:
        launch(self.stream)
        self.finish()

    def _replay(self, runnable: Any) -> None:
        with cuda.in_context(self.gpu):
            cuda.call("cuGraphLaunch", runnable, cuda.driver().CUstream(self.stream))
        self.finish()

    def _captured(self, launch: Launch) -> tuple[Any, Any]:
        """The graph of one cold launch: (graph, what can be launched)."""
        api = cuda.driver()
        external = api.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL.value
        with cuda.in_context(self.gpu):
            cuda.call("cuStreamBeginCapture", self._side, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
            try:
                cuda.call("cuMemsetD32Async", self._buffer, 0, self._words, self._side)
                cuda.call("cuEventRecordWithFlags", self._start, self._side, external)
                launch(int(self._side))
                cuda.call("cuEventRecordWithFlags", self._end, self._side, external)
            except BaseException:
                api.cuStreamEndCapture(self._side)  # its own status is that of what failed
                raise
            graph = cuda.call("cuStreamEndCapture", self._side)
            return graph, cuda.call("cuGraphInstantiate", graph, 0)
