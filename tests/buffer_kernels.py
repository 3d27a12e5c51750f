"""A builder for kernels with buffers, TMA, async dots and tasks."""

from __future__ import annotations

from collections.abc import Callable

from assign_kernels import Kernel

from tlxc.errors import Location
from tlxc.ir.core import Op, Region, Value
from tlxc.ir.memory import Memory
from tlxc.ir.types import (
    Barrier,
    Buffer,
    Descriptor,
    DType,
    Pointer,
    Scalar,
    Tensor,
    Token,
    float16,
    float32,
    int32,
    shape_of,
)


def buffer_of(v: Value) -> Buffer:
    assert isinstance(v.type, Buffer)
    return v.type


class BufferKernel(Kernel):
    """`act` appends an op without results; every op has its own line number."""

    def act(self, kind: str, *operands: Value | None, **attrs) -> Op:
        self.line += 1
        self.b.loc = Location("kernel.py", self.line)
        return self.b.op(kind, operands, **attrs)

    # -- buffers
    def alloc(
        self,
        shape: tuple[int, ...],
        dtype: DType = float16,
        count: int = 0,
        layout: Memory | None = None,
        name: str = "",
    ) -> Value:
        attrs = {} if layout is None else {"pinned": True}
        return self.emit("local_alloc", type=Buffer(shape, dtype, "smem", layout, count), name=name, **attrs)

    def view(self, array: Value, index: int = 0) -> Value:
        b = buffer_of(array)
        return self.emit("local_view", array, self.const(index), type=Buffer(b.shape, b.dtype))

    def trans(self, buf: Value, order: tuple[int, ...] = (1, 0)) -> Value:
        b = buffer_of(buf)
        return self.emit("local_trans", buf, type=Buffer(tuple(b.shape[d] for d in order), b.dtype), order=order)

    def slice(self, buf: Value, offsets: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        return self.emit("local_slice", buf, type=Buffer(shape, buffer_of(buf).dtype), offsets=offsets)

    def reinterpret(self, buf: Value, shape: tuple[int, ...], dtype: DType, count: int = 0) -> Value:
        return self.emit("local_reinterpret", buf, type=Buffer(shape, dtype, "smem", None, count))

    def local_load(self, buf: Value, name: str = "") -> Value:
        return self.emit("local_load", buf, type=Tensor(buffer_of(buf).shape, buffer_of(buf).dtype), name=name)

    def local_store(self, buf: Value, x: Value) -> Op:
        return self.act("local_store", buf, x)

    # -- copies
    def pointer(self, dtype: DType = float16) -> Value:
        return self.param(Pointer(dtype), align=16)

    def descriptor(self, shape: tuple[int, ...], dtype: DType = float16) -> Value:
        return self.param(Descriptor(shape, dtype))  # type: ignore[arg-type]

    def barrier(self) -> Value:
        return self.emit("alloc_barriers", type=Barrier(), arrive_count=1)

    def tma_load(self, desc: Value, buf: Value) -> Op:
        zeros = [self.const(0) for _ in desc.type.shape]  # type: ignore[union-attr]
        return self.act("tma_load", desc, buf, self.barrier(), None, None, *zeros)

    def tma_store(self, desc: Value, buf: Value) -> Op:
        return self.act("tma_store", desc, buf, *[self.const(0) for _ in desc.type.shape])  # type: ignore[union-attr]

    def async_load(self, pointer: Value, buf: Value, mask: Value | None = None) -> Value:
        return self.emit("async_load", pointer, buf, mask, None, type=Token())

    # -- products
    def async_dot(self, a: Value, b: Value, acc: Value | None = None, name: str = "") -> Value:
        m, n = shape_of(a.type)[0], shape_of(b.type)[1]
        return self.emit("async_dot", a, b, acc, None, type=Tensor((m, n), float32), name=name)

    def wait(self, pendings: int, *values: Value, name: str = "") -> Value:
        self.line += 1
        self.b.loc = Location("kernel.py", self.line)
        op = self.b.op("async_dot_wait", values, [v.type for v in values], pendings=pendings)
        op.results[0].name = name
        return op.results[0]

    def operands(self, m: int = 64, n: int = 64, k: int = 64, dtype: DType = float16) -> tuple[Value, Value]:
        return self.alloc((m, k), dtype), self.alloc((k, n), dtype)

    # -- tasks
    def tasks(self, *bodies: tuple[int, Callable[[], object]]) -> Op:
        """(warps, body) of each task, the default one first."""
        regions, starts, start = [], [], 0
        for warps, body in bodies:
            regions.append(Region())
            with self.inside(regions[-1]):
                body()
            starts.append(start)
            start += -(-warps // 4) * 4
        n = len(bodies)
        attrs = {"num_warps": tuple(w for w, _ in bodies), "start_warp": tuple(starts)}
        return self.b.op("async_tasks", regions=regions, num_regs=(0,) * n, replica=(0,) * n, **attrs)

    def thread_id(self) -> Value:
        return self.emit("thread_id", type=Scalar(int32, "thread"), axis=0)
