"""What values are computed from, through loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tlxc.ir.core import Module, Op, Value


class Origins:
    """Operands of every value of a module; those of what a loop carries are its first value and what trips yield."""

    def __init__(self, module: Module) -> None:
        self._carried: dict[Value, list[Value]] = {}
        for op in module.walk():
            for group, operands in _CARRIED.get(op.kind, _nothing)(op):
                for value in group:
                    self._carried.setdefault(value, []).extend(operands)

    def of(self, v: Value) -> list[Value]:
        if v in self._carried:
            return self._carried[v]
        return v.op.inputs if v.op is not None else []

    def walk(self, v: Value, into: Callable[[Value], bool] = lambda x: True) -> Iterator[Value]:
        """The value and what it is computed from, through values that `into` admits; each once."""
        pending, seen = [v], {v}
        while pending:
            x = pending.pop()
            yield x
            if into(x):
                fresh = [y for y in self.of(x) if y not in seen]
                seen.update(fresh)
                pending += fresh


Carried = Iterator[tuple[list[Value], list[Value]]]  # (values that are one variable, what they may be)


def _nothing(op: Op) -> Carried:
    yield from ()


def _for(op: Op) -> Carried:
    (body,), (start, _, step) = op.regions, op.inputs[:3]
    yield [body.args[0]], [start, step]
    for arg, result, first, last in zip(body.args[1:], op.results, op.inputs[3:], body.terminator.inputs):
        yield [arg, result], [first, last]


def _while(op: Op) -> Carried:
    condition, body = op.regions
    for before, arg, result, first, last in zip(
        condition.args, body.args, op.results, op.inputs, body.terminator.inputs
    ):
        yield [before, arg, result], [first, last]


def _if(op: Op) -> Carried:
    then, other = op.regions
    for result, one, another in zip(op.results, then.terminator.inputs, other.terminator.inputs):
        yield [result], [one, another]


_CARRIED: dict[str, Callable[[Op], Carried]] = {"for": _for, "while": _while, "if": _if}
