"""The memory planner: live ranges through loops and branches, alignment, the memory map, overflow; random programs."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tlxc.errors import CompileError, InternalError, Location
from tlxc.ir.core import Builder, Module, Op, Region, Value
from tlxc.ir.layout import blocked
from tlxc.ir.memory import Memory, row_major, swizzled
from tlxc.ir.parser import parse_module
from tlxc.ir.printer import print_module
from tlxc.ir.types import Buffer, Scalar, Tensor, float16, float32, int1, int32
from tlxc.ir.verifier import verify
from tlxc.passes.hazards import verify_hazards
from tlxc.passes.memory_plan import plan_memory
from tlxc.passes.sync import insert_barriers
from tlxc.targets import get_target

SM90 = get_target("sm_90")
WARPS = 4


class SharedKernel:
    """Builds modules that store to and load from buffers; every op has a line of its own."""

    def __init__(self) -> None:
        self.module = Module("k", num_warps=WARPS)
        self.b = Builder(self.module)
        self.line = 0
        self.n = self.b.emit("constant", type=Scalar(int32), value=4)
        self.zero = self.b.emit("constant", type=Scalar(int32), value=0)
        self.one = self.b.emit("constant", type=Scalar(int32), value=1)
        self.cond = self.b.emit("constant", type=Scalar(int1), value=True)

    def op(self, kind: str, operands=(), types=(), regions=None, **attrs) -> Op:
        self.line += 1
        self.b.loc = Location("k.py", self.line)
        return self.b.op(kind, operands, types, regions, **attrs)

    def alloc(self, shape=(64, 64), dtype=float16, mem: Memory | None = None, name: str = "") -> Value:
        v = self.op("local_alloc", (), [Buffer(shape, dtype, "smem", mem or row_major(shape))]).result
        v.name = name
        return v

    def tile(self, buf: Value) -> Tensor:
        t = buf.type
        assert isinstance(t, Buffer)
        return Tensor(t.shape, t.dtype, blocked(t.shape, None, 1, 32, WARPS))

    def store(self, buf: Value) -> Op:
        scalar = self.op("constant", (), [Scalar(self.tile(buf).element)], value=0.0).result  # type: ignore[arg-type]
        tile = self.op("splat", [scalar], [self.tile(buf)]).result
        return self.op("local_store", [buf, tile])

    def load(self, buf: Value) -> Op:
        return self.op("local_load", [buf], [self.tile(buf)])

    def loop(self) -> Region:
        body = Region([Value(Scalar(int32))])
        self.op("for", [self.zero, self.n, self.one], (), [body])
        self.b.stack.append(body)
        return body

    def branch(self) -> tuple[Region, Region]:
        regions = Region(), Region()
        self.op("if", [self.cond], (), list(regions))
        return regions

    def enter(self, region: Region) -> None:
        self.b.stack.append(region)

    def leave(self) -> None:
        self.op("yield")
        self.b.stack.pop()


def offset(v: Value) -> int:
    assert v.op is not None
    return v.op.attrs["offset"]


def test_buffers_that_do_not_meet_share_bytes() -> None:
    k = SharedKernel()
    a = k.alloc(name="a")
    k.store(a)
    k.load(a)
    b = k.alloc((128, 128), name="b")
    k.store(b)
    k.load(b)
    plan_memory(k.module, SM90)
    assert (offset(a), offset(b)) == (0, 0)
    assert k.module.attrs["shared"] == 128 * 128 * 2
    assert [row[:3] for row in k.module.attrs["memory_map"]] == [(0, 8192, "a"), (0, 32768, "b")]
    first, last = k.module.attrs["memory_map"][0][3:]
    assert last - first == 1
    text = print_module(k.module)
    assert print_module(parse_module(text)) == text


def test_a_buffer_from_outside_lives_through_the_loop_that_uses_it() -> None:
    k = SharedKernel()
    q = k.alloc(name="q")
    k.store(q)
    k.loop()
    k.load(q)
    a = k.alloc(name="a")
    k.store(a)
    k.load(a)
    k.leave()
    plan_memory(k.module, SM90)
    assert offset(q) != offset(a)


def test_small_buffers_stay_apart_and_need_no_barrier() -> None:
    k = SharedKernel()
    for name in "ab":
        buffer = k.alloc(name=name)
        k.store(buffer)
        k.load(buffer)
    plan_memory(k.module, SM90)
    assert [row[:3] for row in k.module.attrs["memory_map"]] == [(0, 8192, "a"), (8192, 8192, "b")]


def test_branches_share_bytes() -> None:
    k = SharedKernel()
    buffers = []
    for region in k.branch():
        k.enter(region)
        buffers.append(k.alloc((128, 64)))
        k.store(buffers[-1])
        k.load(buffers[-1])
        k.leave()
    plan_memory(k.module, SM90)
    assert offset(buffers[0]) == offset(buffers[1])


def in_loop(count: int, shape: tuple[int, int]) -> list[Value]:
    k = SharedKernel()
    k.loop()
    out = []
    for _ in range(count):
        out.append(k.alloc(shape))
        k.store(out[-1])
        k.load(out[-1])
    k.leave()
    plan_memory(k.module, SM90)
    return out


def test_buffers_of_one_loop_share_only_where_memory_is_short() -> None:
    """Sharing costs barriers in every iteration."""
    assert len({offset(v) for v in in_loop(3, (64, 128))}) == 3
    assert len({offset(v) for v in in_loop(3, (256, 128))}) == 1


@pytest.mark.parametrize(
    ("mem", "alignment"),
    [
        (swizzled((64, 64), 2, 128), 1024),
        (swizzled((64, 32), 2, 64), 512),
        (swizzled((64, 16), 2, 32), 256),
        (swizzled((64, 32), 2, 64).transpose((1, 0)), 512),
        (row_major((64, 24)), 16),
    ],
)
def test_alignment_of_swizzles(mem: Memory, alignment: int) -> None:
    k = SharedKernel()
    small, b = k.alloc((8,), float32), k.alloc(mem.shape, mem=mem)
    for v in (small, b):
        k.store(v)
    for v in (small, b):
        k.load(v)
    # The small buffer is placed last, so the big one starts at 0; a taller one pushes it up.
    tall = k.alloc((1, 8200), float16)
    k.store(tall)
    k.load(b)
    k.load(tall)
    plan_memory(k.module, SM90)
    assert offset(b) % alignment == 0 and offset(b) > 0
    assert offset(b) == -(-16400 // alignment) * alignment


def test_overflow_names_the_buffers() -> None:
    k = SharedKernel()
    a, b = k.alloc((256, 256), float32, name="a"), k.alloc((64, 64), name="b")
    k.store(a)
    k.store(b)
    k.load(a)
    k.load(b)
    with pytest.raises(CompileError) as error:
        plan_memory(k.module, SM90)
    assert str(error.value) == (
        "k.py:1:1: error: the buffers of this kernel do not fit into shared memory\n"
        "  found: 270336 bytes are live at once, buffers and tiles on their way between threads: "
        "a (256, 256) 262144 bytes; b (64, 64) 8192 bytes\n"
        "  allowed: 232448 bytes per CTA on sm_90\n"
        "  fix: use smaller tiles or fewer stages, or spread the tile over more CTAs\n"
        "  b, 8192 bytes at k.py:2:1"
    )


def test_a_module_without_buffers_needs_nothing() -> None:
    module = Module("k")
    plan_memory(module, SM90)
    assert module.attrs == {"shared": 0, "memory_map": ()}


def test_buffers_that_are_passed_on_are_refused() -> None:
    k = SharedKernel()
    a = k.alloc()
    body = Region([Value(Scalar(int32)), Value(a.type)])
    k.op("for", [k.zero, k.n, k.one, a], [a.type], [body])
    k.enter(body)
    k.op("yield", [body.args[1]])
    with pytest.raises(InternalError, match="passes buffer"):
        plan_memory(k.module, SM90)


# ------------------------------------------------------------------------------------------------ random programs
def random_program(seed: int, shapes=((8, 8), (16, 16), (24, 8), (64, 16))) -> SharedKernel:
    """Buffers stored and loaded in nested loops and branches; a load only after a store on every path."""
    r, k = random.Random(seed), SharedKernel()

    def fill(depth: int, known: list[Value]) -> None:
        known = list(known)
        for _ in range(r.randrange(2, 5)):
            what = r.random()
            if what < 0.3 or not known:
                known.append(k.alloc(r.choice(shapes), mem=None))
                k.store(known[-1])
            elif what < 0.5:
                k.store(r.choice(known))
            elif what < 0.75:
                k.load(r.choice(known))
            elif what < 0.78:
                k.op("barrier")
            elif depth < 2 and what < 0.9:
                k.loop()
                fill(depth + 1, known)
                k.leave()
            elif depth < 2:
                for region in k.branch():
                    k.enter(region)
                    fill(depth + 1, known)
                    k.leave()

    fill(0, [])
    return k


def trace(region: Region, choices: random.Random) -> list[Op]:
    """Ops in the order of one execution: two iterations of each loop, one side of each branch."""
    out = []
    for op in region.ops:
        if op.kind == "for":
            for _ in range(2):
                out += trace(op.regions[0], choices)
        elif op.kind == "if":
            out += trace(op.regions[choices.randrange(2)], choices)
        else:
            out.append(op)
    return out


@pytest.mark.parametrize("seed", range(60))
def test_no_byte_is_lost_on_any_path(seed: int) -> None:
    """Runs the program on bytes: what a load reads must be what the last store to its buffer wrote."""
    k = random_program(seed)
    verify(k.module)
    plan_memory(k.module, SM90)
    for path in range(4):
        bytes_: dict[int, tuple] = {}
        last: dict[Value, int] = {}
        for i, op in enumerate(trace(k.module.body, random.Random(path))):
            if op.kind not in ("local_store", "local_load"):
                continue
            buf = op.inputs[0]
            where = range(offset(buf), offset(buf) + buf.type.nbytes, 16)
            if op.kind == "local_store":
                last[buf] = i
                bytes_.update((p, (buf, i)) for p in where)
            else:
                assert all(bytes_[p] == (buf, last[buf]) for p in where)


@pytest.mark.parametrize("seed", range(40))
def test_planned_programs_synchronise(seed: int) -> None:
    k = random_program(seed)
    plan_memory(k.module, SM90)
    insert_barriers(k.module, SM90)
    verify_hazards(k.module)


# ------------------------------------------------------------------------------------- tasks, barriers, async
TASKS = """#0 = memory {mem}
#1 = memory {plain}
#2 = {tile}
module @k(%d: desc<64x64xf16, #0>, %n: i32) warps 4 {{
  %bar = alloc_barriers {{arrive_count = 1}} : barrier<3>
  %h = constant {{value = 0x0.0p+0}} : f16
  %z = constant {{value = 0}} : i32
  %a = local_alloc : buffer<3 * 64x64xf16, smem, #1>
  %b = local_alloc : buffer<64x64xf16, smem, #1>
  %c = local_alloc : buffer<64x64xf16, smem, #1>
  async_tasks {{num_warps = (4, 4), start_warp = (0, 4), num_regs = (0, 0), replica = (0, 0)}} {{
    %x = splat %h : tensor<64x64xf16, #2>
    %v = local_view %a, %z : buffer<64x64xf16, smem, #1>
    local_store %v, %x
    local_store %b, %x
  }} {{
    %y = splat %h : tensor<64x64xf16, #2>
    local_store %c, %y
{more}
  }}
}}
"""


def planned(more: str) -> dict[str, tuple[int, int]]:
    """(first, end) of every allocation by its name, placed as tightly as live ranges allow."""
    shape = (64, 64)
    text = TASKS.format(
        mem=swizzled(shape, 2, 128), plain=row_major(shape), tile=blocked(shape, None, 1, 32, WARPS), more=more
    )
    module = parse_module(text)
    verify(module)
    plan_memory(module, dataclasses.replace(SM90, shared_per_sm=0))
    rows = [op for op in module.walk() if op.kind in ("local_alloc", "alloc_barriers")]
    sizes = {op.result.name: op.result.type.nbytes for op in rows}  # type: ignore[union-attr]
    return {op.result.name: (op.attrs["offset"], op.attrs["offset"] + sizes[op.result.name]) for op in rows}


def apart(places: dict[str, tuple[int, int]], a: str, b: str) -> bool:
    return places[a][1] <= places[b][0] or places[b][1] <= places[a][0]


def test_what_two_tasks_touch_is_apart() -> None:
    places = planned("")
    assert apart(places, "a", "c") and apart(places, "b", "c")
    assert not apart(places, "a", "b")  # one task, one after the other
    assert all(apart(places, "bar", name) for name in "abc")
    assert places["bar"][0] % 8 == 0 and places["bar"][1] - places["bar"][0] == 24


def test_what_both_tasks_touch_lives_through_the_region() -> None:
    places = planned("    local_store %b, %y\n")
    assert apart(places, "a", "b")


def test_asynchronous_accesses_keep_a_buffer_for_the_whole_kernel() -> None:
    kept = "    %s = local_alloc : buffer<64x64xf16, smem, #0>\n    tma_store %d, %s, %z, %z\n"
    places = planned(kept + "    %s2 = local_alloc : buffer<64x64xf16, smem, #0>\n    local_store %s2, %y")
    assert all(apart(places, "s", name) for name in ("a", "b", "c", "s2"))
    assert places["s"][0] % 1024 == 0


def test_overflow_names_arrays() -> None:
    k = SharedKernel()
    a = k.op("local_alloc", (), [Buffer((64, 64), float16, "smem", row_major((64, 64)), 40)]).result
    a.name = "a"
    view = k.op("local_view", [a, k.zero], [Buffer((64, 64), float16, "smem", row_major((64, 64)))]).result
    k.store(view)
    with pytest.raises(CompileError, match="do not fit") as error:
        plan_memory(k.module, SM90)
    assert "a 40 x (64, 64) 327680 bytes" in str(error.value)
