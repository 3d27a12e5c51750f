"""Barriers: where they stand, that they suffice (an independent verifier), and that each is needed (mutations)."""

from __future__ import annotations

import pytest
from test_memory_plan import SharedKernel, random_program

from tlxc.errors import InternalError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import blocked
from tlxc.ir.memory import swizzled
from tlxc.ir.parser import parse_module
from tlxc.ir.types import Scalar, Tensor, float32
from tlxc.ir.verifier import verify
from tlxc.passes.hazards import verify_hazards
from tlxc.passes.memory_plan import plan_memory
from tlxc.passes.sync import insert_barriers
from tlxc.targets import get_target
from tlxc.targets.fragments import wgmma_acc

SM90 = get_target("sm_90")
SYNC = ("barrier", "fence_async_shared")


def shape(region: Region) -> list:
    """Accesses and synchronisation, with the contents of loops and branches as lists."""
    out: list = []
    for op in region.ops:
        if op.regions:
            out.append([shape(r) for r in op.regions] if op.kind == "if" else shape(op.regions[-1]))
        elif op.kind.startswith("local_") and op.kind != "local_alloc":
            out.append(op.kind[6:])
        elif op.kind in (*SYNC, "dot"):
            out.append(op.kind.partition("_")[0])
    return out


def synchronised(k: SharedKernel) -> list:
    plan_memory(k.module, SM90)
    given = {op for op in k.module.walk() if op.kind in SYNC}
    insert_barriers(k.module, SM90)
    verify_hazards(k.module)
    assert_each_is_needed(k.module, k.module.body, given)
    return shape(k.module.body)


def assert_each_is_needed(module: Module, region: Region, given: set[Op]) -> None:
    """The mutation test: without any one inserted barrier or fence the verifier finds a hazard."""
    for op in list(region.ops):
        if op.kind in SYNC and op not in given:
            at = region.ops.index(op)
            del region.ops[at]
            with pytest.raises(InternalError, match="without"):
                verify_hazards(module)
            region.ops.insert(at, op)
        for r in op.regions:
            assert_each_is_needed(module, r, given)


def test_write_then_read() -> None:
    k = SharedKernel()
    a = k.alloc()
    k.store(a)
    k.load(a)
    k.load(a)
    assert synchronised(k) == ["store", "barrier", "load", "load"]


def test_disjoint_buffers_do_not_meet() -> None:
    k = SharedKernel()
    a, b = k.alloc(), k.alloc()
    k.store(a)
    k.store(b)
    k.load(a)
    k.load(b)
    assert synchronised(k) == ["store", "store", "barrier", "load", "load"]


def test_bytes_that_two_buffers_share_meet() -> None:
    k = SharedKernel()
    for _ in range(2):
        a = k.alloc((128, 128))
        k.store(a)
        k.load(a)
    assert synchronised(k) == ["store", "barrier", "load", "barrier", "store", "barrier", "load"]


def test_back_edge() -> None:
    k = SharedKernel()
    k.loop()
    a = k.alloc()
    k.store(a)
    k.load(a)
    k.leave()
    assert synchronised(k) == [["barrier", "store", "barrier", "load"]]


def test_barriers_move_out_of_loops_where_that_is_enough() -> None:
    k = SharedKernel()
    q = k.alloc()
    k.store(q)
    k.loop()
    k.loop()
    k.load(q)
    k.leave()
    k.leave()
    assert synchronised(k) == ["store", "barrier", [["load"]]]


def test_a_barrier_in_both_branches_or_after_them() -> None:
    k = SharedKernel()
    a = k.alloc()
    k.store(a)
    then, other = k.branch()
    k.enter(then)
    k.load(a)
    k.leave()
    k.enter(other)
    k.leave()
    k.load(a)
    assert synchronised(k) == ["store", [["barrier", "load"], []], "barrier", "load"]


def test_a_loop_that_may_not_run_protects_nothing() -> None:
    k = SharedKernel()
    a, b = k.alloc(), k.alloc()
    k.store(a)
    k.loop()
    k.load(b)
    k.store(b)
    k.leave()
    k.load(a)
    got = synchronised(k)
    assert got[-2:] == ["barrier", "load"]


