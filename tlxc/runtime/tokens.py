"""Tokens: what about an argument decides the code.

A token is the dtype of an aligned array, an `Odd` for one that is not, a tuple for a `TensorDescriptor`, a `Number` for
a scalar, `ONE` for the integer 1, None for None.  Tokens are compared by identity or are cheap to hash: they are the
keys of launches.
"""

from __future__ import annotations

import functools
import numbers
from dataclasses import dataclass
from typing import Any

from tlxc.frontend.signature import Argument
from tlxc.ir import types as ir
from tlxc.language.core import constexpr
from tlxc.runtime.arrays import interface_dtype
from tlxc.runtime.descriptor import TensorDescriptor
from tlxc.runtime.fake import is_fake

ALIGN = 16  # bytes, and the divisor that integers are tested for
ONE = "1"
REFUSED = "refused"  # token of what no kernel takes


@dataclass(frozen=True, eq=False)
class Odd:
    """An array of this dtype whose address is not a multiple of `ALIGN`; one object a dtype."""

    dtype: Any


class Odds(dict[Any, Odd]):
    def __missing__(self, dtype: Any) -> Odd:
        return self.setdefault(dtype, Odd(dtype))


@dataclass(frozen=True, eq=False)
class Number:
    """A scalar and the divisor that it is known to have; one object each, made by `number_token`."""

    dtype: ir.DType
    divisible: int = 1


@functools.cache
def number_token(dtype: ir.DType, divisible: int = 1) -> Number:
    return Number(dtype, divisible)


INT32, INT32_16 = number_token(ir.int32), number_token(ir.int32, ALIGN)
BOOL, FLOAT = number_token(ir.int1), number_token(ir.float32)


# -- integers --------------------------------------------------------------------------------------------------------


def integer_token(value: int) -> Any:
    """The token of an int or bool that no annotation narrows."""
    if isinstance(value, bool):
        return BOOL
    if value == 1:
        return ONE
    low, high = ir.int32.limits
    if low <= value <= high:
        return INT32 if value % ALIGN else INT32_16
    return wide_token(value)


class IntegerTokens(dict[int, Any]):
    """`integer_token`, or with `plain` that of a parameter that is not specialised, of Python ints, remembered."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self._plain = plain

    def __missing__(self, value: int) -> Any:
        if len(self) >= 4096:  # values that change at every launch must not fill the memory
            self.clear()
        token = _plain_token(value) if self._plain else integer_token(value)
        self[value] = token
        return token


def wide_token(value: int) -> Any:
    """The token of an integer outside of 32 bits."""
    for dtype in (ir.int64, ir.uint64):
        low, high = dtype.limits
        if low <= value <= high:
            return number_token(dtype, 1 if value % ALIGN else ALIGN)
    return REFUSED


def _plain_token(value: int) -> Any:
    low, high = ir.int32.limits
    if low <= value <= high:
        return INT32
    token = wide_token(value)
    return token if token is REFUSED else number_token(token.dtype)


def ranged_token(value: int, wanted: Argument) -> Any:
    """The token of an integer that must be looked at beyond 32 bits and `ALIGN`: see `needs_range`."""
    low, high = wanted.type.dtype.limits
    return number_token(wanted.type.dtype) if low <= value <= high and value % wanted.divisible == 0 else REFUSED


def needs_range(wanted: Argument | None) -> bool:
    """Whether an annotation promises of an integer what common tokens do not tell: another width, another divisor."""
    if wanted is None or not isinstance(wanted.type, ir.Scalar) or wanted.type.dtype.is_float:
        return False
    return wanted.type.dtype not in (ir.int32, ir.int64) or wanted.divisible not in (1, ALIGN)


# -- constants -------------------------------------------------------------------------------------------------------


def freeze(value: Any) -> Any:
    """A hashable stand-in that is equal exactly for equal constants of one type; TypeError where there is none."""
    if isinstance(value, constexpr):
        return freeze(value.value)
    if isinstance(value, float):
        return (float, value.hex())
    if isinstance(value, tuple):
        return (value.__class__, *map(freeze, value))
    hash(value)
    return (value.__class__, value)


def constant_token(value: Any) -> Any:
    try:
        return freeze(value)
    except TypeError:
        return REFUSED


def as_python(value: Any) -> Any:
    """A constant without its `tl.constexpr`, and a number of NumPy as the Python number that it is."""
    if isinstance(value, constexpr):
        value = value.value
    kind = type(value)
    if isinstance(value, numbers.Number) or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return value.item() if hasattr(value, "item") else value
    return value


# -- any argument ----------------------------------------------------------------------------------------------------


class Scanner:
    """Tokens of any arguments.  The generated functions of `fast_bind` ask it for those that they do not know at sight,
    and know at sight the classes that it has put into `arrays`."""

    def __init__(self) -> None:
        self.arrays: set[type] = set()  # classes whose instances have data_ptr(), dtype and get_device()
        self.odd = Odds()

    def __call__(self, value: Any, wanted: Argument | None = None) -> tuple[Any, Any, int | None]:
        """(token, value to pass, device or None); `wanted` is what the parameter's annotation declares."""
        if value is None:
            return None, None, None
        if value.__class__ is TensorDescriptor:
            if is_fake(value.base):
                return REFUSED, None, None
            return value.token(), value, value.device
        align = max(ALIGN, wanted.align) if wanted else ALIGN
        if hasattr(value, "data_ptr") and hasattr(value, "get_device"):
            if is_fake(value):
                return REFUSED, None, None
            self.arrays.add(type(value))
            address = value.data_ptr()
            return (self.odd[value.dtype] if address % align else value.dtype), address, value.get_device()
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            from tlxc.runtime import cuda

            address, dtype = interface["data"][0], interface_dtype(interface["typestr"])
            return (self.odd[dtype] if address % align else dtype), address, cuda.pointer_device(address)
        number = as_python(value)
        if isinstance(number, float):
            return FLOAT, number, None
        if isinstance(number, int):
            ranged = wanted is not None and needs_range(wanted)
            return (ranged_token(number, wanted) if ranged and wanted else integer_token(number)), number, None
        return REFUSED, None, None
