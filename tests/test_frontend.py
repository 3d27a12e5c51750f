"""The frontend: what IR Python constructs become, what stays at compile time, and what a cache key depends on.

Most tests compare two kernels: one written with the construct under test, one in plain statements; their IR must be
the same but for names.
"""
# ruff: noqa: B007, B008, B011, E741, F821, F841, SIM300, UP037

from __future__ import annotations

import importlib.util
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tlxc import constexpr_function, kernel, tl
from tlxc.errors import CompileError
from tlxc.frontend.signature import Argument, Signature
from tlxc.frontend.source import Source
from tlxc.frontend.visitor import build
from tlxc.ir.core import Module
from tlxc.ir.printer import print_module
from tlxc.ir.types import DType, Pointer, Scalar, float16, float32, int1, int8, int16, int32, int64, uint32, uint64
from tlxc.ir.verifier import verify
from tlxc.targets import get_target

TYPES = {
    "x": Argument(Pointer(int32), 16),
    "h": Argument(Pointer(float16)),
    "n": Argument(Scalar(int32), divisible=16),
    "m": Argument(Scalar(int32)),
    "l": Argument(Scalar(int64)),
    "f": Argument(Scalar(float32)),
    "b": Argument(Scalar(int1)),
}


def module_of(fn: Any, types: dict[str, Argument] = TYPES, **constants: Any) -> Module:
    """The verified module of a kernel whose parameters have the types in `types`."""
    source = Source.of(fn)
    arguments = tuple((p.name, types[p.name]) for p in source.parameters if p.name in types)
    module = build(source, Signature(arguments, tuple(constants.items())), get_target("sm_90"))
    verify(module)
    return module


def text_of(fn: Any, **constants: Any) -> str:
    return print_module(module_of(fn, **constants))


def anonymous(fn: Any, **constants: Any) -> str:
    """The printed IR without names of values and of the kernel."""
    module = module_of(fn, **constants)
    module.name = "k"
    for op in module.walk():
        for value in (*op.results, *(a for r in op.regions for a in r.args)):
            value.name = ""
    return print_module(module)


def kinds(fn: Any, **constants: Any) -> list[str]:
    return [op.kind for op in module_of(fn, **constants).walk()]


