"""Buffers, mbarriers, tensor descriptors and tokens as a kernel holds them, and checks of arguments that name one."""

from __future__ import annotations

from typing import Any, NoReturn

from tlxc.errors import CompileError
from tlxc.ir.core import Value
from tlxc.ir.types import Barrier, Buffer, Descriptor, DType, Element, Scalar, Token, int1, int32

from .context import current
from .core import as_tensor, builder, constant, convert, describe, handle, name_of, tensor
from .promotion import is_literal


class buffered_tensor(handle):
    """A tile in shared memory, or an array of such tiles: what `tlx.local_alloc` and the views give.

    `.shape` and `.dtype` are those of one tile; `buf[i]` is one tile of an array, i an int or an int32 scalar.
    """

    __slots__ = ()

    @property
    def buffer(self) -> Buffer:
        assert isinstance(self.value.type, Buffer)
        return self.value.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of one tile."""
        return self.buffer.shape

    @property
    def dtype(self) -> Element:
        """The element dtype."""
        return self.buffer.dtype

    def describe(self) -> str:
        b = self.buffer
        tile = f"{b.shape} of {name_of(b.dtype)}"
        return f"an array of {b.count} buffers {tile}" if b.count else f"a buffer {tile}"

    def __getitem__(self, index: Any) -> buffered_tensor:
        b = self.buffer
        at = index_of(index, b.count, self)
        one = Buffer(b.shape, b.dtype, b.storage, b.layout)
        return buffered_tensor(builder().emit("local_view", self.value, at, type=one))


class mbarrier(handle):
    """An mbarrier in shared memory, or an array of them: what `tlx.alloc_barriers` gives; `bar[i]` is one of them."""

    __slots__ = ()

    @property
    def barrier(self) -> Barrier:
        assert isinstance(self.value.type, Barrier)
        return self.value.type

    def describe(self) -> str:
        warp = "warp " if self.barrier.warp else ""
        return f"an array of {self.barrier.count} {warp}barriers" if self.barrier.count else f"a {warp}barrier"

    def __getitem__(self, index: Any) -> mbarrier:
        at = index_of(index, self.barrier.count, self)
        return mbarrier(builder().emit("barrier_view", self.value, at, type=Barrier(0, self.barrier.warp)))


class remote_mbarrier(handle):
    """The mbarrier in the same place of another CTA of the cluster: what `tlx.remote_view` gives."""

    __slots__ = ()

    def describe(self) -> str:
        return "the remote_view of a barrier"


class tensor_descriptor(handle):
    """A tensor in global memory that TMA copies by blocks: a parameter made on the host, or made by the kernel."""

    __slots__ = ()

    @property
    def descriptor(self) -> Descriptor:
        assert isinstance(self.value.type, Descriptor)
        return self.value.type

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Extents of one block, innermost last."""
        return self.descriptor.shape

    @property
    def dtype(self) -> DType:
        """The element dtype."""
        return self.descriptor.dtype

    def describe(self) -> str:
        return f"a descriptor of blocks {self.block_shape} of {self.dtype!r}"

    def load(self, offsets: Any) -> tensor:
        """The block at `offsets` as a tile: `async_descriptor_load` to a buffer of its own, a wait, `local_load`."""
        from . import tma

        return tma.descriptor_load(self, offsets)

    def store(self, offsets: Any, value: Any) -> None:
        """Writes a tile to the block at `offsets` and waits for memory: `local_store` to a buffer of its own,
        `async_descriptor_store`, a wait.  No offset is negative."""
        from . import tma

        tma.descriptor_store(self, offsets, value)


