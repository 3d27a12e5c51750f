"""Accumulators under way: which values an `async_dot` may still be writing, and that nothing touches them.

Each async_dot commits one group.  The age of a value is the number of groups committed since it came about, its own
included; `async_dot_wait(n)` completes groups that are older than n.  A value under way has one successor on every
path: the next async_dot that adds to it, a wait, or the slot of a loop or `if` that hands it on.  It becomes ready only
as the result of a wait: registers read under its old name could be read too early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tlxc.errors import CompileError
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.targets import Target

ACCUMULATOR = 2  # operand of async_dot
LONG_AGO = 1 << 16  # groups; more than any wait leaves under way


def check_pending(module: Module, target: Target) -> None:
    """Refuses every use of an accumulator that is, or on some path may be, under way; see the rule of this module."""
    pending_values(module)


def pending_values(module: Module) -> set[Value]:
    """All values that may be under way somewhere in their life; the module keeps the rule."""
    flow = _Flow()
    flow.region(module.body)
    return flow.seen


class _Flight(NamedTuple):
    """A value under way: its age in groups, the youngest dot that may write it, and what continues it."""

    age: int
    dot: Op
    successor: Op | None = None


_State = dict[Value, _Flight]


def _join(a: _Flight | None, b: _Flight | None) -> _Flight | None:
    """What holds of a value that is either of two."""
    if a is None or b is None:
        return a or b
    return (a if a.age <= b.age else b)._replace(successor=a.successor or b.successor)


def _join_states(a: _State, b: _State) -> _State:
    """After two paths, of what was under way before them."""
    return {v: f for v in a if (f := _join(a[v], b.get(v))) is not None}


class _Flow:
    def __init__(self) -> None:
        self.state: _State = {}
        self.seen: set[Value] = set()

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.kind != "yield":  # its owner hands the values on
                _RULES.get(op.kind, _Flow.plain)(self, op)

    # -- one op
    def plain(self, op: Op) -> None:
        for v in op.inputs:
            if v in self.state:
                raise _read(op, v, self.state[v])

    def set(self, v: Value, f: _Flight | None) -> None:
        if f is not None:
            self.state[v] = f
            self.seen.add(v)

    def hand_on(self, v: Value | None, op: Op) -> _Flight | None:
        """`op` continues the value; its flight, None where it is ready."""
        f = self.state.get(v) if v is not None else None
        if v is None or f is None:
            return None
        if f.successor is not None:
            raise _twice(op, v, f)
        self.state[v] = f._replace(successor=op)
        return f

    def age(self, groups: int) -> None:
        self.state = {v: f._replace(age=min(LONG_AGO, f.age + groups)) for v, f in self.state.items()}

    def async_dot(self, op: Op) -> None:
        for v in op.operands[:ACCUMULATOR]:
            if v in self.state:
                raise _read(op, v, self.state[v])
        self.hand_on(op.operands[ACCUMULATOR], op)
        self.age(1)
        self.set(op.result, _Flight(1, op))

    def dot(self, op: Op) -> None:
        """Waits for everything before it, where it is wgmma."""
        self.plain(op)
        if op.attrs.get("impl") == "wgmma":
            self.age(LONG_AGO)

    def wait(self, op: Op) -> None:
        for v, result in zip(op.inputs, op.results):
            f = self.hand_on(v, op)
            if f is not None and f.age <= op.attrs["pendings"]:
                self.set(result, f)

    # -- control flow
    def enter(self, args: Sequence[Value], flights: list[_Flight | None]) -> None:
        for v, f in zip(args, flights):
            self.set(v, f)

    def leave(self, values: Sequence[Value], op: Op) -> list[_Flight | None]:
        return [self.hand_on(v, op) for v in values]

    def loop(self, op: Op) -> None:
        """Runs the body until another iteration brings nothing younger to its start."""
        first = 3 if op.kind == "for" else 0
        for v in op.inputs[:first]:
            if v in self.state:
                raise _read(op, v, self.state[v])
        flights = self.leave(op.inputs[first:], op)
        while True:
            before, out = dict(self.state), flights
            for r in op.regions:
                self.enter(r.args[1:] if op.kind == "for" else r.args, out)
                self.region(r)
                if r is op.regions[-1]:
                    back = self.leave(r.terminator.inputs, r.terminator)
                else:  # the condition of a while loop, after which the loop may end
                    self.plain(r.terminator)
                    out = self.leave(r.args, op)
            after = [_join(a, b) for a, b in zip(flights, back)]
            self.state = _join_states(before, self.state)
            if after == flights and self.state == before:
                break
            flights = after
        self.enter(op.results, after if op.kind == "for" else out)

    def branch(self, op: Op) -> None:
        self.plain(op)
        before, states, flights = self.state, [], []
        for r in op.regions:
            self.state = dict(before)
            self.region(r)
            flights.append(self.leave(r.terminator.inputs, r.terminator))
            states.append({v: self.state[v] for v in before})
        self.state = _join_states(*states)
        self.enter(op.results, [_join(a, b) for a, b in zip(*flights)])

    def tasks(self, op: Op) -> None:
        """What is under way outside stays there."""
        before = self.state
        for r in op.regions:
            self.state = {v: f._replace(successor=op) for v, f in before.items()}
            self.region(r)
        self.state = before


_RULES: dict[str, Callable[[_Flow, Op], None]] = {
    "async_dot": _Flow.async_dot,
    "async_dot_wait": _Flow.wait,
    "dot": _Flow.dot,
    "for": _Flow.loop,
    "while": _Flow.loop,
    "if": _Flow.branch,
    "async_tasks": _Flow.tasks,
    "dump_layout": lambda flow, op: None,
    "breakpoint": lambda flow, op: None,
}


def _read(op: Op, v: Value, f: _Flight) -> CompileError:
    waited = f.successor is not None and f.successor.kind == "async_dot_wait"
    return CompileError(
        "the accumulator of an async_dot is used before the dot is known to be complete",
        found=f"{v.name or 'the result'}, which {op.kind} reads"
        + (" under its name from before the wait" if waited else f"; {_age_text(f)}"),
        allowed="adding to it by another async_dot, or waiting for it",
        fix="use the value that async_dot_wait returns: `acc = tlx.async_dot_wait(0, acc)`"
        if waited
        else "wait for it first: `acc = tlx.async_dot_wait(0, acc)`",
        loc=op.loc,
        related=[("the dot is started", f.dot.loc)],
    )


def _age_text(f: _Flight) -> str:
    newer = f.age - 1
    if newer >= LONG_AGO - 1:
        return "no wait has handed it through"
    if not newer:
        return "no group was committed after its own"
    return f"{newer} {'group was' if newer == 1 else 'groups were'} committed after its own"


def _twice(op: Op, v: Value, f: _Flight) -> CompileError:
    assert f.successor is not None
    waited = f.successor.kind == "async_dot_wait"
    return CompileError(
        "an accumulator of an async_dot that is under way goes two ways",
        found=f"{v.name or 'the result'}, which {f.successor.kind} already continues, goes to {op.kind} too",
        allowed="one successor: an async_dot that adds to it, a wait, or the variable of a loop or `if`",
        fix="use the value that async_dot_wait returns: `acc = tlx.async_dot_wait(0, acc)`"
        if waited
        else "wait for it first, `acc = tlx.async_dot_wait(0, acc)`: a complete accumulator may be used twice",
        loc=op.loc,
        related=[("the dot is started", f.dot.loc), ("it goes on", f.successor.loc)],
    )
