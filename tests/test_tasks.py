"""Tasks: their warps, register budgets, code outside regions, and the protocol at the start and end of a kernel."""

from __future__ import annotations

import pytest

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.verifier import verify
from tlxc.passes.protocol import insert_protocol
from tlxc.passes.tasks import place_tasks
from tlxc.targets import get_target

SM90 = get_target("sm_90")
# A store of a tile, which keeps a task on all its warps.
WORK = """
    %r0 = arange {start = 0, end = 128} : tensor<128xi32>
    %p0 = splat %p : tensor<128xptr<i32>>
    %a0 = addptr %p0, %r0 : tensor<128xptr<i32>>
    store %a0, %r0, _
"""


Ints = tuple[int, ...]


def tasks(warps: Ints, starts: Ints, regs: Ints = (), bodies: tuple[str, ...] = ()) -> str:
    n = len(warps)
    attrs = [("num_warps", warps), ("start_warp", starts), ("num_regs", regs or (0,) * n), ("replica", (0,) * n)]
    text = ", ".join(f"{k} = ({', '.join(map(str, v))})" for k, v in attrs)
    return f"async_tasks {{{text}}} {{" + "} {".join(f"\n{b}\n" for b in bodies or (WORK,) * n) + "}\n"


def module(body: str, warps: int = 4, more: str = "") -> Module:
    return parse_module(f"module @k(%p: ptr<i32>, %n: i32) warps {warps}{more} {{\n{body}\n}}\n")


def placed(body: str, warps: int = 4, more: str = "") -> Module:
    m = module(body, warps, more)
    place_tasks(m, SM90)
    verify(m)
    return m


def regions(m: Module) -> list[Op]:
    return [op for op in m.walk() if op.kind == "async_tasks"]


def top(m: Module) -> list[str]:
    """Kinds of the ops outside tasks that do something."""
    quiet = ("constant", "mul", "add", "cmp", "cast", "yield")
    return [op.kind for op in m.body.ops if op.kind not in quiet]


# ------------------------------------------------------------------------------------------------ warps
def test_a_kernel_without_regions_is_left_alone() -> None:
    m = module(WORK)
    before = print_module(m)
    place_tasks(m, SM90)
    assert print_module(m) == before


def test_a_region_of_the_default_task_alone_is_inlined() -> None:
    m = placed(tasks((4,), (0,), (200,)))
    assert not regions(m) and "total_warps" not in m.attrs and m.maxnreg is None
    assert top(m)[-1] == "store"


@pytest.mark.parametrize(
    ("warps", "starts", "total"),
    [((4, 4), (0, 4), 8), ((4, 1), (0, 4), 8), ((4, 4, 4), (0, 4, 8), 12), ((4, 2, 2, 1), (0, 4, 6, 8), 12)],
)
def test_warps_of_the_cta_fill_whole_warpgroups(warps: Ints, starts: Ints, total: int) -> None:
    assert placed(tasks(warps, starts)).attrs["total_warps"] == total


