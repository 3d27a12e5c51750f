"""GPUs through the driver's library, without torch: arrays, streams and captures of the torture test.

The library is NVIDIA's or the stand-in, whichever the loader finds as libcuda.so.1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tlxc.runtime import cuda

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


def call(name: str, *arguments: Any) -> None:
    status = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    assert status == 0, f"{name} returned {status}"


class Float32:
    """Prints as torch's dtype does."""

    def __repr__(self) -> str:
        return "torch.float32"


_FLOAT32 = Float32()


class Stream:
    """A stream of one GPU; `handle` is what launches take."""

    def __init__(self, gpu: cuda.Device) -> None:
        self.gpu = gpu
        handle = ctypes.c_void_p()
        with cuda.in_context(gpu):
            call("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(_NON_BLOCKING))
        self.handle = handle

    def captured(self, launches: Callable[[], None]) -> Graph:
        """The graph of some launches."""
        graph, exec_ = ctypes.c_void_p(), ctypes.c_void_p()
        with cuda.in_context(self.gpu):
            call("cuStreamBeginCapture_v2", self.handle, ctypes.c_int(_THREAD_LOCAL))
            try:
                launches()
            finally:
                call("cuStreamEndCapture", self.handle, ctypes.byref(graph))
            call("cuGraphInstantiateWithFlags", ctypes.byref(exec_), graph, ctypes.c_ulonglong(0))
        return Graph(self, graph, exec_)


class Array:
    """Floats on a stream's GPU, as the runtime sees a torch tensor; copied in the order of the stream."""

    dtype = _FLOAT32

    def __init__(self, stream: Stream, length: int) -> None:
        self._stream, self._length = stream, length
        address = ctypes.c_uint64()
        with cuda.in_context(stream.gpu):
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * length))
        self._address = address.value

    def data_ptr(self) -> int:
        return self._address

    def get_device(self) -> int:
        return self._stream.gpu.ordinal

    def write(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, np.float32)
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self._address), ctypes.c_void_p(values.ctypes.data))

    def read(self) -> np.ndarray:
        values = np.empty(self._length, np.float32)
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(self._address))
        return values

    def _copy(self, name: str, to: Any, source: Any) -> None:
        with cuda.in_context(self._stream.gpu):
            call(name, to, source, ctypes.c_size_t(4 * self._length), self._stream.handle)
            call("cuStreamSynchronize", self._stream.handle)


class Graph:
    """A captured graph, to be replayed once."""

    def __init__(self, stream: Stream, graph: ctypes.c_void_p, exec_: ctypes.c_void_p) -> None:
        self._stream, self._graph, self._exec = stream, graph, exec_

    def replay(self) -> None:
        with cuda.in_context(self._stream.gpu):
            call("cuGraphLaunch", self._exec, self._stream.handle)
            call("cuStreamSynchronize", self._stream.handle)
            call("cuGraphExecDestroy", self._exec)
            call("cuGraphDestroy", self._graph)
