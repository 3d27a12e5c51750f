"""Host time of one launch, as a ratio to the driver's floor: `cuLaunchKernelEx` again and again in a native loop.

`kernel[grid](...)` with 6 and with 20 arguments, a prepared launch, and three TMA descriptors that are built from
tensors at each call; beside them raw cuda.bindings, `torch.add` and Triton where it is installed.  Each figure is the
median over samples of 400 launches back to back; contestants take turns, and the queue is drained between samples.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

import _harness

import tlxc
from tlxc import tl, tlx

LAUNCHES, SAMPLES = 400, 40
BLOCK = (64, 64)
Contestant = Callable[[], Any]


@tlxc.kernel
def six_arguments(x: tl.ptr(tl.float32), y: tl.ptr(tl.float32), z: tl.ptr(tl.float32), n, stride, offset):
    """Stores nothing: every program lies past the end."""
    index = tl.program_id(0) * stride + offset
    if index > n:
        tl.store(z + index, tl.load(x + index) + tl.load(y + index))


@tlxc.kernel
def twenty_arguments(a, b, c, d, e, f, n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, s0, s1, s2, s3):
    """Stores nothing, but what it would store depends on all arguments."""
    index = tl.program_id(0) * n0 + n1 + n2 + n3 + n4 + n5 + n6 + n7 + n8
    if index > n9:
        value = tl.load(a + index) + tl.load(b + index) + tl.load(c + index) + tl.load(d + index) + tl.load(e + index)
        tl.store(f + index, value * s0 * s1 * s2 * s3)


@tlxc.kernel
def three_descriptors(
    a: tlx.tensor_descriptor_type(tl.float16, BLOCK),
    b: tlx.tensor_descriptor_type(tl.float16, BLOCK),
    c: tlx.tensor_descriptor_type(tl.float16, BLOCK),
    n,
):
    """Copies nothing, but would copy by all three."""
    if n > 1 << 20:
        buf = tlx.local_alloc(a.block_shape, tl.float16, 1)
        bar = tlx.alloc_barriers(1)
        tlx.barrier_expect_bytes(bar[0], 2 * a.block_shape[0] * a.block_shape[1] * 2)
        tlx.async_descriptor_load(a, buf[0], [0, 0], bar[0])
        tlx.async_descriptor_load(b, buf[0], [n, 0], bar[0])
        tlx.barrier_wait(bar[0], 0)
        tlx.async_descriptor_store(c, buf[0], [0, 0])
        tlx.async_descriptor_store_wait(0)


class Raw:
    """A compiled kernel with everything prepared for `cuLaunchKernelEx`: the addresses of configuration and values."""

    def __init__(self, compiled: Any, arguments: tuple[Any, ...]) -> None:
        import torch
        from cuda.bindings import driver

        _, self._library = driver.cuLibraryLoadData(compiled.asm["cubin"], [], [], 0, [], [], 0)
        _, kernel = driver.cuLibraryGetKernel(self._library, compiled.name.encode())
        self.config = driver.CUlaunchConfig()
        self.config.gridDimX, self.config.gridDimY, self.config.gridDimZ = 1, 1, 1
        self.config.blockDimX, self.config.blockDimY, self.config.blockDimZ = compiled.metadata["threads"], 1, 1
        self.config.hStream = torch.cuda.current_stream().cuda_stream
        values = [
            ctypes.c_uint64(a.data_ptr()) if hasattr(a, "data_ptr")
            else ctypes.c_float(a) if isinstance(a, float) else ctypes.c_int32(a)
            for a in arguments
        ]  # fmt: skip
        self._values = values
        self._packed = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        self.function, self.packed = driver.CUfunction(int(kernel)), ctypes.addressof(self._packed)
        self._launch = driver.cuLaunchKernelEx

    def __call__(self) -> None:
        (status,) = self._launch(self.config, self.function, self.packed, 0)
        assert status == 0, status


def native_loop() -> Callable[[Raw], None]:
    """A function that launches `LAUNCHES` times without Python in between: the least that any launch can cost."""
    import llvmlite.binding as llvm

    from tlxc.runtime import cuda

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = f"""
define i32 @loop(ptr %config, ptr %function, ptr %params) {{
entry:
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  %any = phi i32 [ 0, %entry ], [ %any.next, %next ]
  %status = call i32 inttoptr (i64 {cuda.address_of("cuLaunchKernelEx")} to ptr)(ptr %config, ptr %function,
      ptr %params, ptr null)
  %any.next = or i32 %any, %status
  %i.next = add i32 %i, 1
  %more = icmp ult i32 %i.next, {LAUNCHES}
  br i1 %more, label %next, label %done
done:
  ret i32 %any.next
}}
"""
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(text), llvm.Target.from_default_triple().create_target_machine()
    )
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    call = kind(engine.get_function_address("loop"))

    def loop(raw: Raw) -> None:
        assert call(raw.config.getPtr(), int(raw.function), raw.packed) == 0

    loop.engine = engine  # type: ignore[attr-defined]
    return loop


def triton_launch(arguments: tuple[Any, ...]) -> Contestant | None:
    try:
        import triton
    except ImportError:
        return None

    @triton.jit
    def empty(x, y, z, n, stride, offset):  # type: ignore[no-untyped-def]
        pass

    return lambda: empty[(1,)](*arguments)


def measure(contestants: dict[str, Contestant], floor: Callable[[], None]) -> dict[str, list[float]]:
    """Microseconds per launch; `floor` launches `LAUNCHES` times in one call."""
    import torch

    samples: dict[str, list[float]] = {name: [] for name in (*contestants, "floor")}
    for call in contestants.values():
        call()
    for _ in range(SAMPLES):
        for name, call in contestants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                call()
            samples[name].append(1e6 * (time.perf_counter() - start) / LAUNCHES)
        torch.cuda.synchronize()
        start = time.perf_counter()
        floor()
        samples["floor"].append(1e6 * (time.perf_counter() - start) / LAUNCHES)
    return samples


def main() -> None:
    import torch

    x, y, z = (torch.zeros(1024, device="cuda") for _ in range(3))
    six = (x, y, z, 7, 3, 11)
    twenty = (x, y, z, x, y, z, *range(2, 12), 0.5, 1.5, 2.5, 3.5)
    a, b, c = (torch.zeros(256, 256, device="cuda", dtype=torch.float16) for _ in range(3))
    raw = Raw(six_arguments[(1,)](*six), six)
    loop = native_loop()
    contestants: dict[str, Contestant] = {
        "6 arguments": lambda: six_arguments[(1,)](*six),
        "prepared": six_arguments.prepare(*six, grid=(1,)),
        "20 arguments": lambda: twenty_arguments[(1,)](*twenty),
        "3 descriptors from tensors": lambda: three_descriptors[(1,)](a, b, c, 7),
        "3 TensorDescriptor.from_tensor": lambda: three_descriptors[(1,)](
            *(tlxc.TensorDescriptor.from_tensor(t, BLOCK) for t in (a, b, c)), 7
        ),
    }
    peers: dict[str, Contestant] = {"cuda.bindings": raw, "torch.add": lambda: torch.add(x, y, out=z)}
    if (triton := triton_launch(six)) is not None:
        peers["triton"] = triton
    samples = measure(contestants | peers, lambda: loop(raw))
    floor = statistics.median(samples["floor"])
    records = []
    for case in contestants:
        shown = {"tlxc": samples[case], "floor": samples["floor"]}
        record = _harness.record("launch", case, "host time", "us", shown | {p: samples[p] for p in peers})
        record["ratio_floor"] = statistics.median(samples[case]) / floor
        records.append(record)
    _harness.write("launch", records)


if __name__ == "__main__":
    main()