def golden(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


# -------------------------------------------------------------------------------------------------------------- golden
def test_parameters_and_straight_line_code() -> None:
    def scale(h, n, BLOCK: tl.constexpr = 64):
        """A docstring is no code."""
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        tl.store(h + offs, tl.load(h + offs, mask=mask) * 2, mask=mask)

    assert text_of(scale, BLOCK=32) == golden("""
        module @scale(%h: ptr<f16>, %n: i32 divisible 16) warps 4 {
          %0 = program_id {axis = 0} : i32
          %1 = constant {value = 32} : i32
          %2 = mul %0, %1 : i32
          %3 = arange {start = 0, end = 32} : tensor<32xi32>
          %4 = splat %2 : tensor<32xi32>
          %offs = add %4, %3 : tensor<32xi32>
          %5 = splat %n : tensor<32xi32>
          %mask = cmp %offs, %5 {pred = "lt"} : tensor<32xi1>
          %6 = splat %h : tensor<32xptr<f16>>
          %7 = addptr %6, %offs : tensor<32xptr<f16>>
          %8 = splat %h : tensor<32xptr<f16>>
          %9 = addptr %8, %offs : tensor<32xptr<f16>>
          %10 = load %9, %mask, _ : tensor<32xf16>
          %11 = constant {value = 0x1.0000000000000p+1} : f16
          %12 = splat %11 : tensor<32xf16>
          %13 = mul %10, %12 : tensor<32xf16>
          store %7, %13, %mask
        }
        """)


def test_run_time_loop() -> None:
    def loop(x, n):
        total = 0
        for i in range(n):
            total += i
        tl.store(x, total)

    assert text_of(loop) == golden("""
        module @loop(%x: ptr<i32> align 16, %n: i32 divisible 16) warps 4 {
          %0 = constant {value = 0} : i32
          %1 = constant {value = 1} : i32
          %2 = constant {value = 0} : i32
          %total = for %0, %n, %1, %2 : i32 {
          ^(%i: i32, %total.2: i32):
            %total.3 = add %total.2, %i : i32
            yield %total.3
          }
          store %x, %total, _
        }
        """)


def test_while() -> None:
    def halve(x, n):
        steps = 0
        while n > 1:
            n //= 2
            steps += 1
        tl.store(x, steps)

    assert text_of(halve) == golden("""
        module @halve(%x: ptr<i32> align 16, %n: i32 divisible 16) warps 4 {
          %0 = constant {value = 0} : i32
          %n.2, %steps = while %n, %0 : i32, i32 {
          ^(%n.3: i32, %steps.2: i32):
            %1 = constant {value = 1} : i32
            %2 = cmp %n.3, %1 {pred = "gt"} : i1
            yield %2
          } {
          ^(%n.4: i32, %steps.3: i32):
            %3 = constant {value = 2} : i32
            %n.5 = idiv %n.4, %3 : i32
            %4 = constant {value = 1} : i32
            %steps.4 = add %steps.3, %4 : i32
            yield %n.5, %steps.4
          }
          store %x, %steps, _
        }
        """)


def test_run_time_if() -> None:
    def branch(x, n, m):
        kept, changed = n, n
        if n < m:
            changed = m
            kept = n
        elif n == 0:
            changed = 7
        tl.store(x, changed + kept)

    assert text_of(branch) == golden("""
        module @branch(%x: ptr<i32> align 16, %n: i32 divisible 16, %m: i32) warps 4 {
          %0 = cmp %n, %m {pred = "lt"} : i1
          %changed = if %0 : i32 {
            yield %m
          } {
            %1 = constant {value = 0} : i32
            %2 = cmp %n, %1 {pred = "eq"} : i1
            %changed.2 = if %2 : i32 {
              %3 = constant {value = 7} : i32
              yield %3
            } {
              yield %n
            }
            yield %changed.2
          }
          %4 = add %changed, %n : i32
          store %x, %4, _
        }
        """)


def test_early_return_moves_the_rest_into_the_else_branch() -> None:
    def guard(x, n):
        if n == 0:
            return
        tl.store(x, n)

    assert text_of(guard) == golden("""
        module @guard(%x: ptr<i32> align 16, %n: i32 divisible 16) warps 4 {
          %0 = constant {value = 0} : i32
          %1 = cmp %n, %0 {pred = "eq"} : i1
          if %1 {
            yield
          } {
            store %x, %n, _
            yield
          }
        }
        """)


def clamp(a, top: tl.constexpr):
    if a < 0:
        return 0
    if a > top:
        return top
    return a


def test_returns_of_a_helper_are_merged() -> None:
    def clamped(x, n):
        tl.store(x, clamp(n, 9))

    assert text_of(clamped) == golden("""
        module @clamped(%x: ptr<i32> align 16, %n: i32 divisible 16) warps 4 {
          %0 = constant {value = 0} : i32
          %1 = cmp %n, %0 {pred = "lt"} : i1
          %2 = if %1 : i32 {
            %3 = constant {value = 0} : i32
            yield %3
          } {
            %4 = constant {value = 9} : i32
            %5 = cmp %n, %4 {pred = "gt"} : i1
            %6 = if %5 : i32 {
              %7 = constant {value = 9} : i32
              yield %7
            } {
              yield %n
            }
            yield %6
          }
          store %x, %2, _
        }
        """)


# -------------------------------------------------------------------------------------------------------- equal kernels
PAIRS: list[Any] = []


def same_as(plain: Callable[..., Any], **constants: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the kernel below it as one that must give the same IR as `plain`."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        PAIRS.append(pytest.param(fn, plain, constants, id=fn.__name__))
        return fn

    return register


def stores_1_2_3(x):
    tl.store(x, 1)
    tl.store(x, 2)
    tl.store(x, 3)


def stores_n(x, n):
    tl.store(x, n)


def stores_6(x):
    tl.store(x, 6)


CONSTANT = 3
WRAPPED = tl.constexpr(6)
SHAPE = (4, 8)
ELEMENT = tl.float16


@same_as(stores_1_2_3)
def static_range(x):
    for i in tl.static_range(1, 4):
        tl.store(x, i)


@same_as(stores_1_2_3)
def static_range_down(x):
    for i in tl.static_range(3, 0, -1):
        tl.store(x, 4 - i)


@same_as(stores_1_2_3)
def loop_over_tuple(x):
    for a, (b, c) in ((1, (0, 0)), (1, (1, 0)), (1, (1, 1))):
        tl.store(x, a + b + c)


@same_as(stores_1_2_3)
def comprehension(x):
    for value in [i + 1 for i in range(3)]:
        tl.store(x, value)


@same_as(stores_1_2_3)
def range_is_a_tuple(x):
    up, down = range(1, 4), range(3, 0, -1)
    for i in tl.static_range(len(up)):
        tl.store(x, up[i] + up[i] - tuple(range(4))[4 - down[i]])


@same_as(stores_1_2_3)
def return_in_unrolled_loop(x):
    for i in tl.static_range(1, 9):
        if i == 4:
            return
        tl.store(x, i)
    tl.store(x, 100)


@same_as(stores_n, MODE="plain", NONE=None)
def compile_time_branches(x, n, MODE: tl.constexpr, NONE: tl.constexpr):
    if MODE == "other" or NONE is not None:
        undefined_name()
    elif not NONE and MODE in ("plain", "simple"):
        value = n if MODE is not None else missing
    else:
        assert False
    while False:
        pass
    tl.store(x, value)


@same_as(stores_6)
def module_constants(x):
    tl.store(x, CONSTANT * 2 if WRAPPED == 6 and SHAPE[1:] == (8,) and ELEMENT == tl.float16 else WRAPPED.value)


@same_as(stores_6)
def python_builtins(x):
    values = tuple([1, 2.0, True])
    ok = len(values) == 3 and isinstance(values[1], float) and hasattr(x, "dtype") and getattr(x, "no", 4) == 4
    tl.store(x, max(abs(-6), int("3"), min(4, 5)) if ok and bool(1) and str(4) == f"{4}" else 0)


def sum_of(values):
    total: tl.constexpr = 0
    for value in values:
        total += value
    return total


@same_as(stores_6)
def tuples(x):
    a, (b, [c]) = 1, (2, [3, 4][:1]) + ()
    first = second = (a, *(b, c)) * 2
    tl.store(x, sum_of(first[:3]) if second[-1] == 3 else second[9])


@same_as(stores_6)
def arithmetic(x):
    value: tl.constexpr = 7 // 2 * 2**3 % 18
    value |= 0b10
    value -= 2
    tl.store(x, (value := value + 2) and 0 or value ^ 0)


def chained_plain(x, n, m):
    tl.store(x, ((0 <= n) & (n < m)).to(tl.int32))


@same_as(chained_plain)
def chained_comparison(x, n, m):
    tl.store(x, (0 <= n < m).to(tl.int32))


@same_as(chained_plain)
def boolean_operators(x, n, m):
    tl.store(x, (True and 0 <= n and (False or n < m)).to(tl.int32))


def transposed_plain(x):
    tl.store(x, tl.sum(tl.sum(tl.trans(tl.zeros((4, 8), tl.int32)), 0), 0))


@same_as(transposed_plain)
def property_is_read_once(x):
    tile = tl.zeros((4, 8), tl.int32)
    tl.store(x, getattr(tile, "T").sum(0).sum(0))  # noqa: B009


def conditional_plain(x, n, b):
    if b:
        value = n
    else:
        value = 7
    tl.store(x, value)


@same_as(conditional_plain)
def conditional_expression(x, n, b):
    tl.store(x, n if b else 7)


def scaled(a, /, factor=2, *, plus: tl.constexpr = 1):
    return a * factor, a + plus


def inlined_plain(x, n):
    product = n * 3
    following = n + 1
    tl.store(x, product)
    tl.store(x, following)


@same_as(inlined_plain)
def inlined(x, n):
    a, b = scaled(n, factor=CONSTANT)
    tl.store(x, a)
    tl.store(x, b)


@kernel
def helper_kernel(x, value):
    tl.store(x, value)


@same_as(stores_n)
def kernel_as_helper(x, n):
    helper_kernel(*(x,), value=n)


@same_as(stores_n)
def function_as_value(x, n):
    function = helper_kernel
    for call in (function,):
        call(x, n)


@constexpr_function
def doubled(k):
    return [k * 2, {k: 1}][0]  # what a kernel may not contain is allowed here


@same_as(stores_6)
def compile_time_function(x):
    tl.store(x, doubled(k=CONSTANT))


def countdown(k: tl.constexpr):
    return 0 if k == 0 else 2 + countdown(k - 1)


@same_as(stores_6)
def recursion_ended_at_compile_time(x):
    tl.store(x, countdown(CONSTANT))


def annotated_plain(x, n):
    tl.store(x, n.to(tl.int64).to(tl.int32))


@same_as(annotated_plain)
def annotated_dtype(x, n):
    wide: tl.int64 = n
    narrow: tl.int32 = wide
    tl.store(x, narrow)


def dead_assignment_plain(x, n):
    tile = tl.arange(0, 4)
    for i in range(n):
        tl.store(x, 4)


@same_as(dead_assignment_plain, RAGGED=False)
def assignment_in_a_dead_branch_carries_nothing(x, n, RAGGED: tl.constexpr):
    extent = 4
    tile = tl.arange(0, extent)
    for i in range(n):
        if RAGGED:
            extent = 2
        tl.store(x, extent)


@pytest.mark.parametrize("fn, plain, constants", PAIRS)
def test_same_ir(fn: Any, plain: Any, constants: dict[str, Any]) -> None:
    assert anonymous(fn, **constants) == anonymous(plain)


# ------------------------------------------------------------------------------------------------------ what is carried
def test_only_reassigned_names_are_carried() -> None:
    def loop(x, n):
        constant, total, pair = 5, 0, (1, n)
        for i in range(n):
            fresh = constant + i
            total += fresh
            pair = (pair[1], pair[0])
        tl.store(x, total + pair[0])
        tl.arange(0, constant + 3)

    (op,) = (op for op in module_of(loop).walk() if op.kind == "for")
    assert [v.name for v in op.results] == ["total", "pair_0", "pair_1"]


def test_compile_time_values_stay_where_branches_agree() -> None:
    def agree(x, b):
        size, mode = 4, "a"
        if b:
            size, mode = 8, "b"
            tl.store(x, 0)
        else:
            size, mode = 8, "b"
        tl.static_assert(mode == "b")
        tl.store(x + tl.arange(0, size), size)

    (op,) = (op for op in module_of(agree).walk() if op.kind == "if")
    assert op.results == []


def test_a_literal_takes_the_dtype_of_what_it_is_merged_with() -> None:
    def merge(x, b, l, f):
        whole, real = (l, f) if b else (1, 2)
        tl.store(x, whole.to(tl.int32) + real.to(tl.int32))

    (op,) = (op for op in module_of(merge).walk() if op.kind == "if")
    assert [v.type for v in op.results] == [Scalar(int64), Scalar(float32)]


def test_temporaries_of_different_types_are_no_error_unless_they_are_read() -> None:
    def temporaries(x, b, f):
        if b:
            t = f
        else:
            t = tl.arange(0, 4)
            only_here = 3
        tl.store(x, 1)

    assert "if" in kinds(temporaries)


def test_statements_after_a_nested_return_are_compiled_once_per_path() -> None:
    def nested(x, n, m):
        if n > 0:
            if m > 0:
                return
            tl.store(x, 1)
        tl.store(x, 2)

    assert kinds(nested).count("store") == 3


def test_too_many_copies_of_the_rest_are_refused(tmp_path: Path) -> None:
    nest = "".join(f"    if n > {i}:\n        if m > {i}:\n            return\n" for i in range(7))
    module = import_text(tmp_path, f"from tlxc import tl\ndef k(x, n, m):\n{nest}    tl.store(x, 1)\n")
    with pytest.raises(CompileError) as caught:
        module_of(module.k)
    assert caught.value.summary == "`return` stands in too many nested run-time branches"


# -------------------------------------------------------------------------------------------------------------- loops
BOUNDS = [
    (int32, 5, int32),
    (int8, 5, int32),
    (int16, int32, int32),
    (int32, uint32, uint32),
    (int32, int64, int64),
    (int32, 1 << 40, int64),
    (uint64, 0, uint64),
    (3, 4, int32),
]


@pytest.mark.parametrize("lo, hi, expected", BOUNDS)
def test_induction_dtype(lo: DType | int, hi: DType | int, expected: DType) -> None:
    def loop(lo, hi):
        for i in tl.range(lo, hi):
            pass

    given = {"lo": lo, "hi": hi}
    types = {name: Argument(Scalar(t)) for name, t in given.items() if isinstance(t, DType)}
    module = module_of(loop, types, **{name: v for name, v in given.items() if not isinstance(v, DType)})
    (op,) = (op for op in module.walk() if op.kind == "for")
    assert [v.type for v in (*op.operands, *op.regions[0].args)] == [Scalar(expected)] * 4


@pytest.mark.parametrize("step, attrs", [(1, {}), (-2, {"descending": True}), (None, {})])
def test_direction(step: int | None, attrs: dict[str, bool]) -> None:
    def loop(n, m, step=None):
        for i in range(n, m, m if step is None else step):
            pass

    (op,) = (op for op in module_of(loop, step=step).walk() if op.kind == "for")
    assert op.attrs == attrs


def test_hints_give_one_note() -> None:
    def loop(n):
        for i in tl.range(n, num_stages=3, loop_unroll_factor=2):
            pass

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        module_of(loop)
        module_of(loop)
    line = loop.__code__.co_firstlineno + 1
    assert [(str(w.message), w.filename, w.lineno) for w in caught] == [
        (
            "tl.range: no effect of num_stages and loop_unroll_factor, tlxc pipelines and unrolls nothing by itself",
            __file__,
            line,
        )
    ]


# ---------------------------------------------------------------------------------------------------------- signatures
def test_parameters_keep_their_facts() -> None:
    def k(x, n, m, one, none):
        tl.store(x, n + m * one)

    module = module_of(k, one=1, none=None)
    assert [(p.name, p.type, p.align, p.divisible) for p in module.params] == [
        ("x", Pointer(int32), 16, 1),
        ("n", Scalar(int32), 0, 16),
        ("m", Scalar(int32), 0, 1),
    ]
    assert (module.name, module.num_warps) == ("k", 4)


def test_source_parameters() -> None:
    def k(x: tl.ptr(tl.float16), n: tl.int32 = 3, *, BLOCK: tl.constexpr = tl.constexpr(64), other: "i64"): ...

    found = [(p.name, p.annotation, p.default, p.keyword_only, p.constexpr) for p in Source.of(k).parameters]
    missing = found[0][2]
    assert found == [
        ("x", Pointer(float16), missing, False, False),
        ("n", int32, 3, False, False),
        ("BLOCK", tl.constexpr, 64, True, True),
        ("other", "i64", missing, True, False),
    ]


# ----------------------------------------------------------------------------------------------------------- locations
def test_ops_know_their_line_columns_and_callers() -> None:
    def located(x, n):
        tl.store(x, clamp(n, 9))

    module = module_of(located)
    compared = next(op for op in module.walk() if op.kind == "cmp")
    store = next(op for op in module.walk() if op.kind == "store")
    first, helper = located.__code__.co_firstlineno, clamp.__code__.co_firstlineno
    assert store.loc is not None and compared.loc is not None
    assert (store.loc.file, store.loc.line, store.loc.column, store.loc.end_column) == (__file__, first + 1, 8, 32)
    assert (compared.loc.line, compared.loc.column, compared.loc.end_column) == (helper + 1, 7, 12)
    (caller,) = compared.loc.callers
    assert (caller.line, caller.column, caller.end_column) == (first + 1, 20, 31)
    assert all(op.loc is not None for op in module.walk())


def test_an_op_of_several_lines_is_located_at_its_first() -> None:
    # fmt: off
    def spread(x, n):
        tl.store(x,
                 n)
    # fmt: on

    (store,) = (op for op in module_of(spread).walk() if op.kind == "store")
    assert store.loc is not None
    assert (store.loc.line, store.loc.column, store.loc.end_column) == (spread.__code__.co_firstlineno + 1, 8, 19)


ENDS = {
    "brackets": "tl.store(x,\n1\n)",
    "string": 'tl.static_assert(True, """\nnot indented\n""")',
    "constants": "(\n1,\n2,\n)",
    "dead code": "tl.store(x, 1)\n        if False:\n# a comment\n            tl.store(x, 2)",
    "docstring": '"""only\nthis"""',
    "comment": "tl.store(x, 1)  # end\n\n        # still inside\n",
}


@pytest.mark.parametrize("last", ENDS)
def test_the_end_of_a_function_is_found(tmp_path: Path, last: str) -> None:
    text = f"from tlxc import tl\nif True:\n    def k(x):\n        {ENDS[last]}\n    def other(x): ...\nsize = 1\n"
    module = import_text(tmp_path, text)
    source = Source.of(module.k)
    assert source.text.strip().startswith("def k(x):") and "other" not in source.text
    assert source.location(source.node).line == 3
    assert len(source.node.body) == (2 if last == "dead code" else 1)
    module_of(module.k)


# -------------------------------------------------------------------------------------------------- what keys depend on
def import_text(tmp_path: Path, text: str, name: str = "module_under_test") -> ModuleType:
    """The text as an imported module, so that Python finds its source."""
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TEXT = """
import module_with_constants as other
from tlxc import tl, constexpr_function
FACTOR = 2
UNUSED = 5

@constexpr_function
def table(k, *rest):
    return {1: 2, 2: 3}[k]

def inner(a):
    return a * FACTOR + other.OFFSET

def k(x, n):
    tl.store(x, inner(n) + table(1))
"""


def digest(tmp_path: Path, old: str = "", new: str = "", constants: str = "OFFSET = 1\n") -> str:
    assert old in TEXT
    import_text(tmp_path, constants, "module_with_constants")
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    return Source.of(import_text(folder, TEXT.replace(old, new)).k).digest()


def test_digest(tmp_path: Path) -> None:
    base = digest(tmp_path)
    assert digest(tmp_path) == base
    assert digest(tmp_path, "UNUSED = 5", "\n\nUNUSED = 6") == base, "neither lines nor unused constants count"
    assert digest(tmp_path, "def k(", "@(lambda fn: fn)\ndef k(") == base, "decorators do not count"
    changes = {
        digest(tmp_path, "FACTOR = 2", "FACTOR = 3"),
        digest(tmp_path, "FACTOR = 2", "FACTOR = 2.0"),
        digest(tmp_path, "a * FACTOR", "FACTOR * a"),
        digest(tmp_path, "{1: 2,", "{1: 4,"),
        digest(tmp_path, constants="OFFSET = 2\n"),
        digest(tmp_path, "table(1)", "table(2)"),
    }
    assert len(changes - {base}) == 6


def test_changed_names_the_constant(tmp_path: Path) -> None:
    constants = import_text(tmp_path, "OFFSET = 1\n", "module_with_constants")
    module = import_text(tmp_path, TEXT)
    source = Source.of(module.k)
    assert sorted(read.name for read in source.reads) == ["FACTOR", "inner", "other.OFFSET", "table"]
    assert source.changed() is None
    module.FACTOR = int("2")
    assert source.changed() is None
    constants.OFFSET = 7
    change = source.changed()
    assert change is not None and (change.name, change.old, change.new) == ("other.OFFSET", 1, 7)
    constants.OFFSET = 1
    module.inner = types.FunctionType(module.inner.__code__, module.inner.__globals__)
    assert source.changed() is None, "the same text"
    module.inner = module.table
    change = source.changed()
    assert change is not None and change.name == "inner"


def test_a_name_that_is_defined_later_is_a_change(tmp_path: Path) -> None:
    module = import_text(tmp_path, "from tlxc import tl\ndef k(x):\n    tl.store(x, LATER)\n")
    source = Source.of(module.k)
    before = source.digest()
    assert source.changed() is None
    module.LATER = 1
    change = source.changed()
    assert change is not None and change.name == "LATER"
    assert Source(module.k).digest() != before


def test_functions_in_defaults_count(tmp_path: Path) -> None:
    text = "from tlxc import tl\ndef act(a):\n    return a + 1\ndef k(x, n, fn=act):\n    tl.store(x, fn(n))\n"
    first = Source.of(import_text(tmp_path, text).k)
    assert "add" in [op.kind for op in module_of(first.fn).walk()]
    second = Source.of(import_text(tmp_path, text.replace("a + 1", "a + 2"), "another_module").k)
    assert first.digest() != second.digest()


def test_closures_are_constants() -> None:
    def make(size: int) -> Any:
        def k(x):
            tl.store(x + tl.arange(0, size), size)

        return k

    small, large = Source.of(make(4)), Source.of(make(8))
    assert "tensor<8xi32>" in text_of(large.fn)
    assert small.digest() != large.digest()
    assert [(r.name, r.value) for r in small.reads] == [("size", 4)]


def test_sources_are_shared_and_carried_by_kernels() -> None:
    assert Source.of(clamp) is Source.of(clamp)
    assert Source.of(helper_kernel).name == "helper_kernel"
