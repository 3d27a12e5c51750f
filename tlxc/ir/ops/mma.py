"""Matrix multiply."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Tensor, bfloat16, element_of, float16, float32, shape_of

IMPLEMENTATIONS = ("wgmma", "mma.sync")


def _dot(op: Op) -> None:
    a, b, c = (v.type for v in op.inputs)
    (m, k), (k2, n) = shape_of(a), shape_of(b)
    require(k == k2, f"dot: the inner extents differ: {k} and {k2}")
    require(shape_of(c) == shape_of(op.result.type) == (m, n), f"dot: the accumulator is {m}x{n}")
    require(
        element_of(a) == element_of(b) and element_of(a) in (float16, bfloat16), "dot: operands are f16 or bf16 alike"
    )
    require(element_of(c) == element_of(op.result.type) == float32, "dot accumulates in f32")
    require(isinstance(op.result.type, Tensor), "dot gives a tile")
    require(op.attrs.get("impl", "wgmma") in IMPLEMENTATIONS, f"dot: impl is one of {', '.join(IMPLEMENTATIONS)}")


row(
    "dot",
    "mma",
    "a b acc",
    1,
    "",
    "impl warps_mn",
    traits="pure convergent",
    verify=_dot,
    kinds="float",
    doc="acc + a @ b.  `impl` wgmma: operands from shared memory (a may be in registers), complete when the op is; "
    "mma.sync: m16n8k16 from registers.  Products are exact, the sum is fp32 in an order the hardware chooses.",
)
