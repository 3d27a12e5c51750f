"""Types of tile IR values.

`Scalar`, `Pointer`, `Tensor` and `Buffer` are immutable and compare by value.  A tensor's or buffer's layout is None
until layout assignment has run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from .layout import Layout
    from .memory import Memory

# Uniformity of a scalar, from the narrowest to the widest set of threads that agree on its value.
UNIFORMITY = ("thread", "warp", "task")


@dataclass(frozen=True)
class DType:
    """An element type: `kind` is one of bool, int, uint, float; `bits` its width (bool is stored as one byte)."""

    name: str
    kind: str
    bits: int
    short: str

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Integers of either sign, without bool."""
        return self.kind in ("int", "uint")

    @property
    def signed(self) -> bool:
        return self.kind == "int"

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of a bool or integer type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"tl.{self.name}"


int1 = DType("int1", "bool", 1, "i1")
int8, int16, int32, int64 = (DType(f"int{n}", "int", n, f"i{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DType(f"uint{n}", "uint", n, f"u{n}") for n in (8, 16, 32, 64))
float16 = DType("float16", "float", 16, "f16")
bfloat16 = DType("bfloat16", "float", 16, "bf16")
float32 = DType("float32", "float", 32, "f32")

DTYPES: dict[str, DType] = {
    t.short: t for t in (int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32)
}


@dataclass(frozen=True)
class Scalar:
    """One number, held by every thread; `uniform` says which threads agree on it."""

    dtype: DType
    uniform: str = "task"

    def __str__(self) -> str:
        return self.dtype.short if self.uniform == "task" else f"{self.dtype.short}@{self.uniform}"


@dataclass(frozen=True)
class Pointer:
    """A 64-bit address of elements of `dtype` in `space`; as a value of its own it is uniform over the task."""

    dtype: DType
    space: str = "global"

    @property
    def bits(self) -> int:
        return 64

    @property
    def bytes(self) -> int:
        return 8

    def __str__(self) -> str:
        return f"ptr<{self.dtype}>" if self.space == "global" else f"ptr<{self.dtype}, {self.space}>"


Element = Union[DType, Pointer]


@dataclass(frozen=True)
class Tensor:
    """A tile in registers, distributed over the threads of the task by `layout`."""

    shape: tuple[int, ...]
    element: Element
    layout: Layout | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)

    def with_layout(self, layout: Layout | None) -> Tensor:
        return replace(self, layout=layout)

    def __str__(self) -> str:
        body = "x".join(map(str, self.shape)) + f"x{self.element}"
        return f"tensor<{body}>" if self.layout is None else f"tensor<{body}, {{{self.layout}}}>"


@dataclass(frozen=True)
class Buffer:
    """A tile in shared memory, or an array of `count` such tiles (0: one tile, not an array).

    `storage`: smem, or smem_cluster for the same place in another CTA of the cluster.  `layout` maps the coordinates of
    one tile to element offsets; tiles of an array follow each other, `tile_bytes` apart.  In storage that several
    allocations share, `group` tiles follow each other so, and such groups start `pitch` bytes apart (0: no groups).
    """

    shape: tuple[int, ...]
    dtype: Element
    storage: str = "smem"
    layout: Memory | None = None
    count: int = 0
    pitch: int = 0
    group: int = 1

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile: the extent of its layout, or the packed size while it has none."""
        elements = prod(self.shape) if self.layout is None else self.layout.extent
        return elements * self.dtype.bytes

    @property
    def nbytes(self) -> int:
        """Bytes from the start of the first tile to the end of the last."""
        return self.tile_offset(max(1, self.count) - 1) + self.tile_bytes

    def tile_offset(self, index: int) -> int:
        """Bytes from the first tile of an array to another one."""
        if not self.pitch:
            return index * self.tile_bytes
        return index // self.group * self.pitch + index % self.group * self.tile_bytes

    def __str__(self) -> str:
        array = f"{self.count} * " if self.count else ""
        body = array + "x".join(map(str, self.shape)) + f"x{self.dtype}, {self.storage}"
        if self.pitch:
            body += f", pitch {self.pitch}" + f" group {self.group}" * (self.group > 1)
        return f"buffer<{body}>" if self.layout is None else f"buffer<{body}, {{{self.layout}}}>"


@dataclass(frozen=True)
class Barrier:
    """An mbarrier in shared memory, 8 bytes, or an array of `count` (0: one).  `warp`: every thread arrives "
    "by itself."""

    count: int = 0
    warp: bool = False

    @property
    def nbytes(self) -> int:
        return 8 * max(1, self.count)

    def __str__(self) -> str:
        words = [str(self.count)] * bool(self.count) + ["warp"] * self.warp
        return f"barrier<{', '.join(words)}>" if words else "barrier"


@dataclass(frozen=True)
class Descriptor:
    """A TMA tensor map: blocks of `shape` elements of `dtype` in global memory.  `box_layout` is the layout of the
    buffers that it fills or reads, set by the buffer-layout pass; swizzle and hardware box follow from it."""

    shape: tuple[int, ...]
    dtype: DType
    box_layout: Memory | None = None

    def __str__(self) -> str:
        body = "x".join(map(str, self.shape)) + f"x{self.dtype}"
        return f"desc<{body}>" if self.box_layout is None else f"desc<{body}, {{{self.box_layout}}}>"


@dataclass(frozen=True)
class Token:
    """Marks asynchronous work; nothing at run time."""

    def __str__(self) -> str:
        return "token"


Type = Union[Scalar, Pointer, Tensor, Buffer, Barrier, Descriptor, Token]


def agreement(t: Type) -> int:
    """Which threads agree on a value, as a position in UNIFORMITY; on what is no number, the whole task does."""
    return UNIFORMITY.index(t.uniform) if isinstance(t, Scalar) else len(UNIFORMITY) - 1


def element_of(t: Type) -> Element:
    """Element of a tensor; a scalar's, buffer's or descriptor's dtype; a pointer itself.  Barriers have none: int64."""
    if isinstance(t, Tensor):
        return t.element
    if isinstance(t, (Scalar, Buffer, Descriptor)):
        return t.dtype
    return t if isinstance(t, Pointer) else int64


def shape_of(t: Type) -> tuple[int, ...]:
    return t.shape if isinstance(t, (Tensor, Buffer)) else ()


def like(t: Type, element: Element) -> Type:
    """The type with the shape (and layout) of `t` and another element; scalars keep their uniformity."""
    if isinstance(t, Tensor):
        return replace(t, element=element)
    if isinstance(element, Pointer):
        return element
    return Scalar(element, t.uniform if isinstance(t, Scalar) else "task")
