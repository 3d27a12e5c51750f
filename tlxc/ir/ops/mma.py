"""Matrix multiply."""

from __future__ import annotations

from ..core import Op
from ..table import require, row
from ..types import Buffer, Scalar, Tensor, bfloat16, element_of, float16, float32, int1, shape_of

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


def _async_dot(op: Op) -> None:
    a, b = (v.type for v in op.inputs[:2])
    (m, k), (k2, n) = shape_of(a), shape_of(b)
    require(k == k2, f"async_dot: the inner extents differ: {k} and {k2}")
    require(isinstance(b, Buffer) and b.count == 0, "async_dot: B is one buffer")
    require(isinstance(a, (Buffer, Tensor)), "async_dot: A is a buffer or a register tile")
    same = element_of(a) == element_of(b) and element_of(b) in (float16, bfloat16, float32)
    require(same, "async_dot: operands are f16, bf16 or f32 alike")
    require(shape_of(op.result.type) == (m, n) and element_of(op.result.type) == float32, "async_dot gives f32 [m, n]")
    acc = op.operands[2]
    require(acc is None or acc.type == op.result.type, "async_dot: accumulator and result have one type")
    use = op.operands[3]
    require(use is None or use.type == Scalar(int1), "async_dot: use_acc is an i1 scalar")
    require(use is None or acc is not None, "async_dot: use_acc says whether an accumulator is used")


def _wait(op: Op) -> None:
    require(
        [v.type for v in op.inputs] == [v.type for v in op.results] and bool(op.results),
        "async_dot_wait hands through the values that it waits for",
    )


row(
    "async_dot",
    "mma",
    "a b acc? use_acc?",
    1,
    traits="convergent reads_shared",
    verify=_async_dot,
    kinds="float",
    doc="acc + a @ b, or a @ b without acc or where use_acc is false, f32 operands as tf32; the result is pending "
    "until an async_dot_wait: "
    "`wgmma.fence`, `wgmma.mma_async`, `wgmma.commit_group`.",
)
row(
    "async_dot_wait",
    "mma",
    "values*",
    -1,
    "pendings",
    traits="convergent reads_shared",
    verify=_wait,
    kinds="float",
    doc="Waits until at most `pendings` groups are under way; its results are the values, ready where they are older: "
    "`wgmma.wait_group`.",
)
