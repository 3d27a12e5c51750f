"""Asynchronous matrix multiply on Hopper: `wgmma` on buffers in shared memory."""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.core import Value
from tlxc.ir.types import DType, Tensor, bfloat16, float16, float32

from .context import current
from .core import builder, builtin, describe, literal_int, name_of, tensor
from .handles import buffered_tensor, items_of, one_buffer, predicate, require_feature

GROUP_ROWS = 64  # rows of one wgmma, shared by the 4 warps of a warpgroup
GROUP_WARPS = 4
K_BYTES = 32  # K of one wgmma
MAX_N = 256


@builtin
def async_dot(
    A: Any,
    B: Any,
    acc: Any = None,
    use_acc: Any = None,
    pred: Any = None,
    mBarriers: Any = (),
    two_ctas: bool = False,
    force_async: bool = False,
    input_precision: str | None = None,
    out_dtype: DType = float32,
) -> tensor:
    """Starts acc + A @ B: A (M, K) a buffer or a tile in registers, B (K, N) a buffer; the result is a tile (M, N) of
    float32 that is pending until `async_dot_wait` hands it out.

    dtypes: A and B both float16, bfloat16 or float32; acc float32, absent for zero.  `use_acc`: a bool scalar, false
    for A @ B alone, as `use_acc=k > 0` in a loop over k.  float32 is multiplied as tf32 (`input_precision` None or
    "tf32"): the hardware reads 10 bits of the fraction, and takes only buffers whose contiguous dimension is K.  A
    pending accumulator may only go into the next `async_dot` or a wait; one that is complete and used again after the
    dot is copied before, which the notes of the compilation say.
    `tlx.local_trans` views give the transposed operands.  M is a multiple of 64, N one of 8 up to 256, K one of 16, of
    float32 one of 8; the task has a multiple of 4 warps.
    `pred`, `mBarriers`, `two_ctas`, `force_async` belong to tensor memory and are refused here.
    Targets: sm_90.  Errors: other shapes, dtypes or numbers of warps; buffers of rank other than 2.
    Instruction: `wgmma.mma_async` (PTX ISA, "wgmma.mma_async") and `wgmma.commit_group`.
    """
    require_feature("wgmma", "async_dot on registers")
    _refuse_tensor_memory(pred, mBarriers, two_ctas, force_async, out_dtype)
    left, right = _operand_a(A), one_buffer(B, "B of async_dot")
    m, n = _check_shapes(left, right)
    _check_precision(input_precision, right)
    _check_warps()
    kind = Tensor((m, n), float32)
    start, use = _accumulator(acc, use_acc, kind)
    return tensor(builder().emit("async_dot", left.value, right.value, start, use, type=kind))


def _refuse_tensor_memory(pred: Any, barriers: Any, two_ctas: Any, force_async: Any, out_dtype: Any) -> None:
    given = {"pred": pred is not None, "mBarriers": bool(items_of(barriers, "mBarriers")), "two_ctas": two_ctas is True,
             "force_async": force_async is True}  # fmt: skip
    for name, present in given.items():
        if present:
            raise CompileError(
                f"async_dot has no `{name}` on {current().target.name}",
                found="an argument of dots into tensor memory, which this target does not have",
                fix=f"leave {name} out; wait for the product with tlx.async_dot_wait",
            )
    if out_dtype != float32:
        raise CompileError(
            "async_dot accumulates in tl.float32", found=describe(out_dtype), fix="convert the result with `.to(...)`"
        )


def _check_precision(precision: Any, b: buffered_tensor) -> None:
    if precision is None or (precision == "tf32" and b.dtype == float32):
        return
    raise CompileError(
        "input_precision of async_dot says how float32 is multiplied, and tf32 is the only way",
        found=f"{describe(precision)} for {name_of(b.dtype)}",
        allowed='None, and "tf32" for tl.float32',
        fix="leave it out",
    )


def _operand_a(a: Any) -> buffered_tensor | tensor:
    if isinstance(a, tensor) and a.shape:
        return a
    if isinstance(a, buffered_tensor):
        return one_buffer(a, "A of async_dot")
    raise CompileError("A of async_dot is a buffer or a tile", found=describe(a))


