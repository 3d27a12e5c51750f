"""The last step of a launch: Python values to kernel parameters to `cuLaunchKernelEx`.

One native function serves every kernel.  It is written as LLVM text, compiled once a process, and follows CPython's
METH_FASTCALL convention; its `self` is a bytes object, the *plan*, that holds what is fixed for a kernel on a device.
So a kernel's launcher is one small Python object and costs no compilation.  Builds of Python without that calling
convention as we use it (free-threaded, other than CPython) launch through cuda.bindings.

A launcher is called as launch(grid, stream, *values) with one value for each run-time parameter, skipped ones included.
It returns the driver's status, or `UNCLEAR` where it launched nothing because the grid is not a tuple of one to three
positive integers within the limits.  Kernels with descriptors, clusters or a workspace have a step in Python before it
(`prepared`, `with_workspace`).
"""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tlxc.runtime import cuda
from tlxc.runtime.descriptor import MAP_BYTES
from tlxc.runtime.grid import MAX_GRID, Cluster, GridError, check_cluster, extents

Launcher = Callable[..., int]

# Kinds of values: 's' is not passed (the compiler knows it), 'f' a 32-bit float, 'i' any integer or address: parameters
# are read from 8-byte slots, and on a little-endian machine the low bytes of a slot are the narrower integer.  'm' is
# the address of a tensor map, which is passed by value from where it stands.
SKIP, FLOAT, INTEGER, MAP = b"sfim"
UNCLEAR = -1
_FIXED = 2  # grid and stream stand before the values

# function, context, threads of a CTA, dynamic shared bytes, number of values; one byte of kind for each value follows
_PLAN = struct.Struct("<QQIIQ")

