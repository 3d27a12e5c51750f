"""Structured control flow to blocks and phis."""

from __future__ import annotations

from tlxc.ir.core import Op, Region, Value
from tlxc.ir.types import DType, element_of

from .lowering import Lowering, lowers


class _Phis:
    """Phis of loop-carried values, whose second source is known only after the body."""

    def __init__(self, low: Lowering, inits: list[Value], args: list[Value]) -> None:
        self.low, self.slots = low, []
        entry = low.w.block
        self.entry = entry
        self.pending: list[tuple[int, str, str, str]] = []
        self.types = [low.llvm(a) for a in args]
        self.inits = [low.get(v) for v in inits]

    def open(self) -> list[list[str]]:
        """Writes the phis at the start of the header; the back edge is filled in by `close`."""
        w, out = self.low.w, []
        for t, names in zip(self.types, self.inits):
            slot = []
            for x in names:
                slot.append(w.assign(""))
                self.pending.append((len(w.lines) - 1, slot[-1], t, x))
            out.append(slot)
        return out

    def close(self, latch: str, values: list[list[str]]) -> None:
        flat = [x for names in values for x in names]
        for (line, name, t, init), back in zip(self.pending, flat, strict=True):
            self.low.w.lines[line] = f"  {name} = phi {t} [ {init}, %{self.entry} ], [ {back}, %{latch} ]"


def _bind(low: Lowering, values: list[Value], names: list[list[str]]) -> None:
    for v, n in zip(values, names):
        low.set(v, n)


def _yielded(low: Lowering, region: Region) -> list[list[str]]:
    return [low.get(v) for v in region.terminator.inputs]


def _body(low: Lowering, region: Region) -> None:
    for op in region.ops[:-1]:
        low.op(op)


def _trip_count(low: Lowering, t: str, dtype: DType, lo: str, hi: str, step: str, descending: bool) -> str:
    """Exact number of trips as an unsigned value: 0 when the range is empty, no overflow at the type's ends."""
    w = low.w
    order = "s" if dtype.signed else "u"
    first, last = (hi, lo) if descending else (lo, hi)
    some = w.assign(f"icmp {order}lt {t} {first}, {last}")
    span = w.assign(f"sub {t} {last}, {first}")
    stride = w.assign(f"sub {t} 0, {step}") if descending else step
    if stride != "1":
        less = w.assign(f"sub {t} {span}, 1")
        span = w.assign(f"add {t} {w.assign(f'udiv {t} {less}, {stride}')}, 1")
    return w.assign(f"select i1 {some}, {t} {span}, {t} 0")


@lowers("for")
def for_loop(low: Lowering, op: Op) -> None:
    w, body = low.w, op.regions[0]
    dtype = element_of(op.inputs[0].type)
    assert isinstance(dtype, DType)
    t = low.llvm(op.inputs[0])
    lo, hi, step = (low.scalar(v) for v in op.inputs[:3])
    trips = _trip_count(low, t, dtype, lo, hi, step, bool(op.attrs.get("descending")))
    header, inside, done = w.new_block("loop"), w.new_block("body"), w.new_block("done")
    carried = _Phis(low, op.inputs[3:], body.args[1:])
    entry = w.block
    w.jump(header)
    w.start(header)
    count_line, count = len(w.lines), w.assign("")
    index_line, index = len(w.lines), w.assign("")
    slots = carried.open()
    w.branch(w.assign(f"icmp ult {t} {count}, {trips}"), inside, done)
    w.start(inside)
    _bind(low, body.args, [[index], *slots])
    _body(low, body)
    next_count, next_index = w.assign(f"add {t} {count}, 1"), w.assign(f"add {t} {index}, {step}")
    latch = w.block
    w.jump(header)
    w.lines[count_line] = f"  {count} = phi {t} [ 0, %{entry} ], [ {next_count}, %{latch} ]"
    w.lines[index_line] = f"  {index} = phi {t} [ {lo}, %{entry} ], [ {next_index}, %{latch} ]"
    carried.close(latch, _yielded(low, body))
    w.start(done)
    _bind(low, op.results, slots)


@lowers("while")
def while_loop(low: Lowering, op: Op) -> None:
    w, (cond, body) = low.w, op.regions
    header, inside, done = w.new_block("loop"), w.new_block("body"), w.new_block("done")
    carried = _Phis(low, op.inputs, cond.args)
    w.jump(header)
    w.start(header)
    slots = carried.open()
    _bind(low, cond.args, slots)
    _bind(low, body.args, slots)
    _body(low, cond)
    w.branch(low.scalar(cond.terminator.inputs[0]), inside, done)
    w.start(inside)
    _body(low, body)
    latch = w.block
    w.jump(header)
    carried.close(latch, _yielded(low, body))
    w.start(done)
    _bind(low, op.results, slots)


@lowers("if")
def if_else(low: Lowering, op: Op) -> None:
    w = low.w
    then, otherwise, join = w.new_block("then"), w.new_block("else"), w.new_block("join")
    w.branch(low.scalar(op.inputs[0]), then, otherwise)
    arms = []
    for block, region in zip((then, otherwise), op.regions):
        w.start(block)
        _body(low, region)
        arms.append((w.block, _yielded(low, region)))
        w.jump(join)
    w.start(join)
    (block_a, a), (block_b, b) = arms
    for v, xs, ys in zip(op.results, a, b):
        t = low.llvm(v)
        low.set(v, [w.assign(f"phi {t} [ {x}, %{block_a} ], [ {y}, %{block_b} ]") for x, y in zip(xs, ys)])
