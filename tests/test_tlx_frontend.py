"""Regions of tasks, captured values and buffers in kernels: the IR that the frontend makes of them, and its errors."""
# ruff: noqa: F821, F841, B018, E501, SIM117

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from test_frontend import golden

from tlxc import tl, tlx
from tlxc.errors import CompileError
from tlxc.frontend.signature import Argument, Signature
from tlxc.frontend.source import Source
from tlxc.frontend.visitor import build
from tlxc.ir.core import Module, Op
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.types import Descriptor, Pointer, Scalar, Tensor, float16, float32, int1, int32
from tlxc.ir.verifier import verify
from tlxc.targets import get_target

TYPES = {
    "x": Argument(Pointer(float32), 16),
    "n": Argument(Scalar(int32)),
    "b": Argument(Scalar(int1)),
    "d": Argument(Descriptor((64, 64), float16)),
    "e": Argument(Descriptor((64, 32), float16)),
}


def module_of(fn: Any, num_warps: int = 4, **constants: Any) -> Module:
    source = Source.of(fn)
    arguments = tuple((p.name, TYPES[p.name]) for p in source.parameters if p.name in TYPES)
    module = build(source, Signature(arguments, tuple(constants.items()), num_warps), get_target("sm_90"))
    verify(module)
    return module


def region(fn: Any, **constants: Any) -> Op:
    """The only region of tasks in a kernel."""
    (op,) = [op for op in module_of(fn, **constants).walk() if op.kind == "async_tasks"]
    return op


def kinds(op: Op, copy: int) -> list[str]:
    return [o.kind for o in op.regions[copy].walk()]


# ------------------------------------------------------------------------------------------------------------- golden
def test_producer_and_consumer() -> None:
    def k(d, e, n, STAGES: tl.constexpr = 2):
        a = tlx.local_alloc((64, 64), tl.float16, STAGES)
        full, empty = tlx.alloc_barriers(STAGES), tlx.alloc_barriers(STAGES)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                for i in range(n):
                    s, p = tlx.get_bufidx_phase(i, STAGES)
                    tlx.barrier_wait(full[s], p)
                    tlx.async_descriptor_store(e, tlx.local_slice(a[s], [0, 0], [64, 32]), [i, 0])
                    tlx.barrier_arrive(empty[s])
            with tlx.async_task(num_warps=1, num_regs=24):
                for i in range(n):
                    s, p = tlx.get_bufidx_phase(i, STAGES)
                    tlx.barrier_wait(empty[s], p ^ 1)
                    tlx.barrier_expect_bytes(full[s], 8192)
                    tlx.async_descriptor_load(d, a[s], [i * 64, 0], full[s])

    module = module_of(k)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    assert text == golden("""
        module @k(%d: desc<64x64xf16>, %e: desc<64x32xf16>, %n: i32) warps 4 {
          %a = local_alloc : buffer<2 * 64x64xf16, smem>
          %full = alloc_barriers {arrive_count = 1} : barrier<2>
          %empty = alloc_barriers {arrive_count = 1} : barrier<2>
          async_tasks {num_warps = (4, 1), start_warp = (0, 4), num_regs = (0, 24), replica = (0, 0)} {
            %0 = constant {value = 0} : i32
            %1 = constant {value = 1} : i32
            for %0, %n, %1 {
            ^(%i: i32):
              %2 = cast %i : u32
              %3 = constant {value = 2} : u32
              %4 = rem %2, %3 : u32
              %s = cast %4 : i32
              %5 = constant {value = 2} : u32
              %6 = idiv %2, %5 : u32
              %7 = constant {value = 1} : u32
              %8 = and %6, %7 : u32
              %p = cast %8 : i32
              %9 = barrier_view %full, %s : barrier
              barrier_wait %9, %p, _
              %10 = local_view %a, %s : buffer<64x64xf16, smem>
              %11 = local_slice %10 {offsets = (0, 0)} : buffer<64x32xf16, smem>
              %12 = constant {value = 0} : i32
              tma_store %e, %11, %i, %12
              %13 = barrier_view %empty, %s : barrier
              barrier_arrive %13, _, _ {count = 1}
              yield
            }
          } {
            %14 = constant {value = 0} : i32
            %15 = constant {value = 1} : i32
            for %14, %n, %15 {
            ^(%i.2: i32):
              %16 = cast %i.2 : u32
              %17 = constant {value = 2} : u32
              %18 = rem %16, %17 : u32
              %s.2 = cast %18 : i32
              %19 = constant {value = 2} : u32
              %20 = idiv %16, %19 : u32
              %21 = constant {value = 1} : u32
              %22 = and %20, %21 : u32
              %p.2 = cast %22 : i32
              %23 = barrier_view %empty, %s.2 : barrier
              %24 = constant {value = 1} : i32
              %25 = xor %p.2, %24 : i32
              barrier_wait %23, %25, _
              %26 = barrier_view %full, %s.2 : barrier
              barrier_expect %26, _ {bytes = 8192}
              %27 = local_view %a, %s.2 : buffer<64x64xf16, smem>
              %28 = constant {value = 64} : i32
              %29 = mul %i.2, %28 : i32
              %30 = barrier_view %full, %s.2 : barrier
              %31 = constant {value = 0} : i32
              tma_load %d, %27, %30, _, _, %29, %31
              yield
            }
          }
        }
    """)