def _check_shapes(a: buffered_tensor | tensor, b: buffered_tensor) -> tuple[int, int]:
    """(M, N)."""
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise CompileError(
            "async_dot multiplies operands of rank 2",
            found=f"{describe(a)} and {describe(b)}",
            allowed="(M, K) and (K, N)",
            fix="reshape a buffer with tlx.local_reshape",
        )
    for name, x in (("A", a), ("B", b)):
        if x.dtype not in (float16, bfloat16, float32):
            raise CompileError(
                f"async_dot does not take {name} in this dtype",
                found=describe(x),
                allowed="tl.float16, tl.bfloat16, or tl.float32 as tf32",
                fix="keep floats in the buffer; convert tiles with `.to(...)` before tlx.local_store",
            )
    if a.dtype != b.dtype:
        found = f"{name_of(a.dtype)} and {name_of(b.dtype)}"
        raise CompileError("async_dot takes two operands of one dtype", found=found)
    (m, k), (rows, n) = a.shape, b.shape
    if k != rows:
        raise CompileError(
            "the inner extents of async_dot differ",
            found=f"A is {a.shape}, B is {b.shape}",
            allowed="(M, K) and (K, N)",
            fix="transpose an operand with tlx.local_trans(buf)",
        )
    limits = (("M", m, GROUP_ROWS, None), ("N", n, 8, MAX_N), ("K", k, K_BYTES // b.dtype.bytes, None))
    for name, extent, step, most in limits:
        if extent % step or (most is not None and extent > most):
            raise CompileError(
                f"{name} of async_dot is out of range",
                found=f"{name} = {extent}; A is {a.shape}, B is {b.shape}",
                allowed=f"multiples of {step}" + (f" up to {most}" if most else ""),
                fix="split B by columns into several dots with tlx.local_slice" if most and extent > most else "",
            )
    return m, n


def _check_warps() -> None:
    warps = current().num_warps
    if warps % GROUP_WARPS:
        raise CompileError(
            "async_dot is issued by whole warpgroups",
            found=f"a task of {warps} warps",
            allowed=f"multiples of {GROUP_WARPS} warps",
            fix="write tlx.async_task(num_warps=4), or use tl.dot on tiles in registers",
        )


def _accumulator(acc: Any, use_acc: Any, kind: Tensor) -> tuple[Value | None, Value | None]:
    """The accumulator, and at run time whether it is used; None for what is always or never so."""
    if acc is not None and (not isinstance(acc, tensor) or acc.type != kind):
        raise CompileError(
            "the accumulator of async_dot has another type",
            found=describe(acc),
            allowed=f"a tile {kind.shape} of tl.float32",
            fix=f"start from tl.zeros({kind.shape}, tl.float32), or leave acc out",
        )
    use = None if use_acc is False else predicate(use_acc, "use_acc")
    return (None, None) if acc is None or use_acc is False else (acc.value, use)


@builtin
def async_dot_wait(pendings: int, inp: Any) -> Any:
    """Waits until at most `pendings` of the newest async dots of the task are under way, and hands out `inp`: one tile,
    or several as a tuple.  What belongs to an older dot is ready in the result, the others stay pending.

    The buffers that completed dots read may be written again.  Targets: sm_90.  Errors: a negative number; no tile.
    Instruction: `wgmma.wait_group` (PTX ISA, "wgmma.wait_group").
    """
    require_feature("wgmma", "async_dot_wait")
    count = literal_int(pendings, "pendings")
    if count < 0:
        raise CompileError("pendings counts dots that may be under way", found=str(count), allowed="0, 1, 2, ...")
    items = (inp,) if isinstance(inp, tensor) else items_of(inp, "the second argument of async_dot_wait")
    wrong = [x for x in items if not isinstance(x, tensor) or not x.shape]
    if wrong or not items:
        raise CompileError(
            "async_dot_wait takes the results of async_dot",
            found=describe(wrong[0]) if wrong else "no value",
            fix="write acc = tlx.async_dot_wait(0, acc)",
        )
    values = [x.value for x in items]
    results = builder().op("async_dot_wait", values, [v.type for v in values], pendings=count).results
    return tensor(results[0]) if isinstance(inp, tensor) else tuple(map(tensor, results))
