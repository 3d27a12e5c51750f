"""The search problem: nodes that need a layout, edges that may need a conversion, and what each choice costs.

A *node* is what needs a layout of its own: an elementwise op that is not index arithmetic, a reduction (its label is
the layout of its *input*), an access to global or shared memory, a dot and each operand of it, a slot that a loop
carries (initial value, argument, yield and result are one node), a result of an `if`, a pin.  What a wait hands through
shares the node of its operand.

Cheap values (`arange`, splats, index arithmetic and masks made of them) and relabelling ops (expand_dims, broadcast,
permute, reshape, split, join) are no nodes: they are functions on the edge from a value to its consumer, so that each
consumer sees them in the layout it wants.

A task has threads of its own: its nodes have layouts over its warps, and no edge leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from tlxc.errors import CompileError, InternalError
from tlxc.ir import layout as algebra
from tlxc.ir.conversion import FREE, classify
from tlxc.ir.core import Module, Op, Region, Value
from tlxc.ir.layout import Layout
from tlxc.ir.memory import Memory
from tlxc.ir.table import traits
from tlxc.ir.types import Buffer, Tensor, shape_of
from tlxc.passes.axis import AxisInfo
from tlxc.passes.buffers import memory_of

from . import prices
from .defer import DeferredSum
from .facts import (
    WIDEST_ACCESS,
    Threads,
    access_vector,
    carried_args,
    carried_inits,
    check_pin,
    check_reshape,
    contiguous_first,
    default_layout,
    dot_layout,
    elem_bytes,
    is_tile,
    narrow_async_load,
    pending_moves,
    tiles_of,
    trip_count,
)
from .relabel import RELABEL, backward, forward

BRANCH = 0.5  # probability of either side of an `if`
SMALLEST_COPY = 4  # bytes of a cp.async
MAX_CANDIDATES = 8

SHARED_ACCESSES = (
    "local_load", "local_store", "local_gather", "local_scatter", "remote_store", "async_remote_store", "async_load",
)  # fmt: skip

# Nodes that a pin does not reach: their label is no property of the value they read.
TAKES_NO_PIN = frozenset(
    "pin operand stage store atomic_rmw local_store local_scatter remote_store async_remote_store async_load".split()
)


# ------------------------------------------------------------------------------------------------ nodes and edges
class Node:
    """`weight`: how often its op runs.  `fixed`: the only layout it may have.  `pin`: the op whose pin fixed it.
    `out`: values it defines.  `elem`: bytes of an element of the tile that its label is about.  `order` and `vector`
    are about accesses to global memory: dimensions of the address, fastest first, and the elements one access may take.
    `across`: share of executions in which a reduction crosses lanes (a deferred sum does so once per loop)."""

    def __init__(self, kind: str, op: Op, tile: Value, weight: float, index: int, threads: Threads) -> None:
        self.kind, self.op, self.weight, self.id, self.threads = kind, op, weight, index, threads
        self.shape, self.elem = shape_of(tile.type), elem_bytes(tile)
        self.memory: Memory | None = None
        self.across = 1.0
        self.order: tuple[int, ...] = ()
        self.vector = 1
        self.out: list[Value] = []
        self.uses: list[Use] = []
        self.fixed: Layout | None = None
        self.pin: Op | None = None
        self.seeds: list[Layout] = []
        self.cands: dict[Layout, Layout] = {}  # by key
        self._prices: dict[Layout, float] = {}

    def result(self, label: Layout) -> Layout:
        """Layout of the values in `out`."""
        return algebra.slice_(label, self.op.attrs["axis"]) if self.kind == "reduce" else label

    def price(self, label: Layout) -> float:
        found = self._prices.get(label)
        if found is None:
            unary = _UNARY.get(self.kind)
            found = self._prices[label] = unary(self, label) * self.weight if unary else 0.0
        return found

    def allowed(self) -> Iterator[Layout]:
        return iter(self.cands.values())


def _elementwise(n: Node, a: Layout) -> float:
    return prices.elementwise_price(a, prices.ALU if "cheap" in traits(n.op) else prices.SPECIAL)


def _reduce(n: Node, a: Layout) -> float:
    inside, across = prices.reduce_price(a, n.op.attrs["axis"])
    return inside + across * n.across


def _memory(n: Node) -> Memory:
    assert n.memory is not None
    return n.memory


_UNARY: dict[str, Callable[[Node, Layout], float]] = {
    "load": lambda n, a: prices.global_price(a, n.elem, n.order, n.vector, False),
    "store": lambda n, a: prices.global_price(a, n.elem, n.order, n.vector, True),
    "atomic_rmw": lambda n, a: prices.global_price(a, n.elem, n.order, 1, True),
    "local_load": lambda n, a: prices.shared_price(a, _memory(n), n.elem),
    "local_store": lambda n, a: prices.shared_store_price(a, _memory(n), n.elem),
    **dict.fromkeys(("local_gather", "local_scatter"), lambda n, a: prices.gather_price(a)),
    "remote_store": lambda n, a: prices.remote_price(a, _memory(n), n.elem, 1),
    "async_remote_store": lambda n, a: prices.remote_price(a, _memory(n), n.elem, prices.WORD),
    "async_load": lambda n, a: prices.async_load_price(a, _memory(n), n.elem, n.order, n.vector),
    "stage": lambda n, a: prices.stage_price(a, n.elem),
    "elementwise": _elementwise,
    "reduce": _reduce,
}


class Use:
    """Consumer `node` reads `value` through the relabelling ops `steps`, the consumer's end first."""

    def __init__(self, value: Value, node: Node, steps: tuple[Op, ...], weight: float) -> None:
        self.value, self.node, self.steps, self.weight = value, node, steps, weight
        self._need: dict[Layout, Layout | None] = {}
        self._forward: dict[Layout, Layout | None] = {}

    def need(self, label: Layout) -> Layout | None:
        """Layout of the value with which the edge is free when the consumer has `label`; None if there is none."""
        if not self.steps:
            return label
        if label not in self._need:
            out: Layout | None = label
            for op in self.steps:
                out = backward(op, out) if out is not None else None
            self._need[label] = out
        return self._need[label]

    def forward(self, layout: Layout) -> Layout | None:
        """Label of the consumer that reads the value where it lies; None if undetermined or impossible."""
        if not self.steps:
            return layout
        if layout not in self._forward:
            out: Layout | None = layout
            for op in reversed(self.steps):
                out = forward(op, out) if out is not None else None
            self._forward[layout] = out
        return self._forward[layout]


