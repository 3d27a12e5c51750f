"""The CUDA driver, through cuda.bindings, opened at the first launch and never at import.

Devices are ordinals, streams and functions raw handles.  A device's primary context is the one that torch uses too.
Code is loaded once per (artifact, device) and stays loaded: unloading during a stream capture would break the capture.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tlxc.errors import TlxcError
from tlxc.targets import Target, all_targets

_INSTALL_BINDINGS = "pip install cuda-bindings"
_WITHOUT = "Compiling needs no driver: kernel.warmup(..., target='sm_90') and `tlxc compile` work without one."


class DriverError(TlxcError):
    """The CUDA driver is absent or refused a call; `code` is the name of the driver's error, as CUDA_ERROR_..."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class LaunchError(DriverError):
    """The driver refused a launch."""


class ForkError(DriverError):
    """This process was forked from one that used CUDA, which no process survives."""


# What went wrong and what helps, for the errors that a user can meet.
_LOST = "and this process can use the GPU no more"
_EXPLAIN = {
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU has no memory left for the kernel",
    "CUDA_ERROR_NO_DEVICE": f"the driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?). {_WITHOUT}",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another GPU",
    "CUDA_ERROR_INVALID_IMAGE": "the driver cannot read the code; an assembler newer than the driver writes such code, "
    "so check TLXC_PTXAS and update the driver",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the assembler is newer than the driver; check TLXC_PTXAS, update the driver",
    "CUDA_ERROR_ILLEGAL_ADDRESS": f"an earlier kernel accessed memory out of bounds, {_LOST}; look for a missing mask, "
    "for instance with compute-sanitizer",
    "CUDA_ERROR_MISALIGNED_ADDRESS": f"an earlier kernel accessed a misaligned address, {_LOST}",
    "CUDA_ERROR_LAUNCH_FAILED": f"an earlier kernel failed, {_LOST}",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": f"an earlier kernel met an instruction that the GPU cannot run, {_LOST}",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "an earlier kernel ran longer than the driver allows",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the kernel needs more registers or shared memory than the GPU has for a "
    "CTA; use smaller tiles or another num_warps",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "the GPU cannot run a cluster of so many CTAs at once; use a smaller "
    "ctas_per_cga, fewer warps or less shared memory",
    "CUDA_ERROR_NOT_INITIALIZED": "CUDA does not survive a fork(): start worker processes with the 'spawn' method",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "this is not allowed while a CUDA graph is being captured; call "
    "kernel.warmup with the same arguments before the capture",
    "CUDA_ERROR_INVALID_HANDLE": "the stream or the kernel belongs to another device",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver's library and its kernel module are of different versions",
}

# Each says what it knows of the end of an earlier kernel, or nothing; failures since then carry it.
witnesses: list[Callable[[], str]] = []

_lock = threading.Lock()
_module: Any = None
_process = 0  # the one that opened the driver


def driver() -> Any:
    """The module `cuda.bindings.driver`, initialised.  Raises `DriverError` where there is no driver to talk to."""
    global _module, _process
    if _process != os.getpid():
        if _process:
            raise ForkError(
                f"Process {_process} used CUDA and then forked this process, {os.getpid()}: CUDA does not survive a "
                "fork(). Start worker processes with the 'spawn' method, or fork before the first launch.",
                "CUDA_ERROR_NOT_INITIALIZED",
            )
        with _lock:
            _module, _process = _open(), os.getpid()
    return _module


def _open() -> Any:
    try:
        from cuda.bindings import driver as module
    except ImportError as error:
        raise DriverError(
            f"Launching needs the package cuda-bindings ({error}); run: {_INSTALL_BINDINGS}. {_WITHOUT}"
        ) from error
    try:
        (status,) = module.cuInit(0)
    except (RuntimeError, OSError) as error:
        raise DriverError(
            f"No CUDA driver was found (libcuda.so.1), so nothing can be launched here. {_WITHOUT}"
        ) from error
    _check(module, (status,), "cuInit")
    return module


def _check(module: Any, result: tuple[Any, ...], call: str, error: type[DriverError] = DriverError) -> Any:
    """The value of a call of cuda.bindings, which returns (status, *values)."""
    if int(result[0]):
        raise failure(module, int(result[0]), call, error)
    return result[1] if len(result) == 2 else result[1:]


def failure(module: Any, status: int, call: str, error: type[DriverError] = DriverError) -> DriverError:
    """The error for a status that the driver returned."""
    try:
        code = module.CUresult(status).name
    except ValueError:
        code = f"CUresult {status}"
    text = f"{call} failed with {code}: {_EXPLAIN.get(code, 'the CUDA driver gives no more detail')}."
    error = ForkError if code == "CUDA_ERROR_NOT_INITIALIZED" else error
    return error("\n".join([text, *filter(None, (said() for said in witnesses))]), code)


