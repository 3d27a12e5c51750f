"""Every error that the frontend can report, in full text, each beside the kernel that causes it.

Lines are counted from the `def` of the kernel, so that this file may grow: ` +2 |` is two lines below it.
"""
# ruff: noqa: F821, F841, B007, B015, B018, B021, E501, E731

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tlxc import constexpr_function, tl
from tlxc.errors import CompileError
from tlxc.frontend.signature import Argument, Signature
from tlxc.frontend.source import Source
from tlxc.frontend.visitor import build
from tlxc.ir.types import Pointer, Scalar, float32, int1, int32, uint32
from tlxc.targets import get_target

TYPES = {
    "x": Argument(Pointer(float32), 16),
    "y": Argument(Pointer(float32), 16),
    "n": Argument(Scalar(int32)),
    "m": Argument(Scalar(uint32)),
    "f": Argument(Scalar(float32)),
    "b": Argument(Scalar(int1)),
}
CASES: list[Any] = []


def error_of(fn: Callable[..., Any], constants: dict[str, Any]) -> str:
    """The message for a kernel, without this machine's paths and with lines relative to its `def`."""
    source = Source.of(fn)
    arguments = tuple((p.name, TYPES[p.name]) for p in source.parameters if p.name in TYPES)
    with pytest.raises(CompileError) as caught:
        build(source, Signature(arguments, tuple(constants.items())), get_target("sm_90"))
    base = source.location(source.node).line
    text = str(caught.value).replace(__file__, "k.py")
    text = re.sub(r"k\.py:(\d+):", lambda m: f"k.py:{int(m[1]) - base:+d}:", text)
    text = re.sub(r"^ *(\d+) \| ", lambda m: f"{int(m[1]) - base:+4d} | ", text, flags=re.M)
    return re.sub(r"^ +\| ", " " * 5 + "| ", text, flags=re.M)


