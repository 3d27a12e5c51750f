"""Chooses a label for every node: floods the anchors, then improves by local moves while the exact price falls.

Deterministic: nodes, edges and candidates are visited in program order, and a move must gain more than `GAIN`, so the
start wins ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tlxc.ir.layout import Layout

from .graph import Graph, Labels, Node, Use

GAIN = 1e-6
THOROUGH = 150  # nodes up to which the search repeats without its shortcut


def choose(g: Graph) -> Labels:
    """The cheaper result of two starts: all anchors flood, or only the fixed ones do."""
    starts = [flood(g), flood(g, fixed_only=True)]
    if starts[0] == starts[1]:
        starts.pop()
    return min((Search(g, start).run() for start in starts), key=g.total)


# ------------------------------------------------------------------------------------------------ flooding
def _matching(m: Node, use: Use | None, want: Layout | None) -> Layout | None:
    """A candidate of `m` whose result (or, with `use`, whose demand through it) is `want`."""
    if want is None:
        return None
    for a in m.cands.values():
        got = m.result(a) if use is None else use.need(a)
        if got is not None and got.key is want.key:
            return a
    return None


def neighbours(g: Graph, n: Node, label: Layout) -> Iterator[tuple[Node, Layout | None]]:
    """(node, label with which its edge to `n`, labelled `label`, is free): sources first, then consumers."""
    for u in n.uses:
        m, want = g.of[u.value], u.need(label)
        # Several inputs slice to one result: any that matches.
        yield m, _matching(m, None, want) if m.kind == "reduce" else want
    r = n.result(label)
    for v in n.out:
        for u in g.uses[v]:
            a = u.forward(r)
            # Through a broadcast: any candidate whose slice matches.
            yield u.node, _matching(u.node, u, r) if a is None else a


def flood(g: Graph, fixed_only: bool = False) -> Labels:
    """Anchors label what they reach, heaviest first.  With `fixed_only`, memory accesses are no anchors: they take what
    reaches them, and only what nothing reaches starts from its own proposal."""

    def weight(n: Node) -> tuple[float, int]:
        return -prod(n.shape) * n.weight, n.id

    labels: dict[int, Layout] = {}
    anchors = sorted((n for n in g.nodes if n.fixed is not None or n.seeds), key=weight)
    if fixed_only:
        anchors.sort(key=lambda n: n.fixed is None)
    for n in anchors:
        if n.fixed is not None or not fixed_only:
            labels[n.id] = next(n.allowed())
    for anchor in anchors:
        labels.setdefault(anchor.id, next(anchor.allowed()))
        work, done = [anchor], 0
        while done < len(work):
            n = work[done]
            done += 1
            for m, a in neighbours(g, n, labels[n.id]):
                if m.id not in labels and a is not None and a.key in m.cands:
                    labels[m.id] = m.cands[a.key]
                    work.append(m)
    return [labels.get(n.id) or next(n.allowed()) for n in g.nodes]


# ------------------------------------------------------------------------------------------------ local moves
class _Move:
    """A tentative relabelling; `delta` is its price so far, `best` the length and price of its best prefix."""

    def __init__(self, labels: Labels) -> None:
        self.labels = list(labels)
        self.changed: list[int] = []
        self.delta = 0.0
        self.best = (0.0, 0)
        self.refused = False

    def accept(self, n: Node, delta: float) -> None:
        self.changed.append(n.id)
        self.delta = delta
        if len(self.changed) == 1 or delta <= self.best[0]:
            self.best = (delta, len(self.changed))

    def apply(self, labels: Labels) -> None:
        """Takes over the best prefix."""
        for i in self.changed[: self.best[1]]:
            labels[i] = self.labels[i]


class Search:
    """Moves one node, or the region that one node drags along, while the total price falls."""

    def __init__(self, g: Graph, labels: Labels) -> None:
        self.g, self.labels = g, labels
        self.touched = [
            [g.wires[v] for v in dict.fromkeys([*n.out, *(u.value for u in n.uses)]) if v in g.wires] for n in g.nodes
        ]
        self.failed: set[tuple[int, Layout]] = set()  # the same region, asked for again from another of its nodes

    def run(self) -> Labels:
        """Rounds until none gains; small graphs get a last round in which failed regions are tried again."""
        while self._round(True):
            pass
        if len(self.g.nodes) <= THOROUGH:
            self.failed.clear()
            while self._round(False):
                pass
        return self.labels

    def _round(self, quick: bool) -> bool:
        moved = False
        for n in self.g.nodes:
            if n.fixed is None and len(n.cands) > 1 and self._can_gain(n):
                for a in n.cands.values():
                    if a is not self.labels[n.id] and (n.id, a) not in self.failed:
                        moved |= self._try(n, a, quick)
        return moved

    def _can_gain(self, n: Node) -> bool:
        now = n.price(self.labels[n.id])
        dear = now > min(n.price(a) for a in n.cands.values())
        return dear or any(w.cost(self.labels) for w in self.touched[n.id])

    def _try(self, n: Node, a: Layout, quick: bool) -> bool:
        move = self._grow(n, a, greedy=True)
        if move.best[0] > -GAIN and move.refused:
            move = self._grow(n, a, greedy=False)
        if move.best[0] < -GAIN:
            move.apply(self.labels)
            self.failed.clear()
            return True
        if quick:
            self.failed |= {(i, move.labels[i]) for i in move.changed}
        return False

    def _around(self, n: Node, labels: Labels) -> float:
        total = n.price(labels[n.id])
        for wire in self.touched[n.id]:
            total += wire.cost(labels)
        return total

    def _step(self, n: Node, a: Layout, labels: Labels) -> float:
        """Relabels one node; the change of the total."""
        before = self._around(n, labels)
        labels[n.id] = a
        return self._around(n, labels) - before

    def _grow(self, n: Node, a: Layout, greedy: bool) -> _Move:
        """Relabels n, then what its edges ask of the neighbours, breadth first; greedily: where it costs nothing."""
        move = _Move(self.labels)
        move.accept(n, self._step(n, a, move.labels))
        work, seen, done = [n], {n.id}, 0
        while done < len(work):
            current = work[done]
            done += 1
            for m, want in neighbours(self.g, current, move.labels[current.id]):
                if want is None or m.id in seen or want.key not in m.cands or self.labels[m.id].key is want.key:
                    continue
                old = move.labels[m.id]
                step = self._step(m, m.cands[want.key], move.labels)
                if greedy and step > 1e-9:
                    move.labels[m.id], move.refused = old, True
                    continue
                move.accept(m, move.delta + step)
                seen.add(m.id)
                work.append(m)
        return move
