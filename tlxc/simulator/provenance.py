"""Which parameter each pointer comes from: an access beyond its array is one even where another array follows."""

from __future__ import annotations

from collections import defaultdict

from tlxc.ir.core import Module, Op, Value
from tlxc.ir.types import Pointer, element_of


class Provenance:
    """Follows pointers backwards through ops and regions."""

    def __init__(self, module: Module) -> None:
        self._params = {p.value: p.name for p in module.params}
        self._sources: dict[Value, list[Value]] = defaultdict(list)
        for op in module.walk():
            self._note(op)
        self._known: dict[Value, frozenset[str]] = {}

    def _note(self, op: Op) -> None:
        if op.kind == "if":
            for region in op.regions:
                self._pair(op.results, region.terminator.inputs)
        elif op.kind == "for":
            (body,) = op.regions
            for targets in (op.results, body.args[1:]):
                self._pair(targets, op.inputs[3:])
                self._pair(targets, body.terminator.inputs)
        elif op.kind == "while":
            condition, body = op.regions
            for targets in (op.results, condition.args, body.args):
                self._pair(targets, op.inputs)
                self._pair(targets, body.terminator.inputs)
        else:
            for result in op.results:
                if isinstance(element_of(result.type), Pointer):
                    self._sources[result] += [v for v in op.inputs if isinstance(element_of(v.type), Pointer)]

    def _pair(self, targets: list[Value], sources: list[Value]) -> None:
        for target, source in zip(targets, sources):
            if isinstance(element_of(target.type), Pointer):
                self._sources[target].append(source)

    def of(self, pointer: Value) -> frozenset[str]:
        """Names of the parameters; empty where the pointer comes from elsewhere, as from memory."""
        found = self._known.get(pointer)
        if found is None:
            seen, todo, names = {pointer}, [pointer], set()
            while todo:
                v = todo.pop()
                if v in self._params:
                    names.add(self._params[v])
                elif not self._sources[v]:
                    return self._known.setdefault(pointer, frozenset())
                for source in self._sources[v]:
                    if source not in seen:
                        seen.add(source)
                        todo.append(source)
            found = self._known[pointer] = frozenset(names)
        return found