Labels = list[Layout]  # by node id
Demands = dict[Layout, tuple[Layout, float]]  # by key: a layout that is asked of a value, and the conversion's weight


class Wire:
    """All edges of one value; its cost depends on the labels of its definition and of its consumers."""

    def __init__(self, g: Graph, value: Value) -> None:
        self.g, self.value = g, value
        ids = [g.of[value].id, *(u.node.id for u in g.uses[value])]
        self._pick = itemgetter(*ids)
        self._memo: dict[object, float] = {}

    def cost(self, labels: Labels) -> float:
        """Price of all conversions of the value."""
        code = self._pick(labels)
        found = self._memo.get(code)
        if found is None:
            found = self._memo[code] = self.g.value_cost(self.value, labels)
        return found


class Graph:
    """Built once per module; labels are chosen by `search` and written by `apply`."""

    def __init__(
        self, module: Module, lanes: int, info: AxisInfo, sums: Sequence[DeferredSum], pending: Iterable[Value] = ()
    ) -> None:
        self.module, self.info = module, info
        self.threads = Threads(lanes, module.num_warps)  # of the task that is being walked
        self.threads_in: dict[Region, Threads] = {}
        self.pending = set(pending)
        self.unmoved = {v for s in sums for v in s.values} | self.pending  # to be converted is no option
        self.nodes: list[Node] = []
        self.of: dict[Value, Node] = {}  # the node that defines a value
        self.at: dict[Op, list[Node | None]] = {}  # nodes of an op: one, or operands a, b and result, or one per slot
        self.home: dict[Value, float] = {}  # weight of the block that defines a value
        self.uses: dict[Value, list[Use]] = {}
        self.cheap: set[Value] = set()
        self.trips = {op: trip_count(s.loop) for s in sums for op in s.reduces}
        self.reduced = {
            (len(shape_of(op.inputs[0].type)), op.attrs["axis"]): None for op in module.walk() if op.kind == "reduce"
        }
        self._walk(module.body, 1.0)
        self._spread_pins()
        self._candidates()
        self.wires = {v: Wire(self, v) for v, uses in self.uses.items() if uses}

    # -- construction
    def _node(self, kind: str, op: Op, tile: Value, weight: float, out: Sequence[Value] = ()) -> Node:
        n = Node(kind, op, tile, weight, len(self.nodes), self.threads)
        self.nodes.append(n)
        for v in out:
            self._bind(v, n, weight)
        return n

    def _bind(self, v: Value, n: Node, weight: float) -> None:
        n.out.append(v)
        self.of[v], self.home[v] = n, weight
        self.uses[v] = []

    def _use(self, value: Value | None, node: Node, weight: float, steps: tuple[Op, ...] = ()) -> None:
        """Follows relabelling ops to the values that hold data; cheap values end here."""
        if value is None or not is_tile(value) or value in self.cheap:
            return
        if value not in self.of:
            assert value.op is not None and value.op.kind in RELABEL
            for operand in value.op.inputs:
                self._use(operand, node, weight, (*steps, value.op))
            return
        u = Use(value, node, steps, weight)
        self.uses[value].append(u)
        node.uses.append(u)

    def _walk(self, region: Region, weight: float) -> None:
        self.threads_in[region] = self.threads
        for op in region.ops:
            special = self._SPECIAL.get(op.kind)
            if special is not None:
                special(self, op, weight)
            elif any(map(is_tile, (*op.operands, *op.results))):
                self._plain(op, weight)

    def _plain(self, op: Op, weight: float) -> None:
        tiles, t = tiles_of(op), traits(op)
        if ("cheap" in t or "relabel" in t) and all(v in self.cheap for v in tiles):
            self.cheap.update(op.results)
            check_reshape(op, self.threads)
        elif op.kind in RELABEL:
            check_reshape(op, self.threads)
        elif "elementwise" in t:
            self._simple("elementwise", op, op.result, weight)
        else:
            raise InternalError(f"layout assignment does not know the op {op.kind}")

    def _simple(self, kind: str, op: Op, tile: Value, weight: float) -> Node:
        """One node: all operands and results in its label."""
        n = self._node(kind, op, tile, weight, [v for v in op.results if is_tile(v)])
        self.at[op] = [n]
        for v in op.operands:
            self._use(v, n, weight)
        return n

    def _reduce(self, op: Op, weight: float) -> None:
        n = self._simple("reduce", op, op.inputs[0], weight)
        n.across = 1.0 / self.trips.get(op, 1)

    def _pin(self, op: Op, weight: float) -> None:
        n = self._simple("pin", op, op.result, weight)
        self._pinned(n, op.attrs["layout"])

    def _pinned(self, n: Node, layout: Layout) -> None:
        n.fixed, n.pin = layout, n.op
        check_pin(n.op, layout, self.threads)

    def _access(self, op: Op, weight: float) -> None:
        pointer = op.inputs[0]
        if not is_tile(pointer):
            return
        tile = op.result if op.kind == "load" else op.inputs[1]
        n = self._simple(op.kind, op, tile, weight)
        n.order = self.info.order(pointer)
        n.vector = access_vector(self.info, pointer, op.operands[1 if op.kind == "load" else 2])
        n.seeds.append(default_layout(n.shape, n.elem, self.threads, n.order, n.vector))
        for rank, axis in self.reduced:  # the same access, warps (and lanes) kept away from the reduced axis
            if rank == len(n.shape) > 1:
                keep = tuple(d for d in range(rank) if d != axis)
                for vector in (n.vector, 1):
                    n.seeds.append(default_layout(n.shape, n.elem, self.threads, n.order, vector, keep))

    def _prefetch(self, op: Op, weight: float) -> None:
        """The addresses, one thread to each run of neighbours."""
        pointer = op.inputs[0]
        if is_tile(pointer):
            n = self._simple("prefetch", op, pointer, weight)
            n.order, n.vector = self.info.order(pointer), access_vector(self.info, pointer, op.operands[1])
            n.seeds.append(default_layout(n.shape, WIDEST_ACCESS // n.vector, self.threads, n.order, n.vector))

    def _vote(self, op: Op, weight: float) -> None:
        """Wherever the tile lies: every layout gives its warps votes of their own."""
        if is_tile(op.inputs[0]):
            self._simple("vote", op, op.inputs[0], weight)

    def _shared(self, op: Op, weight: float) -> None:
        """A tile and the buffer that it comes from or goes to, which proposes runs along its contiguous dimension."""
        buffer = next(v for v in op.inputs if isinstance(v.type, Buffer))
        tile = op.results[0] if op.results and is_tile(op.results[0]) else tiles_of(op)[0]
        n = self._simple(op.kind, op, tile, weight)
        n.memory = memory_of(buffer)
        if op.kind == "async_load":
            n.elem, n.order = elem_bytes(buffer), self.info.order(tile)
            along = n.order[0] == contiguous_first(n.memory)[0]  # a run is one in both memories
            n.vector = access_vector(self.info, tile, op.operands[2]) if along else 1
            least = min(n.vector, max(1, SMALLEST_COPY // n.elem))
            n.seeds.append(default_layout(n.shape, n.elem, self.threads, n.order, n.vector, least=least))
        n.seeds.append(default_layout(n.shape, n.elem, self.threads, contiguous_first(n.memory)))
        if op.kind == "local_load" and op.attrs.get("pinned"):
            assert isinstance(op.result.type, Tensor) and op.result.type.layout is not None
            self._pinned(n, op.result.type.layout)

    def _wait(self, op: Op, weight: float) -> None:
        """Each result is its operand, in the operand's node; a cheap operand gets one."""
        slots: list[Node | None] = []
        for v, result in zip(op.inputs, op.results):
            n = self.of.get(v)
            if n is None:
                n = self._node("wait", op, result, weight)
                self._use(v, n, weight)
            self._bind(result, n, weight)
            slots.append(n)
        self.at[op] = slots

    def _tasks(self, op: Op, weight: float) -> None:
        outer = self.threads
        for region, warps in zip(op.regions, op.attrs["num_warps"]):
            self.threads = Threads(outer.lanes, warps)
            self._walk(region, weight)
        self.threads = outer

    def _async_dot(self, op: Op, weight: float) -> None:
        """The accumulator lies as the instruction leaves it; operand A too, where it is in registers."""
        n = self._node("dot", op, op.result, weight, op.results)
        n.fixed = dot_layout(op, "acc", self.threads.warps)
        self._use(op.operands[2], n, weight)
        a, m = op.inputs[0], None
        if is_tile(a):
            m = self._node("operand", op, a, weight)
            m.fixed = dot_layout(op, "a", self.threads.warps)
            self._use(a, m, weight)
        self.at[op] = [m, None, n, None]

    def _dot(self, op: Op, weight: float) -> None:
        n = self._node("dot", op, op.result, weight, op.results)
        n.fixed = dot_layout(op, "acc", self.threads.warps)
        self._use(op.inputs[2], n, weight)
        self.at[op] = []
        for role, v in zip("ab", op.inputs):
            fixed = dot_layout(op, role, self.threads.warps)
            m = self._node("stage" if fixed is None else "operand", op, v, weight)
            m.fixed = fixed
            self._use(v, m, weight)
            self.at[op].append(m)
        self.at[op].append(n)

    def _loop(self, op: Op, weight: float) -> None:
        inner, inits = weight * trip_count(op), carried_inits(op)
        slots: list[Node | None] = []
        for i, (init, result) in enumerate(zip(inits, op.results)):
            if not is_tile(result):
                slots.append(None)
                continue
            n = self._node("carried", op, result, weight, [result])
            for arg in carried_args(op, i):
                self._bind(arg, n, inner)
            self._use(init, n, weight)
            slots.append(n)
        self.at[op] = slots
        for r in op.regions:
            self._walk(r, inner)
        for v, slot in zip(op.regions[-1].terminator.inputs, slots):
            if slot is not None:
                self._use(v, slot, inner)

    def _if(self, op: Op, weight: float) -> None:
        slots = [self._node("if", op, v, weight, [v]) if is_tile(v) else None for v in op.results]
        self.at[op] = list(slots)
        for r in op.regions:
            self._walk(r, weight * BRANCH)
            for v, slot in zip(r.terminator.inputs, slots):
                if slot is not None:
                    self._use(v, slot, weight * BRANCH)

    def _nothing(self, op: Op, weight: float) -> None:
        """`yield` belongs to its owner; `dump_layout` and `breakpoint` take what is there."""

    _SPECIAL: dict[str, Callable[[Graph, Op, float], None]] = {
        "require_layout": _pin,
        "reduce": _reduce,
        "load": _access,
        "store": _access,
        "atomic_rmw": _access,
        "prefetch": _prefetch,
        "warp_vote": _vote,
        "dot": _dot,
        **dict.fromkeys(SHARED_ACCESSES, _shared),
        "async_dot": _async_dot,
        "async_dot_wait": _wait,
        "async_tasks": _tasks,
        "for": _loop,
        "while": _loop,
        "if": _if,
        "yield": _nothing,
        "dump_layout": _nothing,
        "breakpoint": _nothing,
    }

    # -- pins
    def _spread_pins(self) -> None:
        work = [n for n in self.nodes if n.pin is not None]
        while work:
            n = work.pop()
            assert n.fixed is not None and n.pin is not None
            for u in (u for v in n.out for u in self.uses[v]):
                m, want = u.node, u.forward(n.result(n.fixed))
                if m.kind in TAKES_NO_PIN or want is None:
                    continue
                if m.fixed is None:
                    m.fixed, m.pin = want, n.pin
                    work.append(m)
                elif m.pin is not None and m.fixed.key is not want.key:
                    raise _pin_conflict(m, want, n.pin)

    # -- candidates
    def _candidates(self) -> None:
        """Closure of fixed layouts and seeds over the edges, both ways; what none reaches starts from a default."""
        queue: list[tuple[Node, Layout]] = []
        for n in self.nodes:
            for a in [n.fixed] if n.fixed is not None else n.seeds:
                self._offer(n, a, queue)
        self._close(queue)
        for n in self.nodes:
            if not n.cands:
                self._offer(n, default_layout(n.shape, 4, n.threads), queue)
                self._close(queue)

    def _offer(self, n: Node, a: Layout | None, queue: list[tuple[Node, Layout]]) -> None:
        if a is None or a.shape != n.shape or a.key in n.cands or len(n.cands) >= MAX_CANDIDATES:
            return
        if n.fixed is None or not n.cands:
            n.cands[a.key] = a
            queue.append((n, a))

    def _close(self, queue: list[tuple[Node, Layout]]) -> None:
        done = 0
        while done < len(queue):
            n, a = queue[done]
            done += 1
            for u in n.uses:
                m = self.of[u.value]
                if m.kind != "reduce":
                    self._offer(m, u.need(a), queue)
            r = n.result(a)
            for v in n.out:
                for u in self.uses[v]:
                    self._offer(u.node, u.forward(r), queue)
        queue.clear()

    # -- cost
    def demands(self, v: Value, labels: Labels) -> tuple[Demands, list[float]]:
        """Distinct layouts asked of a value: by key, (layout, weight of the conversion: the colder of definition and
        hottest use); then the weights of uses that no layout of the value satisfies."""
        home, out, detours = self.home[v], Demands(), list[float]()
        for u in self.uses[v]:
            want, w = u.need(labels[u.node.id]), min(home, u.weight)
            if want is None:
                detours.append(w)
                continue
            old = out.get(want.key)
            if old is None or w > old[1]:
                out[want.key] = want, w
        return out, detours

    def value_cost(self, v: Value, labels: Labels) -> float:
        """Price of all conversions of a value."""
        n, elem = self.of[v], elem_bytes(v)
        have = n.result(labels[n.id])
        demands, detours = self.demands(v, labels)
        if v in self.unmoved and self.moves(have, demands, detours):
            return prices.IMPOSSIBLE  # an unfinished sum and a product in flight stay where they are
        total = sum(w * prices.detour_price(have.shape, elem) for w in detours)
        return total + sum(w * prices.conversion_price(have, want, elem) for want, w in demands.values())

    def moves(self, have: Layout, demands: Demands, detours: list[float]) -> bool:
        """Whether a value in `have` is converted at all."""
        return bool(detours) or any(classify(have, want)[0] not in FREE for want, _ in demands.values())

    def check(self, labels: Labels) -> None:
        """Refuses what no choice of layouts made possible."""
        for v in self.wires:
            n = self.of[v]
            if v in self.pending and self.moves(n.result(labels[n.id]), *self.demands(v, labels)):
                raise pending_moves(v, n.pin)
        for n in self.nodes:
            if n.kind == "async_load" and n.price(labels[n.id]) >= prices.IMPOSSIBLE * n.weight:
                raise narrow_async_load(n.op, n.elem * n.vector)

    def total(self, labels: Labels) -> float:
        return sum(n.price(labels[n.id]) for n in self.nodes) + sum(w.cost(labels) for w in self.wires.values())


def _pin_conflict(n: Node, want: Layout, pin: Op) -> CompileError:
    assert n.pin is not None and n.fixed is not None
    pins = [(algebra.cute(n.fixed), n.pin.loc), (algebra.cute(want), pin.loc)]
    pins.sort(key=lambda p: p[1].line if p[1] else 0)
    return CompileError(
        f"two required layouts meet in one operation ({n.op.kind})",
        found=f"{pins[0][0]} and {pins[1][0]}",
        allowed="one layout for all operands of an operation",
        fix="require the same layout at both places, or, before this use, pin one operand to the layout of the other",
        loc=n.op.loc,
        related=[(f"{text} is required", loc) for text, loc in pins],
    )
