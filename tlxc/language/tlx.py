"""`tlx`: the low-level part of the language.  Every name here may be used in a kernel; the docstrings are the
reference."""

from __future__ import annotations

from typing import Any

from tlxc.ir.types import DType, Pointer

from .core import as_tensor, builtin, check_dtype
from .layout import dump_layout, layout, require_layout


@builtin
def dtype_of(x: Any) -> DType:
    """The element dtype of a scalar or tile, of what a pointer points to, or of a literal by itself: a compile-time
    value.
    Targets: all.  Errors: values without a dtype.  No instruction."""
    element = x if isinstance(x, (DType, Pointer)) else as_tensor(x).dtype
    return element.dtype if isinstance(element, Pointer) else element


@builtin
def size_of(dtype: Any) -> int:
    """The size of an element in bytes (a bool takes 1, a pointer 8): a compile-time int.
    Targets: all.  Errors: anything but a dtype or pointer type.  No instruction."""
    return dtype.bytes if isinstance(dtype, Pointer) else check_dtype(dtype).bytes


__all__ = ["dtype_of", "dump_layout", "layout", "require_layout", "size_of"]