class made_descriptor(tensor_descriptor):
    """A descriptor that the kernel made: it also has the `shape` and the `strides` that it was given, in elements."""

    __slots__ = ("shape", "strides")

    def __init__(self, value: Value, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> None:
        super().__init__(value)
        self.shape, self.strides = shape, strides


class descriptor_slot(handle):
    """Memory of the CTA for one descriptor: what indexing the result of `tlx.allocate_tensor_descriptor` gives."""

    __slots__ = ()

    def describe(self) -> str:
        return "a slot for a descriptor"


class descriptor_slots(handle):
    """An array of slots for descriptors: what `tlx.allocate_tensor_descriptor` gives; `slots[i]` is one of them."""

    __slots__ = ()

    @property
    def count(self) -> int:
        """How many slots there are."""
        assert self.value.op is not None
        return int(self.value.op.attrs["count"])

    def describe(self) -> str:
        return f"an array of {self.count} slots for descriptors"

    def __getitem__(self, index: Any) -> descriptor_slot:
        at = index_of(index, self.count, self)
        return descriptor_slot(builder().emit("descriptor_slot", self.value, at, type=self.value.type))


class async_token(handle):
    """Stands for asynchronous copies that were started, to order groups by; nothing at run time."""

    __slots__ = ()

    def describe(self) -> str:
        return "a token of asynchronous copies"


_CLASSES: dict[type, type[handle]] = {
    Buffer: buffered_tensor,
    Barrier: mbarrier,
    Descriptor: tensor_descriptor,
    Token: async_token,
}


def wrap(value: Value) -> tensor | handle:
    """An IR value as the kernel holds it."""
    return _CLASSES.get(type(value.type), tensor)(value)


# -------------------------------------------------------------------------------------------------------- arguments
def scalar_i32(x: Any, what: str) -> Value:
    """An int, or an integer scalar that the whole task agrees on, as an i32 value."""
    if is_literal(x) and not isinstance(x, (bool, float)):
        return constant(x, int32).value
    scalar = isinstance(x, tensor) and not x.shape and isinstance(x.dtype, DType)
    if not scalar or not x.dtype.is_int:
        raise CompileError(
            f"{what} is an integer scalar",
            found=describe(x),
            allowed="ints, and run-time integer scalars",
            fix="convert it with `.to(tl.int32)`" if scalar else "",
        )
    check_uniform(x, what)
    return convert(x, int32).value


def check_uniform(x: tensor, what: str) -> None:
    """An error for a scalar that differs between the threads of the task."""
    if isinstance(x.type, Scalar) and x.type.uniform != "task":
        raise CompileError(
            f"{what} differs between the threads of the task",
            found=f"a value that is known per {x.type.uniform} only",
            allowed="values that all threads of the task agree on",
        )


def predicate(x: Any, what: str = "pred") -> Value | None:
    """A bool or an i1 scalar as a value; None for what is always true."""
    if x is None or x is True:
        return None
    value = as_tensor(x) if is_literal(x) or isinstance(x, tensor) else None
    if value is None or value.shape or value.dtype != int1:
        fix = f"compare: {what}=i > 0, or {what}=x != 0"
        raise CompileError(f"{what} is a bool scalar", found=describe(x), fix=fix)
    check_uniform(value, what)
    return value.value


def index_of(index: Any, count: int, whole: handle) -> Value:
    """The index of one element of an array of `count`, which is 0 for what is no array."""
    name = {buffered_tensor: "buffer", descriptor_slots: "slot"}.get(type(whole), "barrier")
    if not count:
        fix = "take a part of it with tlx.local_slice" if name == "buffer" else "use it without an index"
        raise CompileError(f"only an array of {name}s is indexed", found=whole.describe(), fix=fix)
    if isinstance(index, int) and not isinstance(index, bool) and not 0 <= index < count:
        raise CompileError(
            f"the index of a {name} is out of range",
            found=f"{index} in {whole.describe()}",
            allowed=f"0 to {count - 1}",
        )
    return scalar_i32(index, f"the index of a {name}")


def one_buffer(x: Any, what: str) -> buffered_tensor:
    """A single buffer; an array is an error that says to index it."""
    if not isinstance(x, buffered_tensor):
        raise CompileError(
            f"{what} is a buffer in shared memory", found=describe(x), fix="allocate it with tlx.local_alloc"
        )
    if x.buffer.count:
        raise CompileError(f"{what} is one buffer", found=x.describe(), fix="index the array: buf[i]")
    return x


def one_barrier(x: Any, what: str) -> mbarrier:
    """A single barrier; an array is an error that says to index it."""
    if isinstance(x, remote_mbarrier):
        raise CompileError(
            f"{what} is a remote_view",
            found=x.describe(),
            allowed="a barrier of this CTA",
            fix="pass the barrier itself: barrier_arrive(bar, remote_cta_rank=rank) arrives in another CTA, and a CTA "
            "waits at its own barriers",
        )
    if not isinstance(x, mbarrier):
        raise CompileError(f"{what} is an mbarrier", found=describe(x), fix="allocate it with tlx.alloc_barriers")
    if x.barrier.count:
        raise CompileError(f"{what} is one barrier", found=x.describe(), fix="index the array: bar[i]")
    return x


def a_descriptor(x: Any, what: str) -> tensor_descriptor:
    if not isinstance(x, tensor_descriptor):
        raise CompileError(
            f"{what} is a tensor descriptor",
            found=describe(x),
            fix="pass a tlxc.TensorDescriptor as an argument, or make one with tlx.make_tensor_descriptor",
        )
    return x


def items_of(x: Any, what: str) -> tuple[Any, ...]:
    """A tuple (lists are tuples in a kernel), or a range that came as a compile-time argument."""
    if not isinstance(x, (tuple, list, range)):
        raise CompileError(f"{what} is a list", found=describe(x), fix="write [x] for one item")
    return tuple(x)


def require_feature(feature: str, what: str) -> None:
    """An error where the target lacks a feature."""
    target = current().target
    if feature not in target.features:
        raise CompileError(
            f"{what} does not exist on {target.name}",
            found=f"a target without the feature {feature}",
            fix="compile for a target that has it, or choose the code by target",
        )


def not_yet(feature: str, what: str, fix: str) -> NoReturn:
    """The refusal of what needs a feature that some targets have and that tlxc does not compile for yet."""
    require_feature(feature, what)
    raise CompileError(
        f"{what} is not supported yet",
        found=f"a target that has the feature {feature}, {current().target.name}, for which tlxc has no such code",
        fix=fix,
    )


def require_cluster(what: str) -> None:
    """An error in a kernel that is launched without clusters."""
    x, y, z = builder().module.cluster
    if x * y * z == 1:
        raise CompileError(
            f"{what} reaches into other CTAs of a cluster, but this kernel has none",
            found="a cluster of one CTA",
            fix="give the kernel a cluster, for example @tlxc.kernel(ctas_per_cga=(2, 1, 1))",
        )
