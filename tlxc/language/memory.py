"""Global memory: pointers, loads, stores, atomics.

A pointer is a scalar or a tile of addresses.  Scalar accesses: every thread loads from the one address; stores and
atomics are done by one thread, and an atomic's result goes to all.  Tile accesses touch each element once, however many
threads hold a copy of it.  A bool in memory is one byte.
"""

from __future__ import annotations

from typing import Any

from tlxc.errors import CompileError
from tlxc.ir.ops.memory import EVICTION
from tlxc.ir.types import DType, Pointer, int1, int32, int64, like

from . import promotion
from .annotation import Declared, aligned
from .core import as_tensor, builder, builtin, check_dtype, constant, convert, describe, elementwise, tensor
from .handles import check_uniform
from .promotion import is_literal
from .shape import broadcast_all, fit_shape

SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")
_CACHE = {"load": ("", ".ca", ".cg", ".cs"), "store": ("", ".wb", ".cg", ".cs", ".wt")}


@builtin
def ptr(dtype: DType, align: int | None = None) -> Pointer | Declared:
    """The type of a pointer to elements of `dtype` in global memory, for annotations: `x: tl.ptr(tl.float16)`.

    Any dtype; addresses are 64 bit and aligned to the element at least.  `align`: the address is a multiple of so many
    bytes, which a launch checks and code compiled ahead of time requires.  Targets: all.
    Errors: an alignment that is no power of two or less than the element's size.
    """
    pointer = Pointer(check_dtype(dtype, "the element type of a pointer"))
    return pointer if align is None else aligned(pointer, align)


# ------------------------------------------------------------------------------------------------ pointer arithmetic
def pointer_operator(symbol: str, a: Any, b: Any) -> tensor:
    """`ptr + n`, `n + ptr`, `ptr - n`: the address n elements on or back.  No other operator takes a pointer.

    n: an integer scalar, tile or literal; shapes broadcast.  Narrower offsets become int32, uint32 and uint64 int64.
    One thread makes a scalar access for all, so the offset of a scalar pointer is the same in all threads.
    """
    pointers = [isinstance(x, tensor) and isinstance(x.dtype, Pointer) for x in (a, b)]
    if symbol not in ("+", "-") or all(pointers) or symbol == "-" and pointers[1]:
        raise CompileError(
            f"there is no operator `{symbol}` on these pointers",
            found=f"{describe(a)} {symbol} {describe(b)}",
            allowed="ptr + n, n + ptr and ptr - n with an integer n",
            fix="compare or subtract the offsets instead of the pointers",
        )
    base, count = (a, b) if pointers[0] else (b, a)
    address, offset = broadcast_all(base, _offset(count, negative=symbol == "-"))
    check_uniform(offset, "the offset of a scalar pointer")
    return elementwise("addptr", address, offset, element=base.dtype)


def _offset(n: Any, negative: bool) -> tensor:
    """A number of elements as i32 or i64."""
    if is_literal(n) and not isinstance(n, (bool, float)):
        n = -n if negative else n
        low, high = int32.limits
        return constant(n, int32 if low <= n <= high else int64)
    value = as_tensor(n)
    if not value.number.is_int:
        raise CompileError(
            "a pointer moves by an integer number of elements",
            found=describe(n),
            fix="convert the offset with `.to(tl.int32)`",
        )
    narrow = value.number.bits < 32 or value.number == int32
    value = convert(value, int32 if narrow else int64)
    return -value if negative else value


# -------------------------------------------------------------------------------------------------------- arguments
def _address(x: Any, what: str) -> tuple[tensor, Pointer]:
    if not isinstance(x, tensor) or not isinstance(x.dtype, Pointer):
        raise CompileError(
            f"{what} takes a pointer",
            found=describe(x),
            allowed="a pointer parameter, or a pointer plus integer offsets",
            fix="annotate the parameter as tl.ptr(dtype), or pass a device tensor at launch",
        )
    return x, x.dtype


def to_element(x: Any, dtype: DType, what: str) -> tensor:
    """`x` as an element of memory.  Implicit: literals that fit, bools, integers to integers (wrap), floats to floats
    (round to nearest even).  Between integers and floats only the user converts."""
    if is_literal(x):
        return constant(x, dtype)
    value = as_tensor(x)
    found = value.number
    if found.kind != "bool" and promotion.kind_rank(found) != promotion.kind_rank(dtype):
        raise CompileError(
            f"{what} is not converted to the element type by itself",
            found=f"{describe(value)}, elements of {dtype!r}",
            allowed="bools, and integers to integers or floats to floats",
            fix=f"convert it with `.to({dtype!r})`",
        )
    return convert(value, dtype)


def _mask(mask: Any, shape: tuple[int, ...]) -> tensor | None:
    if mask is None:
        return None
    value = constant(mask, int1) if isinstance(mask, bool) else as_tensor(mask)
    if value.dtype != int1:
        raise CompileError("a mask is a bool", found=describe(mask), fix="compare: mask=offsets < n, or mask=x != 0")
    return fit_shape(value, shape, "the mask", "the pointer")


def _one_of(value: Any, names: tuple[str, ...], what: str) -> str:
    if value not in names:
        raise CompileError(f"unknown {what}", found=repr(value), allowed=", ".join(map(repr, names)))
    return str(value)


