"""Types of run-time parameters as text, for annotations and command lines.

`i32`, `f32`, `*f16` (a pointer), `desc<64x128xf16>` (a descriptor of such blocks); `i32:16` promises a multiple of 16,
`*f16:16` an address that is a multiple of 16 bytes.  dtypes are spelt short, in full (`float16`), or as `fp16`, `fp32`.
"""

from __future__ import annotations

import re

from tlxc.errors import TlxcError
from tlxc.frontend.signature import Argument
from tlxc.ir import types as ir
from tlxc.language.annotation import aligned, divisible, tensor_descriptor_type

_DTYPES = {t.short: t for t in ir.DTYPES.values()} | ir.DTYPES | {"fp16": ir.float16, "fp32": ir.float32}
_PLAIN = re.compile(r"(\*?)(\w+)(?::(\d+))?")
_BLOCK = re.compile(r"desc<((?:\d+x)+)(\w+)>")


class TypeTextError(TlxcError, ValueError):
    """A text that begins as a type and is none."""


def parse_type(text: str) -> Argument | None:
    """The type that a text means; None for one that names no dtype.

    Raises `TypeTextError` for an unknown dtype after `*` or in `desc<>`, `CompileError` for a promise that no value can
    keep.
    """
    if block := _BLOCK.fullmatch(text):
        extents = tuple(map(int, block[1].split("x")[:-1]))
        return Argument(tensor_descriptor_type(_dtype(block[2], text), extents))
    match = _PLAIN.fullmatch(text)
    if match is None or (not match[1] and match[2] not in _DTYPES):
        return None
    dtype, promise = _dtype(match[2], text), int(match[3] or 0)
    if match[1]:
        return Argument(ir.Pointer(dtype), aligned(ir.Pointer(dtype), promise).align if promise else 0)
    return Argument(ir.Scalar(dtype), divisible=divisible(dtype, promise).divisible if match[3] else 1)


def _dtype(name: str, text: str) -> ir.DType:
    if name not in _DTYPES:
        raise TypeTextError(f"{text!r} is no type: {name!r} is no dtype; there are {', '.join(ir.DTYPES)}.")
    return _DTYPES[name]
