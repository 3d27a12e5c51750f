"""Matrix multiply."""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.types import DType, Tensor, bfloat16, float16, float32

from .core import builder, builtin, describe, name_of, tensor
from .shape import full

K_ATOM = 16  # the K extent of one f16 or bf16 matrix instruction, mma.sync and wgmma alike


@builtin
def dot(a: Any, b: Any, acc: Any = None, input_precision: str | None = None, out_dtype: DType = float32) -> tensor:
    """acc + a @ b: a (M, K), b (K, N) and acc (M, N), which is zero where it is absent; the result is (M, N) float32.

    dtypes: a and b both float16 or both bfloat16, acc float32.  Products are exact, the sum is float32 in an order that
    the hardware chooses.  K is a multiple of 16; which M and N exist depends on target and number of warps and is
    checked when the instruction is chosen: `wgmma` on sm_90 where 4 warps share 64 rows, else `mma.sync.m16n8k16`.
    `input_precision` has no effect on 16-bit operands, so only None is taken; `out_dtype` only float32.
    Targets: sm_90 and later.  Errors: another rank, inner extents that differ, another dtype, K no multiple of 16.
    Instruction: `wgmma.mma_async` or `mma.sync` (PTX ISA, "wgmma.mma_async", "mma").
    """
    _check_options(input_precision, out_dtype)
    m, k, n = _check_operands(a, b)
    if acc is None:
        acc = full((m, n), 0.0, float32)
    elif not isinstance(acc, tensor) or acc.type != Tensor((m, n), float32):
        raise CompileError(
            "the accumulator of dot has another type",
            found=describe(acc),
            allowed=f"a tile {(m, n)} of tl.float32",
            fix=f"start from tl.zeros({(m, n)}, tl.float32), or leave acc out and add to the result",
        )
    return tensor(builder().emit("dot", a.value, b.value, acc.value, type=Tensor((m, n), float32)))


def _check_options(input_precision: str | None, out_dtype: DType) -> None:
    if input_precision is not None:
        raise CompileError(
            "input_precision has no effect on float16 and bfloat16 operands",
            found=repr(input_precision),
            allowed="None",
            fix="leave it out",
        )
    if out_dtype != float32:
        raise CompileError(
            "dot accumulates in tl.float32",
            found=f"out_dtype={out_dtype!r}",
            allowed="tl.float32",
            fix="convert the result with `.to(...)`",
        )


def _check_operands(a: Any, b: Any) -> tuple[int, int, int]:
    """(M, K, N)."""
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, tensor) or len(x.shape) != 2:
            raise CompileError(
                f"dot multiplies tiles of rank 2, and {name} is none",
                found=describe(x),
                allowed="(M, K) and (K, N)",
                fix="insert an axis with x[:, None] or x[None, :], or give the tile its shape with tl.reshape",
            )
        if x.dtype not in (float16, bfloat16):
            raise CompileError(
                f"dot does not take {name} in this dtype",
                found=describe(x),
                allowed="tl.float16 or tl.bfloat16",
                fix="convert it with `.to(tl.float16)` or `.to(tl.bfloat16)`",
            )
    if a.dtype != b.dtype:
        raise CompileError(
            "dot takes two operands of one dtype",
            found=f"{name_of(a.dtype)} and {name_of(b.dtype)}",
            fix="convert one with `.to(...)`",
        )
    (m, k), (rows, n) = a.shape, b.shape
    if k != rows:
        raise CompileError(
            "the inner extents of dot differ",
            found=f"a is {a.shape}, b is {b.shape}",
            allowed="(M, K) and (K, N)",
            fix="transpose an operand with tl.trans(x)",
        )
    if k % K_ATOM:
        raise CompileError(
            f"the inner extent of dot is no multiple of {K_ATOM}",
            found=f"K = {k}; a is {a.shape}, b is {b.shape}",
            allowed=f"multiples of {K_ATOM}, the K of one matrix instruction on 16-bit elements",
            fix="load a wider tile, zero beyond the end (a mask without `other` gives 0)",
        )
    return m, k, n