# ------------------------------------------------------------------------------------------------ wgmma
def dot(k: SharedKernel, a: Value, b: Value) -> None:
    acc = k.op("constant", (), [Scalar(float32)], value=0.0).result
    tile = k.op("splat", [acc], [Tensor((64, 64), float32)]).result
    k.op("dot", [a, b, tile], [tile.type], impl="wgmma")


def operands(k: SharedKernel) -> tuple[Value, Value]:
    mem = swizzled((64, 64), 2, 128)
    return k.alloc(mem=mem), k.alloc(mem=mem)


def test_stores_fence_barrier_dot() -> None:
    k = SharedKernel()
    k.loop()
    a, b = operands(k)
    k.store(a)
    k.store(b)
    k.op("fence_async_shared")
    dot(k, a, b)
    k.leave()
    assert synchronised(k) == [["barrier", "store", "store", "fence", "barrier", "dot"]]


def test_a_missing_fence_is_inserted_with_its_barrier() -> None:
    k = SharedKernel()
    a, b = operands(k)
    k.store(a)
    k.store(b)
    k.op("barrier")
    dot(k, a, b)
    assert synchronised(k) == ["store", "store", "barrier", "fence", "barrier", "dot"]


def test_a_fence_in_front_of_the_barrier_serves_the_loop() -> None:
    """An operand staged before the loop costs nothing in it."""
    k = SharedKernel()
    q, a = operands(k)
    k.store(q)
    k.op("fence_async_shared")
    k.loop()
    k.store(a)
    k.op("fence_async_shared")
    dot(k, q, a)
    k.leave()
    assert synchronised(k) == ["store", "fence", ["barrier", "store", "fence", "barrier", "dot"]]


def test_fence_after_the_barrier_is_not_enough() -> None:
    k = SharedKernel()
    a, b = operands(k)
    k.store(a)
    k.store(b)
    k.op("barrier")
    k.op("fence_async_shared")
    dot(k, a, b)
    plan_memory(k.module, SM90)
    with pytest.raises(InternalError, match="dot at k.py:.* can follow local_store at k.py:.* without a proxy fence"):
        verify_hazards(k.module)
    insert_barriers(k.module, SM90)
    verify_hazards(k.module)


# ------------------------------------------------------------------------------------------------ random programs
@pytest.mark.parametrize("seed", range(100, 200))
def test_random_programs(seed: int) -> None:
    k = random_program(seed)
    synchronised(k)


def test_the_report_names_both_ops() -> None:
    k = SharedKernel()
    a = k.alloc()
    store, load = k.store(a), k.load(a)
    plan_memory(k.module, SM90)
    with pytest.raises(InternalError) as error:
        verify_hazards(k.module)
    assert str(error.value) == (
        f"k: local_load at {load.loc} can follow local_store at {store.loc} without a barrier, and both touch shared "
        "memory bytes 0 to 8191."
    )


# ------------------------------------------------------------------------------------------------ tasks and async work
EVENTS = (*SYNC, "local_load", "local_store", "async_dot", "async_dot_wait", "tma_load", "tma_store", "tma_store_wait",
          "barrier_wait", "barrier_arrive", "barrier_expect", "async_load", "async_load_wait")  # fmt: skip
SHORT = {"barrier_arrive": "arrive", "barrier_expect": "expect", "barrier_wait": "wait"}
# The types and layouts that the texts below use: a tile of 4 warps, an accumulator, a swizzled buffer.
HEAD = """#0 = {blocked}
#1 = {acc}
#2 = memory {swizzled}
module @k(%d: desc<64x64xf16, #2>, %n: i32, %g: ptr<f16>) warps {warps} {{
  %full = alloc_barriers {{arrive_count = 1}} : barrier<4>
  %empty = alloc_barriers {{arrive_count = 1}} : barrier<4>
  %a = local_alloc : buffer<4 * 64x64xf16, smem, #2>
  %c = local_alloc : buffer<2 * 64x64xf16, smem, #2>
  %zero = constant {{value = 0}} : i32
  %one = constant {{value = 1}} : i32
  %f = constant {{value = 0x0.0p+0}} : f32
  %h = constant {{value = 0x0.0p+0}} : f16
"""


