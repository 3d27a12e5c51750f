"""A CUDA driver that records launches, and arrays that pretend to live on its GPUs: the runtime's tests need no GPU.

Native code calls the fakes through C function pointers, as it calls the real driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

from tlxc.ir import types as ir
from tlxc.runtime import artifact, cuda, descriptor, kernel, native
from tlxc.runtime.entries import Entry

_P = ctypes.c_void_p


class Dtype:
    """Prints as torch's dtypes do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


float16, float32, float64, int32, bfloat16 = map(Dtype, ("float16", "float32", "float64", "int32", "bfloat16"))


class Array:
    """What the runtime sees of a torch tensor.  `device` -1 is the CPU."""

    def __init__(
        self, dtype: Dtype = float16, device: int = 0, address: int = 0x10000, shape: tuple[int, ...] = ()
    ) -> None:
        self.dtype, self.address, self._ordinal, self.shape = dtype, address, device, shape

    def stride(self) -> tuple[int, ...]:
        return tuple(prod(self.shape[d + 1 :]) for d in range(len(self.shape)))

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self._ordinal

    @property
    def device(self) -> Any:
        kind = "cpu" if self._ordinal < 0 else "cuda"
        text = kind if self._ordinal < 0 else f"cuda:{self._ordinal}"
        return type("Device", (), {"type": kind, "__str__": lambda self: text})()


@dataclass
class Launch:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    function: int
    context: int
    words: list[int]
    launch_pdl: bool


@dataclass
class FakeDriver:
    """`parameters` says how many words the next launches pass; `status` is what they return, `lost` what waiting for
    the GPU returns."""

    parameters: int = 0
    status: int = 0
    lost: int = 0
    current: int = 0
    capturing: bool = False
    launches: list[Launch] = field(default_factory=list)
    loads: list[tuple[bytes, str, int]] = field(default_factory=list)
    maps: list[dict[str, Any]] = field(default_factory=list)
    memory: list[tuple[str, int, int]] = field(default_factory=list)  # ("alloc", bytes) or ("free", address), stream

    def __post_init__(self) -> None:
        make = ctypes.PYFUNCTYPE
        self._functions = {
            "cuLaunchKernelEx": make(ctypes.c_int, _P, _P, _P, _P)(self._launch),
            "cuCtxGetCurrent": make(ctypes.c_int, _P)(self._get),
            "cuCtxPushCurrent_v2": make(ctypes.c_int, _P)(self._push),
            "cuCtxPopCurrent_v2": make(ctypes.c_int, _P)(self._pop),
            "cuMemAllocAsync": make(ctypes.c_int, _P, ctypes.c_size_t, ctypes.c_size_t)(self._allocate),
            "cuMemFreeAsync": make(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)(lambda *freed: self.free(*freed)[0]),
            "cuTensorMapEncodeTiled": make(ctypes.c_int, _P, *[ctypes.c_int] * 2, *[_P] * 5, *[ctypes.c_int] * 4)(
                self._encode
            ),
        }
        self._stack: list[int] = []

    def address_of(self, name: str) -> int:
        address = ctypes.cast(self._functions[name], _P).value
        assert address is not None
        return address

    def _launch(self, config: int, function: int, params: int, extra: int | None) -> int:
        raw = ctypes.string_at(config, 56)
        fields = struct.unpack("<7I", raw[:28])
        stream, attributes, count = struct.unpack("<QQI", raw[32:52])
        assert (bool(attributes), extra) == (bool(count), None)
        dependent = [struct.unpack("<IIi", ctypes.string_at(attributes, 12)) for _ in range(count)] == [(6, 0, 1)]
        assert dependent == bool(count)
        pointers = (_P * self.parameters).from_address(params)
        words = [int.from_bytes(ctypes.string_at(p or 0, 8), "little") for p in pointers]
        shape = (fields[:3], fields[3:6], fields[6])
        self.launches.append(Launch(*shape, stream, function, self.current, words, dependent))
        return self.status

    def encode(self, out: int, type_: int, rank: int, address: int, shape: Any, strides: Any, box: Any, steps: Any,
               *options: int) -> int:  # fmt: skip
        """cuTensorMapEncodeTiled; its map starts with the address."""
        lists = {"shape": shape, "strides": strides, "box": box, "steps": steps}
        names = ("interleave", "swizzle", "l2", "fill")
        self.maps.append({"type": type_, "rank": rank, "address": address, **{n: list(v) for n, v in lists.items()},
                          **dict(zip(names, options))})  # fmt: skip
        ctypes.memmove(out, struct.pack("<Q120x", address), 128)
        assert out % 64 == 0
        return self.status

    def _encode(self, out: int, type_: int, rank: int, address: int, shape: int, strides: int, box: int, steps: int,
                *options: int) -> int:  # fmt: skip
        wide, narrow = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        outer = (ctypes.c_uint64 * (rank - 1)).from_address(strides)
        lists = (wide.from_address(shape), [*outer, 0], narrow.from_address(box), narrow.from_address(steps))
        return self.encode(out, type_, rank, address, *lists, *options)

    def _allocate(self, out: int, size: int, stream: int) -> int:
        status, _P.from_address(out).value = self.allocate(size, stream)
        return status

    def allocate(self, size: int, stream: int) -> tuple[int, int]:
        """cuMemAllocAsync."""
        self.memory.append(("alloc", size, stream))
        return 0, 0x700000 + 0x1000 * len(self.memory)

    def free(self, address: int, stream: int) -> tuple[int]:
        """cuMemFreeAsync."""
        self.memory.append(("free", address, stream))
        return (0,)

    def _get(self, out: int) -> int:
        _P.from_address(out).value = self.current
        return 0

    def _push(self, context: int) -> int:
        self._stack.append(self.current)
        self.current = context
        return 0

    def _pop(self, out: int) -> int:
        _P.from_address(out).value = self.current
        self.current = self._stack.pop()
        return 0

    def device(self, ordinal: int) -> cuda.Device:
        if ordinal not in (0, 1):
            raise cuda.DriverError(f"There is no GPU {ordinal}; the driver sees 2, numbered from 0.")
        return cuda.Device(ordinal, "fake", (9, 0), 0x1000 + ordinal)

    def load(
        self, cubin: bytes, name: str, gpu: cuda.Device, dynamic_shared: int = 0, cluster: int = 1
    ) -> cuda.Function:
        self.loads.append((cubin, name, gpu.ordinal))
        return cuda.Function(0x5000 + len(self.loads), 1, gpu, 16, 0)