# A current context other than the kernel's is put aside for the call: handles mean nothing in another context.
_LAUNCH = """
define ptr @launch(ptr %self, ptr %args, i64 %given) {{
entry:
  %plan = call ptr inttoptr (i64 {PyBytes_AsString} to ptr)(ptr %self)
  %function = load ptr, ptr %plan
  %context.at = getelementptr i8, ptr %plan, i64 8
  %context = load ptr, ptr %context.at
  %threads.at = getelementptr i8, ptr %plan, i64 16
  %threads = load i32, ptr %threads.at
  %shared.at = getelementptr i8, ptr %plan, i64 20
  %shared = load i32, ptr %shared.at
  %count.at = getelementptr i8, ptr %plan, i64 24
  %count = load i64, ptr %count.at
  %kinds = getelementptr i8, ptr %plan, i64 {plan_size}
  %config = alloca [7 x i64], align 16
  %previous = alloca ptr, align 8
  %slots = alloca i64, i64 %count, align 16
  %params = alloca ptr, i64 %count, align 16
  %wanted = add i64 %count, {fixed}
  %complete = icmp eq i64 %wanted, %given
  br i1 %complete, label %grid, label %miscounted
{grid}
stream:
  %stream.at = getelementptr ptr, ptr %args, i64 1
  %stream.object = load ptr, ptr %stream.at
  %stream.handle = call i64 inttoptr (i64 {PyLong_AsUnsignedLongLongMask} to ptr)(ptr %stream.object)
  %stream.suspect = icmp eq i64 %stream.handle, -1
  br i1 %stream.suspect, label %stream.check, label %next
stream.check:
  %stream.error = call ptr inttoptr (i64 {PyErr_Occurred} to ptr)()
  %stream.clean = icmp eq ptr %stream.error, null
  br i1 %stream.clean, label %next, label %failed
next:
  %i = phi i64 [ 0, %stream ], [ 0, %stream.check ], [ %i.next, %advance ]
  %passed = phi i64 [ 0, %stream ], [ 0, %stream.check ], [ %passed.next, %advance ]
  %last = icmp eq i64 %i, %count
  br i1 %last, label %launch, label %convert
convert:
  %position = add i64 %i, {fixed}
  %object.at = getelementptr ptr, ptr %args, i64 %position
  %object = load ptr, ptr %object.at
  %kind.at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind.at
  switch i8 %kind, label %integer [ i8 {skip}, label %advance
                                    i8 {float}, label %float
                                    i8 {map}, label %map ]
map:
  %map.address = call i64 inttoptr (i64 {PyLong_AsUnsignedLongLongMask} to ptr)(ptr %object)
  %map.wrong = icmp eq i64 %map.address, -1
  br i1 %map.wrong, label %failed, label %map.put
map.put:
  %map.pointer = inttoptr i64 %map.address to ptr
  %map.param = getelementptr ptr, ptr %params, i64 %passed
  store ptr %map.pointer, ptr %map.param
  %map.more = add i64 %passed, 1
  br label %advance
integer:
  %int = call i64 inttoptr (i64 {PyLong_AsUnsignedLongLongMask} to ptr)(ptr %object)
  %int.suspect = icmp eq i64 %int, -1
  br i1 %int.suspect, label %check, label %put
float:
  %double = call double inttoptr (i64 {PyFloat_AsDouble} to ptr)(ptr %object)
  %single = fptrunc double %double to float
  %bits = bitcast float %single to i32
  %wide = zext i32 %bits to i64
  %float.suspect = fcmp oeq double %double, -1.0
  br i1 %float.suspect, label %check, label %put
check:
  %checked = phi i64 [ %int, %integer ], [ %wide, %float ]
  %error = call ptr inttoptr (i64 {PyErr_Occurred} to ptr)()
  %clean = icmp eq ptr %error, null
  br i1 %clean, label %put, label %failed
put:
  %word = phi i64 [ %int, %integer ], [ %wide, %float ], [ %checked, %check ]
  %slot = getelementptr i64, ptr %slots, i64 %passed
  store i64 %word, ptr %slot
  %param = getelementptr ptr, ptr %params, i64 %passed
  store ptr %slot, ptr %param
  %passed.more = add i64 %passed, 1
  br label %advance
advance:
  %passed.next = phi i64 [ %passed, %convert ], [ %passed.more, %put ], [ %map.more, %map.put ]
  %i.next = add i64 %i, 1
  br label %next
launch:
{config}
  %got = call i32 inttoptr (i64 {cuCtxGetCurrent} to ptr)(ptr %previous)
  %current = load ptr, ptr %previous
  %at.home = icmp eq ptr %current, %context
  br i1 %at.home, label %direct, label %switch
direct:
  %status.direct = call i32 inttoptr (i64 {cuLaunchKernelEx} to ptr)(ptr %config, ptr %function, ptr %params, ptr null)
  br label %done
switch:
  %pushed = call i32 inttoptr (i64 {cuCtxPushCurrent_v2} to ptr)(ptr %context)
  %entered = icmp eq i32 %pushed, 0
  br i1 %entered, label %away, label %done
away:
  %status.away = call i32 inttoptr (i64 {cuLaunchKernelEx} to ptr)(ptr %config, ptr %function, ptr %params, ptr null)
  %popped = call i32 inttoptr (i64 {cuCtxPopCurrent_v2} to ptr)(ptr %previous)
  br label %done
unclear:
  call void inttoptr (i64 {PyErr_Clear} to ptr)()
  br label %done
done:
  %status = phi i32 [ %status.direct, %direct ], [ %pushed, %switch ], [ %status.away, %away ], [ {unclear}, %unclear ]
  %long = sext i32 %status to i64
  %result = call ptr inttoptr (i64 {PyLong_FromLongLong} to ptr)(i64 %long)
  ret ptr %result
miscounted:
  %argument.error = call i32 inttoptr (i64 {PyErr_BadArgument} to ptr)()
  ret ptr null
failed:
  ret ptr null
}}
"""
_GRID = """\
grid:
  %grid.object = load ptr, ptr %args
  %axes = call i64 inttoptr (i64 {PyTuple_Size} to ptr)(ptr %grid.object)
  %axes.less = sub i64 %axes, 1
  %axes.right = icmp ult i64 %axes.less, 3
  br i1 %axes.right, label %x, label %unclear
"""
# An absent axis has extent 1.  One comparison tells 1 to the limit from everything else, an error's -1 included.
_AXIS = """\
{axis}:
  %{axis}.given = icmp ugt i64 %axes, {i}
  br i1 %{axis}.given, label %{axis}.read, label %{axis}.end
{axis}.read:
  %{axis}.object = call ptr inttoptr (i64 {PyTuple_GetItem} to ptr)(ptr %grid.object, i64 {i})
  %{axis}.int = call i64 inttoptr (i64 {PyLong_AsLongLong} to ptr)(ptr %{axis}.object)
  %{axis}.less = sub i64 %{axis}.int, 1
  %{axis}.right = icmp ult i64 %{axis}.less, {most}
  br i1 %{axis}.right, label %{axis}.end, label %unclear
{axis}.end:
  %{axis}.wide = phi i64 [ 1, %{axis} ], [ %{axis}.int, %{axis}.read ]
  %{axis}.extent = trunc i64 %{axis}.wide to i32
  br label %{following}
"""
# CUlaunchConfig (56 bytes): grid, block, dynamic shared bytes, stream, attributes, their number
_CONFIG = (
    (0, "i32", "%x.extent"), (4, "i32", "%y.extent"), (8, "i32", "%z.extent"),
    (12, "i32", "%threads"), (16, "i32", "1"), (20, "i32", "1"), (24, "i32", "%shared"),
    (32, "i64", "%stream.handle"), (40, "ptr", "null"), (48, "i32", "0"),
)  # fmt: skip
_PYTHON = (
    "PyBytes_AsString", "PyErr_BadArgument", "PyErr_Clear", "PyErr_Occurred", "PyFloat_AsDouble", "PyLong_AsLongLong",
    "PyLong_AsUnsignedLongLongMask", "PyLong_FromLongLong", "PyTuple_GetItem", "PyTuple_Size",
)  # fmt: skip
_DRIVER = ("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernelEx")


