"""Layout assignment: kernels by hand, random kernels against the exact optimum, pins, deferred sums, determinism."""

from __future__ import annotations

import random
import time
from collections import Counter

import assign_kernels
import pytest
from assign_kernels import CASES, Kernel, conversions, converted

from tlxc.errors import CompileError
from tlxc.ir import layout as algebra
from tlxc.ir.core import Module, Op, Value
from tlxc.ir.layout import Layout, blocked, cute
from tlxc.ir.printer import print_module
from tlxc.ir.table import traits
from tlxc.ir.types import Pointer, Scalar, Tensor, element_of, float16, float32, int32, shape_of
from tlxc.ir.verifier import verify
from tlxc.passes.axis import analyse
from tlxc.passes.dots import select_dots
from tlxc.passes.layouts import assign_layouts
from tlxc.passes.layouts.defer import find_sums, partial_layout
from tlxc.passes.layouts.graph import Graph, Labels
from tlxc.passes.layouts.relabel import forward
from tlxc.passes.layouts.search import choose, flood
from tlxc.targets import all_targets, get_target
from tlxc.targets.fragments import mma16816, wgmma_a, wgmma_acc

SM90, SM120 = get_target("sm_90"), get_target("sm_120")


def layout_of(v: Value) -> Layout:
    assert isinstance(v.type, Tensor) and v.type.layout is not None
    return v.type.layout


def ops(module: Module, kind: str) -> list[Op]:
    return [op for op in module.walk() if op.kind == kind]


def assign(k: Kernel, target=SM90) -> Module:
    """Runs the passes and checks what they promise of every op."""
    select_dots(k.module, target)
    assign_layouts(k.module, target)
    verify(k.module, layouts=True)
    by_key: dict[Layout, Layout] = {}
    for op in k.module.walk():
        tiles = [v for v in (*op.inputs, *op.results) if isinstance(v.type, Tensor)]
        for v in tiles:
            assert by_key.setdefault(layout_of(v).key, layout_of(v)) is layout_of(v), "one object stands for a key"
        t = traits(op)
        if "elementwise" in t or op.kind in ("load", "store", "atomic_rmw"):
            assert len({id(layout_of(v)) for v in tiles}) <= 1
        elif op.kind == "reduce" and isinstance(op.result.type, Tensor):
            assert layout_of(op.result).key is algebra.slice_(layout_of(op.inputs[0]), op.attrs["axis"]).key
        elif op.kind == "broadcast":
            source = op.inputs[0]
            assert algebra.collapse(layout_of(op.result), shape_of(source.type)).key is layout_of(source).key
        elif "relabel" in t and op.kind != "require_layout":
            expected = forward(op, layout_of(op.inputs[0]))
            assert expected is not None and all(layout_of(r).key is expected.key for r in op.results)
    return k.module


# ------------------------------------------------------------------------------------------------ kernels by hand
def target_of(name: str):
    return SM120 if name == "matmul_mma_sync" else SM90


@pytest.mark.parametrize("name", CASES)
def test_conversions_are_those_a_careful_person_expects(name: str) -> None:
    case = CASES[name]
    module = assign(case.build(), target_of(name))
    assert dict(conversions(module)) == case.expect, case.why


@pytest.mark.parametrize("name", CASES)
def test_the_search_finds_the_optimum(name: str) -> None:
    g = graph(CASES[name].build(), target_of(name))
    cost = g.total(choose(g))
    best, proved = exact(g, cost, 60_000)
    assert best >= cost - 1e-3 or not proved


def test_vector_add_moves_16_bytes_per_thread() -> None:
    module = assign(assign_kernels.vector_add())
    (a,) = {layout_of(op.result) for op in ops(module, "load")}
    assert a is blocked((1024,), (0,), 8, 32, 4)