def parsed(body: str, warps: int = 4) -> Module:
    head = HEAD.format(
        blocked=blocked((64, 64), None, 1, 32, warps), acc=wgmma_acc(64, 64), swizzled=swizzled((64, 64), 2, 128),
        warps=warps,
    )  # fmt: skip
    m = parse_module(head + body + "}\n")
    verify(m)
    return m


def events(region: Region) -> list:
    out: list = []
    for op in region.ops:
        if op.regions:
            out.append([events(r) for r in op.regions] if op.kind in ("if", "async_tasks") else events(op.regions[-1]))
        elif op.kind in EVENTS:
            out.append(SHORT.get(op.kind, op.kind) + "!" * bool(op.attrs.get("synced")))
    return out


def inserted(body: str, warps: int = 4) -> list:
    """The events of the kernel after the pass; `!` marks arrivals that the task need not meet before."""
    m = parsed(body, warps)
    plan_memory(m, SM90)
    given = {op for op in m.walk() if op.kind in SYNC}
    insert_barriers(m, SM90)
    verify_hazards(m)
    assert_each_is_needed(m, m.body, given)
    return events(m.body)


FOR = "for %zero, %n, %one {{\n^(%i{}: i32):\n"
TILE = "%x{0} = splat %h : tensor<64x64xf16, #0>\n"
VIEWS = """%av{0} = local_view %a, %i{0} : buffer<64x64xf16, smem, #2>
%fv{0} = barrier_view %full, %i{0} : barrier
%ev{0} = barrier_view %empty, %i{0} : barrier
"""
C0 = "%c0 = local_view %c, %zero : buffer<64x64xf16, smem, #2>\n"
TASKS = "async_tasks {{num_warps = {0}, start_warp = {1}, num_regs = {2}, replica = {2}}} {{\n"


def test_the_producer_and_consumer_of_a_gemm() -> None:
    producer = (
        FOR.format(1)
        + VIEWS.format(1)
        + """
      barrier_wait %ev1, %zero, _
      barrier_expect %fv1, _ {bytes = 8192}
      tma_load %d, %av1, %fv1, _, _, %zero, %zero
      yield
    }"""
    )
    consumer = (
        C0
        + FOR.format(2)
        + """
      %acc0 = splat %f : tensor<64x64xf32, #1>
      %acc = for %zero, %n, %one, %acc0 : tensor<64x64xf32, #1> {
      ^(%i3: i32, %before: tensor<64x64xf32, #1>):
"""
        + VIEWS.format(3)
        + """
        barrier_wait %fv3, %zero, _
        %next = async_dot %av3, %av3, %before, _ : tensor<64x64xf32, #1>
        %now = async_dot_wait %next {pendings = 1} : tensor<64x64xf32, #1>
        barrier_arrive %ev3, _, _ {count = 1}
        yield %now
      }
      %done = async_dot_wait %acc {pendings = 0} : tensor<64x64xf32, #1>
"""
        + VIEWS.format(2)
        + "barrier_arrive %ev2, _, _ {count = 1}\n"
        + TILE.format(2)
        + """
      local_store %c0, %x2
      tma_store %d, %c0, %zero, %zero
      tma_store_wait {pendings = 0, read = true}
      yield
    }"""
    )
    body = TASKS.format("(1, 4)", "(0, 4)", "(0, 0)") + producer + "\n} {\n" + consumer + "\n}\n"
    assert inserted(body) == [
        [
            [["wait", "expect!", "tma_load"]],
            [[
                ["wait", "async_dot", "async_dot_wait", "arrive!"],
                "async_dot_wait", "arrive!",
                "barrier", "local_store", "fence_async_shared", "barrier", "tma_store", "tma_store_wait",
            ]],
        ]
    ]  # fmt: skip