@pytest.mark.parametrize(
    ("warps", "starts", "message"),
    [
        ((4, 4), (0, 2), "straddles"),
        ((4, 2), (0, 2), "overlap"),
        ((4, 3), (0, 4), "power of two"),
        ((4, 2), (0, 7), "straddles"),
        ((4, 16, 16), (0, 4, 20), "more warps than a CTA"),
    ],
)
def test_impossible_placements(warps: Ints, starts: Ints, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        placed(tasks(warps, starts))


def test_tasks_of_several_warps_want_a_hardware_barrier_each() -> None:
    many = tasks((2,) * 16, tuple(range(0, 32, 2)))
    with pytest.raises(CompileError, match="hardware barriers"):
        placed(many, warps=2)
    one_warp = tasks((2, *(1,) * 30), (0, *range(2, 32)))
    assert placed(one_warp, warps=2).attrs["total_warps"] == 32


PRODUCER = """
    %i = constant {value = 0} : i32
    %b1 = barrier_view %bar, %i : barrier
    barrier_wait %b1, %i, _
    barrier_expect %b1, _ {bytes = 64}
"""


def test_a_task_without_tiles_runs_on_one_warp() -> None:
    m = placed("%bar = alloc_barriers {arrive_count = 1} : barrier<2>\n" + tasks((4, 4), (0, 4), (), (PRODUCER, WORK)))
    assert regions(m)[0].attrs["num_warps"] == (1, 4)
    assert m.attrs["total_warps"] == 8


NAMED = "%j = constant {value = 9} : i32\nnamed_barrier_arrive %j {threads = 256}"


@pytest.mark.parametrize("extra", [NAMED, "cluster_barrier", WORK])
def test_a_task_whose_other_warps_count_keeps_them(extra: str) -> None:
    bar = "%bar = alloc_barriers {arrive_count = 1} : barrier<2>\n"
    other = WORK + (extra if extra == "cluster_barrier" else "")
    m = placed(bar + tasks((4, 4), (0, 4), (), (PRODUCER + extra, other)))
    assert regions(m)[0].attrs["num_warps"] == (4, 4)


def test_every_thread_of_a_task_arrives_at_a_warp_barrier() -> None:
    bar = "%bar = alloc_barriers {arrive_count = 128} : barrier<warp>\n"
    arrive = "barrier_arrive %bar, _, _ {count = 1}\n"
    assert regions(placed(bar + tasks((4, 4), (0, 4), (), (arrive, WORK))))[0].attrs["num_warps"] == (4, 4)


# ------------------------------------------------------------------------------------------------ registers
@pytest.mark.parametrize(
    ("starts", "asked", "granted", "launch"),
    [
        ((0, 4, 8), (40, 232, 232), (40, 232, 232), 168),
        ((0, 4, 8), (0, 24, 24), (240, 24, 24), 168),  # donation, as far as a thread can use it
        ((0, 4, 8), (0, 200, 0), (152, 200, 152), 168),  # the others share evenly
        ((0, 4), (0, 240), (240, 240), 248),
    ],
)
def test_budgets(starts: Ints, asked: Ints, granted: Ints, launch: int) -> None:
    m = placed(tasks((4,) * len(starts), starts, asked))
    assert regions(m)[0].attrs["num_regs"] == granted
    assert m.maxnreg == launch


def test_tasks_of_one_warpgroup_share_the_largest_budget() -> None:
    m = placed(tasks((4, 2, 1, 1), (0, 4, 6, 7), (0, 40, 52, 0)))
    assert regions(m)[0].attrs["num_regs"] == (240, 56, 56, 56)


def test_a_small_default_task_shares_the_budget_of_its_warpgroup() -> None:
    m = placed(tasks((1, 2, 4), (0, 2, 4), (24, 104, 232)), warps=1)
    assert (regions(m)[0].attrs["num_regs"], m.attrs["total_warps"]) == ((104, 104, 232), 8)
    with pytest.raises(CompileError, match="cannot be granted"):
        placed(tasks((2, 1, 4, 4), (0, 2, 4, 8), (24, 120, 232, 232)), warps=2)


def test_nobody_asks_and_nothing_changes() -> None:
    m = placed(tasks((4, 4), (0, 4)))
    assert regions(m)[0].attrs["num_regs"] == (0, 0) and m.maxnreg is None


def test_maxnreg_is_the_launch_count() -> None:
    m = placed(tasks((4, 4), (0, 4), (0, 24)), more=" maxnreg 100")
    assert m.maxnreg == 96
    assert regions(m)[0].attrs["num_regs"] == (168, 24)


@pytest.mark.parametrize(
    ("asked", "message"),
    [((240, 240, 40), "cannot be granted"), ((0, 240, 248), "out of range"), ((16, 0, 0), "out of range")],
)
def test_budgets_that_cannot_be_granted(asked: Ints, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        placed(tasks((4, 4, 4), (0, 4, 8), asked))


def test_what_is_left_must_suffice() -> None:
    with pytest.raises(CompileError, match="at least 24 for warpgroup 0"):
        placed(tasks((4, 4, 4), (0, 4, 8), (0, 240, 240)), more=" maxnreg 160")


def test_the_refusal_shows_the_sums() -> None:
    with pytest.raises(CompileError) as error:
        placed(tasks((4, 4, 4), (0, 4, 8), (48, 232, 232)))
    text = str(error.value)
    assert "128 threads x 512 = 65536 registers" in text
    assert "3 warpgroups launched with 168 registers per thread: 128 x 504 = 64512" in text


# ------------------------------------------------------------------------------------------------ outside
def test_effects_outside_are_the_default_tasks() -> None:
    m = placed(WORK + tasks((4, 4), (0, 4)) + WORK.replace("0 =", "9 =").replace("%r0", "%r9").replace(
        "%p0", "%p9").replace("%a0", "%a9"))  # fmt: skip
    assert top(m) == ["async_tasks", "barrier", "async_tasks", "barrier", "async_tasks"]
    assert [op.attrs["num_warps"] for op in regions(m)] == [(4,), (4, 4), (4,)]
    assert all(op.attrs == {"cta": True} for op in m.walk() if op.kind == "barrier")


def test_scalars_from_memory_are_published() -> None:
    use = "%i = add %x, %x : i32\n    store %p, %i, _"
    m = placed("%x = load %p, _, _ : i32\n" + tasks((4, 4), (0, 4), (), (WORK, use)))
    assert top(m) == ["local_alloc", "async_tasks", "barrier", "local_load", "reduce", "async_tasks"]
    assert [op.kind for op in regions(m)[0].regions[0].ops] == ["load", "splat", "local_store"]


def test_arithmetic_on_published_scalars_is_repeated_by_all() -> None:
    text = '%x = load %p, _, _ : i32\n%c = cmp %x, %n {pred = "lt"} : i1\n%y = mul %x, %n : i32\n'
    use = "%i = select %c, %y, %n : i32\n    store %p, %i, _"
    m = placed(text + tasks((4, 4), (0, 4), (), (WORK, use)))
    assert sum(op.kind == "local_load" for op in m.walk()) == 1
    assert sorted(op.kind for op in m.body.ops[-3:-1]) == ["cmp", "mul"]


def test_pure_tiles_are_made_again_in_each_task() -> None:
    text = "%r = arange {start = 0, end = 128} : tensor<128xi32>\n"
    use = WORK + "    store %a0, %r, _"
    m = placed(text + tasks((4, 4), (0, 4), (), (use, use)))
    assert top(m) == ["async_tasks"]
    assert [r.ops[0].kind for r in regions(m)[0].regions] == ["arange", "arange"]


@pytest.mark.parametrize(
    "value",
    ["%v = load %a, _, _ : tensor<128xi32>", '%v = reduce %a2 {axis = 1, combine = "sum"} : tensor<128xi32>'],
)
def test_other_tiles_are_refused(value: str) -> None:
    text = (
        """%r = arange {start = 0, end = 128} : tensor<128xi32>
  %s = splat %p : tensor<128xptr<i32>>
  %a = addptr %s, %r : tensor<128xptr<i32>>
  %r2 = expand_dims %r {axis = 1} : tensor<128x1xi32>
  %a2 = broadcast %r2 : tensor<128x4xi32>
"""
        + value
        + "\n"
    )
    with pytest.raises(CompileError, match="cannot use this value"):
        placed(text + tasks((4, 4), (0, 4), (), (WORK, "store %a, %v, _")))


LOOP = """%z = constant {value = 0} : i32
  %o = constant {value = 1} : i32
  for %z, HI, %o {
  ^(%i: i32):
BODY
  yield
  }
"""


def test_a_loop_around_a_region_is_run_by_all() -> None:
    m = placed(LOOP.replace("HI", "%n").replace("BODY", tasks((4, 4), (0, 4))))
    (loop,) = [op for op in m.body.ops if op.kind == "for"]
    assert [op.kind for op in loop.regions[0].ops] == ["async_tasks", "barrier", "yield"]


def test_a_loop_bound_from_memory_is_published() -> None:
    m = placed("%x = load %p, _, _ : i32\n" + LOOP.replace("HI", "%x").replace("BODY", tasks((4, 4), (0, 4))))
    assert top(m) == ["local_alloc", "async_tasks", "barrier", "local_load", "reduce", "for"]


def test_a_loop_that_publishes_under_a_branch_ends_in_a_barrier() -> None:
    body = '%x = load %p, _, _ : i32\n%c = cmp %x, %n {pred = "lt"} : i1\n if %c {\n'
    body += tasks((4, 4), (0, 4)) + "yield\n} {\nyield\n}\n"
    m = placed(LOOP.replace("HI", "%n").replace("BODY", body))
    (loop,) = [op for op in m.body.ops if op.kind == "for"]
    assert [op.kind for op in loop.regions[0].ops][-3:] == ["if", "barrier", "yield"]


def test_a_tile_carried_around_a_region_is_refused() -> None:
    text = (
        """%z = constant {value = 0} : i32
  %o = constant {value = 1} : i32
  %r = arange {start = 0, end = 128} : tensor<128xi32>
  %x = for %z, %n, %o, %r : tensor<128xi32> {
  ^(%i: i32, %c: tensor<128xi32>):
"""
        + tasks((4, 4), (0, 4))
        + "yield %c\n}\n"
    )
    with pytest.raises(CompileError, match="cannot carry a tile"):
        placed(text)


# ------------------------------------------------------------------------------------------------ protocol
BARRIERS = "%bar = alloc_barriers {arrive_count = 1} : barrier<2>\n"
ARRIVE = """%i0 = constant {value = 0} : i32
  %b0 = barrier_view %bar, %i0 : barrier
  barrier_arrive %b0, _, %i0 {count = 1}
"""


def protocol(body: str, more: str = "") -> Module:
    m = module(body, more=more)
    insert_protocol(m, SM90)
    verify(m)
    return m


def test_barriers_are_initialised_first() -> None:
    m = protocol(WORK + BARRIERS)
    assert top(m)[:2] == ["alloc_barriers", "barrier"] and m.body.ops[1].attrs == {"cta": True}


def test_without_barriers_there_is_no_protocol() -> None:
    assert top(protocol(WORK)) == top(module(WORK))


def test_cluster_protocol() -> None:
    m = protocol(BARRIERS + ARRIVE, " cluster (2, 1, 1)")
    assert top(m) == [
        "alloc_barriers", "fence_mbarrier_init", "cluster_barrier", "barrier_view", "barrier_arrive", "cluster_barrier"
    ]  # fmt: skip
    first, last = (op for op in m.walk() if op.kind == "cluster_barrier")
    assert first.attrs == {"relaxed": True} and not last.attrs


def test_a_cluster_without_remote_access_ends_without_a_meeting() -> None:
    m = protocol(BARRIERS, " cluster (2, 1, 1)")
    assert top(m) == ["alloc_barriers", "fence_mbarrier_init", "cluster_barrier"]


def test_descriptors_are_prefetched() -> None:
    m = parse_module("""module @k(%d: desc<64x64xf16>, %e: desc<64x64xf16>) warps 4 {
  %b = local_alloc : buffer<64x64xf16, smem>
  %z = constant {value = 0} : i32
  tma_store %d, %b, %z, %z
}
""")
    insert_protocol(m, SM90)
    assert [op.kind for op in m.body.ops][0] == "prefetch_descriptor"
    assert sum(op.kind == "prefetch_descriptor" for op in m.walk()) == 1


def test_barriers_in_a_loop_are_refused() -> None:
    with pytest.raises(CompileError, match="inside a loop"):
        protocol(LOOP.replace("HI", "%n").replace("BODY", BARRIERS))