def install(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Puts the runtime on two fake GPUs."""
    made = FakeDriver()
    monkeypatch.setattr(cuda, "device", made.device)
    monkeypatch.setattr(cuda, "load", made.load)
    monkeypatch.setattr(cuda, "cuda_version", lambda: (13, 0))
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "is_capturing", lambda gpu, stream: made.capturing)
    api = {"CUresult": _result, "CUstream": int, "cuMemAllocAsync": made.allocate, "cuMemFreeAsync": made.free,
           "cuCtxSynchronize": lambda: (made.lost,)}  # fmt: skip
    monkeypatch.setattr(cuda, "driver", lambda: SimpleNamespace(**api))
    monkeypatch.setattr(cuda, "in_context", lambda gpu: contextlib.nullcontext())
    monkeypatch.setattr(descriptor, "_encoder", lambda: made.encode)
    monkeypatch.setattr(kernel, "torch_stream", lambda: None)
    monkeypatch.setattr(native, "_functions", native.Native(made.address_of))
    return made


def _result(status: int) -> Any:
    return SimpleNamespace(name={719: "CUDA_ERROR_LAUNCH_FAILED"}[status])


def install_compiler(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Makes compilation instant and its code invalid; returns the list of the signatures that are compiled."""
    calls: list[Any] = []

    def compile_(source: Any, signature: Any, target: Any, assembler: Any) -> Entry:
        calls.append(signature)
        metadata = {"name": source.name, "target": target.name, "num_warps": signature.num_warps, "shared": 64,
                    "threads": 32 * signature.num_warps, "maxnreg": signature.maxnreg, "registers": 16,
                    "cluster": list(signature.cluster), "params": [_facts(a.type) for _, a in signature.arguments],
                    "notes": [], "workspace": 0, "waits_for_grid": "gdc_wait" in source.text}  # fmt: skip
        return Entry(metadata, {"cubin": f"code {len(calls)}".encode(), "ptx": "text"})

    monkeypatch.setattr(artifact, "_compile", compile_)
    return calls


def _facts(type_: Any) -> dict[str, Any]:
    """Of a descriptor, the tensor map that the code wants: boxes as large as the block, 128-byte swizzle."""
    return {"box": list(type_.shape), "swizzle": 128, "stored": False} if isinstance(type_, ir.Descriptor) else {}
