"""Layouts of tiles and buffers that a kernel author names, pins and prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.layout import Layout, LayoutError, from_shape_stride
from tlxc.ir.memory import Memory, row_major, widest_swizzle, xor_swizzled
from tlxc.ir.types import DType, Pointer

from .context import current
from .core import builder, builtin, describe, tensor

Modes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, init=False)
class layout:
    """A register layout in Shape:Stride form: `layout(shape=(thread, value), stride=(thread, value))`.

    Each of the four entries is a flat tuple of ints; a mode (extent, stride) steps through the row-major flattened
    tile.  Thread modes count threads, first mode fastest, lanes before warps; value modes count the registers of a
    thread.  A stride of 0 replicates.  The thread extents multiply to lanes x warps of the task, and every element is
    reached.  Odd extents exist among the value modes only.  Equal and hashed by the four tuples, so it may be a
    constexpr argument.

    Example, one row of a (128, 64) tile per thread of 4 warps: `layout(shape=((128,), (64,)), stride=((64,), (1,)))`.
    """

    shape: Modes
    stride: Modes

    def __new__(cls, shape: Any, stride: Any = None) -> Any:
        """`layout(swizzled_layout(...))` is that layout of a buffer."""
        return shape if isinstance(shape, swizzled_layout) else super().__new__(cls)

    def __init__(self, shape: Sequence[Sequence[int]], stride: Sequence[Sequence[int]]) -> None:
        for name, groups in (("shape", shape), ("stride", stride)):
            object.__setattr__(self, name, _checked(name, groups))
        for name, extents, strides in zip(("thread", "value"), self.shape, self.stride):
            if len(extents) != len(strides):
                raise CompileError(
                    f"the {name} shape and the {name} stride of a layout differ in length",
                    found=f"shape {extents}, stride {strides}",
                    allowed="one stride for each extent",
                )

    def resolve(self, tile_shape: tuple[int, ...], lanes: int, warps: int) -> Layout:
        """The layout of a tile in a task of `warps` warps of `lanes` lanes."""
        try:
            return from_shape_stride(tile_shape, self.shape, self.stride, lanes, warps)
        except LayoutError as error:
            raise CompileError(f"this layout does not fit a tile {tile_shape}", found=str(error)) from error

    def __repr__(self) -> str:
        return f"tlx.layout(shape={self.shape}, stride={self.stride})"


def _checked(name: str, groups: Any) -> Modes:
    """A pair of flat, non-empty tuples of ints; extents positive, strides not negative."""
    lowest = 1 if name == "shape" else 0
    pair = isinstance(groups, (tuple, list)) and len(groups) == 2
    if not pair or not all(
        isinstance(g, (tuple, list)) and g and all(isinstance(n, int) and n >= lowest for n in g) for g in groups
    ):
        raise CompileError(
            f"the {name} of a layout is a pair of flat tuples",
            found=repr(groups),
            allowed=f"(thread {name}, value {name}), each a tuple of one or more ints from {lowest} on",
            fix="write ((128,), (64,)), not (128, 64)",
        )
    thread, value = groups
    return tuple(thread), tuple(value)


@dataclass(frozen=True)
class swizzled_layout:
    """A layout of a buffer in shared memory: rows one after the other, in which vectors of 2**base elements are
    permuted.  Vector q of row r lies at q ^ (r // P % 2**bits), where P = 2**(shift + base) / (extent of a row).

    `order`: the dimensions, the contiguous one first; the last one where it is left out.  bits = 0 is no swizzle.
    `tlx.layout(swizzled_layout(...))` is the same.  Goes into `tlx.local_alloc(layout=...)`, which checks that it fits:
    a swizzle takes buffers of rank 2 whose rows are powers of two.
    Example, what TMA and wgmma call a 128-byte swizzle, of rows of 64 float16: `swizzled_layout(3, 3, 3)`.
    """

    bits: int
    base: int = 0
    shift: int = 0
    order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            n = getattr(self, name)
            if not isinstance(n, int) or n < 0:
                summary = f"{name} of swizzled_layout is a number of bits"
                raise CompileError(summary, found=repr(n), allowed="0, 1, 2, ...")
        if self.order is not None:
            object.__setattr__(self, "order", tuple(self.order))

    @classmethod
    def make_default(cls, rank: int) -> swizzled_layout:
        """Rows one after the other, the last dimension contiguous, of a buffer of so many dimensions."""
        return cls(0, order=tuple(reversed(range(rank))))

    def resolve(self, shape: tuple[int, ...], elem: int) -> Memory:
        """The layout of a buffer of elements of `elem` bytes."""
        order = tuple(reversed(range(len(shape)))) if self.order is None else self.order
        if sorted(order) != list(range(len(shape))):
            raise self._misfit(shape, f"the order {order} names other dimensions than those of the buffer")
        outer_first = tuple(reversed(order))
        turned = tuple(shape[d] for d in outer_first)
        back = tuple(outer_first.index(d) for d in range(len(shape)))
        return (self._swizzled(shape, turned, elem) if self.bits else row_major(turned)).transpose(back)

    def _swizzled(self, shape: tuple[int, ...], turned: tuple[int, ...], elem: int) -> Memory:
        """Of rows and columns.  What the hardware swizzles so too is that layout."""
        if len(turned) != 2:
            raise self._misfit(shape, f"a swizzle of {len(turned)} dimensions")
        rows, columns = turned
        phase, rest = divmod(1 << (self.shift + self.base), columns)
        if phase < 1 or rest:
            raise self._misfit(shape, f"a phase of 2**({self.shift} + {self.base}) / {columns} rows")
        try:
            made = xor_swizzled((rows, columns), 1 << self.base, phase, 1 << self.bits)
        except LayoutError as error:
            raise self._misfit(shape, str(error)) from error
        dense = widest_swizzle(turned, elem)
        return dense if (dense.bits, dense.bases, dense.reps) == (made.bits, made.bases, made.reps) else made

    def _misfit(self, shape: tuple[int, ...], found: str) -> CompileError:
        return CompileError(
            f"this swizzled_layout does not fit a buffer {shape}",
            found=found,
            allowed="bits = 0 for any shape; else rank 2, rows of a power of two of at least 2**(bits + base) elements "
            "and at most 2**(shift + base)",
            fix="leave the layout out, and the compiler takes the widest swizzle that TMA and wgmma read",
        )


def memory_layout(wanted: Any, shape: tuple[int, ...], element: DType) -> Memory:
    """A layout of the user for a buffer."""
    if not isinstance(wanted, swizzled_layout):
        raise CompileError(
            "the layout of local_alloc is one of shared memory",
            found=describe(wanted) if not isinstance(wanted, layout) else repr(wanted),
            allowed="tlx.swizzled_layout(bits, base, shift)",
            fix="leave it out, or pin tiles with tlx.require_layout",
        )
    return wanted.resolve(shape, element.bytes)


@builtin
def require_layout(x: Any, layout: layout, pin: bool = True) -> tensor:
    """`x` in the given register layout, which the compiler may not change; it spreads forward to what is computed from
    x.

    `x`: a tile of numbers; `layout`: a `tlx.layout` whose thread extents are the threads of the task.  Two pins that
    meet in one operation are an error that names both.  `pin=False` would be a wish without effect and is refused.
    Targets: all.  Errors: a scalar or pointers; a layout that does not fit the tile or the number of warps.
    Instruction: none, or the conversion that it makes necessary (`shfl.sync`, shared memory).
    """
    if not isinstance(x, tensor) or not x.shape or isinstance(x.dtype, Pointer):
        raise CompileError(
            "require_layout takes a tile of numbers", found=describe(x), allowed="tiles; a scalar has no layout"
        )
    if pin is not True:
        raise CompileError(
            "require_layout without a pin has no effect",
            found=f"pin={pin!r}",
            allowed="pin=True",
            fix="drop the call, or pin the layout",
        )
    return tensor(builder().emit("require_layout", x.value, type=x.type, layout=_resolved(layout, x.shape)))


def _resolved(wanted: Any, tile_shape: tuple[int, ...]) -> Layout:
    """A layout of the user for a tile of the task that is being built."""
    if not isinstance(wanted, layout):
        raise CompileError(
            "require_layout takes a tlx.layout",
            found=describe(wanted),
            fix="write tlx.layout(shape=(thread, value), stride=(thread, value))",
        )
    context = current()
    return wanted.resolve(tile_shape, context.target.warp_size, context.num_warps)


@builtin
def dump_layout(x: Any) -> None:
    """Prints the layout that the compiler chose for `x` to stderr, once per call site, when the kernel is compiled:

        // tlx.dump_layout @ <file>:<line>
        //   type: <type of the value>
        //   cute: ((thread modes),(value modes)):((strides),(strides))

    Any tile, pointers included.  Targets: all.  Errors: a scalar, which has no layout.  No instruction.
    """
    if not isinstance(x, tensor) or not x.shape:
        raise CompileError("dump_layout takes a tile", found=describe(x), allowed="tiles; a scalar has no layout")
    builder().op("dump_layout", (x.value,))
