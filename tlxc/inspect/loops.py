"""Code by loops: which instructions run on each trip, counted by class.

A loop is a natural loop of the control flow: a jump back to a block that dominates it, and all blocks from which that
jump is reached without passing the head again.  So what assemblers move out of line, as waiting for a barrier, counts
where it runs.  What a loop holds is counted without the loops inside it.  Loops that only try a barrier again are no
loops here: they count to what is around them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from .forms import PLAIN, Form


@dataclass(frozen=True)
class Instruction:
    """`target`: the label that it jumps to.  `falls`: whether the next instruction may follow."""

    mnemonic: str
    operands: str
    target: str | None
    falls: bool


@dataclass(frozen=True)
class Loop:
    """`depth`: loops around it, itself included.  `counts`: instructions of one trip, by class."""

    depth: int
    counts: Counter[str]


def read(form: Form, text: str) -> Code:
    """The instructions of the only function in a text."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := re.match(form.label, line):
            labels[label[1]] = len(code)
            continue
        # inline assembly of PTX stands in one line, with labels of its own, and leaves it at the end
        inline = form.name == "PTX" and line.lstrip().startswith("{")
        for part in re.split(r"(?<=;)", line.replace("{", " ", 1)) if inline else [line]:
            if found := re.match(form.instruction, re.sub(r"^\s*[A-Z]+:", "", part) if inline else part):
                predicate, mnemonic, operands = found.groups(default="")
                code.append(_instruction(form, predicate, mnemonic, operands, inline))
    return Code(form, tuple(code), labels)


def _instruction(form: Form, predicate: str, mnemonic: str, operands: str, inline: bool) -> Instruction:
    jumps = not inline and re.match(form.jump, mnemonic)
    target = re.search(form.target, operands) if jumps else None
    ends = not inline and not predicate and re.match(form.end, mnemonic)
    always = target is not None and form.always(predicate, mnemonic, operands)
    return Instruction(mnemonic, operands.strip(), target[1] if target else None, not (ends or always))


@dataclass(frozen=True)
class Code:
    """A function.  `labels`: the position of the instruction behind each."""

    form: Form
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]

    @cached_property
    def counts(self) -> Counter[str]:
        """All instructions by class."""
        return self._count(range(len(self.instructions)))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Loops in the order of their heads; the outer one first where they share it."""
        flow = _Flow(self)
        bodies = sorted(flow.loops().items(), key=lambda item: (flow.starts[item[0]], -len(item[1])))
        members = {head: [i for block in body for i in flow.range(block)] for head, body in bodies}
        spins = {head for head, held in members.items() if self._waits(held)}
        kept = {head: body for head, body in bodies if head not in spins}
        out = []
        for head, body in kept.items():
            inner = [other for h, other in kept.items() if h != head and other < body]
            own = [i for block in body if not any(block in other for other in inner) for i in flow.range(block)]
            depth = sum(body <= other for other in kept.values())
            out.append(Loop(depth, self._count(own)))
        return tuple(out)

    def _waits(self, held: list[int]) -> bool:
        """Whether a loop does nothing but try again."""
        names = [self.instructions[i].mnemonic for i in held]
        tries = [name for name in names if re.match(self.form.spin, name)]
        return bool(tries) and {self.form.kind(name) for name in names} - PLAIN <= set(map(self.form.kind, tries))

    def _count(self, positions: range | list[int]) -> Counter[str]:
        return Counter(self.form.kind(self.instructions[i].mnemonic) for i in positions)


class _Flow:
    """Blocks of a function, by the position of their first instructions, and what follows what."""

    def __init__(self, code: Code) -> None:
        self.size = len(code.instructions)
        jumps = [i for i, x in enumerate(code.instructions) if x.target is not None or not x.falls]
        self.starts = sorted({0, *code.labels.values(), *(i + 1 for i in jumps)} - {self.size})
        block_of = {start: block for block, start in enumerate(self.starts)}
        self.next: list[list[int]] = []
        for block in range(len(self.starts)):
            last = code.instructions[self.range(block)[-1]]
            follows = [self.range(block)[-1] + 1] if last.falls else []
            if last.target is not None:
                follows.append(code.labels[last.target])
            self.next.append([block_of[i] for i in follows if i < self.size])

    def range(self, block: int) -> range:
        end = self.starts[block + 1] if block + 1 < len(self.starts) else self.size
        return range(self.starts[block], end)

    def loops(self) -> dict[int, frozenset[int]]:
        """Blocks of each loop by its head; jumps back to one head are one loop."""
        order = self._order()
        before: dict[int, list[int]] = {block: [] for block in order}
        for block in order:
            for follower in self.next[block]:
                before[follower].append(block)
        dominators = self._dominators(order, before)
        found: dict[int, set[int]] = {}
        for block in order:
            for head in self.next[block]:
                if head in dominators[block]:
                    body = found.setdefault(head, {head})
                    waiting = [block]
                    while waiting:
                        b = waiting.pop()
                        if b not in body:
                            body.add(b)
                            waiting += before[b]
        return {head: frozenset(body) for head, body in found.items()}

    def _order(self) -> list[int]:
        """Blocks that can be reached, each after one that leads to it (reverse postorder)."""
        if not self.starts:
            return []
        order: list[int] = []
        seen, stack = {0}, [(0, iter(self.next[0]))]
        while stack:
            block, followers = stack[-1]
            follower = next((f for f in followers if f not in seen), None)
            if follower is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(follower)
                stack.append((follower, iter(self.next[follower])))
        return order[::-1]

    @staticmethod
    def _dominators(order: list[int], before: dict[int, list[int]]) -> dict[int, set[int]]:
        """Per block those that every way to it passes, itself included."""
        out = {block: set(order) for block in order}
        if order:
            out[order[0]] = {order[0]}
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                new = set.intersection(*(out[b] for b in before[block])) | {block}
                changed |= new != out[block]
                out[block] = new
        return out
