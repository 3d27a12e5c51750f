"""Making tiles and relabelling their elements."""

from __future__ import annotations

from math import prod

from ..core import Op
from ..table import require, row
from ..types import Tensor, element_of, int32, shape_of


def _arange(op: Op) -> None:
    t, n = op.result.type, op.attrs["end"] - op.attrs["start"]
    require(isinstance(t, Tensor) and t.shape == (n,) and t.element == int32, "arange gives i32 of extent end - start")


def _splat(op: Op) -> None:
    require(shape_of(op.inputs[0].type) == () and shape_of(op.result.type) != (), "splat takes a scalar to a tile")
    _element(op)


def _element(op: Op) -> None:
    for r in op.results:
        require(element_of(r.type) == element_of(op.inputs[0].type), f"{op.kind} keeps the element type")


def _expand(op: Op) -> None:
    _element(op)
    s, axis = shape_of(op.inputs[0].type), op.attrs["axis"]
    require(shape_of(op.result.type) == s[:axis] + (1,) + s[axis:], "expand_dims inserts an extent of 1 at `axis`")


def _broadcast(op: Op) -> None:
    _element(op)
    s, t = shape_of(op.inputs[0].type), shape_of(op.result.type)
    require(len(s) == len(t) and all(a in (1, b) for a, b in zip(s, t)), f"broadcast cannot take {s} to {t}")


def _reshape(op: Op) -> None:
    _element(op)
    s, t = shape_of(op.inputs[0].type), shape_of(op.result.type)
    require(prod(s) == prod(t), f"reshape keeps the number of elements: {s} to {t}")


def _permute(op: Op) -> None:
    _element(op)
    s, order = shape_of(op.inputs[0].type), op.attrs["order"]
    require(sorted(order) == list(range(len(s))), f"permute: {order} is no permutation")
    require(shape_of(op.result.type) == tuple(s[d] for d in order), "permute: result extent i is extent order[i]")


def _join(op: Op) -> None:
    _element(op)
    a, b = (v.type for v in op.inputs)
    require(a == b and shape_of(op.result.type) == (*shape_of(a), 2), "join stacks two equal tiles on a new last axis")


def _split(op: Op) -> None:
    _element(op)
    s = shape_of(op.inputs[0].type)
    require(s[-1] == 2 or s[-1] % 2 == 1, "split takes a last extent of 2, or an odd one, apart")
    require(
        len(op.results) == s[-1] and all(shape_of(r.type) == s[:-1] for r in op.results),
        "split has a result for each element along the last axis",
    )


def _same_but_layout(op: Op) -> None:
    _element(op)
    require(shape_of(op.inputs[0].type) == shape_of(op.result.type), f"{op.kind} keeps the shape")


row(
    "arange",
    "shape",
    "",
    1,
    "start end",
    traits="pure cheap",
    verify=_arange,
    kinds="int",
    doc="start, start+1 .. end-1 as i32; no instruction but index arithmetic from the thread index.",
)
row(
    "splat",
    "shape",
    "x",
    1,
    traits="pure cheap",
    verify=_splat,
    kinds="bool int uint float pointer",
    doc="A tile with one scalar in every element; no instruction.",
)
row(
    "expand_dims",
    "shape",
    "x",
    1,
    "axis",
    traits="pure relabel",
    verify=_expand,
    kinds="bool int uint float pointer",
    doc="Inserts an extent of 1 at `axis`; no instruction.",
)
row(
    "broadcast",
    "shape",
    "x",
    1,
    traits="pure relabel",
    verify=_broadcast,
    kinds="bool int uint float pointer",
    doc="Repeats extents of 1; no instruction.",
)
row(
    "reshape",
    "shape",
    "x",
    1,
    traits="pure relabel",
    verify=_reshape,
    kinds="bool int uint float pointer",
    doc="Another shape, row-major element order kept; no instruction.",
)
row(
    "permute",
    "shape",
    "x",
    1,
    "order",
    traits="pure relabel",
    verify=_permute,
    kinds="bool int uint float pointer",
    doc="Result axis i is operand axis order[i]; no instruction.",
)
row(
    "join",
    "shape",
    "a b",
    1,
    traits="pure relabel",
    verify=_join,
    kinds="bool int uint float pointer",
    doc="Stacks two tiles along a new last axis of extent 2; no instruction.",
)
row(
    "split",
    "shape",
    "x",
    -1,
    traits="pure relabel",
    verify=_split,
    kinds="bool int uint float pointer",
    doc="The parts along a last axis of extent 2 or an odd one; no instruction.",
)
row(
    "convert_layout",
    "shape",
    "x",
    1,
    traits="pure convergent",
    verify=_same_but_layout,
    kinds="bool int uint float pointer",
    doc="The same tile in another layout: register moves, selects or warp shuffles (`shfl.sync`, `ds_bpermute`); a "
    "trip through shared memory is rewritten to local_alloc, local_store, local_load before code generation.",
)
row(
    "require_layout",
    "shape",
    "x",
    1,
    "layout",
    traits="pure relabel",
    verify=_same_but_layout,
    kinds="bool int uint float",
    doc="Pins the layout of a value; it spreads forward.  No instruction beyond the conversion it may cause.",
)
row(
    "dump_layout",
    "shape",
    "x",
    0,
    verify=lambda op: None,
    kinds="bool int uint float pointer",
    doc="Prints the layout that was chosen for a value to stderr while compiling; no instruction.",
)