def case(expected: str, **constants: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the kernel below it with the message that it must give."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(pytest.param(fn, constants, expected, id=fn.__name__))
        return fn

    return register


class Config:
    SIZE = 4


LIST = [1, 2]
TABLE = {"a": 1}


@constexpr_function
def fails(k):
    raise ValueError(f"{k} is odd")


# ---- parameters
@case(r"""
k.py:+0:21: error: the constexpr parameter `BLOCK` of `no_constexpr` has no value
  +0 | def no_constexpr(x, BLOCK: tl.constexpr): ...
     |                     ^~~~~~~~~~~~~~~~~~~
  found: no argument of that name, and no default
  fix: pass BLOCK=... at launch (on the command line: -D BLOCK=VALUE), or give it a default
""")
def no_constexpr(x, BLOCK: tl.constexpr): ...
@case(r"""
k.py:+0:20: error: the parameter `other` of `no_argument` has neither a type nor a value
  +0 | def no_argument(x, other): ...
     |                    ^~~~~
  fix: pass an argument for `other` at launch, or annotate it, for example `other: tl.int32`
""")
def no_argument(x, other): ...
@case(
    r"""
k.py:+0:1: error: `extra_constant` has no parameter `BLOK`
  +0 | def extra_constant(x, BLOCK: tl.constexpr = 2): ...
     | ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  allowed: x, BLOCK
  fix: did you mean `BLOCK`?
""",
    BLOK=4,
)
def extra_constant(x, BLOCK: tl.constexpr = 2): ...
@case(r"""
k.py:+0:27: error: the parameter `n` is tl.constexpr, but a run-time argument is given for it
  +0 | def run_time_constexpr(x, n: tl.constexpr): ...
     |                           ^~~~~~~~~~~~~~~
  found: a run-time i32
  fix: give `n` a Python value at launch (on the command line: -D n=VALUE)
""")
def run_time_constexpr(x, n: tl.constexpr): ...


# ---- names
@case(r"""
k.py:+2:18: error: `ofs` is not defined
  +2 |     tl.store(x + ofs, 1.0)
     |                  ^~~
  found: neither a local variable, nor one of the enclosing function or module, has this name
  allowed: of Python's builtins a kernel has abs, bool, breakpoint, float, getattr, hasattr, int, isinstance, len, list, max, min, range, str, tuple
  fix: did you mean `offs`?
""")
def unknown_name(x, n):
    offs = n * 2
    tl.store(x + ofs, 1.0)


@case(r"""
k.py:+1:5: error: `sorted` is not defined
  +1 |     sorted((1, 2))
     |     ^~~~~~
  found: neither a local variable, nor one of the enclosing function or module, has this name
  allowed: of Python's builtins a kernel has abs, bool, breakpoint, float, getattr, hasattr, int, isinstance, len, list, max, min, range, str, tuple
""")
def python_builtin(x):
    sorted((1, 2))


@case(r"""
k.py:+1:5: error: the module `tl` has no `stor`
  +1 |     tl.stor(x, 1.0)
     |     ^~~~~~~
  fix: did you mean `store` or `tensor`?
""")
def unknown_attribute_of_module(x):
    tl.stor(x, 1.0)


@case(r"""
k.py:+1:5: error: a scalar tl.ptr(tl.float32) has no attribute `dtipe`
  +1 |     x.dtipe
     |     ^~~~~~~
  fix: did you mean `dtype` or `type`?
""")
def unknown_attribute_of_value(x):
    x.dtipe


@case(r"""
k.py:+1:17: error: `later` has no value here
  +1 |     tl.store(x, later)
     |                 ^~~~~
  found: it is assigned only further down or on a path that is not taken
  fix: assign `later` before this line
""")
def used_before_assignment(x):
    tl.store(x, later)
    later = 1.0


@case(r"""
k.py:+1:17: error: `LIST` cannot be used in a kernel
  +1 |     tl.store(x, LIST[0])
     |                 ^~~~
  found: a value of type list
  allowed: modules, functions, kernels, dtypes, ints, floats, bools, strings, None, tuples of these, and tl.constexpr values
  fix: make it a tuple: then its value can enter the cache key
""")
def list_constant(x):
    tl.store(x, LIST[0])


@case(r"""
k.py:+1:17: error: `TABLE` cannot be used in a kernel
  +1 |     tl.store(x, TABLE["a"])
     |                 ^~~~~
  found: a value of type dict
  allowed: modules, functions, kernels, dtypes, ints, floats, bools, strings, None, tuples of these, and tl.constexpr values
  fix: use one name per entry, or a tuple
""")
def dict_constant(x):
    tl.store(x, TABLE["a"])


@case(r"""
k.py:+1:5: error: `Config` cannot be used in a kernel
  +1 |     Config.SIZE
     |     ^~~~~~
  found: the class Config
  allowed: modules, functions, kernels, dtypes, ints, floats, bools, strings, None, tuples of these, and tl.constexpr values
  fix: call it in a function decorated with @tlxc.constexpr_function, which runs at compile time
""")
def class_constant(x):
    Config.SIZE


@case(r"""
k.py:+1:13: error: the module `tlxc.language.tl` is not a value
  +1 |     alias = tl
     |             ^~
  allowed: a module followed by the name of one of its functions or constants
  fix: import the module at the top of the file and use it by its name
""")
def module_as_value(x):
    alias = tl


@case(r"""
k.py:+1:5: error: `re.sub` cannot be called in a kernel
  +1 |     re.sub("a", "b", "c")
     |     ^~~~~~
  found: the function `sub` of Python's standard library
  allowed: functions of tl and tlx, functions and kernels written in Python, compile-time functions, and abs, bool, breakpoint, float, getattr, hasattr, int, isinstance, len, list, max, min, range, str, tuple
  fix: call it in a function decorated with @tlxc.constexpr_function, which runs at compile time
""")
def standard_library(x):
    re.sub("a", "b", "c")


# ---- control flow
@case(r"""
k.py:+1:8: error: the condition of `if` is a tile, but a branch needs one scalar
  +1 |     if tl.arange(0, 8) > 3:
     |        ^~~~~~~~~~~~~~~~~~~
  found: a tile (8,) of tl.int1
  allowed: a run-time scalar or a compile-time value
  fix: choose element by element with tl.where(cond, x, y), or reduce the tile to a scalar with tl.max
""")
def tile_condition(x):
    if tl.arange(0, 8) > 3:
        pass


@case(r"""
k.py:+1:11: error: the condition of `while` is neither true nor false
  +1 |     while tl.load:
     |           ^~~~~~~
  found: the function `load`
  allowed: run-time scalars, and compile-time bools, numbers, strings, tuples and None
""")
def function_condition(x):
    while tl.load:
        pass


@case(r"""
k.py:+3:9: error: `total` changes its type in a loop
  +3 |         total += f
     |         ^~~~~
  found: it enters the loop as a scalar tl.int32 and leaves the body as a scalar tl.float32
  allowed: one dtype and shape for all trips
  fix: start it with that dtype: `total: tl.float32 = 0`
  `total` gets the value with which it enters the loop at k.py:+1:5
  +1 |     total = 0
     |     ^~~~~
""")
def changed_literal(x, f):
    total = 0
    for i in range(4):
        total += f
    tl.store(x, total)


@case(r"""
k.py:+3:9: error: `total` changes its type in a loop
  +3 |         total = total.to(tl.float16)
     |         ^~~~~
  found: it enters the loop as a scalar tl.float32 and leaves the body as a scalar tl.float16
  allowed: one dtype and shape for all trips
  fix: end the body with `total = total.to(tl.float32)`, or start with tl.float16
  `total` gets the value with which it enters the loop at k.py:+1:5
  +1 |     total = f * 2
     |     ^~~~~
""")
def changed_dtype(x, f):
    total = f * 2
    for i in range(4):
        total = total.to(tl.float16)


@case(r"""
k.py:+3:9: error: `acc` changes its type in a loop
  +3 |         acc = tl.zeros((16, 1), tl.float32)
     |         ^~~
  found: it enters the loop as a tile (16,) of tl.float32 and leaves the body as a tile (16, 1) of tl.float32
  allowed: one dtype and shape for all trips
  fix: give `acc` its final shape and dtype before the loop, for example with tl.zeros
  `acc` gets the value with which it enters the loop at k.py:+1:5
  +1 |     acc = tl.zeros((16,), tl.float32)
     |     ^~~
""")
def changed_shape(x, n):
    acc = tl.zeros((16,), tl.float32)
    while n > 0:
        acc = tl.zeros((16, 1), tl.float32)
        n -= 1


@case(r"""
k.py:+3:9: error: `acc` changes its type in a loop
  +3 |         acc += tl.load(x + tl.arange(0, 16))
     |         ^~~
  found: it enters the loop as a scalar tl.float32 and leaves the body as a tile (16,) of tl.float32
  allowed: one dtype and shape for all trips
  fix: start it as a tile, for example `acc = tl.full((16,), 0.0, tl.float32)`
  `acc` gets the value with which it enters the loop at k.py:+1:5
  +1 |     acc = 0.0
     |     ^~~
""")
def literal_becomes_a_tile(x):
    acc = 0.0
    for i in range(4):
        acc += tl.load(x + tl.arange(0, 16))


@case(r"""
k.py:+3:9: error: `mode` changes in a run-time loop, but it has no run-time form
  +3 |         mode = "b"
     |         ^~~~
  found: it enters the loop as 'a' (str) and leaves the body as 'b' (str)
  allowed: numbers, pointers, tiles and tuples of them
  fix: unroll the loop with tl.static_range
  `mode` gets the value with which it enters the loop at k.py:+1:5
  +1 |     mode = "a"
     |     ^~~~
""")
def changed_string(x, n):
    mode = "a"
    for i in range(n):
        mode = "b"


@case(r"""
k.py:+3:9: error: `pair` changes its type in a loop
  +3 |         pair = (n, 1, 2)
     |         ^~~~
  found: it enters the loop as a tuple (a scalar tl.int32, a scalar tl.int32) and leaves the body as a tuple (a scalar tl.int32, the compile-time value 1, the compile-time value 2)
  allowed: one dtype and shape for all trips
  fix: give `pair` the type that it has in the loop before the loop starts
  `pair` gets the value with which it enters the loop at k.py:+1:5
  +1 |     pair = (n, 1)
     |     ^~~~
""")
def changed_tuple(x, n):
    pair = (n, 1)
    for i in range(n):
        pair = (n, 1, 2)


@case(r"""
k.py:+3:17: error: `last` has no value here
  +3 |     tl.store(x, last)
     |                 ^~~~
  found: it is first assigned inside a run-time loop, which may make no trip
  fix: assign `last` before the loop
  `last` is assigned in the loop at k.py:+2:9
  +2 |         last = i
     |         ^~~~
""")
def first_assigned_in_loop(x, n):
    for i in range(n):
        last = i
    tl.store(x, last)


@case(r"""
k.py:+3:17: error: `i` has no value here
  +3 |     tl.store(x, i)
     |                 ^
  found: it is the variable of a run-time loop, which has ended
  fix: keep the value in a variable that is assigned before the loop
  `i` is the variable of the loop at k.py:+1:5
  +1 |     for i in range(n):
     |     ^~~~~~~~~~~~~~~~~~
""")
def loop_variable_after_loop(x, n):
    for i in range(n):
        pass
    tl.store(x, i)


@case(r"""
k.py:+3:17: error: `value` has no value here
  +3 |     tl.store(x, value)
     |                 ^~~~~
  found: the `if` branch assigns it, and there is no `else` branch; the condition is known only at run time
  fix: assign `value` before the `if`, or in both branches
  `value` is assigned in the `if` branch at k.py:+2:9
  +2 |         value = 1.0
     |         ^~~~~
""")
def one_branch(x, b):
    if b:
        value = 1.0
    tl.store(x, value)


@case(r"""
k.py:+5:17: error: `another` has no value here
  +5 |     tl.store(x, another)
     |                 ^~~~~~~
  found: the `else` branch assigns it, and the `if` branch leaves it without a value; the condition is known only at run time
  fix: assign `another` before the `if`, or in both branches
  `another` is assigned in the `else` branch at k.py:+4:9
  +4 |         another = 2.0
     |         ^~~~~~~
""")
def other_branch(x, b):
    if b:
        value = 1.0
    else:
        another = 2.0
    tl.store(x, another)


@case(r"""
k.py:+5:17: error: `value` has no value here
  +5 |     tl.store(x, value)
     |                 ^~~~~
  found: a run-time condition decides its type: a scalar tl.float32 after one branch, a scalar tl.int32 after the other
  fix: give `value` one type in both branches, for example with `.to(...)`
  `value` is assigned at k.py:+2:9
  +2 |         value = f
     |         ^~~~~
  `value` is assigned otherwise at k.py:+4:9
  +4 |         value = n
     |         ^~~~~
""")
def branches_differ(x, b, f, n):
    if b:
        value = f
    else:
        value = n
    tl.store(x, value)


@case(r"""
k.py:+1:17: error: the two sides of a conditional expression have different types
  +1 |     tl.store(x, f if b else n)
     |                 ^~~~~~~~~~~~~
  found: a scalar tl.float32 and a scalar tl.int32
  fix: convert one side with `.to(...)`, or write an `if` statement
""")
def sides_differ(x, b, f, n):
    tl.store(x, f if b else n)


@case(r"""
k.py:+3:13: error: `return` inside a run-time loop is not supported
  +3 |             return
     |             ^~~~~~
  found: a loop whose number of trips is not known at compile time
  fix: set a variable in the loop and return after it, or unroll the loop with tl.static_range
""")
def return_in_loop(x, n):
    for i in range(n):
        if i == 3:
            return


@case(r"""
k.py:+1:5: error: a kernel returns nothing
  +1 |     return n
     |     ^~~~~~~~
  found: a scalar tl.int32
  fix: store the result through a pointer with tl.store
""")
def return_value(x, n):
    return n


def two_types(a, f):
    if a > 0:
        return a
    return f


@case(r"""
k.py:-21:5: error: `two_types` returns values of different types on the two paths of a run-time `if`
 -21 |     if a > 0:
     |     ^~~~~~~~~
  found: a scalar tl.int32 and a scalar tl.float32
  fix: return one type on all paths, for example with `.to(...)`
  this path returns at k.py:-20:9
 -20 |         return a
     |         ^~~~~~~~
  this path returns at k.py:-19:5
 -19 |     return f
     |     ^~~~~~~~
  called from k.py:+1:17
  +1 |     tl.store(x, two_types(n, f))
     |                 ^~~~~~~~~~~~~~~
""")
def returns_differ(x, n, f):
    tl.store(x, two_types(n, f))


@case(r"""
k.py:+1:11: error: this loop never ends
  +1 |     while True:
     |           ^~~~
  found: a condition that is true at compile time; a kernel has no `break`
  fix: loop on a run-time condition, or use a `for` loop
""")
def endless_loop(x):
    while True:
        tl.store(x, 1.0)


@case(r"""
k.py:+1:14: error: the bounds of a loop are integer scalars
  +1 |     for i in range(f):
     |              ^~~~~~~~
  found: a scalar tl.float32
  fix: convert it with `.to(tl.int32)`
""")
def float_bound(x, f):
    for i in range(f):
        pass


@case(r"""
k.py:+1:14: error: a loop over tl.uint32 cannot count down
  +1 |     for i in range(m, 0, -1):
     |              ^~~~~~~~~~~~~~~
  found: the step -1, and bounds that promote to an unsigned type
  fix: convert the unsigned bound with `.to(tl.int32)` or `.to(tl.int64)`
""")
def unsigned_countdown(x, m):
    for i in range(m, 0, -1):
        pass


@case(r"""
k.py:+1:14: error: the stop of tl.static_range must be a compile-time integer
  +1 |     for i in tl.static_range(n):
     |              ^~~~~~~~~~~~~~~~~~
  found: a scalar tl.int32
  fix: pass the value as a tl.constexpr parameter
""")
def run_time_unrolled(x, n):
    for i in tl.static_range(n):
        pass


@case(r"""
k.py:+1:14: error: an unrolled loop of 1048576 trips would compile to as many copies of its body
  +1 |     for i in tl.static_range(1 << 20):
     |              ^~~~~~~~~~~~~~~~~~~~~~~~
  allowed: up to 10000 trips
  fix: write a run-time loop with `range` or tl.range
""")
def unrolled_too_often(x):
    for i in tl.static_range(1 << 20):
        pass


@case(r"""
k.py:+1:14: error: a kernel cannot loop over this
  +1 |     for i in tl.arange(0, 4):
     |              ^~~~~~~~~~~~~~~
  found: a tile (4,) of tl.int32
  allowed: range, tl.range, tl.static_range, and tuples
""")
def loop_over_tile(x):
    for i in tl.arange(0, 4):
        pass


@case(r"""
k.py:+1:14: error: a kernel cannot loop over this
  +1 |     for i in 4:
     |              ^
  found: the compile-time value 4
  allowed: range, tl.range, tl.static_range, and tuples
""")
def loop_over_number(x):
    for i in 4:
        pass


@case(r"""
k.py:+4:9: error: a loop has no `else` branch in a kernel
  +4 |         tl.store(x, 1.0)
     |         ^~~~~~~~~~~~~~~~
  fix: without `break` the branch always runs: write its statements after the loop
""")
def loop_else(x):
    for i in range(4):
        pass
    else:
        tl.store(x, 1.0)


@case(r"""
k.py:+1:9: error: the variable of a run-time loop is one name
  +1 |     for i, j in range(n):
     |         ^~~~
  fix: write `for i in range(...)`
""")
def two_loop_variables(x, n):
    for i, j in range(n):
        pass


@case(r"""
k.py:+1:14: error: the step of tl.range is 0
  +1 |     for i in range(0, n, 0):
     |              ^~~~~~~~~~~~~~
  allowed: steps other than 0
""")
def step_zero(x, n):
    for i in range(0, n, 0):
        pass


# ---- calls
def breaks(a):
    return a.no_such_thing


@case(r"""
k.py:-11:12: error: a scalar tl.int32 has no attribute `no_such_thing`
 -11 |     return a.no_such_thing
     |            ^~~~~~~~~~~~~~~
  called from k.py:+1:17
  +1 |     tl.store(x, breaks(n))
     |                 ^~~~~~~~~
""")
def inlined_error(x, n):
    tl.store(x, breaks(n))


def helper(a, BLOCK: tl.constexpr):
    return a + BLOCK


@case(r"""
k.py:+1:5: error: the parameter `BLOCK` of `helper` is tl.constexpr, but the call passes a run-time value
  +1 |     helper(n, n)
     |     ^~~~~~~~~~~~
  found: a scalar tl.int32
  fix: pass a compile-time value, or remove the annotation
""")
def run_time_argument_of_constexpr(x, n):
    helper(n, n)


@case(r"""
k.py:+1:5: error: `helper` cannot be called with these arguments
  +1 |     helper(n)
     |     ^~~~~~~~~
  found: missing a required argument: 'BLOCK'
  allowed: helper(a, BLOCK)
""")
def missing_argument(x, n):
    helper(n)


@case(r"""
k.py:+1:5: error: `tl.program_id` cannot be called with these arguments
  +1 |     tl.program_id(0, axs=1)
     |     ^~~~~~~~~~~~~~~~~~~~~~~
  found: got an unexpected keyword argument 'axs'
  allowed: tl.program_id(axis)
""")
def wrong_keyword(x):
    tl.program_id(0, axs=1)


def endless(a, k):
    return endless(a, k + 1)


@case(r"""
k.py:-17:12: error: calls nest too deep at `endless`
 -17 |     return endless(a, k + 1)
     |            ^~~~~~~~~~~~~~~~~
  found: recursion that no compile-time condition ends, or a chain of too many helpers
  allowed: up to 100 calls inside each other
  fix: end the recursion by an `if` on compile-time values, or write a loop
  called from k.py:-17:12
 -17 |     return endless(a, k + 1)
     |            ^~~~~~~~~~~~~~~~~
  called from k.py:-17:12
 -17 |     return endless(a, k + 1)
     |            ^~~~~~~~~~~~~~~~~
""")
def endless_recursion(x, n):
    endless(n, 0)


@case(r"""
k.py:+1:5: error: `n` cannot be called in a kernel
  +1 |     n(3)
     |     ^
  found: a scalar tl.int32
  allowed: functions of tl and tlx, functions and kernels written in Python, compile-time functions, and abs, bool, breakpoint, float, getattr, hasattr, int, isinstance, len, list, max, min, range, str, tuple
""")
def not_callable(x, n):
    n(3)


@case(r"""
k.py:+1:5: error: `tl.int64` cannot be called in a kernel
  +1 |     tl.int64(n)
     |     ^~~~~~~~
  found: the type tl.int64
  allowed: functions of tl and tlx, functions and kernels written in Python, compile-time functions, and abs, bool, breakpoint, float, getattr, hasattr, int, isinstance, len, list, max, min, range, str, tuple
  fix: convert a value with x.to(tl.int64)
""")
def dtype_call(x, n):
    tl.int64(n)


@case(r"""
k.py:+1:5: error: float() converts compile-time values only
  +1 |     float(n)
     |     ^~~~~~~~
  found: a scalar tl.int32
  fix: write x.to(tl.float32)
""")
def python_conversion(x, n):
    float(n)


@case(r"""
k.py:+1:5: error: `fails` runs at compile time and takes compile-time values only
  +1 |     fails(n)
     |     ^~~~~~~~
  found: argument 1 is a scalar tl.int32
  fix: pass compile-time values, or remove @tlxc.constexpr_function so that the call is inlined
""")
def compile_time_function_on_run_time_value(x, n):
    fails(n)


@case(r"""
k.py:+1:5: error: `fails` raised ValueError
  +1 |     fails(3)
     |     ^~~~~~~~
  found: 3 is odd
""")
def compile_time_function_raises(x):
    fails(3)


@case(r"""
k.py:+1:18: error: `**` in a call is not supported in a kernel
  +1 |     tl.load(x, **{"mask": None})
     |                  ^~~~~~~~~~~~~~
  fix: write the arguments as name=value
""")
def double_star(x):
    tl.load(x, **{"mask": None})


@case(r"""
k.py:+1:5: error: `print` is not supported in a kernel
  +1 |     print(x)
     |     ^~~~~~~~
  fix: print compile-time values with tl.static_print
""")
def prints(x):
    print(x)


@case(r"""
k.py:+1:9: error: this range is no value in a kernel
  +1 |     r = range(n)
     |         ^~~~~~~~
  found: `range(n)`
  allowed: `for i in range(...)`; elsewhere `range` of compile-time bounds and up to 1024 numbers, which is the tuple of them
  fix: loop over it where it stands
""")
def range_as_value(n):
    r = range(n)


@case(r"""
k.py:+1:9: error: this range is no value in a kernel
  +1 |     r = tl.static_range(3)
     |         ^~~~~~~~~~~~~~~~~~
  found: `tl.static_range(3)`
  allowed: `for i in range(...)`; elsewhere `range` of compile-time bounds and up to 1024 numbers, which is the tuple of them
  fix: loop over it where it stands
""")
def static_range_as_value(x):
    r = tl.static_range(3)


@case(r"""
k.py:+1:5: error: static_assert failed: BLOCK=3 is odd
  +1 |     tl.static_assert(BLOCK % 2 == 0, f"BLOCK={BLOCK} is odd")
     |     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  found: False
""")
def static_assertion(x, BLOCK: tl.constexpr = 3):
    tl.static_assert(BLOCK % 2 == 0, f"BLOCK={BLOCK} is odd")


# ---- expressions and assignments
@case(r"""
k.py:+1:5: error: 2 names are assigned from a tuple of 3
  +1 |     a, b = (1, 2, 3)
     |     ^~~~
  found: a tuple (the compile-time value 1, the compile-time value 2, the compile-time value 3)
  fix: use as many names as there are values
""")
def unpack_count(x, n):
    a, b = (1, 2, 3)


@case(r"""
k.py:+1:5: error: only a tuple can be unpacked
  +1 |     a, b = tl.arange(0, 2)
     |     ^~~~
  found: a tile (2,) of tl.int32
  fix: take a tile apart with tl.split, along a last extent of 2 or odd
""")
def unpack_tile(x):
    a, b = tl.arange(0, 2)


@case(r"""
k.py:+1:8: error: `*` in the target of an assignment is not supported
  +1 |     a, *b = (1, 2, 3)
     |        ^~
  allowed: names, and tuples of names
  fix: slice the tuple
""")
def starred_target(x):
    a, *b = (1, 2, 3)


@case(r"""
k.py:+2:5: error: an element cannot be assigned: values in a kernel do not change in place
  +2 |     t[0] = 1
     |     ^~~~
  allowed: names, and tuples of names
  fix: write memory with tl.store, or make a new tile with tl.where
""")
def element_assignment(x, n):
    t = tl.arange(0, 4)
    t[0] = 1


@case(r"""
k.py:+1:5: error: an attribute cannot be assigned: values in a kernel do not change in place
  +1 |     n.name = 1
     |     ^~~~~~
  allowed: names, and tuples of names
  fix: assign to a name of its own
""")
def attribute_assignment(x, n):
    n.name = 1


@case(r"""
k.py:+1:26: error: `size` is annotated tl.constexpr, but its value exists only at run time
  +1 |     size: tl.constexpr = n * 2
     |                          ^~~~~
  found: a scalar tl.int32
  fix: compute it from constexpr parameters, shapes and dtypes only, or remove the annotation
""")
def constexpr_of_run_time(x, n):
    size: tl.constexpr = n * 2


@case(r"""
k.py:+1:11: error: this annotation has no meaning for a variable
  +1 |     size: n = 3
     |           ^
  found: a scalar tl.int32
  allowed: tl.constexpr, or a dtype to convert to
  fix: remove it
""")
def strange_annotation(x, n):
    size: n = 3


@case(r"""
k.py:+1:28: error: a tuple is indexed by compile-time integers
  +1 |     tl.store(x, (1.0, 2.0)[n])
     |                            ^
  found: a scalar tl.int32
  fix: loop over the tuple with tl.static_range(len(x)), or choose with tl.where
""")
def tuple_index(x, n):
    tl.store(x, (1.0, 2.0)[n])


@case(r"""
k.py:+1:5: error: this expression cannot be computed at compile time
  +1 |     (1, 2)[5]
     |     ^~~~~~~~~
  found: tuple index out of range
""")
def tuple_too_short(x):
    (1, 2)[5]


@case(r"""
k.py:+1:15: error: the bounds of a slice are compile-time integers
  +1 |     (1, 2, 3)[:n]
     |               ^~
  found: a scalar tl.int32
  fix: address a part of memory with pointer arithmetic, for example x + tl.arange(0, 64) + start
""")
def run_time_slice(x, n):
    (1, 2, 3)[:n]


@case(r"""
k.py:+1:8: error: an f-string holds compile-time values only
  +1 |     f"{n}"
     |        ^
  found: a scalar tl.int32
  fix: format x.shape or x.dtype, or store the value and print it on the host
""")
def run_time_f_string(x, n):
    f"{n}"


@case(r"""
k.py:+1:5: error: `+` does not take None and the compile-time value 1
  +1 |     None + 1
     |     ^~~~~~~~
""")
def bad_operands(x):
    None + 1


@case(r"""
k.py:+1:5: error: `in` works on compile-time values only
  +1 |     n in (1, 2)
     |     ^~~~~~~~~~~
  found: a scalar tl.int32 in a tuple (the compile-time value 1, the compile-time value 2)
  fix: compare a run-time value with each item, and join the results with `or`
""")
def run_time_in(x, n):
    n in (1, 2)


@case(r"""
k.py:+1:5: error: `is` does not compare run-time values
  +1 |     n is (n + 1)
     |     ^~~~~~~~~~~~
  fix: write `==`
""")
def run_time_is(x, n):
    n is (n + 1)


@case(r"""
k.py:+1:5: error: a list comprehension has one `for` and no `if` in a kernel
  +1 |     [i for i in range(4) if i]
     |     ^~~~~~~~~~~~~~~~~~~~~~~~~~
  fix: write a tl.static_range loop
""")
def comprehension_with_if(x):
    [i for i in range(4) if i]


@case(r"""
k.py:+1:12: error: a kernel has no values of type bytes
  +1 |     text = b"a"
     |            ^~~~
  allowed: bools, ints, floats, strings and None
""")
def bytes_literal(x):
    text = b"a"


@case(r"""
k.py:+1:20: error: the module `tl` has no `stor`
  +1 |     ("ünïcode 日本", tl.stor(x))
     |                      ^~~~~~~
  fix: did you mean `store` or `tensor`?
""")
def wide_text_before_the_error(x):
    ("ünïcode 日本", tl.stor(x))


@pytest.mark.parametrize("fn, constants, expected", CASES)
def test_message(fn: Callable[..., Any], constants: dict[str, Any], expected: str) -> None:
    assert error_of(fn, constants) == expected.strip("\n")


# ---- syntax that kernels do not have: statement, how the message names it, what it says to do
REFUSED = [
    ("assert n", "`assert`", "check compile-time values with tl.static_assert(condition, message)"),
    (
        "break",
        "`break`",
        "put the rest of the body under an `if`, or loop with `while` on a condition that the body computes",
    ),
    (
        "continue",
        "`continue`",
        "put the rest of the body under an `if`, or loop with `while` on a condition that the body computes",
    ),
    ("class C: pass", "`class`", "group values in tuples"),
    ("del n", "`del`", "remove it: registers and buffers are freed after the last use"),
    ("d = {1: 2}", "a dict", "use one name per entry, or a tuple"),
    ("d = {i: 2 for i in range(2)}", "a dict", "use one name per entry, or a tuple"),
    ("def f(): pass", "a nested function", "define it at module level: a call inlines it"),
    ("async def f(): pass", "`async def`", "define a plain function at module level: a call inlines it"),
    (
        "s = tuple(i for i in (1, 2))",
        "a generator expression",
        "write a list comprehension, which is unrolled at compile time",
    ),
    ("global n2", "`global`", "pass values in as arguments and return them"),
    ("import os", "`import`", "import at the top of the file"),
    ("from os import path", "`import`", "import at the top of the file"),
    ("f = lambda: 1", "`lambda`", "define a function at module level: a call inlines it"),
    ("raise ValueError", "`raise`", "check compile-time values with tl.static_assert(condition, message)"),
    ("s = {1, 2}", "a set", "use a tuple"),
    ("s = {i for i in range(2)}", "a set", "use a tuple"),
    ("try: pass\n    finally: pass", "`try`", "remove it: a kernel raises no exceptions"),
    ("match n:\n        case 1: pass", "`match`", "write `if` and `elif`"),
]


def module_from(tmp_path: Path, text: str) -> ModuleType:
    """The text as an imported module, so that Python finds its source."""
    path = tmp_path / "module_under_test.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("module_under_test", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("statement, what, fix", REFUSED, ids=[r[1] + r[0][:6] for r in REFUSED])
def test_refused_syntax(tmp_path: Path, statement: str, what: str, fix: str) -> None:
    loop = "    for i in range(n):\n    " if statement in ("break", "continue") else ""
    module = module_from(tmp_path, f"def k(x, n):\n{loop}    {statement}\n")
    source = Source.of(module.k)
    with pytest.raises(CompileError) as caught:
        build(source, Signature((("x", TYPES["x"]), ("n", TYPES["n"]))), get_target("sm_90"))
    assert (caught.value.summary, caught.value.fix) == (f"{what} is not supported in a kernel", fix)
    assert caught.value.loc is not None and caught.value.loc.line == (3 if loop else 2)


# ---- functions that cannot be kernels
def test_no_source() -> None:
    scope: dict[str, Any] = {}
    exec("def typed(x): pass", scope)
    expected = (
        "error: `typed` cannot be compiled because Python has no source text for it (<string>); kernels and their helpers "
        "must be defined in a file, not typed at a prompt or made with exec()"
    )
    for action in (lambda s: s.digest(), lambda s: s.node, lambda s: build(s, Signature(()), get_target("sm_90"))):
        with pytest.raises(CompileError) as caught:
            action(Source.of(scope["typed"]))
        assert str(caught.value) == expected


async def coroutine(x): ...
def generator(x):
    yield x


def stars(*x): ...
def double_stars(**x): ...


@pytest.mark.parametrize(
    "fn, what, fix",
    [
        (coroutine, "is a coroutine, but a kernel cannot be one", "write `def` without `async`"),
        (generator, "is a generator, but a kernel cannot be one", "store results by tl.store, without `yield`"),
        (stars, "takes `*args`, which a kernel cannot", "name every parameter, or pass one tuple"),
        (double_stars, "takes `**kwargs`, which a kernel cannot", "name every parameter"),
    ],
)
def test_functions_that_are_no_kernels(fn: Any, what: str, fix: str) -> None:
    with pytest.raises(CompileError) as caught:
        Source.of(fn)
    where = f"{__file__}:{fn.__code__.co_firstlineno}"
    assert str(caught.value) == f"error: `{fn.__name__}` at {where} {what}\n  fix: {fix}"


def test_lambda() -> None:
    fn = lambda x: x
    with pytest.raises(CompileError) as caught:
        Source.of(fn)
    where = f"{__file__}:{fn.__code__.co_firstlineno}"
    expected = f"error: the lambda at {where} cannot be compiled: it has no name and no `def`"
    assert str(caught.value) == expected + "\n  fix: write it as a function with `def`"


def test_not_a_function() -> None:
    with pytest.raises(CompileError) as caught:
        Source.of(3)
    assert str(caught.value) == (
        "error: only a Python function can be compiled\n  found: 3 (int)\n"
        "  fix: put the code into a function that is written with `def`"
    )
