"""Writes chosen labels into the IR.

Values of nodes get the layout of their label.  What lies on edges is made anew for each layout that a consumer demands:
cheap values right behind their original, relabelling ops and conversions right before their first use in the block of
the original.  A conversion stands in a colder block than its value (a side of an `if`) where all its uses do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlxc.errors import Location
from tlxc.ir.core import Op, Region, Value
from tlxc.ir.layout import Layout
from tlxc.ir.types import Tensor, shape_of

from .facts import carried_args, carried_inits, default_layout, elem_bytes, is_tile
from .graph import Graph, Labels, Node
from .relabel import RELABEL, backward, forward


def write_layouts(g: Graph, labels: Labels) -> Callable[[Layout], Layout]:
    """Rewrites the module; returns the map from a layout to the one object that stands for its key."""
    writer = _Writer(g, labels)
    writer.region(g.module.body)
    writer.finish()
    return writer.canon


class _Writer:
    def __init__(self, g: Graph, labels: Labels) -> None:
        self.g, self.labels = g, labels
        self.canonical: dict[Layout, Layout] = {}
        # Instructions' own register order wins, then that of pins.
        for n in sorted((n for n in g.nodes if n.fixed is not None), key=lambda n: n.pin is not None):
            assert n.fixed is not None
            self.canon(n.fixed)
        self.block: dict[Op, Region] = {}
        self.owner: dict[Region, Op] = {}
        self.home: dict[Value, Region] = {}
        self.before: dict[Op, list[Op]] = {}
        self.behind: dict[Op, list[Op]] = {}
        self.dropped: set[Op] = set()
        self.cheap_dumps: list[tuple[Op, int]] = []
        self.made: dict[tuple[Value, Layout, Region], Value] = {}
        self.first: dict[Value, Layout] = {}  # first layout in which a cheap value was made
        self._index(g.module.body)

    def _index(self, region: Region) -> None:
        self.home.update(dict.fromkeys(region.args, region))
        for op in region.ops:
            self.block[op] = region
            self.home.update(dict.fromkeys(op.results, region))
            for r in op.regions:
                self.owner[r] = op
                self._index(r)

    def canon(self, a: Layout) -> Layout:
        return self.canonical.setdefault(a.key, a)

    def _type(self, v: Value, a: Layout) -> None:
        assert isinstance(v.type, Tensor)
        v.type = v.type.with_layout(self.canon(a))

    def _label(self, n: Node) -> Layout:
        return self.canon(self.labels[n.id])

    # -- program order
    def region(self, region: Region) -> None:
        for op in region.ops:
            tiles = any(map(is_tile, (*op.operands, *op.results)))
            nodes = self.g.at.get(op)
            if op.kind in ("dump_layout", "breakpoint"):
                self._dump(op)
            elif op.kind in ("for", "while"):
                self._loop(op)
            elif op.kind == "if":
                self._if(op)
            elif op.kind in ("dot", "async_dot"):
                self._dot(op)
            elif op.kind == "async_dot_wait":
                self._wait(op)
            elif op.kind == "async_tasks":
                for r in op.regions:
                    self.region(r)
            elif nodes:
                self._simple(op, nodes)
            elif tiles and op.kind != "yield":  # cheap or relabelling: made where it is demanded
                self.dropped.add(op)

    def _simple(self, op: Op, nodes: list[Node | None]) -> None:
        (n,) = nodes
        assert n is not None
        label = self._label(n)
        op.operands = [self.get(v, label, op) for v in op.operands]
        for v in n.out:
            self._type(v, n.result(label))

    def _dot(self, op: Op) -> None:
        op.operands = self._carry(op.operands, self.g.at[op], op)
        self._type(op.result, self._label(self.g.of[op.result]))

    def _wait(self, op: Op) -> None:
        for i, (v, n) in enumerate(zip(op.inputs, self.g.at[op])):
            assert n is not None
            layout = n.result(self._label(n))
            op.operands[i] = self.get(v, layout, op)
            self._type(op.results[i], layout)

    def _carry(self, values: Sequence[Value | None], nodes: list[Node | None], at: Op) -> list[Value | None]:
        return [v if n is None else self.get(v, self._label(n), at) for v, n in zip(values, nodes)]

    def _loop(self, op: Op) -> None:
        nodes, inits = self.g.at[op], carried_inits(op)
        op.operands[len(op.operands) - len(inits) :] = self._carry(inits, nodes, op)
        for i, n in enumerate(nodes):
            if n is not None:
                for v in (op.results[i], *carried_args(op, i)):
                    self._type(v, self._label(n))
        for r in op.regions:
            self.region(r)
        end = op.regions[-1].terminator
        end.operands = self._carry(end.inputs, nodes, end)

    def _if(self, op: Op) -> None:
        nodes = self.g.at[op]
        for v, n in zip(op.results, nodes):
            if n is not None:
                self._type(v, self._label(n))
        for r in op.regions:
            self.region(r)
            r.terminator.operands = self._carry(r.terminator.inputs, nodes, r.terminator)

    # -- values in demanded layouts
    def get(self, v: Value | None, want: Layout, at: Op) -> Value | None:
        """`v` in layout `want`, usable by `at`."""
        if v is None or not is_tile(v):
            return v
        want = self.canon(want)
        if v in self.g.of:
            n = self.g.of[v]
            have = self.canon(n.result(self._label(n)))
            return v if have is want else self._converted(v, v, want, self._point(v, want, at))
        if v in self.g.cheap:
            return self._cheap(v, want)
        return self._relabelled(v, want, at)

    def _point(self, v: Value, want: Layout, at: Op) -> Op:
        """The op before which a conversion goes."""
        demands, _ = self.g.demands(v, self.labels)
        demanded = demands.get(want.key)
        colder = demanded is not None and demanded[1] < self.g.home[v]
        return at if colder else self._ancestor(at, self.home[v])

    def _ancestor(self, op: Op, region: Region) -> Op:
        """The op of `region` that is or contains `op`."""
        while self.block[op] is not region:
            op = self.owner[self.block[op]]
        return op

    def _converted(self, source: Value | None, v: Value, want: Layout, point: Op) -> Value:
        """`source` (which is `v`, in another layout) converted before `point`."""
        key = v, want, self.block[point]
        if key not in self.made:
            new = self._new("convert_layout", [source], want, v, point.loc)
            self.before.setdefault(point, []).append(new)
            self.made[key] = new.result
        return self.made[key]

    def _new(self, kind: str, operands: list[Value | None], want: Layout, like: Value, loc: Location | None) -> Op:
        assert isinstance(like.type, Tensor)
        new = Op(kind, operands, (like.type.with_layout(want),), loc=like.op.loc if like.op is not None else loc)
        new.result.name = like.name
        return new

    def _clone(self, op: Op, operands: list[Value | None], want: Layout, region: Region) -> Op:
        """The op with other operands and its results, which have one shape, in `want`."""
        types = [r.type.with_layout(want) if isinstance(r.type, Tensor) else r.type for r in op.results]
        new = Op(op.kind, operands, types, dict(op.attrs), loc=op.loc)
        for old, r in zip(op.results, new.results):
            r.name = old.name
            self.made[old, want, region] = r
        return new

    def _cheap(self, v: Value, want: Layout) -> Value:
        op, region = v.op, self.home[v]
        assert op is not None
        if (v, want, region) not in self.made:
            inner = backward(op, want) if op.kind in RELABEL else want
            if inner is None:  # a join across threads: made in another layout, then converted
                natural = self._natural(v)
                new = self._new("convert_layout", [self._cheap(v, natural)], want, v, op.loc)
                self.made[v, want, region] = new.result
            else:
                new = self._clone(op, [self.get(o, inner, op) for o in op.operands], want, region)
            self.behind.setdefault(op, []).append(new)
            self.first.setdefault(v, want)
        return self.made[v, want, region]

    def _relabelled(self, v: Value, want: Layout, at: Op) -> Value:
        op, region = v.op, self.home[v]
        assert op is not None
        point = self._ancestor(at, region)
        if (v, want, region) not in self.made:
            inner = backward(op, want)
            if inner is None:
                return self._converted(self._relabelled(v, self._natural(v), point), v, want, point)
            operands = [self.get(o, inner, point) for o in op.operands]
            new = self._clone(op, operands, want, region)
            self.before.setdefault(point, []).append(new)
        return self.made[v, want, region]

    def _natural(self, v: Value) -> Layout:
        """The layout in which a value comes about with the fewest conversions; one that its op can give."""
        found: Layout | None = None
        if v in self.g.of:
            n = self.g.of[v]
            found = n.result(self._label(n))
        elif v.op is not None and v.op.kind in RELABEL:
            found = forward(v.op, self._natural(v.op.inputs[0]))
        if found is None:
            found = default_layout(shape_of(v.type), elem_bytes(v), self.g.threads_in[self.home[v]])
        return self.canon(found)

    # -- the end
    def _dump(self, op: Op) -> None:
        """It takes what is there.  Cheap values are made for their other consumers first."""
        for i, v in enumerate(op.inputs):
            if v in self.g.cheap:
                self.cheap_dumps.append((op, i))
            elif is_tile(v):
                op.operands[i] = self.get(v, self._natural(v), op)

    def finish(self) -> None:
        for op, i in self.cheap_dumps:
            v = op.inputs[i]
            op.operands[i] = self.get(v, self.first.get(v) or self._natural(v), op)
        self.rebuild(self.g.module.body)

    def rebuild(self, region: Region) -> None:
        """Puts the new ops in their places and drops what was made anew."""
        out: list[Op] = []
        for op in region.ops:
            out += self.before.get(op, ())
            if op not in self.dropped:
                out.append(op)
            out += self.behind.get(op, ())
            for r in op.regions:
                self.rebuild(r)
        region.ops = out
