"""The last step of a launch: Python values to kernel parameters to `cuLaunchKernelEx`.

One native function serves every kernel (see `native`); its `self` is a bytes object, the *plan*, that holds what is
fixed for a kernel on a device.  So a kernel's launcher is one small Python object and costs no compilation.  Builds of
Python that native code cannot serve launch through cuda.bindings.  `guards` does the same for most calls without any of
this; here is the way for all arguments.

A launcher is called as launch(grid, stream, *values) with one value for each run-time parameter, skipped ones included.
It returns the driver's status, or `UNCLEAR` where it launched nothing because the grid is not a tuple of one to three
positive integers within the limits.  Kernels with descriptors, clusters or a workspace have a step in Python before it
(`_prepared`, `_with_workspace`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tlxc.runtime import cuda, native
from tlxc.runtime.descriptor import MAP_BYTES
from tlxc.runtime.grid import Cluster, GridError, check_cluster, extents

Launcher = Callable[..., int]

# Kinds of values: 's' is not passed (the compiler knows it), 'f' a 32-bit float, 'i' any integer or address: parameters
# are read from 8-byte slots, and on a little-endian machine the low bytes of a slot are the narrower integer.  'm' is
# the address of a tensor map, which is passed by value from where it stands.
SKIP, FLOAT, INTEGER, MAP = b"sfim"
UNCLEAR = -1

# %Kernel of launch.ll: function, context, threads of a CTA, dynamic shared bytes, launch attributes.
_KERNEL = struct.Struct("<QQIIII")


@dataclass(frozen=True)
class MapShape:
    """What a compiled kernel wants of the tensor map of one argument: see `boxes.Box`.  `stored`: it stores by it."""

    box: tuple[int, ...]
    swizzle: int
    stored: bool


@dataclass(frozen=True)
class Ready:
    """A kernel that is loaded on a device, and all of a launch that is the same for all arguments.

    threads: of a CTA.  shared: dynamic shared memory in bytes.  kinds: one for each value.  maps: by position among the
    values.  workspace: bytes a CTA.  record: address that a kernel whose waits give up is passed last, see `trap`.
    launch_pdl: the grid may start before the one ahead of it has ended.
    """

    function: cuda.Function
    threads: int
    shared: int
    kinds: bytes
    maps: Mapping[int, MapShape] = field(default_factory=dict)
    cluster: Cluster = (1, 1, 1)
    workspace: int = 0
    record: int | None = None
    launch_pdl: bool = False

    @property
    def kernel(self) -> bytes:
        """%Kernel of launch.ll."""
        handle, context = self.function.handle, self.function.gpu.context
        return _KERNEL.pack(handle, context, self.threads, self.shared, self.launch_pdl, 0)

    @property
    def params(self) -> list[tuple[int, int]]:
        """%Param of launch.ll for each parameter in memory: the values, the workspace, the record."""
        passed = sum(kind != SKIP for kind in self.kinds) + (self.workspace > 0)
        return [(0, 0)] * passed + ([] if self.record is None else [(self.record, 0)])

    def launcher(self) -> Launcher:
        """A launcher for any arguments."""
        extra = (self.workspace > 0) + (self.record is not None)
        launch = _launcher(self, self.kinds + bytes((INTEGER,)) * extra)
        if self.record is not None:
            launch = _recording(launch, self.record)
        if self.workspace:
            launch = _with_workspace(launch, self.function.gpu, self.workspace)
        return _prepared(launch, self.function.gpu, self.maps, self.cluster)


def plan_of(kernel: bytes, kinds: bytes) -> bytes:
    """The `self` of `launch` in launch.ll."""
    return kernel + struct.pack("<Q", len(kinds)) + kinds


def _launcher(ready: Ready, kinds: bytes) -> Launcher:
    if not native.available():
        return bindings_launcher(ready, kinds)
    return native.functions().function("launch", plan_of(ready.kernel, kinds))


class _Map(ctypes.Structure):
    """A tensor map, as cuda.bindings takes parameters that are no numbers."""

    _fields_ = [("words", ctypes.c_uint64 * (MAP_BYTES // 8))]


def _sizes(grid: tuple[Any, ...]) -> tuple[int, int, int] | None:
    """CTAs along each axis; None for an empty grid and for what is none."""
    try:
        x, y, z = extents(grid)
    except GridError:
        return None
    return (x, y, z) if x * y * z else None


def bindings_launcher(ready: Ready, kinds: Sequence[int]) -> Launcher:
    """The same through cuda.bindings: slower, but only Python."""
    function, threads, shared = ready.function, ready.threads, ready.shared
    api = cuda.driver()
    types = {INTEGER: ctypes.c_uint64, FLOAT: ctypes.c_float, MAP: None}
    passed = [i for i, kind in enumerate(kinds) if kind != SKIP]
    ctypes_of = tuple(types[kinds[i]] for i in passed)
    handle, mask = api.CUfunction(function.handle), (1 << 64) - 1

    def word(kind: int, value: Any) -> Any:
        if kind == MAP:
            return _Map.from_address(value)
        return float(value) if kind == FLOAT else int(value) & mask

    def launch(grid: tuple[Any, ...], stream: int, *values: Any) -> int:
        sizes = _sizes(grid)
        if sizes is None:
            return UNCLEAR
        x, y, z = sizes
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = x, y, z
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes, config.hStream = shared, api.CUstream(stream)
        if ready.launch_pdl:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs = [attribute]
        config.numAttrs = int(ready.launch_pdl)
        arguments = tuple(word(kinds[i], values[i]) for i in passed)
        with cuda.in_context(function.gpu):
            (status,) = api.cuLaunchKernelEx(config, handle, (arguments, ctypes_of), 0)
        return int(status)

    return launch


def _recording(launch: Launcher, record: int) -> Launcher:
    """A launcher that passes the address of a record after the values: see `trap`."""

    def launch_recording(grid: tuple[Any, ...], stream: int, *values: Any) -> int:
        return launch(grid, stream, *values, record)

    return launch_recording


def _with_workspace(launch: Launcher, gpu: cuda.Device, size: int) -> Launcher:
    """A launcher that passes the address of a workspace of `size` bytes a CTA after the values.

    Each launch has its own, allocated before and freed after it in the order of its stream, so no two launches in
    flight share one; a stream that is being captured gets both as nodes of its graph.
    """
    api = cuda.driver()

    def launch_with_workspace(grid: tuple[Any, ...], stream: int, *values: Any) -> int:
        sizes = _sizes(grid)
        if sizes is None:
            return UNCLEAR
        x, y, z = sizes
        queue = api.CUstream(stream)
        with cuda.in_context(gpu):
            status, address = api.cuMemAllocAsync(size * x * y * z, queue)
            if int(status):
                return int(status)
            try:
                launched = launch(grid, stream, *values, int(address))
            finally:
                (freed,) = api.cuMemFreeAsync(address, queue)
        return launched or int(freed)

    return launch_with_workspace


def _prepared(launch: Launcher, gpu: cuda.Device, maps: Mapping[int, MapShape], cluster: Cluster) -> Launcher:
    """A launcher that checks the grid against the cluster and encodes descriptors (`maps`: by position among the
    values), and then does what `launch` does."""
    if not maps and cluster == (1, 1, 1):
        return launch
    wanted = tuple((position, shape.box, shape.swizzle, shape.stored) for position, shape in maps.items())
    clustered = cluster != (1, 1, 1)

    def launch_prepared(grid: tuple[Any, ...], stream: int, *values: Any) -> int:
        if clustered:
            sizes = extents(grid)
            if 0 in sizes:
                return UNCLEAR
            check_cluster(sizes, cluster)
        passed, alive = list(values), []
        for position, box, swizzle, stored in wanted:
            made = values[position].map_for(box, swizzle, stored, gpu)
            alive.append(made)  # until the driver has read it, whatever another thread does to the descriptor
            passed[position] = made.address
        return launch(grid, stream, *passed)

    return launch_prepared