def test_the_gemm_example(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[1] / "examples" / "hopper_gemm_ws.py"
    spec = importlib.util.spec_from_file_location("hopper_gemm_ws", path)
    assert spec is not None and spec.loader is not None
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.syspath_prepend(path.parent)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    blocks = {"a_desc": (64, 64), "b_desc": (64, 256), "c_desc": (64, 64)}
    arguments = [(name, Argument(Descriptor(shape, float16))) for name, shape in blocks.items()]
    arguments += [(name, Argument(Scalar(int32))) for name in "MNK"]
    module = build(Source.of(example.gemm), Signature(tuple(arguments)), get_target("sm_90"))
    verify(module)
    (op,) = [op for op in module.walk() if op.kind == "async_tasks"]
    assert op.attrs == {
        "num_warps": (4, 4, 4),
        "start_warp": (0, 4, 8),
        "num_regs": (40, 232, 232),
        "replica": (0, 0, 1),
    }
    assert [kinds(op, i).count("tma_load") for i in range(3)] == [3, 0, 0]
    assert [kinds(op, i).count("async_dot") for i in range(3)] == [0, 1, 1]
    assert [kinds(op, i).count("tma_store") for i in range(3)] == [0, 4, 4]
    assert sum(o.result.type.nbytes for o in module.body.ops if o.kind == "local_alloc") == 229376


# -------------------------------------------------------------------------------------------------- copies and warps
def test_replica_ids_are_constants() -> None:
    def k(x):
        with tlx.async_tasks():
            with tlx.async_task("default", replicate=2):
                tl.store(x + tlx.async_task_replica_id(), 1.0)
            with tlx.async_task(num_warps=2, replicate=2):
                if tlx.async_task_replica_id() == 1:
                    tl.store(x, 2.0)

    op = region(k)
    assert op.attrs["replica"] == (0, 1, 0, 1)
    assert op.attrs["num_warps"] == (4, 4, 2, 2)
    assert op.attrs["start_warp"] == (0, 4, 8, 10)
    assert [kinds(op, i).count("store") for i in range(4)] == [1, 1, 0, 1]


def test_larger_tasks_come_first_after_the_default_one() -> None:
    def k(x):
        with tlx.async_tasks():
            with tlx.async_task(num_warps=1):
                pass
            with tlx.async_task(num_warps=4, replicate=2):
                pass
            with tlx.async_task("default"):
                pass
            with tlx.async_task(num_warps=2):
                pass

    op = region(k, num_warps=8)
    assert op.attrs["num_warps"] == (8, 1, 4, 4, 2)
    assert op.attrs["start_warp"] == (0, 18, 8, 12, 16)


def test_small_tasks_lie_in_the_warpgroup_of_a_small_default_task() -> None:
    def k(x):
        with tlx.async_tasks():
            with tlx.async_task(num_warps=1, replicate=2):
                pass
            with tlx.async_task("default", replicate=2):
                pass
            with tlx.async_task(num_warps=8):
                pass
            with tlx.async_task(num_warps=2):
                pass

    assert region(k, num_warps=1).attrs["start_warp"] == (0, 1, 12, 13, 4, 2)
    assert region(k, num_warps=2).attrs["start_warp"] == (0, 14, 15, 2, 4, 12)
    assert region(k, num_warps=4).attrs["start_warp"] == (0, 18, 19, 12, 4, 16)


def test_start_warps_of_the_author() -> None:
    def k():
        with tlx.async_tasks():
            with tlx.async_task("default"):
                pass
            with tlx.async_task(num_warps=2, warp_group_start_id=4, replicate=2):
                pass
            with tlx.async_task(num_warps=1, warp_group_start_id=8):
                pass

    assert region(k).attrs["start_warp"] == (0, 4, 6, 8)


def test_compile_time_conditions_choose_tasks() -> None:
    def k(WIDE: tl.constexpr):
        with tlx.async_tasks(exclusive=True):
            if WIDE:
                with tlx.async_task("default", num_regs=64):
                    pass
            elif WIDE is None:
                pass
            else:
                with tlx.async_task("default"):
                    pass
                with tlx.async_task(num_warps=4):
                    pass

    assert region(k, WIDE=True).attrs["num_regs"] == (64,)
    assert region(k, WIDE=False).attrs["num_warps"] == (4, 4)
    assert region(k, WIDE=False).attrs["exclusive"] is True


def test_layouts_and_dots_follow_the_warps_of_the_task() -> None:
    def k():
        a = tlx.local_alloc((64, 64), tl.float16, 1)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                pass
            with tlx.async_task(num_warps=1):
                tlx.local_load(a[0], layout=tlx.layout(shape=((32,), (128,)), stride=((128,), (1,))))

    assert "require_layout" in kinds(region(k), 1)


# ------------------------------------------------------------------------------------------------------------- names
def test_what_a_task_assigns_is_its_own() -> None:
    def k(x, n):
        count = n + 1
        with tlx.async_tasks():
            with tlx.async_task("default"):
                for i in range(n):
                    count += i
                tl.store(x, count.to(tl.float32))
            with tlx.async_task(num_warps=4):
                count = 3.0
                tl.store(x, count)
        tl.store(x, count.to(tl.float32))

    module = module_of(k)
    last = module.body.ops[-1]
    assert last.kind == "store" and last.inputs[1].op.inputs[0].name == "count"
    assert last.inputs[1].op.inputs[0].op is module.body.ops[1]


def test_a_loop_around_a_region_carries_nothing_of_its_tasks() -> None:
    def k(x, n):
        count = 0.0
        for _ in range(n):
            with tlx.async_tasks():
                with tlx.async_task("default"):
                    count = 1.0
        tl.static_assert(count == 0.0)

    module_of(k)


def test_buffers_pass_through_helpers_tuples_branches_and_loops() -> None:
    def pick(buffers, i, bar):
        tlx.barrier_wait(bar, 0)
        return buffers[i]

    def k(n, b):
        a = tlx.local_alloc((8, 8), tl.float16, 2)
        bars = tlx.alloc_barriers(2)
        views = [a[0], a[1]]
        view = pick(views, 1, bars[0])
        token = tlx.async_load_commit_group()
        if b:
            view = a[0]
            token = tlx.async_load_commit_group()
        for i in range(n):
            tlx.local_store(view, 0)
            view = a[i % 2]
        tlx.local_store(view, 1)
        tlx.async_load_wait_group(0, [token])

    globals()["pick"] = pick
    module = module_of(k)
    types = [str(t.type) for op in module.walk() if op.kind in ("if", "for") for t in op.results]
    assert types == ["buffer<8x8xf16, smem>", "token", "buffer<8x8xf16, smem>"]


# ---------------------------------------------------------------------------------------------------- captured tiles
def test_pure_tiles_are_computed_again_in_each_copy() -> None:
    def k(x, n):
        offs = (tl.arange(0, 64)[:, None] * n + tl.arange(0, 32)[None, :]) % 7
        pointers = x + offs
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tl.store(pointers, 0.0)
            with tlx.async_task(num_warps=4, replicate=2):
                tl.store(pointers, 1.0, mask=offs < n)

    op = region(k)
    for copy in op.regions:
        inside = {value for o in copy.walk() for value in o.results}
        used = [value for o in copy.walk() for value in o.inputs if isinstance(value.type, Tensor)]
        assert used and inside.issuperset(used)
    assert [kinds(op, i).count("arange") for i in range(3)] == [2, 2, 2]


def test_the_default_task_keeps_tiles_that_its_warps_loaded() -> None:
    def k(x):
        tile = tl.load(x + tl.arange(0, 64))
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tl.store(x + tl.arange(0, 64), tile)

    assert "load" not in kinds(region(k), 0)


# ------------------------------------------------------------------------------------------------------------- errors
CASES: list[Any] = []


def case(expected: str, **constants: Any) -> Any:
    """Registers the kernel below it with the message that it must give."""

    def register(fn: Any) -> Any:
        CASES.append(pytest.param(fn, constants, golden(expected).rstrip("\n"), id=fn.__name__))
        return fn

    return register


def error_of(fn: Any, constants: dict[str, Any]) -> str:
    """The message for a kernel with lines relative to its `def`, and without the path."""
    with pytest.raises(CompileError) as caught:
        module_of(fn, **constants)
    source = Source.of(fn)
    base = source.location(source.node).line
    text = str(caught.value).replace(__file__, "k.py")
    text = re.sub(r"k\.py:(\d+):", lambda m: f"k.py:{int(m[1]) - base:+d}:", text)
    text = re.sub(r"^ *(\d+) \| ", lambda m: f"{int(m[1]) - base:+4d} | ", text, flags=re.M)
    return re.sub(r"^ +\| ", " " * 5 + "| ", text, flags=re.M)


@case("""
    k.py:+2:9: error: a region of tasks holds nothing but async_task
      +2 |         n = n + 1
         |         ^~~~~~~~~
      found: `n = n + 1`
      allowed: `with tlx.async_task(...):` statements, and compile-time `if`s around them
      fix: move the statement before the region, or into a task
""")
def other_statement(n):
    with tlx.async_tasks():
        n = n + 1


@case("""
    k.py:+1:10: error: a region has exactly one default task
      +1 |     with tlx.async_tasks():
         |          ^~~~~~~~~~~~~~~~~
      found: 0 default tasks among 1
      fix: write one `with tlx.async_task("default"):`
""")
def no_default(n):
    with tlx.async_tasks():
        with tlx.async_task(num_warps=4):
            pass


@case("""
    k.py:+1:10: error: a region has exactly one default task
      +1 |     with tlx.async_tasks():
         |          ^~~~~~~~~~~~~~~~~
      found: 2 default tasks among 2
      fix: write one `with tlx.async_task("default"):`
      a default task at k.py:+2:9
      +2 |         with tlx.async_task("default"):
         |         ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      a default task at k.py:+4:9
      +4 |         with tlx.async_task("default"):
         |         ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
""")
def two_defaults(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass
        with tlx.async_task("default"):
            pass


@case("""
    k.py:+6:14: error: Overlapping warp ranges of two tasks
      +6 |         with tlx.async_task(num_warps=2, warp_group_start_id=8):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: warps 8 to 9, and warps 8 to 11
      fix: choose other values of warp_group_start_id, or leave them out
      the other task at k.py:+4:14
      +4 |         with tlx.async_task(num_warps=4, warp_group_start_id=4, replicate=2):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
""")
def overlapping_warps(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass
        with tlx.async_task(num_warps=4, warp_group_start_id=4, replicate=2):
            pass
        with tlx.async_task(num_warps=2, warp_group_start_id=8):
            pass


@case("""
    k.py:+4:14: error: Overlapping warp ranges of two tasks
      +4 |         with tlx.async_task(num_warps=1, warp_group_start_id=3):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: warps 3 to 3, and warps 0 to 3
      fix: choose other values of warp_group_start_id, or leave them out
      the other task at k.py:+2:14
      +2 |         with tlx.async_task("default"):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~
""")
def overlap_with_the_default_task(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass
        with tlx.async_task(num_warps=1, warp_group_start_id=3):
            pass


@case("""
    k.py:+6:14: error: warp_group_start_id is given for all tasks but the default one, or for none
      +6 |         with tlx.async_task(num_warps=4):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: a task without it
      fix: give it here too, or nowhere; extra copies of the default task exclude it
      a task with warp_group_start_id at k.py:+4:14
      +4 |         with tlx.async_task(num_warps=4, warp_group_start_id=4):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
""")
def some_start_warps(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass
        with tlx.async_task(num_warps=4, warp_group_start_id=4):
            pass
        with tlx.async_task(num_warps=4):
            pass


@case("""
    k.py:+1:10: error: the tasks have more warps than a CTA
      +1 |     with tlx.async_tasks():
         |          ^~~~~~~~~~~~~~~~~
      found: 36 warps
      allowed: 32 warps on sm_90
      fix: use fewer copies or fewer warps
""")
def too_many_warps(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass
        with tlx.async_task(num_warps=16, replicate=2):
            pass


@case("""
    k.py:+2:14: error: num_regs must be divisible by 8
      +2 |         with tlx.async_task("default", num_regs=100):
         |              ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: 100
      allowed: multiples of 8 from 24 to 256
""")
def registers(n):
    with tlx.async_tasks():
        with tlx.async_task("default", num_regs=100):
            pass


@case("""
    k.py:+1:10: error: async_task stands outside a region
      +1 |     with tlx.async_task("default"):
         |          ^~~~~~~~~~~~~~~~~~~~~~~~~
      allowed: directly inside `with tlx.async_tasks():`
      fix: put it into a region, together with the other tasks of the CTA
""")
def task_outside_a_region(n):
    with tlx.async_task("default"):
        pass


@case("""
    k.py:+3:18: error: regions of tasks do not nest
      +3 |             with tlx.async_tasks():
         |                  ^~~~~~~~~~~~~~~~~
      found: async_tasks inside a task
      fix: write the tasks side by side in one region, or one region after the other
""")
def nested_regions(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            with tlx.async_tasks():
                with tlx.async_task("default"):
                    pass


@case("""
    k.py:+4:10: error: exclusive=True requires exactly one region in the kernel
      +4 |     with tlx.async_tasks():
         |          ^~~~~~~~~~~~~~~~~
      found: a second region of tasks
      fix: drop exclusive=True
      the other region at k.py:+1:10
      +1 |     with tlx.async_tasks(exclusive=True):
         |          ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
""")
def second_region_beside_an_exclusive_one(n):
    with tlx.async_tasks(exclusive=True):
        with tlx.async_task("default"):
            pass
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass


@case("""
    k.py:+2:12: error: which tasks a region has is decided at compile time
      +2 |         if b:
         |            ^
      found: a scalar tl.int1
      fix: put the `if` into the task
""")
def task_chosen_at_run_time(b):
    with tlx.async_tasks():
        if b:
            with tlx.async_task("default"):
                pass


@case("""
    k.py:+4:17: error: `return` inside a task is not supported
      +4 |                 return
         |                 ^~~~~~
      found: a task, which ends together with the other tasks of its region
      fix: put the rest of the task under an `if`
""")
def return_in_a_task(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            if n > 3:
                return


@case("""
    k.py:+4:18: error: `y` has no value here
      +4 |     tl.store(x + y, 0.0)
         |                  ^
      found: it is assigned inside a task, and what a task assigns is its own
      fix: store it to a buffer, or assign `y` before the region
      `y` is assigned in the task at k.py:+3:13
      +3 |             y = n + 1
         |             ^
""")
def name_of_a_task(x, n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            y = n + 1
    tl.store(x + y, 0.0)


@case("""
    k.py:+7:13: error: `double` is a tile from outside the task, whose threads do not hold it
      +7 |             tl.store(x + tl.arange(0, 64), double)
         |             ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: a tile (64,) of tl.float32
      allowed: scalars, pointers, buffers, barriers, descriptors, and tiles computed from them without memory access
      fix: compute it inside the task, or go through a buffer: tlx.local_store before, tlx.local_load inside
      the tile is made at k.py:+2:14
      +2 |     double = tile * 2.0
         |              ^~~~~~~~~~
""")
def captured_load(x, n):
    tile = tl.load(x + tl.arange(0, 64))
    double = tile * 2.0
    with tlx.async_tasks():
        with tlx.async_task("default"):
            pass
        with tlx.async_task(num_warps=4):
            tl.store(x + tl.arange(0, 64), double)


@case("""
    k.py:+1:5: error: this `with` is not supported in a kernel
      +1 |     with tlx.async_tasks(), tlx.async_task("default"):
         |     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: several context managers, or `as`
      allowed: `with tlx.async_tasks():` and, inside it, `with tlx.async_task(...):`, one at a time
      fix: remove it: no other context manager has a meaning in a kernel
""")
def two_context_managers(n):
    with tlx.async_tasks(), tlx.async_task("default"):
        pass


@case("""
    k.py:+1:5: error: this `with` is not supported in a kernel
      +1 |     with n:
         |     ^~~~~~~
      found: `n`
      allowed: `with tlx.async_tasks():` and, inside it, `with tlx.async_task(...):`, one at a time
      fix: remove it: no other context manager has a meaning in a kernel
""")
def another_context_manager(n):
    with n:
        pass


@case("""
    k.py:+3:13: error: `//` by the constant 0
      +3 |             1 // 0
         |             ^~~~~~
      allowed: divisors other than 0
""")
def error_in_a_task(n):
    with tlx.async_tasks():
        with tlx.async_task("default"):
            1 // 0


@case("""
    k.py:+1:8: error: the condition of `if` differs between the threads of the task
      +1 |     if tlx.thread_id(0) == 0:
         |        ^~~~~~~~~~~~~~~~~~~~~
      found: a value that is known per thread only
      allowed: conditions that all threads of the task agree on, or those of a warp, as tlx.warp_any gives them
      fix: store from one thread by a scalar tl.store, or choose with tl.where
""")
def branch_on_the_thread(x):
    if tlx.thread_id(0) == 0:
        tl.store(x, 1.0)


@case("""
    k.py:+2:11: error: the condition of `while` differs between the threads of the task
      +2 |     while tlx.warp_any(x > 0):
         |           ^~~~~~~~~~~~~~~~~~~
      found: a value that is known per warp only
      allowed: conditions that all threads of the task agree on
      fix: store from one thread by a scalar tl.store, or choose with tl.where
""")
def loop_of_a_warp(n):
    x = tl.arange(0, 64)
    while tlx.warp_any(x > 0):
        x -= 1


@case("""
    k.py:+2:5: error: warps that branch by themselves cannot return
      +2 |     if tlx.warp_any(x > 0):
         |     ^~~~~~~~~~~~~~~~~~~~~~~
      found: a `return` under a condition on which only the threads of a warp agree
      fix: assign the results in the branches, and return them after the `if`
""")
def return_of_a_warp(n):
    x = tl.arange(0, 64)
    if tlx.warp_any(x > 0):
        return


@case("""
    k.py:+2:5: error: warps that branch by themselves cannot choose this value
      +2 |     if tlx.warp_any(y > 0):
         |     ^~~~~~~~~~~~~~~~~~~~~~~
      found: a scalar tl.ptr(tl.float32)
      allowed: tiles and numbers
      fix: choose it under a condition that the whole task agrees on
""")
def pointer_of_a_warp(x):
    y = tl.arange(0, 64)
    if tlx.warp_any(y > 0):
        x += 1
    tl.store(x, 1.0)


@case("""
    k.py:+1:14: error: a bound of a loop differs between the threads of the task
      +1 |     for _ in range(tlx.thread_id(0)):
         |              ^~~~~~~~~~~~~~~~~~~~~~~
      found: a value that is known per thread only
      allowed: values that all threads of the task agree on
""")
def loop_to_a_thread_index(n):
    for _ in range(tlx.thread_id(0)):
        pass


@case("""
    k.py:+2:14: error: desc.load stands in a region of tasks that a loop repeats
      +2 |         with tlx.async_tasks():
         |              ^~~~~~~~~~~~~~~~~
      found: a wait whose phase would be lost between two runs of the region
      fix: move the loop into the tasks, or write tlx.async_descriptor_load with a barrier and a phase of your own
""")
def load_in_a_repeated_region(d, n):
    for i in range(n):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                d.load([i, 0])


@case("""
    k.py:+1:5: error: desc.load stands in the condition of a loop
      +1 |     while tl.max(tl.max(d.load([0, 0]), 1), 0) > 0:
         |     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      fix: load before the loop and at the end of its body
""")
def load_in_a_condition(d):
    while tl.max(tl.max(d.load([0, 0]), 1), 0) > 0:
        pass


@case("""
    k.py:+1:5: error: desc.store writes a tile of the descriptor's block shape
      +1 |     d.store([0, 0], tl.zeros((8, 8), tl.float16))
         |     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
      found: a tile (8, 8) of tl.float16, a descriptor of blocks (64, 64) of tl.float16
      allowed: a tile (64, 64)
""")
def store_of_another_shape(d):
    d.store([0, 0], tl.zeros((8, 8), tl.float16))


@case("""
    k.py:+4:21: error: `view` has no value here
      +4 |     tlx.local_store(view, 0)
         |                     ^~~~
      found: a run-time condition decides its type: a buffer (16,) of tl.float16 after one branch, a buffer (8,) of tl.float16 after the other
      fix: give `view` one type in both branches, for example with `.to(...)`
      `view` is assigned at k.py:+3:9
      +3 |         view = tlx.local_alloc((16,), tl.float16, 1)[0]
         |         ^~~~
      `view` is assigned otherwise at k.py:+1:5
      +1 |     view = tlx.local_alloc((8,), tl.float16, 1)[0]
         |     ^~~~
""")
def buffers_of_two_types_in_a_branch(b):
    view = tlx.local_alloc((8,), tl.float16, 1)[0]
    if b:
        view = tlx.local_alloc((16,), tl.float16, 1)[0]
    tlx.local_store(view, 0)


@pytest.mark.parametrize("fn, constants, expected", CASES)
def test_error(fn: Any, constants: dict[str, Any], expected: str) -> None:
    assert error_of(fn, constants) == expected


def test_an_error_in_a_task_leaves_nothing_behind() -> None:
    with pytest.raises(CompileError):
        module_of(error_in_a_task)

    def k(n):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                pass

    assert region(k).attrs["num_warps"] == (4,)


# ------------------------------------------------------------------------------------------- descriptors without barriers
def test_desc_load_carries_its_phase() -> None:
    def k(d, e, n, b):
        for i in range(n):
            tile = d.load([i, 0])
            if b:
                e.store([i, 0], e.load([i, 0]))

    assert print_module(module_of(k)) == golden("""
        module @k(%d: desc<64x64xf16>, %e: desc<64x32xf16>, %n: i32, %b: i1) warps 4 {
          %0 = constant {value = 0} : i32
          %1 = constant {value = 1} : i32
          %2 = local_alloc : buffer<64x32xf16, smem>
          %3 = local_alloc : buffer<64x32xf16, smem>
          %4 = alloc_barriers {arrive_count = 1} : barrier
          %5 = local_alloc : buffer<64x64xf16, smem>
          %6 = alloc_barriers {arrive_count = 1} : barrier
          %7 = constant {value = 0} : i32
          %8 = constant {value = 1} : i32
          %9, %10 = for %7, %n, %8, %0, %0 : i32, i32 {
          ^(%i: i32, %11: i32, %12: i32):
            %13 = constant {value = 0} : i32
            barrier_expect %6, _ {bytes = 8192}
            tma_load %d, %5, %6, _, _, %i, %13
            %14 = constant {value = 0} : i32
            barrier_wait %6, %11, _
            %15 = xor %11, %1 : i32
            %tile = local_load %5 : tensor<64x64xf16>
            %16 = if %b : i32 {
              %17 = constant {value = 0} : i32
              barrier_expect %4, _ {bytes = 4096}
              tma_load %e, %3, %4, _, _, %i, %17
              %18 = constant {value = 0} : i32
              barrier_wait %4, %12, _
              %19 = xor %12, %1 : i32
              %20 = local_load %3 : tensor<64x32xf16>
              %21 = constant {value = 0} : i32
              local_store %2, %20
              tma_store %e, %2, %i, %21
              tma_store_wait {pendings = 0, read = false}
              yield %19
            } {
              yield %12
            }
            yield %15, %16
          }
        }
    """)


def test_each_copy_of_a_task_has_its_own_buffer() -> None:
    def k(d):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                d.load([0, 0])
                d.load([64, 0])
            with tlx.async_task(num_warps=4, replicate=2):
                for i in tl.static_range(3):
                    d.load([i, 0])

    module = module_of(k)
    assert [op.kind for op in module.body.ops].count("local_alloc") == 4
    for copy in region(k).regions:
        waits = [op for op in copy.walk() if op.kind == "barrier_wait"]
        phases = [op.operands[1].op.kind for op in waits]
        assert phases in (["constant", "constant"], ["constant", "xor", "xor"])