def call(name: str, *arguments: Any) -> Any:
    """Calls a driver function and returns its value or values; a failure is a `DriverError`."""
    module = driver()
    return _check(module, getattr(module, name)(*arguments), name)


@functools.lru_cache(maxsize=1)
def cuda_version() -> tuple[int, int]:
    """The CUDA version that the driver supports, as (13, 0)."""
    number = call("cuDriverGetVersion")
    return number // 1000, number % 1000 // 10


def device_count() -> int:
    return int(call("cuDeviceGetCount"))


@dataclass(frozen=True)
class Device:
    """One GPU with its retained primary context (`context` is the raw handle)."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    context: int


_device_lock = threading.Lock()
_devices: dict[tuple[int, int], Device] = {}


def device(ordinal: int) -> Device:
    """The GPU called cuda:`ordinal`.  Its primary context is retained until the process ends."""
    key = (os.getpid(), ordinal)
    if key not in _devices:
        with _device_lock:
            if key not in _devices:
                _devices[key] = _retain(ordinal)
    return _devices[key]


def _retain(ordinal: int) -> Device:
    count = device_count()
    if not 0 <= ordinal < count:
        raise DriverError(f"There is no GPU {ordinal}; the driver sees {count}, numbered from 0.")
    handle = call("cuDeviceGet", ordinal)
    attribute = driver().CUdevice_attribute
    capability = tuple(
        int(call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), handle))
        for part in ("MAJOR", "MINOR")
    )
    name = call("cuDeviceGetName", 128, handle).split(b"\0")[0].decode()
    context = int(call("cuDevicePrimaryCtxRetain", handle))
    return Device(ordinal, name, (capability[0], capability[1]), context)


def target_of(gpu: Device) -> Target:
    """The target that describes this GPU; an error that names the supported ones where there is none."""
    major, minor = gpu.capability
    known = {t.name: t for t in all_targets() if t.vendor == "nvidia"}
    found = known.get(f"sm_{major}{minor}")
    if found is None:
        raise DriverError(
            f"GPU {gpu.ordinal} ({gpu.name}) has compute capability {major}.{minor}, which tlxc does not support; it "
            f"supports {', '.join(known)}."
        )
    return found


@contextmanager
def in_context(gpu: Device) -> Iterator[None]:
    """The GPU's primary context is current in this thread; what was current before is so again afterwards."""
    module = driver()
    call("cuCtxPushCurrent", module.CUcontext(gpu.context))
    try:
        yield
    finally:
        call("cuCtxPopCurrent")


def current_device() -> int:
    """The device of this thread's current context; 0 where it has none."""
    return 0 if int(call("cuCtxGetCurrent")) == 0 else int(call("cuCtxGetDevice"))


def pointer_device(address: int) -> int | None:
    """The device that the memory at `address` belongs to; None for an address that CUDA does not know."""
    module = driver()
    attribute = module.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = module.cuPointerGetAttribute(attribute, address)
    return None if int(status) else int(ordinal)


def is_capturing(gpu: Device, stream: int) -> bool:
    """Whether work put into `stream` goes into a CUDA graph instead of to the GPU."""
    module = driver()
    with in_context(gpu):
        status, state = module.cuStreamIsCapturing(module.CUstream(stream))
    # The legacy stream may not even be asked while another stream of its context is being captured.
    if module.CUresult(int(status)).name == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":
        return True
    _check(module, (status, state), "cuStreamIsCapturing")
    return int(state) != int(module.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


@dataclass(frozen=True)
class Function:
    """A kernel loaded on one device: `handle` launches it.  `registers` and `local_bytes` are per thread."""

    handle: int
    module: int
    gpu: Device
    registers: int
    local_bytes: int


PORTABLE_CLUSTER = 8  # CTAs of a cluster that every GPU with clusters can run


def load(cubin: bytes, name: str, gpu: Device, dynamic_shared: int = 0, cluster: int = 1) -> Function:
    """Loads a cubin on a device, now and not at the first launch; `dynamic_shared` bytes may then be launched with.
    `cluster`: CTAs of a cluster."""
    api = driver()
    attribute = api.CUfunction_attribute
    with in_context(gpu):
        module = call("cuModuleLoadData", cubin)
        function = call("cuModuleGetFunction", module, name.encode())
        if dynamic_shared:
            limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", function, limit, dynamic_shared)
        if cluster > PORTABLE_CLUSTER:
            larger = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            call("cuFuncSetAttribute", function, larger, 1)
        registers, local = (
            int(call("cuFuncGetAttribute", which, function))
            for which in (attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
        )
    return Function(int(function), int(module), gpu, registers, local)


@functools.cache
def address_of(name: str) -> int:
    """Address of a function of the driver's library, for native code; the library is the one that `driver` opened."""
    import ctypes
    import sys

    driver()
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address
