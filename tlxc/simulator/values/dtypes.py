"""NumPy dtypes of IR elements."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tlxc.ir.types import DTYPES, DType, Element, Pointer

# A tile (numpy.ndarray) or a scalar (numpy.generic); both have dtype, shape and astype.
Value = Any


def _numpy(dtype: DType) -> np.dtype[Any]:
    if dtype.kind == "bool":
        return np.dtype(np.bool_)
    return np.dtype(getattr(ml_dtypes, dtype.name) if hasattr(ml_dtypes, dtype.name) else dtype.name)


STORAGE = {short: _numpy(dtype) for short, dtype in DTYPES.items()}
ADDRESS = np.dtype(np.int64)
F32, F64, F16, BF16 = (np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16))
FLOATS = frozenset(STORAGE[short] for short, dtype in DTYPES.items() if dtype.is_float)


def storage(element: Element) -> np.dtype[Any]:
    """The dtype in which values of an element type are held: int64 byte addresses for pointers."""
    return ADDRESS if isinstance(element, Pointer) else STORAGE[element.short]


def quiet() -> np.errstate:
    """The context of a run: NumPy neither warns of overflow, NaN and division by zero nor looks for them."""
    return np.errstate(all="ignore")
