"""Every error of the language, in its full text."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from test_language import Kernel

from tlxc.errors import CompileError
from tlxc.ir.types import Pointer
from tlxc.language import core, tl, tlx
from tlxc.language.context import Context, building, current
from tlxc.targets import get_target

CASES: list[tuple[str, Callable[[Kernel], Any], str]] = [
    # operators
    (
        "an_int_is_out_of_range",
        lambda k: k.tile(tl.int8, 4) + 300,
        "error: the literal 300 is out of range of tl.int8\n"
        "  allowed: -128 to 127\n"
        "  fix: write a value in range, or cast what it meets to a wider dtype with `.to(...)`",
    ),
    (
        "a_negative_literal_for_unsigned",
        lambda k: k.tile(tl.uint32, 4) < -1,
        "error: the literal -1 is out of range of tl.uint32\n"
        "  allowed: 0 to 4294967295\n"
        "  fix: write a value in range, or cast what it meets to a wider dtype with `.to(...)`",
    ),
    (
        "case_17_fp16_70000",
        lambda k: k.tile(tl.float16, 4) * 70000,
        "error: the literal 70000 is out of range of tl.float16\n"
        "  allowed: -65504 to 65504, or float('inf')\n"
        "  fix: write a value in range, or cast what it meets with `.to(tl.float32)`",
    ),
    (
        "a_float_overflows",
        lambda k: k.tile(tl.float16, 4) * 70000.0,
        "error: the literal 70000.0 is out of range of tl.float16\n"
        "  allowed: -65504 to 65504, or float('inf')\n"
        "  fix: write a value in range, or cast what it meets with `.to(tl.float32)`",
    ),
    (
        "a_float_vanishes",
        lambda k: k.tile(tl.float16, 4) + 1e-8,
        "error: the literal 1e-08 rounds to zero in tl.float16\n"
        "  allowed: magnitudes from 5.96046e-08, or 0.0\n"
        "  fix: write 0.0, or cast what it meets with `.to(tl.float32)`",
    ),
    (
        "case_20_257_in_bf16",
        lambda k: k.tile(tl.bfloat16, 4) + 257,
        "error: the integer 257 is not exact in tl.bfloat16\n"
        "  found: the nearest value is 256\n"
        "  allowed: every integer up to 256 in magnitude is exact\n"
        "  fix: write 257.0 if rounding is meant, or cast what it meets with `.to(tl.float32)`",
    ),
    (
        "no_dtype_for_a_huge_int",
        lambda k: core.as_tensor(2**64),
        "error: the literal 18446744073709551616 has no dtype\n"
        "  allowed: integers from -9223372036854775808 to 18446744073709551615\n"
        "  fix: write it as a float, or split it into two integers",
    ),
    (
        "no_such_value",
        lambda k: k.tile(tl.int32, 4) + None,
        "error: this value does not exist at run time\n"
        "  found: None (NoneType)\n"
        "  allowed: tiles, scalars, pointers, and Python bools, ints and floats",
    ),
    (
        "shapes_do_not_broadcast",
        lambda k: k.tile(tl.int32, 4) + k.tile(tl.int32, 8),
        "error: the shapes do not broadcast\n"
        "  found: (4,) and (8,)\n"
        "  allowed: extents that are equal or 1, aligned at the last axis\n"
        "  fix: insert axes with x[:, None] or x[None, :]",
    ),
    (
        "bits_of_floats",
        lambda k: k.tile(tl.float32, 4) & 1,
        "error: `&` works on bits, not on floats\n"
        "  found: a tile (4,) of tl.float32 and the compile-time value 1\n"
        "  allowed: bools and integers\n"
        "  fix: compare floats first, or convert them with `.to(tl.int32)`",
    ),
    (
        "invert_a_float",
        lambda k: ~k.tile(tl.float32, 4),
        "error: `~` works on bits, not on floats\n"
        "  found: a tile (4,) of tl.float32\n"
        "  allowed: bools and integers\n"
        "  fix: compare x with 0 first",
    ),
    (
        "shift_a_float",
        lambda k: k.tile(tl.float32, 4) << 1,
        "error: `<<` works on bits, not on floats\n"
        "  found: a tile (4,) of tl.float32 and the compile-time value 1\n"
        "  allowed: integers\n"
        "  fix: multiply by a power of two, or convert with `.to(tl.int32)`",
    ),
    (
        "shift_too_far",
        lambda k: k.tile(tl.int32, 4) << 32,
        "error: `<<` by 32 is undefined for tl.int32\n"
        "  allowed: counts from 0 to 31\n"
        "  fix: cast the value to a wider integer with `.to(...)` first",
    ),
    (
        "power",
        lambda k: k.tile(tl.float32, 4) ** 2,
        "error: there is no operator `**` on run-time values\n"
        "  found: a tile (4,) of tl.float32 and the compile-time value 2\n"
        "  fix: write x * x, or tl.exp2(y * tl.log2(x)) for floats",
    ),
    (
        "exp2_ftz",
        lambda k: tl.exp2(1.0, ftz=k.param(tl.int1, "flag")),
        "error: ftz of tl.exp2 is a compile-time bool\n  found: a scalar tl.int1\n  allowed: True or False",
    ),
    (
        "matmul",
        lambda k: k.tile(tl.float16, 16, 16) @ k.tile(tl.float16, 16, 16),
        "error: there is no operator `@` on run-time values\n"
        "  found: a tile (16, 16) of tl.float16 and a tile (16, 16) of tl.float16\n"
        "  fix: multiply matrices with tl.dot",
    ),
    (
        "case_1_negative_divisor",
        lambda k: k.tile(tl.int32, 4) // -3,
        "error: `//` of a negative constant has two meanings\n"
        "  found: the constant -3; truncation toward zero, as in C and on the GPU, and rounding down, as in "
        "Python, differ: -7 // 3 is -2 or -3, and -7 % 3 is -1 or 2\n"
        "  allowed: constant operands that are not negative\n"
        "  fix: negate the other operand or the result; tl.cdiv(a, b) rounds up and is exact for all signs",
    ),
    (
        "case_1_negative_dividend",
        lambda k: -7 % k.param(tl.int32),
        "error: `%` of a negative constant has two meanings\n"
        "  found: the constant -7; truncation toward zero, as in C and on the GPU, and rounding down, as in "
        "Python, differ: -7 // 3 is -2 or -3, and -7 % 3 is -1 or 2\n"
        "  allowed: constant operands that are not negative\n"
        "  fix: negate the other operand or the result; tl.cdiv(a, b) rounds up and is exact for all signs",
    ),
    (
        "case_1_negative_constants",
        lambda k: core.constant_floordiv(-7, 3),
        "error: `//` of a negative constant has two meanings\n"
        "  found: -7 // 3 is -2 truncated toward zero, as in C, and -3 rounded down, as in Python\n"
        "  allowed: constant operands that are not negative\n"
        "  fix: write the value that you mean; tl.cdiv(a, b) rounds up and is exact for all signs",
    ),
    (
        "case_1_negative_constants_mod",
        lambda k: core.constant_mod(7, -3),
        "error: `%` of a negative constant has two meanings\n"
        "  found: 7 % -3 is 1 truncated toward zero, as in C, and -2 rounded down, as in Python\n"
        "  allowed: constant operands that are not negative\n"
        "  fix: write the value that you mean; tl.cdiv(a, b) rounds up and is exact for all signs",
    ),
    (
        "division_by_zero",
        lambda k: k.tile(tl.int32, 4) // 0,
        "error: `//` by the constant 0\n  allowed: divisors other than 0",
    ),
    (
        "constant_division_by_zero",
        lambda k: core.constant_mod(7, 0),
        "error: `%` by the constant 0\n  allowed: divisors other than 0",
    ),
    (
        "floordiv_of_floats",
        lambda k: k.tile(tl.float32, 4) // 2,
        "error: `//` works on integers only\n"
        "  found: a float operand\n"
        "  allowed: integers\n"
        "  fix: write a / b, and `.to(tl.int32)` to truncate the quotient",
    ),
    (
        "mod_of_floats",
        lambda k: core.constant_mod(7.0, 2),
        "error: `%` works on integers only\n"
        "  found: a float operand\n"
        "  allowed: integers\n"
        "  fix: write a - b * (a / b).to(tl.int32), or convert the operands with `.to(tl.int32)`",
    ),
    (
        "mixed_signs",
        lambda k: k.tile(tl.int32, 4) / k.tile(tl.uint32, 4),
        "error: `/` of a signed and an unsigned integer is ambiguous\n"
        "  found: a tile (4,) of tl.int32 and a tile (4,) of tl.uint32\n"
        "  allowed: two signed or two unsigned integers\n"
        "  fix: cast one of them with `.to(...)`",
    ),
    (
        "truth",
        lambda k: bool(k.param(tl.int32)),
        "error: the truth of a run-time value is not known while the kernel is compiled\n"
        "  found: a scalar tl.int32\n"
        "  allowed: a run-time scalar as the condition of `if`, `while` or `x if c else y`\n"
        "  fix: choose elements with tl.where(cond, x, y), or reduce the tile to a scalar first",
    ),
    (
        "iteration",
        lambda k: list(k.tile(tl.int32, 2)),
        "error: a run-time value cannot be iterated or unpacked\n"
        "  found: a tile (2,) of tl.int32\n"
        "  allowed: `range`, `tl.range`, `tl.static_range` and tuples\n"
        "  fix: take a tile apart with tl.split, along a last extent of 2 or odd",
    ),
    (
        "index",
        lambda k: operator.index(k.param(tl.int32)),
        "error: a compile-time integer is wanted here\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter, or compute it from compile-time values only",
    ),
    (
        "length",
        lambda k: len(k.tile(tl.int32, 2)),
        "error: a run-time value has no len()\n"
        "  found: a tile (2,) of tl.int32\n"
        "  fix: read an extent with x.shape[i], known at compile time",
    ),
    (
        "min_of_one",
        lambda k: core.builtin_min(k.tile(tl.int32, 2)),
        "error: min() of one value\n"
        "  found: a tile (2,) of tl.int32\n"
        "  fix: reduce a tile with tl.min(x), or give two values",
    ),
    (
        "max_of_nothing",
        lambda k: core.builtin_max(),
        "error: max() of nothing\n  allowed: two values or more, or a tuple of them",
    ),
    # pointers
    (
        "multiply_a_pointer",
        lambda k: k.param(Pointer(tl.float16)) * 2,
        "error: there is no operator `*` on these pointers\n"
        "  found: a scalar tl.ptr(tl.float16) * the compile-time value 2\n"
        "  allowed: ptr + n, n + ptr and ptr - n with an integer n\n"
        "  fix: compare or subtract the offsets instead of the pointers",
    ),
    (
        "compare_pointers",
        lambda k: k.param(Pointer(tl.float16)) == k.param(Pointer(tl.float16), "q"),
        "error: there is no operator `==` on these pointers\n"
        "  found: a scalar tl.ptr(tl.float16) == a scalar tl.ptr(tl.float16)\n"
        "  allowed: ptr + n, n + ptr and ptr - n with an integer n\n"
        "  fix: compare or subtract the offsets instead of the pointers",
    ),
    (
        "float_offset",
        lambda k: k.param(Pointer(tl.float16)) + k.tile(tl.float32, 4),
        "error: a pointer moves by an integer number of elements\n"
        "  found: a tile (4,) of tl.float32\n"
        "  fix: convert the offset with `.to(tl.int32)`",
    ),
    (
        "bool_offset",
        lambda k: k.param(Pointer(tl.float16)) + True,
        "error: a pointer moves by an integer number of elements\n"
        "  found: the compile-time value True\n"
        "  fix: convert the offset with `.to(tl.int32)`",
    ),
    (
        "negative_pointer",
        lambda k: -k.param(Pointer(tl.float16)),
        "error: a number is wanted here\n"
        "  found: a scalar tl.ptr(tl.float16)\n"
        "  fix: read the memory with tl.load first",
    ),
    # maths
    (
        "exp_of_int",
        lambda k: tl.exp(k.tile(tl.int32, 4)),
        "error: tl.exp takes floats\n"
        "  found: a tile (4,) of tl.int32\n"
        "  allowed: tl.float16, tl.bfloat16, tl.float32\n"
        "  fix: convert it with `.to(tl.float32)`",
    ),
    (
        "sqrt_of_int_literal",
        lambda k: tl.sqrt(2),
        "error: tl.sqrt takes floats\n"
        "  found: the compile-time value 2\n"
        "  allowed: tl.float16, tl.bfloat16, tl.float32\n"
        "  fix: write 2.0",
    ),
    (
        "cast_of_a_pointer",
        lambda k: k.tile(Pointer(tl.float16), 4).to(tl.int64),
        "error: a pointer cannot be converted\n"
        "  found: a tile (4,) of tl.ptr(tl.float16)\n"
        "  allowed: numbers\n"
        "  fix: convert what tl.load reads through it",
    ),
    (
        "bitcast_to_another_width",
        lambda k: k.tile(tl.float32, 4).to(tl.int16, bitcast=True),
        "error: a bitcast keeps the bits of a run-time value\n"
        "  found: a tile (4,) of tl.float32 to tl.int16\n"
        "  allowed: integers and floats, to a dtype with as many bits\n"
        "  fix: leave bitcast=True out to convert the number",
    ),
    (
        "cast_to_no_dtype",
        lambda k: k.tile(tl.int32, 4).to(3),
        "error: the dtype must be a dtype\n"
        "  found: the compile-time value 3\n"
        "  allowed: tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, "
        "tl.float16, tl.bfloat16, tl.float32",
    ),
    (
        "cast_of_a_literal",
        lambda k: tl.cast(1.5, tl.int32),
        "error: the literal 1.5 is not exact in tl.int32\n"
        "  allowed: integers from -2147483648 to 2147483647\n"
        "  fix: write an integer, or make the value a float with `.to(tl.float32)`",
    ),
    (
        "cdiv_of_floats",
        lambda k: tl.cdiv(k.param(tl.int32), 2.0),
        "error: `cdiv` works on integers only\n"
        "  found: a float operand\n"
        "  allowed: integers\n"
        "  fix: convert the operands with `.to(tl.int32)`",
    ),
    ("cdiv_by_zero", lambda k: tl.cdiv(7, 0), "error: `cdiv` by the constant 0\n  allowed: divisors other than 0"),
    # shapes
    (
        "empty_arange",
        lambda k: tl.arange(4, 4),
        "error: arange is empty\n  found: arange(4, 4)\n  allowed: end > start",
    ),
    (
        "huge_arange",
        lambda k: tl.arange(0, 2**20 + 1),
        "error: arange has too many elements for one tile\n"
        "  found: (1048577,): 1048577 elements\n"
        "  allowed: at most 1048576 elements\n"
        "  fix: loop over smaller tiles",
    ),
    (
        "runtime_arange",
        lambda k: tl.arange(0, k.param(tl.int32)),
        "error: the end of arange must be a compile-time integer\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter",
    ),
    (
        "bad_extent",
        lambda k: tl.zeros((4, 0), tl.float32),
        "error: the shape has an extent below 1\n  found: (4, 0)\n  allowed: extents from 1 on",
    ),
    (
        "bad_shape",
        lambda k: tl.zeros("4", tl.float32),
        "error: the shape must be a tuple of compile-time integers\n  found: '4' (str)",
    ),
    (
        "value_of_full",
        lambda k: tl.full((4,), k.tile(tl.int32, 4), tl.int32),
        "error: the value of full must be a scalar\n"
        "  found: a tile (4,) of tl.int32\n"
        "  fix: use tl.broadcast_to(x, shape)",
    ),
    (
        "reshape_count",
        lambda k: k.tile(tl.int32, 4, 4).reshape(8),
        "error: reshape keeps the number of elements\n"
        "  found: (4, 4) has 16 elements, (8,) has 8\n"
        "  allowed: shapes of 16 elements",
    ),
    (
        "reshape_to_scalar",
        lambda k: k.tile(tl.int32, 1).reshape(()),
        "error: reshape of a tile gives a tile\n  found: the shape ()\n  fix: use tl.sum(x) for the only element",
    ),
    (
        "broadcast_to",
        lambda k: k.tile(tl.int32, 4).broadcast_to(8, 8),
        "error: x does not broadcast to the shape of the target\n"
        "  found: x has shape (4,), the target (8, 8)\n"
        "  allowed: shapes that broadcast to (8, 8): extents equal or 1, aligned at the last axis\n"
        "  fix: insert axes with x[:, None] or x[None, :]",
    ),
    (
        "bad_axis",
        lambda k: k.tile(tl.int32, 4).expand_dims(2),
        "error: the result of expand_dims has no axis 2\n  found: rank 2\n  allowed: axes from -2 to 1",
    ),
    (
        "subscript_element",
        lambda k: k.tile(tl.int32, 4)[0],
        "error: a tile cannot be indexed\n"
        "  found: a subscript of a tile (4,) of tl.int32 that is neither `:` nor `None`\n"
        "  allowed: `:` keeps an axis, `None` inserts one: x[:, None], x[None, :]\n"
        "  fix: take a row with tl.sum(tl.where(index == i, x, 0), axis), or a half with tl.split",
    ),
    (
        "subscript_rank",
        lambda k: k.tile(tl.int32, 4)[:, :],
        "error: the subscript has more axes than the value\n"
        "  found: 2 times `:` on a tile (4,) of tl.int32\n"
        "  allowed: 1",
    ),
    (
        "bad_permutation",
        lambda k: k.tile(tl.int32, 4, 8).permute(0, 0),
        "error: the order of permute is no permutation of the axes\n"
        "  found: (0, 0) for a tile (4, 8) of tl.int32\n"
        "  allowed: each of 0, 1 once",
    ),
    (
        "trans_of_rank_3",
        lambda k: k.tile(tl.int32, 2, 4, 8).trans(),
        "error: trans without an order takes a tile of rank 2\n"
        "  found: a tile (2, 4, 8) of tl.int32\n"
        "  fix: give the order of the axes: tl.trans(x, 0, 2, 1)",
    ),
    (
        "trans_of_a_scalar",
        lambda k: k.param(tl.int32).T,
        "error: trans takes a tile\n  found: a scalar tl.int32\n  fix: make a tile with tl.full(shape, value, dtype)",
    ),
    (
        "join_dtypes",
        lambda k: tl.join(k.tile(tl.int32, 4), k.tile(tl.int8, 4)),
        "error: join takes two tiles of one dtype\n  found: tl.int32 and tl.int8\n  fix: cast one with `.to(...)`",
    ),
    (
        "split_extent",
        lambda k: k.tile(tl.int32, 4, 4).split(),
        "error: split takes a last axis of extent 2, or an odd one, apart\n"
        "  found: a tile (4, 4) of tl.int32\n"
        "  allowed: rank 2 or more with a last extent of 2, 3, 5, 7, ..\n"
        "  fix: bring the axis there first: x.reshape(M, 2, N // 2).permute(0, 2, 1).split() halves N columns",
    ),
    # reductions
    (
        "sum_of_a_scalar",
        lambda k: tl.sum(k.param(tl.int32)),
        "error: sum reduces a tile\n  found: a scalar tl.int32\n  fix: add scalars with +",
    ),
    (
        "max_of_a_scalar",
        lambda k: tl.max(3),
        "error: max reduces a tile\n  found: the compile-time value 3\n  fix: use Python's max() of several scalars",
    ),
    (
        "sum_axis",
        lambda k: k.tile(tl.int32, 4).sum(1),
        "error: sum has no axis 1\n  found: rank 1\n  allowed: axes from -1 to 0",
    ),
    (
        "sum_into_bool",
        lambda k: tl.sum(k.tile(tl.int1, 4), dtype=tl.int1),
        "error: sum does not count in bools\n"
        "  found: dtype=tl.int1\n"
        "  fix: use tl.max(x, axis) for `any`, tl.min for `all`",
    ),
    (
        "sum_floats_into_int",
        lambda k: tl.sum(k.tile(tl.float32, 4), dtype=tl.int32),
        "error: sum does not convert floats to integers\n"
        "  found: a tile (4,) of tl.float32, dtype=tl.int32\n"
        "  fix: convert first: x.to(tl.int32)",
    ),
    (
        "sum_of_pointers",
        lambda k: k.tile(Pointer(tl.float16), 4).sum(),
        "error: a number is wanted here\n"
        "  found: a tile (4,) of tl.ptr(tl.float16)\n"
        "  fix: read the memory with tl.load first",
    ),
    # memory
    (
        "load_of_a_number",
        lambda k: tl.load(k.tile(tl.int32, 4)),
        "error: load takes a pointer\n"
        "  found: a tile (4,) of tl.int32\n"
        "  allowed: a pointer parameter, or a pointer plus integer offsets\n"
        "  fix: annotate the parameter as tl.ptr(dtype), or pass a device tensor at launch",
    ),
    (
        "case_34_other_without_mask",
        lambda k: tl.load(k.tile(Pointer(tl.float16), 4), other=0.0),
        "error: load has `other` but no mask\n"
        "  found: the compile-time value 0.0\n"
        "  fix: give mask=..., or drop other=",
    ),
    (
        "mask_of_ints",
        lambda k: tl.load(k.tile(Pointer(tl.float16), 4), mask=k.tile(tl.int32, 4)),
        "error: a mask is a bool\n  found: a tile (4,) of tl.int32\n  fix: compare: mask=offsets < n, or mask=x != 0",
    ),
    (
        "mask_shape",
        lambda k: tl.load(k.param(Pointer(tl.float16)), mask=k.tile(tl.int1, 4)),
        "error: the mask does not broadcast to the shape of the pointer\n"
        "  found: the mask has shape (4,), the pointer ()\n"
        "  allowed: shapes that broadcast to (): extents equal or 1, aligned at the last axis\n"
        "  fix: make the pointer a tile, as ptr + tl.arange(0, n) is",
    ),
    (
        "other_out_of_range",
        lambda k: tl.load(k.tile(Pointer(tl.int8), 4), mask=True, other=300),
        "error: the literal 300 is out of range of tl.int8\n"
        "  allowed: -128 to 127\n"
        "  fix: write a value in range, or cast what it meets to a wider dtype with `.to(...)`",
    ),
    (
        "other_infinite_int",
        lambda k: tl.load(k.tile(Pointer(tl.int32), 4), mask=True, other=float("-inf")),
        "error: the literal -inf is not exact in tl.int32\n"
        "  allowed: integers from -2147483648 to 2147483647\n"
        "  fix: write an integer, or make the value a float with `.to(tl.float32)`",
    ),
    (
        "load_cache",
        lambda k: tl.load(k.tile(Pointer(tl.int8), 4), cache_modifier=".wb"),
        "error: unknown cache_modifier of a load\n  found: '.wb'\n  allowed: '', '.ca', '.cg', '.cs'",
    ),
    (
        "eviction",
        lambda k: tl.load(k.tile(Pointer(tl.int8), 4), eviction_policy="first"),
        "error: unknown eviction_policy\n  found: 'first'\n  allowed: '', 'evict_first', 'evict_last', 'no_allocate'",
    ),
    (
        "store_int_in_floats",
        lambda k: tl.store(k.tile(Pointer(tl.bfloat16), 4), k.tile(tl.int32, 4)),
        "error: the stored value is not converted to the element type by itself\n"
        "  found: a tile (4,) of tl.int32, elements of tl.bfloat16\n"
        "  allowed: bools, and integers to integers or floats to floats\n"
        "  fix: convert it with `.to(tl.bfloat16)`",
    ),
    (
        "store_float_in_ints",
        lambda k: tl.store(k.tile(Pointer(tl.int32), 4), k.tile(tl.float32, 4)),
        "error: the stored value is not converted to the element type by itself\n"
        "  found: a tile (4,) of tl.float32, elements of tl.int32\n"
        "  allowed: bools, and integers to integers or floats to floats\n"
        "  fix: convert it with `.to(tl.int32)`",
    ),
    (
        "store_shape",
        lambda k: tl.store(k.tile(Pointer(tl.int32), 4), k.tile(tl.int32, 8)),
        "error: the stored value does not broadcast to the shape of the pointer\n"
        "  found: the stored value has shape (8,), the pointer (4,)\n"
        "  allowed: shapes that broadcast to (4,): extents equal or 1, aligned at the last axis\n"
        "  fix: insert axes with x[:, None] or x[None, :]",
    ),
    (
        "atomic_dtype",
        lambda k: tl.atomic_add(k.tile(Pointer(tl.int16), 4), 1),
        "error: atomic_add does not work on tl.int16\n"
        "  allowed: tl.int32, tl.uint32, tl.int64, tl.uint64, tl.float16, tl.bfloat16, tl.float32\n"
        "  fix: keep the counter in 32 bits",
    ),
    (
        "atomic_sem",
        lambda k: tl.atomic_add(k.tile(Pointer(tl.int32), 4), 1, sem="seq_cst"),
        "error: unknown sem\n  found: 'seq_cst'\n  allowed: 'relaxed', 'acquire', 'release', 'acq_rel'",
    ),
    (
        "pointer_to_nothing",
        lambda k: tl.ptr(Pointer(tl.int32)),
        "error: the element type of a pointer must be a dtype\n"
        "  found: the type tl.ptr(tl.int32)\n"
        "  allowed: tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, "
        "tl.float16, tl.bfloat16, tl.float32",
    ),
    # dot
    (
        "dot_rank",
        lambda k: tl.dot(k.tile(tl.float16, 16), k.tile(tl.float16, 16, 16)),
        "error: dot multiplies tiles of rank 2, and a is none\n"
        "  found: a tile (16,) of tl.float16\n"
        "  allowed: (M, K) and (K, N)\n"
        "  fix: insert an axis with x[:, None] or x[None, :], or give the tile its shape with tl.reshape",
    ),
    (
        "dot_dtype",
        lambda k: tl.dot(k.tile(tl.float32, 16, 16), k.tile(tl.float32, 16, 16)),
        "error: dot does not take a in this dtype\n"
        "  found: a tile (16, 16) of tl.float32\n"
        "  allowed: tl.float16 or tl.bfloat16\n"
        "  fix: convert it with `.to(tl.float16)` or `.to(tl.bfloat16)`",
    ),
    (
        "dot_dtypes",
        lambda k: tl.dot(k.tile(tl.float16, 16, 16), k.tile(tl.bfloat16, 16, 16)),
        "error: dot takes two operands of one dtype\n"
        "  found: tl.float16 and tl.bfloat16\n"
        "  fix: convert one with `.to(...)`",
    ),
    (
        "dot_inner",
        lambda k: tl.dot(k.tile(tl.float16, 16, 32), k.tile(tl.float16, 16, 32)),
        "error: the inner extents of dot differ\n"
        "  found: a is (16, 32), b is (16, 32)\n"
        "  allowed: (M, K) and (K, N)\n"
        "  fix: transpose an operand with tl.trans(x)",
    ),
    (
        "case_28_dot_k",
        lambda k: tl.dot(k.tile(tl.float16, 16, 24), k.tile(tl.float16, 24, 16)),
        "error: the inner extent of dot is no multiple of 16\n"
        "  found: K = 24; a is (16, 24), b is (24, 16)\n"
        "  allowed: multiples of 16, the K of one matrix instruction on 16-bit elements\n"
        "  fix: load a wider tile, zero beyond the end (a mask without `other` gives 0)",
    ),
    (
        "dot_acc",
        lambda k: tl.dot(k.tile(tl.float16, 16, 16), k.tile(tl.float16, 16, 16), k.tile(tl.float16, 16, 16)),
        "error: the accumulator of dot has another type\n"
        "  found: a tile (16, 16) of tl.float16\n"
        "  allowed: a tile (16, 16) of tl.float32\n"
        "  fix: start from tl.zeros((16, 16), tl.float32), or leave acc out and add to the result",
    ),
    (
        "dot_out_dtype",
        lambda k: tl.dot(k.tile(tl.float16, 16, 16), k.tile(tl.float16, 16, 16), out_dtype=tl.float16),
        "error: dot accumulates in tl.float32\n"
        "  found: out_dtype=tl.float16\n"
        "  allowed: tl.float32\n"
        "  fix: convert the result with `.to(...)`",
    ),
    (
        "dot_precision",
        lambda k: tl.dot(k.tile(tl.float16, 16, 16), k.tile(tl.float16, 16, 16), input_precision="tf32"),
        "error: input_precision has no effect on float16 and bfloat16 operands\n"
        "  found: 'tf32'\n"
        "  allowed: None\n"
        "  fix: leave it out",
    ),
    # programs, layouts, compile time
    ("grid_axis", lambda k: tl.program_id(3), "error: a grid has no axis 3\n  allowed: 0, 1 or 2"),
    (
        "runtime_axis",
        lambda k: tl.num_programs(k.param(tl.int32)),
        "error: the axis of num_programs must be a compile-time integer\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter",
    ),
    (
        "layout_entry",
        lambda k: tlx.layout(shape=(128, 64), stride=((64,), (1,))),
        "error: the shape of a layout is a pair of flat tuples\n"
        "  found: (128, 64)\n"
        "  allowed: (thread shape, value shape), each a tuple of one or more ints from 1 on\n"
        "  fix: write ((128,), (64,)), not (128, 64)",
    ),
    (
        "layout_lengths",
        lambda k: tlx.layout(shape=((32, 4), (64,)), stride=((64,), (1,))),
        "error: the thread shape and the thread stride of a layout differ in length\n"
        "  found: shape (32, 4), stride (64,)\n"
        "  allowed: one stride for each extent",
    ),
    (
        "layout_threads",
        lambda k: tlx.require_layout(k.tile(tl.int32, 64), tlx.layout(((32,), (2,)), ((1,), (32,)))),
        "error: this layout does not fit a tile (64,)\n"
        "  found: The thread extents of a register layout multiply to 32 threads, but the task that executes it "
        "wants 32 lanes x 4 warps = 128; change the thread shape or the number of warps.",
    ),
    (
        "layout_of_a_scalar",
        lambda k: tlx.require_layout(k.param(tl.int32), tlx.layout(((128,), (1,)), ((1,), (1,)))),
        "error: require_layout takes a tile of numbers\n"
        "  found: a scalar tl.int32\n"
        "  allowed: tiles; a scalar has no layout",
    ),
    (
        "no_layout",
        lambda k: tlx.require_layout(k.tile(tl.int32, 64), "row"),
        "error: require_layout takes a tlx.layout\n"
        "  found: 'row' (str)\n"
        "  fix: write tlx.layout(shape=(thread, value), stride=(thread, value))",
    ),
    (
        "unpinned_layout",
        lambda k: tlx.require_layout(k.tile(tl.int32, 64), tlx.layout(((128,), (1,)), ((1,), (1,))), pin=False),
        "error: require_layout without a pin has no effect\n"
        "  found: pin=False\n"
        "  allowed: pin=True\n"
        "  fix: drop the call, or pin the layout",
    ),
    (
        "dump_of_a_scalar",
        lambda k: tlx.dump_layout(k.param(tl.int32)),
        "error: dump_layout takes a tile\n  found: a scalar tl.int32\n  allowed: tiles; a scalar has no layout",
    ),
    (
        "size_of_a_number",
        lambda k: tlx.size_of(3),
        "error: the dtype must be a dtype\n"
        "  found: the compile-time value 3\n"
        "  allowed: tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, "
        "tl.float16, tl.bfloat16, tl.float32",
    ),
    (
        "static_assert_fails",
        lambda k: tl.static_assert(1 == 2, "BLOCK is odd"),
        "error: static_assert failed: BLOCK is odd\n  found: False",
    ),
    (
        "runtime_static_assert",
        lambda k: tl.static_assert(k.param(tl.int1)),
        "error: static_assert takes a compile-time condition\n"
        "  found: a scalar tl.int1\n"
        "  fix: compute it from constexpr parameters, shapes and dtypes only",
    ),
    (
        "static_range_bound",
        lambda k: tl.static_range(0, k.param(tl.int32)),
        "error: the stop of tl.static_range must be a compile-time integer\n"
        "  found: a scalar tl.int32\n"
        "  fix: pass the value as a tl.constexpr parameter",
    ),
    ("range_step", lambda k: tl.range(0, 8, 0), "error: the step of tl.range is 0\n  allowed: steps other than 0"),
    (
        "range_option",
        lambda k: tl.range(8, num_stages=0),
        "error: num_stages must be positive\n  found: 0\n  allowed: 1, 2, 3, ...",
    ),
    (
        "range_in_python",
        lambda k: list(tl.range(8)),
        "error: tl.range works only in a `for` of a kernel\n  fix: use Python's range here",
    ),
    (
        "static_range_in_python",
        lambda k: list(tl.static_range(8)),
        "error: tl.static_range works only in a `for` of a kernel\n  fix: use Python's range here",
    ),
]


@pytest.mark.parametrize("make, text", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error(make: Callable[[Kernel], Any], text: str) -> None:
    kernel = Kernel()
    with building(Context(kernel.builder, get_target("sm_90"))), pytest.raises(CompileError) as caught:
        make(kernel)
    assert str(caught.value) == text
    assert caught.value.loc is None  # the frontend knows where it stands


def test_names_of_cases_are_unique() -> None:
    assert len({case[0] for case in CASES}) == len(CASES)


def test_outside_a_kernel() -> None:
    with pytest.raises(CompileError) as caught:
        tl.arange(0, 4)
    assert str(caught.value) == (
        "error: this function works only inside a kernel\n  fix: call it in a function decorated with @tlxc.kernel"
    )


def test_the_target_decides_how_many_threads_a_layout_has() -> None:
    kernel = Kernel()
    wave = tlx.layout(shape=((256,), (1,)), stride=((1,), (1,)))
    with building(Context(kernel.builder, get_target("gfx950"))):
        assert current().target.warp_size == 64
        assert tlx.require_layout(kernel.tile(tl.int32, 256), wave).shape == (256,)
