"""Matrix products with a float32 accumulator."""

from __future__ import annotations

import numpy as np

from tlxc.ir.core import Op

from .dtypes import F32, Value

_TF32 = np.uint32(0xFFFFE000)


def matmul(op: Op, a: Value, b: Value, acc: Value | None) -> Value:
    """a @ b, plus `acc` where there is one, for `dot` and `async_dot`; operands that lie in buffers come as arrays.

    Products of f16, bf16 and tf32 are exact in float32; their sum is formed in float32 over K first, in the order of
    the BLAS, then with the accumulator.  f32 operands are tf32: the low 13 bits of the fraction are dropped."""
    product = np.matmul(_widened(a), _widened(b))
    return product if acc is None else product + acc


def _widened(x: Value) -> Value:
    if x.dtype == F32:
        return (np.ascontiguousarray(x).view(np.uint32) & _TF32).view(F32)
    return x.astype(F32)