def _hints(access: str, cache_modifier: str, eviction_policy: str) -> dict[str, Any]:
    """Attributes of an access; absent where the default is asked for."""
    cache = _one_of(cache_modifier, _CACHE[access], f"cache_modifier of a {access}")
    eviction = _one_of(eviction_policy, EVICTION, "eviction_policy")
    return {name: text for name, text in (("cache", cache), ("eviction", eviction)) if text}


# --------------------------------------------------------------------------------------------------------- accesses
@builtin
def load(
    pointer: Any, mask: Any = None, other: Any = None, cache_modifier: str = "", eviction_policy: str = ""
) -> tensor:
    """Reads global memory: a scalar through a scalar pointer, a tile of the pointer's shape through a tile.

    `mask` (bool) and `other` broadcast to the pointer's shape; memory is not touched where the mask is false, and the
    result there is `other`, or 0 without it.  `other` is converted to the element type as a stored value is.
    `cache_modifier`: "" .ca .cg .cs; `eviction_policy`: "" evict_first evict_last no_allocate: hints only.
    dtypes: all; a bool is one byte, true where it is not 0.  Addresses: aligned to the element.  Targets: all.
    Errors: no pointer; a mask that is no bool; shapes that do not broadcast; `other` without a mask.
    Instruction: `ld.global` up to 16 bytes wide (PTX ISA, "ld"), `global_load_dwordx4`.
    """
    address, element = _address(pointer, "load")
    if other is not None and mask is None:
        raise CompileError("load has `other` but no mask", found=describe(other), fix="give mask=..., or drop other=")
    predicate = _mask(mask, address.shape)
    fallback = None
    if other is not None:
        fallback = fit_shape(to_element(other, element.dtype, "other"), address.shape, "other", "the pointer")
    return tensor(
        builder().emit(
            "load", address.value, _value(predicate), _value(fallback), type=like(address.type, element.dtype),
            **_hints("load", cache_modifier, eviction_policy),
        )
    )  # fmt: skip


@builtin
def store(pointer: Any, value: Any, mask: Any = None, cache_modifier: str = "", eviction_policy: str = "") -> None:
    """Writes global memory: one element through a scalar pointer, each element once through a tile.

    `value` and `mask` (bool) broadcast to the pointer's shape; nothing is written where the mask is false.  Implicit
    conversions of `value` to the element type: a literal that fits, bools, integers to integers (wrap), floats to
    floats (round to nearest even).  Two elements at one address: one of them is stored, unspecified which.
    `cache_modifier`: "" .wb .cg .cs .wt; `eviction_policy`: "" evict_first evict_last no_allocate: hints only.
    dtypes: all; a bool is stored as the byte 0 or 1.  Addresses: aligned to the element.  Targets: all.
    Errors: no pointer; an integer into floats or a float into integers (fix: `.to`); shapes that do not broadcast.
    Instruction: `st.global` up to 16 bytes wide (PTX ISA, "st"), `global_store_dwordx4`.
    """
    address, element = _address(pointer, "store")
    stored = fit_shape(
        to_element(value, element.dtype, "the stored value"), address.shape, "the stored value", "the pointer"
    )
    predicate = _mask(mask, address.shape)
    builder().op(
        "store", (address.value, stored.value, _value(predicate)), **_hints("store", cache_modifier, eviction_policy)
    )


@builtin
def atomic_add(pointer: Any, value: Any, mask: Any = None, sem: str | None = None, scope: str | None = None) -> tensor:
    """Adds to global memory atomically and gives the old value, 0 where the mask is false.

    Shapes and conversions as in `store`; a scalar is added once per program and its old value goes to every thread.
    `sem`: relaxed, acquire, release, acq_rel (default); `scope`: cta, gpu (default), sys.  A release hands over what
    all threads of the task did before.
    dtypes: int32, uint32, int64, uint64 (wrap), float16, bfloat16, float32 (round to nearest even, order unspecified).
    Targets: all; what a target lacks is refused when code is generated for it.
    Errors: bool, 8-bit and 16-bit integer elements; those of `store`; an unknown sem or scope.
    Instruction: `atom.add` (PTX ISA, "atom"), `global_atomic_add`; LLVM `atomicrmw add, fadd` (LangRef).
    """
    address, element = _address(pointer, "atomic_add")
    dtype = element.dtype
    if not dtype.is_float and dtype.bits < 32:
        raise CompileError(
            f"atomic_add does not work on {dtype!r}",
            allowed="tl.int32, tl.uint32, tl.int64, tl.uint64, tl.float16, tl.bfloat16, tl.float32",
            fix="keep the counter in 32 bits",
        )
    added = fit_shape(to_element(value, dtype, "the added value"), address.shape, "the added value", "the pointer")
    predicate = _mask(mask, address.shape)
    return tensor(
        builder().emit(
            "atomic_rmw", address.value, added.value, _value(predicate), type=like(address.type, dtype), op="add",
            sem=_one_of("acq_rel" if sem is None else sem, SEMANTICS, "sem"),
            scope=_one_of("gpu" if scope is None else scope, SCOPES, "scope"),
        )
    )  # fmt: skip


def _value(x: tensor | None) -> Any:
    return None if x is None else x.value