def launch_ir(driver_address: Callable[[str], int]) -> str:
    """The launcher as LLVM text, with this process's addresses; `driver_address` gives those of the driver."""
    calls: dict[str, Any] = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _PYTHON
    }
    calls |= {name: driver_address(name) for name in _DRIVER}
    axes = "".join(
        _AXIS.format(axis=axis, i=i, most=MAX_GRID[i], following=following, **calls)
        for i, (axis, following) in enumerate((("x", "y"), ("y", "z"), ("z", "stream")))
    )
    config = "\n".join(
        f"  %at.{offset} = getelementptr i8, ptr %config, i64 {offset}\n  store {type_} {value}, ptr %at.{offset}"
        for offset, type_, value in _CONFIG
    )
    return _LAUNCH.format(
        **calls, grid=_GRID.format(**calls) + axes, config=config, plan_size=_PLAN.size, fixed=_FIXED, skip=SKIP,
        float=FLOAT, map=MAP, unclear=UNCLEAR,
    )  # fmt: skip


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_METH_FASTCALL = 0x80


# Launchers point into their NativeLaunch, and the garbage collector may look at them last.
_alive: list[NativeLaunch] = []


class NativeLaunch:
    """The compiled launch function; calling it with a plan gives that plan's launcher."""

    def __init__(self, driver_address: Callable[[str], int] = cuda.address_of) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(launch_ir(driver_address))
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=1)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        # CPython keeps a pointer to the definition, not a copy.
        self._definition = _MethodDef(b"launch", self._engine.get_function_address("launch"), _METH_FASTCALL, None)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._new = new(("PyCFunction_NewEx", ctypes.pythonapi))
        _alive.append(self)

    def __call__(self, plan: bytes) -> Launcher:
        launcher: Launcher = self._new(ctypes.addressof(self._definition), plan, None)
        return launcher


def plan_of(function: int, context: int, threads: int, shared: int, kinds: bytes) -> bytes:
    return _PLAN.pack(function, context, threads, shared, len(kinds)) + kinds


def has_native() -> bool:
    """Whether this build of Python lets native code call it as `NativeLaunch` does."""
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


_lock = threading.Lock()
_native: NativeLaunch | None = None


def make_launcher(function: cuda.Function, threads: int, shared: int, kinds: bytes) -> Launcher:
    """A launcher of a loaded kernel: `threads` of a CTA, its dynamic shared memory in bytes, a kind for each value."""
    global _native
    if not has_native():
        return bindings_launcher(function, threads, shared, kinds)
    with _lock:
        if _native is None:
            _native = NativeLaunch()
    return _native(plan_of(function.handle, function.gpu.context, threads, shared, kinds))


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


def bindings_launcher(function: cuda.Function, threads: int, shared: int, kinds: Sequence[int]) -> Launcher:
    """The same through cuda.bindings: slower, but only Python."""
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
        config.sharedMemBytes, config.hStream, config.numAttrs = shared, api.CUstream(stream), 0
        arguments = tuple(word(kinds[i], values[i]) for i in passed)
        with cuda.in_context(function.gpu):
            (status,) = api.cuLaunchKernelEx(config, handle, (arguments, ctypes_of), 0)
        return int(status)

    return launch


def recording(launch: Launcher, record: int) -> Launcher:
    """A launcher that passes the address of a record after the values: see `trap`."""

    def launch_recording(grid: tuple[Any, ...], stream: int, *values: Any) -> int:
        return launch(grid, stream, *values, record)

    return launch_recording


def with_workspace(launch: Launcher, gpu: cuda.Device, size: int) -> Launcher:
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


@dataclass(frozen=True)
class MapShape:
    """What a compiled kernel wants of the tensor map of one argument: see `boxes.Box`.  `stored`: it stores by it."""

    box: tuple[int, ...]
    swizzle: int
    stored: bool


def prepared(launch: Launcher, gpu: cuda.Device, maps: Mapping[int, MapShape], cluster: Cluster) -> Launcher:
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