def test_an_arrival_after_reads_by_all_threads_meets_the_task() -> None:
    body = (
        FOR.format(1)
        + VIEWS.format(1)
        + """barrier_wait %fv1, %zero, _
  %v = local_load %av1 : tensor<64x64xf16, #0>
  barrier_arrive %ev1, _, _ {count = 1}
  yield
}
"""
    )
    assert inserted(body) == [["wait", "local_load", "arrive"]]
    assert inserted(body, 1) == [["wait", "local_load", "arrive"]]


def test_a_warp_that_may_lag_behind_is_waited_for() -> None:
    body = (
        FOR.format(1)
        + VIEWS.format(1)
        + """barrier_wait %fv1, %zero, _
  barrier_arrive %ev1, _, _ {count = 1}
  yield
}
"""
    )
    assert inserted(body) == [["wait", "arrive"]]
    assert inserted(body, 1) == [["wait", "arrive!"]]


def test_several_warpgroups_do_not_know_of_each_other() -> None:
    body = (
        FOR.format(1)
        + VIEWS.format(1)
        + """barrier_wait %fv1, %zero, _
  %t = splat %f : tensor<64x64xf32, #1>
  %u = async_dot %av1, %av1, %t, _ : tensor<64x64xf32, #1>
  %v = async_dot_wait %u {pendings = 0} : tensor<64x64xf32, #1>
  barrier_arrive %ev1, _, _ {count = 1}
  yield
}
"""
    )
    assert inserted(body) == [["wait", "async_dot", "async_dot_wait", "arrive!"]]
    assert inserted(body, 8) == [["wait", "async_dot", "async_dot_wait", "arrive"]]


def test_a_meeting_before_an_arrival_is_a_barrier() -> None:
    body = (
        VIEWS.replace("%i{0}", "%zero").format(1)
        + TILE.format(1)
        + """local_store %av1, %x1
  barrier_arrive %ev1, _, _ {count = 1}
  %v = local_load %av1 : tensor<64x64xf16, #0>
"""
    )
    assert inserted(body) == ["local_store", "arrive", "local_load"]


def test_a_wait_for_an_mbarrier_orders_nothing() -> None:
    body = (
        VIEWS.replace("%i{0}", "%zero").format(1)
        + TILE.format(1)
        + """local_store %av1, %x1
  barrier_wait %ev1, %zero, _
  %v = local_load %av1 : tensor<64x64xf16, #0>
"""
    )
    assert inserted(body) == ["local_store", "wait", "barrier", "local_load"]


@pytest.mark.parametrize(("op", "orders"), [
    ("named_barrier_wait %zero {threads = 128}", True), ("named_barrier_arrive %zero {threads = 128}", False),
    ("cluster_barrier", True), ("cluster_barrier {relaxed = true}", False), ("barrier {cta = true}", True),
])  # fmt: skip
def test_what_orders_the_threads_of_a_task(op: str, orders: bool) -> None:
    body = C0 + TILE.format(1) + f"local_store %c0, %x1\n{op}\n%v = local_load %c0 : tensor<64x64xf16, #0>\n"
    given = ["barrier"] if op.startswith("barrier") else []
    assert inserted(body) == ["local_store", *(given if orders else ["barrier"]), "local_load"]


def test_tiles_of_an_array_with_known_indices_are_apart() -> None:
    body = (
        C0
        + TILE.format(1)
        + """%c1 = local_view %c, %one : buffer<64x64xf16, smem, #2>
  local_store %c0, %x1
  %v = local_load %c1 : tensor<64x64xf16, #0>
"""
    )
    assert inserted(body) == ["local_store", "local_load"]


def test_a_view_is_its_buffer() -> None:
    body = (
        C0
        + TILE.format(1)
        + """%t = local_trans %c0 {order = (1, 0)} : buffer<64x64xf16, smem, #2>
  local_store %c0, %x1
  %v = local_load %t : tensor<64x64xf16, #0>
"""
    )
    assert inserted(body) == ["local_store", "barrier", "local_load"]


def test_tma_overwrites_what_the_task_has_read() -> None:
    body = (
        VIEWS.replace("%i{0}", "%zero").format(1)
        + """%v = local_load %av1 : tensor<64x64xf16, #0>
  tma_load %d, %av1, %fv1, _, _, %zero, %zero
"""
    )
    assert inserted(body) == ["local_load", "barrier", "tma_load"]