@pytest.mark.parametrize("align", (2, 4, 8, 16, 64))
def test_accesses_are_as_wide_as_alignment_allows(align: int) -> None:
    k = Kernel()
    p, q = (k.param(Pointer(float16), align=align) for _ in range(2))
    x, y = (k.addptr(k.splat(base, (1024,)), k.arange(1024)) for base in (p, q))
    k.store(y, k.load(x))
    module = assign(k)
    assert layout_of(ops(module, "load")[0].result) is blocked((1024,), (0,), min(align, 16) // 2, 32, 4)
    assert not converted(module)


def test_wgmma_results_lie_as_the_instruction_leaves_them() -> None:
    module = assign(assign_kernels.matmul_wgmma())
    (dot,) = ops(module, "dot")
    assert layout_of(dot.result) is wgmma_acc(128, 128) is layout_of(dot.operands[2])
    (bias,) = [op for op in ops(module, "load") if op.result.name == "bias"]
    assert layout_of(bias.result).key is algebra.slice_(wgmma_acc(128, 128), 0).key


def test_mma_sync_operands_arrive_in_fragments() -> None:
    module = assign(assign_kernels.matmul_mma_sync(), SM120)
    (dot,) = ops(module, "dot")
    grid = dot.attrs["warps_mn"]
    assert grid == (2, 2)
    for v, role in zip((*dot.operands, dot.result), ("a", "b", "acc", "acc")):
        assert layout_of(v) is mma16816(role, shape_of(v.type), grid)


@pytest.mark.parametrize("target", all_targets(), ids=lambda t: t.name)
def test_every_target_gets_layouts(target) -> None:
    for name in ("vector_add", "row_softmax", "layer_norm_bwd", "transpose_tile"):
        module = assign(CASES[name].build(), target)
        assert len(layout_of(ops(module, "load")[0].result).lane) == target.warp_size.bit_length() - 1


# ------------------------------------------------------------------------------------------------ the exact oracle
def graph(k: Kernel, target=SM90) -> Graph:
    select_dots(k.module, target)
    return Graph(k.module, target.warp_size, analyse(k.module), find_sums(k.module))


def exact(g: Graph, bound: float, limit: int) -> tuple[float, bool]:
    """Branch and bound over all candidates: (price of the best, whether the search was complete)."""
    order: list = []
    for root in g.nodes:
        work = [root]
        while work:
            n = work.pop(0)
            if n not in order:
                order.append(n)
                work += [g.of[u.value] for u in n.uses] + [u.node for v in n.out for u in g.uses[v]]
    rank = {n.id: i for i, n in enumerate(order)}
    ready: dict[int, list] = {}
    for v, wire in g.wires.items():
        ready.setdefault(max([rank[g.of[v].id], *(rank[u.node.id] for u in g.uses[v])]), []).append(wire)
    labels: Labels = [next(n.allowed()) for n in g.nodes]
    best, steps = bound + 1e-6, 0

    def go(i: int, cost: float) -> None:
        nonlocal best, steps
        if cost >= best or steps > limit:
            return
        if i == len(order):
            best = cost
            return
        for a in order[i].allowed():
            steps += 1
            labels[order[i].id] = a
            go(i + 1, cost + order[i].price(a) + sum(w.cost(labels) for w in ready.get(i, ())))

    go(0, 0.0)
    return best, steps <= limit


def random_kernel(seed: int) -> Kernel:
    """Tiles of 64x64 with casts, reductions, transposes, loops and stores in random order."""
    rng, shape = random.Random(seed), (64, 64)
    k = Kernel()

    def tile() -> Value:
        if rng.random() < 0.25:
            a, b = k.full((64, 16), 1.0, float16), k.full((16, 64), 1.0, float16)
            return k.dot(a, b, k.full(shape))
        loaded = k.load(k.pointers(shape, rng.choice((float16, float32)), rng.choice(((0, 1), (1, 0)))))
        return loaded if element_of(loaded.type) is float32 else k.cast(loaded, float32)

    def block(live: list[Value], count: int, depth: int) -> list[Value]:
        for _ in range(count):
            x, r = rng.choice(live), rng.random()
            if r < 0.15:
                live.append(tile())
            elif r < 0.3:
                live.append(k.cast(k.cast(x, float16), float32))
            elif r < 0.45:
                axis = rng.randrange(2)
                s = k.reduce(x, axis)
                live.append(k.op("sub", x, (k.col if axis else k.row)(s, shape)))
            elif r < 0.55:
                live.append(k.permute(x))
            elif r < 0.62 and depth < 2:
                live += loop([rng.choice(live), k.full(shape)], live, depth)
            elif r < 0.72:
                k.store(k.pointers(shape, float32, rng.choice(((0, 1), (1, 0)))), x)
            else:
                live.append(k.op(rng.choice(("add", "mul", "div")), x, rng.choice(live)))
        return live

    def loop(inits: list[Value], live: list[Value], depth: int) -> list[Value]:
        def body(a: Value, b: Value) -> list[Value]:
            inner = [*live, a, b]
            block(inner, 3, depth + 1)
            return [inner[-1], k.op("add", b, rng.choice(inner))]

        return k.loop(inits, body, rng.choice((4, 32)))

    live = block([tile()], rng.randint(4, 8), 0)
    k.store(k.pointers(shape, float32, rng.choice(((0, 1), (1, 0)))), live[-1])
    return k


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_kernels_are_within_five_percent_of_the_optimum(first: int) -> None:
    proved = 0
    for seed in range(first, first + 20):
        g = graph(random_kernel(seed))
        cost = g.total(choose(g))
        best, done = exact(g, cost, 20_000)
        proved += done
        assert not done or cost <= 1.05 * best, f"seed {seed}: {cost} against {best}"
    assert proved >= 5


@pytest.mark.parametrize("seed", range(30))
def test_random_kernels_hold_every_promise(seed: int) -> None:
    assign(random_kernel(seed))


def test_the_search_never_ends_above_the_plain_rule() -> None:
    for seed in range(30):
        g = graph(random_kernel(seed))
        assert g.total(choose(g)) <= g.total(flood(g)) + 1e-6


# ------------------------------------------------------------------------------------------------ pins
ACC, OTHER = wgmma_acc(64, 64), blocked((64, 64), None, 4, 32, 4)


def test_a_pin_equal_to_what_was_chosen_costs_nothing() -> None:
    k = Kernel()
    d = k.dot(k.full((64, 16), 1.0, float16), k.full((16, 64), 1.0, float16), k.full((64, 64)))
    k.store(k.pointers((64, 64)), k.cast(k.op("mul", k.pin(d, ACC), d), float16))
    module = assign(k)
    assert dict(conversions(module)) == {("shared", "out"): 1}
    assert layout_of(ops(module, "mul")[-1].result) is ACC


def test_a_pin_holds_through_reductions_broadcasts_and_elementwise_ops() -> None:
    k = Kernel()
    x = k.pin(k.load(k.pointers((64, 64), float32)), ACC)
    y = k.op("sub", x, k.col(k.reduce(x, 1), (64, 64)))
    k.store(k.pointers((64, 64), float32), y)
    module = assign(k)
    (sub,) = ops(module, "sub")
    assert layout_of(sub.result) is ACC
    assert len(converted(module)) <= 2


def test_a_pin_on_a_cheap_value_makes_it_there() -> None:
    k = Kernel()
    x = k.pin(k.arange(1024), blocked((1024,), None, 1, 32, 4))
    k.store(k.pointers((1024,), int32), x)
    module = assign(k)
    assert layout_of(ops(module, "require_layout")[0].operands[0]) is blocked((1024,), None, 1, 32, 4)


def test_conflicting_pins_name_both_places() -> None:
    k = Kernel()
    p = k.pointers((64, 64), float32)
    a = k.pin(k.load(p), ACC)
    first = k.line
    b = k.pin(k.load(p), OTHER)
    second = k.line
    k.op("add", a, b)
    with pytest.raises(CompileError) as caught:
        assign(k)
    error = caught.value
    assert error.summary == "two required layouts meet in one operation (add)"
    assert error.loc is not None and error.loc.line == k.line
    assert [loc.line for _, loc in error.related if loc is not None] == [first, second]
    assert error.found == f"{cute(ACC)} and {cute(OTHER)}"


@pytest.mark.parametrize(
    "wrong",
    (blocked((64, 32), None, 4, 32, 4), blocked((64, 64), None, 4, 32, 8), blocked((64, 64), None, 4, 64, 4)),
)
def test_a_pin_must_fit_tile_and_threads(wrong: Layout) -> None:
    k = Kernel()
    k.pin(k.load(k.pointers((64, 64), float32)), wrong)
    with pytest.raises(CompileError, match="does not fit its value") as caught:
        assign(k)
    assert caught.value.loc is not None and "64x64 elements with 4 warps of 32 lanes" in caught.value.allowed


def test_a_second_pin_before_the_use_resolves_the_conflict() -> None:
    k = Kernel()
    p = k.pointers((64, 64), float32)
    b = k.pin(k.pin(k.load(p), OTHER), ACC)
    k.store(p, k.op("add", k.pin(k.load(p), ACC), b))
    assign(k)


# ------------------------------------------------------------------------------------------------ free conversions
def test_row_statistics_move_between_accumulators_of_different_width_for_free() -> None:
    k, narrow, wide = Kernel(), (64, 80), (64, 128)
    s = k.dot(k.full((64, 16), 1.0, float16), k.full((16, 80), 1.0, float16), k.full(narrow))
    o = k.dot(k.full((64, 16), 1.0, float16), k.full((16, 128), 1.0, float16), k.full(wide))
    m = k.reduce(s, 1, "max")
    out = k.op("div", o, k.col(m, wide))
    k.reduce(out, 1)
    assert not converted(assign(k))


def test_a_wgmma_accumulator_is_operand_a_as_it_is() -> None:
    assert wgmma_a(64, 80) is wgmma_acc(64, 80)


def test_reshape_permute_split_and_join_along_register_bits_are_free() -> None:
    k, shape = Kernel(), (64, 64)
    d = k.dot(k.full((64, 16), 1.0, float16), k.full((16, 64), 1.0, float16), k.full(shape))
    lo, hi = k.split(k.permute(k.reshape(d, (64, 2, 32)), (0, 2, 1)))
    both = k.join(k.op("neg", lo), k.op("abs", hi))
    back = k.reshape(k.permute(both, (0, 2, 1)), shape)
    k.reduce(k.op("add", back, d), 1)
    assert not converted(assign(k))


def test_scalars_join_tiles_in_any_layout() -> None:
    k = Kernel()
    d = k.dot(k.full((64, 16), 1.0, float16), k.full((16, 64), 1.0, float16), k.full((64, 64)))
    total = k.reduce(k.reduce(d, 1), 0)
    assert isinstance(total.type, Scalar)
    k.reduce(k.op("mul", d, k.splat(total, (64, 64))), 1)
    assert not converted(assign(k))


def test_a_split_across_threads_is_converted_before_it() -> None:
    k = Kernel()
    x = k.load(k.pointers((64, 2), float32, (0, 1)))
    for half in k.split(x):
        k.store(k.pointers((64,), float32), half)
    assign(k)


def test_joins_of_any_layout_are_possible() -> None:
    """The joined tile is read by an operand fragment that spreads the new axis over threads."""
    k = Kernel()
    a = k.load(k.pointers((32, 8)))
    tall = k.reshape(k.join(a, k.load(k.pointers((32, 8)))), (32, 16))
    cheap = k.join(k.cast(k.arange(16), float16), k.cast(k.arange(16), float16))
    line = k.to(k.expand(k.reshape(cheap, (32,)), 0), (16, 32))
    out = k.dot(tall, line, k.full((32, 32)))
    k.store(k.pointers((32, 32), float32), out)
    assign(k, SM120)


def test_a_reshape_that_cuts_a_repetition_is_refused() -> None:
    k = Kernel()
    x = k.load(k.pointers((64, 192), float32))
    k.reduce(k.reshape(x, (64, 2, 96)), 2)
    with pytest.raises(CompileError, match="this reshape has no layout") as caught:
        assign(k)
    assert "would cut a repetition" in caught.value.found and caught.value.loc is not None


# ------------------------------------------------------------------------------------------------ placement
def test_a_cheap_value_stands_once_per_layout() -> None:
    k = Kernel()
    d = k.dot(k.full((64, 16), 1.0, float16), k.full((16, 64), 1.0, float16), k.full((64, 64)))
    ramp = k.cast(k.row(k.arange(64), (64, 64)), float32)
    k.store(k.pointers((64, 64), float32), k.op("add", d, ramp))
    k.store(k.pointers((64, 64), float32, (0, 1)), k.op("add", k.load(k.pointers((64, 64), float32, (0, 1))), ramp))
    module = assign(k)
    casts = ops(module, "cast")
    assert len(casts) == len({layout_of(op.result) for op in casts}) == 2


def test_a_conversion_for_one_branch_stands_inside_it() -> None:
    k, shape = Kernel(), (64, 64)
    x = k.load(k.pointers(shape, float32))
    p = k.pointers(shape, float32)

    def then() -> list[Value]:
        k.store(k.pointers(shape, float32), k.permute(x))
        return []

    k.store(p, x)
    k.branch(then, lambda: [])
    module = assign(k)
    (branch,) = ops(module, "if")
    assert [op.kind for op in branch.regions[0].walk() if op.kind == "convert_layout"] == ["convert_layout"]
    assert len(converted(module)) == 1


def test_one_conversion_serves_all_uses_of_one_layout() -> None:
    k, shape = Kernel(), (64, 64)
    x = k.load(k.pointers(shape, float32))
    for _ in range(3):
        k.store(k.pointers(shape, float32), k.permute(x))
    k.store(k.pointers(shape, float32), x)
    assert len(converted(assign(k))) == 1


def test_a_dump_takes_what_is_there() -> None:
    k, shape = Kernel(), (64, 64)
    x = k.load(k.pointers(shape))
    k.b.op("dump_layout", (x,))
    k.b.op("dump_layout", (k.arange(64),))
    k.b.op("dump_layout", (k.permute(x),))
    k.store(k.pointers(shape), k.permute(x))
    module = assign(k)
    assert len(converted(module)) == 1
    seen, _, turned = (layout_of(op.inputs[0]) for op in ops(module, "dump_layout"))
    assert seen is layout_of(ops(module, "load")[0].result) and turned.key is algebra.permute(seen, (1, 0)).key


def test_a_kernel_without_tiles_stays_as_it_is() -> None:
    k = Kernel()
    k.store(k.param(Pointer(int32)), k.op("add", k.n, k.const(1)))
    before = print_module(k.module)
    assert print_module(assign(k)) == before


def test_a_gather_follows_its_indices() -> None:
    k = Kernel()
    index = k.load(k.pointers((1024,), int32))
    base = k.param(Pointer(float32), align=16)
    x = k.load(k.addptr(k.splat(base, (1024,)), index))
    k.store(k.pointers((1024,), float32), x)
    assert not converted(assign(k))


# ------------------------------------------------------------------------------------------------ deferred sums
def row_sums(body, init: float = 0.0, **attrs) -> Kernel:
    """A loop over a 64x32 tile that carries a column statistic; `body(k, acc, x)` gives the next one."""
    k, shape = Kernel(), (64, 32)
    k.module.attrs.update(attrs)
    p = k.pointers(shape, float32)
    (acc,) = k.loop([k.full((32,), init)], lambda acc: [body(k, acc, k.load(p))], 64, "acc")
    k.store(k.pointers((32,), float32), acc)
    return k


def add_sum(k: Kernel, acc: Value, x: Value) -> Value:
    return k.op("add", acc, k.reduce(x, 0))


def scaled_sum(k: Kernel, acc: Value, x: Value) -> Value:
    scale = k.op("exp2", k.load(k.pointers((32,), float32)))
    return k.op("add", k.op("mul", acc, scale), k.reduce(x, 0))


def read_in_loop(k: Kernel, acc: Value, x: Value) -> Value:
    out = k.op("add", acc, k.reduce(x, 0))
    k.store(k.pointers((32,), float32), out)
    return out


def used_twice(k: Kernel, acc: Value, x: Value) -> Value:
    s = k.reduce(x, 0)
    return k.op("add", k.op("add", acc, s), s)


def branched_sum(k: Kernel, acc: Value, x: Value) -> Value:
    (out,) = k.branch(lambda: [add_sum(k, acc, x)], lambda: [acc])
    return out


def half_branched(k: Kernel, acc: Value, x: Value) -> Value:
    (out,) = k.branch(lambda: [add_sum(k, acc, x)], lambda: [k.full((32,))])
    return out


@pytest.mark.parametrize("body", (add_sum, scaled_sum, branched_sum))
def test_a_carried_sum_is_finished_after_its_loop(body) -> None:
    module = assign(row_sums(body))
    (loop,) = ops(module, "for")
    inside = Counter(op.kind for op in loop.regions[0].walk())
    assert inside["partial_reduce"] == 1
    (finished,) = [op for op in module.body.ops if op.kind == "reduce"]
    assert finished.operands == [loop.result] and finished.attrs == {"axis": 1, "combine": "sum"}
    assert shape_of(loop.result.type) == (32, 16)
    assert not ops(module, "select"), "a zero start needs no selection"


def test_a_start_other_than_zero_goes_to_the_first_partial_result() -> None:
    module = assign(row_sums(scaled_sum, init=1.0))
    (loop,) = ops(module, "for")
    start = loop.operands[3]
    assert start is not None and start.op is not None and start.op.kind == "select"
    assert [v.op.kind for v in start.op.inputs if v.op is not None] == ["cmp", "broadcast", "splat"]


@pytest.mark.parametrize("body", (read_in_loop, used_twice, half_branched))
def test_a_sum_that_is_needed_inside_the_loop_is_finished_there(body) -> None:
    assert not find_sums(row_sums(body).module)
    assert not ops(assign(row_sums(body)), "partial_reduce")


@pytest.mark.parametrize("change", ({"ordered_sums": True}, {}))
def test_ordered_sums_keep_the_order_of_additions(change: dict) -> None:
    assert bool(ops(assign(row_sums(add_sum, **change)), "partial_reduce")) != bool(change)


def test_a_while_loop_may_carry_unfinished_sums() -> None:
    k = Kernel()
    p = k.pointers((64, 32), float32)
    (acc,) = k.loop_while([k.full((32,))], lambda acc: [add_sum(k, acc, k.load(p))])
    k.store(k.pointers((32,), float32), acc)
    module = assign(k)
    (loop,) = ops(module, "while")
    assert {shape_of(r.args[0].type) for r in loop.regions} == {(32, 16)}


def partial_sums(a: Layout, axis: int) -> None:
    """Adds up what each thread holds, places it by `partial_layout`, and compares with the sum over the axis."""
    b = partial_layout(a, axis)
    threads = [(l, w) for w in range(1 << len(a.bases("warp"))) for l in range(1 << len(a.lane))]

    def weight(c: tuple[int, ...]) -> int:
        return hash((17, *c)) % 1009

    parts: dict[tuple[int, ...], int] = {}
    for l, w in threads:
        local: Counter[tuple[int, ...]] = Counter()
        for r in range(a.registers):
            c = a.apply(r, l, w)
            local[(*c[:axis], *c[axis + 1 :])] += weight(c)
        held = [b.apply(r, l, w) for r in range(b.registers)]
        assert sorted(c[:-1] for c in held) == sorted(local), "one register per kept element of the thread"
        for c in held:
            assert parts.setdefault(c, local[c[:-1]]) == local[c[:-1]], "holders of one partial result agree"
    total: Counter[tuple[int, ...]] = Counter()
    for c, value in parts.items():
        total[c[:-1]] += value
    expected: Counter[tuple[int, ...]] = Counter()
    for c in {a.apply(r, l, w) for l, w in threads for r in range(a.registers)}:
        expected[(*c[:axis], *c[axis + 1 :])] += weight(c)
    assert total == expected
    assert algebra.slice_(b, len(b.shape) - 1).key is algebra.slice_(a, axis).key


@pytest.mark.parametrize("axis", (0, 1))
def test_partial_results_add_up(axis: int) -> None:
    mixed = algebra.from_coords((8, 8), register=[(1, 1), (2, 0)], lane=[(0, 1), (4, 2), (4, 0)], warp=[(0, 4), (0, 4)])
    for a in (OTHER, ACC, wgmma_acc(64, 80), blocked((16, 8), (0, 1), 2, 32, 4), mixed):
        partial_sums(a, axis)


# ------------------------------------------------------------------------------------------------ determinism, time
@pytest.mark.parametrize("name", CASES)
def test_two_runs_print_the_same(name: str) -> None:
    first, second = (print_module(assign(CASES[name].build(), target_of(name))) for _ in range(2))
    assert first == second


def test_assignment_is_fast(record_property) -> None:
    """Under 10 ms for each kernel on an idle machine; CI gets slack."""
    slowest = 0.0
    for name, case in CASES.items():
        runs = []
        for _ in range(4):
            module = case.build().module
            select_dots(module, target_of(name))
            start = time.perf_counter()
            assign_layouts(module, target_of(name))
            runs.append(1e3 * (time.perf_counter() - start))
        record_property(name, f"{min(runs):.1f} ms")
        slowest = max(slowest, min(runs))
    assert slowest < 50
