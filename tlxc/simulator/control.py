"""Running code: steps, loops, branches, tasks.  A strand is a generator; what it yields is what it waits for, None
where it only lets others go first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from .agents import Pending
from .barriers import Waitable
from .parts import own_parts
from .program import EFFECT, PURE, Code, Step
from .reports import at, fail
from .values import storage

if TYPE_CHECKING:
    from .machine import Strand

Flow = Iterator[Waitable | None]


def run_code(strand: Strand, code: Code) -> Flow:
    """Runs the steps of a region."""
    env, ready = strand.env, strand.machine.ready
    for step in code.steps:
        mode = step.mode
        if mode == PURE:
            try:
                value = step.fn(step.op, [env[i] for i in step.ins])
            except (TypeError, AttributeError, ValueError):
                refuse_pending(strand, step, [env[i] for i in step.ins])
                raise
        elif mode == EFFECT:
            strand.step = step
            if len(ready) > 1:
                yield None
            strand.epoch += 1
            strand.clock.g[:2, strand.number] = strand.epoch
            try:
                value = step.fn(strand, step, *[env[i] for i in step.ins])
            except (TypeError, AttributeError, ValueError):
                refuse_pending(strand, step, [env[i] for i in step.ins])
                raise
        else:
            strand.step = step
            value = yield from step.fn(strand, step, *[env[i] for i in step.ins])
        if step.out >= 0:
            env[step.out] = value
        elif step.outs:
            for slot, one in zip(step.outs, value):
                env[slot] = one


def refuse_pending(strand: Strand, step: Step, values: list[Any]) -> None:
    """Of an op that failed: because a value is not there yet?"""
    for v in values:
        if isinstance(v, Pending):
            raise fail(
                "pending-value",
                f"the result of {at(v.op)} is used by {at(step.op)} in {strand.name} before async_dot_wait makes it "
                "ready",
                step.op,
                v.op,
            ) from None


def for_loop(strand: Strand, step: Step, lo: Any, hi: Any, by: Any, *carried: Any) -> Generator[Any, None, Any]:
    code, env = step.codes[0], strand.env
    _note_trips(strand, step, len(range(int(lo), int(hi), int(by))))
    kind = storage(step.op.inputs[0].type.dtype).type  # type: ignore[union-attr]
    for i in range(int(lo), int(hi), int(by)):
        env[code.args[0]] = kind(i)
        for slot, value in zip(code.args[1:], carried):
            env[slot] = value
        yield from run_code(strand, code)
        carried = tuple([env[slot] for slot in code.yields])
    return _results(step, carried)


def _note_trips(strand: Strand, step: Step, trips: int) -> None:
    machine = strand.machine
    loc = machine.program.loops.get(step.op)
    if loc is not None:
        machine.findings.trips.setdefault(loc, set()).add(trips)


def while_loop(strand: Strand, step: Step, *carried: Any) -> Generator[Any, None, Any]:
    condition, body = step.codes
    env, trips = strand.env, 0
    while True:
        strand.machine.turn()
        for code in (condition, body):
            for slot, value in zip(code.args, carried):
                env[slot] = value
        yield from run_code(strand, condition)
        if not env[condition.yields[0]]:
            _note_trips(strand, step, trips)
            return _results(step, carried)
        yield from run_code(strand, body)
        trips += 1
        carried = tuple([env[slot] for slot in body.yields])


def branch(strand: Strand, step: Step, condition: Any) -> Generator[Any, None, Any]:
    if condition.shape:
        return (yield from _warps_apart(strand, step, condition))
    code = step.codes[0 if condition else 1]
    yield from run_code(strand, code)
    return _results(step, tuple([strand.env[slot] for slot in code.yields]))


def _warps_apart(strand: Strand, step: Step, condition: Any) -> Generator[Any, None, Any]:
    """Warps take different branches, which have no effects: both run, and each warp gives its own part of the results.
    `condition`: one bool per thread."""
    sides = []
    for code in step.codes:
        yield from run_code(strand, code)
        sides.append([strand.env[slot] for slot in code.yields])
    return _results(step, tuple(own_parts(v.type, condition, a, b) for v, a, b in zip(step.op.results, *sides)))


def _results(step: Step, values: tuple[Any, ...]) -> Any:
    return values[0] if len(step.outs) == 1 else values


def async_tasks(strand: Strand, step: Step) -> Generator[Any, None, Any]:
    """The strand runs the first region itself; the others start with its values and what it knows, and it goes on with
    what they know."""
    cta = strand.cta
    names, outside, warps = _names(step), strand.name, strand.warps
    children = []
    for i, code in enumerate(step.codes[1:], 1):
        child = cta.strand(i)
        child.start(strand, code, names[i], step.op.attrs["num_warps"][i], step.op.attrs["start_warp"][i])
        children.append(child)
    cta.active = len(step.codes)
    strand.rename(names[0], step.op.attrs["num_warps"][0])
    yield from run_code(strand, step.codes[0])
    for child in children:
        while not child.done:
            strand.block("tasks", step.op, child.finish)
            yield child.finish
        strand.clock.merge(child.clock)
    strand.blocked = None
    strand.rename(outside, warps)
    cta.active = 1


def _names(step: Step) -> list[str]:
    """`default task`, `task 1`, `task 2 copy 0`, ...: copies of a task follow each other."""
    replica = step.op.attrs["replica"]
    out, number = ["default task"], 0
    for i in range(1, len(replica)):
        number += replica[i] == 0
        copies = replica[i] > 0 or (i + 1 < len(replica) and replica[i + 1] > 0)
        out.append(f"task {number} copy {replica[i]}" if copies else f"task {number}")
    return out


FLOWS: dict[str, Callable[..., Any]] = {"for": for_loop, "while": while_loop, "if": branch, "async_tasks": async_tasks}
