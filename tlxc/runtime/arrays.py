"""What the runtime knows of arrays: torch tensors, other arrays on a GPU, and the dtypes that stand for them."""

from __future__ import annotations

import sys
from typing import Any

from tlxc.ir import types as ir

_ARRAY_DTYPES = {t.name: t for t in ir.DTYPES.values()} | {"bool": ir.int1}
_INTERFACE_KINDS = {"f": "float", "i": "int", "u": "uint"}


def is_array(value: Any) -> bool:
    return (hasattr(value, "data_ptr") and hasattr(value, "dtype")) or hasattr(value, "__cuda_array_interface__")


def is_numpy(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def dtype_of(array_dtype: Any) -> ir.DType | None:
    """The dtype that a dtype of torch, NumPy or tlxc means; None where tlxc has none."""
    if isinstance(array_dtype, ir.DType):
        return array_dtype
    return _ARRAY_DTYPES.get(str(array_dtype).rpartition(".")[2])


def interface_dtype(typestr: str) -> Any:
    """The dtype of a `__cuda_array_interface__`, or its text where tlxc has none."""
    kind, size = typestr[1], int(typestr[2:])
    name = "bool" if kind == "b" else f"{_INTERFACE_KINDS.get(kind, kind)}{size * 8}"
    return _ARRAY_DTYPES.get(name, typestr)


def stand_in(value: Any) -> ir.DType | None:
    """The dtype that stands for a pointer to it: of tlxc or torch, or a pointer type."""
    if isinstance(value, ir.Pointer):
        return value.dtype
    if isinstance(value, ir.DType):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.dtype):
        return dtype_of(value)
    return None
