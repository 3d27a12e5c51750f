"""Register layouts that a kernel author names, pins and prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.layout import Layout, LayoutError, from_shape_stride
from tlxc.ir.types import Pointer

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
