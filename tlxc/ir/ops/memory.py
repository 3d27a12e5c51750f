"""Global memory: addresses, loads, stores, atomics."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import DType, Pointer, element_of, int1, int32, int64, shape_of

CACHE = ("", ".ca", ".cg", ".cs", ".wb", ".wt")
EVICTION = ("", "evict_first", "evict_last", "no_allocate")
LEVELS = ("L1", "L2")


def _pointer(op: Op) -> Pointer:
    p = element_of(op.inputs[0].type)
    require(isinstance(p, Pointer), f"{op.kind}: the address is a pointer, found {p}")
    assert isinstance(p, Pointer)
    return p


def _one_shape(op: Op) -> None:
    shapes = {shape_of(v.type) for v in (*op.inputs, *op.results)}
    require(len(shapes) == 1, f"{op.kind}: shapes differ: {sorted(shapes)}")


def _mask(op: Op, position: int) -> None:
    m = op.operands[position]
    require(m is None or element_of(m.type) == int1, f"{op.kind}: the mask is i1")


def _addptr(op: Op) -> None:
    _one_shape(op)
    p = _pointer(op)
    require(element_of(op.inputs[1].type) in (int32, int64), "addptr: the offset is i32 or i64")
    require(element_of(op.result.type) == p, "addptr keeps the pointer type")


def _load(op: Op) -> None:
    _one_shape(op)
    p = _pointer(op)
    _mask(op, 1)
    require(element_of(op.result.type) == p.dtype, f"load through {p} gives {p.dtype}")
    other = op.operands[2]
    require(other is None or element_of(other.type) == p.dtype, "load: `other` has the element type")
    require(other is None or op.operands[1] is not None, "load: `other` without a mask")


def _store(op: Op) -> None:
    _one_shape(op)
    p = _pointer(op)
    _mask(op, 2)
    require(element_of(op.inputs[1].type) == p.dtype, f"store through {p} takes {p.dtype}")


def _prefetch(op: Op) -> None:
    _one_shape(op)
    _pointer(op)
    _mask(op, 1)
    require(op.attrs["level"] in LEVELS, f"prefetch: level is one of {', '.join(LEVELS)}")


def _atomic(op: Op) -> None:
    _store(op)
    e = element_of(op.result.type)
    require(op.attrs["op"] == "add", "atomic_rmw: only add")
    require(isinstance(e, DType) and e == _pointer(op).dtype, "atomic_rmw gives the old value")


row(
    "addptr",
    "memory",
    "ptr offset",
    1,
    traits="pure elementwise cheap",
    verify=_addptr,
    kinds="int pointer",
    doc="Address of the element `offset` elements further; 64-bit arithmetic.",
)
row(
    "load",
    "memory",
    "ptr mask? other?",
    1,
    "",
    "cache eviction",
    traits="reads_global",
    verify=_load,
    kinds="bool int uint float",
    doc="Gathers elements from global memory, as wide as contiguity, alignment and mask allow (`ld.global.v4.b32`, "
    "`global_load_dwordx4`).  Masked elements are `other`, or 0 without it.  A scalar load reads one address.",
)
row(
    "store",
    "memory",
    "ptr value mask?",
    0,
    "",
    "cache eviction",
    traits="writes_global",
    verify=_store,
    kinds="bool int uint float",
    doc="Scatters elements to global memory, each once even where threads hold copies.",
)
row(
    "atomic_rmw",
    "memory",
    "ptr value mask?",
    1,
    "op sem scope",
    traits="reads_global writes_global",
    verify=_atomic,
    kinds="int uint float",
    doc="Atomic add, once per element, giving the old value (0 where masked).  `sem` relaxed, acquire, release or "
    "acq_rel; `scope` cta, gpu or sys: `atom.add`.",
)
row(
    "prefetch",
    "memory",
    "ptr mask?",
    0,
    "level",
    traits="reads_global",
    verify=_prefetch,
    doc="Asks for the cache lines of the addresses, once for neighbours: `prefetch.global.L1`, `prefetch.global.L2`.",
)
