"""`tl`: the tile language.  Every name here may be used in a kernel; the docstrings are the reference."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from tlxc.errors import CompileError
from tlxc.ir.types import (
    bfloat16,
    float16,
    float32,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

from .annotation import divisible
from .core import builtin, constexpr, describe, literal_int, tensor
from .math import abs, cast, cdiv, exp, exp2, log, log2, maximum, minimum, rsqrt, sqrt, where
from .memory import atomic_add, load, ptr, store
from .mma import dot
from .reduce import max, min, sum
from .shape import (
    arange,
    broadcast,
    broadcast_to,
    expand_dims,
    full,
    join,
    permute,
    reshape,
    split,
    trans,
    zeros,
    zeros_like,
)
from .task import num_programs, program_id

pointer_type = ptr


class range:
    """A run-time loop: `for i in tl.range(stop)`, `tl.range(start, stop)`, `tl.range(start, stop, step)`.

    Bounds are integer scalars or Python ints; the induction value has their promoted dtype.  The loop counts up unless
    the step is a negative constant; zero trips are exact and the last step does not overflow.  `num_stages` drives no
    pipelining and `loop_unroll_factor` no unrolling: both are accepted as hints of kernels written for other compilers.
    Targets: all.  Errors: a step of 0; an option that is no positive compile-time int; use outside a `for` of a kernel.
    """

    __tlxc_range__ = "range"

    def __init__(
        self,
        start: Any,
        stop: Any = None,
        step: Any = None,
        *,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
    ) -> None:
        self.start: Any = 0 if stop is None else start
        self.stop: Any = start if stop is None else stop
        self.step = 1 if step is None else step
        self.num_stages = _positive(num_stages, "num_stages")
        self.loop_unroll_factor = _positive(loop_unroll_factor, "loop_unroll_factor")
        _check_step(self.step, "tl.range")

    def __iter__(self) -> NoReturn:
        raise CompileError("tl.range works only in a `for` of a kernel", fix="use Python's range here")


class static_range:
    """A loop that is unrolled while the kernel is compiled: `for i in tl.static_range(stop)`, with `start` and `step`
    as in `range`.  All bounds are compile-time ints, and so is `i`.  Targets: all.
    Errors: a run-time bound, named; a step of 0; use outside a `for` of a kernel.
    """

    __tlxc_range__ = "static"

    def __init__(self, start: Any, stop: Any = None, step: Any = None) -> None:
        first, last = (0, start) if stop is None else (start, stop)
        self.start = literal_int(first, "the start of tl.static_range")
        self.stop = literal_int(last, "the stop of tl.static_range")
        self.step = literal_int(1 if step is None else step, "the step of tl.static_range")
        _check_step(self.step, "tl.static_range")

    def __iter__(self) -> NoReturn:
        raise CompileError("tl.static_range works only in a `for` of a kernel", fix="use Python's range here")


def _positive(value: Any, what: str) -> int | None:
    if value is None:
        return None
    if literal_int(value, what) < 1:
        raise CompileError(f"{what} must be positive", found=str(value), allowed="1, 2, 3, ...")
    return int(value)


def _check_step(step: Any, what: str) -> None:
    if isinstance(step, int) and step == 0:
        raise CompileError(f"the step of {what} is 0", allowed="steps other than 0")


@builtin
def static_assert(cond: Any, msg: Any = "") -> None:
    """Fails the compilation with `msg` where the compile-time value `cond` is false.  Targets: all.
    Errors: a run-time condition.  No instruction."""
    if isinstance(cond, tensor):
        raise CompileError(
            "static_assert takes a compile-time condition",
            found=describe(cond),
            fix="compute it from constexpr parameters, shapes and dtypes only",
        )
    if not cond:
        raise CompileError(f"static_assert failed: {msg}" if msg else "static_assert failed", found=repr(cond))


@builtin
def static_print(*values: Any) -> None:
    """Prints compile-time values, and the types of run-time values, to stderr while the kernel is compiled.
    Targets: all.  No instruction."""
    print(*(describe(v) if isinstance(v, tensor) else v for v in values), file=sys.stderr)


__all__ = [
    "abs", "arange", "atomic_add", "bfloat16", "broadcast", "broadcast_to", "cast", "cdiv", "constexpr", "divisible",
    "dot", "exp", "exp2", "expand_dims", "float16", "float32", "full", "int1", "int16", "int32", "int64", "int8",
    "join", "load", "log", "log2", "max", "maximum", "min", "minimum", "num_programs", "permute", "pointer_type",
    "program_id", "ptr", "range", "reshape", "rsqrt", "split", "sqrt", "static_assert", "static_print", "static_range",
    "store", "sum", "tensor", "trans", "uint16", "uint32", "uint64", "uint8", "where", "zeros", "zeros_like",
]  # fmt: skip
