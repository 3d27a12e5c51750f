"""What layout assignment needs to know of single ops: tiles, trip counts, accesses, dictated layouts, refusals."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tlxc.errors import CompileError
from tlxc.ir import layout as algebra
from tlxc.ir.core import Op, Value
from tlxc.ir.layout import Layout, LayoutError
from tlxc.ir.memory import Memory
from tlxc.ir.types import Pointer, Tensor, element_of, shape_of
from tlxc.passes.axis import AxisInfo, power_of_two
from tlxc.targets import fragments

UNKNOWN_TRIPS = 32  # a loop whose bounds are not constants
WIDEST_ACCESS = 16  # bytes


class Threads(NamedTuple):
    """The threads of a task."""

    lanes: int
    warps: int

    def __str__(self) -> str:
        return f"{self.warps} warps of {self.lanes} lanes"


def is_tile(v: Value | None) -> bool:
    return v is not None and isinstance(v.type, Tensor)


def tiles_of(op: Op) -> list[Value]:
    return [v for v in op.operands if v is not None and isinstance(v.type, Tensor)]


def elem_bytes(v: Value) -> int:
    return element_of(v.type).bytes


def default_layout(
    shape: tuple[int, ...],
    elem: int,
    threads: Threads,
    order: tuple[int, ...] | None = None,
    vector: int = WIDEST_ACCESS,
    warp_order: tuple[int, ...] | None = None,
    least: int = 1,
) -> Layout:
    """Coalesced along `order`: at most `vector` elements and 16 bytes per thread, all threads busy first, but not with
    fewer than `least` elements."""
    room = max(1, prod(shape) // (threads.lanes * threads.warps))
    vec = max(least, min(WIDEST_ACCESS // elem, vector, 1 << (room.bit_length() - 1)))
    return algebra.blocked(shape, order, vec, threads.lanes, threads.warps, warp_order)


def trip_count(op: Op) -> float:
    """Expected number of iterations: exact where the bounds of a `for` are constants."""
    if op.kind == "for":
        bounds = [v.op.attrs["value"] for v in op.inputs[:3] if v.op is not None and v.op.kind == "constant"]
        if len(bounds) == 3 and bounds[2]:
            return float(max(1, len(range(*bounds))))
    return UNKNOWN_TRIPS


def carried_inits(op: Op) -> list[Value]:
    return op.inputs[3:] if op.kind == "for" else op.inputs


def carried_args(op: Op, i: int) -> list[Value]:
    """Region arguments of slot i: one in `for`, one per region in `while`."""
    return [op.regions[0].args[i + 1]] if op.kind == "for" else [r.args[i] for r in op.regions]


def access_vector(info: AxisInfo, pointer: Value, mask: Value | None) -> int:
    """Elements that one access may take: contiguous, aligned, equally masked, at most 16 bytes."""
    element = element_of(pointer.type)
    assert isinstance(element, Pointer)
    elem, fastest = element.dtype.bytes, info.order(pointer)[0]
    aligned = info.divisibility(pointer, fastest) // elem
    out = min(power_of_two(info.contiguity(pointer, fastest)), power_of_two(aligned) if aligned else 1)
    if mask is not None:
        out = min(out, power_of_two(info.constancy(mask, fastest)))
    return max(1, min(out, WIDEST_ACCESS // elem))


def dot_layout(op: Op, role: str, warps: int) -> Layout | None:
    """Layout that the instruction of a dot dictates for `acc`, `a` or `b`; None where it reads shared memory."""
    tile = {"a": op.operands[0], "b": op.operands[1], "acc": op.result}[role]
    assert tile is not None
    rows, columns = shape_of(tile.type)
    if op.kind == "async_dot" and role == "a":
        return fragments.wgmma_a(rows, columns, warps, elem_bytes(tile))
    if op.kind == "async_dot" or op.attrs["impl"] == "wgmma":
        return fragments.wgmma_acc(rows, columns, warps) if role == "acc" else None
    return fragments.mma16816(role, (rows, columns), op.attrs["warps_mn"])


def check_reshape(op: Op, threads: Threads) -> None:
    """A reshape that would cut a repetition has no layout at all, whatever is chosen."""
    if op.kind != "reshape":
        return
    shape = shape_of(op.inputs[0].type)
    try:
        algebra.reshape(default_layout(shape, 4, threads), shape_of(op.result.type))
    except LayoutError as e:
        raise CompileError("this reshape has no layout", found=str(e), loc=op.loc) from e


def contiguous_first(memory: Memory) -> tuple[int, ...]:
    """Dimensions of a buffer, the contiguous one first, then the last first."""
    rank = len(memory.shape)
    fast = next((d for d in reversed(range(rank)) if memory.bases[d][:1] == (1,)), rank - 1)
    return (fast, *(d for d in reversed(range(rank)) if d != fast))


def check_pin(op: Op, a: Layout, threads: Threads) -> None:
    """A required layout is one of this tile on the threads of this task."""
    shape = shape_of(op.result.type)
    found = Threads(1 << len(a.lane), 1 << len(a.others))
    if a.shape == shape and found == threads and a.surjective():
        return
    raise CompileError(
        "the required layout does not fit its value",
        found=f"{a}, which is for {found}",
        allowed=f"layouts that cover all {algebra.shape_text(shape)} elements with {threads}",
        loc=op.loc,
    )


def pending_moves(v: Value, pin: Op | None) -> CompileError:
    """No layout lets a value stay in its registers while a matrix instruction writes them."""
    return CompileError(
        "the accumulator of an async_dot would change its layout before the dot is waited for",
        found=f"{v.name or 'a pending value'} with a required layout" if pin else f"{v.name or 'a pending value'}",
        allowed="the layout that the instruction leaves it in, up to the async_dot_wait",
        fix="wait with `tlx.async_dot_wait(0, acc)` first, then require the layout",
        loc=v.op.loc if v.op is not None else None,
        related=[("the layout is required", pin.loc)] if pin else [],
    )


def narrow_async_load(op: Op, run: int) -> CompileError:
    """cp.async has no form for fewer than 4 bytes."""
    return CompileError(
        "async_load needs runs of 4 bytes or more",
        found=f"addresses in runs of {run} bytes that are known to be contiguous, aligned and equally masked, for "
        f"a buffer {shape_of(op.inputs[1].type)} of {element_of(op.inputs[1].type)!r}",
        allowed="runs of 4, 8 or 16 bytes, along the contiguous dimension of the buffer",
        fix="annotate the alignment of the pointer and the divisibility of strides and bounds, or use tl.load and "
        "tlx.local_store",
        loc=op.loc,
    )