def test_a_barrier_before_the_wait_covers_no_store_under_way() -> None:
    body = (
        C0
        + TILE.format(1)
        + """tma_store %d, %c0, %zero, %zero
  barrier
  tma_store_wait {pendings = 0, read = true}
  local_store %c0, %x1
"""
    )
    assert inserted(body) == ["tma_store", "barrier", "tma_store_wait", "barrier", "local_store"]


def test_stores_that_take_turns() -> None:
    turn = """tma_store_wait {{pendings = 1, read = true}}
  local_store %c{0}, %x1
  tma_store %d, %c{0}, %zero, %zero
"""
    body = C0 + "%c1 = local_view %c, %one : buffer<64x64xf16, smem, #2>\n" + TILE.format(1)
    body += FOR.format(1) + turn.format(0) + turn.format(1) + "yield\n}\n"
    one = ["tma_store_wait", "barrier", "local_store", "fence_async_shared", "barrier", "tma_store"]
    assert inserted(body) == [one + one]


@pytest.mark.parametrize(("use", "needs"), [
    ("%v = local_load %c0 : tensor<64x64xf16, #0>", ["barrier", "local_load"]),
    ("%w = async_dot %c0, %c0, _, _ : tensor<64x64xf32, #1>", ["fence_async_shared", "barrier", "async_dot"]),
])  # fmt: skip
def test_copies_by_threads_are_seen_after_wait_and_barrier(use: str, needs: list) -> None:
    body = (
        C0
        + """%gs = splat %g : tensor<64x64xptr<f16>, #0>
  %t = async_load %gs, %c0, _, _ : token
  barrier
  %u = async_load_wait %t {pendings = 0} : token
"""
    )
    assert inserted(body + use + "\n") == ["async_load", "barrier", "async_load_wait", *needs]


def test_what_a_region_leaves_for_the_async_proxy_of_a_later_one() -> None:
    first = TASKS.format("(4)", "(0)", "(0)") + TILE.format(1) + "local_store %c0, %x1\n}\nbarrier {cta = true}\n"
    second = TASKS.format("(4, 4)", "(0, 4)", "(0, 0)") + "tma_store %d, %c0, %zero, %zero\n} {\n}\n"
    assert inserted(C0 + first + second) == [
        [["local_store", "fence_async_shared"]], "barrier", [["tma_store"], []]
    ]  # fmt: skip


def test_the_verifier_sees_early_arrivals() -> None:
    body = C0 + "%v = local_load %c0 : tensor<64x64xf16, #0>\n" + VIEWS.replace("%i{0}", "%zero").format(1)
    m = parsed(body + "barrier_arrive %ev1, _, _ {count = 1, synced = true}\n")
    plan_memory(m, SM90)
    with pytest.raises(InternalError, match="without a barrier of its task"):
        verify_hazards(m)


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
def test_a_task_meets_before_an_atomic_that_releases(sem: str) -> None:
    """Each thread performs its atomics after its own stores only."""
    atomic = f'%old = atomic_rmw %gs, %x1, _ {{op = "add", sem = "{sem}", scope = "gpu"}} : tensor<64x64xf16, #0>\n'
    body = TILE.format(1) + "%gs = splat %g : tensor<64x64xptr<f16>, #0>\n"
    store = "store %gs, %x1, _\n"
    assert inserted(body + atomic) == inserted(body + store) == []
    assert inserted(body + store + atomic) == ["barrier"] * (sem in ("release", "acq_rel"))
    m = parsed(body + store + atomic)
    if sem in ("release", "acq_rel"):
        with pytest.raises(InternalError, match="atomic_rmw at None can follow store at None without a barrier"):
            verify_hazards(m)


def test_two_tasks_that_run_at_once_are_the_kernels_own_affair() -> None:
    body = (
        C0
        + TASKS.format("(4, 4)", "(0, 4)", "(0, 0)")
        + TILE.format(1)
        + """local_store %c0, %x1
} {
  %v = local_load %c0 : tensor<64x64xf16, #0>
}
"""
    )
    assert inserted(body) == [[["local_store"], ["local_load"]]]
