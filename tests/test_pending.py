"""Accumulators under way: what may continue them, ages over loops and branches, and the words of refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from buffer_kernels import BufferKernel

from tlxc.errors import CompileError
from tlxc.ir.core import Value
from tlxc.ir.types import float16, float32
from tlxc.passes.dots import select_dots
from tlxc.passes.pending import check_pending, pending_values
from tlxc.targets import get_target

SM90 = get_target("sm_90")
SHAPE = (64, 64)


class Products(BufferKernel):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b_operand = self.operands()

    def step(self, acc: Value | None = None, name: str = "acc") -> Value:
        return self.async_dot(self.a, self.b_operand, acc, name)

    def use(self, x: Value) -> Value:
        return self.op("neg", x)

    def zeros(self) -> Value:
        return self.full(SHAPE)


def refused(k: Products) -> CompileError:
    with pytest.raises(CompileError) as caught:
        check_pending(k.module, SM90)
    assert caught.value.fix and caught.value.related[0][1] is not None
    return caught.value


# ------------------------------------------------------------------------------------------------ allowed
def test_the_main_loop_of_a_matmul() -> None:
    k = Products()
    made: list[Value] = []

    def body(acc: Value) -> list[Value]:
        made.extend([acc, k.step(acc)])
        made.append(k.wait(1, made[-1]))
        return made[-1:]

    (acc,) = k.loop([k.zeros()], body, names="acc")
    done = k.wait(0, acc)
    k.use(done)
    assert pending_values(k.module) == {*made, acc}


def test_wait_makes_ready_what_is_older_than_its_count() -> None:
    k = Products()
    first = k.step()
    k.step(name="other")
    k.use(k.wait(1, first))
    check_pending(k.module, SM90)


def test_two_accumulators_take_turns() -> None:
    k = Products()

    def body(x: Value, y: Value) -> list[Value]:
        x = k.wait(1, k.step(x))
        return [x, k.wait(1, k.step(y))]

    x, y = k.loop([k.zeros(), k.zeros()], body, names="x y")
    k.use(k.wait(0, x))
    k.use(k.wait(0, y))
    check_pending(k.module, SM90)


def test_a_ready_accumulator_may_live_on() -> None:
    k = Products()
    old = k.wait(0, k.step())
    new = k.wait(0, k.step(old))
    k.op("add", k.use(old), new)
    check_pending(k.module, SM90)


def test_a_synchronous_dot_waits_for_all() -> None:
    k = Products()
    acc = k.step()
    k.dot(k.full(SHAPE, 1.0, float16), k.full(SHAPE, 1.0, float16), k.zeros())
    k.use(k.wait(7, acc))
    select_dots(k.module, SM90)
    check_pending(k.module, SM90)


# ------------------------------------------------------------------------------------------------ refused
def read_at_once(k: Products) -> None:
    k.use(k.step())


def young_after_wait(k: Products) -> None:
    k.use(k.wait(1, k.step()))


def operand_a(k: Products) -> None:
    k.async_dot(k.cast(k.step(), float16), k.b_operand)


def through_a_back_edge(k: Products) -> None:
    k.loop([k.zeros()], lambda acc: [(k.use(acc), k.step(k.zeros()))[1]], names="acc")


def after_the_loop(k: Products) -> None:
    (acc,) = k.loop([k.zeros()], lambda acc: [k.wait(1, k.step(acc))], names="acc")
    k.use(acc)


def from_one_branch(k: Products) -> None:
    (acc,) = k.branch(lambda: [k.step()], lambda: [k.zeros()])
    k.use(acc)


def condition_reads(k: Products) -> None:
    acc = k.step()
    k.loop_while([k.zeros()], lambda x: [k.op("add", x, acc)])


def in_a_task(k: Products) -> None:
    acc = k.step()
    k.tasks((4, lambda: k.use(acc)))


READS = (
    read_at_once, young_after_wait, operand_a, through_a_back_edge, after_the_loop, from_one_branch, condition_reads,
    in_a_task,
)  # fmt: skip


@pytest.mark.parametrize("build", READS)
def test_reading_what_may_be_under_way_is_refused(build: Callable[[Products], None]) -> None:
    k = Products()
    build(k)
    error = refused(k)
    assert error.summary == "the accumulator of an async_dot is used before the dot is known to be complete"
    assert error.fix == "wait for it first: `acc = tlx.async_dot_wait(0, acc)`"
    dots = [op for op in k.module.walk() if op.kind == "async_dot"]
    assert error.related == [("the dot is started", dots[0].loc)] and error.loc != dots[0].loc


def test_the_text_names_value_use_and_age() -> None:
    k = Products()
    acc = k.step()
    k.step(name="newer")
    k.use(acc)
    assert refused(k).found == "acc, which neg reads; 1 group was committed after its own"


def test_the_old_name_after_a_wait_is_refused() -> None:
    k = Products()
    acc = k.step()
    k.wait(0, acc)
    k.use(acc)
    error = refused(k)
    assert "under its name from before the wait" in error.found
    assert error.fix.startswith("use the value that async_dot_wait returns")


def both_dots(k: Products) -> None:
    acc = k.step()
    k.step(acc)
    k.step(acc)


def dot_then_wait(k: Products) -> None:
    acc = k.step()
    k.step(acc)
    k.wait(0, acc)


def every_iteration(k: Products) -> None:
    acc = k.step()
    k.loop([k.full(SHAPE)], lambda x: [k.wait(0, k.step(acc))])


def two_slots(k: Products) -> None:
    acc = k.step()
    k.loop([acc, acc], lambda x, y: [k.step(x), k.step(y)])


def two_yields(k: Products) -> None:
    def body(x: Value, y: Value) -> list[Value]:
        acc = k.step(x)
        return [acc, acc]

    k.loop([k.full(SHAPE), k.full(SHAPE)], body)


@pytest.mark.parametrize("build", (both_dots, dot_then_wait, every_iteration, two_slots, two_yields))
def test_an_accumulator_under_way_has_one_successor(build: Callable[[Products], None]) -> None:
    k = Products()
    build(k)
    error = refused(k)
    assert error.summary == "an accumulator of an async_dot that is under way goes two ways"
    assert error.related[1][0] == "it goes on"


def test_branches_may_both_continue_it() -> None:
    k = Products()
    acc = k.step()
    (acc,) = k.branch(lambda: [k.wait(0, acc)], lambda: [k.step(acc)])
    k.use(k.wait(0, acc))
    assert acc.type.element == float32  # type: ignore[union-attr]
    check_pending(k.module, SM90)
